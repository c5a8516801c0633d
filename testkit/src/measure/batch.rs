//! A holder of the lock, and waiters behind it in a known order.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::locker::Locker;
use crate::until;
use crate::witness::Log;

/// A directory for the files of batches, and the command that they run.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The directory.
    pub dir: &'a Path,
    /// The command, built by [`crate::witness::build`].
    pub witness: &'a Path,
}

/// A holder and its waiters, all running.
pub struct Batch {
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
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Batch {
    /// Starts a holder, then one waiter after the other, each only when the one before it is
    /// enqueued. Their labels are 0, 1, 2, …, and each waiter will hold the lock for `stay`.
    pub fn form(locker: &mut dyn Locker, place: Place, waiters: usize, stay: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (log, fifo) = (
            place.dir.join(format!("log-{number}")),
            place.dir.join(format!("gate-{number}")),
        );
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let start = |mut command: Command, label: usize, stay: &str| -> Result<Process> {
            command
                .arg(place.witness)
                .arg(&log)
                .args([&label.to_string(), stay]);
            Ok(Process(command.stdout(Stdio::null()).spawn()?))
        };
        let holder = start(locker.holder(), 0, &fifo.to_string_lossy())?;
        // Without a reader, which is the holder's command, this fails.
        let gate = until("the holder runs", || {
            Ok(OpenOptions::new()
                .write(true)
                .custom_flags(nix::libc::O_NONBLOCK)
                .open(&fifo)
                .ok())
        })?;
        let mut batch = Self {
            holder,
            waiters: Vec::with_capacity(waiters),
            gate,
            log: log.clone(),
        };
        for label in 1..=waiters {
            let waiter = start(locker.command(), label, stay)?;
            let pid = waiter.0.id().cast_signed();
            batch.waiters.push(waiter);
            until("a waiter is enqueued", || {
                Ok(locker.is_enqueued(label, pid)?.then_some(()))
            })?;
        }
        Ok(batch)
    }

    /// Returns the process that holds the lock.
    pub fn holder(&self) -> i32 {
        self.holder.0.id().cast_signed()
    }

    /// Returns the processes that wait.
    pub fn waiters(&self) -> impl Iterator<Item = i32> {
        self.waiters
            .iter()
            .map(|waiter| waiter.0.id().cast_signed())
    }

    /// Ends the holder's command, waits until all others have run one after another, and returns
    /// what the witness saw.
    pub fn run(self) -> Result<Log> {
        let log = self.run_beside()?;
        ensure!(log.overlaps() == 0, "{} overlaps", log.overlaps());
        Ok(log)
    }

    /// The same for waiters of which some may run at the same time.
    pub fn run_beside(self) -> Result<Log> {
        let Self {
            holder,
            waiters,
            gate,
            log,
        } = self;
        drop(gate);
        let all = waiters.len() + 1;
        for mut process in std::iter::once(holder).chain(waiters) {
            let status = process.0.wait()?;
            ensure!(status.success(), "one of a batch: {status}");
        }
        let log = Log::read(&log)?;
        ensure!(
            log.stays().len() == all,
            "{} of {all} ran",
            log.stays().len()
        );
        Ok(log)
    }
}
