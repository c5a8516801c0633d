//! The policy's tests, and what they share.

mod ending;
mod histories;
mod job_control;
mod lease;
mod nested;

use std::time::Duration;

use nix::sys::signal::Signal;

use super::*;
use crate::exit::Outcome;
use crate::lock::lease::{LeaseChange, Loss};
use crate::lock::schedule::ScheduleOptions;

const TTL: Duration = Duration::from_secs(30);

fn schedule() -> Schedule {
    Schedule::new(ScheduleOptions {
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
    schedule().term().end(at(0))
}

fn options(on_lost: OnLost) -> PolicyOptions {
    PolicyOptions {
        on_lost,
        ..PolicyOptions::new(schedule())
    }
}

fn policy(on_lost: OnLost) -> Policy {
    Policy::new(options(on_lost), deadline(), at(0))
}

fn ended(ending: ExitStatus) -> JobEvent {
    JobEvent::Ended(ending, Foreground::NoTerminal)
}

fn caught(signal: Signal, from_terminal: bool) -> JobEvent {
    JobEvent::CaughtSignal(CaughtSignal {
        signal,
        from_terminal,
    })
}

const KILL: JobAction = JobAction::Kill;

const TERM: JobAction = JobAction::SendAndContinue(Signal::SIGTERM);

/// `--ttl 30s --kill-after 2m`.
fn patient(options: PolicyOptions) -> PolicyOptions {
    let kill_after = Some(Duration::from_secs(120));
    let schedule = ScheduleOptions {
        ttl: TTL,
        drift: 0.01,
        node_timeout: None,
        kill_after,
    };
    PolicyOptions {
        schedule: Schedule::new(schedule).unwrap(),
        ..options
    }
}
