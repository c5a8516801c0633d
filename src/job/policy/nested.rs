//! Nested runs: the terms that an outer rlock sends them, and how one of them obeys.
//!
//! An outer rlock whose command has ended keeps its lease while nested runs rely on it. It
//! *lingers*: background processes of the command are free, so nothing is sent to the command's
//! group. Nested runs are sent their terms instead, and each of them signals and kills its own
//! command.

use nix::sys::signal::Signal;

use super::{
    CaughtSignal, ExitStatus, Instant, JobAction, OnLost, Phase, Policy, PolicyOptions, Terms,
};

/// The signals that end nested runs.
const TERMINATING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// Whether nested runs rely on the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nested {
    None,
    /// Nested runs and the command.
    Some,
    /// Nested runs alone: the command has ended by itself.
    Alone,
}

/// Whether `action` is for rlock itself, and not for the command's processes.
pub(super) fn concerns_rlock(action: JobAction) -> bool {
    matches!(
        action,
        JobAction::SayLost(_)
            | JobAction::SayTimeIsUp
            | JobAction::SayLingering
            | JobAction::InterruptJob(_)
            | JobAction::Finish
    )
}

impl Policy {
    /// The policy of a nested run whose command starts `now`. The outer rlock keeps the lease and
    /// has sent `terms`.
    pub fn nested(options: PolicyOptions, terms: Terms, now: Instant) -> Self {
        // `--on-lost warn` does not count here: the promise was made to the outer rlock's user.
        Self::under(
            PolicyOptions {
                on_lost: OnLost::Kill,
                ..options
            },
            terms,
            now,
        )
    }

    /// The terms for nested runs. `None`: they must kill their commands at once.
    pub fn terms_of_nested(&self) -> Option<Terms> {
        let kill_at = self.guard_kills_at();
        let terms = |signal_at| {
            Some(Terms {
                signal_at,
                kill_at,
                ends: kill_at,
            })
        };
        match self.phase {
            Phase::Running | Phase::Suspended { .. } if self.options.on_lost == OnLost::Warn => {
                terms(Instant::NEVER)
            }
            Phase::Running | Phase::Suspended { .. } => terms(self.terms.signal_at),
            Phase::Stopping { signalled, .. } => terms(signalled),
            Phase::Killed | Phase::Over => None,
        }
    }

    /// Whether a nested run may start its command.
    pub fn welcomes_nested(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Suspended { .. })
    }

    pub(super) fn terms_received(&mut self, terms: Terms) -> Vec<JobAction> {
        self.terms = terms;
        // If the command is stopped for the lease and not for `--max-run`, the outer rlock sets the
        // grace.
        if let Phase::Stopping { kill_at, .. } = &mut self.phase
            && !self.timed_out
            && self.exit_status.is_none()
        {
            *kill_at = terms.kill_at;
        }
        vec![]
    }

    pub(super) fn nested_changed(&mut self, any: bool) -> Vec<JobAction> {
        match (self.nested, any) {
            (Nested::Alone, true) => {}
            (Nested::Alone, false) => return self.finish(),
            (_, true) => self.nested = Nested::Some,
            (_, false) => self.nested = Nested::None,
        }
        vec![]
    }

    /// Whether the lease is kept for nested runs only.
    pub(super) fn lingers(&self) -> bool {
        self.nested == Nested::Alone
    }

    /// Keeps the lease for nested runs after the command has ended. If a forwarded signal ended the
    /// command, it ends them too: in sessions of their own they did not get it.
    pub(super) fn linger(&mut self, status: ExitStatus, now: Instant) -> Vec<JobAction> {
        self.nested = Nested::Alone;
        let mut actions = vec![JobAction::SayLingering];
        let died_of = |signal: Signal| {
            let number = signal as i32;
            status == ExitStatus::Killed(number)
                || matches!(status, ExitStatus::Exited(code) if i32::from(code) == 128 + number)
        };
        if self
            .last_forwarded
            .is_some_and(|signal| TERMINATING.contains(&signal) && died_of(signal))
        {
            actions.extend(self.stop_with_full_grace(now));
        }
        actions
    }

    /// Ends nested runs at a signal that would have ended the command.
    pub(super) fn caught_lingering(
        &mut self,
        caught: CaughtSignal,
        now: Instant,
    ) -> Vec<JobAction> {
        let terminates = TERMINATING.contains(&caught.signal);
        if terminates && caught.from_terminal {
            // As if the command had died of it, so that a shell's loop stops.
            self.exit_status = Some(ExitStatus::Killed(caught.signal as i32));
            self.interrupted = Some(caught.signal);
        }
        if terminates && matches!(self.phase, Phase::Running | Phase::Suspended { .. }) {
            self.stop_with_full_grace(now)
        } else {
            vec![]
        }
    }
}
