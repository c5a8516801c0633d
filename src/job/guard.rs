//! The guard: a small process that kills the command when rlock no longer can.
//!
//! It is a fork of rlock in a session of its own, made before rlock has much memory to copy. Its orders, which group to
//! kill and when at the latest, stand in memory that it shares with rlock, and it sleeps until that time, or until the end
//! of the socket between the two, which is the end of rlock (SIGKILL, OOM). A time that has come without a later one in its
//! place means that rlock stalls (SIGSTOP). Either way the command's group is killed; a `local` lock, whose descriptor the
//! guard is sent, lasts until the group is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, setsid};
use uuid::Uuid;

use super::group::{Contain, Family, GUARD_NAME};
use super::orders::Orders;
use super::scheduling::have_run_here;
use crate::clock;
use crate::lock::instant::Instant;

/// A running guard, seen from rlock.
#[derive(Debug)]
pub struct Guard {
    process: Process,
    orders: Orders,
    /// The lock itself, where it is a descriptor: the guard keeps it open.
    lock: Option<RawFd>,
}

/// The process that is the guard.
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// What wakes it: one timer for both, which rlock sets for it.
    timer: TimerFd,
    socket: OwnedFd,
}

impl Guard {
    /// Starts a guard that knows of no command yet.
    pub fn start() -> io::Result<Self> {
        let orders = Orders::new()?;
        Ok(Self { process: Process::start(&orders, None)?, orders, lock: None })
    }

    /// The guard's process id.
    pub fn pid(&self) -> Pid {
        self.process.pid
    }

    /// A command is about to be started: what its guard will need of the lock. One that was killed or stopped meanwhile is
    /// replaced.
    pub fn prepare(&mut self, contain: Option<Uuid>, lock: Option<RawFd>) -> io::Result<()> {
        self.orders.contain(contain);
        self.lock = lock;
        if self.ensure()? || self.process.send(lock).is_ok() { Ok(()) } else { self.replace() }
    }

    /// For the command's own process, before it execs: gives the guard the order to kill its group, at `kill_at` at the
    /// latest, so that there is no moment in which the command runs and its guard does not know it. Allocates nothing.
    pub fn announce(&self, kill_at: Instant) -> io::Result<()> {
        self.orders.watch_over(nix::unistd::getpid(), kill_at);
        wake_at(&self.process.timer, kill_at)
    }

    /// The command must be dead at `kill_at`, not when it was said last.
    pub fn tell(&self, kill_at: Instant) -> io::Result<()> {
        // A guard that is woken too early reads the later time.
        if self.orders.kill_by(kill_at) > kill_at { wake_at(&self.process.timer, kill_at) } else { Ok(()) }
    }

    /// Sees to it that there is a guard that can act: one that died or was stopped is replaced. True if it was.
    pub fn ensure(&mut self) -> io::Result<bool> {
        // Its zombie stays until it is replaced: the number by which it is killed is nobody else's.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::Pid(self.process.pid), flags), Ok(WaitStatus::StillAlive)) {
            return Ok(false);
        }
        self.replace()?;
        Ok(true)
    }

    /// Another guard in the place of this one, with the same orders.
    fn replace(&mut self) -> io::Result<()> {
        let next = Process::start(&self.orders, self.lock)?;
        std::mem::replace(&mut self.process, next).end();
        Ok(())
    }

    /// Takes its orders away: the command is dead, or free to go on, whatever becomes of rlock.
    pub fn dismiss(&self) {
        self.orders.withdraw();
    }

    /// Ends the guard of a command that is dead or free to go on, and leaves no zombie.
    pub fn bury(self) {
        self.dismiss();
    }
}

/// A guard that watches over nobody is ended and leaves no zombie, which not every first process of a container would bury.
/// Any other one sees the end of the socket, and does its duty.
impl Drop for Guard {
    fn drop(&mut self) {
        if self.orders.group().is_none() {
            self.process.end();
        }
    }
}

impl Process {
    /// Starts one that has `orders`, and `lock`.
    fn start(orders: &Orders, lock: Option<RawFd>) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        // From its first moment the guard is deaf, also to what the terminal sends our group before its `setsid`: a Ctrl-Z
        // there would stop it, and us before we could notice.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: the child runs `watch`, which never returns and uses, beside system calls, the allocator only. rlock
        // has one thread but for name look-ups in tokio's pool, and glibc makes the allocator usable in the child of a
        // threaded process; nothing here touches what a look-up may have locked.
        let forked = unsafe { fork() };
        if !matches!(forked, Ok(ForkResult::Child)) {
            mask.thread_set_mask()?;
        }
        match forked? {
            ForkResult::Child => watch(&theirs, &timer, orders, lock),
            ForkResult::Parent { child } => Ok(Self { pid: child, timer, socket: ours }),
        }
    }

    /// Hands it the lock, where that can be held.
    fn send(&self, lock: Option<RawFd>) -> io::Result<()> {
        let Some(lock) = lock else { return Ok(()) };
        let rights = [ControlMessage::ScmRights(&[lock])];
        sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Ends it. SIGKILL also reaches a guard that was stopped, and from then on it runs no instruction more: that the socket
    /// is closed behind it is seen by nobody.
    fn end(&self) {
        // We wait for it at once, and here the processor is awake.
        have_run_here(self.pid);
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// The guard's life.
fn watch(socket: &OwnedFd, timer: &TimerFd, orders: &Orders, lock: Option<RawFd>) -> ! {
    let _ = setsid();
    let _ = prctl::set_name(GUARD_NAME);
    // A guard that was stopped is woken by rlock's death, on which it acts. The signal comes to nothing else.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
    // All signals are blocked since before the fork, so that none but SIGKILL and SIGSTOP does anything, nor do the
    // handlers that were inherited from rlock.
    close_all_but([Some(socket.as_raw_fd()), Some(timer.as_fd().as_raw_fd()), lock]);
    // What rlock sends is held, and not used.
    let mut sent = None;
    // The time for which the command has been killed.
    let mut done = Instant::NEVER;
    loop {
        let cannot_wait = set(timer, orders, done).and_then(|()| wait(socket, timer)).is_err();
        // The time is taken before the orders are read: one that comes between the two moves the time away, and is not
        // overruled by a clock that was looked at later.
        let now = clock::now();
        let ended = !is_there(socket, &mut sent) || cannot_wait;
        let kill_at = orders.kill_at();
        if ended || now >= kill_at && kill_at != done {
            done = kill_at;
            if let Some(group) = orders.group() {
                let contain = orders.contained().map_or(Contain::No, |token| Contain::Marked(token.to_string()));
                Family::new(group, contain).end();
            }
        }
        if ended {
            // SAFETY: ends the process at once; nothing of rlock's that was copied by the fork is to be run or flushed.
            unsafe { libc::_exit(0) };
        }
    }
}

/// Reads what rlock has sent, which is nothing but the lock; false if rlock has gone.
fn is_there(socket: &OwnedFd, lock: &mut Option<OwnedFd>) -> bool {
    loop {
        match receive(socket.as_raw_fd()) {
            Ok(Some(sent)) => *lock = lock.take().or(Some(sent)),
            Err(nix::Error::EAGAIN) => return true,
            Err(nix::Error::EINTR) => {}
            Ok(None) | Err(_) => return false,
        }
    }
}

/// The descriptor that came; `None` if rlock has closed the socket, or if there is no room for another one: then a guard that
/// is forked with it takes this one's place.
fn receive(socket: RawFd) -> nix::Result<Option<OwnedFd>> {
    let mut bytes = [0];
    let mut space = nix::cmsg_space!(RawFd);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<UnixAddr>(socket, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    Ok(message.cmsgs()?.find_map(|part| match part {
        // SAFETY: the kernel made this descriptor for us with this very message; nobody else knows of it.
        ControlMessageOwned::ScmRights(fds) => fds.first().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }),
        _ => None,
    }))
}

/// Sets the timer for the time that the orders name, unless what is to be done then is done: nobody is left then, and a later
/// time changes nothing. Whoever gives an order writes it down before setting the timer, so that one which was not yet to be
/// read here is set after this one.
fn set(timer: &TimerFd, orders: &Orders, done: Instant) -> io::Result<()> {
    loop {
        let kill_at = orders.kill_at();
        wake_at(timer, if kill_at == done { Instant::NEVER } else { kill_at })?;
        if orders.kill_at() == kill_at {
            return Ok(());
        }
    }
}

/// Makes a system call, and allocates nothing.
fn wake_at(timer: &TimerFd, at: Instant) -> io::Result<()> {
    if at == Instant::NEVER {
        return Ok(timer.unset()?);
    }
    let since_boot = Duration::from_nanos(at.as_nanos().max(1));
    Ok(timer.set(Expiration::OneShot(TimeSpec::from_duration(since_boot)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
}

/// Returns when the socket has something to say or the timer's time has come.
fn wait(socket: &OwnedFd, timer: &TimerFd) -> io::Result<()> {
    let mut fds = [socket.as_fd(), timer.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Closes what belongs to rlock: its output, whose readers wait for the end of it, and its connections.
fn close_all_but(mut kept: [Option<RawFd>; 3]) {
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept.into_iter().flatten() {
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
            unsafe { libc::close(fd) };
        });
    }
}
