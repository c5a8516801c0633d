//! One node's renewals: when it is asked next, how long a failed exchange waits, and what follows
//! when the node has our key, or has healed it.

use std::time::Duration;

use super::{Change, Holding, Stage};
use crate::clock;
use crate::lock::backoff;
use crate::lock::fault::Fault;
use crate::lock::instant::Instant;
use crate::lock::lease::LeaseChange;
use crate::lock::schedule::Schedule;
use crate::store::Counter;

/// One node's renewals.
pub(super) struct Upkeep {
    /// When to ask next, or when the exchange under way counts as failed.
    pub(super) due: Instant,
    /// When the exchange under way began.
    pub(super) asked: Option<Instant>,
    /// When the last one began.
    pub(super) asked_last: Instant,
    /// The fence counter, as the node told it when it had no key.
    pub(super) told_counter: Counter,
    /// Number of exchanges since the last one that served the lease.
    pub(super) failures: u32,
    /// When the first of these failed without an answer that counts.
    pub(super) lost_since: Option<Instant>,
    /// Why the last of them failed.
    pub(super) fault: Option<Fault>,
    /// Whether the caller knows that the node refuses us.
    pub(super) refusal_told: bool,
    /// Whether a hint came while the exchange was under way, which may have been answered before.
    pub(super) hinted_meanwhile: bool,
}

impl Upkeep {
    pub(super) fn new(due: Instant, asked: Option<Instant>) -> Self {
        let (told_counter, failures, lost_since, fault) = (None, 0, None, None);
        let (refusal_told, hinted_meanwhile) = (false, false);
        let asked_last = asked.unwrap_or_else(clock::now);
        Self {
            due,
            asked,
            asked_last,
            told_counter,
            failures,
            lost_since,
            fault,
            refusal_told,
            hinted_meanwhile,
        }
    }
}

impl Holding {
    /// Returns the pause after a failed exchange with node `node`.
    ///
    /// 1. Short while the lease needs the node.
    /// 2. Short for as long as a node that restarted would grant nothing. The restart guard goes by
    ///    the server's wall clock, which a step puts forward: the holder then heals the node before
    ///    other clients are granted there.
    /// 3. Else it doubles. A node that is gone for a day must not cost four connections a second.
    pub(super) fn pause_after_failure(&self, node: usize, now: Instant) -> Duration {
        let short = pause(self.schedule);
        let (schedule, upkeep) = (self.schedule, &self.upkeep[node]);
        let guarded = self.claim.guarded.unwrap_or_default();
        let may_restart = upkeep.lost_since.is_some_and(|since| now < since + guarded);
        let at_ease = self.stage == Stage::Keeping && now < schedule.renew_at(self.deadline());
        if at_ease && !may_restart {
            backoff::doubled(short, upkeep.failures, schedule.renew_every())
        } else {
            short
        }
    }

    /// Returns when a node is asked again that another client holds. Its key ends in `left` unless
    /// it is extended: so the pause is over then, if not before.
    pub(super) fn due_after_another(
        &self,
        node: usize,
        now: Instant,
        left: Option<Duration>,
    ) -> Instant {
        let pause = now + self.pause_for_another(node);
        let free = left.map_or(Instant::NEVER, |left| now + backoff::over(left));
        pause.min(free.max(self.soon(node)))
    }

    /// Returns the pause before a node is asked again that another client holds: it doubles, up to
    /// the usual rhythm.
    pub(super) fn pause_for_another(&self, node: usize) -> Duration {
        backoff::doubled(
            pause(self.schedule),
            self.upkeep[node].failures,
            self.schedule.renew_every(),
        )
    }

    /// Records that node `node` has our key, with a fence counter of `counter` before that. While
    /// the lease is to be kept, a node joins unproven whose counter is neither our fence nor lost:
    /// it may have granted the lock to another client since. The other nodes are then asked at
    /// once, because their replies prove it.
    pub(super) fn renewed(
        &mut self,
        node: usize,
        asked: Instant,
        until: Instant,
        counter: Counter,
    ) -> Option<Change> {
        let may_have_granted = counter.is_none_or(|told| told != self.fence.get() && told != 0);
        if may_have_granted && self.stage == Stage::Keeping && self.lease.wants_healing(node) {
            let now = clock::now();
            self.lease.admit(node, asked, until, now);
            for (other, upkeep) in self.upkeep.iter_mut().enumerate() {
                if upkeep.asked.is_none() && self.lease.wants_word_of(other) {
                    upkeep.due = now;
                }
            }
        }
        self.extended(node, asked, until)
    }

    pub(super) fn extended(
        &mut self,
        node: usize,
        asked: Instant,
        until: Instant,
    ) -> Option<Change> {
        self.lease.extend(node, asked, until);
        if self.lease.wants_healing(node) {
            return None;
        }
        let (wanted, soon) = (self.lease.wants_word_of(node), self.soon(node));
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked == Some(asked) {
            upkeep.asked = None;
            let later = if upkeep.hinted_meanwhile {
                soon
            } else {
                asked + self.schedule.renew_every()
            };
            upkeep.due = if wanted { clock::now() } else { later };
        }
        (
            upkeep.failures,
            upkeep.lost_since,
            upkeep.fault,
            upkeep.told_counter,
        ) = (0, None, None, None);
        if self.listens_at.is_none() && !self.nodes.wakes(node) {
            self.listen_to(node);
        }
        let deadline = self.changed_deadline()?;
        Some(match self.stage {
            Stage::Keeping => Change::Lease(LeaseChange::Extended(deadline)),
            Stage::Shielding | Stage::Over => Change::Lease(LeaseChange::Shielded(deadline)),
        })
    }

    /// Records that node `node` has no key of ours, and set none because its counter is not the one
    /// that the request named. It is asked again at once with the counter that it told; later if
    /// that was tried already.
    pub(super) fn refused_healing(&mut self, node: usize, asked: Instant, counter: Counter) {
        let pause = self.pause_for_another(node);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked != Some(asked) {
            return;
        }
        upkeep.asked = None;
        let is_news = upkeep.told_counter.is_none() && counter.is_some();
        (upkeep.told_counter, upkeep.failures) = (counter, upkeep.failures.saturating_add(1));
        upkeep.due = clock::now() + if is_news { Duration::ZERO } else { pause };
    }

    /// Begins to listen to all nodes.
    pub(super) fn listen(&mut self) {
        self.listens_at = None;
        for node in 0..self.nodes.len() {
            self.listen_to(node);
        }
    }

    pub(super) fn listen_to(&self, node: usize) {
        if let Some(queue) = self.nodes[node].queue() {
            queue.listen(self.claim.token);
        }
    }

    /// Renews at once after a connection broke, so that a server that came back empty is noticed in
    /// milliseconds, and when the lock was taken away.
    pub(super) fn renew_soon(&mut self, node: usize) {
        let soon = self.soon(node);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked.is_none() {
            upkeep.due = upkeep.due.min(soon);
        } else {
            upkeep.hinted_meanwhile = true;
        }
    }

    /// Returns when a hint leads to the next exchange. It is not sooner than a pause after the last
    /// one began, because a peer that closes after each reply would make us spin.
    pub(super) fn soon(&self, node: usize) -> Instant {
        clock::now().max(self.upkeep[node].asked_last + self.schedule.retry())
    }
}

/// Returns the pause before a failed exchange is tried again.
pub(super) fn pause(schedule: Schedule) -> Duration {
    backoff::retry(schedule.retry(), fastrand::f64())
}
