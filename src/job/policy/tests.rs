//! The policy, case by case, then explored: what must hold after any event in any state.

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(30);

fn schedule() -> Schedule {
    Schedule::new(crate::lock::schedule::ScheduleOptions {
        ttl: TTL,
        drift: 0.01,
        node_timeout: None,
        kill_after: None,
    })
    .unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// D of a lease asked for at 0.
fn deadline() -> Instant {
    schedule().tenure(at(0))
}

fn wishes(on_lost: OnLost) -> PolicyOptions {
    PolicyOptions { schedule: schedule(), on_lost, first_signal: Signal::SIGTERM, max_run: None, contain: false }
}

fn policy(on_lost: OnLost) -> Policy {
    Policy::new(wishes(on_lost), deadline(), at(0))
}

fn ended(ending: ExitStatus) -> Event {
    Event::Ended(ending, Foreground::Nobodys)
}

fn caught(signal: Signal, from_terminal: bool) -> Event {
    Event::CaughtSignal(CaughtSignal { signal, from_terminal })
}

const KILL: Action = Action::Kill;
const TERM: Action = Action::SendAndContinue(Signal::SIGTERM);

#[test]
fn without_renewal_the_command_is_signalled_and_then_killed_before_the_deadline() {
    let mut p = policy(OnLost::Kill);
    let (term, kill) = (schedule().signal_at(deadline()), schedule().kill_at(deadline()));
    assert_eq!(p.wake_at(), term);
    assert_eq!(p.on(Event::Tick, term.before(Duration::from_millis(1))), []);
    assert_eq!(p.on(Event::Tick, term), [TERM, Action::SayLost(Reaction::Signalled)]);
    assert_eq!(p.wake_at(), kill);
    assert_eq!(p.on(Event::Tick, kill), [KILL]);
    assert_eq!(p.on(ended(ExitStatus::Killed(9)), kill), []);
    assert!(p.waits_for_the_end());
    assert_eq!(p.on(Event::Gone, kill), [Action::Finish]);
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
    p.on(ended(ExitStatus::Exited(0)), term);
    p.on(Event::Gone, term);
    assert_eq!(p.outcome(true), Outcome::Lost);
}

#[test]
fn a_lock_that_was_taken_over_leaves_no_grace() {
    assert_eq!(policy(OnLost::Kill).on(Event::Lost(Loss::TakenOver), at(1)), [KILL, Action::SayLost(Reaction::Killed)]);
}

#[test]
fn a_lock_that_is_absent_leaves_the_grace_only_if_it_can_be_shielded() {
    let lost = || {
        let mut p = policy(OnLost::Kill);
        assert_eq!(p.on(Event::Lost(Loss::Absent), at(1000)), [TERM, Action::SayLost(Reaction::Signalled)]);
        assert_eq!(p.wake_at(), at(1000) + schedule().node_timeout());
        assert_eq!(p.guard_kills_at(), p.wake_at(), "the guard sees to it if rlock stalls now");
        p
    };
    let mut shielded = lost();
    shielded.on(Event::Shielded(schedule().tenure(at(1000))), at(1001));
    assert_eq!(shielded.wake_at(), at(1000) + schedule().grace());
    assert_eq!(lost().on(Event::Unshielded, at(1001)), [KILL]);
    assert_eq!(lost().on(Event::Tick, at(2000)), [KILL]);
}

#[test]
fn a_lock_that_was_broken_leaves_the_grace_and_no_more_than_the_lease() {
    let mut p = policy(OnLost::Kill);
    assert_eq!(p.on(Event::Lost(Loss::Broken), at(10_000)), [TERM, Action::SayLost(Reaction::Signalled)]);
    assert_eq!(p.wake_at(), at(15_000));
    assert_eq!(p.on(Event::Tick, at(15_000)), [KILL]);
    let (mut p, late) = (policy(OnLost::Kill), schedule().kill_at(deadline()).before(Duration::from_millis(1)));
    p.on(Event::Lost(Loss::Broken), late);
    assert_eq!(p.wake_at(), schedule().kill_at(deadline()));
}

#[test]
fn woken_past_the_time_to_kill_there_is_no_first_signal() {
    let mut p = policy(OnLost::Kill);
    assert_eq!(p.on(Event::Tick, deadline()), [KILL, Action::SayLost(Reaction::Killed)]);
}

#[test]
fn what_the_guard_killed_while_we_were_stopped_is_a_loss_though_its_end_is_heard_of_first() {
    let mut policy = policy(OnLost::Kill);
    let actions = policy.on(ended(ExitStatus::Killed(9)), deadline());
    assert_eq!(actions, [Action::SayLost(Reaction::Killed), Action::Finish]);
    assert_eq!(policy.outcome(false), Outcome::Lost);
}

#[test]
fn warn_says_so_once_and_at_the_deadline_only() {
    let mut p = policy(OnLost::Warn);
    assert_eq!(p.wake_at(), deadline());
    assert_eq!(p.on(Event::Tick, schedule().kill_at(deadline())), []);
    assert_eq!(p.on(Event::Tick, deadline()), [Action::SayLost(Reaction::Ignored)]);
    assert_eq!(p.on(Event::Lost(Loss::TakenOver), deadline()), []);
    assert_eq!(p.on(ended(ExitStatus::Exited(5)), deadline()), [Action::Finish]);
    assert_eq!(p.outcome(true), Outcome::Lost);
}

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
        assert_eq!(p.on(ended(ending), if late { deadline() } else { at(1) }), [Action::Finish]);
        assert_eq!(p.outcome(held), outcome, "{ending:?} late={late} held={held}");
    }
}

const ALL: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

#[test]
fn every_signal_is_passed_on_and_those_that_end_a_process_reach_a_stopped_one_too() {
    for signal in ALL {
        let actions = policy(OnLost::Kill).on(caught(signal, false), at(1));
        match signal {
            Signal::SIGCONT => assert_eq!(actions, []),
            Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM => {
                assert_eq!(actions, [Action::SendAndContinue(signal)]);
            }
            _ => assert_eq!(actions, [Action::Send(signal)]),
        }
    }
}

#[test]
fn rlock_dies_of_what_the_terminal_sent_only_if_the_command_did() {
    for (from_terminal, died_of, outcome) in
        [(true, 2, Outcome::Interrupted(2)), (true, 15, Outcome::Killed(15)), (false, 2, Outcome::Killed(2))]
    {
        let mut p = policy(OnLost::Kill);
        p.on(caught(Signal::SIGINT, from_terminal), at(1));
        p.on(ended(ExitStatus::Killed(died_of)), at(2));
        assert_eq!(p.outcome(true), outcome);
    }
}

#[test]
fn a_command_that_was_interrupted_with_the_terminal_in_its_hands_takes_the_job_with_it() {
    let mut p = policy(OnLost::Kill);
    let actions = p.on(Event::Ended(ExitStatus::Killed(2), Foreground::Commands), at(1));
    assert_eq!(actions, [Action::InterruptJob(Signal::SIGINT), Action::Finish]);
    assert_eq!(p.outcome(true), Outcome::Interrupted(2));
}

#[test]
fn what_a_stop_means_depends_on_whose_the_terminal_is() {
    use Foreground::{Anothers, Commands, Nobodys, Ours};
    let give = &[Action::GiveTerminal, Action::Continue][..];
    for (signal, foreground, actions) in [
        (Signal::SIGTTIN, Ours, give),
        (Signal::SIGTTOU, Ours, give),
        (Signal::SIGTTIN, Commands, &[Action::Continue]),
        (Signal::SIGTTIN, Anothers, &[Action::SuspendJob(Signal::SIGTTIN)]),
        (Signal::SIGTTOU, Nobodys, &[]),
        (Signal::SIGTSTP, Ours, &[Action::Suspend(Signal::SIGTSTP)]),
        (Signal::SIGTSTP, Commands, &[Action::SuspendJob(Signal::SIGTSTP)]),
        (Signal::SIGTSTP, Anothers, &[Action::Suspend(Signal::SIGTSTP)]),
        (Signal::SIGTSTP, Nobodys, &[]),
        (Signal::SIGSTOP, Ours, &[]),
        (Signal::SIGSTOP, Commands, &[Action::SuspendJob(Signal::SIGSTOP)]),
    ] {
        let mut p = policy(OnLost::Kill);
        assert_eq!(p.on(Event::Stopped(signal, foreground), at(1)), actions, "{signal} {foreground:?}");
    }
}

#[test]
fn the_lease_is_looked_at_before_a_suspended_command_goes_on() {
    use Foreground::{Anothers, Commands, Ours};
    let give = &[Action::GiveTerminal, Action::Continue][..];
    let hang_up = &[Action::SendAndContinue(Signal::SIGHUP)][..];
    for (stop, foreground, then, continued, in_time) in [
        (Signal::SIGTSTP, Commands, Ours, Continued::BySomebody, give),
        (Signal::SIGTSTP, Commands, Ours, Continued::NeverStopped, give),
        (Signal::SIGTSTP, Commands, Anothers, Continued::BySomebody, &[Action::Continue]),
        (Signal::SIGTSTP, Ours, Ours, Continued::BySomebody, &[Action::Continue]),
        (Signal::SIGTSTP, Ours, Ours, Continued::NeverStopped, &[Action::Continue]),
        (Signal::SIGTTIN, Anothers, Ours, Continued::BySomebody, give),
        (Signal::SIGTTIN, Anothers, Anothers, Continued::BySomebody, &[Action::Continue]),
        (Signal::SIGTTIN, Anothers, Anothers, Continued::NeverStopped, hang_up),
    ] {
        let suspended = || {
            let mut p = policy(OnLost::Kill);
            p.on(Event::Stopped(stop, foreground), at(1));
            p
        };
        assert_eq!(suspended().on(Event::Resumed(then, continued), at(2)), in_time);
        let late = suspended().on(Event::Resumed(then, continued), deadline());
        assert_eq!(late, [KILL, Action::SayLost(Reaction::Killed)]);
    }
}

#[test]
fn time_that_is_up_is_a_signal_a_grace_and_124() {
    let wishes = PolicyOptions { max_run: Some(Duration::from_secs(5)), ..wishes(OnLost::Kill) };
    let mut p = Policy::new(wishes, deadline(), at(0));
    assert_eq!(p.wake_at(), at(5000));
    assert_eq!(p.on(Event::Tick, at(5000)), [TERM, Action::SayTimeIsUp]);
    assert_eq!(p.wake_at(), at(10_000));
    assert_eq!(p.on(Event::Tick, at(10_000)), [KILL]);
    p.on(ended(ExitStatus::Killed(9)), at(10_001));
    assert_eq!(p.on(Event::Gone, at(10_002)), [Action::Finish]);
    assert_eq!(p.outcome(true), Outcome::TimeIsUp);
}

#[test]
fn a_lease_that_ends_within_the_grace_is_not_waited_out() {
    let wishes = PolicyOptions { max_run: Some(Duration::from_secs(24)), ..wishes(OnLost::Kill) };
    let wishes = PolicyOptions { schedule: schedule(), ..wishes };
    let mut p = Policy::new(wishes, deadline(), at(0));
    p.on(Event::Tick, at(24_000));
    assert!(p.wake_at() <= schedule().kill_at(deadline()));
}

/// `--ttl 30s --kill-after 2m`.
fn patient(wishes: PolicyOptions) -> PolicyOptions {
    let kill_after = Some(Duration::from_secs(120));
    let schedule = crate::lock::schedule::ScheduleOptions { ttl: TTL, drift: 0.01, node_timeout: None, kill_after };
    PolicyOptions { schedule: Schedule::new(schedule).unwrap(), ..wishes }
}

#[test]
fn a_grace_longer_than_the_lease_counts_as_given_while_the_lease_is_renewed() {
    let max_run = Some(Duration::from_secs(5));
    let mut p = Policy::new(patient(PolicyOptions { max_run, ..wishes(OnLost::Kill) }), deadline(), at(0));
    assert_eq!(p.on(Event::Tick, at(5000)), [TERM, Action::SayTimeIsUp]);
    for renewed in (10_000..=120_000).step_by(10_000) {
        assert_eq!(p.on(Event::Extended(schedule().tenure(at(renewed))), at(renewed)), []);
        assert_eq!(p.on(Event::Tick, at(renewed)), []);
    }
    assert_eq!(p.wake_at(), at(125_000));
    assert_eq!(p.on(Event::Tick, at(125_000)), [KILL]);

    // Without renewals the lease ends it.
    let mut p = Policy::new(patient(PolicyOptions { max_run, ..wishes(OnLost::Kill) }), deadline(), at(0));
    p.on(Event::Tick, at(5000));
    let last = schedule().kill_at(deadline());
    assert_eq!((p.wake_at(), p.guard_kills_at()), (last, last));
    assert_eq!(p.on(Event::Tick, last), [KILL, Action::SayLost(Reaction::Killed)]);

    let mut p = Policy::new(patient(PolicyOptions { contain: true, ..wishes(OnLost::Kill) }), deadline(), at(0));
    assert_eq!(p.on(ended(ExitStatus::Exited(0)), at(1000)), [TERM]);
    p.on(Event::Extended(schedule().tenure(at(110_000))), at(110_000));
    assert_eq!(p.wake_at(), at(121_000));
}

#[test]
fn a_loss_leaves_the_grace_that_fits_though_a_longer_one_had_begun() {
    let wishes = patient(PolicyOptions { max_run: Some(Duration::from_secs(5)), ..wishes(OnLost::Kill) });
    let grace = wishes.schedule.grace();
    assert!(grace < Duration::from_secs(20));
    let stopping = || {
        let mut p = Policy::new(wishes, deadline(), at(0));
        p.on(Event::Tick, at(5000));
        p.on(Event::Extended(schedule().tenure(at(10_000))), at(10_000));
        p
    };
    let mut broken = stopping();
    assert_eq!(broken.on(Event::Lost(Loss::Broken), at(10_000)), [Action::SayLost(Reaction::Signalled)]);
    assert_eq!(broken.wake_at(), at(10_000) + grace);
    let mut absent = stopping();
    absent.on(Event::Lost(Loss::Absent), at(10_000));
    assert_eq!(absent.wake_at(), at(11_000));
    absent.on(Event::Shielded(schedule().tenure(at(10_000))), at(10_001));
    assert_eq!(absent.wake_at(), at(10_000) + grace);
    let mut running = Policy::new(PolicyOptions { max_run: None, ..wishes }, deadline(), at(0));
    assert_eq!(running.wake_at(), wishes.schedule.signal_at(deadline()));
    running.on(Event::Lost(Loss::Broken), at(1000));
    assert_eq!(running.wake_at(), at(1000) + grace);
}

#[test]
fn a_contained_command_leaves_nothing_and_keeps_its_code() {
    let mut p = Policy::new(PolicyOptions { contain: true, ..wishes(OnLost::Kill) }, deadline(), at(0));
    assert_eq!(p.on(ended(ExitStatus::Exited(3)), at(1000)), [TERM]);
    assert!(p.waits_for_the_end());
    assert_eq!(p.on(Event::Tick, at(1000) + schedule().grace()), [KILL]);
    assert_eq!(p.on(Event::Gone, at(7000)), [Action::Finish]);
    assert_eq!(p.outcome(true), Outcome::Exited(3));
}

/// Every kind of event, with the values that could matter.
fn every_event() -> Vec<Event> {
    let mut all = vec![
        Event::Extended(schedule().tenure(at(10_000))),
        Event::Lost(Loss::Absent),
        Event::Lost(Loss::Broken),
        Event::Lost(Loss::TakenOver),
        Event::Shielded(schedule().tenure(at(10_000))),
        Event::Unshielded,
        caught(Signal::SIGINT, true),
        caught(Signal::SIGTERM, false),
        Event::Told(schedule().terms(schedule().tenure(at(10_000)))),
        Event::Tick,
        Event::Gone,
        Event::Nested(true),
        Event::Nested(false),
    ];
    for foreground in [Foreground::Ours, Foreground::Commands, Foreground::Anothers, Foreground::Nobodys] {
        all.push(Event::Stopped(Signal::SIGTSTP, foreground));
        all.push(Event::Stopped(Signal::SIGTTIN, foreground));
        all.push(Event::Resumed(foreground, Continued::BySomebody));
        all.push(Event::Resumed(foreground, Continued::NeverStopped));
        all.push(Event::Ended(ExitStatus::Exited(0), foreground));
        all.push(Event::Ended(ExitStatus::Killed(2), foreground));
    }
    all
}

/// Applies `event` and checks what must hold after any event in any state.
fn step(p: &mut Policy, event: Event, now: Instant) {
    let before = p.clone();
    let actions = p.on(event, now);
    let context = || format!("{event:?} at {now:?} in {before:?} gave {actions:?} and {p:?}");
    if before.phase == Phase::Over {
        assert!(actions.is_empty(), "nothing is done after the end: {}", context());
        return;
    }
    let kill_wanted = p.wishes.on_lost == OnLost::Kill;
    if kill_wanted && event == Event::Lost(Loss::TakenOver) {
        assert_eq!(p.phase, Phase::Killed, "killed at once: {}", context());
    }
    if kill_wanted && event == Event::Tick && now >= p.kill_deadline() {
        assert!(!matches!(p.phase, Phase::Running | Phase::Stopping { .. }), "dead by its time: {}", context());
    }
    if kill_wanted && now >= before.kill_deadline() && !matches!(event, Event::Extended(_) | Event::Told(_)) {
        let goes_on = |action: &Action| matches!(action, Action::Continue | Action::SendAndContinue(_));
        assert!(
            !actions.iter().any(goes_on) || before.waits_for_the_end(),
            "not continued past its time: {}",
            context()
        );
    }
    let stopping = matches!(before.phase, Phase::Stopping { .. } | Phase::Killed);
    if actions.contains(&Action::Finish) && stopping {
        let is_left_alone = before.lingers() && event == Event::Nested(false);
        assert!(
            is_left_alone || event == Event::Gone && before.ending.is_some(),
            "released while it lives: {}",
            context()
        );
    }
    if actions.contains(&Action::Finish) {
        assert_ne!(p.nested, Nested::Some, "released while a nested run relies on it: {}", context());
    }
    if p.lingers() {
        let sends = |action: &Action| {
            matches!(action, Action::Send(_) | Action::SendAndContinue(_) | Action::Continue | Action::Kill)
        };
        assert!(!actions.iter().any(sends), "what the command left is free: {}", context());
        assert!(!p.waits_for_the_end(), "and not waited for: {}", context());
    }
    let told = p.terms_of_nested();
    assert!(!p.welcomes_nested() || told.is_some(), "a run that is welcomed has terms: {}", context());
    assert!(
        told.is_none_or(|terms| terms.kill_at <= p.guard_kills_at()),
        "nested commands die no later than our own: {}",
        context()
    );
    if matches!(before.phase, Phase::Killed) {
        assert!(matches!(p.phase, Phase::Killed | Phase::Over), "a kill is not taken back: {}", context());
    }
    if matches!(p.phase, Phase::Over) {
        assert_ne!(p.outcome(true), Outcome::Bug, "{}", context());
    }
    assert_eq!(actions.iter().filter(|a| matches!(a, Action::SayLost(_))).count().max(1), 1, "{}", context());
}

#[test]
fn the_promise_holds_after_every_short_history() {
    let times = [at(1), schedule().signal_at(deadline()), schedule().kill_at(deadline()), deadline(), at(60_000)];
    for (on_lost, contain, max_run) in
        [(OnLost::Kill, false, None), (OnLost::Kill, true, Some(Duration::from_secs(9))), (OnLost::Warn, true, None)]
    {
        let wishes = PolicyOptions { max_run, contain, ..wishes(on_lost) };
        explore(&Policy::new(wishes, deadline(), at(0)), &times, 3);
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
        let wishes = PolicyOptions { max_run: max_run.map(Duration::from_secs), contain, ..wishes(on_lost) };
        let wishes = if is_patient { patient(wishes) } else { wishes };
        let mut p = Policy::new(wishes, deadline(), at(0));
        let mut now = at(0);
        for (event, pause) in history {
            now = now + Duration::from_millis(pause);
            step(&mut p, event, now);
        }
    }
}
