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
                assert_eq!(actions, [JobAction::SendAndContinue(signal)]);
            }
            _ => assert_eq!(actions, [JobAction::Send(signal)]),
        }
    }
}

#[test]
fn a_command_that_was_interrupted_with_the_terminal_in_its_hands_takes_the_job_with_it() {
    let mut p = policy(OnLost::Kill);
    let actions = p.on(
        JobEvent::Ended(ExitStatus::Killed(2), Foreground::Command),
        at(1),
    );
    assert_eq!(
        actions,
        [JobAction::InterruptJob(Signal::SIGINT), JobAction::Finish]
    );
    assert_eq!(p.outcome(true), Outcome::Interrupted(2));
}

#[test]
fn what_a_stop_means_depends_on_whose_the_terminal_is() {
    use Foreground::{Command, NoTerminal, OtherJob, Rlock};
    let give = &[JobAction::GiveTerminal, JobAction::Continue][..];
    for (signal, foreground, actions) in [
        (Signal::SIGTTIN, Rlock, give),
        (Signal::SIGTTOU, Rlock, give),
        (Signal::SIGTTIN, Command, &[JobAction::Continue]),
        (
            Signal::SIGTTIN,
            OtherJob,
            &[JobAction::SuspendJob(Signal::SIGTTIN)],
        ),
        (Signal::SIGTTOU, NoTerminal, &[]),
        (
            Signal::SIGTSTP,
            Rlock,
            &[JobAction::Suspend(Signal::SIGTSTP)],
        ),
        (
            Signal::SIGTSTP,
            Command,
            &[JobAction::SuspendJob(Signal::SIGTSTP)],
        ),
        (
            Signal::SIGTSTP,
            OtherJob,
            &[JobAction::Suspend(Signal::SIGTSTP)],
        ),
        (Signal::SIGTSTP, NoTerminal, &[]),
        (Signal::SIGSTOP, Rlock, &[]),
        (
            Signal::SIGSTOP,
            Command,
            &[JobAction::SuspendJob(Signal::SIGSTOP)],
        ),
    ] {
        let mut p = policy(OnLost::Kill);
        assert_eq!(
            p.on(JobEvent::Stopped(signal, foreground), at(1)),
            actions,
            "{signal} {foreground:?}"
        );
    }
}

#[test]
fn the_lease_is_looked_at_before_a_suspended_command_goes_on() {
    use Foreground::{Command, OtherJob, Rlock};
    let give = &[JobAction::GiveTerminal, JobAction::Continue][..];
    let hang_up = &[JobAction::SendAndContinue(Signal::SIGHUP)][..];
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
            &[JobAction::Continue],
        ),
        (
            Signal::SIGTSTP,
            Rlock,
            Rlock,
            Continued::BySigcont,
            &[JobAction::Continue],
        ),
        (
            Signal::SIGTSTP,
            Rlock,
            Rlock,
            Continued::NeverStopped,
            &[JobAction::Continue],
        ),
        (Signal::SIGTTIN, OtherJob, Rlock, Continued::BySigcont, give),
        (
            Signal::SIGTTIN,
            OtherJob,
            OtherJob,
            Continued::BySigcont,
            &[JobAction::Continue],
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
            p.on(JobEvent::Stopped(stop, foreground), at(1));
            p
        };
        assert_eq!(
            suspended().on(JobEvent::Resumed(then, continued), at(2)),
            in_time
        );
        let late = suspended().on(JobEvent::Resumed(then, continued), deadline());
        assert_eq!(late, [KILL, JobAction::SayLost(Reaction::Killed)]);
    }
}
