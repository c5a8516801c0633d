//! Those who contend: each runs one rlock after the other until it is told to stop.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{TTL, network, server, witness};

/// The rlock under test.
const RLOCK: &str = env!("CARGO_BIN_EXE_rlock");

/// How a run ended: its exit code, or minus the signal that ended it.
pub(crate) type Ending = i32;

/// All contenders.
pub(crate) struct Contenders {
    threads: Vec<JoinHandle<()>>,
    pids: Arc<Vec<AtomicI32>>,
    endings: mpsc::Receiver<Ending>,
}

/// `rlock --version`.
pub(crate) fn version() -> Result<String> {
    let output = Command::new(RLOCK).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Contenders {
    /// Starts so many, which go on until `ends`.
    pub(crate) fn start(count: usize, dir: &Path, nodes: usize, planted: bool, ends: &Arc<AtomicBool>) -> Result<Self> {
        let pids: Arc<Vec<AtomicI32>> = Arc::new((0..count).map(|_| AtomicI32::new(0)).collect());
        let (ending, endings) = mpsc::channel();
        let mut threads = Vec::new();
        for number in 0..count {
            let (pids, ends, ending) = (Arc::clone(&pids), Arc::clone(ends), ending.clone());
            let urls: Vec<String> =
                (0..nodes).map(|node| format!("redis://{}:{}", network::address(number), server::port(node))).collect();
            let run = Run { dir: dir.to_owned(), urls: urls.join(","), planted };
            let body = move || {
                while !ends.load(Ordering::Relaxed) {
                    let Ok(code) = run.once(&pids[number]) else { return };
                    let _ = ending.send(code);
                }
            };
            threads.push(std::thread::Builder::new().name(format!("contender{number}")).spawn(body)?);
        }
        Ok(Self { threads, pids, endings })
    }

    /// The rlock of each contender, 0 between two.
    pub(crate) fn pids(&self) -> Arc<Vec<AtomicI32>> {
        Arc::clone(&self.pids)
    }

    /// Waits for the end of all, and says how each run ended.
    pub(crate) fn finish(self, limit: Duration) -> Result<Vec<Ending>> {
        let begin = Instant::now();
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if begin.elapsed() > limit {
                bail!("a contender has not ended {} s after the last fault", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(self.endings.try_iter().collect())
    }
}

struct Run {
    dir: PathBuf,
    urls: String,
    planted: bool,
}

impl Run {
    fn once(&self, pid: &AtomicI32) -> Result<Ending> {
        // Most are short; some outlast several leases.
        let hold =
            if self.planted || fastrand::u8(..) < 2 { 2 * TTL } else { Duration::from_millis(fastrand::u64(1..60)) };
        let mut command = Command::new(RLOCK);
        command.args([
            "run",
            "-k",
            "soak",
            "--ttl",
            &format!("{}s", TTL.as_secs()),
            "--wait",
            "20",
            "--node",
            &self.urls,
        ]);
        // Twice the lease: servers are to be of use again within the soak.
        command.args(["--restart-guard", &format!("{}s", 2 * TTL.as_secs())]);
        if self.planted {
            command.args(["--on-lost", "warn"]);
        }
        command.arg("--").arg(std::env::current_exe()?).arg(witness::WORD).arg(&self.dir);
        command.arg(hold.as_millis().to_string()).env(witness::STARTED, witness::now().as_nanos().to_string());
        for (name, _) in std::env::vars_os().filter(|(name, _)| {
            name.as_encoded_bytes().starts_with(b"RLOCK_") && name != witness::STARTED || name == "REDISCLI_AUTH"
        }) {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().context("rlock")?;
        pid.store(child.id().cast_signed(), Ordering::Relaxed);
        let status = child.wait()?;
        pid.store(0, Ordering::Relaxed);
        Ok(status.code().unwrap_or_else(|| -std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0)))
    }
}
