//! Beside the running command: what happens goes to the policy, and what the policy says is done.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

use super::cover::Cover;
use crate::clock::{self, Alarm};
use crate::command::released::report_release;
use crate::exit::{Failure, Outcome};
use crate::job::event::CaughtSignal;
use crate::job::guard::Guard;
use crate::job::nested::runs::NestedRuns;
use crate::job::policy::{Action, Event, Policy, Reaction};
use crate::job::polling;
use crate::job::process_tree::ProcessTree;
use crate::job::signals::Signals;
use crate::job::spawn::Leader;
use crate::job::terminal::Terminal;
use crate::lock::instant::Instant;
use crate::lock::lease::{Loss, Revoked};
use crate::redlock::ReleaseOutcome;
use crate::report::Reporter;
use crate::settings::LockSettings;

/// How long killed processes may take to be gone before it is said that rlock is waiting for them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A running command and all that belongs to it.
pub(super) struct Job {
    family: ProcessTree,
    leader: Leader,
    guard: Guard,
    policy: Policy,
    signals: Signals,
    terminal: Terminal,
    alarm: Alarm,
    /// The runs that are nested in the command; none where they turn to an outer rlock, and once the lock is given back.
    nested: Option<NestedRuns>,
    loss: Option<Loss>,
    killed_at: Option<Instant>,
    /// Since when only the end of the command's other processes is waited for.
    looks_since: Option<Instant>,
}

/// A command that was just started. `alarm` was made before: afterwards there may be no descriptor left for one.
pub(super) struct Started {
    pub(super) family: ProcessTree,
    pub(super) leader: Leader,
    pub(super) policy: Policy,
    pub(super) signals: Signals,
    pub(super) alarm: Alarm,
    pub(super) nested: Option<NestedRuns>,
}

impl Job {
    pub(super) fn new(started: Started, guard: Guard) -> Self {
        let Started { family, leader, policy, signals, alarm, nested } = started;
        let terminal = Terminal::open();
        let (loss, killed_at, looks_since) = (None, None, None);
        Self { family, leader, guard, policy, signals, terminal, alarm, nested, loss, killed_at, looks_since }
    }

    /// Stays until the command has ended and the lock is given back. After a bug of ours the command is still dead
    /// before that.
    pub(super) async fn supervise(mut self, lock: &LockSettings, mut cover: Cover) -> anyhow::Result<Outcome> {
        let watched = AssertUnwindSafe(self.watch(&lock.report, &mut cover)).catch_unwind().await;
        let watched =
            watched.unwrap_or_else(|_| Err(Failure::new(Outcome::Bug, "the command was stopped after a bug").into()));
        if watched.is_err() {
            self.end(&lock.report, &mut cover).await;
        }
        self.terminal.take_back(self.family.group());
        // The command is dead, or has ended by itself and what it left is free to go on, whatever becomes of rlock now.
        self.guard.disarm();
        let freed = cover.release(&lock.report).await;
        self.guard.stop();
        self.leader.reap();
        watched.with_context(|| lock.key.to_string())?;
        match &freed {
            // The loss has been told already.
            _ if !self.policy.was_kept() => {}
            ReleaseOutcome::NotOurs(how) => lock.report.problem("lost", unnoticed(*how)),
            _ => report_release(&lock.report, &freed),
        }
        Ok(self.policy.outcome(!matches!(freed, ReleaseOutcome::NotOurs(_))))
    }

    /// Kills the command and returns when it is gone: after a bug, or when no guard is left that could do it. The lease is
    /// renewed meanwhile.
    async fn end(&mut self, report: &Reporter, cover: &mut Cover) {
        self.family.kill();
        self.killed_at = Some(clock::now());
        // The bug may be in what renews.
        if AssertUnwindSafe(self.outlast(report, cover)).catch_unwind().await.is_err() {
            self.family.end();
        }
        self.end_nested(cover).await;
    }

    async fn outlast(&mut self, report: &Reporter, cover: &mut Cover) {
        while !self.all_are_gone() {
            self.complain_of_survivors(report);
            let next_look = clock::now() + self.next_look();
            loop {
                tokio::select! {
                    biased;
                    () = self.alarm.reached(next_look) => break,
                    // What becomes of the lease changes nothing any more.
                    _ = cover.next() => {}
                }
            }
        }
    }

    async fn watch(&mut self, report: &Reporter, cover: &mut Cover) -> anyhow::Result<()> {
        report.step("running", format_args!("running, pid {}", self.family.group()));
        loop {
            if let Some(event) = self.next_event(report, cover).await?
                && self.handle(event, cover, report)?
            {
                return Ok(());
            }
        }
    }

    /// Waits for what happens next. The clock is looked at first: after a time in which nobody ran, what it says
    /// overrules all other news.
    async fn next_event(&mut self, report: &Reporter, cover: &mut Cover) -> anyhow::Result<Option<Event>> {
        let looks = self.policy.awaits_gone();
        let wake_at = self.policy.wake_at();
        let wake_at = if looks { wake_at.min(clock::now() + self.next_look()) } else { wake_at };
        let wake_at = wake_at.min(self.nested.as_ref().map_or(Instant::NEVER, NestedRuns::overdue_at));
        tokio::select! {
            biased;
            () = self.alarm.reached(wake_at) => {
                self.complain_of_nested(report);
                let gone = looks && self.all_are_gone();
                if !gone {
                    self.complain_of_survivors(report);
                }
                Ok(Some(if gone { Event::Gone } else { Event::Tick }))
            }
            news = cover.next() => Ok(self.changed(news.event(report))),
            caught = self.signals.next() => self.caught(caught, report),
            // What has changed is seen before the policy is asked.
            () = nested_changed(self.nested.as_ref()) => Ok(Some(Event::Tick)),
        }
    }

    /// An eighth of the time that has been waited already.
    fn next_look(&mut self) -> Duration {
        let now = clock::now();
        let begin = *self.looks_since.get_or_insert(now);
        polling::pause(now.since(begin), polling::LONGEST_PAUSE)
    }

    /// In the time of grace the rest is only looked at; once killed, whoever appears is killed too.
    fn all_are_gone(&mut self) -> bool {
        if self.killed_at.is_some() { self.family.kill_living().unwrap_or(false) } else { self.family.is_gone() }
    }

    fn changed(&mut self, event: Option<Event>) -> Option<Event> {
        if let Some(Event::Lost(how)) = event {
            self.loss = Some(how);
            self.guard.holds_nothing();
        }
        event
    }

    fn caught(&mut self, caught: CaughtSignal, report: &Reporter) -> anyhow::Result<Option<Event>> {
        if caught.signal != Signal::SIGCHLD {
            if !matches!(caught.signal, Signal::SIGCONT | Signal::SIGWINCH) {
                report.step("signal", format_args!("{} passed on to the command", caught.signal));
            }
            return Ok(Some(Event::CaughtSignal(caught)));
        }
        if self.guard.ensure_alive().map_err(|error| unguarded(&error))? {
            self.family.set_guard(self.guard.pid());
            self.signals.reap_all_but(&[self.guard.pid(), self.leader.group()]);
            report.step("guard", "the guard was killed or stopped; another is in its place");
        }
        let foreground = self.terminal.foreground(self.family.group());
        Ok(match (self.leader.exit_status(), self.leader.stop_signal()) {
            (Some(ending), _) => Some(Event::Ended(ending, foreground)),
            (None, Some(signal)) => Some(Event::Stopped(signal, foreground)),
            (None, None) => None,
        })
    }

    /// True if nothing more is to be done.
    fn handle(&mut self, event: Event, cover: &Cover, report: &Reporter) -> anyhow::Result<bool> {
        let mut events = vec![event];
        // The policy hears of each nested run that is admitted, and before it hears of the command's end: then the lock is
        // kept for that run. None is admitted between two events, when the lock is lost, or once the listener is closed.
        if !matches!(event, Event::Lost(_)) {
            events.extend(self.admit_nested().map(Event::Nested));
        }
        while let Some(event) = events.pop() {
            let actions = self.policy.on(event, clock::now());
            self.tell_guard()?;
            self.tell_nested();
            for action in actions {
                match action {
                    Action::Finish => {
                        self.nested = None;
                        return Ok(true);
                    }
                    Action::Suspend(signal) => events.push(self.suspend(signal, false)),
                    Action::SuspendJob(signal) => events.push(self.suspend(signal, true)),
                    _ => self.act(action, cover, report),
                }
            }
        }
        Ok(false)
    }

    /// Admits nested runs if the policy welcomes any; whether there are any.
    fn admit_nested(&mut self) -> Option<bool> {
        let welcome = self.policy.terms_of_nested().filter(|_| self.policy.welcomes_nested());
        self.nested.as_mut().map(|nested| nested.admit(welcome))
    }

    /// Tells nested runs what the policy has for them.
    fn tell_nested(&mut self) {
        let terms = self.policy.terms_of_nested();
        if let Some(nested) = &mut self.nested {
            nested.send(terms);
        }
    }

    /// Has the commands of nested runs killed, and returns when they are gone. The lock is kept meanwhile.
    async fn end_nested(&mut self, cover: &mut Cover) {
        while self.nested.as_mut().is_some_and(|nested| nested.admit(None)) {
            if let Some(nested) = &mut self.nested {
                nested.send(None);
            }
            tokio::select! {
                () = nested_changed(self.nested.as_ref()) => {}
                _ = cover.next() => {}
            }
        }
    }

    fn tell_guard(&mut self) -> anyhow::Result<()> {
        if self.policy.is_over() {
            return Ok(());
        }
        self.guard.extend(self.policy.guard_kills_at()).map_err(|error| unguarded(&error))
    }

    fn act(&mut self, action: Action, cover: &Cover, report: &Reporter) {
        match action {
            Action::Send(signal) => self.family.send(signal),
            Action::SendAndContinue(signal) => {
                self.family.send(signal);
                self.family.send(Signal::SIGCONT);
            }
            Action::Continue => self.family.send(Signal::SIGCONT),
            Action::Kill => {
                self.family.kill();
                self.killed_at = Some(clock::now());
            }
            Action::GiveTerminal => self.terminal.give(self.family.group()),
            Action::InterruptJob(signal) => {
                self.terminal.take_back(self.family.group());
                // We get it too and pass it on to nobody; we die of it once the lock is released.
                let _ = killpg(getpgrp(), signal);
            }
            Action::SayLost(measure) => report.problem("lost", loss_told(&cover.trouble(self.loss), measure)),
            Action::SayTimeIsUp => report.problem("max-run", "--max-run is over; the command is being stopped"),
            Action::SayLingering => {
                // Its leader is gone; what the terminal sends now is for us.
                self.terminal.take_back(self.family.group());
                report.step(
                    "lingering",
                    "the command has ended; keeping the lock until the nested rlock runs have ended",
                );
            }
            // Not for here: `handle` sees to them.
            Action::Suspend(_) | Action::SuspendJob(_) | Action::Finish => {}
        }
    }

    /// Returns when somebody has continued rlock, or at once if nobody could.
    fn suspend(&mut self, signal: Signal, whole_job: bool) -> Event {
        self.terminal.take_back(self.family.group());
        let continued = self.signals.suspend(signal, whole_job);
        Event::Resumed(self.terminal.foreground(self.family.group()), continued)
    }

    fn complain_of_nested(&mut self, report: &Reporter) {
        if self.nested.as_mut().is_some_and(NestedRuns::is_overdue) {
            let text =
                "a nested rlock run was told to kill its command and has not ended; the lock is kept until it has";
            report.problem("unkillable", text);
        }
    }

    fn complain_of_survivors(&mut self, report: &Reporter) {
        if self.killed_at.is_some_and(|at| clock::now() >= at + PATIENCE) {
            self.killed_at = Some(Instant::NEVER);
            let group = self.family.group();
            let text =
                format_args!("process group {group} was killed and is still there; the lock is kept until it is gone");
            report.problem("unkillable", text);
        }
    }
}

fn unguarded(error: &std::io::Error) -> anyhow::Error {
    let message = format!("the guard has gone and another cannot be started ({error}); the command was killed");
    Failure::new(Outcome::Lost, message).into()
}

fn unnoticed(how: Revoked) -> String {
    let how = match how {
        Revoked::Missing => "was gone",
        Revoked::TakenOver => "was somebody else's",
    };
    format!("lost the lock unnoticed: it {how} when the command had ended; another may have run beside it")
}

/// What a loss is put down to, and what is being done.
fn loss_told(why: &str, measure: Reaction) -> String {
    let done = match measure {
        Reaction::Signalled => "the command is being stopped",
        Reaction::Killed => "the command was killed",
        Reaction::Ignored => "the command goes on (--on-lost warn) and may not be alone",
    };
    format!("lost the lock: {why}; {done}")
}

async fn nested_changed(nested: Option<&NestedRuns>) {
    match nested {
        Some(nested) => nested.changed().await,
        None => std::future::pending().await,
    }
}
