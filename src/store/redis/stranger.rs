//! Servers that are no place for a lock as they are addressed: what they are, and what to write.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;

use super::call::Call;
use super::requests::Requests;
use crate::store::net::dial::{self, Dialing, SAID_NOTHING, TLS_ALERT};
use crate::store::redis::locator::HashSlot;
use crate::store::redis::locator::redirect::Redirect;
use crate::store::{Fault, FaultKind};

/// Longest time to see whether a server speaks TLS, and the part of an exchange that it is at most.
const LOOK: Duration = Duration::from_millis(250);
const SHARE: u32 = 4;

/// A server's silence: it closed a connection and never said anything. Whether it speaks TLS is
/// found out once, until it speaks.
#[derive(Default)]
pub(super) struct Silence(Mutex<Option<bool>>);

impl Silence {
    /// Whether the server was silent when it was last met.
    pub(super) fn is_known(&self) -> bool {
        self.found().is_some()
    }

    /// Whether the silence is that of TLS, as `looked` finds out the first time.
    pub(super) async fn is_of_tls(&self, looked: impl Future<Output = bool>) -> bool {
        let known = *self.found();
        if let Some(is_tls) = known {
            return is_tls;
        }
        let is_tls = looked.await;
        *self.found().insert(is_tls)
    }

    /// The server has spoken.
    pub(super) fn end(&self) {
        *self.found() = None;
    }

    fn found(&self) -> MutexGuard<'_, Option<bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `fault` in the words of what the server is, if it is none of Redis' kind, or one that
/// knows no scripts.
pub(super) async fn explained(requests: &Requests, slot: Option<HashSlot>, fault: Fault) -> Fault {
    if let Some(link) = requests
        .pool
        .newest(slot)
        .filter(|link| link.state().is_dumb())
    {
        return if link.site.connector.leads_to_tls(requests.pool.limit).await {
            tls()
        } else if fault.remedy.is_none() {
            fault.with_remedy(SAID_NOTHING)
        } else {
            fault
        };
    }
    if fault.kind != FaultKind::Unfit || !is_of_scripts(&fault.why) {
        return fault;
    }
    let mut command = redis::cmd("INFO");
    command.arg("server");
    let told = requests
        .ask(Call {
            command,
            slot,
            least: None,
        })
        .received()
        .await
        .result;
    let is_sentinel = told.is_ok_and(|told| is_sentinel(&told));
    if is_sentinel { sentinel() } else { fault }
}

/// Whether the server knows no scripts. Redis 6 quotes the name of an unknown command in another
/// way than Redis 7.
fn is_of_scripts(why: &str) -> bool {
    why.to_ascii_lowercase()
        .replace('`', "'")
        .contains("unknown command 'eval'")
}

/// Returns the fault of a server whose first byte is that of another protocol.
pub(super) fn of_first_byte(first: Option<u8>) -> Option<Fault> {
    match first? {
        TLS_ALERT => Some(tls()),
        b'H' => Some(Fault::unfit(
            "it speaks HTTP",
            "write the port of a Redis server",
        )),
        _ => None,
    }
}

/// Returns the fault of a server that refuses a connection when it is opened, from the only line
/// that it has sent. It closes the connection, often before a request is sent, so that none gets
/// this as its reply.
pub(super) fn of_only_line(line: &[u8]) -> Option<Fault> {
    if line
        .iter()
        .position(|byte| *byte == b'\n')
        .is_some_and(|end| end + 1 < line.len())
    {
        return None;
    }
    if line.starts_with(b"-DENIED ") {
        let why = "it is in protected mode, which keeps other hosts out";
        return Some(Fault::unfit(why, "set a password for it (requirepass)"));
    }
    let is_full = line.starts_with(b"-ERR max number of clients");
    is_full.then(|| Fault::new(FaultKind::Unavailable, "ERR max number of clients reached"))
}

/// Whether the server that is being connected to speaks TLS.
pub(super) async fn speaks_tls(dialing: Dialing, time: Duration) -> bool {
    dial::speaks_tls(dialing, LOOK.min(time / SHARE)).await
}

/// The fault of a server that speaks TLS where none was asked for.
pub(super) fn tls() -> Fault {
    Fault::unfit("it speaks TLS", "write rediss in place of redis")
}

/// The fault of a sentinel that is named as a server.
pub(super) fn sentinel() -> Fault {
    Fault::unfit(
        "it is a sentinel",
        "write redis-sentinel://HOST:PORT,…/SERVICE",
    )
}

/// Returns `fault` in the words of what the server is, if it sends the request to another server.
pub(super) fn redirecting(fault: Fault) -> Fault {
    if !Redirect::of(&fault).is_some_and(|redirect| redirect.is_of_cluster()) {
        return fault;
    }
    Fault::unfit("it is part of a cluster", "write redis-cluster://HOST:PORT")
}

/// Whether a reply to INFO is a sentinel's. Valkey 8 has a name of its own for the mode.
pub(super) fn is_sentinel(info: &Value) -> bool {
    let Value::BulkString(text) = info else {
        return false;
    };
    let is_mode =
        |line: &[u8]| [&b"redis_mode:sentinel"[..], b"server_mode:sentinel"].contains(&line);
    text.split(|byte| *byte == b'\n')
        .any(|line| is_mode(line.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_is_known_by_its_mode() {
        let info = |text: &str| is_sentinel(&Value::BulkString(text.as_bytes().to_vec()));
        assert!(
            info("# Server\r\nredis_mode:sentinel\r\n")
                && info("server_mode:sentinel\r\nos:Linux\r\n")
        );
        assert!(
            !info("redis_mode:standalone\r\n")
                && !info("name:redis_mode:sentinel")
                && !is_sentinel(&Value::Nil)
        );
    }

    #[test]
    fn a_server_that_refuses_connections_is_known_by_its_first_bytes() {
        let kind = |first: &str| of_only_line(first.as_bytes()).map(|fault| fault.kind);
        assert_eq!(
            kind("-DENIED Redis is running in protected mode because"),
            Some(FaultKind::Unfit)
        );
        assert_eq!(
            kind("-ERR max number of clients reached\r\n"),
            Some(FaultKind::Unavailable)
        );
        for reply in [
            "-NOAUTH Authentication required.\r\n",
            "-ERR unknown command\r\n",
            "+OK\r\n",
            "-DENIEDX",
            "",
        ] {
            assert_eq!(kind(reply), None, "{reply}");
        }
    }

    #[test]
    fn a_server_without_scripts_is_known_by_its_words() {
        for why in [
            "ERR unknown command 'EVAL', with args",
            "ERR unknown command `EVAL`, with args",
        ] {
            assert!(is_of_scripts(why), "{why}");
        }
        assert!(
            !is_of_scripts("ERR unknown command 'GET'")
                && !is_of_scripts("NOPERM no permission to run 'eval'")
        );
    }

    #[test]
    fn no_first_byte_of_a_reply_is_another_protocols() {
        for first in b"+-:$*_#,(!=%~>|." {
            assert_eq!(of_first_byte(Some(*first)), None);
        }
        assert_eq!(of_first_byte(None), None);
        let why = |first| {
            of_first_byte(Some(first))
                .map(|fault| fault.why)
                .unwrap_or_default()
        };
        assert!(why(b'H').contains("HTTP") && why(0x15).contains("rediss"));
    }
}
