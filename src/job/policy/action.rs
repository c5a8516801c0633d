//! The actions that the policy returns: one value for each thing that the supervisor can do.

use nix::sys::signal::Signal;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this signal to the command.
    Send(Signal),
    /// Send this signal and then SIGCONT, so that stopped processes act on it.
    SendAndContinue(Signal),
    /// Send SIGKILL to every process of the command.
    Kill,
    /// Make the command's group the terminal's foreground group.
    GiveTerminal,
    /// Take the terminal back, and stop rlock's whole process group with the signal that stopped the command.
    SuspendJob(Signal),
    /// Stop rlock alone with this signal: the terminal or the shell has stopped the rest of its job.
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
