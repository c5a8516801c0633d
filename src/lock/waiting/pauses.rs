//! The pauses of a waiter: how long each is, and the wake-ups that end it, which `hold::wait`
//! receives. One of them follows where an outer rlock holds the lock and was not joined.

use std::time::Duration;

use super::{Blocked, Notice, Reason, Step, Unjoined, WaitAction, Waiting};
use crate::lock::backoff::{
    self, FALSE_WAKE_LIMIT, FALSE_WAKE_PAUSE, LAST_ATTEMPT, MORE_OFFERS, OUTER_REFUSALS, TURN,
};
use crate::lock::blocker::Blocker;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::Wake;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;

impl Waiting {
    /// Pauses for `pause`, but not past the time of the last attempt, nor past the end of the
    /// patience.
    pub(super) fn pause_for(&mut self, pause: Duration, now: Instant) {
        let patience = self.patience();
        let last_attempt = patience.before(LAST_ATTEMPT);
        let stop = if now < last_attempt {
            last_attempt
        } else {
            patience
        };
        self.wakeups.sooner(stop.min(now + pause));
        self.step = Step::Paused;
    }

    pub(super) fn pause(&mut self, subscribed: usize, now: Instant, random: f64) -> Duration {
        let is_subscribed = self.ticket.is_some() && subscribed >= self.options.quorum.needed();
        let retry = self.retry();
        match &self.blocked {
            // A minority names an outer rlock; it is joined once a majority does.
            Some(Blocked::Busy(blocker))
                if blocker
                    .occupant()
                    .is_some_and(|who| self.outer(who).is_some()) =>
            {
                backoff::retry(retry, random)
            }
            Some(Blocked::Busy(blocker)) => {
                let waited = now.since(self.begin);
                backoff::recheck(blocker, self.rank, is_subscribed, waited, random)
            }
            Some(Blocked::Split(..)) if self.splits > 0 => backoff::split(self.splits, random),
            _ => self.absence.pause(retry, random) + backoff::by_rank(self.rank),
        }
    }

    pub(super) fn retry(&self) -> Duration {
        self.options.schedule.retry()
    }

    pub(super) fn false_wake_pause(&self) -> Duration {
        let more = self.false_wakes.checked_sub(FALSE_WAKE_LIMIT);
        more.map_or(Duration::ZERO, |more| {
            backoff::doubled(FALSE_WAKE_PAUSE, more, self.retry())
        })
    }

    /// Pauses after the outer rlock `token` was not joined. If it could not be reached for too long,
    /// ends the wait.
    pub(super) fn not_joined(
        &mut self,
        token: Token,
        occupant: Box<Occupant>,
        why: Unjoined,
        now: Instant,
        random: f64,
    ) -> Vec<WaitAction> {
        let mut actions = vec![];
        match why {
            Unjoined::Silent => {
                self.outer_refused = None;
                actions.extend(
                    self.notices
                        .once(Notice::OuterSilent(occupant.clone()))
                        .map(WaitAction::Say),
                );
            }
            Unjoined::Refused => {
                let since = self
                    .outer_refused
                    .filter(|(refused, _)| *refused == token)
                    .map_or(now, |(_, since)| since);
                if now.since(since) >= OUTER_REFUSALS {
                    return self.give_up(Reason::OuterUnreachable(occupant));
                }
                self.outer_refused = Some((token, since));
            }
        }
        self.answered = true;
        self.blocked = Some(Blocked::Busy(Box::new(Blocker::Occupant(*occupant))));
        self.rank = None;
        self.pause_for(backoff::retry(self.retry(), random), now);
        actions
    }

    /// Returns the token of `occupant`, if it is an outer rlock that cannot release before we end:
    /// to wait for it would be to wait for oneself.
    pub fn outer(&self, occupant: &Occupant) -> Option<Token> {
        let (token, details) = occupant.holder()?;
        // A parked lock ends by itself: its run is over.
        let waits_for_itself = !details.parked && (self.options.for_command || details.kept);
        (waits_for_itself && self.options.outer.claim(token)).then_some(token)
    }
}

/// The wake-ups since the last attempt began.
#[derive(Clone, Debug)]
pub(super) struct Wakeups {
    quorum: Quorum,
    /// The nodes that have offered the lock.
    offered: Vec<bool>,
    due: Instant,
}

impl Wakeups {
    /// No wake-up yet; the next attempt is due at `due`.
    pub(super) fn until(quorum: Quorum, due: Instant) -> Self {
        Self {
            quorum,
            offered: vec![false; quorum.total()],
            due,
        }
    }

    /// Returns when the next attempt is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Makes the next attempt due at `at`, unless it is due earlier.
    pub(super) fn sooner(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }

    /// Whether a node has offered the lock.
    pub(super) fn is_offered(&self) -> bool {
        self.offered.contains(&true)
    }

    /// Records that node `node` sent `wake`. `pause`: shortest pause after an offer.
    pub(super) fn woken(&mut self, node: usize, wake: Wake, now: Instant, pause: Duration) {
        match wake {
            Wake::StandBy => self.sooner(now + TURN),
            Wake::Recheck => self.sooner(now),
            Wake::YourTurn => {
                self.offered[node] = true;
                let is_enough =
                    self.offered.iter().filter(|offered| **offered).count() >= self.quorum.needed();
                self.sooner(
                    now + if is_enough {
                        pause
                    } else {
                        pause.max(MORE_OFFERS)
                    },
                );
            }
        }
    }
}
