//! Measuring, for the benches: contenders and their times, batches of waiters, the machine, tables.

pub mod batch;
pub mod commands;
pub mod contender;
pub mod locker;
pub mod machine;
pub mod table;

use anyhow::{Context, Result, ensure};

/// The rlock that a bench measures: the one that `BENCHED` named when the bench was built, or
/// cargo's own.
#[macro_export]
macro_rules! benched {
    () => {
        match option_env!("BENCHED") {
            Some(path) => path,
            None => env!("CARGO_BIN_EXE_rlock"),
        }
    };
}

/// Returns the bench's argument, a number above 0, or `default`. cargo's own `--bench` is left out.
pub fn count(default: usize) -> Result<usize> {
    let given = std::env::args().skip(1).find(|arg| arg != "--bench");
    let count = given.map_or(Ok(default), |arg| {
        arg.parse().with_context(|| format!("{arg}: not a number"))
    })?;
    ensure!(count > 0, "{count}: one is the least");
    Ok(count)
}
