//! The guard: a small process that kills the command when rlock no longer can.
//!
//! It is a fork of rlock in a session of its own, and holds the read end of a pipe. Each record in the pipe says which
//! group to kill and when at the latest. The end of the pipe is the end of rlock (SIGKILL, OOM); a time that comes
//! without a newer record means that rlock stalls (SIGSTOP). Either way the command's group is killed; a `local` lock,
//! whose descriptor the guard shares, lasts until the group is gone.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setsid};

use super::group::{Contain, Family, GUARD_NAME};
use crate::clock;
use crate::lock::instant::Instant;

/// Pause between two looks at a group that is dying.
const LOOKS: Duration = Duration::from_millis(1);

/// What the pipe carries: fixed in size and below `PIPE_BUF`, so that records are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    group: Pid,
    kill_at: Instant,
}

const RECORD: usize = 12;

impl Record {
    fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&self.group.as_raw().to_ne_bytes());
        bytes[4..].copy_from_slice(&self.kill_at.as_nanos().to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (group, kill_at) = bytes.split_at_checked(4)?;
        Some(Self {
            group: Pid::from_raw(i32::from_ne_bytes(group.try_into().ok()?)),
            kill_at: Instant::from_nanos(u64::from_ne_bytes(kill_at.try_into().ok()?)),
        })
    }
}

/// A running guard, seen from rlock.
#[derive(Debug)]
pub struct Guard {
    pid: Pid,
    pipe: File,
    told: Option<Record>,
    orders: Orders,
}

/// What a guard needs beside its pipe.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The token by which `--contain` finds what left the group, once rlock is gone.
    pub contain: Option<String>,
    /// The lock itself, where it is a descriptor: the guard keeps it open.
    pub lock: Option<RawFd>,
}

impl Guard {
    /// Starts a guard that knows of no command yet.
    pub fn start(orders: Orders) -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // SAFETY: the child runs `watch`, which never returns and uses, beside system calls, the allocator only. rlock
        // has one thread but for name look-ups in tokio's pool, and glibc makes the allocator usable in the child of a
        // threaded process; nothing here touches what a look-up may have locked.
        match unsafe { fork() }? {
            ForkResult::Child => watch(read, &orders),
            ForkResult::Parent { child } => Ok(Self { pid: child, pipe: File::from(write), told: None, orders }),
        }
    }

    /// The guard's process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The pipe, for [`announce`].
    pub fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// The command leads `group` and must be dead at `kill_at`. If the guard can't be told, another takes its place.
    pub fn tell(&mut self, group: Pid, kill_at: Instant) -> io::Result<()> {
        let record = Record { group, kill_at };
        if self.told == Some(record) {
            return Ok(());
        }
        self.told = Some(record);
        if self.pipe.write_all(&record.to_bytes()).is_ok() { Ok(()) } else { self.replace() }
    }

    /// Sees to it that there is a guard that can act: one that died or was stopped is replaced. True if it was.
    pub fn ensure(&mut self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        if matches!(waitid(Id::Pid(self.pid), flags), Ok(WaitStatus::StillAlive)) {
            return Ok(false);
        }
        self.replace()?;
        Ok(true)
    }

    fn replace(&mut self) -> io::Result<()> {
        let mut next = Self::start(self.orders.clone())?;
        if let Some(record) = self.told {
            next.pipe.write_all(&record.to_bytes())?;
            next.told = Some(record);
        }
        std::mem::replace(self, next).dismiss();
        Ok(())
    }

    /// Ends the guard, which does nothing more: the command is dead, or free to go on.
    pub fn dismiss(self) {
        // SIGKILL also reaches a guard that was stopped. The pipe is closed after it, so its end is not mistaken.
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// Tells the guard, from the command's own process between fork and exec, which group it is: there is no moment in
/// which the command runs and its guard does not know it. Allocates nothing.
pub fn announce(descriptor: RawFd, kill_at: Instant) -> io::Result<()> {
    let bytes = Record { group: nix::unistd::getpid(), kill_at }.to_bytes();
    // SAFETY: writes from an array that lives through the call, to a descriptor that this process inherited.
    let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), RECORD) };
    if usize::try_from(written) == Ok(RECORD) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The guard's life.
fn watch(pipe: OwnedFd, orders: &Orders) -> ! {
    let _ = setsid();
    let _ = nix::sys::prctl::set_name(c"rlock-guard");
    debug_assert_eq!(GUARD_NAME, "rlock-guard");
    for which in Signal::iterator() {
        // SAFETY: no handler of ours is installed, and those inherited from rlock go.
        let _ = unsafe { signal(which, SigHandler::SigIgn) };
    }
    close_all_but(pipe.as_raw_fd(), orders.lock);
    let mut pipe = File::from(pipe);
    let mut family: Option<Family> = None;
    let mut kill_at = Instant::NEVER;
    let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC);
    loop {
        let ended = wait(&pipe, timer.as_ref().ok(), kill_at).is_err();
        // The time is taken before the pipe is read: a record that comes between the two moves the time away, and is
        // not overruled by a clock that was looked at later.
        let now = clock::now();
        let (latest, ended) = match drain(&mut pipe) {
            Ok(latest) => (latest, ended),
            Err(latest) => (latest, true),
        };
        if let Some(record) = latest {
            kill_at = record.kill_at;
            if family.as_ref().is_none_or(|known| known.group() != record.group) {
                let contain = orders.contain.clone().map_or(Contain::No, Contain::Marked);
                family = Some(Family::new(record.group, contain));
            }
        }
        if ended || now >= kill_at {
            kill_at = Instant::NEVER;
            family.as_mut().map(end);
        }
        if ended {
            // SAFETY: ends the process at once; nothing of rlock's that was copied by the fork is to be run or flushed.
            unsafe { libc::_exit(0) };
        }
    }
}

/// Kills the family, and returns when it is gone.
fn end(family: &mut Family) {
    family.kill();
    while !family.kill_living() {
        std::thread::sleep(LOOKS);
    }
}

/// Returns when the pipe has something to say or `at` has come.
fn wait(pipe: &File, timer: Option<&TimerFd>, at: Instant) -> nix::Result<()> {
    let mut fds = vec![PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    if let Some(timer) = timer.filter(|_| at != Instant::NEVER) {
        let since_boot = Duration::from_nanos(at.as_nanos().max(1));
        timer.set(Expiration::OneShot(TimeSpec::from_duration(since_boot)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        fds.push(PollFd::new(timer.as_fd(), PollFlags::POLLIN));
    }
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The latest record; an error if rlock has closed the pipe.
fn drain(pipe: &mut File) -> Result<Option<Record>, Option<Record>> {
    let mut latest = None;
    loop {
        let mut bytes = [0; RECORD];
        match pipe.read(&mut bytes) {
            Ok(0) => return Err(latest),
            Ok(count) => latest = Record::from_bytes(&bytes[..count]).or(latest),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(latest),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(latest),
        }
    }
}

/// Closes what belongs to rlock: its output, whose readers wait for the end of it, and its connections.
fn close_all_but(pipe: RawFd, lock: Option<RawFd>) {
    let mut kept = [pipe, lock.unwrap_or(pipe)];
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the guard uses none of these descriptors, and runs no destructor of what owned them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == -1 {
        // Before Linux 5.9, or refused by a seccomp filter.
        (first..=last.min(4096)).for_each(|fd| {
            // SAFETY: as above.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back() {
        let record = Record { group: Pid::from_raw(4711), kill_at: Instant::from_nanos(1 << 60) };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        assert_eq!(Record::from_bytes(&[0; 11]), None);
    }
}
