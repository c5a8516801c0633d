//! Drives a wait for the locks of a run: `lock::waiting` decides, and here its actions are taken and its events awaited.
//!
//! 1. All locks are asked for at once, without a place in any queue: one round trip if they are free.
//! 2. Otherwise those before the first one that was not won are kept. That one's attempt is undone, and so are all behind it.
//! 3. The run stands in line for the first one alone, and renews what it keeps. Then it asks for the rest at once.
//! 4. So a run waits only for a lock behind all that it holds, and no runs wait for each other in a circle.
//! 5. If a kept lock is lost or broken, all are released, and the run begins anew with another ticket.
//!
//! Nodes, randomness, the claim, the reports and the end by a signal are passed in. The clock is [`crate::clock`], which tests
//! replace by a virtual one.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::join_all;

use super::attempt::{Attempt, tallied};
use super::claimant::Claimant;
use super::holding::Change;
use super::holdings::{Changed, Holdings};
use super::replace::replace;
use super::wake_listener::WakeListener;
use super::{Nodes, STRAGGLERS, release};
use crate::clock::{self, Alarm};
use crate::lock::ballot::Tally;
use crate::lock::fence::Fence;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Wake};
use crate::lock::waiting::{Action, Event, Place, Reason, Standing, Waiting, partly_covered};
use crate::node::{QueueAction, Release};

/// The end of a wait. `O`: an outer lock, `C`: the cause of a cancellation.
pub enum Waited<O, C> {
    /// The locks are held, after this time.
    Won(Holdings, Duration),
    /// The client may run under outer locks, one for each of its own; with their holders.
    Joined(Vec<(O, Box<Occupant>)>),
    /// The lock of this number was not to be had.
    GaveUp(usize, Reason),
    /// `cancelled` returned this.
    Cancelled(C),
}

/// Waits for `locks` by the rules of `waiting`, which has just begun. Unless it ends with the locks, nothing of the wait is
/// left on the nodes. `cancelled` may be dropped and called again; the first value that it returns ends the wait.
pub async fn wait<T: Claimant, C>(
    locks: &[Nodes],
    waiting: Waiting,
    claimant: &mut T,
    alarm: &mut Alarm,
    cancelled: &mut impl AsyncFnMut() -> C,
) -> anyhow::Result<Waited<T::Outer, C>> {
    let mut driver = Driver {
        locks,
        waiting,
        claimant,
        alarm,
        wake_listener: WakeListener::new(&locks[0]),
        attempt: None,
        behind: Vec::new(),
        kept: Holdings::default(),
        joined: Vec::new(),
        leaving: None,
    };
    let waited = driver.until_over(cancelled).await;
    if !matches!(waited, Ok(Waited::Won(..) | Waited::Joined(_))) {
        driver.stop().await;
        join_all(locks.iter().map(super::caught_up)).await;
    }
    waited
}

struct Driver<'a, T: Claimant> {
    locks: &'a [Nodes],
    waiting: Waiting,
    claimant: &'a mut T,
    alarm: &'a mut Alarm,
    wake_listener: WakeListener,
    /// The attempt for the lock that is waited for.
    attempt: Option<Attempt>,
    /// The attempts for the locks behind it, made at the same time.
    behind: Vec<Attempt>,
    /// The locks before it, if they are ours.
    kept: Holdings,
    /// The locks before it, if outer rlocks hold them.
    joined: Vec<(T::Outer, Box<Occupant>)>,
    /// Takes the waiter out of the queue, and releases whatever its last attempt may still set.
    leaving: Option<Release>,
}

/// An event of the wait, or of a lock that is kept.
enum Happened {
    Waiting(Event),
    Kept(Changed),
}

impl<T: Claimant> Driver<'_, T> {
    /// The number of the lock that is waited for.
    fn lock(&self) -> usize {
        self.kept.len() + self.joined.len()
    }

    async fn until_over<C>(&mut self, cancelled: &mut impl AsyncFnMut() -> C) -> anyhow::Result<Waited<T::Outer, C>> {
        let mut event = Event::Tick;
        loop {
            if matches!(event, Event::Tried(_))
                && let Some((lock, holder)) = self.partly_covered().await
            {
                return Ok(Waited::GaveUp(lock, Reason::PartlyCovered(holder)));
            }
            let mut reply = None;
            for action in self.on(event) {
                match self.act(action, cancelled).await? {
                    ControlFlow::Break(waited) => return Ok(waited),
                    ControlFlow::Continue(event) => reply = event,
                }
            }
            event = loop {
                if let Some(reply) = reply.take() {
                    break reply;
                }
                let happened = tokio::select! {
                    biased;
                    cause = cancelled() => return Ok(Waited::Cancelled(cause)),
                    happened = self.next() => happened,
                };
                match happened {
                    Happened::Waiting(event) => break event,
                    Happened::Kept(changed) => reply = self.kept_changed(&changed).await,
                }
            }
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
            Action::Try { ticket, min_uptime } => self.start(ticket.as_ref(), min_uptime)?,
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
                let lock = self.lock();
                let joined = tokio::select! {
                    biased;
                    cause = cancelled() => return Ok(ControlFlow::Break(Waited::Cancelled(cause))),
                    joined = self.claimant.join(lock, token, &holder) => joined?,
                };
                return Ok(match joined {
                    Ok(outer) => self.joined(outer, holder),
                    Err(why) => ControlFlow::Continue(Some(Event::NotJoined(why))),
                });
            }
            Action::Replace => tokio::select! {
                biased;
                cause = cancelled() => return Ok(ControlFlow::Break(Waited::Cancelled(cause))),
                () = self.replace() => {}
            },
            Action::Announce(ticket) => {
                if let Some(attempt) = &self.attempt {
                    attempt.announce(ticket).await;
                }
            }
            Action::Say(notice) => self.claimant.say(self.lock(), &notice),
            Action::Hold(fence) => {
                if let Some(attempt) = self.attempt.take() {
                    return Ok(self.won(attempt, fence).await);
                }
            }
            Action::GiveUp(reason) => return Ok(ControlFlow::Break(Waited::GaveUp(self.lock(), reason))),
        }
        Ok(ControlFlow::Continue(None))
    }

    /// Starts an attempt for the lock; without a place in its queue, one for each of the locks behind it too.
    fn start(&mut self, ticket: Option<&Ticket>, min_uptime: Option<Duration>) -> io::Result<()> {
        let first = self.lock();
        let end = if ticket.is_none() { self.locks.len() } else { first + 1 };
        let waiter = ticket.map(|ticket| ticket.waiter.clone());
        let options = self.waiting.options();
        let (schedule, guard) = (options.schedule, options.restart_guard);
        for lock in first..end {
            let claim = self.claimant.claim(lock, ticket.cloned(), min_uptime);
            if lock > first {
                self.behind.push(Attempt::start(&self.locks[lock], claim, schedule, guard)?);
            } else {
                self.leaving = waiter.clone().map(|waiter| claim.release(QueueAction::Leave(waiter)));
                self.attempt = Some(Attempt::start(&self.locks[lock], claim, schedule, guard)?);
            }
        }
        self.wake_listener = WakeListener::new(&self.locks[first]);
        Ok(())
    }

    /// Keeps the lock that was won. Returns the end of the wait, or the event with which it goes on.
    async fn won<C>(&mut self, attempt: Attempt, fence: Fence) -> ControlFlow<Waited<T::Outer, C>, Option<Event>> {
        let mut holding = attempt.hold(fence);
        holding.has_told_refusals(self.waiting.refused());
        let lock = self.lock();
        self.leaving = None;
        self.kept.push(holding);
        if let Some((_, holder)) = self.joined.first() {
            return ControlFlow::Break(Waited::GaveUp(lock, Reason::PartlyCovered(holder.clone())));
        }
        if self.kept.len() < self.locks.len() {
            return ControlFlow::Continue(self.go_on());
        }
        if self.kept.len() > 1 && self.has_lost_any() || self.is_late() {
            return ControlFlow::Continue(Some(self.begin_anew().await));
        }
        let after = self.waiting.waited(clock::now());
        ControlFlow::Break(Waited::Won(std::mem::take(&mut self.kept), after))
    }

    /// Records that an outer rlock lets us run under its lock. Returns the end of the wait, or the event with which it goes on.
    fn joined<C>(&mut self, outer: T::Outer, holder: Box<Occupant>) -> ControlFlow<Waited<T::Outer, C>, Option<Event>> {
        if !self.kept.is_empty() {
            return ControlFlow::Break(Waited::GaveUp(0, Reason::PartlyCovered(holder)));
        }
        self.joined.push((outer, holder));
        if self.joined.len() == self.locks.len() {
            return ControlFlow::Break(Waited::Joined(std::mem::take(&mut self.joined)));
        }
        ControlFlow::Continue(self.go_on())
    }

    /// Goes on with the next lock. Returns the event that begins its wait, unless an attempt for it is under way.
    fn go_on(&mut self) -> Option<Event> {
        if !self.behind.is_empty() {
            self.attempt = Some(self.behind.remove(0));
        }
        self.wake_listener = WakeListener::new(&self.locks[self.lock()]);
        let waiter = self.claimant.waiter();
        self.waiting.go_on(waiter, self.attempt.is_some(), clock::now());
        self.attempt.is_none().then_some(Event::Tick)
    }

    /// Whether a lock that was kept while others were waited for is lost.
    fn has_lost_any(&mut self) -> bool {
        while let Some(changed) = self.kept.try_next() {
            self.claimant.changed(changed.lock, &changed.change);
            if matches!(changed.change, Change::Lost(_)) {
                return true;
            }
        }
        false
    }

    /// Whether the leases are of no use any more: rlock itself may have stood still since the grants.
    fn is_late(&self) -> bool {
        let schedule = self.waiting.options().schedule;
        clock::now() >= schedule.signal_at(self.kept.deadline())
    }

    /// Records a change of a lock that is kept. Returns an event if the wait begins anew.
    async fn kept_changed(&mut self, changed: &Changed) -> Option<Event> {
        self.claimant.changed(changed.lock, &changed.change);
        if matches!(changed.change, Change::Lost(_)) { Some(self.begin_anew().await) } else { None }
    }

    /// Gives up all that the wait has, and begins again with the first lock.
    async fn begin_anew(&mut self) -> Event {
        self.stop().await;
        let waiter = self.claimant.waiter();
        self.waiting.begin_anew(waiter, clock::now());
        Event::Tick
    }

    /// Returns a lock that no outer rlock holds, and the holder of one that an outer rlock holds, if there are both.
    async fn partly_covered(&mut self) -> Option<(usize, Box<Occupant>)> {
        if self.locks.len() == 1 || self.waiting.options().outer.is_empty() {
            return None;
        }
        join_all(self.behind.iter_mut().map(Attempt::tally)).await;
        let kept = std::iter::repeat_n(Standing::NotOuter, self.kept.len());
        let joined = self.joined.iter().map(|(_, holder)| Standing::Outer(holder.clone()));
        let tried = self.attempt.iter().chain(&self.behind).map(|attempt| self.standing(attempt));
        partly_covered(&kept.chain(joined).chain(tried).collect::<Vec<_>>())
    }

    fn standing(&self, attempt: &Attempt) -> Standing {
        match attempt.ballot().holder() {
            Some(holder) if self.waiting.outer(holder).is_some() => Standing::Outer(Box::new(holder.clone())),
            Some(_) => Standing::NotOuter,
            None if matches!(attempt.tally_so_far(), Tally::Won(_)) => Standing::NotOuter,
            None => Standing::Unknown,
        }
    }

    /// Waits for the next event. May be dropped and called again.
    async fn next(&mut self) -> Happened {
        loop {
            let due = self.waiting.wake_at();
            self.claimant.redraw(self.lock(), &self.waiting);
            let until = due.min(self.claimant.redraw_at());
            // The alarm comes before the wake-ups: a node that wakes without end must not keep the waiter from its attempts.
            tokio::select! {
                biased;
                changed = self.kept.next() => return Happened::Kept(changed),
                tally = tallied(&mut self.attempt, &mut self.behind) => {
                    if let Some(attempt) = &self.attempt {
                        return Happened::Waiting(Event::Tried(Box::new(attempt.tried(tally, true))));
                    }
                }
                () = self.alarm.reached(until) => {
                    if clock::now() >= due {
                        return Happened::Waiting(Event::Tick);
                    }
                }
                event = self.wake_listener.next() => {
                    if let (Event::Woken(node, Wake::YourTurn), Some(attempt)) = (&event, &mut self.attempt) {
                        attempt.offered(*node);
                    }
                    return Happened::Waiting(event);
                }
            }
        }
    }

    /// Undoes the attempt for the lock, and those for the locks behind it.
    async fn undo(&mut self, place: Place) {
        let first = self.lock();
        let (attempt, behind) = (self.attempt.take(), std::mem::take(&mut self.behind));
        let is_leaving = place == Place::Left && self.leaving.is_some();
        let undone = attempt.iter().filter(|_| !is_leaving).chain(&behind).map(Attempt::undo);
        let leave = async {
            if is_leaving {
                leave(&self.locks[first], self.leaving.as_ref()).await;
            }
        };
        tokio::join!(join_all(undone), leave);
        if is_leaving {
            self.leaving = None;
        }
        let count = usize::from(attempt.is_some()) + behind.len();
        (first..first + count).for_each(|lock| self.claimant.undone(lock));
    }

    /// Tells the holders to stop that `--replace` has met.
    async fn replace(&mut self) {
        let Some(Release { key, mode: Some(mode), .. }) = &self.leaving else { return };
        let (lock, by, options) = (self.lock(), self.claimant.name(), self.waiting.options());
        let limit = options.schedule.node_timeout();
        let (said, is_complete) = replace(&self.locks[lock], key, *mode, &by, &options.outer, limit).await;
        for notice in self.waiting.has_replaced(said, is_complete) {
            self.claimant.say(lock, &notice);
        }
    }

    async fn leave(&mut self) {
        let leaving = self.leaving.take();
        leave(&self.locks[self.lock()], leaving.as_ref()).await;
    }

    /// Leaves nothing on the nodes, whatever the wait was doing.
    async fn stop(&mut self) {
        for action in self.on(Event::Interrupted) {
            match action {
                Action::Undo(place) => self.undo(place).await,
                _ => self.leave().await,
            }
        }
        // The wait was over for a lock, and not for those behind it.
        self.undo(Place::Left).await;
        self.joined.clear();
        let kept = std::mem::take(&mut self.kept);
        let locks = 0..kept.len();
        kept.release().await;
        locks.for_each(|lock| self.claimant.undone(lock));
    }
}

async fn leave(nodes: &Nodes, leaving: Option<&Release>) {
    if let Some(leaving) = leaving {
        let all: Vec<usize> = (0..nodes.len()).collect();
        release(nodes, &all, leaving, STRAGGLERS).await;
    }
}
