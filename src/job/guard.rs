//! The guard: a small process that kills the command when rlock no longer can.
//!
//! It is a fork of rlock in a session of its own, made before rlock has much memory to copy, and holds one end of a
//! socket. Each message says which group to kill and when at the latest. The end of the socket is the end of rlock
//! (SIGKILL, OOM); a time that comes without a newer message means that rlock stalls (SIGSTOP). Either way the command's
//! group is killed; a `local` lock, whose descriptor the guard is sent, lasts until the group is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
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
use super::scheduling::have_run_here;
use crate::clock;
use crate::lock::instant::Instant;

/// In the place of a group, while there is none.
const NOBODY: Pid = Pid::from_raw(0);

/// What a message carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Order {
    /// The command's group, or [`NOBODY`].
    group: Pid,
    /// When it must be dead.
    kill_at: Instant,
    /// The token by which `--contain` finds what left the group, once rlock is gone.
    contain: Option<Uuid>,
}

/// Group, time, token (nil for none).
const ORDER: usize = 4 + 8 + 16;

impl Order {
    fn to_bytes(self) -> [u8; ORDER] {
        let mut bytes = [0; ORDER];
        bytes[..4].copy_from_slice(&self.group.as_raw().to_ne_bytes());
        bytes[4..12].copy_from_slice(&self.kill_at.as_nanos().to_ne_bytes());
        bytes[12..].copy_from_slice(self.contain.unwrap_or(Uuid::nil()).as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (kill_at, token) = rest.split_first_chunk()?;
        let token = Uuid::from_slice(token).ok()?;
        Some(Self {
            group: Pid::from_raw(i32::from_ne_bytes(*group)),
            kill_at: Instant::from_nanos(u64::from_ne_bytes(*kill_at)),
            contain: (!token.is_nil()).then_some(token),
        })
    }
}

/// A running guard, seen from rlock.
#[derive(Debug)]
pub struct Guard {
    pid: Pid,
    socket: OwnedFd,
    order: Order,
    /// The lock itself, where it is a descriptor: the guard keeps it open.
    lock: Option<RawFd>,
}

impl Guard {
    /// Starts a guard that knows of no command yet.
    pub fn start() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
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
            ForkResult::Child => watch(&theirs),
            ForkResult::Parent { child } => {
                let order = Order { group: NOBODY, kill_at: Instant::NEVER, contain: None };
                Ok(Self { pid: child, socket: ours, order, lock: None })
            }
        }
    }

    /// The guard's process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A command is about to be started: what its guard will need of the lock.
    pub fn prepare(&mut self, contain: Option<Uuid>, lock: Option<RawFd>) -> io::Result<()> {
        self.order.contain = contain;
        self.lock = lock;
        if lock.is_some() { self.send() } else { Ok(()) }
    }

    /// The command's process has announced itself: what a guard in this one's place would have to be told.
    pub fn announced(&mut self, group: Pid, kill_at: Instant) {
        (self.order.group, self.order.kill_at) = (group, kill_at);
    }

    /// For the command's own process, before it execs: tells the guard which group it is, to be dead at `kill_at`, so that
    /// there is no moment in which the command runs and its guard does not know it. Allocates nothing.
    pub fn announce(&self, kill_at: Instant) -> io::Result<()> {
        let order = Order { group: nix::unistd::getpid(), kill_at, ..self.order };
        let bytes = order.to_bytes();
        let sent = nix::sys::socket::send(self.socket.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL)?;
        if sent == ORDER { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }

    /// The command leads `group` and must be dead at `kill_at`. If the guard can't be told, another takes its place.
    pub fn tell(&mut self, group: Pid, kill_at: Instant) -> io::Result<()> {
        let order = Order { group, kill_at, ..self.order };
        if self.order == order {
            return Ok(());
        }
        self.order = order;
        if self.send().is_ok() { Ok(()) } else { self.replace() }
    }

    fn send(&self) -> io::Result<()> {
        let bytes = self.order.to_bytes();
        let lock = self.lock.map(|fd| [fd]);
        let rights = lock.as_ref().map(|fds| ControlMessage::ScmRights(fds));
        // The lock is sent with each message: the guard keeps the first and closes the others, which are the same.
        let sent = sendmsg::<UnixAddr>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&bytes)],
            rights.as_slice(),
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        if sent == ORDER { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Sees to it that there is a guard that can act: one that died or was stopped is replaced. True if it was.
    pub fn ensure(&mut self) -> io::Result<bool> {
        // Its zombie stays until it is replaced: the number by which it is killed is nobody else's.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::Pid(self.pid), flags), Ok(WaitStatus::StillAlive)) {
            return Ok(false);
        }
        self.replace()?;
        Ok(true)
    }

    /// Another guard in the place of this one.
    fn replace(&mut self) -> io::Result<()> {
        let mut next = Self::start()?;
        (next.order, next.lock) = (self.order, self.lock);
        next.send()?;
        std::mem::replace(self, next).bury();
        Ok(())
    }

    /// Ends the guard, which does nothing more: the command is dead, or free to go on. Its zombie waits for
    /// [`Guard::bury`].
    pub fn dismiss(&mut self) {
        self.order.group = NOBODY;
        if self.lock.is_some() {
            // We shall wait for its end at once, with no server to hear from meanwhile.
            have_run_here(self.pid);
        }
        // SIGKILL also reaches a guard that was stopped, and from then on it runs no instruction more: that the socket is
        // closed behind it is seen by nobody.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// Ends the guard, and leaves no zombie.
    pub fn bury(mut self) {
        self.order.group = NOBODY;
    }
}

/// A guard that watches over nobody is ended and leaves no zombie, which not every first process of a container would bury.
/// Any other one sees the end of the socket, and does its duty.
impl Drop for Guard {
    fn drop(&mut self) {
        if self.order.group == NOBODY {
            self.dismiss();
            let _ = waitpid(self.pid, None);
        }
    }
}

/// The guard's life.
fn watch(socket: &OwnedFd) -> ! {
    let _ = setsid();
    let _ = prctl::set_name(GUARD_NAME);
    // A guard that was stopped is woken by rlock's death, on which it acts. The signal comes to nothing else.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
    // All signals are blocked since before the fork, so that none but SIGKILL and SIGSTOP does anything, nor do the
    // handlers that were inherited from rlock.
    close_all_but(socket.as_raw_fd());
    let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC);
    let mut state = State { family: None, kill_at: Instant::NEVER, lock: None };
    loop {
        let cannot_wait = wait(socket.as_fd(), timer.as_ref().ok(), state.kill_at).is_err();
        // The time is taken before the messages are read: one that comes between the two moves the time away, and is not
        // overruled by a clock that was looked at later.
        let now = clock::now();
        let ended = !state.read(socket) || cannot_wait;
        if ended || now >= state.kill_at {
            state.kill_at = Instant::NEVER;
            state.family.as_mut().map(Family::end);
        }
        if ended {
            // SAFETY: ends the process at once; nothing of rlock's that was copied by the fork is to be run or flushed.
            unsafe { libc::_exit(0) };
        }
    }
}

/// What a guard knows.
struct State {
    family: Option<Family>,
    kill_at: Instant,
    /// Held, not used.
    lock: Option<OwnedFd>,
}

impl State {
    /// Reads all messages that are there; false if rlock has gone.
    fn read(&mut self, socket: &OwnedFd) -> bool {
        loop {
            match receive(socket.as_raw_fd()) {
                Ok(Some((order, lock))) => self.obey(order, lock),
                Err(nix::Error::EAGAIN) => return true,
                Err(nix::Error::EINTR) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    fn obey(&mut self, order: Order, lock: Option<OwnedFd>) {
        self.kill_at = order.kill_at;
        self.lock = self.lock.take().or(lock);
        let known = self.family.as_ref().is_some_and(|family| family.group() == order.group);
        if order.group == NOBODY {
            self.family = None;
        } else if !known {
            let contain = order.contain.map_or(Contain::No, |token| Contain::Marked(token.to_string()));
            self.family = Some(Family::new(order.group, contain));
        }
    }
}

/// One message, and the descriptor that came with it; `None` if rlock has closed the socket.
fn receive(socket: RawFd) -> nix::Result<Option<(Order, Option<OwnedFd>)>> {
    let mut bytes = [0; ORDER];
    let mut space = nix::cmsg_space!(RawFd);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<UnixAddr>(socket, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let lock = message.cmsgs()?.find_map(|part| match part {
        // SAFETY: the kernel made this descriptor for us with this very message; nobody else knows of it.
        ControlMessageOwned::ScmRights(fds) => fds.first().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }),
        _ => None,
    });
    let count = message.bytes;
    Ok(Order::from_bytes(&bytes[..count]).map(|order| (order, lock)))
}

/// Returns when the socket has something to say or `at` has come.
fn wait(socket: BorrowedFd<'_>, timer: Option<&TimerFd>, at: Instant) -> nix::Result<()> {
    let mut fds = vec![PollFd::new(socket, PollFlags::POLLIN)];
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

/// Closes what belongs to rlock: its output, whose readers wait for the end of it, and its connections.
fn close_all_but(socket: RawFd) {
    close_range(0, socket - 1);
    close_range(socket + 1, RawFd::MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_back() {
        for contain in [None, Some(Uuid::new_v4())] {
            let order = Order { group: Pid::from_raw(4711), kill_at: Instant::from_nanos(1 << 60), contain };
            assert_eq!(Order::from_bytes(&order.to_bytes()), Some(order));
        }
        assert_eq!(Order::from_bytes(&[0; ORDER - 1]), None);
        assert_eq!(Order::from_bytes(&[]), None);
    }
}
