//! The requests by which a lock is given back, and by which a waiter leaves: which script, and its arguments.

use redis::Cmd;

use super::call::{QUEUE_LIFE, flag, in_queue, millis, on_keys, on_lock};
use super::{KEEP, KEEP_MEMBER, LEAVE, RELEASE, RELEASE_ALONE, RELEASE_ANY, RELEASE_AS_REDISSON};
use crate::lock::key::Key;
use crate::lock::mode::Mode;
use crate::lock::queue::Waiter;
use crate::lock::token::Token;
use crate::node::{QueueAction, Release};

/// Returns the request for `release`.
pub(super) fn command(release: &Release) -> Cmd {
    let script = script(release);
    let mut command = of(&release.key, Some(release.token), &release.queue, script);
    if script == KEEP || script == KEEP_MEMBER {
        add_remains(&mut command, release);
    }
    command
}

/// Returns the form of `release` that needs no other key than the lock's; `None` if it leaves anything behind. It tells no waiter,
/// and a waiter that goes on waiting is queued by its next request.
pub(super) fn alone(release: &Release) -> Option<Cmd> {
    if release.parked.is_some() || release.mark.is_some() {
        return None;
    }
    let mut command = on_keys(RELEASE_ALONE, &release.key, &[]);
    command.arg(release.token.to_string());
    Some(command)
}

/// Returns the request by which `waiter` leaves the queue; no lock is released.
pub(super) fn leave(key: &Key, waiter: &Waiter) -> Cmd {
    let script = if waiter.mode.has_members() { LEAVE } else { RELEASE };
    of(key, None, &QueueAction::Leave(waiter.clone()), script)
}

/// Returns the script of a release. What a release leaves has scripts of its own: the others must be short.
fn script(release: &Release) -> &'static str {
    let has_members = release.mode.map(Mode::has_members);
    match (has_members, release.parked.is_some() || release.mark.is_some()) {
        (None, _) => RELEASE_ANY,
        (Some(false), false) if release.as_redisson => RELEASE_AS_REDISSON,
        (Some(false), false) => RELEASE,
        (Some(false), true) => KEEP,
        // A member leaves no mark.
        (Some(true), _) if release.parked.is_some() => KEEP_MEMBER,
        (Some(true), _) => LEAVE,
    }
}

/// Adds what the release leaves.
fn add_remains(command: &mut Cmd, release: &Release) {
    match &release.parked {
        None => command.arg(&[""; 4]),
        Some(parked) => command
            .arg(millis(parked.left))
            .arg(&parked.value)
            .arg(millis(parked.ttl))
            .arg(flag(parked.parks_tombstone)),
    };
    if let Some(mark) = &release.mark {
        command.arg(millis(mark.life)).arg(&mark.value);
    } else {
        command.arg(&[""; 2]);
    }
}

/// Returns the release of `token`'s key; without a token, the waiter leaves the queue and no key is released.
fn of(key: &Key, token: Option<Token>, action: &QueueAction, script: &'static str) -> Cmd {
    let mut command = on_lock(script, key);
    command.arg(token.map_or_else(String::new, |token| token.to_string()));
    match action {
        QueueAction::None => command.arg("").arg(""),
        QueueAction::Leave(waiter) => command.arg(in_queue(Some(waiter))).arg(""),
        QueueAction::Keep(ticket) => command.arg(in_queue(Some(&ticket.waiter))).arg(ticket.number),
    };
    let newest = if let QueueAction::Keep(ticket) = action { ticket.newest() } else { String::new() };
    command.arg(millis(QUEUE_LIFE)).arg(newest);
    command
}
