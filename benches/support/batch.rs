//! One who holds the lock, and those who wait behind it, in a known order.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::locker::Locker;
use super::until;
use super::witness::Log;

/// Where batches put their files, and what they run.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) witness: &'a Path,
}

/// A batch that stands and waits.
pub(crate) struct Batch {
    holder: Process,
    waiters: Vec<Process>,
    /// The holder's command runs until this is closed.
    gate: File,
    log: PathBuf,
}

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended by itself is no trouble.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Batch {
    /// Lets a holder in, then one waiter after the other, each only when the one before it stands in line. Their labels are
    /// 0, 1, 2, …, and each will keep the lock for `stay`.
    pub(crate) fn form(locker: &mut dyn Locker, place: Place, waiters: usize, stay: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (log, fifo) = (place.dir.join(format!("log-{number}")), place.dir.join(format!("gate-{number}")));
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let start = |locker: &dyn Locker, label: usize, stay: &str| -> Result<Process> {
            let mut command = locker.command();
            command.arg(place.witness).arg(&log).args([&label.to_string(), stay]);
            Ok(Process(command.stdout(Stdio::null()).spawn()?))
        };
        let holder = start(locker, 0, &fifo.to_string_lossy())?;
        // Without a reader, which is the holder's command, this fails.
        let gate = until("the holder", || {
            Ok(OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(&fifo).ok())
        })?;
        let mut batch = Self { holder, waiters: Vec::with_capacity(waiters), gate, log: log.clone() };
        for label in 1..=waiters {
            let waiter = start(locker, label, stay)?;
            let pid = waiter.0.id();
            batch.waiters.push(waiter);
            until("one who waits", || Ok(locker.stands(label, pid)?.then_some(())))?;
        }
        Ok(batch)
    }

    /// The process that holds the lock.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.0.id()
    }

    /// The processes of those who wait.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = u32> {
        self.waiters.iter().map(|waiter| waiter.0.id())
    }

    /// Lets the holder's command end, and all others run one after another.
    pub(crate) fn run(self) -> Result<Log> {
        let Self { holder, waiters, gate, log } = self;
        drop(gate);
        let all = waiters.len() + 1;
        for mut process in std::iter::once(holder).chain(waiters) {
            let status = process.0.wait()?;
            ensure!(status.success(), "one of a batch: {status}");
        }
        let log = Log::read(&log)?;
        ensure!(log.stays().len() == all, "{} of {all} ran", log.stays().len());
        ensure!(log.overlaps() == 0, "{} overlaps", log.overlaps());
        Ok(log)
    }
}
