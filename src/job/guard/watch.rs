//! The guard's own process: it sleeps until the deadline or rlock's death, and then kills the command.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use nix::sys::timerfd::TimerFd;
use nix::unistd::{Pid, setsid};

use super::watchdog::WatchdogState;
use super::{descriptors, set_timer};
use crate::clock;
use crate::job::process_tree::{ProcessTree, Start};
use crate::job::{handback, names, nested};
use crate::lock::instant::Instant;
use crate::lock::keys;

/// Most descriptors that rlock sends: a `local` lock of members has two files.
const MOST_KEPT: usize = 2 * keys::MOST;

/// Runs the guard. It was forked with all signals blocked, so only SIGKILL and SIGSTOP act on it, and no handler of rlock's
/// runs here.
pub(super) fn watch(socket: &OwnedFd, timer: &TimerFd, state: &WatchdogState, keeps: &[RawFd]) -> ! {
    let born = clock::now();
    let _ = setsid();
    let _ = prctl::set_name(names::GUARD);
    // SIGCONT at rlock's death wakes a guard that was stopped. It has no other effect.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
    let own = [socket.as_raw_fd(), timer.as_fd().as_raw_fd()];
    descriptors::close_all_but([&own, keeps].concat());
    // The descriptors that rlock sends are only kept open.
    let mut kept = Vec::new();
    // The deadline at which the command was killed.
    let mut fired_for = Instant::NEVER;
    // Kept from one kill to the next: it knows which numbers are the command's no longer.
    let mut tree = None;
    let mut is_gone = false;
    loop {
        let cannot_wait = set(timer, state, fired_for).and_then(|()| wait(socket, timer)).is_err();
        // The clock is read before the deadline: an extension between the two then counts, as it must.
        let now = clock::now();
        let rlock = receive_all(socket, &mut kept);
        let ended = rlock != Rlock::Alive || cannot_wait;
        let kill_at = state.kill_at();
        if ended || now >= kill_at && kill_at != fired_for {
            fired_for = kill_at;
            if let Some(group) = state.group().filter(|_| !is_gone) {
                is_gone = tree.get_or_insert_with(|| tree_of(group, state, born)).end();
            }
        }
        if ended {
            // Unarmed means that the command was not started yet, or is dead or free to go on.
            let is_over = state.group().is_none() || is_gone;
            // Nested runs noticed rlock's death as well and kill their commands; until then a `local` lock is kept.
            if is_over && nested::outlast(&state.outlasts()) && rlock == Rlock::Died {
                let _ = state.hand_back().map(|(how, tokens)| handback::release(&how, &tokens));
            }
            // SAFETY: ends the process at once; nothing that the fork copied is to be run or flushed.
            unsafe { libc::_exit(0) };
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
    /// The socket cannot be read.
    Unknown,
}

/// Reads all that rlock has sent: at most the descriptors to keep.
fn receive_all(socket: &OwnedFd, kept: &mut Vec<OwnedFd>) -> Rlock {
    loop {
        match receive(socket.as_raw_fd()) {
            Ok(Received::Descriptors(sent)) => kept.extend(sent),
            Ok(Received::End) => return Rlock::Died,
            Err(nix::Error::EAGAIN) => return Rlock::Alive,
            Err(nix::Error::EINTR) => {}
            // Without room for a descriptor this guard ends, and rlock replaces it: the next one inherits it in the fork.
            Ok(Received::NoRoom) | Err(_) => return Rlock::Unknown,
        }
    }
}

enum Received {
    Descriptors(Vec<OwnedFd>),
    /// A message without all of its descriptors: there was no room for one more.
    NoRoom,
    End,
}

fn receive(socket: RawFd) -> nix::Result<Received> {
    let mut bytes = [0];
    let mut space = nix::cmsg_space!([RawFd; MOST_KEPT]);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<UnixAddr>(socket, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(Received::End);
    }
    let numbers = message.cmsgs()?.flat_map(|part| match part {
        ControlMessageOwned::ScmRights(fds) => fds,
        _ => vec![],
    });
    // SAFETY: the kernel made these descriptors for us with this very message; nothing else knows of them.
    let descriptors: Vec<OwnedFd> = numbers.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    // The byte is their number.
    let is_whole = descriptors.len() == usize::from(bytes[0]);
    Ok(if is_whole { Received::Descriptors(descriptors) } else { Received::NoRoom })
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

/// Waits until the socket is readable or the timer has expired.
fn wait(socket: &OwnedFd, timer: &TimerFd) -> io::Result<()> {
    let mut fds = [socket.as_fd(), timer.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
