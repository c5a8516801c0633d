//! Scripts' calls: the keys of a lock, and the arguments that several scripts take.

use std::time::Duration;

use redis::Cmd;

use crate::lock::key::{Derived, Key};
use crate::lock::queue::Waiter;
use crate::lock::schedule::Term;
use crate::node::place::Slot;

/// Shortest time for which a fence counter is kept after its last use.
pub(super) const FENCE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Time for which a queue is kept after the last poll by a waiter. Waiters poll every minute.
pub(super) const QUEUE_LIFE: Duration = Duration::from_secs(600);

/// Number of arguments of a call, and their length in bytes without the script's, for which room is made in advance.
const ARGUMENTS: usize = 40;
const ARGUMENTS_LENGTH: usize = 1024;

/// A request about one lock.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) command: Cmd,
    /// The lock's slot, in a cluster.
    pub(super) slot: Option<Slot>,
    /// Forms of the request with fewer keys each, for a slot that is being moved.
    pub(super) fewer: Vec<Cmd>,
}

/// Returns a script's call with the lock's key and all that are derived from it.
pub(super) fn on_lock(script: &'static str, key: &Key) -> Cmd {
    on_keys(script, key, &Derived::OF_LOCK)
}

/// Returns a script's call with the lock's key and these that are derived from it.
pub(super) fn on_keys(script: &'static str, key: &Key, derived: &[Derived]) -> Cmd {
    // Enough for all but the longest names, so that it is not moved while it grows.
    let mut command = Cmd::with_capacity(ARGUMENTS, script.len() + ARGUMENTS_LENGTH);
    command.arg("EVAL").arg(script).arg(1 + derived.len()).arg(key.stored());
    for kind in derived {
        command.arg(key.derived(*kind));
    }
    command
}

pub(super) fn flag(is_set: bool) -> &'static str {
    if is_set { "1" } else { "" }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the waiter's entry in the queue; empty if there is no waiter.
pub(super) fn in_queue(waiter: Option<&Waiter>) -> String {
    waiter.map_or_else(String::new, Waiter::to_string)
}

pub(super) fn fence_life(term: Term) -> u64 {
    millis(FENCE_LIFE.max(term.ttl() * 2))
}
