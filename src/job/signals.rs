//! Signals that rlock catches: a handler queues them, and they are read here one by one.

use std::collections::VecDeque;
use std::io;
use std::thread::Builder;

use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, killpg, raise, sigaction, signal,
};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpgrp};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin, Process};
use tokio::net::UnixStream;

use super::policy::{CaughtSignal, Continued};
use super::process_tree::{self, check_proc};
use super::spawn::Inherited;
use super::spawn::peek;

/// Forwarded to the command, and end a wait: sent by users and programs.
const FROM_PROCESSES: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Forwarded like these, and sent by the kernel though no key was pressed. Timers and CPU limits
/// survive exec (`alarm 60; exec rlock …`).
const FROM_KERNEL: [Signal; 6] = [
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// Handled only while a command runs.
const FOR_COMMAND: [Signal; 3] = [Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// Ignored: a write to a closed pipe, or beyond a file's size limit, is an error and must not end
/// rlock.
pub(super) const IGNORED: [Signal; 2] = [Signal::SIGPIPE, Signal::SIGXFSZ];

/// Returns the signals that rlock forwards to the command and that end a wait. Their default action
/// would end rlock and leave the key for its TTL.
///
/// Signals of a fault in rlock (ABRT, SEGV, SYS, …) are left alone: the guard acts on rlock's
/// death.
fn forwarded() -> impl Iterator<Item = Signal> {
    FROM_PROCESSES.into_iter().chain(FROM_KERNEL)
}

/// Starts a thread with a stack of `stack` bytes. It gets no signal: all of them stay with the one
/// that waits, renews and supervises.
pub fn spawn_thread(
    name: &str,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = Builder::new()
        .name(name.to_owned())
        .stack_size(stack)
        .spawn(run);
    before.thread_set_mask()?;
    started.map(drop)
}

/// Returns all signals whose disposition rlock changes.
pub(super) fn changed() -> impl Iterator<Item = Signal> {
    forwarded()
        .chain(FOR_COMMAND)
        .chain(IGNORED)
        .chain([Signal::SIGCHLD])
}

/// Whether the kernel may send `signal` because of a key on the terminal.
fn has_key(signal: Signal) -> bool {
    signal != Signal::SIGCHLD && !FROM_KERNEL.contains(&signal)
}

/// Whether a key on the terminal caused the signal: the kernel sent it, or an outer rlock forwarded
/// it.
///
/// An outer rlock also forwards signals of other senders. Treating those the same is harmless: it
/// exits with 128+n either way.
fn is_from_terminal(origin: &Origin) -> bool {
    let is_rlock = |process: &Process| {
        std::fs::read(format!("/proc/{}/comm", process.pid))
            .is_ok_and(|name| name.trim_ascii() == process_tree::RLOCK.to_bytes())
    };
    origin.cause == Cause::Kernel
        || check_proc().is_ok() && origin.process.as_ref().is_some_and(is_rlock)
}

/// The queue of caught signals, and the handlers that fill it.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    pending: VecDeque<CaughtSignal>,
    inherited: Inherited,
    /// Children that another part of rlock reaps.
    spared: Vec<Pid>,
}

impl Signals {
    /// Catches SIGCHLD and the signals that end a wait, except those that rlock inherited as
    /// ignored.
    pub fn catch(inherited: &Inherited) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let caught = forwarded()
            .filter(|signal| !inherited.ignored(*signal))
            .chain([Signal::SIGCHLD]);
        let caught = caught.map(|signal| signal as i32);
        let delivery =
            SignalDelivery::with_pipe(read, write.into_std()?, WithOrigin::default(), caught)?;
        Ok(Self {
            delivery,
            pending: VecDeque::new(),
            inherited: inherited.clone(),
            spared: vec![],
        })
    }

    /// Leaves the zombies of `children` to their owners from now on, and reaps all other children
    /// when they end. These are orphans that rlock adopts as PID 1 of a container or for
    /// `--contain`, and children from before rlock was exec'd.
    pub fn reap_all_but(&mut self, children: &[Pid]) {
        self.spared = children.to_vec();
        // Children may have ended before the handler was set.
        self.reap();
    }

    /// Catches the signals that matter only while a command runs, too.
    pub fn catch_for_command(&self) -> io::Result<()> {
        let handle = self.delivery.handle();
        FOR_COMMAND
            .into_iter()
            .filter(|signal| !self.inherited.ignored(*signal))
            .try_for_each(|signal| handle.add_signal(signal as i32))
    }

    /// Returns the next signal. Cancel safe.
    pub async fn next(&mut self) -> CaughtSignal {
        loop {
            if let Some(caught) = self.try_next() {
                if caught.signal == Signal::SIGCHLD {
                    self.reap();
                }
                return caught;
            }
            let wakeups = self.delivery.get_read();
            if wakeups.readable().await.is_err() {
                // The runtime shuts down, and rlock with it.
                return std::future::pending().await;
            }
            while wakeups.try_read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
    }

    fn reap(&self) {
        while let Some(ended) = peek(None, libc::WEXITED | libc::WNOWAIT) {
            // A spared zombie hides those behind it, but not for long: the guard is replaced at
            // once, and rlock ends soon after its command.
            if self.spared.contains(&ended.child) {
                return;
            }
            let _ = waitpid(ended.child, Some(WaitPidFlag::WNOHANG));
        }
    }

    fn try_next(&mut self) -> Option<CaughtSignal> {
        if self.pending.is_empty() {
            self.pending
                .extend(self.delivery.pending().filter_map(|origin| {
                    let signal = Signal::try_from(origin.signal).ok()?;
                    Some(CaughtSignal {
                        signal,
                        from_terminal: has_key(signal) && is_from_terminal(&origin),
                    })
                }));
        }
        self.pending.pop_front()
    }

    /// Stops rlock, or with `whole_job` its process group, by `which`'s default action: the shell
    /// or an outer rlock sees the same stop as of the command. Returns why rlock runs again.
    pub fn suspend(&mut self, which: Signal, whole_job: bool) -> Continued {
        self.discard(Signal::SIGCONT);
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action needs no handler, and the old one is restored below. SIGSTOP
        // has only this one.
        let before = unsafe { sigaction(which, &default) };
        let mut mask = SigSet::empty();
        mask.add(which);
        let blocked = mask.thread_swap_mask(SigmaskHow::SIG_UNBLOCK);
        // When this returns, the signal was delivered, and rlock stopped and continued (kill(2)).
        let _ = if whole_job {
            killpg(getpgrp(), which)
        } else {
            raise(which)
        };
        let _ = blocked.map(|mask| mask.thread_set_mask());
        // SAFETY: this action was in force before.
        let _ = before.map(|action| unsafe { sigaction(which, &action) });
        // A stop signal discards a pending SIGCONT, and only SIGCONT ends the stop (signal(7)).
        let stopped = self.discard(Signal::SIGCONT) || self.inherited.ignored(Signal::SIGCONT);
        if stopped {
            Continued::BySigcont
        } else {
            Continued::NeverStopped
        }
    }

    /// Removes `signal` from the queue. Returns whether it was in it.
    fn discard(&mut self, signal: Signal) -> bool {
        let all: Vec<CaughtSignal> = std::iter::from_fn(|| self.try_next()).collect();
        let count = all.len();
        self.pending
            .extend(all.into_iter().filter(|caught| caught.signal != signal));
        self.pending.len() < count
    }

    /// Returns a queued signal that ends a wait.
    pub fn interruption(&mut self) -> Option<CaughtSignal> {
        std::iter::from_fn(|| self.try_next()).find(|caught| caught.signal != Signal::SIGCHLD)
    }
}

/// Ends rlock by signal `which`, so that a shell's loop stops as it would for the command.
pub fn reraise(which: Signal) {
    // SAFETY: the default action needs no handler.
    let _ = unsafe { signal(which, SigHandler::SigDfl) };
    let _ = SigSet::empty().thread_set_mask();
    let _ = raise(which);
}
