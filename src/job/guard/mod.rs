//! The guard: a small process that kills the command when rlock no longer can. This file is rlock's
//! side of it, and [`watch`] the guard's.
//!
//! 1. *Fork.* rlock forks the guard once its settings are complete, before it has threads or
//!    connections. The two share a [`GuardState`], a timer, a socket pair and the pipe of nested
//!    runs. The guard leaves rlock's session and blocks all signals.
//! 2. *Arm.* Before exec, the command's own process writes its group and the deadline into the
//!    state and then sets the timer. So the command never runs unguarded.
//! 3. *Extend.* At each renewal rlock writes a later deadline. A guard that wakes too early reads
//!    it and sleeps again. For an earlier deadline rlock sets the timer too.
//! 4. *Fire.* If the deadline comes, rlock stalls (SIGSTOP). If the socket is closed, rlock is dead
//!    (SIGKILL, OOM). Either way the guard kills the command. If rlock is dead, the guard waits for
//!    nested runs and leaves the rest to the [`Heir`], which gives the locks back. A `local` lock,
//!    whose descriptor the guard holds, ends with it.
//! 5. *Disarm.* When the command is dead or free to go on, rlock clears the group. After a release
//!    that a majority has confirmed, it kills and reaps the guard. Otherwise the guard outlives it,
//!    and the heir repeats the release.
//!
//! A guard that was killed or stopped is replaced by another one with the same state.

mod state;
mod watch;

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socketpair,
};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use uuid::Uuid;

use self::state::GuardState;
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;

/// The estate of an rlock that is dead.
#[derive(Debug)]
pub struct Left {
    /// Since when the command ran, if the guard has killed it.
    pub killed_since: Option<Instant>,
    /// For each lock of the run, the token with which it is to be given back, and its fence, if the
    /// command was started.
    pub locks: Vec<Option<(Uuid, Option<Fence>)>>,
}

/// Called once rlock is dead and no process of the command can run any more, in the guard's
/// process.
pub type Heir = Rc<dyn Fn(Left)>;

/// A running guard, as rlock sees it.
pub struct Guard {
    heir: Heir,
    process: GuardProcess,
    state: Arc<GuardState>,
    /// Descriptors that the guard keeps open until no process of the command can run: they hold
    /// `local` locks.
    keeps: Vec<RawFd>,
    /// The pipe at whose hang-up no nested run is left: the end that the guard reads, and the one
    /// that each nested run gets.
    nested: (OwnedFd, OwnedFd),
}

#[derive(Debug)]
struct GuardProcess {
    pid: Pid,
    /// Wakes the guard. Both processes set it.
    timer: Arc<TimerFd>,
    /// rlock's end of the pair. Its end is rlock's death.
    socket: OwnedFd,
}

impl Guard {
    /// Starts an unarmed guard.
    pub fn start(heir: Heir) -> io::Result<Self> {
        let state = Arc::new(GuardState::new()?);
        let nested = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Self {
            process: GuardProcess::start(&state, &nested.0, &[], &heir)?,
            heir,
            state,
            keeps: vec![],
            nested,
        })
    }

    pub fn pid(&self) -> Pid {
        self.process.pid
    }

    /// Returns the end of the pipe that nested runs get. If rlock dies, the guard gives the lock
    /// back once they have closed it.
    pub fn end_for_nested(&self) -> io::Result<OwnedFd> {
        self.nested.1.try_clone()
    }

    /// Prepares the guard for a command that is about to start. A guard that was killed or stopped
    /// meanwhile is replaced.
    ///
    /// * `mark` is in the command's environment: the token of a lock, or for a nested run a mark of
    ///   its own. With `contains`, all processes that have it are to be killed.
    /// * `fences` are those of the locks.
    /// * `keeps` are the descriptors that the guard keeps open until no process of the command can
    ///   run.
    pub fn prepare(
        &mut self,
        mark: Uuid,
        contains: bool,
        fences: &[Fence],
        keeps: Vec<RawFd>,
    ) -> io::Result<()> {
        self.state.set_mark(mark, contains, fences);
        self.keeps = keeps;
        if self.ensure_alive()? || self.process.send(&self.keeps).is_ok() {
            Ok(())
        } else {
            self.replace()
        }
    }

    /// Notes that rlock requests lock number `lock` with `token` and may hold it from now on. To be
    /// called before the request is sent: when memory is short, rlock may be killed at any
    /// allocation.
    pub fn may_hold(&self, lock: usize, token: Uuid) {
        self.state.may_hold(lock, token);
    }

    /// Notes that rlock has given up its request for lock number `lock`, or lost the lock: it is
    /// not to be given back.
    pub fn does_not_hold(&self, lock: usize) {
        self.state.does_not_hold(lock);
    }

    /// Returns what arms the guard for the process that calls it, which is to become the command.
    /// It allocates nothing.
    pub fn arming(
        &self,
        kill_at: Instant,
    ) -> impl Fn() -> io::Result<()> + Clone + Send + Sync + use<> {
        let (state, timer) = (Arc::clone(&self.state), Arc::clone(&self.process.timer));
        move || {
            state.arm(nix::unistd::getpid(), clock::now(), kill_at);
            set_timer(&timer, kill_at)
        }
    }

    /// Moves the deadline of an armed guard: later after a renewal, earlier after a loss.
    pub fn extend(&self, kill_at: Instant) -> io::Result<()> {
        // A guard that wakes too early reads the later deadline, so only an earlier one needs the
        // timer.
        if self.state.set_kill_at(kill_at) > kill_at {
            set_timer(&self.process.timer, kill_at)
        } else {
            Ok(())
        }
    }

    /// Replaces a guard that died or was stopped. Returns whether it was replaced.
    pub fn ensure_alive(&mut self) -> io::Result<bool> {
        // WNOWAIT leaves its zombie until it is replaced, so that its pid is not reused before
        // `kill`.
        let flags = WaitPidFlag::WEXITED
            | WaitPidFlag::WSTOPPED
            | WaitPidFlag::WNOHANG
            | WaitPidFlag::WNOWAIT;
        if matches!(
            waitid(Id::Pid(self.process.pid), flags),
            Ok(WaitStatus::StillAlive)
        ) {
            return Ok(false);
        }
        self.replace()?;
        Ok(true)
    }

    fn replace(&mut self) -> io::Result<()> {
        let next = GuardProcess::start(&self.state, &self.nested.0, &self.keeps, &self.heir)?;
        std::mem::replace(&mut self.process, next).end();
        Ok(())
    }

    /// Disarms the guard: the command is dead or free to go on, whatever becomes of rlock.
    pub fn disarm(&self) {
        self.state.disarm();
    }

    /// Disarms the guard and lets it live. Once rlock has ended, it gives back the locks that rlock
    /// may hold.
    pub fn outlive(mut self) {
        self.disarm();
        let _ = self.ensure_alive();
        // The socket must stay open until rlock ends.
        std::mem::forget(self);
    }
}

/// An unarmed guard is killed and reaped here, because PID 1 of a container may not reap orphans.
/// An armed one notices the closed socket and kills the command.
impl Drop for Guard {
    fn drop(&mut self) {
        if self.state.group().is_none() {
            self.process.end();
        }
    }
}

impl GuardProcess {
    /// Forks a guard with `state` that reads the `pipe` of nested runs, and keeps the descriptors
    /// `keeps` open.
    fn start(state: &GuardState, pipe: &OwnedFd, keeps: &[RawFd], heir: &Heir) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        // Blocked across the fork: before its `setsid` the guard is in rlock's group, where a
        // Ctrl-Z would stop it, and rlock before it could notice.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: the child runs `watch`, which never returns and uses only system calls and the
        // allocator.
        // 1. The first guard is forked from a single thread.
        // 2. Later there may be name look-ups in tokio's pool and the writer of `report::stderr`.
        //    `main` makes the allocator usable in the child of a threaded process.
        // 3. The child touches nothing else that these threads may have locked: it writes to stderr
        //    by itself.
        let forked = unsafe { fork() };
        if !matches!(forked, Ok(ForkResult::Child)) {
            mask.thread_set_mask()?;
        }
        match forked? {
            ForkResult::Child => watch::watch([&theirs, pipe], &timer, state, keeps, heir),
            ForkResult::Parent { child } => Ok(Self {
                pid: child,
                timer: Arc::new(timer),
                socket: ours,
            }),
        }
    }

    /// Sends it the descriptors to keep, if there are any. It does not read them.
    fn send(&self, descriptors: &[RawFd]) -> io::Result<()> {
        if descriptors.is_empty() {
            return Ok(());
        }
        let rights = [ControlMessage::ScmRights(descriptors)];
        // At least one byte must go with them.
        sendmsg::<UnixAddr>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&[0])],
            &rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }

    /// Kills and reaps it. SIGKILL also ends a stopped guard, and before the socket is closed: it
    /// does not act on that.
    fn end(&self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// Sets `timer` for `at`, or stops it. Allocates nothing.
fn set_timer(timer: &TimerFd, at: Instant) -> io::Result<()> {
    if at == Instant::NEVER {
        return Ok(timer.unset()?);
    }
    let since_boot = Duration::from_nanos(at.as_nanos().max(1));
    Ok(timer.set(
        Expiration::OneShot(TimeSpec::from_duration(since_boot)),
        TimerSetTimeFlags::TFD_TIMER_ABSTIME,
    )?)
}
