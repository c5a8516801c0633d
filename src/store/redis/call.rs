//! Calls of scripts: the keys of a lock, the arguments that several operations take, and the
//! requests by which a lock is taken and given back.

use std::time::Duration;

use redis::Cmd;

use super::Form;
use super::script::{self, FREE, FREE_MEMBER, FREE_REDISSON, LOCK, Script};
use crate::lock::fence::Fence;
use crate::lock::last::{Note, RUN_LIFE};
use crate::lock::messages::Claim;
use crate::lock::mode::Mode;
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::redis::locator::{HashSlot, Site};
use crate::store::redis::names::{Derived, Names};
use crate::store::{Parked, QueueAction, Release};
use crate::text::duration::millis;

/// Shortest time for which a fence counter is kept after its last use.
pub(super) const FENCE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Time for which a queue is kept after the last poll by a waiter. Waiters poll every minute.
pub(super) const QUEUE_LIFE: Duration = Duration::from_secs(600);

/// Number of arguments of a call, and their length in bytes, for which room is made in advance.
const ARGUMENTS: usize = 40;
const ARGUMENTS_LENGTH: usize = 1024;

/// One above the largest fence of a script. A number in Lua is exact below 2⁵³ only (`c + 1 == c`).
pub const FENCE_LIMIT: u64 = 1 << 52;

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

/// Returns the waiter's entry in the queue; empty if there is no waiter.
pub(super) fn in_queue(waiter: Option<&Waiter>) -> String {
    waiter.map_or_else(String::new, Waiter::to_string)
}

/// Returns the fence that a script is sent. No script has granted one above the limit.
pub(super) fn fence_sent(fence: Fence) -> u64 {
    fence.get().min(FENCE_LIMIT - 1)
}

/// Returns the fence that a script told as `text`, if it is one.
pub(super) fn fence_told(text: &str) -> Option<Fence> {
    let number = text.parse().ok().filter(|number| *number < FENCE_LIMIT)?;
    Fence::new(number)
}

pub(super) fn fence_life(term: Term) -> u64 {
    millis(FENCE_LIFE.max(term.ttl() * 2))
}

/// Uptime in seconds that no server has. A request for a lock after it tells the lock's holder and keeps the
/// waiter's place, and is refused where the lock is free.
const NEVER: u64 = 1 << 52;

/// The request for a lock at a server that became the primary too short a time ago: its data may lack the
/// last writes of the old one.
pub(super) struct ForYoung {
    /// Time as the primary, in whole seconds, from which on a server is not too young.
    least_age: u64,
    pub(super) command: Cmd,
}

impl ForYoung {
    /// Whether the server of `site` is too young.
    pub(super) fn is_for(&self, site: &Site) -> bool {
        site.age().is_some_and(|age| age.as_secs() < self.least_age)
    }
}

/// Returns the least uptime, in whole seconds as in INFO, of a server that has been up for `span`; 0
/// for a span of zero. One second more than the span: INFO subtracts two times that are both cut to
/// seconds.
fn least_uptime(span: Duration) -> u64 {
    let whole = span
        .as_secs()
        .saturating_add(u64::from(span.subsec_nanos() > 0));
    if whole == 0 {
        0
    } else {
        whole.saturating_add(1)
    }
}

/// Returns the request for a lock.
pub(super) fn take(names: &Names, form: Form, claim: &Claim) -> Cmd {
    take_after(names, form, claim, claim.guarded.map(least_uptime))
}

/// Returns the request for a lock at a server that became the primary too short a time ago; `None`
/// if none can be too young.
pub(super) fn take_from_young(names: &Names, form: Form, claim: &Claim) -> Option<ForYoung> {
    let least_age = claim.guarded.map(least_uptime).filter(|least| *least > 0)?;
    Some(ForYoung {
        least_age,
        command: take_after(names, form, claim, Some(NEVER)),
    })
}

/// Returns the request for a lock at a server that has been up for so many seconds at least.
fn take_after(names: &Names, form: Form, claim: &Claim, least_uptime: Option<u64>) -> Cmd {
    let mode = claim.details.mode;
    let newest = claim
        .ticket
        .as_ref()
        .map(Ticket::newest)
        .filter(|newest| !newest.is_empty());
    let mut command = on_lock("take", names, newest.as_ref().map(|_| Derived::Newest));
    command
        .arg(claim.details.value(claim.token))
        .arg(millis(claim.term.ttl()));
    command.arg(claim.fence_hint).arg(fence_life(claim.term));
    command.arg(least_uptime.map_or_else(String::new, |uptime| uptime.to_string()));
    command.arg(in_queue(claim.ticket.as_ref().map(|ticket| &ticket.waiter)));
    command
        .arg(claim.ticket.as_ref().map_or(0, |ticket| ticket.number))
        .arg(millis(QUEUE_LIFE));
    command.arg(flag(claim.details.n == 1));
    command.arg(
        claim
            .outer
            .iter()
            .map(Token::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    );
    command
        .arg(claim.token.to_string())
        .arg(mode.to_string())
        .arg(claim.details.n);
    command
        .arg(claim.index)
        .arg(flag(claim.is_exact))
        .arg(flag(form == Form::Redisson))
        .arg(newest);
    command
}

/// Returns the request for `release`.
pub(super) fn give_back(names: &Names, release: &Release) -> Cmd {
    let Release {
        token,
        queue,
        parked,
        note,
        ..
    } = release;
    let operation = if parked.is_some() { "park" } else { "release" };
    let mut command = give_back_by(operation, names, Some(*token), queue, note.is_some());
    if let Some(Parked {
        left,
        value,
        ttl,
        parks_tombstone,
        index,
    }) = parked
    {
        command
            .arg(millis(*left))
            .arg(value)
            .arg(millis(*ttl))
            .arg(flag(*parks_tombstone))
            .arg(index);
    }
    add_note(&mut command, note.as_ref());
    command
}

/// Adds what the script is to write into the record.
pub(super) fn add_note(command: &mut Cmd, note: Option<&Note>) {
    let Some(Note {
        entry,
        is_run,
        success,
    }) = note
    else {
        return;
    };
    command
        .arg(format!("{:016}", fence_sent(entry.fence)))
        .arg(entry.token.to_string())
        .arg(entry.run.json());
    let life = [is_run.then_some(RUN_LIFE), *success]
        .map(|life| life.map_or_else(String::new, |life| millis(life).to_string()));
    command.arg(millis(entry.age)).arg(&life);
}

/// Returns the form of `release` that deletes the lock whatever the server knows; `None` if something stays in its place.
pub(super) fn least_give_back(names: &Names, form: Form, release: &Release) -> Option<Least> {
    if release.leaves_something() {
        return None;
    }
    let has_members = release.mode.is_some_and(Mode::has_members);
    let may_be_redissons = form == Form::Redisson || release.mode.is_none();
    let mut command = match (has_members, may_be_redissons) {
        (true, _) => of_script(&FREE_MEMBER, names, &OF_MEMBERS),
        (false, true) => of_script(&FREE_REDISSON, names, &[]),
        (false, false) => of_script(&FREE, names, &[]),
    };
    command.arg(release.token.to_string());
    if may_be_redissons {
        command.arg(names.redisson_channel());
    }
    Some(Least {
        command,
        suffices: false,
    })
}

/// Returns the request by which `waiter` leaves the queue; no lock is released.
pub(super) fn leave(names: &Names, waiter: &Waiter) -> Cmd {
    give_back_by(
        "release",
        names,
        None,
        &QueueAction::Leave(waiter.clone()),
        false,
    )
}

/// Returns the release of `token`'s key; without a token, the waiter leaves the queue and no key is
/// released.
fn give_back_by(
    operation: &str,
    names: &Names,
    token: Option<Token>,
    action: &QueueAction,
    notes: bool,
) -> Cmd {
    let supersedes = matches!(action, QueueAction::Keep(ticket) if !ticket.newest().is_empty());
    let further = if notes {
        Some(Derived::Last)
    } else {
        supersedes.then_some(Derived::Newest)
    };
    let mut command = on_lock(operation, names, further);
    command.arg(token.map_or_else(String::new, |token| token.to_string()));
    match action {
        QueueAction::None => command.arg("").arg(""),
        QueueAction::Leave(waiter) => command.arg(in_queue(Some(waiter))).arg(""),
        QueueAction::Keep(ticket) => command
            .arg(in_queue(Some(&ticket.waiter)))
            .arg(ticket.number),
    };
    let newest = if let QueueAction::Keep(ticket) = action {
        ticket.newest()
    } else {
        String::new()
    };
    command.arg(millis(QUEUE_LIFE)).arg(newest);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::reply::proven;

    #[test]
    fn a_second_more_is_asked_for_since_uptimes_are_cut_to_seconds() {
        assert_eq!(least_uptime(Duration::from_secs(30)), 31);
        assert_eq!(least_uptime(Duration::from_millis(1500)), 3);
        assert_eq!(least_uptime(Duration::ZERO), 0);
        assert_eq!(least_uptime(Duration::MAX), u64::MAX);
        for span in [0, 1, 999, 1000, 1500, 30_000].map(Duration::from_millis) {
            let least = least_uptime(span);
            assert!(proven(least) >= span && (least == 0 || proven(least - 1) < span));
        }
    }
}
