//! The result of an attempt, as far as the wait needs it.

use std::time::Duration;

use crate::lock::ballot::Tally;
use crate::lock::blocker::Blocker;
use crate::lock::fault::Faults;
use crate::lock::occupant::Occupant;
use crate::lock::quorum::Quorum;

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
    pub no_uptime: Option<(String, String)>,
    /// A node that denies the queue's commands, and why.
    pub no_queue: Option<(String, String)>,
    /// A node that denies the subscription to wake-ups.
    pub no_wakeups: Option<String>,
}

impl Tried {
    /// Whether it ends the wait.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.tally, Tally::Won(_) | Tally::Unfit(..) | Tally::Refused(_) | Tally::Superseded(_))
    }
}

/// The cause that keeps a waiter from the lock.
#[derive(Clone, PartialEq, Debug)]
pub enum Blocked {
    /// This party has it, or its turn.
    Busy(Box<Blocker>),
    /// No client has a majority; this party has the most votes. The faults are those of the nodes without a vote.
    Split(Box<Blocker>, Faults),
    /// Too few of the nodes gave a vote.
    Unreachable(Faults, Quorum),
    /// A majority granted, too late for the lease to be of use.
    TooLate,
}

impl Blocked {
    /// Blocked by `occupant`.
    pub(super) fn by(occupant: Occupant) -> Self {
        Self::Busy(Box::new(Blocker::Occupant(occupant)))
    }

    /// Blocked by split votes, most of which `blocker` has. A waiter whose turn it is does not tie: it comes within its second, or
    /// its turn ends.
    pub(super) fn by_votes(blocker: &Blocker, faults: &Faults, quorum: Quorum) -> Self {
        let blocker = Box::new(blocker.clone());
        let is_turn = blocker.occupant().is_none() && faults.len() <= quorum.tolerated();
        if is_turn { Self::Busy(blocker) } else { Self::Split(blocker, faults.clone()) }
    }

    /// Whether no majority gave a vote that is of use.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::TooLate)
    }
}
