//! waitid(2) for every signal there is. nix knows no real-time signals: of a child that one killed it only says EINVAL.

use std::io;

use nix::unistd::Pid;

/// The children to wait for.
#[derive(Clone, Copy)]
pub(super) enum Of {
    One(Pid),
    All,
}

/// A change of a child's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Its exit code.
    Exited(i32),
    /// Number of the signal that ended it.
    Killed(i32),
    /// Number of the signal that stopped it.
    Stopped(i32),
}

/// Returns the next change of a child's state without waiting for it, or `None` if there is none. `flags`: those of
/// waitid(2).
pub(super) fn peek(of: Of, flags: i32) -> io::Result<Option<(Pid, Change)>> {
    let (kind, id) = match of {
        Of::One(pid) => (libc::P_PID, pid.as_raw().unsigned_abs()),
        Of::All => (libc::P_ALL, 0),
    };
    // SAFETY: a siginfo_t of zeros is a valid one, and waitid writes to nothing else.
    let (result, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(kind, id, &raw mut info, flags | libc::WNOHANG), info)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid(2) sets both fields, or leaves the pid at zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let change = match info.si_code {
        _ if pid == 0 => return Ok(None),
        libc::CLD_EXITED => Change::Exited(status),
        libc::CLD_STOPPED | libc::CLD_TRAPPED => Change::Stopped(status),
        _ => Change::Killed(status),
    };
    Ok(Some((Pid::from_raw(pid), change)))
}
