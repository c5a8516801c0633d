//! The locks of one run, held together: renewed side by side, lost as one, given back as one.
//!
//! [`Holdings::next`] says which lock has changed. `lock::leases` tells what the change means for all of them.

use std::os::fd::RawFd;

use futures_util::future::{join_all, select_all};

use super::ReleaseOutcome;
use super::holding::{Change, Holding};
use crate::lock::fault::Fault;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::leases::Leases;
use crate::lock::remains::Remains;
use crate::lock::token::Token;

/// Locks that are held, in the order in which they were taken.
#[derive(Default)]
pub struct Holdings {
    held: Vec<Holding>,
    leases: Leases,
}

/// A change of one lock, and what follows for all.
#[derive(Debug)]
pub struct Changed {
    /// The lock's number.
    pub lock: usize,
    /// The change of its own lease.
    pub change: Change,
    /// D of all, or the end of all shields, if the change tells it.
    pub deadline: Option<Instant>,
}

impl Holdings {
    /// Adds the next lock.
    pub fn push(&mut self, holding: Holding) {
        self.leases.push(holding.deadline());
        self.held.push(holding);
    }

    /// Returns the number of locks.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Returns the token and the fence of each lock.
    pub fn grants(&self) -> impl Iterator<Item = (Token, Fence)> {
        self.held.iter().map(|holding| (holding.token(), holding.fence()))
    }

    /// Returns the number of the slot of each lock that has slots.
    pub fn slots(&self) -> impl Iterator<Item = Option<u16>> {
        self.held.iter().map(Holding::slot)
    }

    /// Returns D of each lock.
    pub fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.held.iter().map(Holding::deadline)
    }

    /// Returns D: until then no other client can hold any of the locks.
    pub fn deadline(&self) -> Instant {
        self.leases.deadline()
    }

    /// Returns the lock that is lost, else the one whose lease ends first.
    pub fn weakest(&self) -> usize {
        self.leases.weakest()
    }

    /// Returns the nodes that fail just now for this lock, and why.
    pub fn faults(&self, lock: usize) -> impl Iterator<Item = (&str, &Fault)> {
        self.held[lock].faults()
    }

    /// Returns the open files that are the locks, where there are any.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.held.iter().flat_map(Holding::descriptors).collect()
    }

    /// Returns the next change. May be dropped and called again; requests go on.
    pub async fn next(&mut self) -> Changed {
        if self.held.is_empty() {
            return std::future::pending().await;
        }
        let (change, lock, _) = select_all(self.held.iter_mut().map(|holding| Box::pin(holding.next()))).await;
        self.noted(lock, change)
    }

    fn noted(&mut self, lock: usize, change: Change) -> Changed {
        let deadline = match &change {
            Change::Extended(end) => Some(self.leases.extended(lock, *end)),
            Change::Shielded(end) => self.leases.shielded(lock, *end),
            Change::Lost(loss) => {
                self.leases.lost(lock, *loss);
                None
            }
            Change::Trouble(..) | Change::Refused(..) | Change::Unshielded => None,
        };
        Changed { lock, change, deadline }
    }

    /// Removes our queue entries from nodes that gave no vote; see [`Holding::leave_queue`].
    pub async fn leave_queues(&self) {
        join_all(self.held.iter().map(Holding::leave_queue)).await;
    }

    /// Gives all locks back, the last one first. Returns the outcome for each.
    pub async fn release(self) -> Vec<ReleaseOutcome> {
        self.release_leaving(Remains::default()).await
    }

    /// The same, once a command has run under them; each leaves `remains`.
    pub async fn release_leaving(self, remains: Remains) -> Vec<ReleaseOutcome> {
        let last_first = self.held.into_iter().rev().map(|holding| holding.release_leaving(remains));
        join_all(last_first).await.into_iter().rev().collect()
    }
}
