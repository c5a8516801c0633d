//! Nested runs: what an outer rlock tells them, and what one of them makes of it.
//!
//! An outer rlock whose command has ended keeps its lease for as long as nested runs rely on it. It *lingers*: what else
//! the command left in the background is free, so nothing is sent to the command's group any more. Nested runs are told
//! their terms instead, and each of them signals and kills its own command.

use nix::sys::signal::Signal;

use super::{Action, CaughtSignal, ExitStatus, Instant, Nested, OnLost, Phase, Policy, PolicyOptions, Terms};

/// The signals that end nested runs.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Whether `action` still means something when only nested runs are left: it is not for the command's processes.
pub(super) fn is_for_rlock(action: Action) -> bool {
    matches!(
        action,
        Action::SayLost(_) | Action::SayTimeIsUp | Action::SayLingering | Action::InterruptJob(_) | Action::Finish
    )
}

impl Policy {
    /// A nested run starts its command `now`. The outer rlock keeps the lease and has said what it means: `terms`.
    pub fn nested(wishes: PolicyOptions, terms: Terms, now: Instant) -> Self {
        // The command must not outlive the lock, whatever is wished here: the promise was made to the outer rlock's user.
        Self::under(PolicyOptions { on_lost: OnLost::Kill, ..wishes }, terms, now)
    }

    /// What nested runs are told; `None`: their commands are to be killed at once.
    pub fn terms_of_nested(&self) -> Option<Terms> {
        let kill_at = self.guard_kills_at();
        let terms = |signal_at| Some(Terms { signal_at, kill_at, ends: kill_at });
        match self.phase {
            Phase::Running | Phase::Suspended { .. } if self.wishes.on_lost == OnLost::Warn => terms(Instant::NEVER),
            Phase::Running | Phase::Suspended { .. } => terms(self.terms.signal_at),
            Phase::Stopping { signalled, .. } => terms(signalled),
            Phase::Killed | Phase::Over => None,
        }
    }

    /// Whether a nested run may start its command.
    pub fn welcomes_nested(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Suspended { .. })
    }

    pub(super) fn told(&mut self, terms: Terms) -> Vec<Action> {
        self.terms = terms;
        // Stopped for the lease's sake, and not because time is up: the outer rlock says how long that may take.
        if let Phase::Stopping { kill_at, .. } = &mut self.phase
            && !self.timed_out
            && self.ending.is_none()
        {
            *kill_at = terms.kill_at;
        }
        vec![]
    }

    pub(super) fn has_nested(&mut self, some: bool) -> Vec<Action> {
        match (self.nested, some) {
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

    /// The command has ended, and nested runs have not. A signal of which it died ends them too: in a session of their own
    /// they did not get it.
    pub(super) fn linger(&mut self, ending: ExitStatus, now: Instant) -> Vec<Action> {
        self.nested = Nested::Alone;
        let mut actions = vec![Action::SayLingering];
        let died_of = |signal: Signal| {
            let number = signal as i32;
            ending == ExitStatus::Killed(number)
                || matches!(ending, ExitStatus::Exited(code) if i32::from(code) == 128 + number)
        };
        if self.asked.is_some_and(|signal| ENDING.contains(&signal) && died_of(signal)) {
            actions.extend(self.stop_unhurried(now));
        }
        actions
    }

    /// A signal that would end the command ends the nested runs.
    pub(super) fn caught_lingering(&mut self, caught: CaughtSignal, now: Instant) -> Vec<Action> {
        let ends = ENDING.contains(&caught.signal);
        if ends && caught.from_terminal {
            // As if the command had been there to die of it: a shell's loop stops.
            self.ending = Some(ExitStatus::Killed(caught.signal as i32));
            self.interrupted = Some(caught.signal);
        }
        if ends && matches!(self.phase, Phase::Running | Phase::Suspended { .. }) {
            self.stop_unhurried(now)
        } else {
            vec![]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Foreground, Loss, Outcome, Reaction};
    use super::*;
    use crate::lock::schedule::{Schedule, ScheduleOptions as Times};
    use std::time::Duration;

    const TERM: Action = Action::SendAndContinue(Signal::SIGTERM);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn wishes() -> PolicyOptions {
        let times = Times { ttl: Duration::from_secs(30), drift: 0.01, node_timeout: None, kill_after: None };
        let schedule = Schedule::new(times).unwrap();
        PolicyOptions { schedule, on_lost: OnLost::Kill, first_signal: Signal::SIGTERM, max_run: None, contain: false }
    }

    fn terms(signal_at: u64, kill_at: u64) -> Terms {
        Terms { signal_at: at(signal_at), kill_at: at(kill_at), ends: at(kill_at) }
    }

    /// An outer rlock whose command has ended, and left a nested run.
    fn lingering(code: u8) -> Policy {
        let mut p = Policy::new(wishes(), wishes().schedule.tenure(at(0)), at(0));
        assert_eq!(p.on(Event::Nested(true), at(1)), []);
        let ended = Event::Ended(ExitStatus::Exited(code), Foreground::Nobodys);
        assert_eq!(p.on(ended, at(2)), [Action::SayLingering]);
        p
    }

    fn lease() -> Terms {
        wishes().schedule.terms(wishes().schedule.tenure(at(0)))
    }

    #[test]
    fn the_lock_is_kept_for_nested_runs_after_the_command_has_ended() {
        let mut p = lingering(3);
        assert!(p.welcomes_nested(), "a run nested in a nested one must not wait for it");
        let later = wishes().schedule.tenure(at(10_000));
        assert_eq!(p.on(Event::Extended(later), at(10_000)), []);
        assert_eq!(p.terms_of_nested().map(|t| t.kill_at), Some(wishes().schedule.kill_at(later)));
        assert_eq!(p.on(Event::Nested(true), at(10_001)), []);
        assert_eq!(p.on(Event::Nested(false), at(10_002)), [Action::Finish]);
        assert_eq!(p.outcome(true), Outcome::Exited(3));
    }

    #[test]
    fn a_lease_that_is_lost_for_nested_runs_only_is_told_to_them_and_not_to_the_group() {
        let mut p = lingering(0);
        assert_eq!(p.on(Event::Tick, lease().signal_at), [Action::SayLost(Reaction::Signalled)]);
        let told = p.terms_of_nested().unwrap();
        assert_eq!((told.signal_at, told.kill_at), (lease().signal_at, lease().kill_at));
        assert!(!p.welcomes_nested());
        assert_eq!(p.on(Event::Tick, lease().kill_at), []);
        assert_eq!(p.terms_of_nested(), None, "killed at once");
        assert_eq!(p.on(Event::Nested(false), lease().ends), [Action::Finish]);
        assert_eq!(p.outcome(true), Outcome::Lost);
    }

    #[test]
    fn a_signal_ends_nested_runs_when_the_command_has_ended() {
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
            let mut p = lingering(7);
            assert_eq!(p.on(Event::CaughtSignal(CaughtSignal { signal, from_terminal: false }), at(100)), []);
            let told = p.terms_of_nested().unwrap();
            assert_eq!((told.signal_at, told.kill_at), (at(100), at(100) + wishes().schedule.grace()));
            assert_eq!(p.on(Event::Tick, told.kill_at), []);
            assert_eq!(p.terms_of_nested(), None);
            assert_eq!(p.on(Event::Nested(false), told.kill_at), [Action::Finish]);
            assert_eq!(p.outcome(true), Outcome::Exited(7));
        }
    }

    #[test]
    fn a_signal_of_which_the_command_died_ends_nested_runs_too() {
        let signal = Signal::SIGTERM;
        for (ending, ends) in [
            (ExitStatus::Killed(15), true),
            (ExitStatus::Exited(143), true),
            (ExitStatus::Exited(0), false),
            (ExitStatus::Killed(9), false),
        ] {
            let mut p = Policy::new(wishes(), wishes().schedule.tenure(at(0)), at(0));
            p.on(Event::Nested(true), at(1));
            p.on(Event::CaughtSignal(CaughtSignal { signal, from_terminal: false }), at(2));
            assert_eq!(p.on(Event::Ended(ending, Foreground::Nobodys), at(100)), [Action::SayLingering]);
            let told = p.terms_of_nested().map(|told| told.signal_at);
            assert_eq!(told == Some(at(100)), ends, "{ending:?}");
        }
    }

    #[test]
    fn a_terminal_that_interrupts_nested_runs_interrupts_rlock() {
        let mut p = lingering(0);
        p.on(Event::CaughtSignal(CaughtSignal { signal: Signal::SIGINT, from_terminal: true }), at(100));
        assert_eq!(p.on(Event::Nested(false), at(101)), [Action::Finish]);
        assert_eq!(p.outcome(true), Outcome::Interrupted(2));
    }

    #[test]
    fn a_command_that_was_killed_is_not_over_before_its_nested_runs_are() {
        let mut p = Policy::new(wishes(), wishes().schedule.tenure(at(0)), at(0));
        p.on(Event::Nested(true), at(1));
        p.on(Event::Lost(Loss::TakenOver), at(2));
        assert_eq!(p.terms_of_nested(), None);
        p.on(Event::Ended(ExitStatus::Killed(9), Foreground::Nobodys), at(3));
        assert_eq!(p.on(Event::Gone, at(4)), []);
        assert_eq!(p.on(Event::Nested(false), at(5)), []);
        assert_eq!(p.on(Event::Gone, at(6)), [Action::Finish]);
    }

    #[test]
    fn a_nested_command_is_signalled_and_killed_when_the_outer_rlock_says() {
        let ignored = PolicyOptions { on_lost: OnLost::Warn, ..wishes() };
        let mut p = Policy::nested(ignored, terms(1000, 2000), at(0));
        assert_eq!((p.wake_at(), p.guard_kills_at()), (at(1000), at(2000)));
        p.on(Event::Told(terms(11_000, 12_000)), at(900));
        assert_eq!(p.on(Event::Tick, at(1000)), []);
        assert_eq!((p.wake_at(), p.guard_kills_at()), (at(11_000), at(12_000)));
        p.on(Event::Told(terms(950, 1500)), at(1001));
        assert_eq!(p.on(Event::Tick, at(1001)), [TERM, Action::SayLost(Reaction::Signalled)]);
        assert_eq!(p.wake_at(), at(1500));
        p.on(Event::Told(terms(950, 3000)), at(1400));
        assert_eq!(p.on(Event::Tick, at(1500)), [], "the outer rlock could keep the place for longer");
        assert_eq!(p.on(Event::Tick, at(3000)), [Action::Kill]);
        assert_eq!(p.on(Event::Ended(ExitStatus::Killed(9), Foreground::Nobodys), at(3001)), []);
        assert_eq!(p.on(Event::Gone, at(3002)), [Action::Finish]);
        assert_eq!(p.outcome(true), Outcome::Lost);
    }

    #[test]
    fn under_an_outer_rlock_that_only_warns_a_nested_command_goes_on() {
        let outer = Policy::new(PolicyOptions { on_lost: OnLost::Warn, ..wishes() }, lease().ends, at(0));
        let p = Policy::nested(wishes(), outer.terms_of_nested().unwrap(), at(0));
        assert_eq!((p.wake_at(), p.guard_kills_at()), (Instant::NEVER, Instant::NEVER));
    }

    #[test]
    fn what_an_outer_rlock_says_does_not_lengthen_the_grace_of_a_nested_max_run() {
        let wishes = PolicyOptions { max_run: Some(Duration::from_secs(1)), ..wishes() };
        let mut p = Policy::nested(wishes, terms(20_000, 25_000), at(0));
        assert_eq!(p.on(Event::Tick, at(1000)), [TERM, Action::SayTimeIsUp]);
        p.on(Event::Told(terms(30_000, 35_000)), at(1001));
        assert_eq!(p.wake_at(), at(1000) + wishes.schedule.grace());
    }
}
