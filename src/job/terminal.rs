//! The controlling terminal: its foreground group, and handing it over.
//!
//! The command has a group of its own, so it cannot read the terminal until rlock gives it. rlock
//! gives it when the kernel stops the command with SIGTTIN or SIGTTOU, as sudo does. Until then
//! less has it in `rlock run … | less`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::policy::Foreground;

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub struct Terminal {
    tty: Option<File>,
}

impl Terminal {
    pub fn open() -> Self {
        let flags = libc::O_CLOEXEC | libc::O_NOCTTY;
        Self {
            tty: OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open("/dev/tty")
                .ok(),
        }
    }

    /// Returns whether rlock, the command of `group` or another job is in the foreground.
    pub fn foreground(&self, group: Pid) -> Foreground {
        match self.tty.as_ref().and_then(|tty| tcgetpgrp(tty).ok()) {
            Some(owner) if owner == getpgrp() => Foreground::Rlock,
            Some(owner) if owner == group => Foreground::Command,
            Some(_) => Foreground::OtherJob,
            None => Foreground::NoTerminal,
        }
    }

    /// Makes `group` the foreground group.
    pub fn give(&self, group: Pid) {
        if let Some(tty) = &self.tty {
            let _ = tcsetpgrp(tty, group);
        }
    }

    /// Takes the terminal back if `group` has it.
    pub fn take_back(&self, group: Pid) {
        if self.foreground(group) == Foreground::Command {
            self.give(getpgrp());
        }
    }
}

/// Blocks SIGTTOU, which would stop rlock in the background when it hands the terminal over, or
/// writes to one with `tostop` (tcsetpgrp(3)). The command gets the inherited mask.
pub fn block_sigttou() {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    let _ = mask.thread_block();
}
