//! The state that rlock inherited: signal dispositions, the signal mask, which of descriptors 0 to
//! 2 were open.
//!
//! The command must inherit the same: nohup's ignored HUP, a supervisor's closed stdin.

use std::io;
use std::os::fd::IntoRawFd;

use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::stat::Mode;

use super::signals::{IGNORED, changed};

fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action sigaction only writes the present one to `action`, which is zeroed
    // and so initialised whatever it returns.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

fn is_closed(fd: i32) -> bool {
    // SAFETY: F_GETFD reads a flag of a descriptor; the error is EBADF if it is closed.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == -1 }
}

#[derive(Clone, Debug)]
pub struct Inherited {
    mask: SigSet,
    ignored: Vec<Signal>,
    closed: Vec<i32>,
}

impl Inherited {
    /// Captures the inherited state, then does for rlock what Rust's runtime does before `main`,
    /// and more. Must be called before any file is opened or any handler set.
    /// 1. Unblock all signals.
    /// 2. Ignore the signals of a failed write: it is an error, not rlock's death.
    /// 3. Open `/dev/null` in the place of each closed descriptor from 0 to 2, so that no file of
    ///    rlock's becomes its stdout or stderr. Writing to one that was closed still fails.
    pub fn capture() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        sigprocmask(
            SigmaskHow::SIG_SETMASK,
            Some(&SigSet::empty()),
            Some(&mut mask),
        )?;
        let inherited = Self {
            mask,
            ignored: changed()
                .filter(|signal| is_ignored(*signal as i32))
                .collect(),
            closed: (0..3).filter(|fd| is_closed(*fd)).collect(),
        };
        for which in IGNORED {
            // SAFETY: no handler is installed.
            unsafe { signal(which, SigHandler::SigIgn) }?;
        }
        for fd in &inherited.closed {
            let access = if *fd == libc::STDIN_FILENO {
                OFlag::O_RDWR
            } else {
                OFlag::O_RDONLY
            };
            // open(2) takes the lowest free number, which is `fd`.
            let _ = open("/dev/null", access, Mode::empty())?.into_raw_fd();
        }
        Ok(inherited)
    }

    /// Whether `signal` was ignored. It then stays ignored, for rlock and for the command.
    pub fn ignored(&self, signal: Signal) -> bool {
        self.ignored.contains(&signal)
    }

    /// Restores the inherited state. For a child before exec: allocates nothing, makes
    /// async-signal-safe calls only.
    pub fn restore(&self) -> io::Result<()> {
        for which in changed() {
            let action = if self.ignored(which) {
                SigHandler::SigIgn
            } else {
                SigHandler::SigDfl
            };
            // SAFETY: no handler is installed; rlock's are removed before the mask could let them
            // run here.
            unsafe { signal(which, action) }?;
        }
        for fd in &self.closed {
            // SAFETY: this is the /dev/null that `capture` opened; nothing in the child uses it.
            unsafe { libc::close(*fd) };
        }
        self.mask.thread_set_mask()?;
        Ok(())
    }
}
