//! The tools that inject faults. Each has a limit: while the soak waits for one, no other fault is
//! injected.

use anyhow::{Context, Result, ensure};

use testkit::program::clean;

/// Kills all connections of clients to the server on `port`.
pub(crate) fn kill_connections(port: u16) -> Result<()> {
    let port = format!("= {port}");
    run("ss", &["-K", "-t", "dst", "127.0.0.0/8", "dport", &port]).map(drop)
}

/// Runs `tool`, which must succeed within seconds, and returns what it prints.
pub(crate) fn run(tool: &str, words: &[&str]) -> Result<String> {
    let mut limited = clean("timeout");
    limited.args(["--signal=KILL", "5", tool]).args(words);
    let output = limited.output().context("timeout (coreutils) is needed")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{tool} {}: {}: {}",
        words.join(" "),
        output.status,
        told.trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}
