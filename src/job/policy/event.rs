//! The events that the policy receives: one value for each thing that can happen beside a running command.

use nix::sys::signal::Signal;

use crate::job::facts::{CaughtSignal, ExitStatus, Foreground};
use crate::lock::instant::Instant;
use crate::lock::lease::Loss;
use crate::lock::schedule::Terms;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The lease was renewed and ends at this instant.
    Extended(Instant),
    /// An outer rlock, which keeps the lease of this nested run, has sent new terms.
    TermsReceived(Terms),
    /// The lease is lost, for good.
    Lost(Loss),
    /// After a loss: our token is set again on a majority, so no other client gets the lock before this instant.
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
}

/// Why rlock runs again after it tried to suspend itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Continued {
    BySigcont,
    /// It never stopped: in an orphaned process group (`ssh -t` without a shell) the kernel discards the signal.
    NeverStopped,
}
