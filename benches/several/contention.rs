//! Contention: many processes want one lock at once, and a witness logs who held it when.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};

use crate::{RLOCK, on};
use testkit::Server;
use testkit::measure::contender::Times;
use testkit::measure::table::millis;
use testkit::program::clean;
use testkit::witness::Log;

/// Number of processes that want the lock at any time.
pub(crate) const PROCESSES: usize = 8;

/// Time for which each holds it, in µs, so that two holders at once would be seen.
const STAY: &str = "1000";

pub(crate) const HEAD: [&str; 8] = [
    "nodes",
    "grants",
    "a second",
    "gap p50",
    "gap p99",
    "worst",
    "overlaps",
    "fences not above the last",
];

/// Runs until so many grants, and returns the row of the table.
pub(crate) fn run(
    servers: &[Server],
    witness: &Path,
    dir: &Path,
    grants: usize,
) -> Result<[String; 8]> {
    let log = dir.join(format!("contention-{}", servers.len()));
    let given = AtomicUsize::new(0);
    let again_and_again = || {
        while given.fetch_add(1, Ordering::Relaxed) < grants {
            let mut command = clean(RLOCK);
            command
                .args(["run", "--key", "contended"])
                .args(on(servers))
                .arg("--");
            let status = command
                .arg(witness)
                .arg(&log)
                .args(["0", STAY])
                .stdout(Stdio::null())
                .status()?;
            ensure!(status.success(), "rlock run: {status}");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..PROCESSES)
            .map(|_| scope.spawn(again_and_again))
            .collect();
        all.into_iter().try_for_each(|one| {
            one.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    let log = Log::read(&log)?;
    ensure!(
        log.stays().len() == grants,
        "{} of {grants} grants are in the log",
        log.stays().len()
    );
    let gaps = Times::new("gap", log.hand_overs().collect());
    let [p50, p99, worst] = [50, 99, 100].map(|percent| millis(gaps.percentile(percent)));
    Ok([
        servers.len().to_string(),
        grants.to_string(),
        format!("{:.0}", log.rate().context("no two grants")?),
        p50,
        p99,
        worst,
        log.overlaps().to_string(),
        log.fences_out_of_order().to_string(),
    ])
}
