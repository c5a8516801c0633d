//! The promise, checked after every event: in every short history, then in random long ones.

use proptest::prelude::*;

use super::*;

/// Every kind of event, with the values that could matter.
fn every_event() -> Vec<JobEvent> {
    let mut all = vec![
        JobEvent::Lease(LeaseChange::Extended(schedule().term().end(at(10_000)))),
        JobEvent::Lease(LeaseChange::Lost(Loss::Absent)),
        JobEvent::Lease(LeaseChange::Lost(Loss::Broken)),
        JobEvent::Lease(LeaseChange::Lost(Loss::TakenOver)),
        JobEvent::Lease(LeaseChange::Shielded(schedule().term().end(at(10_000)))),
        JobEvent::Lease(LeaseChange::Unshielded),
        caught(Signal::SIGINT, true),
        caught(Signal::SIGTERM, false),
        JobEvent::TermsReceived(schedule().terms(schedule().term().end(at(10_000)))),
        JobEvent::Tick,
        JobEvent::Gone,
        JobEvent::Nested(true),
        JobEvent::Nested(false),
        JobEvent::Unguarded,
    ];
    for foreground in [
        Foreground::Rlock,
        Foreground::Command,
        Foreground::OtherJob,
        Foreground::NoTerminal,
    ] {
        all.push(JobEvent::Stopped(Signal::SIGTSTP, foreground));
        all.push(JobEvent::Stopped(Signal::SIGTTIN, foreground));
        all.push(JobEvent::Resumed(foreground, Continued::BySigcont));
        all.push(JobEvent::Resumed(foreground, Continued::NeverStopped));
        all.push(JobEvent::Ended(ExitStatus::Exited(0), foreground));
        all.push(JobEvent::Ended(ExitStatus::Killed(2), foreground));
    }
    all
}

/// Applies `event` and checks what must hold after any event in any state.
fn step(p: &mut Policy, event: JobEvent, now: Instant) {
    let before = p.clone();
    let actions = p.on(event, now);
    let context = || format!("{event:?} at {now:?} in {before:?} gave {actions:?} and {p:?}");
    if before.phase == Phase::Over {
        assert!(
            actions.is_empty(),
            "nothing is done after the end: {}",
            context()
        );
        return;
    }
    let kill_wanted = p.options.on_lost == OnLost::Kill;
    if kill_wanted && event == JobEvent::Lease(LeaseChange::Lost(Loss::TakenOver)) {
        assert_eq!(p.phase, Phase::Killed, "killed at once: {}", context());
    }
    if event == JobEvent::Unguarded {
        assert!(
            matches!(p.phase, Phase::Killed),
            "nothing runs unguarded: {}",
            context()
        );
    }
    if kill_wanted && event == JobEvent::Tick && now >= p.kill_deadline() {
        assert!(
            !matches!(p.phase, Phase::Running | Phase::Stopping { .. }),
            "dead by its time: {}",
            context()
        );
    }
    if kill_wanted && now >= before.kill_deadline() {
        let goes_on = |action: &JobAction| {
            matches!(action, JobAction::Continue | JobAction::SendAndContinue(_))
        };
        assert!(
            !actions.iter().any(goes_on) || before.awaits_gone(),
            "not continued past its time: {}",
            context()
        );
    }
    let stopping = matches!(before.phase, Phase::Stopping { .. } | Phase::Killed);
    if actions.contains(&JobAction::Finish) && stopping {
        let is_left_alone = before.lingers() && event == JobEvent::Nested(false);
        assert!(
            is_left_alone || event == JobEvent::Gone && before.exit_status.is_some(),
            "released while it lives: {}",
            context()
        );
    }
    if actions.contains(&JobAction::Finish) {
        assert_ne!(
            p.nested,
            Nested::Some,
            "released while a nested run relies on it: {}",
            context()
        );
    }
    if p.lingers() {
        let sends = |action: &JobAction| {
            matches!(
                action,
                JobAction::Send(_)
                    | JobAction::SendAndContinue(_)
                    | JobAction::Continue
                    | JobAction::Kill
            )
        };
        assert!(
            !actions.iter().any(sends),
            "what the command left is free: {}",
            context()
        );
        assert!(!p.awaits_gone(), "and not waited for: {}", context());
    }
    let told = p.terms_of_nested();
    assert!(
        !p.welcomes_nested() || told.is_some(),
        "a run that is welcomed has terms: {}",
        context()
    );
    assert!(
        told.is_none_or(|terms| terms.kill_at <= p.guard_kills_at()),
        "nested commands die no later than our own: {}",
        context()
    );
    if matches!(before.phase, Phase::Killed) {
        assert!(
            matches!(p.phase, Phase::Killed | Phase::Over),
            "a kill is not taken back: {}",
            context()
        );
    }
    if matches!(p.phase, Phase::Over) {
        assert_ne!(p.outcome(true), Outcome::Bug, "{}", context());
    }
    assert_eq!(
        actions
            .iter()
            .filter(|a| matches!(a, JobAction::SayLost(_)))
            .count()
            .max(1),
        1,
        "{}",
        context()
    );
}

#[test]
fn the_promise_holds_after_every_short_history() {
    let times = [
        at(1),
        schedule().signal_at(deadline()),
        schedule().kill_at(deadline()),
        deadline(),
        at(60_000),
    ];
    for (on_lost, contain, max_run) in [
        (OnLost::Kill, false, None),
        (OnLost::Kill, true, Some(Duration::from_secs(9))),
        (OnLost::Warn, true, None),
    ] {
        let options = PolicyOptions {
            max_run,
            contain,
            ..options(on_lost)
        };
        explore(&Policy::new(options, deadline(), at(0)), &times, 3);
    }
}

fn explore(p: &Policy, times: &[Instant], depth: u32) {
    for (index, now) in times.iter().enumerate().filter(|_| depth > 0) {
        for event in every_event() {
            let mut next = p.clone();
            step(&mut next, event, *now);
            explore(&next, &times[index..], depth - 1);
        }
    }
}

proptest! {
    #[test]
    fn the_promise_holds_after_any_long_history(
        history in proptest::collection::vec((proptest::sample::select(every_event()), 0u64..2_000), 0..40),
        warn: bool, contain: bool, is_patient: bool, max_run in proptest::option::of(1u64..30),
    ) {
        let on_lost = if warn { OnLost::Warn } else { OnLost::Kill };
        let options = PolicyOptions { max_run: max_run.map(Duration::from_secs), contain, ..options(on_lost) };
        let options = if is_patient { patient(options) } else { options };
        let mut p = Policy::new(options, deadline(), at(0));
        let mut now = at(0);
        for (event, pause) in history {
            now = now + Duration::from_millis(pause);
            step(&mut p, event, now);
        }
    }
}
