//! Events that a wait is told, and actions that it asks for; and the result of an attempt, as far
//! as the wait needs it.

use super::Notice;
use std::time::Duration;

use crate::lock::ballot::{Reason, Tally};
use crate::lock::fault::Faults;
use crate::lock::fence::Fence;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Wake};
use crate::lock::token::Token;

/// An event of the wait.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitEvent {
    /// [`Waiting::wake_at`] has come, or may have.
    Tick,
    /// A node sent this word.
    Woken(usize, Wake),
    /// The connection to a node broke, or its server is another one now.
    Changed,
    /// The attempt is over, or was counted early on [`WaitAction::CountNow`].
    Tried(Box<Tried>),
    /// The attempt is undone. `subscribed`: number of nodes that will wake this waiter.
    Undone { subscribed: usize },
    /// The outer rlock that was asked does not let us run under its lock.
    NotJoined(Unjoined),
    /// The caller ends the wait.
    Interrupted,
}

/// Why an outer rlock was not joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unjoined {
    /// It does not answer.
    Silent,
    /// It cannot be reached, or is releasing the lock.
    Refused,
}

/// An action to take. Several are taken in their order.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitAction {
    /// Start an attempt with this place in the queue. `guarded`: uptime that each node must
    /// have; `None`: do not ask.
    Try {
        ticket: Option<Ticket>,
        guarded: Option<Duration>,
    },
    /// Count the votes that the attempt has by now, and report [`WaitEvent::Tried`].
    CountNow,
    /// Undo the attempt, and report [`WaitEvent::Undone`].
    Undo(QueueEntry),
    /// Leave the queue of every node.
    Leave,
    /// Ask the outer rlock of this token, which holds the lock, to let us run under it.
    Join(Token, Box<Occupant>),
    /// End the waiters with `--supersede` that came before this place, which the attempt that has
    /// won would have had.
    Announce(Ticket),
    /// Report this.
    Say(Notice),
    /// Take the lock that the attempt has won. The wait is over.
    Hold(Fence),
    /// The wait is over, without the lock.
    GiveUp(Reason),
}

/// The fate of the place in the queue when an attempt is undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueEntry {
    /// It is kept.
    Kept,
    /// It is given up.
    Left,
}

/// An attempt that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    pub tally: Tally,
    /// Whether it was not cut short.
    pub is_complete: bool,
    /// Whether a majority named the party that has the lock.
    pub by_majority: bool,
    /// Number of nodes that gave a vote, for us or not.
    pub voted: usize,
    /// Time until a majority counts, if only nodes under their restart guard are missing for it.
    pub counts_in: Option<Duration>,
    /// Whether a node has granted, and so no other client got it.
    pub has_taken_any: bool,
    /// Unix time in µs that the nodes told, for the ticket.
    pub entered: Option<u64>,
    /// Number of waiters ahead.
    pub rank: Option<u32>,
    /// The longest TTL known: our own, or that of a holder met.
    pub longest_ttl: Duration,
    /// The nodes that refuse us.
    pub refusals: Faults,
    /// A node that denies INFO and is used all the same, and why.
    pub unguarded: Option<(String, String)>,
    /// A node that denies the queue's commands, and why.
    pub no_queue: Option<(String, String)>,
    /// A node that denies the subscription to wake-ups.
    pub no_wakeups: Option<String>,
}

impl Tried {
    /// Whether it ends the wait.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self.tally, Err(Reason::Blocked(_)))
    }
}
