//! Signals and the terminal, case by case.

use super::*;

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
fn a_command_that_was_interrupted_with_the_terminal_in_its_hands_takes_the_job_with_it() {
    let mut p = policy(OnLost::Kill);
    let actions = p.on(
        Event::Ended(ExitStatus::Killed(2), Foreground::Command),
        at(1),
    );
    assert_eq!(
        actions,
        [Action::InterruptJob(Signal::SIGINT), Action::Finish]
    );
    assert_eq!(p.outcome(true), Outcome::Interrupted(2));
}

#[test]
fn what_a_stop_means_depends_on_whose_the_terminal_is() {
    use Foreground::{Command, NoTerminal, OtherJob, Rlock};
    let give = &[Action::GiveTerminal, Action::Continue][..];
    for (signal, foreground, actions) in [
        (Signal::SIGTTIN, Rlock, give),
        (Signal::SIGTTOU, Rlock, give),
        (Signal::SIGTTIN, Command, &[Action::Continue]),
        (
            Signal::SIGTTIN,
            OtherJob,
            &[Action::SuspendJob(Signal::SIGTTIN)],
        ),
        (Signal::SIGTTOU, NoTerminal, &[]),
        (Signal::SIGTSTP, Rlock, &[Action::Suspend(Signal::SIGTSTP)]),
        (
            Signal::SIGTSTP,
            Command,
            &[Action::SuspendJob(Signal::SIGTSTP)],
        ),
        (
            Signal::SIGTSTP,
            OtherJob,
            &[Action::Suspend(Signal::SIGTSTP)],
        ),
        (Signal::SIGTSTP, NoTerminal, &[]),
        (Signal::SIGSTOP, Rlock, &[]),
        (
            Signal::SIGSTOP,
            Command,
            &[Action::SuspendJob(Signal::SIGSTOP)],
        ),
    ] {
        let mut p = policy(OnLost::Kill);
        assert_eq!(
            p.on(Event::Stopped(signal, foreground), at(1)),
            actions,
            "{signal} {foreground:?}"
        );
    }
}

#[test]
fn the_lease_is_looked_at_before_a_suspended_command_goes_on() {
    use Foreground::{Command, OtherJob, Rlock};
    let give = &[Action::GiveTerminal, Action::Continue][..];
    let hang_up = &[Action::SendAndContinue(Signal::SIGHUP)][..];
    for (stop, foreground, then, continued, in_time) in [
        (Signal::SIGTSTP, Command, Rlock, Continued::BySigcont, give),
        (
            Signal::SIGTSTP,
            Command,
            Rlock,
            Continued::NeverStopped,
            give,
        ),
        (
            Signal::SIGTSTP,
            Command,
            OtherJob,
            Continued::BySigcont,
            &[Action::Continue],
        ),
        (
            Signal::SIGTSTP,
            Rlock,
            Rlock,
            Continued::BySigcont,
            &[Action::Continue],
        ),
        (
            Signal::SIGTSTP,
            Rlock,
            Rlock,
            Continued::NeverStopped,
            &[Action::Continue],
        ),
        (Signal::SIGTTIN, OtherJob, Rlock, Continued::BySigcont, give),
        (
            Signal::SIGTTIN,
            OtherJob,
            OtherJob,
            Continued::BySigcont,
            &[Action::Continue],
        ),
        (
            Signal::SIGTTIN,
            OtherJob,
            OtherJob,
            Continued::NeverStopped,
            hang_up,
        ),
    ] {
        let suspended = || {
            let mut p = policy(OnLost::Kill);
            p.on(Event::Stopped(stop, foreground), at(1));
            p
        };
        assert_eq!(
            suspended().on(Event::Resumed(then, continued), at(2)),
            in_time
        );
        let late = suspended().on(Event::Resumed(then, continued), deadline());
        assert_eq!(late, [KILL, Action::SayLost(Reaction::Killed)]);
    }
}
