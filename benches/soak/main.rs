//! Many rlocks contend for one lock while everything around them fails, and witnesses that are no part of rlock write down
//! who ran when. `benches/README.md` says how to run it and what it demands.

#![expect(clippy::print_stdout, reason = "the report is what a soak is for")]

mod contender;
mod fault;
mod loss;
mod network;
mod operator;
mod report;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod tool;
mod verdict;
mod witness;
mod world;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use contender::{Contenders, Work, told};
use fault::{DOUBLE, FORGETFUL, Fault, HARMLESS};
use operator::Operators;
use report::Report;
use server::Server;
use support::now;
use support::program::{RLOCK, first_line};
use verdict::Verdict;
use world::World;

/// How long faults come in the part that has most of them, if nothing else is said.
const SECONDS: u64 = 60;

/// The lock.
pub(crate) const KEY: &str = "soak";

/// The lease of each.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Long enough for all who still wait to have had their turn.
const AFTERMATH: Duration = Duration::from_secs(60);

/// A part of the soak.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    nodes: u16,
    contenders: usize,
    /// Whether a server has its data when it is back.
    keeps: bool,
    faults: &'static [&'static [Fault]],
    /// Of 256 commands, how many go on for up to two leases.
    long: u8,
    /// Kill rule off, and whoever holds is stopped past the lease.
    pub(crate) planted: bool,
    pub(crate) overlaps: Overlaps,
    /// Fewer faults are not enough.
    pub(crate) seconds_a_fault: u64,
    /// If all parts are run, this one gets the seconds divided by so much.
    share: u64,
}

/// What is demanded of a part.
pub(crate) enum Overlaps {
    None,
    /// A command that has lost its lock must be dead within its lease.
    WithinALease,
    /// One at least must be seen.
    Some,
}

const PLANS: [Plan; 5] = [
    Plan {
        name: "five",
        title: "8 contend for a lock on five nodes",
        nodes: 5,
        contenders: 8,
        keeps: false,
        faults: &[HARMLESS, FORGETFUL],
        long: 3,
        planted: false,
        overlaps: Overlaps::None,
        seconds_a_fault: 2,
        share: 1,
    },
    Plan {
        name: "one",
        title: "8 contend for a lock on one node that keeps its data",
        nodes: 1,
        contenders: 8,
        keeps: true,
        faults: &[HARMLESS, &[Fault::Restart]],
        long: 3,
        planted: false,
        overlaps: Overlaps::None,
        seconds_a_fault: 2,
        share: 2,
    },
    Plan {
        name: "forgetful",
        title: "8 contend for a lock on one node that loses its data",
        nodes: 1,
        contenders: 8,
        keeps: false,
        faults: &[FORGETFUL],
        long: 3,
        planted: false,
        overlaps: Overlaps::WithinALease,
        seconds_a_fault: 4,
        share: 3,
    },
    Plan {
        name: "three",
        title: "8 contend for a lock on three nodes, of which two are hurt",
        nodes: 3,
        contenders: 8,
        keeps: false,
        faults: &[DOUBLE],
        long: 64,
        planted: false,
        overlaps: Overlaps::None,
        seconds_a_fault: 2,
        share: 1,
    },
    Plan {
        name: "planted",
        title: "2 contend, with a bug planted (--on-lost warn)",
        nodes: 1,
        contenders: 2,
        keeps: true,
        faults: &[&[Fault::StopRlockLong]],
        long: 3,
        planted: true,
        overlaps: Overlaps::Some,
        seconds_a_fault: 10,
        share: 4,
    },
];

impl Plan {
    /// What may be done.
    pub(crate) fn faults(&self) -> impl Iterator<Item = Fault> {
        self.faults.iter().copied().flatten().copied()
    }

    /// By default several servers would be of no use for half a minute once they are back; one has none.
    pub(crate) fn restart_guard(&self) -> Option<Duration> {
        (self.nodes > 1).then_some(2 * TTL)
    }
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench").peekable();
    if words.next_if(|word| word == witness::WORD).is_some() {
        return witness::run(words);
    }
    let words: Vec<String> = words.collect();
    if !network::is_private() {
        return network::again_in_private(&words);
    }
    network::bring_up()?;
    let number = |index: usize| words.get(index).map(|word| word.parse::<u64>().context("a number")).transpose();
    let seconds = number(0)?.unwrap_or(SECONDS);
    let only = words.get(1).map(String::as_str);
    let seed = number(2)?.unwrap_or_else(|| fastrand::u64(..));
    if only.is_some_and(|only| PLANS.iter().all(|plan| plan.name != only)) {
        let names = PLANS.each_ref().map(|plan| plan.name).join("|");
        bail!("usage: soak [SECONDS [{names} [SEED]]]");
    }
    let cuts = network::can_cut();
    let versions = [first_line(RLOCK, "--version")?, first_line("redis-server", "--version")?];
    println!("{}, Linux {}, seed {seed}", versions.join(", "), first_line("uname", "-r")?);
    if !cuts {
        println!("no packet filter here: nobody is cut off");
    }
    let mut fine = true;
    for plan in PLANS.iter().filter(|plan| only.is_none_or(|only| plan.name == only)) {
        let seconds = if only.is_some() { seconds } else { (seconds / plan.share).max(1) };
        fine &= soak(plan, Duration::from_secs(seconds), seed, cuts)?;
    }
    if !fine {
        bail!("the soak failed");
    }
    Ok(())
}

/// Whether all is as it should be.
fn soak(plan: &Plan, length: Duration, seed: u64, cuts: bool) -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let mut random = fastrand::Rng::with_seed(seed);
    server::compile_shim(dir.path())?;
    let start = |number| Server::start(dir.path(), number, plan.keeps);
    let servers: Vec<Server> = (0..plan.nodes).map(start).collect::<Result<_>>()?;
    let list = |url: &dyn Fn(&Server) -> String| servers.iter().map(url).collect::<Vec<_>>().join(",");
    let work = Work {
        dir: dir.path().to_owned(),
        restart_guard: plan.restart_guard(),
        long: plan.long,
        planted: plan.planted,
    };
    let nodes = (0..plan.contenders).map(|number| list(&|server| server.url_for(number))).collect();
    let operators = Operators::new(list(&Server::url), told(dir.path())?);
    let ends = Arc::new(AtomicBool::new(false));
    let contenders = Contenders::start(nodes, &work, &ends)?;
    let log = File::create(dir.path().join("faults"))?;
    let mut world = World::new(servers, contenders.pids(), operators, plan, cuts, log);
    let begin = now();
    while now() < begin + length {
        world.revoke(&mut random)?;
        world.wait(Duration::from_millis(random.u64(300..1700)))?;
    }
    ends.store(true, Ordering::Relaxed);
    let breaks = world.heal()?;
    let rlocks = contenders.finish(AFTERMATH)?;
    let (verdict, keys, processes) = (Verdict::read(dir.path())?, keys(&world)?, witness::living(dir.path())?);
    let events = world.events();
    let report = Report { plan, begin, length, events, verdict, rlocks, breaks, keys, processes };
    println!("\n{report}");
    let fine = report.complaints().is_empty();
    if !fine {
        println!("all that was written down: {}", dir.keep().display());
    }
    Ok(fine)
}

/// What is left on the servers beside fence counters.
fn keys(world: &World) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for server in world.servers() {
        let all = server.cli(&["KEYS", "*"])?;
        keys.extend(all.lines().filter(|key| !key.is_empty() && !key.starts_with("rlock:fence:")).map(str::to_owned));
    }
    Ok(keys)
}
