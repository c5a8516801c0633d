//! What rlock found when it was started: signal dispositions, the signal mask, which of descriptors 0 to 2 were open.
//!
//! The command is to find the same: nohup's ignored HUP, a supervisor's closed stdin.

use std::io;
use std::os::fd::IntoRawFd;

use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::stat::Mode;

use super::signals::{PASSED_ON, WITH_COMMAND};

/// Whether `signal` is ignored now.
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action sigaction only writes the present one to `action`, which is zeroed and so initialised
    // whatever it returns.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Death for a failed write: of a reader that has gone, of a file at its limit. For rlock each is an error.
const IGNORED: [Signal; 2] = [Signal::SIGPIPE, Signal::SIGXFSZ];

/// All that rlock gives another disposition.
fn changed() -> impl Iterator<Item = Signal> {
    PASSED_ON.into_iter().chain(WITH_COMMAND).chain(IGNORED).chain([Signal::SIGCHLD])
}

fn is_closed(fd: i32) -> bool {
    // SAFETY: F_GETFD reads a flag of a descriptor, and says EBADF if there is none.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == -1 }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Inherited {
    mask: SigSet,
    ignored: Vec<Signal>,
    closed: Vec<i32>,
}

impl Inherited {
    /// Looks, and then does for rlock itself what Rust's runtime does before its `main`, and a little more. A write that
    /// fails is an error and no death. Descriptors 0 to 2 are open, so that nothing that rlock opens is taken for its
    /// stdout or stderr; writing to one that was closed fails. All signals are unblocked. To be called before anything
    /// is opened or any handler set.
    pub fn capture() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), Some(&mut mask))?;
        let found = Self {
            mask,
            ignored: changed().filter(|signal| is_ignored(*signal as i32)).collect(),
            closed: (0..3).filter(|fd| is_closed(*fd)).collect(),
        };
        for which in IGNORED {
            // SAFETY: no handler is installed.
            unsafe { signal(which, SigHandler::SigIgn) }?;
        }
        for fd in &found.closed {
            let access = if *fd == libc::STDIN_FILENO { OFlag::O_RDWR } else { OFlag::O_RDONLY };
            // The lowest number that is free is the next of them.
            let _ = open("/dev/null", access, Mode::empty())?.into_raw_fd();
        }
        Ok(found)
    }

    /// Whether `signal` was ignored; then it stays so, for rlock and for the command.
    pub fn ignored(&self, signal: Signal) -> bool {
        self.ignored.contains(&signal)
    }

    /// Puts back what was found. For a child before exec: no allocation, only async-signal-safe calls.
    pub fn restore(&self) -> io::Result<()> {
        for which in changed() {
            let action = if self.ignored(which) { SigHandler::SigIgn } else { SigHandler::SigDfl };
            // SAFETY: no handler is installed; rlock's go, before the mask would let them run here.
            unsafe { signal(which, action) }?;
        }
        for fd in &self.closed {
            // SAFETY: /dev/null was opened here for rlock; in the child nothing uses it.
            unsafe { libc::close(*fd) };
        }
        self.mask.thread_set_mask()?;
        Ok(())
    }
}
