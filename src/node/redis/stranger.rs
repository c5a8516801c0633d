//! Servers that speak the protocol and are no place for a lock.

use redis::Value;

use super::requests::Requests;
use crate::node::{Fault, FaultKind};

/// Returns `fault` in the words of what the server is, if it knows no scripts because it is a sentinel.
pub(super) async fn explained(requests: &Requests, fault: Fault) -> Fault {
    if fault.kind != FaultKind::Unfit || !is_of_scripts(&fault.why) {
        return fault;
    }
    let mut command = redis::cmd("INFO");
    command.arg("server");
    let told = requests.ask(command).received().await.result;
    let is_sentinel = told.is_ok_and(|told| is_sentinel(&told));
    if is_sentinel { sentinel() } else { fault }
}

/// Whether the server knows no scripts. Redis 6 quotes the name of an unknown command in another way than Redis 7.
fn is_of_scripts(why: &str) -> bool {
    why.to_ascii_lowercase().replace('`', "'").contains("unknown command 'eval'")
}

/// The fault of a sentinel that is named as a server.
pub(super) fn sentinel() -> Fault {
    Fault::new(FaultKind::Unfit, "it is a sentinel; write redis-sentinel://HOST:PORT,…/SERVICE")
}

/// Whether a reply to INFO is a sentinel's. Valkey 8 has a name of its own for the mode.
pub(super) fn is_sentinel(info: &Value) -> bool {
    let Value::BulkString(text) = info else { return false };
    let is_mode = |line: &[u8]| [&b"redis_mode:sentinel"[..], b"server_mode:sentinel"].contains(&line);
    text.split(|byte| *byte == b'\n').any(|line| is_mode(line.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_is_known_by_its_mode() {
        let info = |text: &str| is_sentinel(&Value::BulkString(text.as_bytes().to_vec()));
        assert!(info("# Server\r\nredis_mode:sentinel\r\n") && info("server_mode:sentinel\r\nos:Linux\r\n"));
        assert!(!info("redis_mode:standalone\r\n") && !info("name:redis_mode:sentinel") && !is_sentinel(&Value::Nil));
    }

    #[test]
    fn a_server_without_scripts_is_known_by_its_words() {
        for why in ["ERR unknown command 'EVAL', with args", "ERR unknown command `EVAL`, with args"] {
            assert!(is_of_scripts(why), "{why}");
        }
        assert!(!is_of_scripts("ERR unknown command 'GET'") && !is_of_scripts("NOPERM no permission to run 'eval'"));
    }
}
