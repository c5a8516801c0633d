//! Scripts' calls: the keys of a lock, and the arguments that several operations take.

use std::time::Duration;

use redis::Cmd;

use super::script::{self, LOCK, Script};
use crate::lock::queue::Waiter;
use crate::lock::schedule::Term;
use crate::store::redis::locator::HashSlot;
use crate::store::redis::names::{Derived, Names};

/// Shortest time for which a fence counter is kept after its last use.
pub(super) const FENCE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Time for which a queue is kept after the last poll by a waiter. Waiters poll every minute.
pub(super) const QUEUE_LIFE: Duration = Duration::from_secs(600);

/// Number of arguments of a call, and their length in bytes, for which room is made in advance.
const ARGUMENTS: usize = 40;
const ARGUMENTS_LENGTH: usize = 1024;

/// The derived keys of `lock.lua`, in their order. An operation takes the first ones, as many as it
/// reads: a server of a cluster that has only some of them refuses the call.
pub(super) const LOCKS: [Derived; 5] = [
    Derived::Fence,
    Derived::Leases,
    Derived::Holders,
    Derived::Queue,
    Derived::Turns,
];

/// The counter alone, and with what a lock with members has.
pub(super) const COUNTER: &[Derived] = LOCKS.split_at(1).0;
pub(super) const WITH_MEMBERS: &[Derived] = LOCKS.split_at(3).0;

/// The members' own keys.
pub(super) const OF_MEMBERS: [Derived; 2] = [Derived::Leases, Derived::Holders];

/// A request about one lock.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) command: Cmd,
    /// The lock's slot, in a cluster.
    pub(super) slot: Option<HashSlot>,
    /// The form of a renewal or a release that needs the fewest keys, and no script that the server
    /// keeps.
    pub(super) least: Option<Least>,
}

/// The form of a request that a server executes in any state.
#[derive(Clone)]
pub(super) struct Least {
    pub(super) command: Cmd,
    /// Whether it takes the place of a call whose script the server does not have. A release is
    /// sent whole then all the same, since it wakes waiters; so is a renewal that must raise the
    /// fence counter.
    pub(super) suffices: bool,
}

impl Call {
    /// The request as one that brings its script along.
    pub(super) fn whole(&self) -> Cmd {
        script::whole(&self.command)
    }
}

/// Returns a call of an operation of `lock.lua`, with the lock's key and all of [`LOCKS`], and a
/// further one.
pub(super) fn on_lock(operation: &str, names: &Names, further: Option<Derived>) -> Cmd {
    let derived: Vec<Derived> = LOCKS.into_iter().chain(further).collect();
    on_keys(operation, names, &derived)
}

/// Returns a call of an operation of `lock.lua` with the lock's key and these that are derived from
/// it.
pub(super) fn on_keys(operation: &str, names: &Names, derived: &[Derived]) -> Cmd {
    let mut command = with_keys("EVALSHA", &LOCK.digest, names, derived);
    command.arg(operation);
    command
}

/// Returns a call of another script with the lock's key and these that are derived from it.
pub(super) fn of_script(script: &Script, names: &Names, derived: &[Derived]) -> Cmd {
    with_keys("EVAL", &script.text, names, derived)
}

fn with_keys(verb: &str, script: &str, names: &Names, derived: &[Derived]) -> Cmd {
    // Enough for all but the longest names, so that it is not moved while it grows.
    let mut command = Cmd::with_capacity(ARGUMENTS, script.len() + ARGUMENTS_LENGTH);
    command
        .arg(verb)
        .arg(script)
        .arg(1 + derived.len())
        .arg(names.stored());
    for kind in derived {
        command.arg(names.derived(*kind));
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
