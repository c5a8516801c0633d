//! The machine that the figures are from.

use anyhow::{Context, Result};

use crate::program::first_line;

/// A directory in memory, as `/run/lock` is on hosts with systemd.
pub const IN_MEMORY: &str = "/dev/shm";

/// One-minute load average above which times say more about other processes than about rlock.
const BUSY: f64 = 1.5;

/// Returns the head of a report: a warning if the machine is busy, the versions of `programs`, the
/// machine.
pub fn described(programs: &[&str]) -> Result<String> {
    let load = load()?;
    let mut lines = Vec::new();
    if load > BUSY {
        lines.push(format!(
            "WARNING: load average {load} is above {BUSY}; the times below are of little use\n"
        ));
    }
    for program in programs {
        lines.push(first_line(program, &["--version"])?);
    }
    lines.push(format!(
        "{}, Linux {}",
        first_line("rustc", &["--version"])?,
        first_line("uname", &["-r"])?
    ));
    lines.push(format!(
        "{} cores, load average {load} at start\n",
        std::thread::available_parallelism()?
    ));
    Ok(lines.join("\n"))
}

/// Returns the one-minute load average.
pub fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    text.split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .context("/proc/loadavg cannot be read")
}

/// Converts bytes to units of 10⁶ bytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "nothing here is near 2^52 bytes"
)]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
