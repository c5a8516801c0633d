//! Many rlocks contend for one lock while everything around them fails, and witnesses that are no part of rlock write down
//! who ran when. `benches/README.md` says how to run it and what it demands.

#![expect(clippy::print_stdout, reason = "the report is what a soak is for")]

mod contender;
mod fault;
mod network;
mod server;
mod verdict;
mod witness;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use contender::Contenders;
use fault::{Fault, World};
use server::Server;
use verdict::Verdict;

/// How long faults come, if nothing else is said.
const SECONDS: u64 = 60;

/// So many rlocks contend at any time.
const CONTENDERS: usize = 8;

/// The lease of each.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Long enough for all who still wait to have had their turn.
const AFTERMATH: Duration = Duration::from_secs(60);

/// What is to be shown.
struct Plan {
    name: &'static str,
    nodes: usize,
    /// Whether servers may lose data: a minority of them at a time.
    forgets: bool,
    /// Kill rule off, and rlocks stopped past their lease: the soak must see that this is broken.
    planted: bool,
}

const PLANS: [Plan; 3] = [
    Plan { name: "five", nodes: 5, forgets: true, planted: false },
    Plan { name: "one", nodes: 1, forgets: false, planted: false },
    Plan { name: "planted", nodes: 1, forgets: false, planted: true },
];

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
        bail!("usage: soak [SECONDS [five|one|planted [SEED]]]");
    }
    let cuts = network::can_cut();
    println!(
        "seed {seed}, {}{}",
        contender::version()?,
        if cuts { "" } else { "; no packet filter here: nobody is cut off" }
    );
    let mut fine = true;
    for plan in PLANS.iter().filter(|plan| only.is_none_or(|only| plan.name == only)) {
        // The planted bug shows in a few seconds or not at all.
        let length = if plan.planted { seconds.min(20) } else { seconds };
        fine &= soak(plan, Duration::from_secs(length), seed, cuts)?;
    }
    if !fine {
        bail!("the soak failed");
    }
    Ok(())
}

fn soak(plan: &Plan, length: Duration, seed: u64, cuts: bool) -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let mut random = fastrand::Rng::with_seed(seed);
    server::compile_shim(dir.path())?;
    let mut servers = Vec::new();
    for number in 0..plan.nodes {
        servers.push(Server::start(dir.path(), number, !plan.forgets)?);
    }
    let ends = Arc::new(AtomicBool::new(false));
    let count = if plan.planted { 2 } else { CONTENDERS };
    let contenders = Contenders::start(count, dir.path(), plan.nodes, plan.planted, &ends)?;
    let mut world = World::new(servers, contenders.pids(), plan.forgets, plan.planted, cuts);
    let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
    let begin = Instant::now();
    while begin.elapsed() < length {
        let fault = if plan.planted { Fault::StopRlockLong } else { Fault::any(&mut random) };
        if world.inject(fault, &mut random)? {
            *counts.entry(fault.name()).or_default() += 1;
        }
        world.wait(Duration::from_millis(random.u64(200..1500)))?;
    }
    ends.store(true, Ordering::Relaxed);
    world.heal()?;
    let runs = contenders.finish(AFTERMATH)?;
    let verdict = Verdict::read(&dir.path().join("log"), &runs)?;
    println!(
        "\n{} node{}, {} s of faults, {count} contenders{}",
        plan.nodes,
        if plan.nodes == 1 { "" } else { "s" },
        length.as_secs(),
        if plan.planted { ", a bug planted: --on-lost warn" } else { "" }
    );
    println!(
        "  faults: {}",
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    );
    let left = left_behind(&world, dir.path())?;
    println!("{verdict}");
    println!("  keys left: {}; processes left: {}", shown(&left.0), shown(&left.1));
    if plan.planted {
        let found = verdict.overlaps > 0;
        println!("  {}", if found { "the planted bug was seen" } else { "THE PLANTED BUG WAS NOT SEEN" });
        return Ok(found);
    }
    let fine = verdict.is_fine() && left.0.is_empty() && left.1.is_empty();
    println!("  {}", if fine { "as promised" } else { "NOT AS PROMISED" });
    if !fine {
        let kept = std::env::temp_dir().join(format!("rlock-soak-{}-{seed}.log", plan.name));
        std::fs::copy(dir.path().join("log"), &kept)?;
        println!("  the witnesses' log: {}", kept.display());
    }
    Ok(fine)
}

fn shown(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

/// Keys on the servers beside fence counters, and witnesses that still run.
fn left_behind(world: &World, dir: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let mut keys = Vec::new();
    for server in world.servers() {
        let all = server.cli(&["KEYS", "*"])?;
        keys.extend(all.lines().filter(|key| !key.is_empty() && !key.starts_with("rlock:fence:")).map(str::to_owned));
    }
    Ok((keys, witness::living(dir)?))
}
