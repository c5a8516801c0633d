//! The footprint of an rlock that holds a lock: memory and threads.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};

use testkit::measure::machine::megabytes;
use testkit::processes::memory;
use testkit::program::clean;

use crate::RLOCK;

/// Says "ready" after two renewals of a lease of two seconds, and ends when its stdin does.
const COMMAND: &str = "sleep 1.6; echo ready; read line || true";
const TTL: &str = "2s";

/// Figures of one process.
pub(crate) struct Footprint {
    node: String,
    peak: u64,
    own: u64,
    threads: usize,
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self
            .node
            .split_once(':')
            .map_or(self.node.as_str(), |(scheme, _)| scheme);
        let (peak, own) = (megabytes(self.peak), megabytes(self.own));
        let threads = if self.threads == 1 {
            "thread"
        } else {
            "threads"
        };
        write!(
            f,
            "{scheme:6} peak memory {peak:.2} MB (of it now {own:.2} MB not of files), {} {threads}",
            self.threads
        )
    }
}

/// Starts a command under a lock on `node`, measures rlock, and ends the command.
pub(crate) fn while_holding(node: &str) -> Result<Footprint> {
    let mut child = clean(RLOCK)
        .args([
            "run",
            "--key",
            "footprint",
            "--ttl",
            TTL,
            "--node",
            node,
            "--",
            "sh",
            "-c",
            COMMAND,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let footprint = once_ready(&mut child, node);
    // End of file ends the command, and that ends rlock.
    drop(child.stdin.take());
    let status = child.wait()?;
    ensure!(status.success(), "rlock on {node}: {status}");
    footprint
}

fn once_ready(child: &mut Child, node: &str) -> Result<Footprint> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "the command under rlock said {line:?}");
    let pid = child.id().cast_signed();
    Ok(Footprint {
        node: node.to_owned(),
        peak: memory(pid, "VmHWM")?,
        own: memory(pid, "RssAnon")?,
        threads: std::fs::read_dir(format!("/proc/{pid}/task"))?.count(),
    })
}
