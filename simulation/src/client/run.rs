//! `rlock run`, as `command::run` puts it together: wait, start the command, supervise it, give the
//! lock back.

use std::time::Duration;

use nix::sys::signal::Signal;
use rlock::clock::{self, Alarm};
use rlock::exit::Outcome;
use rlock::hold::ReleaseOutcome;
use rlock::hold::holdings::{Changed, Holdings, take};
use rlock::hold::wait::Waited;
use rlock::job::policy::{Foreground, JobAction, JobEvent, Policy, PolicyOptions};
use rlock::job::process_tree;
use rlock::lock::instant::Instant;
use rlock::lock::last::Run;
use rlock::lock::lease::LeaseChange;
use rlock::lock::remains::{Ending, Remains};

use super::claimant::Waiter;
use super::{Client, gave_up, share, tell};
use crate::command::{self, Behaviour, Caught};
use crate::kernel;
use crate::witness::Hold;

/// Waits for the lock, runs the command under it, and returns how that ended.
pub async fn run(client: Client, behaviour: Behaviour, max_run: Option<Duration>) -> Outcome {
    let nodes = client.open();
    let mut claimant = Waiter {
        client: &client,
        lock: 0,
        for_command: true,
    };
    let Ok(mut alarm) = Alarm::new() else {
        return Outcome::Bug;
    };
    let (waiting, cancelled) = (client.waiting(true), &mut async || terminating().await);
    let holdings = match take(&nodes, waiting, &mut claimant, &mut alarm, tell, cancelled).await {
        Ok(Waited::Held(holdings)) => holdings,
        Ok(Waited::Cancelled(signal)) => return Outcome::Signalled(signal as i32),
        Ok(Waited::GaveUp(reason)) => return gave_up(&reason),
        // Nothing can be joined here.
        Ok(Waited::Joined(..)) | Err(_) => return Outcome::Bug,
    };
    let options = PolicyOptions {
        max_run,
        ..PolicyOptions::new(client.settings.schedule)
    };
    if let Some(within) = client.settings.remains.once {
        let mut remains = Remains::default();
        let outcome = match holdings.run_before(within).await {
            Ok(Ok(None)) => None,
            Ok(Ok(Some(run))) => {
                kernel::with(|kernel| kernel.witness.counts.skipped += 1);
                remains = Remains {
                    earlier: Some(run),
                    once: Some(within),
                    ..remains
                };
                Some(Outcome::Done)
            }
            Ok(Err(_)) => Some(Outcome::Unreachable),
            Err(_) => Some(Outcome::Bug),
        };
        if let Some(outcome) = outcome {
            kernel::with(|kernel| {
                let process = kernel.current;
                kernel.tell(|| format!("{process}: does not run its command: {outcome:?}"));
                kernel.witness.skips(process);
            });
            holdings.release(&remains).await;
            return outcome;
        }
    }
    supervise(&client, holdings, options, behaviour).await
}

async fn terminating() -> Signal {
    loop {
        if let Caught::Signal(caught) = command::caught().await {
            return caught.signal;
        }
    }
}

async fn supervise(
    client: &Client,
    mut holdings: Holdings,
    options: PolicyOptions,
    behaviour: Behaviour,
) -> Outcome {
    let mut policy = Policy::new(options, holdings.deadline(), clock::now());
    if command::start(behaviour, policy.guard_kills_at()).is_err() {
        holdings.release(&Remains::default()).await;
        return Outcome::Lost;
    }
    kernel::with(|kernel| {
        let (process, now) = (kernel.current, kernel.now);
        for ((lock, (token, fence)), slot) in client
            .locks
            .iter()
            .zip(holdings.grants())
            .zip(holdings.slots())
        {
            let share = share(client.mode, slot);
            kernel.tell(|| {
                format!(
                    "{process}: has lock {lock} ({share:?}) with fence {fence}; its command runs"
                )
            });
            let hold = Hold {
                share,
                token,
                fence: fence.get(),
                since: now,
                until: None,
            };
            kernel.witness.granted(process, *lock, hold);
        }
    });
    let started = clock::now();
    if client.settings.remains.once.is_some() {
        kernel::with(|kernel| {
            kernel
                .witness
                .runs_once(kernel.current, client.locks[0], started);
        });
    }
    let mut alarm = Alarm::new().expect("simulated alarms need no descriptor");
    let mut polling_since = None;
    'over: loop {
        let polls = policy.awaits_gone();
        let mut wake_at = policy.wake_at();
        if polls {
            let begin: Instant = *polling_since.get_or_insert(clock::now());
            wake_at = wake_at.min(
                clock::now()
                    + process_tree::pause(clock::now().since(begin), process_tree::LONGEST_PAUSE),
            );
        }
        let event = tokio::select! {
            biased;
            () = alarm.reached(wake_at) => Some(if polls && command::is_gone() { JobEvent::Gone } else { JobEvent::Tick }),
            changed = holdings.next() => heard(&changed),
            caught = command::caught() => Some(match caught {
                Caught::Child(status) => JobEvent::Ended(status, Foreground::NoTerminal),
                Caught::Signal(caught) => JobEvent::CaughtSignal(caught),
            }),
        };
        let Some(event) = event else { continue };
        // A signal that rlock passes on does not stop the command: what the command leaves running
        // needs no lock.
        let stops = !matches!(event, JobEvent::CaughtSignal(_));
        let actions = policy.on(event, clock::now());
        if !policy.is_over() {
            command::extend(policy.guard_kills_at());
        }
        for action in actions {
            match action {
                JobAction::Send(signal) => command::send(signal, false),
                JobAction::SendAndContinue(signal) => command::send(signal, stops),
                JobAction::Kill => command::kill(),
                JobAction::Finish => break 'over,
                _ => {}
            }
        }
    }
    command::disarm();
    let ended = clock::now();
    let ending = policy.ending();
    let run = Some(Run {
        exit: Some(0),
        ..Run::default()
    });
    let remains = Remains {
        run,
        ..client.settings.remains.after(ending, started, ended)
    };
    let token = holdings.grants().next().map(|(token, _)| token);
    let parks = |since| {
        if let (Some(parking), Some(token)) = (&remains.parked, token) {
            let until = since + at_a_fast_node(parking.left);
            kernel::with(|kernel| {
                kernel
                    .witness
                    .parks(client.locks[0], token, until, ending == Ending::LockLost);
            });
        }
    };
    if ending == Ending::LockLost {
        // The nodes keep it without hearing of the end, which rlock may have slept through.
        parks(
            kernel::with(|kernel| kernel.witness.last_end(client.locks[0], kernel.current))
                .unwrap_or(started),
        );
    }
    // The guard is ended once the release is written.
    let freed = holdings.release(&remains).await;
    command::gives_nothing_back();
    if freed[0] == ReleaseOutcome::Ours {
        parks(ended);
        if let Some(life) = remains.once {
            kernel::with(|kernel| {
                kernel
                    .witness
                    .succeeded(client.locks[0], ended + at_a_fast_node(life));
            });
        }
    }
    policy.outcome(
        !freed
            .iter()
            .any(|freed| matches!(freed, ReleaseOutcome::NotOurs(_))),
    )
}

/// Returns the part of `span` that a node certainly keeps a key for: its clock may be 0.4 % too
/// fast.
fn at_a_fast_node(span: Duration) -> Duration {
    span.mul_f64(0.99)
}

/// Returns the policy's event for a change of the lease, as `command::run::cover` does.
fn heard(changed: &Changed) -> Option<JobEvent> {
    let Changed { change, of_all, .. } = changed;
    kernel::with(|kernel| {
        let process = kernel.current;
        kernel.tell(|| format!("{process}: {change:?}"));
    });
    if matches!(of_all, Some(LeaseChange::Lost(_))) {
        command::gives_nothing_back();
        kernel::with(|kernel| kernel.witness.counts.lost += 1);
    }
    of_all.map(JobEvent::Lease)
}
