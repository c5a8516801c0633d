//! Signals that rlock gets: noted by a handler, read here one by one.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, killpg, raise, sigaction, signal};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::{Pid, getpgrp};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin, Process};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::event::CaughtSignal;
use super::group::{NAME, can_look};
use super::inherited::Inherited;
use super::policy::Continued;

/// What is passed on to the command, and ends a wait. `rlock` itself goes on until the command has ended.
/// Their default action would end rlock, and leave the key for its TTL. A timer outlives exec (`alarm 60; exec rlock …`),
/// and a limit of processor time is inherited. Signals that tell of a fault in rlock (ABRT, SEGV, SYS, …) are left: the
/// guard acts on its death.
pub(super) const PASSED_ON: [Signal; 12] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// What the kernel sends for another reason than a key on the terminal.
const OF_THE_KERNEL: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// What is of interest only while there is a command.
pub(super) const WITH_COMMAND: [Signal; 3] = [Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// Sent by the kernel, or by an rlock above us that passes on what its terminal sent: what it passes on from others comes
/// to the same, since it exits with 128+n if we die of it.
fn is_from_terminal(origin: &Origin) -> bool {
    let sent_by_rlock = |process: &Process| {
        std::fs::read(format!("/proc/{}/comm", process.pid)).is_ok_and(|name| name.trim_ascii() == NAME.to_bytes())
    };
    origin.cause == Cause::Kernel || can_look().is_ok() && origin.process.as_ref().is_some_and(sent_by_rlock)
}

/// The signals that have come.
pub struct Signals {
    /// For as long as rlock runs. To take the handlers back one by one would cost more than to set them.
    delivery: ManuallyDrop<SignalDelivery<AsyncFd<UnixStream>, WithOrigin>>,
    come: VecDeque<CaughtSignal>,
    inherited: Inherited,
    /// Children whose end another part of rlock looks at: their zombies are left.
    spared: Vec<Pid>,
}

impl Signals {
    /// Catches what ends a wait, less what was found ignored, and SIGCHLD.
    pub fn catch(inherited: &Inherited) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        // SAFETY: the stream owns its descriptor, always names the same one, and closes it only when dropped.
        let read = unsafe { AsyncFd::register_with_interest(read, Interest::READABLE) }?;
        let caught = PASSED_ON.into_iter().filter(|signal| !inherited.ignored(*signal)).chain([Signal::SIGCHLD]);
        let numbers: Vec<i32> = caught.map(|signal| signal as i32).collect();
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), numbers)?;
        Ok(Self {
            delivery: ManuallyDrop::new(delivery),
            come: VecDeque::new(),
            inherited: inherited.clone(),
            spared: vec![],
        })
    }

    /// The zombies of `children` alone are left from now on. All other children are reaped when they end: orphans that the
    /// kernel gave rlock, as process 1 of a container or for `--contain`, and children of the program that became rlock.
    pub fn tolerated(&mut self, children: &[Pid]) {
        self.spared = children.to_vec();
        // Some may have ended before there was a handler.
        self.reap();
    }

    /// Catches what concerns a running command too.
    pub fn catch_for_command(&self) -> io::Result<()> {
        let handle = self.delivery.handle();
        WITH_COMMAND
            .into_iter()
            .filter(|signal| !self.inherited.ignored(*signal))
            .try_for_each(|signal| handle.add_signal(signal as i32))
    }

    /// The next signal. May be dropped and called again.
    pub async fn next(&mut self) -> CaughtSignal {
        loop {
            if let Some(caught) = self.come_already() {
                if caught.signal == Signal::SIGCHLD {
                    self.reap();
                }
                return caught;
            }
            match self.delivery.get_read().readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is going away, and we with it.
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// Reaps what has ended.
    fn reap(&self) {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Some(ended) = waitid(Id::All, look).ok().and_then(|status| status.pid()) {
            // The guard is replaced at once, and after the command's end rlock ends too: what these hide can wait.
            if self.spared.contains(&ended) {
                return;
            }
            let _ = waitpid(ended, Some(WaitPidFlag::WNOHANG));
        }
    }

    fn come_already(&mut self) -> Option<CaughtSignal> {
        if self.come.is_empty() {
            self.come.extend(self.delivery.pending().filter_map(|origin| {
                let signal = Signal::try_from(origin.signal).ok()?;
                Some(CaughtSignal {
                    signal,
                    from_terminal: !OF_THE_KERNEL.contains(&signal) && is_from_terminal(&origin),
                })
            }));
        }
        self.come.pop_front()
    }

    /// Stops rlock, or with `whole_job` all that the shell sees as one job with it, by `which`'s default action, so
    /// that the shell, or an rlock around this one, sees the stop that it would have seen of the command. Returns how
    /// rlock came to go on.
    pub fn stop(&mut self, which: Signal, whole_job: bool) -> Continued {
        self.forget(Signal::SIGCONT);
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action needs no handler; what was in force is put back below. SIGSTOP has only the one.
        let before = unsafe { sigaction(which, &default) };
        let mut mask = SigSet::empty();
        mask.add(which);
        let blocked = mask.thread_swap_mask(SigmaskHow::SIG_UNBLOCK);
        // Delivered, and we stopped and continued, when this returns (kill(2)).
        let _ = if whole_job { killpg(getpgrp(), which) } else { raise(which) };
        let _ = blocked.map(|mask| mask.thread_set_mask());
        // SAFETY: this was in force before.
        let _ = before.map(|action| unsafe { sigaction(which, &action) });
        // What stops a process discards a SIGCONT that is pending, and only a SIGCONT ends the stop (signal(7)).
        let stopped = self.forget(Signal::SIGCONT) || self.inherited.ignored(Signal::SIGCONT);
        if stopped { Continued::BySigcont } else { Continued::NeverStopped }
    }

    /// Whether `signal` has come; it is not spoken of again.
    fn forget(&mut self, signal: Signal) -> bool {
        let all: Vec<CaughtSignal> = std::iter::from_fn(|| self.come_already()).collect();
        let count = all.len();
        self.come.extend(all.into_iter().filter(|caught| caught.signal != signal));
        self.come.len() < count
    }

    /// A signal that ends a wait and has come already.
    pub fn ended(&mut self) -> Option<CaughtSignal> {
        std::iter::from_fn(|| self.come_already()).find(|caught| caught.signal != Signal::SIGCHLD)
    }
}

/// Ends rlock by `which`, as the terminal would have: what waits for us sees that, and a shell's loop stops.
pub fn reraise(which: Signal) {
    // A core of rlock would say nothing about the command.
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: the default action needs no handler.
    let _ = unsafe { signal(which, SigHandler::SigDfl) };
    let _ = SigSet::empty().thread_set_mask();
    let _ = raise(which);
}
