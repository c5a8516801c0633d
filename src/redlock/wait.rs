//! Drives a wait for the lock: `lock::waiting` decides, and here its actions are taken and its events awaited.
//!
//! Nodes, randomness, the claim, the reports and the end by a signal are passed in. The clock is [`crate::clock`], which tests
//! replace by a virtual one.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use super::attempt::Attempt;
use super::holding::Holding;
use super::wake_listener::WakeListener;
use super::{Nodes, STRAGGLERS, release};
use crate::clock::{self, Alarm};
use crate::lock::ballot::Tally;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Wake};
use crate::lock::token::Token;
use crate::lock::waiting::{Action, Event, Notice, Place, Reason, Unjoined, Waiting};
use crate::node::{Claim, QueueAction, Release};

/// The client that waits.
pub trait Claimant {
    /// The outer lock under which it may run instead.
    type Outer;

    /// Returns the claim of the next attempt, with a token of its own. Its key may be set from now on.
    fn claim(&mut self, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> Claim;

    /// Hears that the last claim is undone: no key of it is left.
    fn undone(&mut self);

    /// Asks the outer rlock of `token`, the holder, to let it run under its lock. May be dropped.
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

/// The end of a wait. `O`: an outer lock, `C`: the cause of a cancellation.
pub enum Waited<O, C> {
    /// The lock is held, after this time.
    Won(Box<Holding>, Duration),
    /// The client may run under an outer lock.
    Joined(O),
    /// The lock was not to be had.
    GaveUp(Reason),
    /// `cancelled` returned this.
    Cancelled(C),
}

/// Waits for the lock by the rules of `waiting`, which has just begun. Unless it ends with the lock, nothing of the wait is
/// left on the nodes. `cancelled` may be dropped and called again; the first value that it returns ends the wait.
pub async fn wait<T: Claimant, C>(
    nodes: &Nodes,
    waiting: Waiting,
    claimant: &mut T,
    cancelled: &mut impl AsyncFnMut() -> C,
) -> anyhow::Result<Waited<T::Outer, C>> {
    let alarm = Alarm::new()?;
    let wake_listener = WakeListener::new(nodes);
    let mut driver = Driver { nodes, waiting, claimant, alarm, wake_listener, attempt: None, leaving: None };
    let waited = driver.until_over(cancelled).await;
    if matches!(waited, Err(_) | Ok(Waited::Cancelled(_))) {
        driver.stop().await;
    }
    waited
}

struct Driver<'a, T> {
    nodes: &'a Nodes,
    waiting: Waiting,
    claimant: &'a mut T,
    alarm: Alarm,
    wake_listener: WakeListener,
    attempt: Option<Attempt>,
    /// Takes the waiter out of the queue, and releases whatever its last attempt may still set.
    leaving: Option<Release>,
}

impl<T: Claimant> Driver<'_, T> {
    async fn until_over<C>(&mut self, cancelled: &mut impl AsyncFnMut() -> C) -> anyhow::Result<Waited<T::Outer, C>> {
        let mut event = Event::Tick;
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

    fn on(&mut self, event: Event) -> Vec<Action> {
        let random = self.claimant.random();
        self.waiting.on(event, clock::now(), random)
    }

    /// Takes one action. Returns the event that it leads to, if it does, or the end of the wait.
    async fn act<C>(
        &mut self,
        action: Action,
        cancelled: &mut impl AsyncFnMut() -> C,
    ) -> anyhow::Result<ControlFlow<Waited<T::Outer, C>, Option<Event>>> {
        match action {
            Action::Try { ticket, min_uptime } => self.start(ticket, min_uptime)?,
            Action::CountNow => {
                let tried = self.attempt.as_ref().map(|attempt| attempt.tried(attempt.tally_so_far(), false));
                return Ok(ControlFlow::Continue(tried.map(|tried| Event::Tried(Box::new(tried)))));
            }
            Action::Undo(place) => {
                self.undo(place).await;
                self.wake_listener.with_connections();
                let subscribed = self.wake_listener.subscribed();
                return Ok(ControlFlow::Continue(Some(Event::Undone { subscribed })));
            }
            Action::Leave => self.leave().await,
            Action::Join(token, holder) => {
                let joined = tokio::select! {
                    biased;
                    cause = cancelled() => return Ok(ControlFlow::Break(Waited::Cancelled(cause))),
                    joined = self.claimant.join(token, &holder) => joined?,
                };
                return Ok(match joined {
                    Ok(outer) => ControlFlow::Break(Waited::Joined(outer)),
                    Err(why) => ControlFlow::Continue(Some(Event::NotJoined(why))),
                });
            }
            Action::Say(notice) => self.claimant.say(&notice),
            Action::Hold(fence) => {
                if let Some(attempt) = self.attempt.take() {
                    let mut holding = attempt.hold(fence);
                    holding.has_told_refusals(self.waiting.refused());
                    let after = self.waiting.waited(clock::now());
                    return Ok(ControlFlow::Break(Waited::Won(Box::new(holding), after)));
                }
            }
            Action::GiveUp(reason) => return Ok(ControlFlow::Break(Waited::GaveUp(reason))),
        }
        Ok(ControlFlow::Continue(None))
    }

    fn start(&mut self, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> io::Result<()> {
        let waiter = ticket.as_ref().map(|ticket| ticket.waiter.clone());
        let claim = self.claimant.claim(ticket, min_uptime);
        self.leaving = waiter.map(|waiter| claim.release(QueueAction::Leave(waiter)));
        let options = self.waiting.options();
        self.attempt = Some(Attempt::start(self.nodes, claim, options.schedule, options.restart_guard)?);
        self.wake_listener = WakeListener::new(self.nodes);
        Ok(())
    }

    /// Waits for the next event. May be dropped and called again.
    async fn next(&mut self) -> Event {
        loop {
            let due = self.waiting.wake_at();
            let mut until = due;
            if self.attempt.is_none() {
                self.claimant.redraw(&self.waiting);
                until = until.min(self.claimant.redraw_at());
            }
            // The alarm comes before the wake-ups: a node that wakes without end must not keep the waiter from its attempts.
            tokio::select! {
                biased;
                tally = tallied(&mut self.attempt) => {
                    if let Some(attempt) = &self.attempt {
                        return Event::Tried(Box::new(attempt.tried(tally, true)));
                    }
                }
                () = self.alarm.reached(until) => {
                    if clock::now() >= due {
                        return Event::Tick;
                    }
                }
                event = self.wake_listener.next() => {
                    if let (Event::Woken(node, Wake::YourTurn), Some(attempt)) = (&event, &mut self.attempt) {
                        attempt.offered(*node);
                    }
                    return event;
                }
            }
        }
    }

    async fn undo(&mut self, place: Place) {
        let attempt = self.attempt.take();
        if place == Place::Left && self.leaving.is_some() {
            self.leave().await;
        } else if let Some(attempt) = attempt {
            attempt.undo().await;
        }
        self.claimant.undone();
    }

    async fn leave(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            let all: Vec<usize> = (0..self.nodes.len()).collect();
            release(self.nodes, &all, &leaving, STRAGGLERS).await;
        }
    }

    /// Leaves nothing on the nodes, whatever the wait was doing.
    async fn stop(&mut self) {
        for action in self.on(Event::Interrupted) {
            match action {
                Action::Undo(place) => self.undo(place).await,
                _ => self.leave().await,
            }
        }
    }
}

async fn tallied(attempt: &mut Option<Attempt>) -> Tally {
    match attempt {
        Some(attempt) => attempt.tally().await,
        None => std::future::pending().await,
    }
}
