//! Servers that speak the protocol and are no place for a lock.

use redis::Value;

use super::requests::Requests;
use crate::node::{Fault, FaultKind};

/// Returns `fault` in the words of what the server is, if it knows no scripts because it is a sentinel.
pub(super) async fn explained(requests: &Requests, fault: Fault) -> Fault {
    if fault.kind != FaultKind::Unfit || !fault.why.to_ascii_lowercase().contains("unknown command 'eval'") {
        return fault;
    }
    let mut command = redis::cmd("INFO");
    command.arg("server");
    let told = requests.ask(command).received().await.result;
    let is_sentinel = told.is_ok_and(|told| is_sentinel(&told));
    if is_sentinel { sentinel() } else { fault }
}

/// The fault of a sentinel that is named as a server.
pub(super) fn sentinel() -> Fault {
    Fault::new(FaultKind::Unfit, "it is a sentinel; write redis-sentinel://HOST:PORT,…/SERVICE")
}

/// Whether a reply to INFO is a sentinel's.
pub(super) fn is_sentinel(info: &Value) -> bool {
    let Value::BulkString(text) = info else { return false };
    text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"redis_mode:sentinel")
}
