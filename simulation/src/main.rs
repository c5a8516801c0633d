//! The simulation's own command: plays worlds from many seeds, prints what they came to, and tells
//! the story of the first violation.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a command of the test kit, whose report is its output"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use simulation::scenario::{Kind, Scenario};
use simulation::shrink::shrink;
use simulation::story::Story;
use simulation::tally::Tally;
use simulation::world::play_caught;

/// Plays worlds from seeds. Exits with 1 at a violation, whose story it prints.
#[derive(Parser)]
struct Args {
    /// Number of seeds for each kind of world
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// Stop after this time, at the latest
    #[arg(long, value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Only this kind of world
    #[arg(long, value_parser = kind)]
    world: Option<Kind>,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Play one seed of the world, and tell its story
    #[arg(long)]
    story: bool,
    /// Tell the story of a violation as it is, with nothing left out
    #[arg(long)]
    whole: bool,
}

fn kind(name: &str) -> Result<Kind, String> {
    let names: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
    let known = Kind::ALL
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| *kind);
    known.ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// A seed that breaks a promise.
struct Found {
    kind: Kind,
    seed: u64,
    violation: String,
    what: &'static str,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let kinds: Vec<Kind> = Kind::ALL
        .iter()
        .map(|(_, kind)| *kind)
        .filter(|kind| args.world.is_none_or(|w| w == *kind))
        .collect();
    if args.story {
        return tell(&Scenario::new(kinds[0], args.seed));
    }
    let begun = Instant::now();
    let (tallies, found) = play_all(&args, &kinds);
    println!("{:10}{}", "world", Tally::HEADS);
    let mut all = Tally::default();
    for (name, tally) in &tallies {
        println!("{name:10}{tally}");
        all.merge(tally);
    }
    println!("{:10}{all}", "all");
    println!("in {:.1} s", begun.elapsed().as_secs_f64());
    let Some(Found {
        kind,
        seed,
        violation,
        what,
    }) = found
    else {
        return ExitCode::SUCCESS;
    };
    println!(
        "\n{violation}\nin the world {} of seed {seed}; again: --world {0} --seed {seed} --story",
        kind.name()
    );
    let scenario = Scenario::new(kind, seed);
    tell(&if args.whole {
        scenario
    } else {
        shrink(&scenario, what)
    });
    ExitCode::FAILURE
}

/// Plays the seeds on all processors, each kind of world in turn, until the first violation.
fn play_all(args: &Args, kinds: &[Kind]) -> (BTreeMap<&'static str, Tally>, Option<Found>) {
    let ends = args.time.map(|time| Instant::now() + time);
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let results: Mutex<(BTreeMap<&'static str, Tally>, Option<Found>)> = Mutex::default();
    let work = || {
        while !is_over.load(Relaxed) && ends.is_none_or(|ends| Instant::now() < ends) {
            let number = next.fetch_add(1, Relaxed);
            let (round, kind) = (
                number / kinds.len() as u64,
                kinds[usize::try_from(number).expect("few") % kinds.len()],
            );
            if round >= args.seeds {
                return;
            }
            let seed = args.seed + round;
            let report = play_caught(&Scenario::new(kind, seed), Story::default());
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.0.entry(kind.name()).or_default().add(&report);
            if let Some(violation) = report.violation {
                is_over.store(true, Relaxed);
                let (what, violation) = (violation.kind(), violation.to_string());
                results.1.get_or_insert(Found {
                    kind,
                    seed,
                    violation,
                    what,
                });
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn tell(scenario: &Scenario) -> ExitCode {
    let Scenario {
        settings,
        latency,
        clocks,
        skews,
        ..
    } = scenario;
    println!(
        "{} nodes, TTL {:?}, node timeout {:?}, {:?}\n{latency:?}\nclocks {clocks:?}, hosts {skews:?}",
        settings.nodes,
        settings.schedule.ttl(),
        settings.schedule.node_timeout(),
        settings.guard
    );
    let report = play_caught(scenario, Story::kept());
    for line in report.story.lines() {
        println!("{line}");
    }
    println!(
        "{:?}\nexit codes {:?}, digest {:016x}",
        report.counts, report.exits, report.digest
    );
    match report.violation {
        Some(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
