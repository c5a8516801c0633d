//! The client of a wait: what it claims, and what it is told.

use std::time::Duration;

use super::holding::Change;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::token::Token;
use crate::lock::waiting::{Notice, Unjoined, Waiting};
use crate::node::Claim;

/// The client that waits. Its locks are numbered in the order in which they are taken.
pub trait Claimant {
    /// The outer lock under which it may run instead.
    type Outer;

    /// Returns the claim of the next attempt for `lock`, with a token of its own. Its key may be set from now on.
    fn claim(&mut self, lock: usize, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> Claim;

    /// Hears that the last claim for `lock` is undone: no key of it is left.
    fn undone(&mut self, lock: usize);

    /// Returns the client's name in the tombstones that it sets: `USER@HOST`.
    fn name(&self) -> String;

    /// Returns an entry for the queue of another lock.
    fn waiter(&mut self) -> Waiter;

    /// Asks the outer rlock of `token`, the holder of `lock`, to let it run under that lock. May be dropped.
    fn join(
        &mut self,
        lock: usize,
        token: Token,
        holder: &Occupant,
    ) -> impl Future<Output = anyhow::Result<Result<Self::Outer, Unjoined>>>;

    /// Reports `notice`, which is about `lock`.
    fn say(&mut self, lock: usize, notice: &Notice);

    /// Reports a change of `lock`, which is kept while another one is waited for.
    fn changed(&mut self, lock: usize, change: &Change);

    /// Returns when [`Claimant::redraw`] is due next.
    fn redraw_at(&self) -> Instant;

    /// Shows how the wait for `lock` stands, if that is due.
    fn redraw(&mut self, lock: usize, waiting: &Waiting);

    /// Returns a random number in [0, 1).
    fn random(&mut self) -> f64;
}
