//! The guard: a small process that kills the command when rlock no longer can.
//!
//! It is a fork of rlock in a session of its own, made before rlock has much memory to copy. Its orders, which group to
//! kill and when at the latest, stand in memory that it shares with rlock, and it sleeps until that time, or until the end
//! of the socket between the two, which is the end of rlock (SIGKILL, OOM). A time that has come without a later one in its
//! place means that rlock stalls (SIGSTOP). Either way the command's group is killed. A `local` lock, whose descriptor the
//! guard is sent, lasts until the group is gone. If rlock is dead, the guard then gives any other lock back ([`handback`]).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
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

use super::group::{GUARD_NAME, ProcessTree};
use super::handback::{self, HandBack};
use super::nested;
use super::processes::Start;
use super::scheduling::pin_to_current_cpu;
use super::watchdog::WatchdogState;
use crate::clock;
use crate::lock::instant::Instant;

/// Descriptors that a guard tries to close where it cannot see which are open: Linux' own default limit (`fs.nr_open`).
const MOST_DESCRIPTORS: RawFd = 1 << 20;

/// A running guard, seen from rlock.
#[derive(Debug)]
pub struct Guard {
    process: Process,
    orders: WatchdogState,
    /// [`Task::keeps`].
    keeps: Option<RawFd>,
}

/// What a guard must know of the command before that is started.
#[derive(Debug)]
pub struct Task {
    /// What the command has in its environment: the lock's token, for a nested run a mark of its own.
    pub mark: Uuid,
    /// `--contain`: whatever has the mark in its environment is to be killed too.
    pub contains: bool,
    /// Runs may be nested under the lock, whose token the mark is: if rlock dies, the guard stays until they have ended.
    pub outlasts: bool,
    /// A descriptor that the guard keeps open until no process of the command can run: a `local` lock is held by it.
    pub keeps: Option<RawFd>,
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
        let orders = WatchdogState::new()?;
        Ok(Self { process: Process::start(&orders, None)?, orders, keeps: None })
    }

    /// The guard's process id.
    pub fn pid(&self) -> Pid {
        self.process.pid
    }

    /// A command is about to be started. A guard that was killed or stopped meanwhile is replaced.
    pub fn prepare(&mut self, task: &Task) -> io::Result<()> {
        self.orders.know(task.mark, task.contains, task.outlasts);
        self.keeps = task.keeps;
        if self.ensure()? || self.process.send(task.keeps).is_ok() { Ok(()) } else { self.replace() }
    }

    /// How the lock is to be given back if rlock dies while it holds it.
    pub fn learn(&self, how: &HandBack) {
        self.orders.learn(how);
    }

    /// rlock asks for the lock of `token`, and may hold it from now on. It may die of any allocation when memory is short.
    pub fn may_hold(&self, token: Uuid) {
        self.orders.may_hold(token);
    }

    /// rlock has given up what it asked for, or has lost the lock: there is nothing to give back.
    pub fn holds_nothing(&self) {
        self.orders.holds_nothing();
    }

    /// For the command's own process, before it execs: gives the guard the order to kill its group, at `kill_at` at the
    /// latest, so that there is no moment in which the command runs and its guard does not know it. Allocates nothing.
    pub fn announce(&self, kill_at: Instant) -> io::Result<()> {
        self.orders.watch_over(nix::unistd::getpid(), clock::now(), kill_at);
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
        let next = Process::start(&self.orders, self.keeps)?;
        std::mem::replace(&mut self.process, next).end();
        Ok(())
    }

    /// Takes its orders away: the command is dead, or free to go on, whatever becomes of rlock.
    pub fn dismiss(&self) {
        self.orders.withdraw();
    }

    /// Ends the guard of a command that is dead or free to go on, and leaves no zombie.
    pub fn reap(self) {
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
    /// Starts one that has `orders`, and keeps the descriptor `keeps` open.
    fn start(orders: &WatchdogState, keeps: Option<RawFd>) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        // From its first moment the guard is deaf, also to what the terminal sends our group before its `setsid`: a Ctrl-Z
        // there would stop it, and us before we could notice.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: the child runs `watch`, which never returns and uses, beside system calls, the allocator only. A first
        // guard is forked from one thread. Later there may be name look-ups in tokio's pool, and the writer of
        // `report::stderr`. glibc and musl make the allocator usable in the child of a threaded process, and nothing here
        // touches what these threads may have locked: a guard does not print.
        let forked = unsafe { fork() };
        if !matches!(forked, Ok(ForkResult::Child)) {
            mask.thread_set_mask()?;
        }
        match forked? {
            ForkResult::Child => watch(&theirs, &timer, orders, keeps),
            ForkResult::Parent { child } => Ok(Self { pid: child, timer, socket: ours }),
        }
    }

    /// Hands it a descriptor to keep, if there is one.
    fn send(&self, descriptor: Option<RawFd>) -> io::Result<()> {
        let Some(descriptor) = descriptor else { return Ok(()) };
        let rights = [ControlMessage::ScmRights(&[descriptor])];
        sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Ends it. SIGKILL also reaches a guard that was stopped, and from then on it runs no instruction more: that the socket
    /// is closed behind it is seen by nobody.
    fn end(&self) {
        // We wait for it at once, and here the processor is awake.
        pin_to_current_cpu(self.pid);
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// The guard's life.
fn watch(socket: &OwnedFd, timer: &TimerFd, orders: &WatchdogState, keeps: Option<RawFd>) -> ! {
    let born = clock::now();
    let _ = setsid();
    let _ = prctl::set_name(GUARD_NAME);
    // A guard that was stopped is woken by rlock's death, on which it acts. The signal comes to nothing else.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
    // All signals are blocked since before the fork, so that none but SIGKILL and SIGSTOP does anything, nor do the
    // handlers that were inherited from rlock.
    close_all_but([Some(socket.as_raw_fd()), Some(timer.as_fd().as_raw_fd()), keeps]);
    // What rlock sends is held, and not used.
    let mut sent = None;
    // The time for which the command has been killed.
    let mut done = Instant::NEVER;
    // Kept from one kill to the next: it knows which numbers are its own no longer.
    let mut family = None;
    let mut is_gone = false;
    loop {
        let cannot_wait = set(timer, orders, done).and_then(|()| wait(socket, timer)).is_err();
        // The time is taken before the orders are read: one that comes between the two moves the time away, and is not
        // overruled by a clock that was looked at later.
        let now = clock::now();
        let rlock = hear(socket, &mut sent);
        let ended = rlock != Rlock::Lives || cannot_wait;
        let kill_at = orders.kill_at();
        if ended || now >= kill_at && kill_at != done {
            done = kill_at;
            if let Some(group) = orders.group().filter(|_| !is_gone) {
                is_gone = family.get_or_insert_with(|| family_of(group, orders, born)).end();
            }
        }
        if ended {
            // Where there is no group, the command was not started yet, or has ended.
            let is_over = orders.group().is_none() || is_gone;
            // Nested runs saw rlock's death as well, and kill their commands. A `local` lock is held until they have.
            if is_over && orders.outlasts().is_none_or(nested::outlast) && rlock == Rlock::Died {
                let _ = orders.hand_back().map(|how| handback::release(&how, orders.mark()));
            }
            // SAFETY: ends the process at once; nothing of rlock's that was copied by the fork is to be run or flushed.
            unsafe { libc::_exit(0) };
        }
    }
}

/// The processes of the command that leads `group`, for the guard that was born then.
fn family_of(group: Pid, orders: &WatchdogState, born: Instant) -> ProcessTree {
    let began = Start::at(orders.began(), born);
    ProcessTree::orphaned(group, began, &orders.mark().to_string(), orders.contains())
}

/// What the socket tells of rlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rlock {
    Lives,
    /// Its end of the socket is closed.
    Died,
    /// The socket cannot be read.
    Unheard,
}

/// Reads what rlock has sent, which is nothing but the descriptor to keep.
fn hear(socket: &OwnedFd, kept: &mut Option<OwnedFd>) -> Rlock {
    loop {
        match receive(socket.as_raw_fd()) {
            Ok(Received::Descriptor(sent)) => *kept = kept.take().or(Some(sent)),
            Ok(Received::End) => return Rlock::Died,
            Err(nix::Error::EAGAIN) => return Rlock::Lives,
            Err(nix::Error::EINTR) => {}
            // Without room for the descriptor another guard, which is forked with it, takes the place of this one.
            Ok(Received::Nothing) | Err(_) => return Rlock::Unheard,
        }
    }
}

/// What came.
enum Received {
    Descriptor(OwnedFd),
    /// A message without the descriptor that was sent in it: there was no room for one more.
    Nothing,
    /// There will be no more messages.
    End,
}

fn receive(socket: RawFd) -> nix::Result<Received> {
    let mut bytes = [0];
    let mut space = nix::cmsg_space!(RawFd);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<UnixAddr>(socket, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(Received::End);
    }
    let descriptor = message.cmsgs()?.find_map(|part| match part {
        // SAFETY: the kernel made this descriptor for us with this very message; nothing else knows of it.
        ControlMessageOwned::ScmRights(fds) => fds.first().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }),
        _ => None,
    });
    Ok(descriptor.map_or(Received::Nothing, Received::Descriptor))
}

/// Sets the timer for the time that the orders name, unless what is to be done then is done: nobody is left then, and a later
/// time changes nothing. Whoever gives an order writes it down before setting the timer, so that one which was not yet to be
/// read here is set after this one.
fn set(timer: &TimerFd, orders: &WatchdogState, done: Instant) -> io::Result<()> {
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
        close_each(first, last);
    }
}

/// The same, one by one.
fn close_each(first: RawFd, last: RawFd) {
    for fd in open_descriptors().into_iter().filter(|fd| (first..=last).contains(fd)) {
        // SAFETY: as in `close_range`; one that is closed already is EBADF.
        unsafe { libc::close(fd) };
    }
}

/// All that are open; all that may be, if that cannot be seen.
fn open_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
        return (0..RawFd::try_from(limit).unwrap_or(RawFd::MAX).min(MOST_DESCRIPTORS)).collect();
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::setrlimit;
    use nix::unistd::dup;

    use super::*;

    #[test]
    fn descriptors_of_any_number_are_closed_one_by_one() {
        // SAFETY: the child makes system calls, uses the allocator, and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
                let high = RawFd::try_from(hard.min(60_000)).unwrap() - 1;
                // SAFETY: the number is a new descriptor, which is used by its number alone.
                let made = unsafe { libc::dup2(2, high) };
                let low = dup(std::io::stderr()).unwrap();
                close_each(low.as_raw_fd(), RawFd::MAX);
                // SAFETY: it reads a flag.
                let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
                let bad = made != high || is_open(high) || is_open(low.as_raw_fd()) || !is_open(2);
                // SAFETY: ends the process, which is a copy of the tests'.
                unsafe { libc::_exit(i32::from(bad)) };
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
        }
    }
}
