//! The lease and the command under it, case by case.

use super::*;

#[test]
fn without_renewal_the_command_is_signalled_and_then_killed_before_the_deadline() {
    let mut p = policy(OnLost::Kill);
    let (term, kill) = (
        schedule().signal_at(deadline()),
        schedule().kill_at(deadline()),
    );
    assert_eq!(p.wake_at(), term);
    assert_eq!(
        p.on(JobEvent::Tick, term.before(Duration::from_millis(1))),
        []
    );
    assert_eq!(
        p.on(JobEvent::Tick, term),
        [TERM, JobAction::SayLost(Reaction::Signalled)]
    );
    assert_eq!(p.wake_at(), kill);
    assert_eq!(p.on(JobEvent::Tick, kill), [KILL]);
    assert_eq!(p.on(ended(ExitStatus::Killed(9)), kill), []);
    assert!(p.awaits_gone());
    assert_eq!(p.on(JobEvent::Gone, kill), [JobAction::Finish]);
    assert_eq!(p.outcome(true), Outcome::Lost);
}

#[test]
fn a_renewal_before_the_first_signal_changes_nothing_for_the_command() {
    let mut p = policy(OnLost::Kill);
    let later = schedule().term().end(at(10_000));
    assert_eq!(
        p.on(JobEvent::Lease(LeaseChange::Extended(later)), at(10_000)),
        []
    );
    assert_eq!(p.on(JobEvent::Tick, schedule().signal_at(deadline())), []);
    assert_eq!(p.wake_at(), schedule().signal_at(later));
}

#[test]
fn a_renewal_after_the_first_signal_does_not_take_it_back() {
    let mut p = policy(OnLost::Kill);
    let term = schedule().signal_at(deadline());
    p.on(JobEvent::Tick, term);
    p.on(
        JobEvent::Lease(LeaseChange::Extended(schedule().term().end(term))),
        term,
    );
    assert_eq!(p.wake_at(), schedule().kill_at(deadline()));
    p.on(ended(ExitStatus::Exited(0)), term);
    p.on(JobEvent::Gone, term);
    assert_eq!(p.outcome(true), Outcome::Lost);
}

#[test]
fn a_lease_that_became_shorter_shortens_the_commands_time() {
    let mut p = policy(OnLost::Kill);
    let sooner = deadline().before(Duration::from_secs(5));
    p.on(JobEvent::Lease(LeaseChange::Extended(sooner)), at(1000));
    assert_eq!(
        (p.wake_at(), p.guard_kills_at()),
        (schedule().signal_at(sooner), schedule().kill_at(sooner))
    );
}

#[test]
fn a_shield_that_ends_before_the_grace_bounds_the_kill() {
    let mut p = policy(OnLost::Kill);
    p.on(JobEvent::Lease(LeaseChange::Lost(Loss::Absent)), at(1000));
    let ends = at(1000) + schedule().grace() / 2;
    p.on(JobEvent::Lease(LeaseChange::Shielded(ends)), at(1001));
    assert_eq!(
        (p.wake_at(), p.guard_kills_at()),
        (schedule().kill_at(ends), schedule().kill_at(ends))
    );
}

#[test]
fn a_lock_that_was_taken_over_leaves_no_grace() {
    assert_eq!(
        policy(OnLost::Kill).on(JobEvent::Lease(LeaseChange::Lost(Loss::TakenOver)), at(1)),
        [KILL, JobAction::SayLost(Reaction::Killed)]
    );
}

#[test]
fn a_lock_that_is_absent_leaves_the_grace_only_if_it_can_be_shielded() {
    let lost = || {
        let mut p = policy(OnLost::Kill);
        assert_eq!(
            p.on(JobEvent::Lease(LeaseChange::Lost(Loss::Absent)), at(1000)),
            [TERM, JobAction::SayLost(Reaction::Signalled)]
        );
        assert_eq!(p.wake_at(), at(1000) + schedule().node_timeout());
        assert_eq!(
            p.guard_kills_at(),
            p.wake_at(),
            "the guard sees to it if rlock stalls now"
        );
        p
    };
    let mut shielded = lost();
    shielded.on(
        JobEvent::Lease(LeaseChange::Shielded(schedule().term().end(at(1000)))),
        at(1001),
    );
    assert_eq!(shielded.wake_at(), at(1000) + schedule().grace());
    assert_eq!(
        lost().on(JobEvent::Lease(LeaseChange::Unshielded), at(1001)),
        [KILL]
    );
    assert_eq!(lost().on(JobEvent::Tick, at(2000)), [KILL]);
}

#[test]
fn a_lock_that_was_broken_leaves_the_grace_and_no_more_than_the_lease() {
    let mut p = policy(OnLost::Kill);
    assert_eq!(
        p.on(JobEvent::Lease(LeaseChange::Lost(Loss::Broken)), at(10_000)),
        [TERM, JobAction::SayLost(Reaction::Signalled)]
    );
    assert_eq!(p.wake_at(), at(15_000));
    assert_eq!(p.on(JobEvent::Tick, at(15_000)), [KILL]);
    let (mut p, late) = (
        policy(OnLost::Kill),
        schedule()
            .kill_at(deadline())
            .before(Duration::from_millis(1)),
    );
    p.on(JobEvent::Lease(LeaseChange::Lost(Loss::Broken)), late);
    assert_eq!(p.wake_at(), schedule().kill_at(deadline()));
}

#[test]
fn woken_past_the_time_to_kill_there_is_no_first_signal() {
    let mut p = policy(OnLost::Kill);
    assert_eq!(
        p.on(JobEvent::Tick, deadline()),
        [KILL, JobAction::SayLost(Reaction::Killed)]
    );
}

#[test]
fn what_the_guard_killed_while_we_were_stopped_is_a_loss_though_its_end_is_heard_of_first() {
    let mut policy = policy(OnLost::Kill);
    let actions = policy.on(ended(ExitStatus::Killed(9)), deadline());
    assert_eq!(
        actions,
        [JobAction::SayLost(Reaction::Killed), JobAction::Finish]
    );
    assert_eq!(policy.outcome(false), Outcome::Lost);
}

/// rlock read the renewal, and was stopped before it told the guard.
#[test]
fn a_renewal_that_is_heard_when_the_guard_has_fired_is_too_late() {
    let mut policy = policy(OnLost::Kill);
    let late = policy.guard_kills_at();
    let renewed = JobEvent::Lease(LeaseChange::Extended(late + TTL));
    assert_eq!(
        policy.on(renewed, late),
        [JobAction::Kill, JobAction::SayLost(Reaction::Killed)]
    );
    policy.on(ended(ExitStatus::Killed(9)), late);
    assert_eq!(policy.on(JobEvent::Gone, late), [JobAction::Finish]);
    assert_eq!(policy.outcome(false), Outcome::Lost);
}

#[test]
fn warn_says_so_once_and_at_the_deadline_only() {
    let mut p = policy(OnLost::Warn);
    assert_eq!(p.wake_at(), deadline());
    assert_eq!(p.on(JobEvent::Tick, schedule().kill_at(deadline())), []);
    assert_eq!(
        p.on(JobEvent::Tick, deadline()),
        [JobAction::SayLost(Reaction::Ignored)]
    );
    assert_eq!(
        p.on(
            JobEvent::Lease(LeaseChange::Lost(Loss::TakenOver)),
            deadline()
        ),
        []
    );
    assert_eq!(
        p.on(ended(ExitStatus::Exited(5)), deadline()),
        [JobAction::Finish]
    );
    assert_eq!(p.outcome(true), Outcome::Lost);
}

#[test]
fn a_lease_that_ends_within_the_grace_is_not_waited_out() {
    let options = PolicyOptions {
        max_run: Some(Duration::from_secs(24)),
        ..options(OnLost::Kill)
    };
    let options = PolicyOptions {
        schedule: schedule(),
        ..options
    };
    let mut p = Policy::new(options, deadline(), at(0));
    p.on(JobEvent::Tick, at(24_000));
    assert!(p.wake_at() <= schedule().kill_at(deadline()));
}

#[test]
fn a_grace_longer_than_the_lease_counts_as_given_while_the_lease_is_renewed() {
    let max_run = Some(Duration::from_secs(5));
    let mut p = Policy::new(
        patient(PolicyOptions {
            max_run,
            ..options(OnLost::Kill)
        }),
        deadline(),
        at(0),
    );
    assert_eq!(
        p.on(JobEvent::Tick, at(5000)),
        [TERM, JobAction::SayTimeIsUp]
    );
    for renewed in (10_000..=120_000).step_by(10_000) {
        assert_eq!(
            p.on(
                JobEvent::Lease(LeaseChange::Extended(schedule().term().end(at(renewed)))),
                at(renewed)
            ),
            []
        );
        assert_eq!(p.on(JobEvent::Tick, at(renewed)), []);
    }
    assert_eq!(p.wake_at(), at(125_000));
    assert_eq!(p.on(JobEvent::Tick, at(125_000)), [KILL]);

    // Without renewals the lease ends it.
    let mut p = Policy::new(
        patient(PolicyOptions {
            max_run,
            ..options(OnLost::Kill)
        }),
        deadline(),
        at(0),
    );
    p.on(JobEvent::Tick, at(5000));
    let last = schedule().kill_at(deadline());
    assert_eq!((p.wake_at(), p.guard_kills_at()), (last, last));
    assert_eq!(
        p.on(JobEvent::Tick, last),
        [KILL, JobAction::SayLost(Reaction::Killed)]
    );

    let mut p = Policy::new(
        patient(PolicyOptions {
            contain: true,
            ..options(OnLost::Kill)
        }),
        deadline(),
        at(0),
    );
    assert_eq!(p.on(ended(ExitStatus::Exited(0)), at(1000)), [TERM]);
    for renewed in (10_000..=110_000).step_by(10_000) {
        let end = schedule().term().end(at(renewed));
        p.on(JobEvent::Lease(LeaseChange::Extended(end)), at(renewed));
    }
    assert_eq!(p.wake_at(), at(121_000));
}

#[test]
fn a_loss_leaves_the_grace_that_fits_though_a_longer_one_had_begun() {
    let options = patient(PolicyOptions {
        max_run: Some(Duration::from_secs(5)),
        ..options(OnLost::Kill)
    });
    let grace = options.schedule.grace();
    assert!(grace < Duration::from_secs(20));
    let stopping = || {
        let mut p = Policy::new(options, deadline(), at(0));
        p.on(JobEvent::Tick, at(5000));
        p.on(
            JobEvent::Lease(LeaseChange::Extended(schedule().term().end(at(10_000)))),
            at(10_000),
        );
        p
    };
    let mut broken = stopping();
    assert_eq!(
        broken.on(JobEvent::Lease(LeaseChange::Lost(Loss::Broken)), at(10_000)),
        [JobAction::SayLost(Reaction::Signalled)]
    );
    assert_eq!(broken.wake_at(), at(10_000) + grace);
    let mut absent = stopping();
    absent.on(JobEvent::Lease(LeaseChange::Lost(Loss::Absent)), at(10_000));
    assert_eq!(absent.wake_at(), at(11_000));
    absent.on(
        JobEvent::Lease(LeaseChange::Shielded(schedule().term().end(at(10_000)))),
        at(10_001),
    );
    assert_eq!(absent.wake_at(), at(10_000) + grace);
    let mut running = Policy::new(
        PolicyOptions {
            max_run: None,
            ..options
        },
        deadline(),
        at(0),
    );
    assert_eq!(running.wake_at(), options.schedule.signal_at(deadline()));
    running.on(JobEvent::Lease(LeaseChange::Lost(Loss::Broken)), at(1000));
    assert_eq!(running.wake_at(), at(1000) + grace);
}
