//! The requests by which a lock is given back, and by which a waiter leaves.

use redis::Cmd;

use super::call::{Least, OF_MEMBERS, QUEUE_LIFE, flag, in_queue, millis, of_script, on_lock};
use super::redisson;
use super::script::{FREE, FREE_MEMBER};
use crate::lock::last::{Note, RUN_LIFE};
use crate::lock::mode::Mode;
use crate::lock::queue::Waiter;
use crate::lock::token::Token;
use crate::store::redis::names::{Derived, Names};
use crate::store::{Parked, QueueAction, Release};

/// Returns the request for `release`.
pub(super) fn command(names: &Names, release: &Release) -> Cmd {
    let Release {
        token,
        queue,
        parked,
        note,
        ..
    } = release;
    let operation = if parked.is_some() { "park" } else { "release" };
    let mut command = of(operation, names, Some(*token), queue, note.is_some());
    if let Some(Parked {
        left,
        value,
        ttl,
        parks_tombstone,
    }) = parked
    {
        command
            .arg(millis(*left))
            .arg(value)
            .arg(millis(*ttl))
            .arg(flag(*parks_tombstone));
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
        .arg(format!("{:016}", entry.fence.get()))
        .arg(entry.token.to_string())
        .arg(entry.run.json());
    let life = [is_run.then_some(RUN_LIFE), *success]
        .map(|life| life.map_or_else(String::new, |life| millis(life).to_string()));
    command.arg(millis(entry.age)).arg(&life);
}

/// Returns what deletes the lock whatever the server knows; `None` if something stays in its place.
pub(super) fn least(names: &Names, release: &Release) -> Option<Least> {
    if release.parked.is_some() || release.is_success() {
        return None;
    }
    let has_members = release.mode.is_some_and(Mode::has_members);
    let mut command = if has_members {
        of_script(&FREE_MEMBER, names, &OF_MEMBERS)
    } else {
        of_script(&FREE, names, &[])
    };
    command.arg(release.token.to_string());
    let may_be_redissons = release.as_redisson || release.mode.is_none();
    command.arg(may_be_redissons.then(|| redisson::channel(names)));
    Some(Least {
        command,
        suffices: false,
    })
}

/// Returns the request by which `waiter` leaves the queue; no lock is released.
pub(super) fn leave(names: &Names, waiter: &Waiter) -> Cmd {
    of(
        "release",
        names,
        None,
        &QueueAction::Leave(waiter.clone()),
        false,
    )
}

/// Returns the release of `token`'s key; without a token, the waiter leaves the queue and no key is
/// released.
fn of(
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
