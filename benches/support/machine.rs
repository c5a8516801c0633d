//! The machine that the figures are from, and what a process takes of it.

use anyhow::{Context, Result};

use super::program::first_line;

/// Above this one-minute load average times say more about the neighbours than about rlock.
const BUSY: f64 = 1.5;

/// What stands above the figures: a warning if the machine is busy, the programs' versions, the machine.
pub(crate) fn described(programs: &[&str]) -> Result<String> {
    let load = load()?;
    let mut lines = Vec::new();
    if load > BUSY {
        lines.push(format!("WARNING: load average {load} is above {BUSY}; the times below are of little use\n"));
    }
    for program in programs {
        lines.push(first_line(program, "--version")?);
    }
    lines.push(format!("{}, Linux {}", first_line("rustc", "--version")?, first_line("uname", "-r")?));
    lines.push(format!("{} cores, load average {load} at start\n", std::thread::available_parallelism()?));
    Ok(lines.join("\n"))
}

/// The one-minute load average.
pub(crate) fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    text.split(' ').next().and_then(|load| load.parse().ok()).context("/proc/loadavg cannot be read")
}

/// A field of `/proc/PID/status` that is given in kB (which there means KiB), in bytes.
pub(crate) fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = value.and_then(|value| value.trim().strip_suffix(" kB")).with_context(|| format!("no {field}"))?;
    Ok(number.trim().parse::<u64>()? * 1024)
}

/// In 10⁶ bytes.
#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52 bytes")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
