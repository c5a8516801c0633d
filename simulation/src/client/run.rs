//! `rlock run`, as `command::run` puts it together: wait, start the command, supervise it, give the lock back.

use std::time::Duration;

use nix::sys::signal::Signal;
use rlock::clock::{self, Alarm};
use rlock::exit::Outcome;
use rlock::job::facts::{Foreground, OnLost};
use rlock::job::policy::{Action, Event, Policy, PolicyOptions};
use rlock::job::polling;
use rlock::lock::instant::Instant;
use rlock::redlock::ReleaseOutcome;
use rlock::redlock::holding::{Change, Holding};
use rlock::redlock::wait::{Waited, wait};

use super::claimant::Waiter;
use super::{Client, gave_up};
use crate::command::{self, Behaviour, Caught};
use crate::kernel;
use crate::witness::{Hold, Share};

/// Waits for the lock, runs the command under it, and returns how that ended.
pub async fn run(client: Client, behaviour: Behaviour, max_run: Option<Duration>) -> Outcome {
    let nodes = client.open();
    let mut claimant = Waiter { client: &client, for_command: true };
    let waited = wait(&nodes, client.waiting(true), &mut claimant, &mut async || terminating().await).await;
    let holding = match waited {
        Ok(Waited::Won(holding, _)) => *holding,
        Ok(Waited::Joined(never)) => match never {},
        Ok(Waited::Cancelled(signal)) => return Outcome::Signalled(signal as i32),
        Ok(Waited::GaveUp(reason)) => return gave_up(&reason),
        Err(_) => return Outcome::Bug,
    };
    let options = PolicyOptions {
        schedule: client.settings.schedule,
        on_lost: OnLost::Kill,
        first_signal: Signal::SIGTERM,
        max_run,
        contain: false,
    };
    supervise(holding, options, behaviour).await
}

async fn terminating() -> Signal {
    loop {
        if let Caught::Signal(caught) = command::caught().await {
            return caught.signal;
        }
    }
}

async fn supervise(mut holding: Holding, options: PolicyOptions, behaviour: Behaviour) -> Outcome {
    let mut policy = Policy::new(options, holding.deadline(), clock::now());
    if command::start(behaviour, policy.guard_kills_at()).is_err() {
        holding.release().await;
        return Outcome::Lost;
    }
    kernel::with(|kernel| {
        let (process, now) = (kernel.current, kernel.now);
        let (token, fence) = (holding.token(), holding.fence().get());
        kernel.tell(|| format!("{process}: has the lock with fence {fence}; its command runs"));
        let hold = Hold { share: Share::Exclusive, token, fence, since: now, until: None };
        kernel.witness.granted(process, 0, hold);
    });
    let mut alarm = Alarm::new().expect("simulated alarms need no descriptor");
    let mut polling_since = None;
    'over: loop {
        let polls = policy.awaits_gone();
        let mut wake_at = policy.wake_at();
        if polls {
            let begin: Instant = *polling_since.get_or_insert(clock::now());
            wake_at = wake_at.min(clock::now() + polling::pause(clock::now().since(begin), polling::LONGEST_PAUSE));
        }
        let event = tokio::select! {
            biased;
            () = alarm.reached(wake_at) => Some(if polls && command::is_gone() { Event::Gone } else { Event::Tick }),
            change = holding.next() => heard(&change),
            caught = command::caught() => Some(match caught {
                Caught::Child(status) => Event::Ended(status, Foreground::NoTerminal),
                Caught::Signal(caught) => Event::CaughtSignal(caught),
            }),
        };
        let Some(event) = event else { continue };
        // A signal that rlock passes on does not stop the command: what the command leaves running needs no lock.
        let stops = !matches!(event, Event::CaughtSignal(_));
        let actions = policy.on(event, clock::now());
        if !policy.is_over() {
            command::extend(policy.guard_kills_at());
        }
        for action in actions {
            match action {
                Action::Send(signal) => command::send(signal, false),
                Action::SendAndContinue(signal) => command::send(signal, stops),
                Action::Kill => command::kill(),
                Action::Finish => break 'over,
                _ => {}
            }
        }
    }
    command::disarm();
    let freed = holding.release().await;
    policy.outcome(!matches!(freed, ReleaseOutcome::NotOurs(_)))
}

/// Returns the policy's event for a change of the lease, as `command::run::cover` does.
fn heard(change: &Change) -> Option<Event> {
    kernel::with(|kernel| {
        let process = kernel.current;
        kernel.tell(|| format!("{process}: {change:?}"));
    });
    match *change {
        Change::Extended(until) => Some(Event::Extended(until)),
        Change::Trouble(..) | Change::Refused(..) => None,
        Change::Lost(loss) => {
            command::gives_back(None);
            kernel::with(|kernel| kernel.witness.counts.lost += 1);
            Some(Event::Lost(loss))
        }
        Change::Shielded(until) => Some(Event::Shielded(until)),
        Change::Unshielded => Some(Event::Unshielded),
    }
}
