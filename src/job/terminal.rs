//! The controlling terminal: who has it, and handing it over.
//!
//! The command is in a group of its own, so the terminal is not its to read until it is given. It is given when it is
//! needed, which the kernel says by stopping the command with SIGTTIN or SIGTTOU (as sudo does); until then
//! `rlock run … | less` works, where less has the better claim.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::event::Foreground;

/// rlock's view of its terminal, if it has one.
#[derive(Debug)]
pub struct Terminal {
    tty: Option<File>,
}

impl Terminal {
    /// Looks for the controlling terminal.
    pub fn open() -> Self {
        let flags = libc::O_CLOEXEC | libc::O_NOCTTY;
        Self { tty: OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok() }
    }

    /// Whose it is, as seen by the command that leads `group`.
    pub fn foreground(&self, group: Pid) -> Foreground {
        match self.tty.as_ref().and_then(|tty| tcgetpgrp(tty).ok()) {
            Some(owner) if owner == getpgrp() => Foreground::Rlock,
            Some(owner) if owner == group => Foreground::Command,
            Some(_) => Foreground::OtherJob,
            None => Foreground::NoTerminal,
        }
    }

    /// Gives it to `group`.
    pub fn give(&self, group: Pid) {
        if let Some(tty) = &self.tty {
            let _ = tcsetpgrp(tty, group);
        }
    }

    /// Takes it back from `group`, if that has it.
    pub fn take_back(&self, group: Pid) {
        if self.foreground(group) == Foreground::Command {
            self.give(getpgrp());
        }
    }
}

/// From the background, writing to a terminal with `tostop` and handing it over would stop us with SIGTTOU; blocked, it
/// does neither (tcsetpgrp(3)). The command gets the mask that rlock found.
pub fn write_from_the_background() {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    let _ = mask.thread_block();
}
