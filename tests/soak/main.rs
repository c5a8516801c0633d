//! The soak: many rlocks contend for one lock while faults are injected all around them, and
//! witnesses that are no part of rlock log when each command ran. `tests/README.md` says how to run
//! it and what it demands.

#![expect(clippy::print_stdout, reason = "the report is the output of a soak")]

mod contender;
mod database;
mod deployment;
mod etcd;
mod fault;
mod foreign;
mod loss;
mod members;
mod network;
mod operator;
mod report;
mod server;
mod service;
mod share;
mod tool;
mod verdict;
mod witness;
mod world;
mod zookeeper;

use std::fs::File;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use contender::{Contenders, Work, told};
use database::Replicated;
use deployment::{Deployment, Unrest};
use etcd::Etcd;
use fault::{DOUBLE, FORGETFUL, Fault, HARMLESS, OF_CLIENTS, OF_LINES};
use members::Members;
use operator::Operators;
use report::Report;
use server::Server;
use service::Service;
use share::KEYS;
use tempfile::TempDir;
use testkit::now;
use testkit::program::first_line;
use verdict::Verdict;
use world::World;
use zookeeper::Ensemble;

/// Seconds of faults in each part, unless another number is given.
const SECONDS: u64 = 60;

/// Number of parts that run at once if all do.
const AT_ONCE: usize = 3;

/// Path of the binary under test.
pub(crate) const RLOCK: &str = env!("CARGO_BIN_EXE_rlock");

/// Lease of each contender.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Longest time after the last fault until every waiter has had its turn.
const AFTERMATH: Duration = Duration::from_secs(60);

/// Time within which a guard has given a lock back: it repeats the release for a TTL, and once more
/// a node timeout later.
const GIVING_BACK: Duration = TTL.saturating_mul(2);

/// A part of the soak.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    nodes: Nodes,
    contenders: usize,
    /// Whether a server has its data when it is back.
    keeps: bool,
    faults: &'static [&'static [Fault]],
    /// Number of commands, of 256, that run for up to two leases.
    long: u8,
    /// Whether contenders take either lock or both, each alone, shared or as one of some slots.
    kinds: bool,
    /// Whether the kill rule is off, and each holder is stopped past its lease.
    pub(crate) planted: bool,
    pub(crate) overlaps: Overlaps,
    /// Most seconds per fault.
    pub(crate) seconds_a_fault: u64,
}

/// Servers from which the contenders take the lock.
enum Nodes {
    /// As many servers by themselves, each of which is a node.
    Servers(u16),
    Cluster,
    /// A service with sentinels.
    Service,
    Etcd,
    ZooKeeper,
    Postgres,
    MariaDb,
}

/// Overlaps that are allowed or demanded.
pub(crate) enum Overlaps {
    None,
    /// Allowed, if each is shorter than a lease.
    WithinALease,
    /// At least one is demanded.
    Some,
}

/// Eight contenders for one lock, and no overlap.
const PLAIN: Plan = Plan {
    name: "",
    title: "",
    nodes: Nodes::Servers(1),
    contenders: 8,
    keeps: false,
    faults: &[],
    long: 3,
    kinds: false,
    planted: false,
    overlaps: Overlaps::None,
    seconds_a_fault: 2,
};

/// The same at another store, whose servers keep their data, beside its own clients.
const OF_STORE: Plan = Plan {
    keeps: true,
    faults: &[OF_CLIENTS, OF_LINES],
    long: 64,
    ..PLAIN
};

const PLANS: [Plan; 12] = [
    Plan {
        name: "five",
        title: "8 contend for a lock on five nodes",
        nodes: Nodes::Servers(5),
        faults: &[HARMLESS, FORGETFUL],
        ..PLAIN
    },
    Plan {
        name: "kinds",
        title: "12 contend for two locks of all kinds on five nodes",
        nodes: Nodes::Servers(5),
        contenders: 12,
        faults: &[HARMLESS, FORGETFUL],
        kinds: true,
        ..PLAIN
    },
    Plan {
        name: "one",
        title: "8 contend for a lock on one node that keeps its data",
        nodes: Nodes::Servers(1),
        keeps: true,
        faults: &[HARMLESS, &[Fault::Restart]],
        ..PLAIN
    },
    Plan {
        name: "forgetful",
        title: "8 contend for a lock on one node that loses its data",
        nodes: Nodes::Servers(1),
        faults: &[FORGETFUL],
        overlaps: Overlaps::WithinALease,
        seconds_a_fault: 4,
        ..PLAIN
    },
    Plan {
        name: "three",
        title: "8 contend for a lock on three nodes, of which two are hurt",
        nodes: Nodes::Servers(3),
        faults: &[DOUBLE],
        long: 64,
        ..PLAIN
    },
    Plan {
        name: "cluster",
        title: "8 contend for a lock in a cluster",
        nodes: Nodes::Cluster,
        faults: &[OF_CLIENTS],
        ..PLAIN
    },
    Plan {
        name: "sentinel",
        title: "8 contend for a lock of a service with sentinels",
        nodes: Nodes::Service,
        faults: &[OF_CLIENTS],
        long: 16,
        ..PLAIN
    },
    Plan {
        name: "etcd",
        title: "8 contend with etcdctl for a lock in an etcd cluster",
        nodes: Nodes::Etcd,
        ..OF_STORE
    },
    Plan {
        name: "zookeeper",
        title: "8 contend with kazoo for a lock in a ZooKeeper ensemble",
        nodes: Nodes::ZooKeeper,
        ..OF_STORE
    },
    Plan {
        name: "postgres",
        title: "8 contend with ShedLock for a lock in PostgreSQL",
        nodes: Nodes::Postgres,
        ..OF_STORE
    },
    Plan {
        name: "mariadb",
        title: "8 contend with ShedLock for a lock in MariaDB",
        nodes: Nodes::MariaDb,
        ..OF_STORE
    },
    Plan {
        name: "planted",
        title: "2 contend, with a bug planted (--on-lost warn)",
        nodes: Nodes::Servers(1),
        contenders: 2,
        keeps: true,
        faults: &[&[Fault::StopRlockLong]],
        planted: true,
        overlaps: Overlaps::Some,
        seconds_a_fault: 10,
        ..PLAIN
    },
];

impl Plan {
    /// Returns the faults that may be injected.
    pub(crate) fn faults(&self) -> impl Iterator<Item = Fault> {
        self.faults.iter().copied().flatten().copied()
    }

    /// Returns the names of the locks.
    pub(crate) fn keys(&self) -> &'static [&'static str] {
        if self.kinds { &KEYS } else { &KEYS[..1] }
    }

    /// Returns the restart guard, if it is not the default. On several nodes that is half a minute,
    /// in which a server that is back would be of no use. On one node it is off, and a failover may
    /// lose a lock that is granted again at once.
    pub(crate) fn restart_guard(&self) -> Option<Duration> {
        matches!(self.nodes, Nodes::Servers(2..) | Nodes::Service).then_some(2 * TTL)
    }
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == witness::WORD).is_some() {
        return witness::run(words);
    }
    let words: Vec<String> = words.collect();
    let number = |index: usize| {
        words
            .get(index)
            .map(|word| word.parse::<u64>().context("a number"))
            .transpose()
    };
    let seconds = number(0)?.unwrap_or(SECONDS);
    let Some(only) = words.get(1) else {
        return all(seconds);
    };
    let Some(plan) = PLANS.iter().find(|plan| plan.name == only) else {
        let names = PLANS.each_ref().map(|plan| plan.name).join("|");
        bail!("usage: soak [SECONDS [{names} [SEED]]]");
    };
    if !network::is_private() {
        return network::again_in_private(&words);
    }
    network::bring_up()?;
    let seed = number(2)?.unwrap_or_else(|| fastrand::u64(..));
    let cuts = network::can_cut();
    let versions = [
        first_line(RLOCK, &["--version"])?,
        first_line("redis-server", &["--version"])?,
    ];
    println!(
        "{}, Linux {}, seed {seed}",
        versions.join(", "),
        first_line("uname", &["-r"])?
    );
    if !cuts {
        println!("no packet filter here: no contender or server is cut off");
    }
    if !soak(plan, Duration::from_secs(seconds), seed, cuts)? {
        bail!("{only} failed");
    }
    Ok(())
}

/// Runs all parts, each as a process with a namespace of its own. Several run at once: they wait
/// most of the time.
fn all(seconds: u64) -> Result<()> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut fine = true;
        while let Some(plan) = PLANS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let part = Command::new(std::env::current_exe()?)
                .args([&seconds.to_string(), plan.name])
                .stderr(Stdio::inherit())
                .output()?;
            print!("{}", String::from_utf8_lossy(&part.stdout));
            fine &= part.status.success();
        }
        anyhow::Ok(fine)
    };
    let ends = std::thread::scope(|scope| {
        let lanes = [(); AT_ONCE].map(|()| scope.spawn(lane));
        lanes.map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    for end in ends {
        if !end? {
            bail!("the soak failed");
        }
    }
    Ok(())
}

/// Runs one part, and returns whether it was fine. If not, its directory is kept.
fn soak(plan: &Plan, length: Duration, seed: u64, cuts: bool) -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let is_fine = soak_in(&dir, plan, length, seed, cuts);
    if !matches!(is_fine, Ok(true)) {
        println!("all that was written down: {}", dir.keep().display());
    }
    is_fine
}

fn soak_in(dir: &TempDir, plan: &Plan, length: Duration, seed: u64, cuts: bool) -> Result<bool> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (count, deployment): (_, Option<Box<dyn Deployment>>) = match plan.nodes {
        Nodes::Servers(count) => (count, None),
        Nodes::Cluster => (0, Some(Box::new(Members::start()))),
        Nodes::Service => (0, Some(Box::new(Service::start(cuts)))),
        Nodes::Etcd => (0, Some(Box::new(Etcd::start()?))),
        Nodes::ZooKeeper => (0, Some(Box::new(Ensemble::start()?))),
        Nodes::Postgres => (0, Some(Box::new(Replicated::<testkit::Postgres>::start()?))),
        Nodes::MariaDb => (0, Some(Box::new(Replicated::<testkit::MariaDb>::start()?))),
    };
    let servers: Vec<Server> = (0..count)
        .map(|_| Server::start(plan.keeps))
        .collect::<Result<_>>()?;
    let log = File::create(dir.path().join("faults"))?;
    let of_deployment = log.try_clone()?;
    let nodes_for = |number: usize, url: &dyn Fn(&Server) -> String| match &deployment {
        Some(deployment) => vec![deployment.url_for(number)],
        None => servers.iter().map(url).collect(),
    };
    let work = Work {
        dir: dir.path().to_owned(),
        restart_guard: plan.restart_guard(),
        long: plan.long,
        kinds: plan.kinds,
        planted: plan.planted,
    };
    let nodes = (0..plan.contenders)
        .map(|number| nodes_for(number, &|server| server.url_for(number)).join(","))
        .collect();
    // They have an address that is never cut off.
    let of_operators = nodes_for(plan.contenders, &|server| server.tcp_url());
    let operators = Operators::new(of_operators, told(dir.path())?);
    let foreign = deployment
        .as_ref()
        .and_then(|deployment| deployment.foreign());
    let name_of_foreign = foreign.as_ref().map(|foreign| foreign.name());
    let unrest = deployment.map(|deployment| Unrest::start(deployment, seed, of_deployment));
    let ends = Arc::new(AtomicBool::new(false));
    let contenders = Contenders::start(nodes, foreign, &work, &ends)?;
    let mut world = World::new(servers, contenders.pids(), operators, plan, cuts, log);
    let begin = now();
    while now() < begin + length {
        world.inject_one(&mut random)?;
        world.wait(Duration::from_millis(random.u64(300..1700)))?;
    }
    ends.store(true, Ordering::Relaxed);
    let breaks = world.heal()?;
    let (deployment, of_deployment) = unrest.map(Unrest::finish).transpose()?.unzip();
    let rlocks = contenders.finish(AFTERMATH)?;
    world.await_unreleased();
    // Keys after the guards: one whose rlock has gone may still be giving the lock back.
    let processes = witness::outliving(dir.path(), GIVING_BACK)?;
    let verdict = Verdict::read(dir.path())?;
    let mut left = keys(&world, deployment.as_deref())?;
    let is_of_queue = |key: &String| {
        ["rlock:queue:", "rlock:turns:"]
            .iter()
            .any(|kind| key.starts_with(kind))
    };
    if left.iter().any(is_of_queue) {
        // A waiter that was killed, or reached no server, stays in the queue until the next run
        // comes past it.
        left.retain(|key| !is_of_queue(key));
        world.take_each_lock()?;
        left.extend(keys(&world, deployment.as_deref())?);
    }
    let events = world.into_events(of_deployment.unwrap_or_default());
    let report = Report {
        plan,
        begin,
        length,
        events: &events,
        verdict,
        foreign: name_of_foreign,
        rlocks,
        breaks,
        keys: left,
        processes,
    };
    println!("\n{report}");
    Ok(report.complaints().is_empty())
}

/// Returns what is left of locks on the servers.
fn keys(world: &World, deployment: Option<&dyn Deployment>) -> Result<Vec<String>> {
    let Some(deployment) = deployment else {
        return server::left(world.servers().iter().map(|server| &**server));
    };
    deployment.settle();
    // A release that a failover lost, or that no server answered, is made up for by the end of the
    // lease.
    std::thread::sleep(TTL);
    deployment.left()
}
