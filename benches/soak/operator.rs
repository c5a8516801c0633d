//! Those who take the lock away from whoever holds it, in the way that keeps the promise: `rlock break` without `--now`, which
//! leaves the lock in place until its holder has stopped the command.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::KEY;
use crate::contender::{Ending, ending};
use crate::support::program::{RLOCK, clean};

/// More than what is left of any lease, and what asking the nodes takes.
const LIMIT: Duration = Duration::from_secs(20);

/// All operators.
pub(crate) struct Operators {
    urls: String,
    log: File,
    at_it: Vec<(Instant, Child)>,
    endings: Vec<Ending>,
}

impl Operators {
    /// `urls`: the servers. What they are told goes to `log`.
    pub(crate) fn new(urls: String, log: File) -> Self {
        Self { urls, log, at_it: Vec::new(), endings: Vec::new() }
    }

    /// One more begins.
    pub(crate) fn break_lock(&mut self) -> Result<()> {
        let mut command = clean(RLOCK);
        command.args(["break", "--yes", "--log", "json", "--key", KEY, "--node", &self.urls]);
        let child = command.stdout(Stdio::null()).stderr(self.log.try_clone()?).spawn()?;
        self.at_it.push((Instant::now(), child));
        Ok(())
    }

    /// Sees who has ended.
    pub(crate) fn look(&mut self) -> Result<()> {
        for (begin, mut child) in std::mem::take(&mut self.at_it) {
            match child.try_wait()? {
                Some(status) => self.endings.push(ending(status)),
                None if begin.elapsed() > LIMIT => {
                    child.kill()?;
                    child.wait()?;
                    bail!("a break has not ended after {} s", LIMIT.as_secs());
                }
                None => self.at_it.push((begin, child)),
            }
        }
        Ok(())
    }

    /// Waits for the end of all, and says how each ended.
    pub(crate) fn finish(&mut self) -> Result<Vec<Ending>> {
        while !self.at_it.is_empty() {
            self.look()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(std::mem::take(&mut self.endings))
    }
}
