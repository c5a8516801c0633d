//! The client of a wait: what it claims, and what it is told.

use std::time::Duration;

use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::token::Token;
use crate::lock::waiting::{Notice, Unjoined, Waiting};
use crate::node::Claim;

/// The client that waits. Its locks are numbered in the order in which they are taken.
pub trait Claimant {
    /// The outer run under whose locks it may run instead.
    type Outer;

    /// Hears which of its locks all that follows is about.
    fn turn_to(&mut self, lock: usize);

    /// Returns the claim of the next attempt, with a token of its own. Its key may be set from now on.
    fn claim(&mut self, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> Claim;

    /// Hears that the last claim is undone: no key of it is left.
    fn undone(&mut self);

    /// Returns the client's name in the tombstones that it sets: `USER@HOST`.
    fn name(&self) -> String;

    /// Returns an entry for the queue of another lock.
    fn waiter(&mut self) -> Waiter;

    /// Asks the outer rlock of `token`, the holder, to let it run under this lock and all others that it wants. May be dropped.
    fn join(
        &mut self,
        token: Token,
        holder: &Occupant,
    ) -> impl Future<Output = anyhow::Result<Result<Self::Outer, Unjoined>>>;

    /// Reports `notice`.
    fn say(&mut self, notice: &Notice);

    /// Returns when [`Claimant::redraw`] is due next.
    fn redraw_at(&self) -> Instant;

    /// Shows how the wait stands, if that is due.
    fn redraw(&mut self, waiting: &Waiting);

    /// Returns a random number in [0, 1).
    fn random(&mut self) -> f64;
}
