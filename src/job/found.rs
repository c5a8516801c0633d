//! What rlock found when it was started: signal dispositions, the signal mask, which of descriptors 0 to 2 were open.
//!
//! The command is to find the same (nohup's ignored HUP, a supervisor's closed stdin), but Rust's runtime ignores
//! SIGPIPE and opens /dev/null in place of closed descriptors before `main`, so the look is taken before the runtime's.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, sigprocmask};

use super::signals::{PASSED_ON, WITH_COMMAND};

/// Taken before `main`.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

// SAFETY: the section holds pointers to functions that the C runtime calls before `main`; this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    SIGPIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: F_GETFD reads a flag of a descriptor, and says EBADF if there is none.
        closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
}

/// Whether `signal` is ignored now. Needs no allocation: it also runs before `main`.
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

/// All that rlock, or Rust's runtime, gives another disposition.
fn changed() -> impl Iterator<Item = Signal> {
    PASSED_ON.into_iter().chain(WITH_COMMAND).chain([Signal::SIGCHLD, Signal::SIGPIPE])
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    mask: SigSet,
    ignored: Vec<Signal>,
    closed: Vec<i32>,
}

impl Found {
    /// Looks, and unblocks all signals for rlock itself. To be called before any handler is set.
    pub fn take() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), Some(&mut mask))?;
        let before_main = |signal: &Signal| match signal {
            Signal::SIGPIPE => SIGPIPE_IGNORED.load(Ordering::Relaxed),
            other => is_ignored(*other as i32),
        };
        let closed =
            (0..).zip(&CLOSED).filter(|(_, closed)| closed.load(Ordering::Relaxed)).map(|(fd, _)| fd).collect();
        Ok(Self { mask, ignored: changed().filter(before_main).collect(), closed })
    }

    /// Whether `signal` was ignored; then it stays so, for rlock and for the command.
    pub fn ignored(&self, signal: Signal) -> bool {
        self.ignored.contains(&signal)
    }

    /// Puts back what was found. For a child before exec: no allocation, only async-signal-safe calls.
    pub fn put_back(&self) -> io::Result<()> {
        for signal in changed() {
            let action = if self.ignored(signal) { SigHandler::SigIgn } else { SigHandler::SigDfl };
            // SAFETY: no handler is installed; rlock's go, before the mask would let them run here.
            unsafe { nix::sys::signal::signal(signal, action) }?;
        }
        for fd in &self.closed {
            // SAFETY: the runtime opened /dev/null here for rlock; in the child nothing uses it.
            unsafe { libc::close(*fd) };
        }
        self.mask.thread_set_mask()?;
        Ok(())
    }
}
