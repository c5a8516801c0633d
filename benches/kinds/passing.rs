//! Waiters behind an exclusive holder: how long until all that may run together run, and the
//! requests of a hand-over.

use std::time::Duration;

use anyhow::{Context, Result};

use testkit::Server;
use testkit::measure::batch::{Batch, Place};
use testkit::measure::commands;
use testkit::measure::contender::Times;
use testkit::measure::locker::RlockRun;
use testkit::measure::table::{aligned, millis};

use crate::{NODES, RLOCK};

const BATCHES: usize = 10;

/// Waiters that may all run together.
const READERS: usize = 50;

/// Waiters where requests are counted.
const CROWDS: [usize; 2] = [10, 200];

/// Time for which each waiter holds the lock, in µs.
const STAY: &str = "20000";

/// Measures and prints its sections of the report.
pub(crate) fn report(place: Place, servers: &[Server]) -> Result<()> {
    println!(
        "\nEnd of a writer's command to the start of the last of {READERS} waiters, {BATCHES} times:\n"
    );
    let mut rows = vec![["", "nodes", "median", "worst", "aim"].map(str::to_owned)];
    for servers in [&servers[..1], &servers[..3], servers] {
        let slots = READERS.to_string();
        for (name, kind) in [
            ("shared", vec!["--shared"]),
            ("slots, 50", vec!["--slots", &slots]),
        ] {
            let times = Times::new(name, last_in(place, servers, &kind)?);
            let [median, worst] = [50, 100].map(|percent| millis(times.percentile(percent)));
            rows.push([
                name.to_owned(),
                servers.len().to_string(),
                median,
                worst,
                "30 ms".to_owned(),
            ]);
        }
    }
    print!("{}", aligned(&rows));

    println!("\nRequests of clients to a node, for each waiter that comes to hold the lock:\n");
    let mut rows = vec![["", "nodes", "waiters", "requests", "aim"].map(str::to_owned)];
    for servers in [&servers[..1], servers] {
        for waiters in CROWDS
            .into_iter()
            .filter(|waiters| servers.len() < NODES || *waiters < 100)
        {
            for (name, kind) in [
                ("exclusive", &[][..]),
                ("shared", &["--shared"]),
                ("slots, 5", &["--slots", "5"]),
            ] {
                let requests = format!("{:.2}", requests(place, servers, kind, waiters)?);
                let nodes = servers.len().to_string();
                rows.push([
                    name.to_owned(),
                    nodes,
                    waiters.to_string(),
                    requests,
                    "3".to_owned(),
                ]);
            }
        }
    }
    print!("{}", aligned(&rows));
    Ok(())
}

/// Returns the times from the end of the writer's command to the start of the last waiter's.
fn last_in(place: Place, servers: &[Server], kind: &[&str]) -> Result<Vec<Duration>> {
    let mut locker = RlockRun::on(RLOCK, servers)?.taking(kind);
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        let log = Batch::form(&mut locker, place, READERS, STAY)?.run_beside()?;
        let writer = log.stays().first().context("a writer")?;
        let last = log.stays().last().context("a reader")?;
        times.push(last.begin.saturating_sub(writer.end));
    }
    Ok(times)
}

/// Returns the number of requests to one node for each hand-over.
#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn requests(place: Place, servers: &[Server], kind: &[&str], waiters: usize) -> Result<f64> {
    let mut locker = RlockRun::on(RLOCK, servers)?.taking(kind);
    let batch = Batch::form(&mut locker, place, waiters, STAY)?;
    let sent = || -> Result<u64> {
        let each = servers
            .iter()
            .map(|server| commands::sent(&mut server.connect(), &[]));
        each.sum()
    };
    let before = sent()?;
    batch.run_beside()?;
    Ok((sent()? - before) as f64 / (waiters * servers.len()) as f64)
}
