//! Nested runs, on both sides.

use super::*;

fn terms(signal_at: u64, kill_at: u64) -> Terms {
    Terms {
        signal_at: at(signal_at),
        kill_at: at(kill_at),
        ends: at(kill_at),
    }
}

/// An outer rlock whose command has ended, and left a nested run.
fn lingering(code: u8) -> Policy {
    let mut p = Policy::new(
        options(OnLost::Kill),
        options(OnLost::Kill).schedule.term().end(at(0)),
        at(0),
    );
    assert_eq!(p.on(JobEvent::Nested(true), at(1)), []);
    let ended = JobEvent::Ended(ExitStatus::Exited(code), Foreground::NoTerminal);
    assert_eq!(p.on(ended, at(2)), [JobAction::SayLingering]);
    p
}

fn lease() -> Terms {
    options(OnLost::Kill)
        .schedule
        .terms(options(OnLost::Kill).schedule.term().end(at(0)))
}

#[test]
fn the_lock_is_kept_for_nested_runs_after_the_command_has_ended() {
    let mut p = lingering(3);
    assert!(
        p.welcomes_nested(),
        "a run nested in a nested one must not wait for it"
    );
    let later = options(OnLost::Kill).schedule.term().end(at(10_000));
    assert_eq!(
        p.on(JobEvent::Lease(LeaseChange::Extended(later)), at(10_000)),
        []
    );
    assert_eq!(
        p.terms_of_nested().map(|t| t.kill_at),
        Some(options(OnLost::Kill).schedule.kill_at(later))
    );
    assert_eq!(p.on(JobEvent::Nested(true), at(10_001)), []);
    assert_eq!(
        p.on(JobEvent::Nested(false), at(10_002)),
        [JobAction::Finish]
    );
    assert_eq!(p.outcome(true), Outcome::Exited(3));
}

#[test]
fn a_lease_that_is_lost_for_nested_runs_only_is_told_to_them_and_not_to_the_group() {
    let mut p = lingering(0);
    assert_eq!(
        p.on(JobEvent::Tick, lease().signal_at),
        [JobAction::SayLost(Reaction::Signalled)]
    );
    let told = p.terms_of_nested().unwrap();
    assert_eq!(
        (told.signal_at, told.kill_at),
        (lease().signal_at, lease().kill_at)
    );
    assert!(!p.welcomes_nested());
    assert_eq!(p.on(JobEvent::Tick, lease().kill_at), []);
    assert_eq!(p.terms_of_nested(), None, "killed at once");
    assert_eq!(
        p.on(JobEvent::Nested(false), lease().ends),
        [JobAction::Finish]
    );
    assert_eq!(p.outcome(true), Outcome::Lost);
}

#[test]
fn a_signal_ends_nested_runs_when_the_command_has_ended() {
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
    ] {
        let mut p = lingering(7);
        assert_eq!(
            p.on(
                JobEvent::CaughtSignal(CaughtSignal {
                    signal,
                    from_terminal: false
                }),
                at(100)
            ),
            []
        );
        let told = p.terms_of_nested().unwrap();
        assert_eq!(
            (told.signal_at, told.kill_at),
            (at(100), at(100) + options(OnLost::Kill).schedule.grace())
        );
        assert_eq!(p.on(JobEvent::Tick, told.kill_at), []);
        assert_eq!(p.terms_of_nested(), None);
        assert_eq!(
            p.on(JobEvent::Nested(false), told.kill_at),
            [JobAction::Finish]
        );
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
        let mut p = Policy::new(
            options(OnLost::Kill),
            options(OnLost::Kill).schedule.term().end(at(0)),
            at(0),
        );
        p.on(JobEvent::Nested(true), at(1));
        p.on(
            JobEvent::CaughtSignal(CaughtSignal {
                signal,
                from_terminal: false,
            }),
            at(2),
        );
        assert_eq!(
            p.on(JobEvent::Ended(ending, Foreground::NoTerminal), at(100)),
            [JobAction::SayLingering]
        );
        let told = p.terms_of_nested().map(|told| told.signal_at);
        assert_eq!(told == Some(at(100)), ends, "{ending:?}");
    }
}

#[test]
fn a_terminal_that_interrupts_nested_runs_interrupts_rlock() {
    let mut p = lingering(0);
    p.on(
        JobEvent::CaughtSignal(CaughtSignal {
            signal: Signal::SIGINT,
            from_terminal: true,
        }),
        at(100),
    );
    assert_eq!(p.on(JobEvent::Nested(false), at(101)), [JobAction::Finish]);
    assert_eq!(p.outcome(true), Outcome::Interrupted(2));
}

#[test]
fn a_command_that_was_killed_is_not_over_before_its_nested_runs_are() {
    let mut p = Policy::new(
        options(OnLost::Kill),
        options(OnLost::Kill).schedule.term().end(at(0)),
        at(0),
    );
    p.on(JobEvent::Nested(true), at(1));
    p.on(JobEvent::Lease(LeaseChange::Lost(Loss::TakenOver)), at(2));
    assert_eq!(p.terms_of_nested(), None);
    p.on(
        JobEvent::Ended(ExitStatus::Killed(9), Foreground::NoTerminal),
        at(3),
    );
    assert_eq!(p.on(JobEvent::Gone, at(4)), []);
    assert_eq!(p.on(JobEvent::Nested(false), at(5)), []);
    assert_eq!(p.on(JobEvent::Gone, at(6)), [JobAction::Finish]);
}

#[test]
fn a_nested_command_is_signalled_and_killed_when_the_outer_rlock_says() {
    let ignored = PolicyOptions {
        on_lost: OnLost::Warn,
        ..options(OnLost::Kill)
    };
    let mut p = Policy::nested(ignored, terms(1000, 2000), at(0));
    assert_eq!((p.wake_at(), p.guard_kills_at()), (at(1000), at(2000)));
    p.on(JobEvent::TermsReceived(terms(11_000, 12_000)), at(900));
    assert_eq!(p.on(JobEvent::Tick, at(1000)), []);
    assert_eq!((p.wake_at(), p.guard_kills_at()), (at(11_000), at(12_000)));
    p.on(JobEvent::TermsReceived(terms(950, 1500)), at(1001));
    assert_eq!(
        p.on(JobEvent::Tick, at(1001)),
        [TERM, JobAction::SayLost(Reaction::Signalled)]
    );
    assert_eq!(p.wake_at(), at(1500));
    p.on(JobEvent::TermsReceived(terms(950, 3000)), at(1400));
    assert_eq!(
        p.on(JobEvent::Tick, at(1500)),
        [],
        "the outer rlock could keep the place for longer"
    );
    assert_eq!(p.on(JobEvent::Tick, at(3000)), [JobAction::Kill]);
    assert_eq!(
        p.on(
            JobEvent::Ended(ExitStatus::Killed(9), Foreground::NoTerminal),
            at(3001)
        ),
        []
    );
    assert_eq!(p.on(JobEvent::Gone, at(3002)), [JobAction::Finish]);
    assert_eq!(p.outcome(true), Outcome::Lost);
}

#[test]
fn under_an_outer_rlock_that_only_warns_a_nested_command_goes_on() {
    let outer = Policy::new(
        PolicyOptions {
            on_lost: OnLost::Warn,
            ..options(OnLost::Kill)
        },
        lease().ends,
        at(0),
    );
    let p = Policy::nested(
        options(OnLost::Kill),
        outer.terms_of_nested().unwrap(),
        at(0),
    );
    assert_eq!(
        (p.wake_at(), p.guard_kills_at()),
        (Instant::NEVER, Instant::NEVER)
    );
}

#[test]
fn what_an_outer_rlock_says_does_not_lengthen_the_grace_of_a_nested_max_run() {
    let options = PolicyOptions {
        max_run: Some(Duration::from_secs(1)),
        ..options(OnLost::Kill)
    };
    let mut p = Policy::nested(options, terms(20_000, 25_000), at(0));
    assert_eq!(
        p.on(JobEvent::Tick, at(1000)),
        [TERM, JobAction::SayTimeIsUp]
    );
    p.on(JobEvent::TermsReceived(terms(30_000, 35_000)), at(1001));
    assert_eq!(p.wake_at(), at(1000) + options.schedule.grace());
}
