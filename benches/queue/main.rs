//! How fast the lock passes on to waiters, in which order, and what their waiting costs the server.
//!
//! `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

mod crowd;
mod deployed;

use std::time::Duration;

use anyhow::{Context, Result};

use testkit::Server;
use testkit::measure::batch::{Batch, Place};
use testkit::measure::contender::Times;
use testkit::measure::locker::{self, Locker, OnEtcd, RlockRun};
use testkit::measure::machine;
use testkit::measure::table::{aligned, millis};
use testkit::witness;

/// The binary to be measured: `cargo bench` builds it in the bench profile, which inherits release.
pub(crate) const RLOCK: &str = testkit::benched!();

/// Number of hand-overs, unless another number is given.
const HAND_OVERS: usize = 1000;

/// Number of waiters where hand-overs are timed.
const WAITERS: usize = 20;

/// Time for which each holds the lock, in µs: earlier processes have ended by then and are no load.
const STAY: &str = "5000";

fn main() -> Result<()> {
    let wanted = testkit::measure::count(HAND_OVERS)?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let witness = witness::build(dir.path())?;
    let place = Place {
        dir: dir.path(),
        witness: &witness,
    };
    let mut programs = vec![RLOCK, "redis-server"];
    let etcd = locker::etcd_is_there();
    programs.extend(etcd.then_some("etcd"));
    println!("{}", machine::described(&programs)?);

    hand_overs(place, wanted.div_ceil(WAITERS), etcd)?;
    deployed::report(place, wanted.div_ceil(WAITERS))?;
    crowd::report(place)?;
    several_nodes(place, wanted.div_ceil(WAITERS))?;
    println!("\nload average {} at the end", machine::load()?);
    Ok(())
}

/// Measures from the end of one command to the start of the next, beside etcdctl.
fn hand_overs(place: Place, batches: usize, etcd: bool) -> Result<()> {
    println!(
        "Hand-over, {batches} times {WAITERS} who wait, end of a command to start of the next:\n"
    );
    let server = Server::tcp(&[]);
    let mut lockers: Vec<Box<dyn Locker>> = vec![Box::new(RlockRun::on(
        RLOCK,
        std::slice::from_ref(&server),
    )?)];
    if etcd {
        lockers.push(Box::new(OnEtcd::on_disk(place.dir)?));
        lockers.push(Box::new(OnEtcd::in_memory()?));
    }
    let mut gaps: Vec<Vec<Duration>> = vec![Vec::new(); lockers.len()];
    for _ in 0..batches {
        for (locker, gaps) in lockers.iter_mut().zip(&mut gaps) {
            let log = Batch::form(&mut **locker, place, WAITERS, STAY)?.run()?;
            gaps.extend(log.hand_overs());
        }
    }
    let times: Vec<Times> = lockers
        .iter()
        .zip(gaps)
        .map(|(locker, gaps)| Times::new(locker.name(), gaps))
        .collect();
    let mut rows = vec![
        [
            "",
            "hand-overs",
            "p50",
            "p99",
            "worst",
            "p50 of etcdctl's",
            "aim",
        ]
        .map(str::to_owned),
    ];
    for (which, own) in times.iter().enumerate() {
        let [p50, p99, worst] = [50, 99, 100].map(|percent| millis(own.percentile(percent)));
        let peer = times[1..].first().filter(|_| which == 0);
        let ratio = peer.map_or(String::new(), |peer| {
            format!(
                "{:.2}",
                own.median().as_secs_f64() / peer.median().as_secs_f64()
            )
        });
        let aim = if which == 0 { "3 ms, 0.50" } else { "" };
        rows.push([
            own.name.to_owned(),
            own.count().to_string(),
            p50,
            p99,
            worst,
            ratio,
            aim.to_owned(),
        ]);
    }
    print!("{}", aligned(&rows));
    if !etcd {
        println!(
            "etcdctl lock: skipped, since etcd and etcdctl are not both there (Debian: etcd-server, etcd-client)"
        );
    }
    Ok(())
}

/// Measures hand-overs per second on one node and on five, by turns.
fn several_nodes(place: Place, batches: usize) -> Result<()> {
    println!(
        "\nHand-overs per second, {batches} times {WAITERS} who wait for a command that takes no time:\n"
    );
    let servers: Vec<Server> = (0..5).map(|_| Server::tcp(&[])).collect();
    let mut lockers = [
        RlockRun::on(RLOCK, &servers[..1])?,
        RlockRun::on(RLOCK, &servers)?,
    ];
    let mut rates: [Vec<f64>; 2] = Default::default();
    let mut gaps: [Vec<Duration>; 2] = Default::default();
    for _ in 0..batches {
        for (which, locker) in lockers.iter_mut().enumerate() {
            let log = Batch::form(locker, place, WAITERS, "0")?.run()?;
            rates[which].push(log.rate().context("an overlap")?);
            gaps[which].extend(log.hand_overs());
        }
    }
    for rates in &mut rates {
        rates.sort_unstable_by(f64::total_cmp);
    }
    let median = |which: usize| rates[which][rates[which].len() / 2];
    let mut rows = vec![
        [
            "",
            "median",
            "lowest",
            "gap p50",
            "gap p99",
            "of 1 node's",
            "aim",
        ]
        .map(str::to_owned),
    ];
    for (which, (name, gaps)) in ["1 node", "5 nodes"].into_iter().zip(gaps).enumerate() {
        let gaps = Times::new(name, gaps);
        let [p50, p99] = [50, 99].map(|percent| millis(gaps.percentile(percent)));
        let (mut ratio, mut aim) = (String::new(), String::new());
        if which == 1 {
            (ratio, aim) = (format!("{:.2}", median(1) / median(0)), "0.50".to_owned());
        }
        let lowest = format!("{:.0}", rates[which][0]);
        rows.push([
            name.to_owned(),
            format!("{:.0}", median(which)),
            lowest,
            p50,
            p99,
            ratio,
            aim,
        ]);
    }
    print!("{}", aligned(&rows));
    Ok(())
}
