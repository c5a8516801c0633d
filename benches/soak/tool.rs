//! The tools by which things are done. None of them may keep the soak waiting: while it waits, nothing is done to anybody.

use anyhow::{Context, Result, ensure};

use crate::support::program::clean;

/// What `tool` prints, which must succeed within seconds.
pub(crate) fn run(tool: &str, words: &[&str]) -> Result<String> {
    let mut limited = clean("timeout");
    limited.args(["--signal=KILL", "5", tool]).args(words);
    let output = limited.output().context("timeout (coreutils) is needed")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{tool} {}: {}: {}", words.join(" "), output.status, told.trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
