//! Measuring, for the benches: contenders and their times, batches of waiters, the machine, tables.

pub mod batch;
pub mod commands;
pub mod contender;
pub mod locker;
pub mod machine;
pub mod table;

use anyhow::{Context, Result, ensure};

/// Returns the bench's argument, a number above 0, or `default`. cargo's own `--bench` is left out.
pub fn count(default: usize) -> Result<usize> {
    let given = std::env::args().skip(1).find(|arg| arg != "--bench");
    let count = given.map_or(Ok(default), |arg| arg.parse().with_context(|| format!("{arg}: not a number")))?;
    ensure!(count > 0, "{count}: one is the least");
    Ok(count)
}
