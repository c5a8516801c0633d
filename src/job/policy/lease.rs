//! Renewals and losses: how long the command may run on, and when it is stopped after a loss. The
//! deadlines are those of `lock::schedule`.

use super::{Instant, JobAction, OnLost, Phase, Policy, Reaction};
use crate::lock::lease::Loss;

/// The fate of the lease while the command ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseStatus {
    Kept,
    /// It ended unnoticed, after the command had ended by itself.
    LostUnnoticed,
    /// It was lost, or about to be, and the command was stopped for it.
    LostAndStopped,
    /// It was lost and the command went on (`--on-lost warn`).
    LostAndIgnored,
}

impl Policy {
    /// The instant at which the lease needs an action if it is not extended.
    pub(super) fn lease_deadline(&self) -> Instant {
        match (self.options.on_lost, self.lease) {
            (OnLost::Warn, LeaseStatus::LostAndIgnored) => Instant::NEVER,
            // Until D itself no other client can have the lock, so there is nothing to warn of.
            (OnLost::Warn, _) => self.terms.ends,
            (OnLost::Kill, _) => self.terms.signal_at,
        }
    }

    pub(super) fn extended(&mut self, deadline: Instant) -> Vec<JobAction> {
        // After the first signal a renewal covers the time until the kill and changes nothing else.
        self.terms = self.options.schedule.terms(deadline);
        vec![]
    }

    pub(super) fn lost(&mut self, loss: Loss, now: Instant) -> Vec<JobAction> {
        if self.options.on_lost == OnLost::Warn {
            return self.warn();
        }
        let grace_ends = now + self.options.schedule.grace();
        // Without a shield an absent key leaves no grace. A node has one timeout to answer whether
        // it shields.
        let shield_due = grace_ends.min(now + self.options.schedule.node_timeout());
        match (self.phase, loss) {
            (Phase::Killed | Phase::Over, _) => vec![],
            (_, Loss::TakenOver) => self.lose_and_kill(),
            // The tombstone lasts as long as the lease would have, and `tick` kills before its end.
            (Phase::Running | Phase::Suspended { .. }, Loss::Broken) => {
                self.lose_and_stop(now, grace_ends)
            }
            (Phase::Running | Phase::Suspended { .. }, Loss::Absent) => {
                self.lose_and_stop(now, shield_due)
            }
            // The grace of a loss may be shorter than what is left of the one that runs.
            (
                Phase::Stopping {
                    signalled,
                    kill_at,
                    grace_ends: before,
                },
                Loss::Broken | Loss::Absent,
            ) => {
                let grace_ends = before.min(grace_ends);
                let limit = if loss == Loss::Absent {
                    shield_due
                } else {
                    grace_ends
                };
                self.phase = Phase::Stopping {
                    signalled,
                    kill_at: kill_at.min(limit),
                    grace_ends,
                };
                self.mark_lost(Reaction::Signalled)
            }
        }
    }

    pub(super) fn shielded(&mut self, until: Instant) -> Vec<JobAction> {
        self.terms = self.options.schedule.terms(until);
        if let Phase::Stopping {
            kill_at,
            grace_ends,
            ..
        } = &mut self.phase
        {
            *kill_at = *grace_ends;
        }
        vec![]
    }

    pub(super) fn unshielded(&mut self) -> Vec<JobAction> {
        match self.phase {
            Phase::Stopping { .. } => self.lose_and_kill(),
            _ => vec![],
        }
    }

    pub(super) fn warn(&mut self) -> Vec<JobAction> {
        match std::mem::replace(&mut self.lease, LeaseStatus::LostAndIgnored) {
            LeaseStatus::LostAndIgnored => vec![],
            _ => vec![JobAction::SayLost(Reaction::Ignored)],
        }
    }

    pub(super) fn lose_and_stop(&mut self, now: Instant, kill_at: Instant) -> Vec<JobAction> {
        let mut actions = self.stop(now, kill_at, now + self.options.schedule.grace());
        actions.extend(self.mark_lost(Reaction::Signalled));
        actions
    }

    pub(super) fn lose_and_kill(&mut self) -> Vec<JobAction> {
        let mut actions = self.kill();
        actions.extend(self.mark_lost(Reaction::Killed));
        actions
    }

    fn mark_lost(&mut self, reaction: Reaction) -> Vec<JobAction> {
        if self.lease != LeaseStatus::Kept {
            return vec![];
        }
        // A command that had ended by itself before was not stopped for the loss.
        self.lease = if self.exit_status.is_some() && !self.timed_out {
            LeaseStatus::LostUnnoticed
        } else {
            LeaseStatus::LostAndStopped
        };
        vec![JobAction::SayLost(reaction)]
    }

    /// Whether, as far as rlock could see, the lease lasted as long as the command.
    pub fn was_kept(&self) -> bool {
        self.lease == LeaseStatus::Kept
    }
}
