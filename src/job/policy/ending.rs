//! Deadlines that pass, the command's end, and the exit code that follows from it.

use nix::sys::signal::Signal;

use super::lease::LeaseStatus;
use super::nested::Nested;
use super::{ExitStatus, Foreground, Instant, JobAction, OnLost, Phase, Policy, Reaction};
use crate::exit::Outcome;
use crate::lock::lease::Loss;
use crate::lock::remains::Ending;

impl Policy {
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

    /// Returns how the command ended, for what is left of its locks. `loss`: the loss that was
    /// heard of.
    pub fn ending(&self, loss: Option<Loss>) -> Ending {
        match loss {
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
}
