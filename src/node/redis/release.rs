//! The requests by which a lock is given back, and by which a waiter leaves.

use redis::Cmd;

use super::call::{Least, OF_MEMBERS, QUEUE_LIFE, flag, in_queue, millis, of_script, on_lock};
use super::redisson;
use super::script::{FREE, FREE_MEMBER};
use crate::lock::key::{Derived, Key};
use crate::lock::mode::Mode;
use crate::lock::queue::Waiter;
use crate::lock::token::Token;
use crate::node::{QueueAction, Release};

/// Returns the request for `release`.
pub(super) fn command(release: &Release) -> Cmd {
    if !leaves_something(release) {
        return of(&release.key, Some(release.token), &release.queue);
    }
    let mut command = on_lock("park", &release.key, Some(Derived::Once));
    add_to(&mut command, Some(release.token), &release.queue);
    match &release.parked {
        None => command.arg(&[""; 4]),
        Some(parked) => command
            .arg(millis(parked.left))
            .arg(&parked.value)
            .arg(millis(parked.ttl))
            .arg(flag(parked.parks_tombstone)),
    };
    match &release.mark {
        None => command.arg(&[""; 2]),
        Some(mark) => command.arg(millis(mark.life)).arg(&mark.value),
    };
    command
}

/// Returns what deletes the lock whatever the server knows; `None` if something stays in its place.
pub(super) fn least(release: &Release) -> Option<Least> {
    if leaves_something(release) {
        return None;
    }
    let has_members = release.mode.is_some_and(Mode::has_members);
    let mut command = if has_members {
        of_script(&FREE_MEMBER, &release.key, &OF_MEMBERS)
    } else {
        of_script(&FREE, &release.key, &[])
    };
    command.arg(release.token.to_string());
    let may_be_redissons = release.as_redisson || release.mode.is_none();
    command.arg(may_be_redissons.then(|| redisson::channel(&release.key)));
    Some(Least { command, suffices: false })
}

/// Returns the request by which `waiter` leaves the queue; no lock is released.
pub(super) fn leave(key: &Key, waiter: &Waiter) -> Cmd {
    of(key, None, &QueueAction::Leave(waiter.clone()))
}

/// Whether the lock is parked, or a mark is left. A member leaves no mark.
fn leaves_something(release: &Release) -> bool {
    let mark = release.mark.as_ref().filter(|_| release.mode == Some(Mode::Exclusive));
    release.mode.is_some() && (release.parked.is_some() || mark.is_some())
}

/// Returns the release of `token`'s key; without a token, the waiter leaves the queue and no key is released.
fn of(key: &Key, token: Option<Token>, action: &QueueAction) -> Cmd {
    let supersedes = matches!(action, QueueAction::Keep(ticket) if !ticket.newest().is_empty());
    let mut command = on_lock("release", key, supersedes.then_some(Derived::Newest));
    add_to(&mut command, token, action);
    command
}

fn add_to(command: &mut Cmd, token: Option<Token>, action: &QueueAction) {
    command.arg(token.map_or_else(String::new, |token| token.to_string()));
    match action {
        QueueAction::None => command.arg("").arg(""),
        QueueAction::Leave(waiter) => command.arg(in_queue(Some(waiter))).arg(""),
        QueueAction::Keep(ticket) => command.arg(in_queue(Some(&ticket.waiter))).arg(ticket.number),
    };
    let newest = if let QueueAction::Keep(ticket) = action { ticket.newest() } else { String::new() };
    command.arg(millis(QUEUE_LIFE)).arg(newest);
}
