//! `--on-lost reclaim`: a lock whose keys are gone is taken again at once, where the nodes prove that no other rlock had it.
//!
//! The nodes are asked as for a shield: each sets the key only if there is none and its counter is not above our fence. The lease
//! goes on once q nodes have said that the key is ours.
//!
//! No other rlock has a majority then, nor had one since the loss:
//! 1. A complete grant leaves its fence with q nodes, and so with one of those that answered us. That fence is above ours, so
//!    the node refuses us.
//! 2. An attempt that is under way keeps us from each node that it has, and we keep it from ours.
//! 3. A node that lost its counter has lost its data. Under a restart guard it grants nothing for a TTL, and our answers count
//!    until D only, which is less than a TTL after its last renewal.
//! 4. Without a guard, a node without a counter gives a number above our fence: a lone node takes its clock + 5 s, one of
//!    several the client's clock.
//!
//! What is not seen: a foreign client that came and went, and a grant that its nodes have forgotten too.

use super::{Change, Holding, Stage};
use crate::lock::instant::Instant;
use crate::lock::lease::Loss;

impl Holding {
    /// Whether keys that are missing may be set again for the lease. A broken lock is never reclaimed, nor one whose lease is
    /// over.
    pub(super) fn may_reclaim(&self, now: Instant) -> bool {
        self.reclaims && !self.broken && self.told_deadline.is_some_and(|deadline| now < deadline)
    }

    /// Begins to reclaim. One exchange decides, and D still bounds it.
    pub(super) fn begin_reclaim(&mut self, now: Instant) {
        let limit = now + self.schedule.node_timeout();
        let until = self.told_deadline.map_or(limit, |deadline| deadline.min(limit));
        self.lost_by = self.faults().map(|(node, fault)| format!("{node}: {fault}")).collect::<Vec<_>>().join("; ");
        for (node, upkeep) in self.upkeep.iter_mut().enumerate() {
            upkeep.was_proven = self.lease.is_proven(node);
        }
        self.begin(Stage::Reclaiming(until), now);
    }

    /// Whether the time to reclaim is over.
    pub(super) fn reclaims_too_late(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Reclaiming(until) if now >= until)
    }

    /// Ends an attempt to reclaim that failed: from here on all is as if there had been none.
    pub(super) fn not_reclaimed(&mut self, now: Instant) -> Change {
        let loss = self.lease.loss(now).unwrap_or(Loss::Absent);
        self.lost(loss, now)
    }

    /// Goes on with the lease that ends at `deadline`.
    pub(super) fn reclaimed(&mut self, deadline: Instant) -> Change {
        self.stage = Stage::Keeping;
        Change::Reclaimed(deadline, std::mem::take(&mut self.lost_by))
    }
}
