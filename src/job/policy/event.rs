//! The policy's words: the events that it receives, the actions that it returns, and the facts in
//! both. Plain values.

use clap::ValueEnum;
use nix::sys::signal::Signal;

use crate::lock::instant::Instant;
use crate::lock::lease::Loss;
use crate::lock::schedule::Terms;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEvent {
    /// The lease was renewed and ends at this instant.
    Extended(Instant),
    /// An outer rlock, which keeps the lease of this nested run, has sent new terms.
    TermsReceived(Terms),
    /// The lease is lost, for good.
    Lost(Loss),
    /// After a loss: our token is set again on a majority, so no other client gets the lock before
    /// this instant.
    Shielded(Instant),
    /// After a loss: our token could not be set again.
    Unshielded,
    CaughtSignal(CaughtSignal),
    /// This signal stopped the command's first process, while the terminal was in these hands.
    Stopped(Signal, Foreground),
    /// rlock had to suspend itself and runs again; the terminal is in these hands now.
    Resumed(Foreground, Continued),
    /// The command's first process has ended, while the terminal was in these hands.
    Ended(ExitStatus, Foreground),
    /// [`super::Policy::wake_at`] may have come.
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
