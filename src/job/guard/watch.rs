//! The guard's own process: it sleeps until the deadline or rlock's death, and then kills the
//! command.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, killpg, signal};
use nix::sys::timerfd::TimerFd;
use nix::unistd::{Pid, setsid};

use super::state::GuardState;
use super::{Heir, Left, set_timer};
use crate::clock;
use crate::job::nested;
use crate::job::process_tree::{self, ProcessTree, Start};
use crate::lock::instant::Instant;

/// Descriptors that a guard tries to close if it cannot see which are open: Linux' own default
/// limit (`fs.nr_open`).
const MAX_DESCRIPTORS: RawFd = 1 << 20;

/// Runs the guard. It was forked with all signals blocked, so only SIGKILL and SIGSTOP act on it,
/// and no handler of rlock's runs here.
pub(super) fn watch(
    [socket, pipe]: [&OwnedFd; 2],
    timer: &TimerFd,
    state: &GuardState,
    keeps: &[RawFd],
    heir: &Heir,
) -> ! {
    let born = clock::now();
    let _ = setsid();
    let _ = prctl::set_name(process_tree::GUARD);
    // SIGCONT at rlock's death wakes a guard that was stopped. It has no other effect.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
    // Its line after rlock's death goes to stderr.
    let own = [
        libc::STDERR_FILENO,
        socket.as_raw_fd(),
        pipe.as_raw_fd(),
        timer.as_fd().as_raw_fd(),
    ];
    close_all_but(&[&own, keeps].concat());
    go_first();
    // The deadline at which the command was killed.
    let mut fired_for = Instant::NEVER;
    // Kept from one kill to the next: it knows which numbers are the command's no longer.
    let mut tree = None;
    let mut is_gone = false;
    loop {
        let rlock_is_dead = set(timer, state, fired_for).and_then(|()| wait(socket, timer));
        // The clock is read before the deadline: an extension between the two then counts, as it
        // must.
        let now = clock::now();
        // It may be if the guard cannot tell: then the command is killed, and nothing given back.
        let ended = !matches!(rlock_is_dead, Ok(false));
        let kill_at = state.kill_at();
        if ended || now >= kill_at && kill_at != fired_for {
            fired_for = kill_at;
            if let Some(group) = state.group().filter(|_| !is_gone) {
                if !ended {
                    // rlock's child is not reaped before rlock disarms, so the number is the
                    // group's. Nothing is read before: on a busy host this process may wait for its
                    // next turn.
                    let _ = killpg(group, Signal::SIGSTOP);
                }
                is_gone = tree
                    .get_or_insert_with(|| tree_of(group, state, born))
                    .end();
            }
        }
        if ended {
            // Unarmed means that the command was not started yet, or is dead or free to go on.
            let is_over = state.group().is_none() || is_gone;
            // Nested runs noticed rlock's death as well and kill their commands; until then a
            // `local` lock is kept.
            if is_over && nested::outlast(pipe.as_fd()) && rlock_is_dead.is_ok() {
                allow_ending();
                let killed_since = is_gone.then(|| state.armed_at());
                heir(Left {
                    killed_since,
                    locks: state.to_give_back(),
                });
            }
            // SAFETY: ends the process at once; nothing that the fork copied is to be run or
            // flushed.
            unsafe { libc::_exit(0) };
        }
    }
}

/// Lets a service manager or a user end the guard. Nothing is left to be killed, and its locks end
/// with their leases.
fn allow_ending() {
    let which = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
    for (which, how) in which
        .into_iter()
        .flat_map(|which| [(which, SigHandler::SigIgn), (which, SigHandler::SigDfl)])
    {
        // Ignored for a moment: one that was meant for the command, and has been pending since, is
        // dropped. SAFETY: neither action needs a handler.
        let _ = unsafe { signal(which, how) };
    }
    let _ = which.into_iter().collect::<SigSet>().thread_unblock();
}

/// Asks for the largest share of the processors, and goes on without it. A seccomp filter may kill
/// the guard for asking, as systemd's `SystemCallFilter=~@resources` does, so under a filter it
/// does not ask.
fn go_first() {
    // SAFETY: both calls change nothing but this process' share.
    unsafe {
        // It is variadic, and the kernel is passed five words.
        if libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 0 {
            libc::nice(-40);
        }
    }
}

/// The processes of the command that leads `group`, for the guard that began at `born`.
fn tree_of(group: Pid, state: &GuardState, born: Instant) -> ProcessTree {
    let began = Start::at(state.armed_at(), born);
    ProcessTree::orphaned(group, began, &state.mark().to_string(), state.contains())
}

/// Sets the timer for the deadline, unless the guard has fired for it already.
///
/// Writers store the deadline *before* they set the timer. So if an old deadline is read here, the
/// writer sets the timer after this function does, and wins.
fn set(timer: &TimerFd, state: &GuardState, fired_for: Instant) -> io::Result<()> {
    loop {
        let kill_at = state.kill_at();
        set_timer(
            timer,
            if kill_at == fired_for {
                Instant::NEVER
            } else {
                kill_at
            },
        )?;
        if state.kill_at() == kill_at {
            return Ok(());
        }
    }
}

/// Waits until the timer has expired or rlock is dead: then its end of the socket is closed.
/// Returns whether it is.
///
/// It does not read the descriptors that rlock sends. They stay open in the socket's queue as long
/// as the guard lives, and the command's start does not wait for this process.
fn wait(socket: &OwnedFd, timer: &TimerFd) -> io::Result<bool> {
    // The kernel tells of a hang-up even where it is asked for nothing.
    let mut fds = [
        PollFd::new(socket.as_fd(), PollFlags::empty()),
        PollFd::new(timer.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut fds, PollTimeout::NONE) {
        Err(nix::Error::EINTR) => return Ok(false),
        polled => polled?,
    };
    match fds[0].revents() {
        Some(events) if events.contains(PollFlags::POLLHUP) => Ok(true),
        Some(events) if events.is_empty() => Ok(false),
        _ => Err(io::ErrorKind::Other.into()),
    }
}

/// Closes the descriptors that the guard inherited from rlock: its output, whose readers wait for
/// its end, and its connections.
fn close_all_but(kept: &[RawFd]) {
    // SAFETY: the guard uses none of these descriptors, and runs no destructor of their owners.
    // Closing a closed one is EBADF.
    let close = |fd| unsafe { libc::close(fd) };
    // If rlock has used up its descriptors, the list of them takes the place of this one.
    close(libc::STDIN_FILENO);
    for fd in open_descriptors()
        .into_iter()
        .filter(|fd| !kept.contains(fd))
    {
        close(fd);
    }
}

/// Returns the open descriptors; all that may be open, if /proc cannot be read.
fn open_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
        return (0..RawFd::try_from(limit)
            .unwrap_or(RawFd::MAX)
            .min(MAX_DESCRIPTORS))
            .collect();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::resource::setrlimit;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, dup, fork};

    use super::*;

    #[test]
    fn descriptors_of_any_number_are_closed() {
        // SAFETY: the child makes system calls, uses the allocator, and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
                let high = RawFd::try_from(hard.min(60_000)).unwrap() - 1;
                // SAFETY: the number is a new descriptor, which is used by its number alone.
                let made = unsafe { libc::dup2(2, high) };
                let low = dup(std::io::stderr()).unwrap();
                close_all_but(&[libc::STDERR_FILENO]);
                // SAFETY: it reads a flag.
                let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
                let bad = made != high || is_open(high) || is_open(low.as_raw_fd()) || !is_open(2);
                // SAFETY: ends the process, which is a copy of the tests'.
                unsafe { libc::_exit(i32::from(bad)) };
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }
}
