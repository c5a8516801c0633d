//! Events that a wait is told, and actions that it asks for.

use std::time::Duration;

use super::{Blocked, Notice, Tried};
use crate::lock::blocker::Blocker;
use crate::lock::fault::{Fault, Faults};
use crate::lock::fence::Fence;
use crate::lock::occupant::Occupant;
use crate::lock::outer::OuterLocks;
use crate::lock::queue::{Ticket, Wake};
use crate::lock::quorum::Quorum;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::Schedule;
use crate::lock::token::Token;

/// Choices of the user, and the outer locks that the environment names.
#[derive(Clone, Debug)]
pub struct Options {
    /// The majority that is needed.
    pub quorum: Quorum,
    /// `--wait`; `None`: no limit, zero: `--no-wait`.
    pub wait: Option<Duration>,
    /// The lease's schedule.
    pub schedule: Schedule,
    /// `--restart-guard`.
    pub restart_guard: RestartGuard,
    /// The locks that outer rlocks hold. To wait for one of them would be to wait for oneself.
    pub outer: OuterLocks,
    /// `--supersede`.
    pub supersede: bool,
    /// Whether a command is to run under the lock (`run`), not `acquire`.
    pub for_command: bool,
}

/// An event of the wait.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// [`Waiting::wake_at`] has come, or may have.
    Tick,
    /// A node sent this word.
    Woken(usize, Wake),
    /// The connection to a node that would have woken this waiter is broken.
    Disconnected,
    /// The attempt is over, or was counted early on [`Action::CountNow`].
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
pub enum Action {
    /// Start an attempt with this place in the queue. `min_uptime`: uptime that each node must have; `None`: do not ask.
    Try { ticket: Option<Ticket>, min_uptime: Option<Duration> },
    /// Count the votes that the attempt has by now, and report [`Event::Tried`].
    CountNow,
    /// Undo the attempt, and report [`Event::Undone`].
    Undo(Place),
    /// Leave the queue of every node.
    Leave,
    /// Ask the outer rlock of this token, which holds the lock, to let us run under it.
    Join(Token, Box<Occupant>),
    /// End the waiters with `--supersede` that came before this place, which the attempt that has won would have had.
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
pub enum Place {
    /// It is kept.
    Kept,
    /// It is given up.
    Left,
}

/// Why a wait ends without the lock.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// The patience is over.
    Blocked(Blocked),
    /// This waiter came later, and both have `--supersede`.
    Superseded(Box<Blocker>),
    /// The nodes that refuse us leave no majority.
    Refused(Faults),
    /// This node makes the set of nodes unable to hold the lock.
    Unfit(String, Fault),
    /// The outer rlock that holds the lock cannot be reached.
    OuterUnreachable(Box<Occupant>),
}
