//! Beside the running command: what happens goes to the policy, and what the policy says is done.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

use super::run::report_release;
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::job::group::{Family, LOOKS};
use crate::job::guard::Guard;
use crate::job::policy::{Action, Event, Measure, Policy};
use crate::job::scheduling::interrupt_nobody;
use crate::job::seen::Caught;
use crate::job::signals::Signals;
use crate::job::spawn::Leader;
use crate::job::terminal::Terminal;
use crate::lock::duration;
use crate::lock::instant::Instant;
use crate::lock::lease::{Loss, Struck};
use crate::redlock::Released;
use crate::redlock::holding::{Change, Holding};
use crate::report::Reporter;
use crate::settings::LockSettings;

/// How long killed processes may take to be gone before it is said that rlock is waiting for them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A running command and all that belongs to it.
pub(super) struct Job {
    family: Family,
    leader: Leader,
    guard: Guard,
    policy: Policy,
    signals: Signals,
    terminal: Terminal,
    loss: Option<Loss>,
    killed_at: Option<Instant>,
    /// Since when only the end of the command's other processes is waited for.
    looks_since: Option<Instant>,
}

impl Job {
    pub(super) fn new(family: Family, leader: Leader, guard: Guard, policy: Policy, signals: Signals) -> Self {
        let terminal = Terminal::open();
        Self { family, leader, guard, policy, signals, terminal, loss: None, killed_at: None, looks_since: None }
    }

    /// Stays until the command has ended and the lock is given back. After a bug of ours the command is still dead
    /// before that.
    pub(super) async fn supervise(mut self, lock: &LockSettings, mut holding: Holding) -> anyhow::Result<Outcome> {
        let watched = AssertUnwindSafe(self.watch(&lock.report, &mut holding)).catch_unwind().await;
        let watched =
            watched.unwrap_or_else(|_| Err(Failure::new(Outcome::Bug, "the command was stopped after a bug").into()));
        if watched.is_err() {
            self.family.end();
        }
        self.terminal.take_back(self.family.group());
        // The command is dead, or has ended by itself and what it left is free to go on, whatever becomes of rlock now.
        self.guard.dismiss();
        // The server's answer to us must not take its processor away: it has the next one to tell yet.
        interrupt_nobody();
        lock.report.step("ended", "the command has ended; giving the lock back");
        let freed = holding.release().await;
        self.guard.bury();
        self.leader.bury();
        watched.with_context(|| lock.key.to_string())?;
        match &freed {
            // The loss has been told already.
            _ if !self.policy.was_kept() => {}
            Released::NotOurs(how) => lock.report.problem("lost", unnoticed(*how)),
            _ => report_release(&lock.report, &freed),
        }
        Ok(self.policy.outcome(!matches!(freed, Released::NotOurs(_))))
    }

    async fn watch(&mut self, report: &Reporter, holding: &mut Holding) -> anyhow::Result<()> {
        let mut alarm = Alarm::new()?;
        report.step("running", format_args!("running, pid {}", self.family.group()));
        loop {
            if let Some(event) = self.next_event(report, holding, &mut alarm).await?
                && self.handle(event, holding, report)?
            {
                return Ok(());
            }
        }
    }

    /// Waits for what happens next. The clock is looked at first: after a time in which nobody ran, what it says
    /// overrules all other news.
    async fn next_event(
        &mut self,
        report: &Reporter,
        holding: &mut Holding,
        alarm: &mut Alarm,
    ) -> anyhow::Result<Option<Event>> {
        let looks = self.policy.waits_for_the_end();
        let wake_at = self.policy.wake_at();
        let wake_at = if looks { wake_at.min(clock::now() + self.next_look()) } else { wake_at };
        tokio::select! {
            biased;
            () = alarm.reached(wake_at) => {
                let gone = looks && self.all_are_gone();
                if !gone {
                    self.complain_of_survivors(report);
                }
                Ok(Some(if gone { Event::Gone } else { Event::Tick }))
            }
            change = holding.next() => Ok(self.changed(change, report)),
            caught = self.signals.next() => self.caught(caught, report),
        }
    }

    /// An eighth of the time that has been waited already.
    fn next_look(&mut self) -> Duration {
        let now = clock::now();
        let begin = *self.looks_since.get_or_insert(now);
        (now.since(begin) / 8).clamp(LOOKS[0], LOOKS[1])
    }

    /// In the time of grace the rest is only looked at; once killed, whoever appears is killed too.
    fn all_are_gone(&mut self) -> bool {
        if self.killed_at.is_some() { self.family.kill_living() } else { self.family.is_gone() }
    }

    fn changed(&mut self, change: Change, report: &Reporter) -> Option<Event> {
        match change {
            Change::Extended(until) => {
                let left = duration::show_rounded(until.since(clock::now()));
                report.step("renewed", format_args!("renewed for {left}"));
                Some(Event::Extended(until))
            }
            Change::Trouble(node, fault) => {
                report.step("trouble", format_args!("{node}: {fault}; trying again"));
                None
            }
            Change::Lost(how) => {
                self.loss = Some(how);
                Some(Event::Lost(how))
            }
            Change::Shielded(until) => Some(Event::Shielded(until)),
            Change::Unshielded => Some(Event::Unshielded),
        }
    }

    fn caught(&mut self, caught: Caught, report: &Reporter) -> anyhow::Result<Option<Event>> {
        if caught.signal != Signal::SIGCHLD {
            if !matches!(caught.signal, Signal::SIGCONT | Signal::SIGWINCH) {
                report.step("signal", format_args!("{} passed on to the command", caught.signal));
            }
            return Ok(Some(Event::Caught(caught)));
        }
        if self.guard.ensure().map_err(|error| unguarded(&error))? {
            self.family.set_guard(self.guard.pid());
            report.step("guard", "the guard was killed or stopped; another is in its place");
        }
        if self.family.adopts_orphans() {
            self.leader.bury_orphans(self.guard.pid());
        }
        let foreground = self.terminal.foreground(self.family.group());
        Ok(match (self.leader.ending(), self.leader.stop()) {
            (Some(ending), _) => Some(Event::Ended(ending, foreground)),
            (None, Some(signal)) => Some(Event::Stopped(signal, foreground)),
            (None, None) => None,
        })
    }

    /// True if nothing more is to be done.
    fn handle(&mut self, event: Event, holding: &Holding, report: &Reporter) -> anyhow::Result<bool> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let actions = self.policy.on(event, clock::now());
            self.tell_guard()?;
            for action in actions {
                match action {
                    Action::Finish => return Ok(true),
                    Action::Suspend(signal) => events.push(self.suspend(signal, false)),
                    Action::SuspendJob(signal) => events.push(self.suspend(signal, true)),
                    _ => self.act(action, holding, report),
                }
            }
        }
        Ok(false)
    }

    fn tell_guard(&mut self) -> anyhow::Result<()> {
        if self.policy.is_over() {
            return Ok(());
        }
        self.guard.tell(self.policy.guard_kills_at()).map_err(|error| unguarded(&error))
    }

    fn act(&mut self, action: Action, holding: &Holding, report: &Reporter) {
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
            Action::SayLost(measure) => report.problem("lost", loss_told(self.loss, holding, measure)),
            Action::SayTimeIsUp => report.problem("max-run", "--max-run is over; the command is being stopped"),
            // Not for here: `handle` sees to them.
            Action::Suspend(_) | Action::SuspendJob(_) | Action::Finish => {}
        }
    }

    /// Returns when somebody has continued rlock, or at once if nobody could.
    fn suspend(&mut self, signal: Signal, whole_job: bool) -> Event {
        self.terminal.take_back(self.family.group());
        let continued = self.signals.stop(signal, whole_job);
        Event::Resumed(self.terminal.foreground(self.family.group()), continued)
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

fn unnoticed(how: Struck) -> String {
    let how = match how {
        Struck::Absent => "was gone",
        Struck::Another => "was somebody else's",
    };
    format!("lost the lock unnoticed: it {how} when the command had ended; another may have run beside it")
}

/// What a loss is put down to, and what is being done.
fn loss_told(loss: Option<Loss>, holding: &Holding, measure: Measure) -> String {
    let faults = holding.faults().map(|(node, fault)| format!("{node}: {fault}")).collect::<Vec<_>>().join("; ");
    let why = match loss {
        Some(_) => faults,
        None if faults.is_empty() => "it could not be renewed in time: rlock itself was held up".to_owned(),
        None => format!("it could not be renewed in time: {faults}"),
    };
    let done = match measure {
        Measure::Signalled => "the command is being stopped",
        Measure::Killed => "the command was killed",
        Measure::Ignored => "the command goes on (--on-lost warn) and may not be alone",
    };
    format!("lost the lock: {why}; {done}")
}
