//! What shared locks, slots and several locks cost beside an exclusive one, and how fast they pass
//! on to waiters.
//!
//! `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

mod passing;

use anyhow::Result;

use testkit::Server;
use testkit::measure::batch::Place;
use testkit::measure::contender::{Contender, Times, measure};
use testkit::measure::machine;
use testkit::measure::table::{aligned, millis};
use testkit::witness;

/// The binary to be measured: `cargo bench` builds it in the bench profile, which inherits release.
pub(crate) const RLOCK: &str = testkit::benched!();

pub(crate) const NODES: usize = 5;
const WARM_UP: usize = 10;

/// Rounds without contention, unless another number is given.
const ROUNDS: usize = 200;

/// The kinds, with their options and the most that they may take of an exclusive lock's time.
const KINDS: [(&str, &[&str], &str); 5] = [
    ("exclusive", &["--key", "x"], ""),
    ("shared", &["--key", "s", "--shared"], "1.10"),
    ("slots, 5", &["--key", "k", "--slots", "5"], "1.10"),
    ("slots, 1000", &["--key", "m", "--slots", "1000"], ""),
    ("two exclusive", &["--key", "a", "--key", "b"], "1.20"),
];

fn main() -> Result<()> {
    let rounds = testkit::measure::count(ROUNDS)?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let servers: Vec<Server> = (0..NODES).map(|_| Server::tcp(&[])).collect();
    println!("{}", machine::described(&[RLOCK, "redis-server"])?);

    println!("{rounds} rounds after {WARM_UP} to warm up, wall time from spawn to exit:\n");
    let mut rows =
        vec![["", "nodes", "median", "p10", "p90", "of exclusive", "aim"].map(str::to_owned)];
    for servers in [&servers[..1], &servers] {
        rows.extend(alone(servers, rounds)?);
    }
    print!("{}", aligned(&rows));

    let witness = witness::build(dir.path())?;
    passing::report(
        Place {
            dir: dir.path(),
            witness: &witness,
        },
        &servers,
    )?;
    println!("\nload average {} at the end", machine::load()?);
    Ok(())
}

/// Measures all kinds on these servers by turns; returns a row for each.
fn alone(servers: &[Server], rounds: usize) -> Result<Vec<[String; 7]>> {
    let urls: Vec<String> = servers.iter().map(Server::tcp_url).collect();
    let contender = |(name, options, _): &(&'static str, &[&str], &str)| {
        // Freshly started servers count only without a guard.
        let mut argv = [
            RLOCK,
            "run",
            "--restart-guard",
            "off",
            "--node",
            &urls.join(","),
        ]
        .map(str::to_owned)
        .to_vec();
        argv.extend(
            options
                .iter()
                .copied()
                .chain(["--", "true"])
                .map(str::to_owned),
        );
        Contender::new(name, argv)
    };
    let contenders = KINDS.each_ref().map(contender);
    let times = measure(&contenders, WARM_UP, rounds, |_, _| Ok(()))?;
    let exclusive = times[0].median().as_secs_f64();
    let row = |(times, (_, _, aim)): (&Times, &(&str, &[&str], &str))| {
        let [median, p10, p90] = [50, 10, 90].map(|percent| millis(times.percentile(percent)));
        let ratio = format!("{:.2}", times.median().as_secs_f64() / exclusive);
        [
            times.name.to_owned(),
            servers.len().to_string(),
            median,
            p10,
            p90,
            ratio,
            (*aim).to_owned(),
        ]
    };
    Ok(times.iter().zip(&KINDS).map(row).collect())
}
