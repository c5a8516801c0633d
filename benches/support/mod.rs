//! What the benches have in common.

#![allow(dead_code, reason = "no bench needs all of it")]

pub(crate) mod batch;
pub(crate) mod commands;
pub(crate) mod contender;
pub(crate) mod line;
pub(crate) mod locker;
pub(crate) mod machine;
pub(crate) mod port;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod table;
pub(crate) mod witness;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::time::{ClockId, clock_gettime};

const PATIENCE: Duration = Duration::from_secs(20);

/// The first argument that is not cargo's own `--bench`, a number above 0.
pub(crate) fn count(default: usize) -> Result<usize> {
    let given = std::env::args().skip(1).find(|arg| arg != "--bench");
    let count = given.map_or(Ok(default), |arg| arg.parse().with_context(|| format!("{arg}: not a number")))?;
    ensure!(count > 0, "one is the least");
    Ok(count)
}

/// Time since boot, suspended or not.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Into::into)
}

/// Looks again and again until there is something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    bail!("never came: {what}")
}
