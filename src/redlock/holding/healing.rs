//! Nodes that have our key, renewed or healed, and nodes that refused to be healed.

use std::time::Duration;

use super::{Change, Holding, Stage};
use crate::clock;
use crate::lock::instant::Instant;
use crate::node::Counter;

impl Holding {
    /// Records that node `node` has our key, with a fence counter of `counter` before that. While the lease is to be kept, a
    /// node that joins with a counter above our fence joins unproven, and the other nodes are asked at once for their word.
    pub(super) fn renewed(&mut self, node: usize, asked: Instant, until: Instant, counter: Counter) -> Option<Change> {
        let is_above = counter.is_none_or(|counter| counter > self.fence.get());
        if is_above && self.stage == Stage::Keeping && self.lease.wants_healing(node) {
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

    pub(super) fn extended(&mut self, node: usize, asked: Instant, until: Instant) -> Option<Change> {
        self.lease.extend(node, asked, until);
        if self.lease.wants_healing(node) {
            return None;
        }
        let wanted = self.lease.wants_word_of(node);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked == Some(asked) {
            upkeep.asked = None;
            let soon = wanted || std::mem::take(&mut upkeep.called_meanwhile);
            upkeep.due = if soon { clock::now() } else { asked + self.schedule.renew_every() };
            upkeep.broken = self.nodes[node].broken();
        }
        (upkeep.failures, upkeep.lost_since, upkeep.fault, upkeep.told_counter) = (0, None, None, None);
        let is_deaf = upkeep.called.is_none() || !self.nodes[node].listens();
        if is_deaf && self.listens_at.is_none() {
            self.listen_to(node);
        }
        let deadline = self.changed_deadline()?;
        Some(match self.stage {
            Stage::Keeping => Change::Extended(deadline),
            Stage::Shielding | Stage::Over => Change::Shielded(deadline),
        })
    }

    /// Records that node `node` has no key of ours, and set none because its counter is not the one that the request named. It
    /// is asked again at once with the counter that it told; later if that was tried already.
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
}
