//! The end of the command: a lease that is lost, a deadline that passes, or its own end; and the exit
//! code that follows. The deadlines are those of `lock::schedule`.

use nix::sys::signal::Signal;

use super::nested::Nested;
use super::{ExitStatus, Foreground, Instant, JobAction, OnLost, Phase, Policy, Reaction};
use crate::exit::Outcome;
use crate::lock::lease::{LeaseChange, Loss};
use crate::lock::remains::Ending;

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

    pub(super) fn lease_changed(&mut self, change: LeaseChange, now: Instant) -> Vec<JobAction> {
        match change {
            LeaseChange::Extended(deadline) => {
                // After the first signal a renewal covers the time until the kill and changes
                // nothing else.
                self.terms = self.options.schedule.terms(deadline);
                vec![]
            }
            LeaseChange::Lost(loss) => self.lost(loss, now),
            LeaseChange::Shielded(until) => self.shielded(until),
            LeaseChange::Unshielded => self.unshielded(),
        }
    }

    fn lost(&mut self, loss: Loss, now: Instant) -> Vec<JobAction> {
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

    fn shielded(&mut self, until: Instant) -> Vec<JobAction> {
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

    fn unshielded(&mut self) -> Vec<JobAction> {
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

    pub(super) fn tick(&mut self, now: Instant) -> Vec<JobAction> {
        match self.phase {
            Phase::Running | Phase::Suspended { .. } => self.tick_running(now),
            Phase::Stopping { .. } if now >= self.kill_deadline() => self.lose_and_kill(),
            Phase::Stopping { kill_at, .. } if now >= kill_at => self.kill(),
            _ => vec![],
        }
    }

    fn tick_running(&mut self, now: Instant) -> Vec<JobAction> {
        if now >= self.kill_deadline() {
            // Woken late: there is no time left for a first signal.
            self.lose_and_kill()
        } else if now >= self.lease_deadline() {
            match self.options.on_lost {
                OnLost::Warn => self.warn(),
                OnLost::Kill => self.lose_and_stop(now, self.kill_deadline()),
            }
        } else if now >= self.run_deadline {
            self.timed_out = true;
            let mut actions = self.stop_with_full_grace(now);
            actions.push(JobAction::SayTimeIsUp);
            actions
        } else {
            vec![]
        }
    }

    pub(super) fn ended(
        &mut self,
        status: ExitStatus,
        foreground: Foreground,
        now: Instant,
    ) -> Vec<JobAction> {
        if self.lingers() {
            return vec![];
        }
        self.exit_status = Some(status);
        if matches!(self.phase, Phase::Stopping { .. } | Phase::Killed) {
            // rlock is stopping the command, so whatever it has started must end too.
            return vec![];
        }
        let mut actions = self.interrupted_by_terminal(status, foreground);
        // If rlock was stopped past the deadline, the guard's kill is reported before the tick.
        if now >= self.kill_deadline()
            && self.lease == LeaseStatus::Kept
            && status == ExitStatus::Killed(Signal::SIGKILL as i32)
        {
            self.lease = LeaseStatus::LostAndStopped;
            actions.push(JobAction::SayLost(Reaction::Killed));
        }
        if now >= self.terms.ends && self.lease == LeaseStatus::Kept {
            self.lease = LeaseStatus::LostUnnoticed;
        }
        actions.extend(match self.options.contain {
            false if self.nested == Nested::Some => self.linger(status, now),
            false => self.finish(),
            true if now >= self.kill_deadline() => self.kill(),
            true => self.stop_with_full_grace(now),
        });
        actions
    }

    pub(super) fn gone(&mut self) -> Vec<JobAction> {
        let is_over =
            self.awaits_gone() && self.exit_status.is_some() && self.nested == Nested::None;
        if is_over { self.finish() } else { vec![] }
    }

    /// Returns the loss that was heard of. `None`: the lease ended without one, if it did.
    pub fn loss(&self) -> Option<Loss> {
        self.loss
    }

    /// Returns how the command ended, for what is left of its locks.
    pub fn ending(&self) -> Ending {
        match self.loss {
            Some(Loss::TakenOver) => Ending::TakenOver,
            Some(Loss::Absent | Loss::Broken) => Ending::LockLost,
            None if self.lease != LeaseStatus::Kept => Ending::LockLost,
            None if self.outcome(true) == Outcome::Exited(0) => Ending::Succeeded,
            None => Ending::Failed,
        }
    }

    /// Returns the outcome; `held` tells whether the lock was still ours when it was given back.
    pub fn outcome(&self, held: bool) -> Outcome {
        match (self.lease, self.exit_status) {
            (LeaseStatus::LostAndStopped | LeaseStatus::LostAndIgnored, _) => Outcome::Lost,
            (_, None) => Outcome::Bug,
            _ if self.timed_out => Outcome::TimeIsUp,
            // A command that ended with 0 may not have been alone, so that is no success. Any other
            // code is more telling.
            (lease, Some(ExitStatus::Exited(0)))
                if lease == LeaseStatus::LostUnnoticed || !held =>
            {
                Outcome::Lost
            }
            (_, Some(ExitStatus::Exited(code))) => Outcome::Exited(code),
            (_, Some(ExitStatus::Killed(number))) => match self.interrupted {
                Some(signal) if signal as i32 == number => Outcome::Interrupted(number),
                _ => Outcome::Killed(number),
            },
        }
    }

    /// Whether, as far as rlock could see, the lease lasted as long as the command.
    pub fn was_kept(&self) -> bool {
        self.lease == LeaseStatus::Kept
    }
}
