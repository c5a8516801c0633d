//! Contenders: each runs one rlock after the other until it is told to stop.

use std::fs::{File, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::foreign::{Foreign, Witness};
use crate::share::{Ask, KEYS};
use crate::{RLOCK, TTL, witness};
use testkit::now;
use testkit::processes::give_up_priority;
use testkit::program::clean;

/// End of a run: its exit code, or minus the signal that ended it.
pub(crate) type Ending = i32;

/// Converts an exit status.
pub(crate) fn ending(status: ExitStatus) -> Ending {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(0))
}

/// All contenders.
pub(crate) struct Contenders {
    threads: Vec<JoinHandle<()>>,
    pids: Arc<Vec<AtomicI32>>,
    endings: mpsc::Receiver<Result<Ending>>,
}

/// Settings of all contenders.
#[derive(Clone)]
pub(crate) struct Work {
    /// Directory of the logs of witnesses and rlocks.
    pub(crate) dir: PathBuf,
    /// `--restart-guard`, if it is not the default.
    pub(crate) restart_guard: Option<Duration>,
    /// Number of commands, of 256, that run for up to two leases.
    pub(crate) long: u8,
    /// Whether each rlock draws its locks and their kind.
    pub(crate) kinds: bool,
    /// Whether the kill rule is off, and each command runs for longer than its lease.
    pub(crate) planted: bool,
}

/// Number of foreign clients that contend.
const FOREIGN: usize = 2;

/// Exit code of a run that no majority of the nodes answered.
const UNREACHABLE: Ending = 69;

impl Contenders {
    /// Starts a contender for each list of `nodes`, and some of the foreign client. They run until
    /// `ends` is set.
    pub(crate) fn start(
        nodes: Vec<String>,
        foreign: Option<Box<dyn Foreign>>,
        work: &Work,
        ends: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let pids: Arc<Vec<AtomicI32>> = Arc::new(nodes.iter().map(|_| AtomicI32::new(0)).collect());
        let (ending, endings) = mpsc::channel();
        let mut threads = Vec::new();
        for (number, nodes) in nodes.into_iter().enumerate() {
            let (pids, ends, ending) = (Arc::clone(&pids), Arc::clone(ends), ending.clone());
            let (work, log) = (work.clone(), told(&work.dir)?);
            let body = move || {
                let (mut failed, mut was_away) = (false, false);
                // A run that reached no server could not leave the queue there. The next run
                // removes it.
                while !failed && (was_away || !ends.load(Ordering::Relaxed)) {
                    let ended = work.once(&nodes, &log, &pids[number]);
                    (failed, was_away) = (ended.is_err(), matches!(ended, Ok(UNREACHABLE)));
                    let _ = ending.send(ended);
                }
            };
            threads.push(
                std::thread::Builder::new()
                    .name(format!("contender{number}"))
                    .spawn(body)?,
            );
        }
        if let Some(foreign) = foreign {
            let foreign: Arc<dyn Foreign> = foreign.into();
            for _ in 0..FOREIGN {
                let (foreign, ends) = (Arc::clone(&foreign), Arc::clone(ends));
                let (dir, ending) = (work.dir.clone(), ending.clone());
                let body = move || {
                    while !ends.load(Ordering::Relaxed) {
                        let witness = Witness::next(&dir, foreign.name(), KEYS[0]);
                        if let Err(error) = witness.and_then(|witness| foreign.run(&witness)) {
                            let _ = ending.send(Err(error));
                            break;
                        }
                    }
                };
                threads.push(std::thread::spawn(body));
            }
        }
        Ok(Self {
            threads,
            pids,
            endings,
        })
    }

    /// Returns the rlock of each contender, 0 between two runs.
    pub(crate) fn pids(&self) -> Arc<Vec<AtomicI32>> {
        Arc::clone(&self.pids)
    }

    /// Waits for the end of all, and returns how each run ended.
    pub(crate) fn finish(self, limit: Duration) -> Result<Vec<Ending>> {
        let begin = Instant::now();
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if begin.elapsed() > limit {
                bail!(
                    "a contender has not ended {} s after the last fault",
                    limit.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.endings.try_iter().collect()
    }
}

/// Opens the file in `dir` for the stderr of all rlocks.
pub(crate) fn told(dir: &Path) -> Result<File> {
    Ok(OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("told"))?)
}

impl Work {
    fn once(&self, nodes: &str, log: &File, pid: &AtomicI32) -> Result<Ending> {
        // Most are short. Some run for more than a lease, so that the effect of a fault shows.
        let hold = match fastrand::u8(..) {
            _ if self.planted => 2 * TTL,
            draw if draw < self.long => TTL.mul_f64(2.0 * fastrand::f64()),
            _ => Duration::from_millis(fastrand::u64(1..60)),
        };
        let ask = if self.kinds {
            Ask::draw()
        } else {
            Ask::first()
        };
        let ttl = format!("{}s", TTL.as_secs());
        let mut command = clean(RLOCK);
        command
            .args([
                "run", "--log", "json", "--ttl", &ttl, "--wait", "20", "--node", nodes,
            ])
            .args(ask.options());
        if let Some(guard) = self.restart_guard {
            command.args(["--restart-guard", &format!("{}s", guard.as_secs())]);
        }
        if self.planted {
            command.args(["--on-lost", "warn"]);
        }
        command
            .arg("--")
            .arg(std::env::current_exe()?)
            .arg(witness::WORD)
            .arg(&self.dir);
        command
            .arg(hold.as_millis().to_string())
            .arg(ask.kind)
            .env(witness::STARTED, now().as_nanos().to_string());
        // Every other guard waits for a processor as any user's does.
        if fastrand::bool() {
            // SAFETY: one system call.
            unsafe { command.pre_exec(give_up_priority) };
        }
        let mut child = command.stderr(log.try_clone()?).spawn().context("rlock")?;
        pid.store(child.id().cast_signed(), Ordering::Relaxed);
        let status = child.wait()?;
        pid.store(0, Ordering::Relaxed);
        Ok(ending(status))
    }
}
