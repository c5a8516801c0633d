//! Hand-overs through sentinels and in a cluster, beside those on one server by itself.

use std::time::Duration;

use anyhow::Result;

use testkit::measure::batch::{Batch, Place};
use testkit::measure::contender::Times;
use testkit::measure::locker::{KEY, RlockRun};
use testkit::measure::table::{aligned, millis};
use testkit::{Cluster, Server, Watched};

use crate::{RLOCK, STAY, WAITERS};

/// Number of primaries of the cluster, each with a replica.
const PRIMARIES: usize = 3;

/// Measures from the end of one command to the start of the next, by turns.
pub(crate) fn report(place: Place, batches: usize) -> Result<()> {
    println!(
        "\nHand-over by deployment, {batches} times {WAITERS} who wait, end of a command to start of the next:\n"
    );
    let plain = Server::tcp(&[]);
    let (watched, cluster) = (Watched::start(), Cluster::start(PRIMARIES, true));
    let primary = &cluster.servers[cluster.owner(KEY)];
    let mut lockers = [
        ("1 node", RlockRun::on(RLOCK, std::slice::from_ref(&plain))?),
        (
            "sentinels",
            RlockRun::at(RLOCK, watched.url(), &watched.servers[0])?,
        ),
        ("cluster", RlockRun::at(RLOCK, cluster.url(), primary)?),
    ];
    let mut gaps: [Vec<Duration>; 3] = Default::default();
    for _ in 0..batches {
        for ((_, locker), gaps) in lockers.iter_mut().zip(&mut gaps) {
            gaps.extend(
                Batch::form(locker, place, WAITERS, STAY)?
                    .run()?
                    .hand_overs(),
            );
        }
    }
    let times: Vec<Times> = lockers
        .iter()
        .zip(gaps)
        .map(|((name, _), gaps)| Times::new(name, gaps))
        .collect();
    let mut rows = vec![
        [
            "",
            "hand-overs",
            "p50",
            "p99",
            "worst",
            "p50 of 1 node's",
            "aim",
        ]
        .map(str::to_owned),
    ];
    for own in &times {
        let [p50, p99, worst] = [50, 99, 100].map(|percent| millis(own.percentile(percent)));
        let is_plain = own.name == times[0].name;
        let ratio = format!(
            "{:.2}",
            own.median().as_secs_f64() / times[0].median().as_secs_f64()
        );
        let [ratio, aim] = if is_plain {
            [String::new(), String::new()]
        } else {
            [ratio, "1.20".to_owned()]
        };
        rows.push([
            own.name.to_owned(),
            own.count().to_string(),
            p50,
            p99,
            worst,
            ratio,
            aim,
        ]);
    }
    print!("{}", aligned(&rows));
    Ok(())
}
