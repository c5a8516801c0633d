//! What the state of the lease means for the command: pure, event and state in, actions out. DESIGN.md §5 and §8.

use nix::sys::signal::Signal;

use super::spawn::Ending;
use crate::cli::OnLost;
use crate::exit::Outcome;
use crate::lock::instant::Instant;
use crate::lock::lease::Loss;
use crate::lock::schedule::Schedule;

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The lease lasts until then.
    Extended(Instant),
    /// The lease is lost, for good.
    Lost(Loss),
    /// After a loss: the place is kept until then.
    Shielded(Instant),
    /// After a loss: the place could not be kept.
    Unshielded,
    /// rlock got a signal.
    Caught(Signal),
    /// The command's first process has ended.
    Ended(Ending),
    /// [`Policy::wake_at`] has come, or may have.
    Tick,
    /// No process of the command's group can run any more.
    GroupGone,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this to the command's group.
    Send(Signal),
    /// The same, and let stopped processes go on so that they get it.
    SendAndContinue(Signal),
    /// Say that the lock is lost and what is being done.
    SayLost(Measure),
    /// Give the lock back; nothing more will be done.
    Finish,
}

/// What is done about a loss, for the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The first signal was sent.
    Signalled,
    /// Killed at once.
    Killed,
    /// `--on-lost warn`: nothing.
    Ignored,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// As the command pleases.
    Running,
    /// It was sent the first signal, and is killed then.
    Stopping { kill_at: Instant, signalled: Instant },
    /// It was sent SIGKILL; its group is watched until it is gone.
    Killed,
    /// Nothing is left to do.
    Over,
}

/// The state.
#[derive(Clone, Debug)]
pub struct Policy {
    schedule: Schedule,
    on_lost: OnLost,
    first_signal: Signal,
    deadline: Instant,
    phase: Phase,
    lease: Fate,
    ending: Option<Ending>,
}

/// What has become of the lease while the command ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Kept,
    /// It ended, and the command had ended by itself before that could be noticed.
    LostUnnoticed,
    /// It was lost, or about to be, and the command was stopped for it.
    LostAndStopped,
    /// It was lost and the command went on (`--on-lost warn`).
    LostAndIgnored,
}

impl Policy {
    /// The command is about to be started under a lease that ends at `deadline`.
    pub fn new(schedule: Schedule, on_lost: OnLost, first_signal: Signal, deadline: Instant) -> Self {
        Self { schedule, on_lost, first_signal, deadline, phase: Phase::Running, lease: Fate::Kept, ending: None }
    }

    /// When to send [`Event::Tick`].
    pub fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Running if self.lease == Fate::LostAndIgnored => Instant::NEVER,
            Phase::Running if self.on_lost == OnLost::Warn => self.deadline,
            Phase::Running => self.schedule.signal_at(self.deadline),
            Phase::Stopping { kill_at, .. } => kill_at,
            _ => Instant::NEVER,
        }
    }

    /// Whether only the rest of the command's group is waited for: [`Event::GroupGone`] comes next.
    pub fn waits_for_group(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. } | Phase::Killed) && self.ending.is_some()
    }

    /// What to do now that `event` has happened.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            _ if self.phase == Phase::Over => vec![],
            Event::Extended(deadline) => self.extended(deadline),
            Event::Lost(loss) => self.lose(loss, now),
            Event::Shielded(until) => self.shielded(until),
            Event::Unshielded => self.unshielded(),
            Event::Caught(signal) => vec![Action::Send(signal)],
            Event::Ended(ending) => self.ended(ending, now),
            Event::Tick => self.tick(now),
            Event::GroupGone => self.group_gone(),
        }
    }

    fn extended(&mut self, deadline: Instant) -> Vec<Action> {
        // After the first signal a renewal covers the kill and changes nothing else.
        self.deadline = deadline;
        vec![]
    }

    fn lose(&mut self, loss: Loss, now: Instant) -> Vec<Action> {
        if self.on_lost == OnLost::Warn {
            return self.warn();
        }
        match (self.phase, loss) {
            (Phase::Killed, _) => vec![],
            (_, Loss::TakenOver) => self.kill(),
            // Signalled now; how long it may take depends on whether the place can be kept, which a node has one
            // timeout to say.
            (Phase::Running, Loss::Absent) => {
                self.stop(now, now + self.schedule.node_timeout().min(self.schedule.grace()))
            }
            (Phase::Stopping { kill_at, signalled }, Loss::Absent) => {
                let kill_at = kill_at.min(now + self.schedule.node_timeout());
                self.phase = Phase::Stopping { kill_at, signalled };
                vec![]
            }
            (Phase::Over, _) => vec![],
        }
    }

    fn shielded(&mut self, until: Instant) -> Vec<Action> {
        if let Phase::Stopping { signalled, .. } = self.phase {
            let kill_at = (signalled + self.schedule.grace()).min(self.schedule.kill_at(until));
            self.phase = Phase::Stopping { kill_at, signalled };
        }
        vec![]
    }

    fn unshielded(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Stopping { .. } => self.kill(),
            _ => vec![],
        }
    }

    fn tick(&mut self, now: Instant) -> Vec<Action> {
        match self.phase {
            // Until D itself nobody else can have the lock, so there is nothing to warn of.
            Phase::Running if self.on_lost == OnLost::Warn => {
                if now >= self.deadline {
                    self.warn()
                } else {
                    vec![]
                }
            }
            // Woken late: there is no time left for a first signal.
            Phase::Running if now >= self.schedule.kill_at(self.deadline) => self.kill(),
            Phase::Running if now >= self.schedule.signal_at(self.deadline) => {
                self.stop(now, self.schedule.kill_at(self.deadline))
            }
            Phase::Stopping { kill_at, .. } if now >= kill_at => self.kill(),
            _ => vec![],
        }
    }

    fn ended(&mut self, ending: Ending, now: Instant) -> Vec<Action> {
        self.ending = Some(ending);
        if self.phase != Phase::Running {
            // We are stopping it: what it has started must be gone too.
            return vec![];
        }
        if now >= self.deadline && self.lease == Fate::Kept {
            self.lease = Fate::LostUnnoticed;
        }
        self.finish()
    }

    fn group_gone(&mut self) -> Vec<Action> {
        if self.waits_for_group() { self.finish() } else { vec![] }
    }

    fn warn(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.lease, Fate::LostAndIgnored) {
            Fate::LostAndIgnored => vec![],
            _ => vec![Action::SayLost(Measure::Ignored)],
        }
    }

    fn stop(&mut self, now: Instant, kill_at: Instant) -> Vec<Action> {
        self.lease = Fate::LostAndStopped;
        self.phase = Phase::Stopping { kill_at, signalled: now };
        vec![Action::SendAndContinue(self.first_signal), Action::SayLost(Measure::Signalled)]
    }

    fn kill(&mut self) -> Vec<Action> {
        self.phase = Phase::Killed;
        match std::mem::replace(&mut self.lease, Fate::LostAndStopped) {
            Fate::LostAndStopped => vec![Action::Send(Signal::SIGKILL)],
            _ => vec![Action::Send(Signal::SIGKILL), Action::SayLost(Measure::Killed)],
        }
    }

    fn finish(&mut self) -> Vec<Action> {
        self.phase = Phase::Over;
        vec![Action::Finish]
    }

    /// Whether, as far as could be seen from here, the lease lasted as long as the command.
    pub fn was_kept(&self) -> bool {
        self.lease == Fate::Kept
    }

    /// What came of it. `held` tells whether the lock was still ours when it was given back.
    pub fn outcome(&self, held: bool) -> Outcome {
        match (self.lease, self.ending) {
            (Fate::LostAndStopped | Fate::LostAndIgnored, _) => Outcome::Lost,
            // A job that says it succeeded, but may not have been alone, did not. Its own complaint says more than ours.
            (fate, Some(Ending::Exited(0))) if fate == Fate::LostUnnoticed || !held => Outcome::Lost,
            (_, Some(Ending::Exited(code))) => Outcome::Exited(code),
            (_, Some(Ending::Killed(signal))) => Outcome::Killed(signal),
            (_, None) => Outcome::Bug,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::lock::schedule::Wishes;

    const TTL: Duration = Duration::from_secs(30);

    fn schedule() -> Schedule {
        Schedule::new(Wishes { ttl: TTL, drift: 0.01, node_timeout: None, kill_after: None }).unwrap()
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// D of a lease asked for at 0.
    fn deadline() -> Instant {
        schedule().tenure(at(0))
    }

    fn policy(on_lost: OnLost) -> Policy {
        Policy::new(schedule(), on_lost, Signal::SIGTERM, deadline())
    }

    const KILL: Action = Action::Send(Signal::SIGKILL);
    const TERM: Action = Action::SendAndContinue(Signal::SIGTERM);

    #[test]
    fn without_renewal_the_command_is_signalled_and_then_killed_before_the_deadline() {
        let mut p = policy(OnLost::Kill);
        let (term, kill) = (schedule().signal_at(deadline()), schedule().kill_at(deadline()));
        assert_eq!(p.wake_at(), term);
        assert_eq!(p.on(Event::Tick, term.before(Duration::from_millis(1))), []);
        assert_eq!(p.on(Event::Tick, term), [TERM, Action::SayLost(Measure::Signalled)]);
        assert_eq!(p.wake_at(), kill);
        assert_eq!(p.on(Event::Tick, kill), [KILL]);
        assert_eq!(p.on(Event::Ended(Ending::Killed(9)), kill), []);
        assert!(p.waits_for_group());
        assert_eq!(p.on(Event::GroupGone, kill), [Action::Finish]);
        assert_eq!(p.outcome(true), Outcome::Lost);
    }

    #[test]
    fn a_renewal_before_the_first_signal_changes_nothing_for_the_command() {
        let mut p = policy(OnLost::Kill);
        let later = schedule().tenure(at(10_000));
        assert_eq!(p.on(Event::Extended(later), at(10_000)), []);
        assert_eq!(p.on(Event::Tick, schedule().signal_at(deadline())), []);
        assert_eq!(p.wake_at(), schedule().signal_at(later));
    }

    #[test]
    fn a_renewal_after_the_first_signal_does_not_take_it_back() {
        let mut p = policy(OnLost::Kill);
        let term = schedule().signal_at(deadline());
        p.on(Event::Tick, term);
        p.on(Event::Extended(schedule().tenure(term)), term);
        assert_eq!(p.wake_at(), schedule().kill_at(deadline()));
        p.on(Event::Ended(Ending::Exited(0)), term);
        p.on(Event::GroupGone, term);
        assert_eq!(p.outcome(true), Outcome::Lost);
    }

    #[test]
    fn a_lock_that_was_taken_over_leaves_no_grace() {
        assert_eq!(
            policy(OnLost::Kill).on(Event::Lost(Loss::TakenOver), at(1)),
            [KILL, Action::SayLost(Measure::Killed)]
        );
    }

    #[test]
    fn a_lock_that_is_absent_leaves_the_grace_only_if_it_can_be_shielded() {
        let lost = || {
            let mut p = policy(OnLost::Kill);
            assert_eq!(p.on(Event::Lost(Loss::Absent), at(1000)), [TERM, Action::SayLost(Measure::Signalled)]);
            assert_eq!(p.wake_at(), at(1000) + schedule().node_timeout());
            p
        };
        let mut shielded = lost();
        shielded.on(Event::Shielded(schedule().tenure(at(1000))), at(1001));
        assert_eq!(shielded.wake_at(), at(1000) + schedule().grace());
        assert_eq!(lost().on(Event::Unshielded, at(1001)), [KILL]);
        assert_eq!(lost().on(Event::Tick, at(2000)), [KILL]);
    }

    #[test]
    fn woken_past_the_time_to_kill_there_is_no_first_signal() {
        let mut p = policy(OnLost::Kill);
        assert_eq!(p.on(Event::Tick, deadline()), [KILL, Action::SayLost(Measure::Killed)]);
    }

    #[test]
    fn warn_says_so_once_and_at_the_deadline_only() {
        let mut p = policy(OnLost::Warn);
        assert_eq!(p.wake_at(), deadline());
        assert_eq!(p.on(Event::Tick, schedule().kill_at(deadline())), []);
        assert_eq!(p.on(Event::Tick, deadline()), [Action::SayLost(Measure::Ignored)]);
        assert_eq!(p.on(Event::Lost(Loss::TakenOver), deadline()), []);
        assert_eq!(p.on(Event::Ended(Ending::Exited(5)), deadline()), [Action::Finish]);
        assert_eq!(p.outcome(true), Outcome::Lost);
    }

    #[test]
    fn the_commands_code_is_passed_on_and_zero_only_if_the_lock_was_held() {
        for (ending, late, held, outcome) in [
            (Ending::Exited(0), false, true, Outcome::Exited(0)),
            (Ending::Exited(0), false, false, Outcome::Lost),
            (Ending::Exited(0), true, true, Outcome::Lost),
            (Ending::Exited(3), false, false, Outcome::Exited(3)),
            (Ending::Exited(3), true, true, Outcome::Exited(3)),
            (Ending::Killed(15), true, false, Outcome::Killed(15)),
        ] {
            let mut p = policy(OnLost::Kill);
            assert_eq!(p.on(Event::Ended(ending), if late { deadline() } else { at(1) }), [Action::Finish]);
            assert_eq!(p.outcome(held), outcome, "{ending:?} late={late} held={held}");
        }
    }

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0u64..40_000).prop_map(|ms| Event::Extended(schedule().tenure(at(ms)))),
            Just(Event::Lost(Loss::Absent)),
            Just(Event::Lost(Loss::TakenOver)),
            (0u64..40_000).prop_map(|ms| Event::Shielded(schedule().tenure(at(ms)))),
            Just(Event::Unshielded),
            Just(Event::Caught(Signal::SIGHUP)),
            Just(Event::Ended(Ending::Exited(0))),
            Just(Event::Tick),
            Just(Event::GroupGone),
        ]
    }

    proptest! {
        /// The promise, whatever happens in whatever order: a tick at `wake_at` never leaves a command unsignalled past
        /// its time, and once the lock has passed on it has been killed in that same step.
        #[test]
        fn the_command_is_stopped_in_time_after_any_history(
            history in proptest::collection::vec((events(), 0u64..2_000), 0..30),
        ) {
            let mut p = policy(OnLost::Kill);
            let mut now = at(0);
            let mut killed = false;
            for (event, pause) in history {
                now = now + Duration::from_millis(pause);
                let over = p.phase == Phase::Over;
                let actions = p.on(event, now);
                killed |= actions.contains(&KILL);
                prop_assert!(!over || actions.is_empty(), "nothing is done after the end");
                if event == Event::Lost(Loss::TakenOver) && !over {
                    prop_assert!(killed);
                }
                if event == Event::Tick && !over && now >= p.schedule.kill_at(p.deadline) && p.phase == Phase::Running {
                    prop_assert!(false, "still running past the time to kill");
                }
                if let Phase::Stopping { kill_at, signalled } = p.phase {
                    prop_assert!(kill_at <= signalled + p.schedule.grace());
                }
                if matches!(event, Event::Ended(_)) && matches!(p.phase, Phase::Stopping { .. } | Phase::Killed) {
                    prop_assert!(!actions.contains(&Action::Finish), "not released before the group is gone");
                }
            }
        }
    }
}
