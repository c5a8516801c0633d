//! Nodes that lose ours: the lease goes on without them, or is lost and the key becomes a shield.

use std::time::Duration;

use super::{Change, Holding, Stage, upkeep};
use crate::clock;
use crate::lock::details::Breaker;
use crate::lock::fault::{Fault, FaultKind};
use crate::lock::instant::Instant;
use crate::lock::lease::{Lease, LeaseChange, Loss, Revoked};
use crate::store::Counter;

impl Holding {
    /// Records that node `node` has no key of ours any more, and how. It is asked again, to heal it
    /// or for the shield. Returns the loss, if the lease is lost by that.
    pub(super) fn revoked(
        &mut self,
        node: usize,
        asked: Instant,
        how: Revoked,
        counter: Counter,
        left: Option<Duration>,
    ) -> Option<Change> {
        let now = clock::now();
        let due = self.due_after_another(node, now, left);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked == Some(asked) {
            upkeep.asked = None;
        }
        upkeep.fault = Some(Fault::new(FaultKind::Unavailable, how.to_string()));
        (upkeep.told_counter, upkeep.failures) = (counter, upkeep.failures.saturating_add(1));
        let is_news = self.lease.revoked(node) != Some(how);
        self.lease.revoke(node, how, now);
        if self.stage != Stage::Keeping {
            self.upkeep[node].due = now + upkeep::pause(self.schedule);
            if !self.lease.majority_revoked() {
                return None;
            }
            self.stage = Stage::Over;
            return Some(Change::Lease(LeaseChange::Unshielded));
        }
        // A node without a key is healed at once. Another client's key is mostly that of an attempt
        // which is about to fail.
        self.upkeep[node].due = if how == Revoked::Missing { now } else { due };
        let Some(loss) = self.lease.loss(now.before(self.schedule.round())) else {
            // The rest of the lease may be shorter than before.
            return self
                .changed_deadline()
                .map(|until| Change::Lease(LeaseChange::Extended(until)))
                .or_else(|| is_news.then(|| self.trouble(node)));
        };
        Some(self.lost(loss, now))
    }

    fn lost(&mut self, loss: Loss, now: Instant) -> Change {
        match loss {
            Loss::TakenOver => self.stage = Stage::Over,
            Loss::Absent | Loss::Broken => self.begin_shield(now),
        }
        Change::Lease(LeaseChange::Lost(loss))
    }

    /// Records that node `node` has a tombstone in the place of our key. It keeps others out as the
    /// key did, so it is extended too.
    pub(super) fn was_broken(
        &mut self,
        node: usize,
        asked: Instant,
        until: Option<Instant>,
        by: Breaker,
    ) -> Option<Change> {
        let is_first = self.broken.is_none();
        let was_alive = self.stage == Stage::Keeping;
        let change = until.and_then(|until| self.extended(node, asked, until));
        let upkeep = &mut self.upkeep[node];
        if until.is_none() && upkeep.asked == Some(asked) {
            upkeep.asked = None;
            upkeep.due = clock::now()
                + if is_first {
                    Duration::ZERO
                } else {
                    upkeep::pause(self.schedule)
                };
        }
        upkeep.fault = Some(Fault::new(FaultKind::Unavailable, by.to_string()));
        self.broken.get_or_insert(by);
        let is_news = is_first && was_alive;
        if is_news {
            Some(Change::Lease(LeaseChange::Lost(Loss::Broken)))
        } else {
            change
        }
    }

    /// Begins to set the keys again as a shield, with a lease of its own: its end says how long the
    /// command may take to die.
    fn begin_shield(&mut self, now: Instant) {
        (self.stage, self.since) = (Stage::Shielding, now);
        self.lease = Lease::new(self.nodes.quorum());
        self.told_deadline = None;
        (0..self.nodes.len()).for_each(|node| self.ask(node, now));
    }
}
