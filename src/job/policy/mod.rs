//! Decides what happens to the command: event and state in, actions out (docs/design.md §4, §5).
//!
//! Pure: no clock, no random number, no I/O. The caller passes every instant in, so that the tests
//! can try every short history. [`ending`] reacts to renewals and losses, to deadlines and to the
//! command's end, [`job_control`] to signals and the terminal, [`nested`] to runs under an outer lock.

mod ending;
mod job_control;
mod nested;

use std::time::Duration;

use clap::ValueEnum;
use nix::sys::signal::Signal;

use self::ending::LeaseStatus;
use self::nested::Nested;
use crate::lock::instant::Instant;
use crate::lock::lease::{LeaseChange, Loss};
use crate::lock::schedule::{Schedule, Terms};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEvent {
    /// The lease has changed.
    Lease(LeaseChange),
    /// An outer rlock, which keeps the lease of this nested run, has sent new terms.
    TermsReceived(Terms),
    CaughtSignal(CaughtSignal),
    /// This signal stopped the command's first process, while the terminal was in these hands.
    Stopped(Signal, Foreground),
    /// rlock had to suspend itself and runs again; the terminal is in these hands now.
    Resumed(Foreground, Continued),
    /// The command's first process has ended, while the terminal was in these hands.
    Ended(ExitStatus, Foreground),
    /// [`Policy::wake_at`] may have come.
    Tick,
    /// No process of the command can run any more.
    Gone,
    /// Whether nested runs rely on the lease.
    Nested(bool),
    /// The guard has ended, and another one cannot be started.
    Unguarded,
}

/// Why rlock runs again after it tried to suspend itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Continued {
    BySigcont,
    /// It never stopped: in an orphaned process group (`ssh -t` without a shell) the kernel
    /// discards the signal.
    NeverStopped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobAction {
    /// Send this signal to the command.
    Send(Signal),
    /// Send this signal and then SIGCONT, so that stopped processes act on it.
    SendAndContinue(Signal),
    /// Send SIGKILL to every process of the command.
    Kill,
    /// Make the command's group the terminal's foreground group.
    GiveTerminal,
    /// Take the terminal back, and stop rlock's whole process group with the signal that stopped
    /// the command.
    SuspendJob(Signal),
    /// Stop rlock alone with this signal: the terminal or the shell has stopped the rest of its
    /// job.
    Suspend(Signal),
    /// Send SIGCONT to the command.
    Continue,
    /// Send rlock's process group the signal with which the terminal interrupted the command.
    InterruptJob(Signal),
    /// Report that the lock is lost, and the reaction.
    SayLost(Reaction),
    /// Report that `--max-run` is over.
    SayTimeIsUp,
    /// Report that the command has ended and that the lock is kept for nested runs.
    SayLingering,
    /// Give the lock back; nothing more will be done.
    Finish,
}

/// The reaction to a loss, for its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// `--signal` was sent.
    Signalled,
    /// SIGKILL was sent at once.
    Killed,
    /// `--on-lost warn`: nothing was sent.
    Ignored,
}

/// How the command's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// Exit code.
    Exited(u8),
    /// Number of the signal that ended it.
    Killed(i32),
}

impl ExitStatus {
    /// Returns the exit code, or the signal: `SIGTERM`, or the number of one without a name.
    pub fn parts(self) -> (Option<u8>, Option<String>) {
        match self {
            Self::Exited(code) => (Some(code), None),
            Self::Killed(number) => {
                let name = Signal::try_from(number)
                    .map_or_else(|_| number.to_string(), |signal| signal.as_str().to_owned());
                (None, Some(name))
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaughtSignal {
    pub signal: Signal,
    /// Whether a key on the terminal caused it: then the kernel sent it to the whole foreground
    /// group.
    pub from_terminal: bool,
}

/// The terminal's foreground process group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreground {
    Rlock,
    Command,
    /// Another job's group: rlock runs in the background.
    OtherJob,
    NoTerminal,
}

/// `--on-lost`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum OnLost {
    /// Stop the command before the lock can pass on
    Kill,
    /// Let the command go on and say so
    Warn,
}

/// The options of `run` that the policy obeys.
#[derive(Clone, Copy, Debug)]
pub struct PolicyOptions {
    /// The lease's schedule, with `--kill-after`.
    pub schedule: Schedule,
    /// `--on-lost`.
    pub on_lost: OnLost,
    /// `--signal`.
    pub first_signal: Signal,
    /// `--max-run`.
    pub max_run: Option<Duration>,
    /// `--contain`.
    pub contain: bool,
}

impl PolicyOptions {
    /// Returns the built-in options.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            on_lost: OnLost::Kill,
            first_signal: Signal::SIGTERM,
            max_run: None,
            contain: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The command runs.
    Running,
    /// Command and rlock are stopped, and run again once rlock gets SIGCONT.
    Suspended { gives_terminal: bool },
    /// The first signal was sent; SIGKILL follows at `kill_at`. After a loss `kill_at` may move to
    /// `grace_ends`, if our token shields the lock for that long.
    Stopping {
        signalled: Instant,
        kill_at: Instant,
        grace_ends: Instant,
    },
    /// SIGKILL was sent; the end of all processes is waited for.
    Killed,
    /// Nothing is left to do.
    Over,
}

#[derive(Clone, Debug)]
pub struct Policy {
    options: PolicyOptions,
    /// When the lease requires a signal and a kill, as last heard.
    terms: Terms,
    /// End of `--max-run`.
    run_deadline: Instant,
    phase: Phase,
    lease: LeaseStatus,
    /// The last loss that was heard of.
    loss: Option<Loss>,
    timed_out: bool,
    exit_status: Option<ExitStatus>,
    /// The signal with which the terminal interrupted rlock.
    interrupted: Option<Signal>,
    /// The last terminating signal that was forwarded.
    last_forwarded: Option<Signal>,
    /// A SIGTSTP was forwarded, and no SIGCONT since.
    tstp_forwarded: bool,
    nested: Nested,
}

impl Policy {
    /// The policy of a command that starts `now` under a lease that ends at `deadline`.
    pub fn new(options: PolicyOptions, deadline: Instant, now: Instant) -> Self {
        Self::under(options, options.schedule.terms(deadline), now)
    }

    fn under(options: PolicyOptions, terms: Terms, now: Instant) -> Self {
        Self {
            options,
            terms,
            run_deadline: options.max_run.map_or(Instant::NEVER, |span| now + span),
            phase: Phase::Running,
            lease: LeaseStatus::Kept,
            loss: None,
            timed_out: false,
            exit_status: None,
            interrupted: None,
            last_forwarded: None,
            tstp_forwarded: false,
            nested: Nested::None,
        }
    }

    /// The instant at which [`JobEvent::Tick`] is due.
    pub fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Running | Phase::Suspended { .. } => {
                self.lease_deadline().min(self.run_deadline)
            }
            Phase::Stopping { kill_at, .. } => kill_at.min(self.kill_deadline()),
            Phase::Killed | Phase::Over => Instant::NEVER,
        }
    }

    /// The instant at which the guard kills the command if rlock has not done so.
    pub fn guard_kills_at(&self) -> Instant {
        match self.phase {
            Phase::Stopping { .. } => self.wake_at(),
            _ => self.kill_deadline(),
        }
    }

    /// The instant at which the command must be dead if the lease is not extended.
    fn kill_deadline(&self) -> Instant {
        match self.options.on_lost {
            OnLost::Kill => self.terms.kill_at,
            OnLost::Warn => Instant::NEVER,
        }
    }

    /// Whether the caller must poll for the end of all the command's processes, and send
    /// [`JobEvent::Gone`].
    pub fn awaits_gone(&self) -> bool {
        match self.phase {
            // Background processes that the command left may go on.
            _ if self.lingers() => false,
            Phase::Killed => true,
            Phase::Stopping { .. } => self.exit_status.is_some(),
            _ => false,
        }
    }

    /// Returns how the command's first process has ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.exit_status
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Applies `event` and returns what to do about it.
    pub fn on(&mut self, event: JobEvent, now: Instant) -> Vec<JobAction> {
        if let JobEvent::Lease(LeaseChange::Lost(loss)) = event {
            self.loss = Some(loss);
        }
        if self.is_over() {
            return vec![];
        }
        // The clock comes first: a command whose time is over is not continued, whatever else has
        // happened. A renewal counts before the clock until the guard has fired.
        let mut actions = match event {
            JobEvent::Lease(LeaseChange::Extended(_)) | JobEvent::TermsReceived(_)
                if now < self.guard_kills_at() =>
            {
                vec![]
            }
            JobEvent::Ended(..) | JobEvent::Gone => vec![],
            _ => self.tick(now),
        };
        if self.phase != Phase::Killed
            || matches!(
                event,
                JobEvent::Ended(..) | JobEvent::Gone | JobEvent::Nested(_)
            )
        {
            actions.extend(self.apply(event, now));
        }
        if self.lingers() {
            actions.retain(|action| nested::concerns_rlock(*action));
        }
        actions
    }

    fn apply(&mut self, event: JobEvent, now: Instant) -> Vec<JobAction> {
        match event {
            JobEvent::Tick => vec![],
            JobEvent::Lease(change) => self.lease_changed(change, now),
            JobEvent::TermsReceived(terms) => self.terms_received(terms),
            JobEvent::Nested(any) => self.nested_changed(any),
            JobEvent::CaughtSignal(caught) if self.lingers() => self.caught_lingering(caught, now),
            JobEvent::CaughtSignal(caught) => self.caught(caught),
            JobEvent::Stopped(signal, foreground) => self.stopped(signal, foreground),
            JobEvent::Resumed(foreground, continued) => self.resumed(foreground, continued),
            JobEvent::Ended(status, foreground) => self.ended(status, foreground, now),
            JobEvent::Gone => self.gone(),
            JobEvent::Unguarded => self.kill(),
        }
    }

    fn stop(&mut self, now: Instant, kill_at: Instant, grace_ends: Instant) -> Vec<JobAction> {
        self.phase = Phase::Stopping {
            signalled: now,
            kill_at,
            grace_ends,
        };
        vec![JobAction::SendAndContinue(self.options.first_signal)]
    }

    /// Stops the command with `--kill-after` as given: the lease is renewed meanwhile, so the grace
    /// need not fit into it.
    fn stop_with_full_grace(&mut self, now: Instant) -> Vec<JobAction> {
        let grace_ends = now + self.options.schedule.kill_after();
        self.stop(now, grace_ends, grace_ends)
    }

    fn kill(&mut self) -> Vec<JobAction> {
        self.phase = Phase::Killed;
        vec![JobAction::Kill]
    }

    fn finish(&mut self) -> Vec<JobAction> {
        self.phase = Phase::Over;
        vec![JobAction::Finish]
    }
}

#[cfg(test)]
mod tests;
