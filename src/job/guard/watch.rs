//! The guard's own process: it sleeps until the deadline or rlock's death, and then kills the command.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, killpg, signal};
use nix::sys::timerfd::TimerFd;
use nix::unistd::{Pid, setsid};

use super::watchdog::WatchdogState;
use super::{Heir, Left, descriptors, set_timer};
use crate::clock;
use crate::job::nested;
use crate::job::process_tree::{self, ProcessTree, Start};
use crate::lock::instant::Instant;

/// Runs the guard. It was forked with all signals blocked, so only SIGKILL and SIGSTOP act on it, and no handler of rlock's
/// runs here.
pub(super) fn watch(
    [socket, pipe]: [&OwnedFd; 2],
    timer: &TimerFd,
    state: &WatchdogState,
    keeps: &[RawFd],
    heir: &Heir,
) -> ! {
    let born = clock::now();
    let _ = setsid();
    let _ = prctl::set_name(process_tree::GUARD);
    // SIGCONT at rlock's death wakes a guard that was stopped. It has no other effect.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
    // Its line after rlock's death goes to stderr.
    let own = [libc::STDERR_FILENO, socket.as_raw_fd(), pipe.as_raw_fd(), timer.as_fd().as_raw_fd()];
    descriptors::close_all_but([&own, keeps].concat());
    go_first();
    // The deadline at which the command was killed.
    let mut fired_for = Instant::NEVER;
    // Kept from one kill to the next: it knows which numbers are the command's no longer.
    let mut tree = None;
    let mut is_gone = false;
    loop {
        let rlock = set(timer, state, fired_for).and_then(|()| wait(socket, timer)).unwrap_or(Rlock::Unknown);
        // The clock is read before the deadline: an extension between the two then counts, as it must.
        let now = clock::now();
        let ended = rlock != Rlock::Alive;
        let kill_at = state.kill_at();
        if ended || now >= kill_at && kill_at != fired_for {
            fired_for = kill_at;
            if let Some(group) = state.group().filter(|_| !is_gone) {
                if !ended {
                    // rlock's child is not reaped before rlock disarms, so the number is the group's. Nothing is read before: on a busy
                    // host this process may wait for its next turn.
                    let _ = killpg(group, Signal::SIGSTOP);
                }
                is_gone = tree.get_or_insert_with(|| tree_of(group, state, born)).end();
            }
        }
        if ended {
            // Unarmed means that the command was not started yet, or is dead or free to go on.
            let is_over = state.group().is_none() || is_gone;
            // Nested runs noticed rlock's death as well and kill their commands; until then a `local` lock is kept.
            if is_over && nested::outlast(pipe.as_fd()) && rlock == Rlock::Died {
                allow_ending();
                let killed_since = is_gone.then(|| state.armed_at());
                heir(Left { killed_since, tokens: state.to_give_back() });
            }
            // SAFETY: ends the process at once; nothing that the fork copied is to be run or flushed.
            unsafe { libc::_exit(0) };
        }
    }
}

/// Lets a service manager or a user end the guard. Nothing is left to be killed, and its locks end with their leases.
fn allow_ending() {
    let which = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
    for (which, how) in which.into_iter().flat_map(|which| [(which, SigHandler::SigIgn), (which, SigHandler::SigDfl)]) {
        // Ignored for a moment: one that was meant for the command, and has been pending since, is dropped.
        // SAFETY: neither action needs a handler.
        let _ = unsafe { signal(which, how) };
    }
    let _ = which.into_iter().collect::<SigSet>().thread_unblock();
}

/// Asks for the largest share of the processors, and goes on without it. A seccomp filter may kill the guard for asking, as systemd's
/// `SystemCallFilter=~@resources` does, so under a filter it does not ask.
fn go_first() {
    // SAFETY: both calls change nothing but this process' share.
    unsafe {
        if libc::prctl(libc::PR_GET_SECCOMP) == 0 {
            libc::nice(-40);
        }
    }
}

/// The processes of the command that leads `group`, for the guard that began at `born`.
fn tree_of(group: Pid, state: &WatchdogState, born: Instant) -> ProcessTree {
    let began = Start::at(state.armed_at(), born);
    ProcessTree::orphaned(group, began, &state.mark().to_string(), state.contains())
}

/// rlock's state, as the socket shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rlock {
    Alive,
    /// Its end of the socket is closed.
    Died,
    /// The socket does not show it.
    Unknown,
}

impl Rlock {
    fn of(events: PollFlags) -> Self {
        if events.is_empty() {
            Self::Alive
        } else if events.contains(PollFlags::POLLHUP) {
            Self::Died
        } else {
            Self::Unknown
        }
    }
}

/// Sets the timer for the deadline, unless the guard has fired for it already.
///
/// Writers store the deadline *before* they set the timer. So if an old deadline is read here, the writer sets the timer
/// after this function does, and wins.
fn set(timer: &TimerFd, state: &WatchdogState, fired_for: Instant) -> io::Result<()> {
    loop {
        let kill_at = state.kill_at();
        set_timer(timer, if kill_at == fired_for { Instant::NEVER } else { kill_at })?;
        if state.kill_at() == kill_at {
            return Ok(());
        }
    }
}

/// Waits until the timer has expired or rlock is dead.
///
/// It does not read the descriptors that rlock sends. They stay open in the socket's queue as long as the guard lives, and the command's
/// start does not wait for this process.
fn wait(socket: &OwnedFd, timer: &TimerFd) -> io::Result<Rlock> {
    // The kernel tells of a hang-up even where it is asked for nothing.
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty()), PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) => Ok(Rlock::of(fds[0].revents().unwrap_or(PollFlags::POLLERR))),
        Err(nix::Error::EINTR) => Ok(Rlock::Alive),
        Err(error) => Err(error.into()),
    }
}
