//! Starting the command: exec'd directly, in a process group of its own, with everything as rlock inherited it.

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, Pid, access, getppid, setpgid};

use super::guard::Guard;
use super::inherited::Inherited;
use super::policy::ExitStatus;
use crate::clock;
use crate::lock::instant::Instant;

/// The search path if PATH is unset (execvp(3)).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

unsafe extern "C" {
    /// environ(7): pointers to strings, the last one null.
    static mut environ: *mut *mut c_char;
}

/// The arguments of execve(2).
pub struct Image {
    argv: Vec<OsString>,
    environment: Vec<CString>,
}

impl Image {
    /// Prepares `argv` with rlock's own environment.
    pub fn new(argv: &[OsString]) -> Self {
        Self { argv: argv.to_vec(), environment: environment() }
    }

    /// Sets the environment variable `name`.
    pub fn set(&mut self, name: &str, value: &OsStr) -> io::Result<()> {
        self.unset(name);
        let entry = [OsStr::new(name), value].join(OsStr::new("="));
        self.environment.push(CString::new(entry.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?);
        Ok(())
    }

    /// Removes the environment variable `name`.
    pub fn unset(&mut self, name: &str) {
        let name = [name, "="].concat();
        self.environment.retain(|entry| !entry.as_bytes().starts_with(name.as_bytes()));
    }

    /// Runs `prepare` in a new process and executes the program there. Returns after the exec, or with the error.
    ///
    /// # Safety
    /// `prepare` runs in a fork of a process with threads: it may make system calls, and must neither allocate nor panic.
    pub unsafe fn start(
        &self,
        prepare: impl Fn() -> io::Result<()> + Clone + Send + Sync + 'static,
    ) -> io::Result<Pid> {
        let entries = self.environment.iter().map(|entry| entry.as_ptr().cast_mut());
        let mut pointers: Vec<*mut c_char> = entries.chain([ptr::null_mut()]).collect();
        let mut execute = |mut command: Command| -> io::Result<Pid> {
            let (prepare, entries) = (prepare.clone(), AtomicPtr::new(pointers.as_mut_ptr()));
            // SAFETY: the caller promises it for `prepare`, and a pointer is stored.
            unsafe {
                command.pre_exec(move || {
                    prepare()?;
                    environ = entries.load(Relaxed);
                    Ok(())
                })
            };
            Ok(Pid::from_raw(command.spawn()?.id().cast_signed()))
        };
        let (program, arguments) = self.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments);
        match execute(command) {
            // A script without `#!`. glibc's execvp(3) has a shell run it, and musl's does not.
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let script = candidates(program).into_iter().find(|path| access(path, AccessFlags::X_OK).is_ok());
                let mut shell = Command::new("/bin/sh");
                shell.arg(script.ok_or(error)?).args(arguments);
                execute(shell)
            }
            started => started,
        }
    }
}

/// The error of a command that could not be started before the lease was over.
pub const TOO_LATE: i32 = libc::ETIMEDOUT;

/// The command's first process, which leads its group.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
}

impl Leader {
    /// Starts `image` and arms `guard` to kill it at `kill_at`. Returns after the exec, or with the error that prevented it.
    pub fn start(image: &Image, inherited: &Inherited, guard: &Guard, kill_at: Instant) -> io::Result<Self> {
        let rlock = nix::unistd::getpid();
        let (arm, inherited) = (guard.arming(kill_at), inherited.clone());
        let prepare = move || {
            setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            // In case rlock and its guard are killed at once. It fires when the forking thread ends: rlock's first, which
            // lasts as long as rlock. rlock may have died before the call.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != rlock {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            arm()?;
            inherited.restore()?;
            // The machine may have been suspended since the lock was won.
            if clock::now() >= kill_at { Err(io::Error::from_raw_os_error(TOO_LATE)) } else { Ok(()) }
        };
        // SAFETY: it makes system calls and stores numbers, and allocates nothing: a system error is a number too.
        let started = unsafe { image.start(prepare) };
        Ok(Self { pid: started.inspect_err(|_| guard.disarm())? })
    }

    /// The process group's id, which is the leader's pid.
    pub fn group(&self) -> Pid {
        self.pid
    }

    /// Returns how it ended, if it did. Leaves the zombie: until it is reaped, the kernel does not reuse the group's number.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let Change { code, status, .. } = peek(Some(self.pid), libc::WEXITED | libc::WNOWAIT)?;
        Some(match code {
            libc::CLD_EXITED => ExitStatus::Exited(u8::try_from(status & 0xff).unwrap_or(u8::MAX)),
            _ => ExitStatus::Killed(status),
        })
    }

    /// Returns the signal that stopped it, once for each stop.
    pub fn stop_signal(&self) -> Option<Signal> {
        Signal::try_from(peek(Some(self.pid), libc::WSTOPPED)?.status).ok()
    }

    pub fn reap(self) {
        let _ = nix::sys::wait::waitpid(self.pid, None);
    }
}

/// A change of a child's state.
pub(super) struct Change {
    pub(super) child: Pid,
    /// One of `CLD_EXITED`, `CLD_KILLED`, `CLD_STOPPED` and others of waitid(2).
    code: i32,
    /// Exit code, or number of the signal that ended or stopped it.
    status: i32,
}

/// Returns the next change of the state of `child`, or of any child, without waiting for it. `flags`: those of waitid(2).
///
/// nix knows no real-time signals: of a child that one killed it only says EINVAL.
pub(super) fn peek(child: Option<Pid>, flags: i32) -> Option<Change> {
    let (kind, id) = child.map_or((libc::P_ALL, 0), |pid| (libc::P_PID, pid.as_raw().unsigned_abs()));
    // SAFETY: a siginfo_t of zeros is a valid one, and waitid writes to nothing else.
    let (result, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(kind, id, &raw mut info, flags | libc::WNOHANG), info)
    };
    // SAFETY: waitid(2) sets both fields, or leaves the pid at zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    (result == 0 && pid != 0).then(|| Change { child: Pid::from_raw(pid), code: info.si_code, status })
}

/// Returns the inherited entries unchanged. [`Command`] drops those that have no name or no `=`.
fn environment() -> Vec<CString> {
    // SAFETY: the C runtime sets it, and nothing in rlock changes a variable.
    let mut entry = unsafe { environ };
    let mut entries = Vec::new();
    // SAFETY: it is null after clearenv(3), else an array of strings that ends with null.
    while !entry.is_null() && !unsafe { *entry }.is_null() {
        // SAFETY: as above; there is a next one, since this is not null.
        unsafe {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

/// Returns the first file that exists of those that an exec of `program` tries.
pub fn existing(program: &OsStr) -> Option<PathBuf> {
    candidates(program).into_iter().find(|path| path.exists())
}

/// Returns the files that an exec of `program` tries, in the order of PATH.
fn candidates(program: &OsStr) -> Vec<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.into()];
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    // An empty entry is the current directory.
    env::split_paths(&path).map(|dir| Path::new(".").join(dir).join(program)).collect()
}
