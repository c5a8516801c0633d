//! Drives a wait for one lock: `lock::waiting` decides, and here its actions are taken and its
//! events awaited. Several locks are waited for one after another: [`super::holdings`].
//!
//! Nodes, randomness, the claim, the reports and the end by a signal are passed in. The clock is
//! [`crate::clock`], which tests replace by a virtual one.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use super::attempt::Attempt;
use super::holding::Holding;
use super::{Hints, Nodes, STRAGGLERS, release};
use crate::clock::{self, Alarm};
use crate::lock::ballot::Tally;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Waiter, Wake};
use crate::lock::token::Token;
use crate::lock::waiting::{Notice, QueueEntry, Reason, Unjoined, WaitAction, WaitEvent, Waiting};
use crate::store::{Claim, Hint, QueueAction, Release};

/// The end of a wait for one lock, or for all of a run. `H`: what is held, `O`: an outer run, `C`: the
/// cause of a cancellation.
pub enum Waited<H, O, C> {
    /// The lock is held.
    Held(H),
    /// The client may run under an outer lock; with its holder, of several the first.
    Joined(O, Box<Occupant>),
    /// The lock to which the claimant turned last was not to be had.
    GaveUp(Reason),
    /// `cancelled` returned this.
    Cancelled(C),
}

/// Waits for the lock at `nodes` by the rules of `waiting`, which has just begun. Unless it ends
/// with the lock, nothing of the wait is left on the nodes. `cancelled` may be dropped and called
/// again; the first value that it returns ends the wait.
pub async fn wait<T: Claimant, C>(
    nodes: &Nodes,
    waiting: &mut Waiting,
    claimant: &mut T,
    alarm: &mut Alarm,
    cancelled: &mut impl AsyncFnMut() -> C,
) -> anyhow::Result<Waited<Box<Holding>, T::Outer, C>> {
    if nodes.places_become_locks() {
        waiting.enter_at_once();
    }
    let mut driver = Driver {
        nodes,
        waiting,
        claimant,
        alarm,
        hints: Hints::new(nodes),
        attempt: None,
        leaving: None,
        kept: None,
    };
    let waited = driver.until_over(cancelled).await;
    if !matches!(waited, Ok(Waited::Held(..))) {
        nodes.iter().for_each(|node| node.gives_up());
    }
    if !matches!(waited, Ok(Waited::Held(..) | Waited::Joined(..))) {
        driver.stop().await;
        super::settle(nodes, STRAGGLERS).await;
    }
    waited
}

struct Driver<'a, T: Claimant> {
    nodes: &'a Nodes,
    waiting: &'a mut Waiting,
    claimant: &'a mut T,
    alarm: &'a mut Alarm,
    hints: Hints,
    attempt: Option<Attempt>,
    /// Takes the waiter out of the queue, and releases whatever its last attempt may still set.
    leaving: Option<Release>,
    /// The token of the place in the queue, where that becomes the lock.
    kept: Option<Token>,
}

impl<T: Claimant> Driver<'_, T> {
    async fn until_over<C>(
        &mut self,
        cancelled: &mut impl AsyncFnMut() -> C,
    ) -> anyhow::Result<Waited<Box<Holding>, T::Outer, C>> {
        let mut event = WaitEvent::Tick;
        loop {
            let mut reply = None;
            for action in self.on(event) {
                match self.act(action, cancelled).await? {
                    ControlFlow::Break(waited) => return Ok(waited),
                    ControlFlow::Continue(event) => reply = event,
                }
            }
            event = if let Some(reply) = reply {
                reply
            } else {
                tokio::select! {
                    biased;
                    cause = cancelled() => return Ok(Waited::Cancelled(cause)),
                    event = self.next() => event,
                }
            };
        }
    }

    fn on(&mut self, event: WaitEvent) -> Vec<WaitAction> {
        let random = self.claimant.random();
        self.waiting.on(event, clock::now(), random)
    }

    /// Takes one action. Returns the event that it leads to, if it does, or the end of the wait.
    async fn act<C>(
        &mut self,
        action: WaitAction,
        cancelled: &mut impl AsyncFnMut() -> C,
    ) -> anyhow::Result<ControlFlow<Waited<Box<Holding>, T::Outer, C>, Option<WaitEvent>>> {
        match action {
            WaitAction::Try { ticket, guarded } => self.start(ticket.as_ref(), guarded)?,
            WaitAction::CountNow => {
                let tried = self
                    .attempt
                    .as_ref()
                    .map(|attempt| attempt.tried(attempt.tally_so_far(), false));
                return Ok(ControlFlow::Continue(
                    tried.map(|tried| WaitEvent::Tried(Box::new(tried))),
                ));
            }
            WaitAction::Undo(entry) => {
                self.undo(entry).await;
                let subscribed = (0..self.nodes.len())
                    .filter(|&node| self.nodes.wakes(node))
                    .count();
                return Ok(ControlFlow::Continue(Some(WaitEvent::Undone {
                    subscribed,
                })));
            }
            WaitAction::Leave => self.leave().await,
            WaitAction::Join(token, holder) => {
                let joined = tokio::select! {
                    biased;
                    cause = cancelled() => return Ok(ControlFlow::Break(Waited::Cancelled(cause))),
                    joined = self.claimant.join(token, &holder) => joined?,
                };
                return Ok(match joined {
                    Ok(outer) => ControlFlow::Break(Waited::Joined(outer, holder)),
                    Err(why) => ControlFlow::Continue(Some(WaitEvent::NotJoined(why))),
                });
            }
            WaitAction::Announce(ticket) => {
                if let Some(attempt) = &self.attempt {
                    attempt.announce(ticket).await;
                }
            }
            WaitAction::Say(notice) => self.claimant.say(&notice),
            WaitAction::Hold(fence) => {
                if let Some(attempt) = self.attempt.take() {
                    let mut holding = attempt.hold(fence);
                    holding.has_told_refusals(self.waiting.refused());
                    return Ok(ControlFlow::Break(Waited::Held(Box::new(holding))));
                }
            }
            WaitAction::GiveUp(reason) => return Ok(ControlFlow::Break(Waited::GaveUp(reason))),
        }
        Ok(ControlFlow::Continue(None))
    }

    fn start(&mut self, ticket: Option<&Ticket>, guarded: Option<Duration>) -> io::Result<()> {
        let options = self.waiting.options();
        let claim = self.claimant.claim(ticket.cloned(), guarded, self.kept);
        let token = ticket.map(|_| claim.token);
        self.kept = token.filter(|_| self.nodes.places_become_locks());
        self.leaving =
            ticket.map(|ticket| claim.release(QueueAction::Leave(ticket.waiter.clone())));
        self.attempt = Some(Attempt::start(
            self.nodes,
            claim,
            options.schedule,
            options.restart_guard,
        )?);
        self.hints = Hints::new(self.nodes);
        Ok(())
    }

    /// Waits for the next event. May be dropped and called again.
    async fn next(&mut self) -> WaitEvent {
        loop {
            let due = self.waiting.wake_at();
            self.claimant.redraw(self.waiting);
            let until = due.min(self.claimant.redraw_at());
            // The alarm comes before the wake-ups: a node that wakes without end must not keep the
            // waiter from its attempts.
            tokio::select! {
                biased;
                tally = tallied(&mut self.attempt) => {
                    if let Some(attempt) = &self.attempt {
                        return WaitEvent::Tried(Box::new(attempt.tried(tally, true)));
                    }
                }
                () = self.alarm.reached(until) => {
                    if clock::now() >= due {
                        return WaitEvent::Tick;
                    }
                }
                (node, hint) = self.hints.next() => {
                    let Hint::Woken(word) = hint else { return WaitEvent::Changed };
                    if let (Wake::YourTurn, Some(attempt)) = (word, &mut self.attempt) {
                        attempt.offered(node);
                    }
                    return WaitEvent::Woken(node, word);
                }
            }
        }
    }

    async fn undo(&mut self, entry: QueueEntry) {
        let attempt = self.attempt.take();
        let leaving = self.leaving.take_if(|_| entry == QueueEntry::Left);
        match (&leaving, &attempt) {
            // It releases whatever the attempt may have set, too.
            (Some(leaving), _) => self.send(leaving).await,
            (None, Some(attempt)) => attempt.undo().await,
            (None, None) => {}
        }
        if leaving.is_some() {
            self.kept = None;
        }
        if attempt.is_some() && self.kept.is_none() {
            self.claimant.undone();
        }
    }

    async fn leave(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            self.send(&leaving).await;
        }
        if self.kept.take().is_some() {
            self.claimant.undone();
        }
    }

    /// Sends what takes the waiter out of the queue. Where a place becomes the lock, the store may
    /// drop what was sent if the client goes before the answer, and the place would keep others out.
    async fn send(&self, leaving: &Release) {
        let limit = if self.nodes.places_become_locks() {
            self.waiting.options().schedule.node_timeout()
        } else {
            STRAGGLERS
        };
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        release(self.nodes, &all, leaving, limit).await;
    }

    /// Leaves nothing on the nodes, whatever the wait was doing.
    async fn stop(&mut self) {
        for action in self.on(WaitEvent::Interrupted) {
            match action {
                WaitAction::Undo(entry) => self.undo(entry).await,
                _ => self.leave().await,
            }
        }
    }
}

/// Returns the outcome of the attempt that is under way. May be dropped and called again.
async fn tallied(attempt: &mut Option<Attempt>) -> Tally {
    match attempt {
        Some(attempt) => attempt.tally().await,
        None => std::future::pending().await,
    }
}

/// The client that waits. Its locks are numbered in the order in which they are taken.
pub trait Claimant {
    /// The outer run under whose locks it may run instead.
    type Outer;

    /// Hears which of its locks all that follows is about.
    fn turn_to(&mut self, lock: usize);

    /// Returns the claim of the next attempt, with a token of its own, or with that of the place that
    /// it has `kept`. Its key may be set from now on.
    fn claim(
        &mut self,
        ticket: Option<Ticket>,
        guarded: Option<Duration>,
        kept: Option<Token>,
    ) -> Claim;

    /// Hears that the last claim is undone: no key of it is left.
    fn undone(&mut self);

    /// Returns an entry for the queue of another lock.
    fn waiter(&mut self) -> Waiter;

    /// Asks the outer rlock of `token`, the holder, to let it run under this lock and all others
    /// that it wants. May be dropped.
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
