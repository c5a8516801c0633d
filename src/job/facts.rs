//! Facts about the command, its terminal and the signals, and the choice `--on-lost`: plain values, from which the events of
//! `policy` are made.

use clap::ValueEnum;
use nix::sys::signal::Signal;

/// How the command's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// Exit code.
    Exited(u8),
    /// Number of the signal that ended it.
    Killed(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaughtSignal {
    pub signal: Signal,
    /// Whether a key on the terminal caused it: then the kernel sent it to the whole foreground group.
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
