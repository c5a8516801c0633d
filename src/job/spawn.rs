//! Starting the command: exec'd directly, in a process group of its own, with the signals and
//! descriptors that rlock [inherited](Inherited).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, Pid, access, getppid, setpgid};

use super::guard::Guard;
use super::policy::ExitStatus;
use super::signals::{IGNORED, changed};
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::lock::instant::Instant;

/// Smallest stack that rlock runs on, in bytes. With less, it may die of SIGSEGV.
const SMALLEST_STACK: u64 = 512 * 1024;

/// The state that rlock inherited: signal dispositions, the signal mask, which of descriptors 0 to
/// 2 were open, the limit of a core dump. The command must inherit the same: nohup's ignored HUP, a
/// supervisor's closed stdin.
#[derive(Clone, Debug)]
pub struct Inherited {
    mask: SigSet,
    ignored: Vec<Signal>,
    closed: Vec<i32>,
    /// Largest core dump: the limit in force, and the one that it may be raised to.
    core: (u64, u64),
}

impl Inherited {
    /// Captures the inherited state, then does for rlock what Rust's runtime does before `main`,
    /// and more. Must be called before any file is opened or any handler set.
    /// 1. Unblock all signals.
    /// 2. Ignore the signals of a failed write: it is an error, not rlock's death.
    /// 3. Open `/dev/null` in the place of each closed descriptor from 0 to 2, so that no file of
    ///    rlock's becomes its stdout or stderr. Writing to one that was closed still fails.
    /// 4. Leave no core dump: rlock and its guards have passwords in memory.
    pub fn capture() -> anyhow::Result<Self> {
        if getrlimit(Resource::RLIMIT_STACK)?.0 < SMALLEST_STACK {
            let why = "the limit of the stack is too low; raise it: ulimit -s 8192";
            return Err(Failure::new(Outcome::System, why).into());
        }
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
            core: getrlimit(Resource::RLIMIT_CORE)?,
        };
        setrlimit(Resource::RLIMIT_CORE, 0, inherited.core.1)?;
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
        setrlimit(Resource::RLIMIT_CORE, self.core.0, self.core.1)?;
        self.mask.thread_set_mask()?;
        Ok(())
    }
}

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

/// The search path if PATH is unset (execvp(3)).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Runs `prepare` in a new process and executes `command` there. Returns after the exec, or with
/// the error.
///
/// # Safety
/// `prepare` runs in a fork of a process with threads: it may make system calls, and must neither
/// allocate nor panic.
unsafe fn execute(
    command: &mut Command,
    prepare: impl FnMut() -> io::Result<()> + Clone + Send + Sync + 'static,
) -> io::Result<Pid> {
    // SAFETY: the caller promises it for `prepare`.
    let spawned = match unsafe { command.pre_exec(prepare.clone()) }.spawn() {
        // A script without `#!`. glibc's execvp(3) has a shell run it, and musl's does not.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            let mut scripts = candidates(command.get_program()).into_iter();
            let script = scripts
                .find(|path| access(path, AccessFlags::X_OK).is_ok())
                .ok_or(error)?;
            let mut shell = Command::new("/bin/sh");
            shell.arg(script).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            // SAFETY: as above.
            unsafe { shell.pre_exec(prepare) }.spawn()
        }
        spawned => spawned,
    };
    Ok(Pid::from_raw(spawned?.id().cast_signed()))
}

/// The error of a command that could not be started before the lease was over.
pub const TOO_LATE: i32 = libc::ETIMEDOUT;

/// The command's first process, which leads its group.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
}

impl Leader {
    /// Starts `command` and arms `guard` to kill it at `kill_at`. Returns after the exec, or with
    /// the error that prevented it.
    pub fn start(
        command: &mut Command,
        inherited: &Inherited,
        guard: &Guard,
        kill_at: Instant,
    ) -> io::Result<Self> {
        let rlock = nix::unistd::getpid();
        let (arm, inherited) = (guard.arming(kill_at), inherited.clone());
        let prepare = move || {
            setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            // In case rlock and its guard are killed at once. It fires when the forking thread
            // ends: rlock's first, which lasts as long as rlock. rlock may have died before the
            // call.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != rlock {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            arm()?;
            inherited.restore()?;
            // The machine may have been suspended since the lock was won.
            if clock::now() >= kill_at {
                Err(io::Error::from_raw_os_error(TOO_LATE))
            } else {
                Ok(())
            }
        };
        // SAFETY: it makes system calls and stores numbers, and allocates nothing: a system error
        // is a number too.
        let started = unsafe { execute(command, prepare) };
        Ok(Self {
            pid: started.inspect_err(|_| guard.disarm())?,
        })
    }

    /// The process group's id, which is the leader's pid.
    pub fn group(&self) -> Pid {
        self.pid
    }

    /// Returns how it ended, if it did. Leaves the zombie: until it is reaped, the kernel does not
    /// reuse the group's number.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let ChildChange { code, status, .. } = peek(Some(self.pid), libc::WEXITED | libc::WNOWAIT)?;
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
pub(super) struct ChildChange {
    pub(super) child: Pid,
    /// One of `CLD_EXITED`, `CLD_KILLED`, `CLD_STOPPED` and others of waitid(2).
    code: i32,
    /// Exit code, or number of the signal that ended or stopped it.
    status: i32,
}

/// Returns the next change of the state of `child`, or of any child, without waiting for it.
/// `flags`: those of waitid(2).
///
/// nix knows no real-time signals: of a child that one killed it only says EINVAL.
pub(super) fn peek(child: Option<Pid>, flags: i32) -> Option<ChildChange> {
    let (kind, id) = child.map_or((libc::P_ALL, 0), |pid| {
        (libc::P_PID, pid.as_raw().unsigned_abs())
    });
    // SAFETY: a siginfo_t of zeros is a valid one, and waitid writes to nothing else.
    let (result, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (
            libc::waitid(kind, id, &raw mut info, flags | libc::WNOHANG),
            info,
        )
    };
    // SAFETY: waitid(2) sets both fields, or leaves the pid at zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    (result == 0 && pid != 0).then(|| ChildChange {
        child: Pid::from_raw(pid),
        code: info.si_code,
        status,
    })
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
    env::split_paths(&path)
        .map(|dir| Path::new(".").join(dir).join(program))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use nix::sys::signal::kill;

    use super::*;

    #[test]
    fn no_command_is_started_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (mask, ignored, closed) = (SigSet::empty(), vec![], vec![]);
        let inherited = Inherited {
            mask,
            ignored,
            closed,
            core: (0, 0),
        };
        let now = clock::now();
        for (kill_at, name) in [(now, "late"), (now + Duration::from_secs(60), "timely")] {
            let guard = Guard::start(Rc::new(|_| ())).unwrap();
            // Otherwise it may kill the process before that has looked.
            kill(guard.pid(), Signal::SIGSTOP).unwrap();
            let made = dir.path().join(name);
            let mut command = Command::new("touch");
            let started = Leader::start(command.arg(&made), &inherited, &guard, kill_at);
            if name == "late" {
                assert_eq!(started.unwrap_err().raw_os_error(), Some(TOO_LATE));
            } else {
                started.unwrap().reap();
                guard.disarm();
            }
            assert_eq!(made.exists(), name == "timely");
        }
    }
}
