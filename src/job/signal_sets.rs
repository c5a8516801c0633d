//! The signals that rlock handles, and why.

use nix::sys::signal::Signal;

/// Forwarded to the command, and end a wait: sent by users and programs.
const FROM_PROCESSES: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// Forwarded like these, and sent by the kernel though no key was pressed. Timers and CPU limits survive exec
/// (`alarm 60; exec rlock …`).
const FROM_KERNEL: [Signal; 6] =
    [Signal::SIGALRM, Signal::SIGVTALRM, Signal::SIGPROF, Signal::SIGXCPU, Signal::SIGIO, Signal::SIGPWR];

/// Handled only while a command runs.
pub(super) const FOR_COMMAND: [Signal; 3] = [Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// Ignored: a write to a closed pipe, or beyond a file's size limit, is an error and must not end rlock.
pub(super) const IGNORED: [Signal; 2] = [Signal::SIGPIPE, Signal::SIGXFSZ];

/// Returns the signals that rlock forwards to the command and that end a wait. Their default action would end rlock and
/// leave the key for its TTL.
///
/// Signals of a fault in rlock (ABRT, SEGV, SYS, …) are left alone: the guard acts on rlock's death.
pub(super) fn forwarded() -> impl Iterator<Item = Signal> {
    FROM_PROCESSES.into_iter().chain(FROM_KERNEL)
}

/// Returns all signals whose disposition rlock changes.
pub(super) fn changed() -> impl Iterator<Item = Signal> {
    forwarded().chain(FOR_COMMAND).chain(IGNORED).chain([Signal::SIGCHLD])
}

/// Whether the kernel may send `signal` because of a key on the terminal.
pub(super) fn has_key(signal: Signal) -> bool {
    signal != Signal::SIGCHLD && !FROM_KERNEL.contains(&signal)
}
