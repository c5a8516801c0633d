//! What is seen of the command, its terminal and the signals: plain values, for `policy` to decide on.

use clap::ValueEnum;
use nix::sys::signal::Signal;

/// How the command's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// It exited with this code.
    Exited(u8),
    /// This signal ended it.
    Killed(i32),
}

/// A signal that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaughtSignal {
    /// Which.
    pub signal: Signal,
    /// Sent by the kernel, which for these means: by a key on the terminal, to the whole foreground job.
    pub from_terminal: bool,
}

/// Whose the terminal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreground {
    /// rlock's group's.
    Ours,
    /// The command's group's.
    Commands,
    /// Another job's: we are in the background.
    Anothers,
    /// There is no terminal.
    Nobodys,
}

/// `--on-lost`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum OnLost {
    /// Stop the command before the lock can pass on
    Kill,
    /// Let the command go on and say so
    Warn,
}
