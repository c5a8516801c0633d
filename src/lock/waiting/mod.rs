//! The rules of waiting: when a waiter tries, how long it pauses, and when it leaves.
//! [`Waiting::on`] takes an event and returns the actions to take; [`Waiting::wake_at`] names the
//! time of the next tick.
//!
//! 1. An attempt asks all nodes. If it fails, it is undone: the nodes that granted are sent a
//!    release.
//! 2. In the first attempt the nodes tell their time, which becomes the ticket. If it fails, the
//!    next attempt enters the queue with that.
//! 3. A pause follows. It ends when a node wakes the waiter, when a connection breaks, or after a
//!    time that depends on the blocker and on the place in the queue. The numbers are in
//!    `lock::backoff`.
//! 4. The wait ends with the lock, with the user's patience, or with an error that waiting does not
//!    mend. Unless it ends with the lock, nothing of it is left on the nodes.
//!
//! Where a place in the queue becomes the lock, the first attempt enters it: [`Waiting::enter_at_once`].
//!
//! With `--supersede`, of the waiters that have it the last that came ends the others:
//!
//! 1. The time at which a waiter came is told with its ticket, and stays when it gets another
//!    ticket.
//! 2. From then on it asks with its ticket only, so that each attempt tells whether a newer waiter
//!    has come.
//! 3. A run that got the lock at once tells its time too: an older waiter must not run after it.
//!
//! A run that takes several locks waits for one after another: [`Waiting::again`]. The patience is
//! the run's.
//!
//! No clock, no node and no randomness is used here: the driver (`hold::wait`) passes them in.

mod event;
mod pauses;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use super::ballot::{Blocked, Reason};
pub use event::{Notice, QueueEntry, Tried, Unjoined, WaitAction, WaitEvent};

use super::backoff::{Absence, TIES, UNREACHABLE};
use super::instant::Instant;
use super::occupant::Occupant;
use super::outer::OuterLocks;
use super::queue::{Ticket, Waiter};
use super::quorum::Quorum;
use super::restart::RestartGuard;
use super::schedule::Schedule;
use super::token::Token;
use event::Notices;
use pauses::Wakeups;

/// Choices of the user, and the outer locks that the environment names.
#[derive(Clone, Debug)]
pub struct WaitOptions {
    /// The majority that is needed.
    pub quorum: Quorum,
    /// `--wait`; `None`: no limit, zero: `--no-wait`.
    pub wait: Option<Duration>,
    /// The lease's schedule.
    pub schedule: Schedule,
    /// `--restart-guard`.
    pub restart_guard: RestartGuard,
    /// The locks that outer rlocks hold. To wait for one of them would be to wait for oneself.
    pub outer: OuterLocks,
    /// `--supersede`.
    pub supersede: bool,
    /// Whether a command is to run under the lock (`run`), not `acquire`.
    pub for_command: bool,
}

impl WaitOptions {
    /// Returns the built-in options of `run`.
    pub fn new(quorum: Quorum, schedule: Schedule) -> Self {
        Self {
            quorum,
            wait: None,
            schedule,
            restart_guard: RestartGuard::Auto,
            outer: OuterLocks::default(),
            supersede: false,
            for_command: true,
        }
    }
}

/// A wait that is under way.
#[derive(Clone, Debug)]
pub struct Waiting {
    options: WaitOptions,
    waiter: Waiter,
    begin: Instant,
    /// End of `--wait`.
    gives_up: Instant,
    /// End of the node timeout that an attempt may take even with `--no-wait`, so that it works
    /// over a slow line too.
    at_least: Instant,
    step: Step,
    /// The place in the queue.
    ticket: Option<Ticket>,
    rank: Option<u32>,
    /// With `--supersede`: when this waiter came, unix time in µs.
    came: Option<u64>,
    /// The place with which a waiter asks next that has left the queue; `None`: without one.
    again: Option<Ticket>,
    /// Whether a majority has answered once.
    answered: bool,
    /// The result of the last attempt.
    blocked: Option<Blocked>,
    /// Attempts in a row that failed because votes were split.
    splits: u32,
    /// Number of these attempts in which a node granted, and so was kept from the other clients.
    ties: u32,
    /// Times in a row that a node offered the lock in vain.
    false_wakes: u32,
    absence: Absence,
    /// The longest TTL known: our own, or that of a holder met.
    longest_ttl: Duration,
    wakeups: Wakeups,
    notices: Notices,
    /// The outer rlock that could not be reached, and since when.
    outer_refused: Option<(Token, Instant)>,
}

/// The step that a wait has come to.
#[derive(Clone, PartialEq, Debug)]
enum Step {
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
enum Next {
    Enter(Ticket),
    Pause,
    Join(Token, Box<Occupant>),
}

impl Waiting {
    /// A wait that begins `now`. `waiter`: this client's entry for the queue.
    pub fn new(options: WaitOptions, waiter: Waiter, now: Instant) -> Self {
        let no_wait = options.wait == Some(Duration::ZERO);
        Self {
            waiter,
            begin: now,
            gives_up: options.wait.map_or(Instant::NEVER, |wait| now + wait),
            at_least: if no_wait {
                now + options.schedule.node_timeout()
            } else {
                now
            },
            step: Step::Paused,
            ticket: None,
            came: None,
            again: None,
            rank: None,
            answered: false,
            blocked: None,
            splits: 0,
            ties: 0,
            false_wakes: 0,
            absence: Absence::default(),
            longest_ttl: options.schedule.remembered(),
            wakeups: Wakeups::until(options.quorum, now),
            notices: Notices::default(),
            outer_refused: None,
            options,
        }
    }

    /// Returns the wait for another lock of the run, or for the same one anew: the patience and
    /// what was told once are the run's, and a majority has answered.
    #[must_use]
    pub fn again(&self, waiter: Waiter, now: Instant) -> Self {
        let fresh = Self::new(self.options.clone(), waiter, now);
        let (begin, gives_up, longest_ttl) = (self.begin, self.gives_up, self.longest_ttl);
        Self {
            begin,
            gives_up,
            longest_ttl,
            answered: true,
            notices: self.notices.again(),
            ..fresh
        }
    }

    /// Lets the first attempt enter the queue, whose places become the lock. `--no-wait` enters none.
    pub fn enter_at_once(&mut self) {
        self.ticket = self.new_ticket(Some(0));
    }

    /// Returns what the user chose.
    pub fn options(&self) -> &WaitOptions {
        &self.options
    }

    /// Returns when to send [`WaitEvent::Tick`].
    pub fn wake_at(&self) -> Instant {
        match self.step {
            Step::Paused => self.wakeups.due(),
            Step::Trying => self.gives_up.max(self.at_least),
            Step::Undoing(_) | Step::Joining(..) | Step::Over => Instant::NEVER,
        }
    }

    /// Returns the time since the wait began.
    pub fn waited(&self, now: Instant) -> Duration {
        now.since(self.begin)
    }

    /// Returns what blocks the wait and the number of waiters ahead, while it is between two
    /// attempts.
    pub fn pausing(&self) -> Option<(&Blocked, Option<u32>)> {
        if self.step == Step::Paused {
            Some((self.blocked.as_ref()?, self.rank))
        } else {
            None
        }
    }

    /// Returns the nodes whose refusal has been reported.
    pub fn refused(&self) -> &[usize] {
        self.notices.refused()
    }

    /// Returns what to do after `event`. `random` is in [0, 1).
    pub fn on(&mut self, event: WaitEvent, now: Instant, random: f64) -> Vec<WaitAction> {
        match (event, &self.step) {
            (_, Step::Over) => vec![],
            (WaitEvent::Interrupted, _) => self.leave().into_iter().collect(),
            (WaitEvent::Woken(node, wake), _) => {
                self.wakeups.woken(node, wake, now, self.false_wake_pause());
                vec![]
            }
            (WaitEvent::Changed, Step::Paused) => {
                self.wakeups.sooner(now + self.retry().mul_f64(random));
                vec![]
            }
            (WaitEvent::Tick, Step::Paused) if now >= self.wakeups.due() => self.pause_is_over(now),
            (WaitEvent::Tick, Step::Trying) if now >= self.wake_at() => vec![WaitAction::CountNow],
            (WaitEvent::Tried(tried), Step::Trying) => self.tried(&tried, now),
            (WaitEvent::Undone { subscribed }, Step::Undoing(next)) => match next.clone() {
                Next::Enter(ticket) => {
                    self.ticket = Some(ticket);
                    vec![self.start()]
                }
                Next::Join(token, occupant) => {
                    self.step = Step::Joining(token, occupant.clone());
                    vec![WaitAction::Join(token, occupant)]
                }
                Next::Pause => {
                    let pause = self.pause(subscribed, now, random);
                    self.pause_for(pause, now);
                    vec![]
                }
            },
            (WaitEvent::NotJoined(why), Step::Joining(token, occupant)) => {
                self.not_joined(*token, occupant.clone(), why, now, random)
            }
            _ => vec![],
        }
    }

    fn start(&mut self) -> WaitAction {
        self.ticket = self.ticket.take().or(self.again.take());
        self.wakeups = Wakeups::until(self.options.quorum, Instant::NEVER);
        self.step = Step::Trying;
        let nodes = self.options.quorum.total();
        let span = self.options.restart_guard.span(nodes, self.longest_ttl);
        // A single node is not compared with others, so without a guard it is not asked what it is.
        let guarded = (nodes > 1 || !span.is_zero()).then_some(span);
        WaitAction::Try {
            ticket: self.ticket.clone(),
            guarded,
        }
    }

    fn tried(&mut self, tried: &Tried, now: Instant) -> Vec<WaitAction> {
        let mut actions: Vec<WaitAction> = self
            .notices
            .of_attempt(tried)
            .into_iter()
            .map(WaitAction::Say)
            .collect();
        let blocked = match &tried.tally {
            Ok(fence) => {
                self.step = Step::Over;
                actions.extend(self.announcement(tried.entered));
                actions.push(WaitAction::Hold(*fence));
                return actions;
            }
            Err(Reason::Blocked(blocked)) => {
                if let Blocked::Busy(blocker) = blocked
                    && let Some(occupant) = blocker.occupant().filter(|_| tried.by_majority)
                    && let Some(token) = self.outer(occupant)
                {
                    actions.push(self.undo(
                        QueueEntry::Left,
                        Next::Join(token, Box::new(occupant.clone())),
                    ));
                    return actions;
                }
                blocked.clone().of_turn(self.options.quorum)
            }
            Err(reason) => {
                actions.extend(self.give_up(reason.clone()));
                return actions;
            }
        };
        self.outer_refused = None;
        self.remember(tried, &blocked);
        // An attempt that was cut short says less than the one before it.
        if tried.is_complete || self.blocked.is_none() {
            self.blocked = Some(blocked);
        }
        actions.extend(self.after_failure(tried, now));
        actions
    }

    fn after_failure(&mut self, tried: &Tried, now: Instant) -> Vec<WaitAction> {
        let Some(blocked) = self.blocked.clone() else {
            return vec![];
        };
        if now >= self.patience() {
            return self.give_up(Reason::Blocked(blocked));
        }
        if let Some(ticket) = self.new_ticket(tried.entered) {
            return vec![self.undo(QueueEntry::Kept, Next::Enter(ticket))];
        }
        let had_majority = self.answered && self.gives_up > self.begin;
        let mut said = self.notices.of_split(tried);
        said.extend(
            self.notices
                .of_wait(&blocked, self.splits, self.rank, had_majority),
        );
        let mut actions: Vec<WaitAction> = said.into_iter().map(WaitAction::Say).collect();
        let entry = if self.ties >= TIES {
            QueueEntry::Left
        } else {
            QueueEntry::Kept
        };
        if entry == QueueEntry::Left {
            (self.splits, self.ties) = (0, 0);
        }
        actions.push(self.undo(entry, Next::Pause));
        self.come_again(tried.entered);
        actions
    }

    fn undo(&mut self, entry: QueueEntry, next: Next) -> WaitAction {
        if entry == QueueEntry::Left {
            self.again = self
                .ticket
                .take()
                .filter(|ticket| ticket.supersedes.is_some());
        }
        self.step = Step::Undoing(next);
        WaitAction::Undo(entry)
    }

    fn remember(&mut self, tried: &Tried, blocked: &Blocked) {
        let quorum = self.options.quorum;
        let voted = if blocked.is_absence() {
            tried.voted
        } else {
            quorum.needed()
        };
        self.absence.note(voted, quorum.needed(), tried.counts_in);
        // With too few nodes for a majority it is no tie: reordering the queue would not help.
        let is_tie =
            matches!(blocked, Blocked::Split(_, faults) if faults.len() <= quorum.tolerated());
        let taken = u32::from(tried.has_taken_any);
        (self.splits, self.ties) = if is_tie {
            (self.splits + 1, self.ties + taken)
        } else {
            (0, 0)
        };
        self.answered |= voted >= quorum.needed();
        self.longest_ttl = self.longest_ttl.max(tried.longest_ttl);
        self.rank = tried.rank;
    }

    fn pause_is_over(&mut self, now: Instant) -> Vec<WaitAction> {
        if let Some(blocked) = self.blocked.clone()
            && now >= self.patience()
        {
            return self.give_up(Reason::Blocked(blocked));
        }
        self.false_wakes = if self.wakeups.is_offered() {
            self.false_wakes.saturating_add(1)
        } else {
            0
        };
        vec![self.start()]
    }

    /// Returns when the wait ends without the lock, as it stands.
    pub fn patience(&self) -> Instant {
        let patience = match self.options.wait {
            // Without a limit of the user's, a wrong address would be tried for good.
            None if !self.answered => self.begin + UNREACHABLE,
            _ => self.gives_up,
        };
        // Of several clients that tie with `--no-wait`, one should win.
        if matches!(self.blocked, Some(Blocked::Split(..))) {
            patience.max(self.at_least)
        } else {
            patience
        }
    }

    fn give_up(&mut self, reason: Reason) -> Vec<WaitAction> {
        self.leave()
            .into_iter()
            .chain([WaitAction::GiveUp(reason)])
            .collect()
    }

    /// Ends the wait; returns what it takes to leave nothing on the nodes.
    fn leave(&mut self) -> Option<WaitAction> {
        match (
            std::mem::replace(&mut self.step, Step::Over),
            self.ticket.take(),
        ) {
            (Step::Trying, _) => Some(WaitAction::Undo(QueueEntry::Left)),
            (_, Some(_)) => Some(WaitAction::Leave),
            (_, None) => None,
        }
    }

    /// Returns a ticket if the waiter has none and a node has told the time. `--no-wait` takes
    /// none.
    fn new_ticket(&mut self, entered: Option<u64>) -> Option<Ticket> {
        let entered = entered.filter(|_| self.ticket.is_none() && self.gives_up > self.begin)?;
        Some(self.ticket_of(entered))
    }

    fn ticket_of(&mut self, entered: u64) -> Ticket {
        let supersedes = self
            .options
            .supersede
            .then(|| *self.came.get_or_insert(entered));
        Ticket {
            waiter: self.waiter.clone(),
            number: entered,
            supersedes,
        }
    }

    /// Returns what ends the older waiters when the lock was won without a ticket.
    fn announcement(&mut self, entered: Option<u64>) -> Option<WaitAction> {
        let entered = entered.filter(|_| self.options.supersede && self.ticket.is_none())?;
        Some(WaitAction::Announce(self.ticket_of(entered)))
    }

    /// Gives a waiter that has left the queue, and comes back, the place of one that comes now.
    fn come_again(&mut self, entered: Option<u64>) {
        if let (Some(_), Some(entered)) = (&self.again, entered) {
            self.again = Some(self.ticket_of(entered));
        }
    }
}
