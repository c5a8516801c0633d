//! The state of a wait: pausing, trying, undoing an attempt, or asking an outer rlock.

use crate::lock::occupant::Occupant;
use crate::lock::queue::Ticket;
use crate::lock::token::Token;

/// The state of a wait.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Phase {
    /// Between two attempts.
    Paused,
    /// An attempt is under way.
    Trying,
    /// An attempt is being undone.
    Undoing(Next),
    /// The outer rlock is being asked.
    Joining(Token, Box<Occupant>),
    Over,
}

/// The step after the attempt is undone.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Next {
    Enter(Ticket),
    Pause,
    Join(Token, Box<Occupant>),
}
