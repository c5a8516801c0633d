//! The machine that the figures are from, and the programs on it.

use anyhow::{Context, Result, ensure};

use crate::contender::clean;

/// The one-minute load average.
pub(crate) fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    text.split(' ').next().and_then(|load| load.parse().ok()).context("/proc/loadavg cannot be read")
}

/// The first line that a program prints when given `flag`.
pub(crate) fn first_line(program: &str, flag: &str) -> Result<String> {
    let output = clean(program).arg(flag).output().with_context(|| format!("{program} is needed"))?;
    ensure!(output.status.success(), "{program} {flag}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}
