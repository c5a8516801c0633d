//! The command's end and the outcome, case by case.

use super::*;

#[test]
fn the_commands_code_is_passed_on_and_zero_only_if_the_lock_was_held() {
    for (ending, late, held, outcome) in [
        (ExitStatus::Exited(0), false, true, Outcome::Exited(0)),
        (ExitStatus::Exited(0), false, false, Outcome::Lost),
        (ExitStatus::Exited(0), true, true, Outcome::Lost),
        (ExitStatus::Exited(3), false, false, Outcome::Exited(3)),
        (ExitStatus::Exited(3), true, true, Outcome::Exited(3)),
        (ExitStatus::Killed(15), true, false, Outcome::Killed(15)),
    ] {
        let mut p = policy(OnLost::Kill);
        assert_eq!(
            p.on(ended(ending), if late { deadline() } else { at(1) }),
            [JobAction::Finish]
        );
        assert_eq!(
            p.outcome(held),
            outcome,
            "{ending:?} late={late} held={held}"
        );
    }
}

#[test]
fn rlock_dies_of_what_the_terminal_sent_only_if_the_command_did() {
    for (from_terminal, died_of, outcome) in [
        (true, 2, Outcome::Interrupted(2)),
        (true, 15, Outcome::Killed(15)),
        (false, 2, Outcome::Killed(2)),
    ] {
        let mut p = policy(OnLost::Kill);
        p.on(caught(Signal::SIGINT, from_terminal), at(1));
        p.on(ended(ExitStatus::Killed(died_of)), at(2));
        assert_eq!(p.outcome(true), outcome);
    }
}

#[test]
fn time_that_is_up_is_a_signal_a_grace_and_124() {
    let options = PolicyOptions {
        max_run: Some(Duration::from_secs(5)),
        ..options(OnLost::Kill)
    };
    let mut p = Policy::new(options, deadline(), at(0));
    assert_eq!(p.wake_at(), at(5000));
    assert_eq!(
        p.on(JobEvent::Tick, at(5000)),
        [TERM, JobAction::SayTimeIsUp]
    );
    assert_eq!(p.wake_at(), at(10_000));
    assert_eq!(p.on(JobEvent::Tick, at(10_000)), [KILL]);
    p.on(ended(ExitStatus::Killed(9)), at(10_001));
    assert_eq!(p.on(JobEvent::Gone, at(10_002)), [JobAction::Finish]);
    assert_eq!(p.outcome(true), Outcome::TimeIsUp);
}

#[test]
fn a_contained_command_leaves_nothing_and_keeps_its_code() {
    let mut p = Policy::new(
        PolicyOptions {
            contain: true,
            ..options(OnLost::Kill)
        },
        deadline(),
        at(0),
    );
    assert_eq!(p.on(ended(ExitStatus::Exited(3)), at(1000)), [TERM]);
    assert!(p.awaits_gone());
    assert_eq!(p.on(JobEvent::Tick, at(1000) + schedule().grace()), [KILL]);
    assert_eq!(p.on(JobEvent::Gone, at(7000)), [JobAction::Finish]);
    assert_eq!(p.outcome(true), Outcome::Exited(3));
}

#[test]
fn only_a_command_that_exited_with_0_under_its_lock_has_succeeded() {
    use crate::lock::remains::Ending;
    for (status, late, ending) in [
        (ExitStatus::Exited(0), false, Ending::Succeeded),
        (ExitStatus::Exited(3), false, Ending::Failed),
        (ExitStatus::Killed(9), false, Ending::Failed),
        (ExitStatus::Exited(0), true, Ending::LockLost),
    ] {
        let mut p = policy(OnLost::Kill);
        p.on(ended(status), if late { deadline() } else { at(1) });
        assert_eq!(p.ending(), ending, "{status:?} late={late}");
        for (loss, ending) in [
            (Loss::Absent, Ending::LockLost),
            (Loss::Broken, Ending::LockLost),
            (Loss::TakenOver, Ending::TakenOver),
        ] {
            let mut p = p.clone();
            p.on(JobEvent::Lease(LeaseChange::Lost(loss)), at(2));
            assert_eq!(p.ending(), ending, "{status:?} {loss:?}");
        }
    }
    let options = PolicyOptions {
        max_run: Some(Duration::from_secs(5)),
        ..options(OnLost::Kill)
    };
    let mut p = Policy::new(options, deadline(), at(0));
    p.on(JobEvent::Tick, at(5000));
    p.on(ended(ExitStatus::Exited(0)), at(5001));
    p.on(JobEvent::Gone, at(5002));
    assert_eq!(
        (p.outcome(true), p.ending()),
        (Outcome::TimeIsUp, Ending::Failed),
        "it was stopped"
    );
}
