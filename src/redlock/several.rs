//! The locks of one run, taken one after another in the order of their names (`lock::key`).
//!
//! 1. Each lock is waited for as if it were the only one, while those before it are renewed.
//! 2. So a run waits only for a lock behind all that it holds, and no runs wait for each other in a circle.
//! 3. If a lock is lost before the last one is taken, all are given back, and the run begins anew. Its patience goes on.

use std::time::Duration;

use futures_util::FutureExt;

use super::Nodes;
use super::claimant::Claimant;
use super::holding::Change;
use super::holdings::Holdings;
use super::wait::{Waited, wait};
use crate::clock::{self, Alarm};
use crate::lock::occupant::Occupant;
use crate::lock::waiting::{Reason, Waiting};

/// The end of a wait for the locks of a run. `O`: an outer run, `C`: the cause of a cancellation.
pub enum Taken<O, C> {
    /// The locks are held, after this time.
    Held(Holdings, Duration),
    /// The client may run under the locks of an outer run; with the holder of the first one.
    Joined(O, Box<Occupant>),
    /// The lock of this number was not to be had.
    GaveUp(usize, Reason),
    /// `cancelled` returned this.
    Cancelled(C),
}

/// Takes `locks` by the rules of `waiting`, which has just begun. Unless it ends with all of them, nothing is left on the nodes.
/// `changed` hears of each lock that is kept while another one is waited for. `cancelled`: see [`wait`].
pub async fn take<T: Claimant, C>(
    locks: &[Nodes],
    mut waiting: Waiting,
    claimant: &mut T,
    alarm: &mut Alarm,
    changed: impl Fn(usize, &Change),
    cancelled: &mut impl AsyncFnMut() -> C,
) -> anyhow::Result<Taken<T::Outer, C>> {
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
            Ok(Waited::Won(holding)) => {
                held.push(*holding);
                let is_lost = lost(&mut held, &changed).now_or_never().is_some();
                // rlock itself may have stood still since the grants.
                let is_late = clock::now() >= schedule.signal_at(held.deadline());
                if !is_lost && !is_late {
                    if held.count() == locks.len() {
                        return Ok(Taken::Held(held, waiting.waited(clock::now())));
                    }
                    waiting = waiting.again(claimant.waiter(), clock::now());
                    continue;
                }
                None
            }
            Ok(Waited::Cancelled(None)) => None,
            Ok(Waited::Cancelled(Some(cause))) => Some(Ok(Taken::Cancelled(cause))),
            Ok(Waited::Joined(outer, holder)) => Some(Ok(Taken::Joined(outer, holder))),
            Ok(Waited::GaveUp(reason)) => Some(Ok(Taken::GaveUp(lock, reason))),
            Err(error) => Some(Err(error)),
        };
        let count = held.count();
        std::mem::take(&mut held).release().await;
        for lock in 0..count {
            claimant.turn_to(lock);
            claimant.undone();
        }
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
        if matches!(of.change, Change::Lost(_)) {
            return;
        }
    }
}
