//! The locks of one run, taken one after another in the order of their names (`lock::key`), held
//! together, given back as one.
//!
//! 1. Each lock is waited for as if it were the only one, while those before it are renewed.
//! 2. So a run waits only for a lock behind all that it holds, and no runs wait for each other in a
//!    circle.
//! 3. If a lock is lost before the last one is taken, all are given back, and the run begins anew.
//!    Its patience goes on.
//! 4. Once all are held, the loss of one is the loss of all. `lock::lease` tells what a change of
//!    one means for the others.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use tokio::sync::watch;

use super::holding::{Change, Holding};
use super::wait::{Claimant, Waited, wait};
use super::{Nodes, ReleaseOutcome};
use crate::clock::{self, Alarm};
use crate::lock::fault::{Fault, Faults};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::last::Entry;
use crate::lock::lease::{LeaseChange, Leases};
use crate::lock::remains::Remains;
use crate::lock::token::Token;
use crate::lock::waiting::Waiting;

/// Takes `locks` by the rules of `waiting`, which has just begun. Unless it ends with all of them,
/// nothing is left on the nodes. `changed` hears of each lock that is kept while another one is
/// waited for. `cancelled`: see [`wait`].
pub async fn take<T: Claimant, C>(
    locks: &[Nodes],
    mut waiting: Waiting,
    claimant: &mut T,
    alarm: &mut Alarm,
    changed: impl Fn(usize, &Change),
    cancelled: &mut impl AsyncFnMut() -> C,
) -> anyhow::Result<Waited<Holdings, T::Outer, C>> {
    let schedule = waiting.options().schedule;
    let mut held = Holdings::default();
    loop {
        let lock = held.count();
        claimant.turn_to(lock);
        let mut ended = async || {
            tokio::select! {
                biased;
                cause = cancelled() => Some(cause),
                () = lost(&mut held, &changed) => None,
            }
        };
        let taken = match wait(&locks[lock], &mut waiting, claimant, alarm, &mut ended).await {
            Ok(Waited::Held(holding)) => {
                held.push(*holding);
                let is_lost = lost(&mut held, &changed).now_or_never().is_some();
                // rlock itself may have stood still since the grants.
                let is_late = clock::now() >= schedule.signal_at(held.deadline());
                if !is_lost && !is_late {
                    if held.count() == locks.len() {
                        return Ok(Waited::Held(held));
                    }
                    waiting = waiting.again(claimant.waiter(), clock::now());
                    continue;
                }
                None
            }
            Ok(Waited::Cancelled(None)) => None,
            Ok(Waited::Cancelled(Some(cause))) => Some(Ok(Waited::Cancelled(cause))),
            Ok(Waited::Joined(outer, holder)) => Some(Ok(Waited::Joined(outer, holder))),
            Ok(Waited::GaveUp(reason)) => Some(Ok(Waited::GaveUp(reason))),
            Err(error) => Some(Err(error)),
        };
        let count = held.count();
        std::mem::take(&mut held).release(&Remains::default()).await;
        for lock in 0..count {
            claimant.turn_to(lock);
            claimant.undone();
        }
        claimant.turn_to(lock);
        if let Some(taken) = taken {
            return taken;
        }
        waiting = waiting.again(claimant.waiter(), clock::now());
    }
}

/// Waits until a lock that is kept is lost. May be dropped and called again.
async fn lost(held: &mut Holdings, changed: &impl Fn(usize, &Change)) {
    loop {
        let of = held.next().await;
        changed(of.lock, &of.change);
        if matches!(of.change, Change::Lease(LeaseChange::Lost(_))) {
            return;
        }
    }
}

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
    /// Its own news.
    pub change: Change,
    /// The change of all leases as one.
    pub of_all: Option<LeaseChange>,
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
        self.held
            .iter()
            .map(|holding| (holding.token(), holding.fence()))
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
        let (change, lock, _) =
            select_all(self.held.iter_mut().map(|holding| Box::pin(holding.next()))).await;
        let of_all = match change {
            Change::Lease(change) => self.leases.changed(lock, change),
            Change::Trouble(..) | Change::Refused(..) | Change::Failing { .. } => None,
        };
        Changed {
            lock,
            change,
            of_all,
        }
    }

    /// Asks the nodes for a success under the first lock; see [`Holding::run_before`].
    pub async fn run_before(
        &self,
        within: Duration,
    ) -> io::Result<Result<Option<Box<Entry>>, Faults>> {
        match self.held.first() {
            Some(holding) => holding.run_before(within).await,
            None => Ok(Ok(None)),
        }
    }

    /// Leaves the queues of nodes that gave no vote; see [`Holding::leave_queue`].
    pub async fn leave_queues(&self) {
        join_all(self.held.iter().map(Holding::leave_queue)).await;
    }

    /// Gives all locks back, the last one first, and each leaves `remains`. Returns the outcome for
    /// each.
    pub async fn release(self, remains: &Remains) -> Vec<ReleaseOutcome> {
        self.release_unless(remains, &watch::channel(false).1).await
    }

    /// The same; see [`Holding::release_unless`].
    pub async fn release_unless(
        self,
        remains: &Remains,
        hurried: &watch::Receiver<bool>,
    ) -> Vec<ReleaseOutcome> {
        let last_first = self
            .held
            .into_iter()
            .rev()
            .map(|holding| holding.release_unless(remains, hurried.clone()));
        join_all(last_first).await.into_iter().rev().collect()
    }
}
