//! A crowd of waiters on one node: the cost to the node, and to each waiter.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use testkit::Server;
use testkit::measure::batch::{Batch, Place};
use testkit::measure::commands;
use testkit::measure::contender::Times;
use testkit::measure::locker::RlockRun;
use testkit::measure::machine::megabytes;
use testkit::measure::table::{aligned, millis};
use testkit::processes::memory;

use crate::RLOCK;

const WAITERS: usize = 200;

/// Time in which nothing happens: that of a whole lease, with its renewals.
const IDLE: Duration = Duration::from_secs(30);

/// Time for which each holds the lock, in µs.
const STAY: &str = "1000";

/// Measures and prints its section of the report.
#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
pub(crate) fn report(place: Place) -> Result<()> {
    println!(
        "\n{WAITERS} who wait on one node, and {} s in which nothing happens:\n",
        IDLE.as_secs()
    );
    let server = Server::tcp(&[]);
    let mut info = server.connect();
    let before = commands::sent(&mut info, &[])?;
    let batch = Batch::form(
        &mut RlockRun::on(RLOCK, std::slice::from_ref(&server))?,
        place,
        WAITERS,
        STAY,
    )?;

    let (stood, begin) = (commands::sent(&mut info, &[])?, Instant::now());
    std::thread::sleep(IDLE);
    let (idle, span) = (commands::sent(&mut info, &[])?, begin.elapsed());
    let largest = |field: &str| -> Result<String> {
        let all: Vec<u64> = batch
            .waiters()
            .map(|waiter| memory(waiter, field))
            .collect::<Result<_>>()?;
        Ok(format!(
            "{:.2} MB",
            megabytes(*all.iter().max().context("no waiter")?)
        ))
    };
    let (peak, own) = (largest("VmHWM")?, largest("RssAnon")?);

    let log = batch.run()?;
    let after = commands::sent(&mut info, &[])?;
    let in_order = log
        .stays()
        .iter()
        .enumerate()
        .filter(|(place, stay)| *place > 0 && stay.label == *place)
        .count();
    let gaps = Times::new("gap", log.hand_overs().collect());
    let each = |count: u64| count as f64 / WAITERS as f64;
    let row = |what: &str, figure: String, aim: &str| [what.to_owned(), figure, aim.to_owned()];
    print!(
        "{}",
        aligned(&[
            row("", "figure".to_owned(), "aim"),
            row(
                "commands per hand-over",
                format!("{:.2}", each(after - idle)),
                "6"
            ),
            row(
                "commands of each until it stood in line",
                format!("{:.2}", each(stood - before)),
                ""
            ),
            row(
                "commands a second while idle",
                format!("{:.1}", (idle - stood) as f64 / span.as_secs_f64()),
                "20"
            ),
            row(
                "went in the order they came",
                format!("{in_order} of {WAITERS}"),
                "200"
            ),
            row("peak memory of a waiter, largest", peak, "5 MB"),
            row("  not of files, largest", own, ""),
            row("gap p50", millis(gaps.median()), ""),
            row("gap p99", millis(gaps.percentile(99)), ""),
        ])
    );
    Ok(())
}
