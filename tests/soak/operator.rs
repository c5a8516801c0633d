//! Operators: each breaks the lock in the way that keeps the promise, `rlock break` without
//! `--now`. That leaves the lock in place until its holder has stopped the command. At the end one
//! takes each lock.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::RLOCK;
use crate::contender::{Ending, ending};
use testkit::program::clean;

/// Longest time of a break: the rest of any lease, and the requests to the nodes.
const LIMIT: Duration = Duration::from_secs(20);

/// All operators that have run or still run.
pub(crate) struct Operators {
    nodes: Vec<String>,
    log: File,
    running: Vec<(Instant, Child)>,
    endings: Vec<Ending>,
}

impl Operators {
    /// Makes operators of the nodes with these addresses, with their stderr in `log`.
    pub(crate) fn new(nodes: Vec<String>, log: File) -> Self {
        Self {
            nodes,
            log,
            running: Vec::new(),
            endings: Vec::new(),
        }
    }

    /// Starts one more, which breaks the lock `key`.
    pub(crate) fn break_lock(&mut self, key: &str) -> Result<()> {
        let mut command = clean(RLOCK);
        command.args(["break", "--yes", "--log", "json", "--key", key, "--node"]);
        command.arg(self.nodes.join(","));
        let child = command
            .stdout(Stdio::null())
            .stderr(self.log.try_clone()?)
            .spawn()?;
        self.running.push((Instant::now(), child));
        Ok(())
    }

    /// Takes the lock `key`, which must be free, at each node alone, and gives it back. At all of
    /// them at once it would pass over a minority. No lease is left that a server which is back could
    /// have forgotten.
    pub(crate) fn take_lock(&self, key: &str) -> Result<()> {
        for node in &self.nodes {
            let mut command = clean(RLOCK);
            command.args(["run", "--wait", "5s", "--restart-guard", "0", "--key", key]);
            command.args(["--node", node, "--", "true"]);
            let status = command.stderr(self.log.try_clone()?).status()?;
            ensure!(
                status.success(),
                "{key} is not free at {node} at the end: {status}"
            );
        }
        Ok(())
    }

    /// Reaps those that have ended.
    pub(crate) fn reap(&mut self) -> Result<()> {
        for (begin, mut child) in std::mem::take(&mut self.running) {
            match child.try_wait()? {
                Some(status) => self.endings.push(ending(status)),
                None if begin.elapsed() > LIMIT => {
                    child.kill()?;
                    child.wait()?;
                    bail!("a break has not ended after {} s", LIMIT.as_secs());
                }
                None => self.running.push((begin, child)),
            }
        }
        Ok(())
    }

    /// Waits for the end of all, and returns how each ended.
    pub(crate) fn finish(&mut self) -> Result<Vec<Ending>> {
        while !self.running.is_empty() {
            self.reap()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(std::mem::take(&mut self.endings))
    }
}
