//! Starting the command: exec'd directly, in a process group of its own, with everything as rlock found it.

use std::io;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getppid, setpgid};

use super::event::ExitStatus;
use super::exec::Image;
use super::guard::Guard;
use super::inherited::Inherited;
use crate::clock;
use crate::lock::instant::Instant;

/// The lease was over before the command could be started.
pub const TOO_LATE: i32 = libc::ETIMEDOUT;

/// The command's first process, which leads its group.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
}

impl Leader {
    /// Starts `image`, to be killed by `guard` at `kill_at` at the latest. Returns once it has been exec'd, or could not be.
    pub fn start(image: Image, inherited: &Inherited, guard: &Guard, kill_at: Instant) -> io::Result<Self> {
        let rlock = nix::unistd::getpid();
        let prepare = || {
            setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            // For the case that rlock and its guard are killed at once. It fires at the end of the thread that forks,
            // which is rlock's first and lasts as long as rlock; rlock may have died before it was set.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != rlock {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            guard.announce(kill_at)?;
            inherited.restore()?;
            // The machine may have stood still since the lock was won.
            if clock::now() >= kill_at { Err(io::Error::from_raw_os_error(TOO_LATE)) } else { Ok(()) }
        };
        // Its number will be another's, perhaps before we can say so.
        let fail = || guard.dismiss();
        // SAFETY: all of that is system calls and a number, and nothing is allocated: an error of the system is a number too.
        let pid = unsafe { image.start(prepare, fail) }?;
        Ok(Self { pid })
    }

    /// The process group's id, which is the leader's pid.
    pub fn group(&self) -> Pid {
        self.pid
    }

    /// How it ended, if it did. The zombie is left: as long as it is there, the kernel gives its number, by which we
    /// signal the group, to nobody else.
    pub fn ending(&self) -> Option<ExitStatus> {
        match waitid(Id::Pid(self.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => Some(ExitStatus::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitStatus::Killed(signal as i32)),
            _ => None,
        }
    }

    /// The signal that stopped it, told once for each stop.
    pub fn stop(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Leaves no zombie of it.
    pub fn reap(self) {
        let _ = nix::sys::wait::waitpid(self.pid, None);
    }
}
