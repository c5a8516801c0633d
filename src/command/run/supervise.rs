//! Supervises the running command: collects events, passes them to the policy and carries out its
//! actions.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use tokio::sync::watch;

use super::heir;
use crate::clock::{self, Alarm};
use crate::command::cover::{Cover, report_release};
use crate::exit::{Failure, Outcome};
use crate::hold::ReleaseOutcome;
use crate::job::guard::Guard;
use crate::job::nested::runs::NestedRuns;
use crate::job::policy::{CaughtSignal, ExitStatus, JobAction, JobEvent, Policy};
use crate::job::process_tree::{self, ProcessTree};
use crate::job::signals::Signals;
use crate::job::spawn::Leader;
use crate::job::terminal::Terminal;
use crate::lock::instant::Instant;
use crate::lock::last::Run;
use crate::lock::lease::LeaseChange;
use crate::lock::remains::{Ending, Remains};
use crate::report::{Event, Reporter};
use crate::settings::LockSettings;
use crate::text::duration::millis;

/// Signals of a user or a service manager that wants rlock to end.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// Time that processes get to end before rlock reports that it waits for them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A running command, and what is needed to supervise it.
pub(super) struct Job {
    tree: ProcessTree,
    leader: Leader,
    guard: Guard,
    policy: Policy,
    signals: Signals,
    terminal: Terminal,
    alarm: Alarm,
    /// Runs nested in the command. `None` where they connect to an outer rlock, and once the lock
    /// is given back.
    nested: Option<NestedRuns>,
    started: Instant,
    /// Whether the command, or the commands of nested runs, were killed.
    killed: bool,
    /// Since when the end of the command's processes is polled.
    polling_since: Option<Instant>,
    /// When to tell of processes that are still there, after the command's end or after the kill.
    tells_at: Instant,
    /// The guard has ended, and this kept another one from being started.
    unguarded: Option<std::io::Error>,
}

/// A command that was just started, and the runs nested in it.
pub(super) type Started = (ProcessTree, Leader, Policy, Option<NestedRuns>);

impl Job {
    pub(super) fn new(
        (tree, leader, policy, nested): Started,
        guard: Guard,
        signals: Signals,
        alarm: Alarm,
    ) -> Self {
        Self {
            tree,
            leader,
            guard,
            policy,
            signals,
            terminal: Terminal::open(),
            alarm,
            nested,
            started: clock::now(),
            killed: false,
            polling_since: None,
            tells_at: Instant::NEVER,
            unguarded: None,
        }
    }

    /// Supervises the command until it has ended and the lock is given back.
    pub(super) async fn supervise(
        mut self,
        lock: &LockSettings,
        mut cover: Cover,
    ) -> anyhow::Result<Outcome> {
        self.watch(&lock.report, &mut cover).await;
        self.terminal.take_back(self.tree.group());
        // The command is dead, or has ended by itself and its background processes may go on.
        self.guard.disarm();
        let ending = if self.unguarded.is_none() {
            self.policy.ending()
        } else {
            Ending::LockLost
        };
        let (outer, status, lasted) = (
            cover.is_outer(),
            self.policy.exit_status(),
            clock::now().since(self.started),
        );
        let run = Some(describe_ended(status, lasted));
        let remains = Remains {
            run,
            ..lock.remains.after(ending, self.started, clock::now())
        };
        lock.report.say(&Event::Ended {
            outer,
            status,
            run: lasted,
        });
        let freed = self.give_back(cover, &remains).await;
        self.leader.reap();
        if let Some(error) = &self.unguarded {
            let told = format!(
                "the guard has ended and another cannot be started ({error}); the command was killed"
            );
            return Err(Failure::about(&lock.keys, Outcome::Lost, told).into());
        }
        for (key, freed) in lock.keys.iter().zip(&freed) {
            let report = lock.report.of(key);
            match (freed, remains.parked) {
                (ReleaseOutcome::Ours, Some(parking)) => {
                    report.say(&Event::Parked { left: parking.left });
                }
                // A loss that the policy knows of was reported already.
                _ if !self.policy.was_kept() => {}
                (ReleaseOutcome::NotOurs(how), _) => {
                    report.say(&Event::LostUnnoticed { how: *how });
                }
                _ => report_release(&report, freed),
            }
            if remains.once.is_some() && matches!(freed, ReleaseOutcome::Unconfirmed(_)) {
                report.say(&Event::SuccessUnknown);
            }
        }
        leave_guard(self.guard, lock, &remains, &freed);
        Ok(self.policy.outcome(
            !freed
                .iter()
                .any(|freed| matches!(freed, ReleaseOutcome::NotOurs(_))),
        ))
    }

    /// Gives the locks back. A signal that would have ended the command ends what is repeated.
    async fn give_back(&mut self, cover: Cover, remains: &Remains) -> Vec<ReleaseOutcome> {
        let (hurry, hurried) = watch::channel(false);
        let mut freed = pin!(cover.release(remains, &hurried));
        loop {
            tokio::select! {
                freed = &mut freed => return freed,
                caught = self.signals.next() => {
                    if ENDING.contains(&caught.signal) {
                        hurry.send_replace(true);
                    }
                }
            }
        }
    }

    async fn watch(&mut self, report: &Reporter, cover: &mut Cover) {
        report.say(&Event::Running {
            pid: self.tree.group().as_raw(),
        });
        loop {
            let event = self.next_event(report, cover).await;
            if self.handle(event, cover, report) {
                return;
            }
        }
    }

    /// Waits for the next event. The clock is polled first: after a suspend, its deadline overrules
    /// all other events.
    async fn next_event(&mut self, report: &Reporter, cover: &mut Cover) -> JobEvent {
        let polls = self.policy.awaits_gone();
        let wake_at = self.policy.wake_at();
        let wake_at = if polls {
            wake_at.min(clock::now() + self.poll_pause())
        } else {
            wake_at
        };
        tokio::select! {
            biased;
            () = self.alarm.reached(wake_at.min(self.tells_at)) => {
                let gone = polls && self.is_gone();
                self.report_survivors(polls && !gone, report);
                if gone { JobEvent::Gone } else { JobEvent::Tick }
            }
            (event, lost) = cover.next(report) => {
                if let Some(lock) = lost {
                    self.guard.does_not_hold(lock);
                }
                event.unwrap_or(JobEvent::Tick)
            }
            caught = self.signals.next() => self.caught(caught, report),
            // `handle` admits the runs before the policy gets the tick.
            () = await_nested(self.nested.as_ref()) => JobEvent::Tick,
        }
    }

    fn poll_pause(&mut self) -> Duration {
        let now = clock::now();
        let begin = *self.polling_since.get_or_insert(now);
        process_tree::pause(now.since(begin), process_tree::LONGEST_PAUSE)
    }

    /// Whether no process of the command can run any more. After the kill, processes that still
    /// appear are killed too.
    fn is_gone(&mut self) -> bool {
        if self.killed {
            self.tree.kill_living().unwrap_or(false)
        } else {
            self.tree.count().is_ok_and(|count| count == 0)
        }
    }

    fn caught(&mut self, caught: CaughtSignal, report: &Reporter) -> JobEvent {
        if caught.signal != Signal::SIGCHLD {
            if !matches!(caught.signal, Signal::SIGCONT | Signal::SIGWINCH) {
                report.say(&Event::Forwarded {
                    signal: caught.signal,
                });
            }
            return JobEvent::CaughtSignal(caught);
        }
        match self.guard.ensure_alive() {
            Ok(false) => {}
            Ok(true) => {
                self.tree.set_guard(self.guard.pid());
                self.signals
                    .reap_all_but(&[self.guard.pid(), self.leader.group()]);
                report.say(&Event::GuardReplaced);
            }
            Err(error) => self.unguarded = Some(error),
        }
        let foreground = self.terminal.foreground(self.tree.group());
        match (self.leader.exit_status(), self.leader.stop_signal()) {
            (Some(ending), _) => {
                if !self.killed {
                    self.tells_at = clock::now() + PATIENCE;
                }
                JobEvent::Ended(ending, foreground)
            }
            (None, Some(signal)) => JobEvent::Stopped(signal, foreground),
            (None, None) => JobEvent::Tick,
        }
    }

    /// Passes `event` to the policy and carries out its actions. Returns whether the command is
    /// over.
    fn handle(&mut self, event: JobEvent, cover: &Cover, report: &Reporter) -> bool {
        let mut events = vec![event];
        // The policy must hear of each admitted run before the command's end, so that the lock is
        // kept for it. No run is admitted between two events, when the lock is lost, or once the
        // listener is closed.
        if !matches!(event, JobEvent::Lease(LeaseChange::Lost(_))) {
            events.extend(self.admit_nested().map(JobEvent::Nested));
        }
        events.extend(self.unguarded.is_some().then_some(JobEvent::Unguarded));
        while let Some(event) = events.pop() {
            let actions = self.policy.on(event, clock::now());
            if let Err(error) = self.extend_guard()
                && self.unguarded.replace(error).is_none()
            {
                events.push(JobEvent::Unguarded);
            }
            self.send_to_nested();
            for action in actions {
                match action {
                    JobAction::Finish => {
                        self.nested = None;
                        return true;
                    }
                    JobAction::Suspend(signal) => events.push(self.suspend(signal, false)),
                    JobAction::SuspendJob(signal) => events.push(self.suspend(signal, true)),
                    _ => self.act(action, cover, report),
                }
            }
        }
        false
    }

    /// Admits nested runs if the policy welcomes them. Returns whether there are any.
    fn admit_nested(&mut self) -> Option<bool> {
        let welcome = self
            .policy
            .terms_of_nested()
            .filter(|_| self.policy.welcomes_nested());
        self.nested.as_mut().map(|nested| nested.admit(welcome))
    }

    /// Sends the policy's terms to nested runs.
    fn send_to_nested(&mut self) {
        let terms = self.policy.terms_of_nested();
        if let Some(nested) = &mut self.nested {
            nested.send(terms);
            if terms.is_none() {
                self.note_kill();
            }
        }
    }

    fn note_kill(&mut self) {
        if !std::mem::replace(&mut self.killed, true) {
            self.tells_at = clock::now() + PATIENCE;
        }
    }

    fn extend_guard(&mut self) -> std::io::Result<()> {
        if self.policy.is_over() {
            Ok(())
        } else {
            self.guard.extend(self.policy.guard_kills_at())
        }
    }

    fn act(&mut self, action: JobAction, cover: &Cover, report: &Reporter) {
        match action {
            JobAction::Send(signal) => self.tree.send(signal),
            JobAction::SendAndContinue(signal) => {
                self.tree.send(signal);
                self.tree.send(Signal::SIGCONT);
            }
            JobAction::Continue => self.tree.send(Signal::SIGCONT),
            JobAction::Kill => {
                self.tree.kill();
                self.note_kill();
            }
            JobAction::GiveTerminal => self.terminal.give(self.tree.group()),
            JobAction::InterruptJob(signal) => {
                self.terminal.take_back(self.tree.group());
                // rlock gets it too and forwards it no more; it re-raises it once the lock is
                // released.
                let _ = killpg(getpgrp(), signal);
            }
            JobAction::SayLost(reaction) => {
                let (lock, why) = cover.loss_cause(self.policy.loss());
                report.of(&report.keys[lock]).say(&Event::Lost {
                    why: &why,
                    reaction,
                });
            }
            JobAction::SayTimeIsUp => report.say(&Event::TimeIsUp),
            JobAction::SayLingering => {
                // The leader has ended, so the terminal's signals are for rlock now.
                self.terminal.take_back(self.tree.group());
                report.say(&Event::Lingering);
            }
            // `handle` carries these out.
            JobAction::Suspend(_) | JobAction::SuspendJob(_) | JobAction::Finish => {}
        }
    }

    /// Stops rlock. Returns after SIGCONT, or at once if the kernel discards the stop.
    fn suspend(&mut self, signal: Signal, whole_job: bool) -> JobEvent {
        self.terminal.take_back(self.tree.group());
        let continued = self.signals.suspend(signal, whole_job);
        JobEvent::Resumed(self.terminal.foreground(self.tree.group()), continued)
    }

    /// Tells once of processes of the command if they are `there` some time after its end or the
    /// kill, and of nested runs after that.
    fn report_survivors(&mut self, there: bool, report: &Reporter) {
        if clock::now() < self.tells_at {
            return;
        }
        self.tells_at = Instant::NEVER;
        if self.killed && self.nested.as_ref().is_some_and(NestedRuns::has_any) {
            report.say(&Event::NestedUnkillable);
        }
        if there && self.killed {
            report.say(&Event::Unkillable {
                group: self.tree.group().as_raw(),
            });
        } else if there {
            report.progress(&Event::EndingLeftovers {
                count: self.tree.count().unwrap_or(0),
            });
        }
    }
}

/// Returns a command that has ended just now, for the record.
fn describe_ended(status: Option<ExitStatus>, lasted: Duration) -> Run {
    let (exit, signal) = status.map_or((None, None), ExitStatus::parts);
    let end = clock::unix_millis(SystemTime::now());
    Run {
        start: end.saturating_sub(millis(lasted)),
        end,
        exit,
        signal,
        ..Run::default()
    }
}

/// Ends the guard, or leaves it the locks whose release no majority has confirmed. It parks none,
/// and knows of no success.
fn leave_guard(guard: Guard, lock: &LockSettings, remains: &Remains, freed: &[ReleaseOutcome]) {
    let is_open = |freed: &ReleaseOutcome| matches!(freed, ReleaseOutcome::Unconfirmed(_));
    let leaves = remains.parked.is_some() || remains.once.is_some();
    if !heir::gives_back(lock) || leaves || !freed.iter().any(is_open) {
        return;
    }
    for (which, _) in freed
        .iter()
        .enumerate()
        .filter(|(_, freed)| !is_open(freed))
    {
        guard.does_not_hold(which);
    }
    guard.outlive();
}

async fn await_nested(nested: Option<&NestedRuns>) {
    match nested {
        Some(nested) => nested.changed().await,
        None => std::future::pending().await,
    }
}
