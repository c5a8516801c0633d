//! Starting the command: exec'd directly, in a process group of its own, with everything as rlock found it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::found::Found;

/// How the command's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It exited with this code.
    Exited(u8),
    /// This signal ended it.
    Killed(i32),
}

/// The command's first process, which leads its group.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
}

impl Leader {
    /// Starts `argv` with `environment` added to rlock's own. Returns once it has been exec'd, or could not be.
    pub fn start(argv: &[OsString], environment: &[(&str, OsString)], found: &Found) -> io::Result<Self> {
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
        // With nothing to put back the standard library can spawn without copying our page tables.
        if found.differs_from_default() {
            let found = found.clone();
            // SAFETY: `put_back` allocates nothing and makes async-signal-safe calls only.
            unsafe { command.pre_exec(move || found.put_back()) };
        }
        let pid = command.spawn()?.id();
        Ok(Self { pid: Pid::from_raw(pid.cast_signed()) })
    }

    /// The process group's id, which is the leader's pid.
    pub fn group(&self) -> Pid {
        self.pid
    }

    /// How it ended, if it did. The zombie is left: as long as it is there, the kernel gives its number, by which we
    /// signal the group, to nobody else.
    pub fn ending(&self) -> Option<Ending> {
        match waitid(Id::Pid(self.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => Some(Ending::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ending::Killed(signal as i32)),
            _ => None,
        }
    }
}
