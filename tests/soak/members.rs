//! A cluster whose slots move and whose primaries fail over, in a thread of its own, while contenders take a lock in it.
//!
//! A primary is killed once its replica has all of its writes: no lock could survive the loss of its key.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use testkit::{Cluster, now};

use crate::fault::{Event, Fault};
use crate::share::KEYS;

/// Faults of a cluster.
const FAULTS: [Fault; 5] =
    [Fault::MoveSlot, Fault::FailOver, Fault::StopPrimary, Fault::KillPrimary, Fault::KillConnections];

/// Number of primaries, each of which has a replica.
const PRIMARIES: usize = 3;

/// A cluster, and the thread of its faults.
pub(crate) struct Members {
    url: String,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<(Cluster, Vec<Event>)>>,
}

impl Members {
    /// Starts a cluster, and a thread that injects faults into it. `log` gets them.
    pub(crate) fn start(seed: u64, log: File) -> Self {
        let (cluster, ends) = (Cluster::start(PRIMARIES, true), Arc::new(AtomicBool::new(false)));
        let (url, is_over) = (cluster.url(), Arc::clone(&ends));
        let mut unrest = Unrest { cluster, random: fastrand::Rng::with_seed(seed), log, events: Vec::new() };
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                unrest.inject_one()?;
                unrest.pause(300..1700);
            }
            Ok((unrest.cluster, unrest.events))
        });
        Self { url, ends, thread }
    }

    /// Returns the node's address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the end of the last fault, and returns the cluster and all faults.
    pub(crate) fn finish(self) -> Result<(Cluster, Vec<Event>)> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("a fault of the cluster did not end"))?.context("a fault of the cluster")
    }
}

/// A cluster that faults are injected into.
struct Unrest {
    cluster: Cluster,
    random: fastrand::Rng,
    log: File,
    events: Vec<Event>,
}

impl Unrest {
    /// Injects a random fault into the primary that serves the lock, and waits until the cluster has recovered.
    fn inject_one(&mut self) -> Result<()> {
        let (fault, at) = (FAULTS[self.random.usize(..FAULTS.len())], now());
        let owner = self.cluster.owner(KEYS[0]);
        match fault {
            Fault::FailOver => drop(self.cluster.fail_over(owner)),
            Fault::StopPrimary => self.stop(owner),
            Fault::KillPrimary => self.kill(owner),
            Fault::KillConnections => {
                for kind in ["normal", "pubsub"] {
                    self.cluster.servers[owner].cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
                }
            }
            _ => self.move_slot(owner),
        }
        self.cluster.settled();
        self.events.push(Event { at, fault });
        Ok(writeln!(self.log, "{} {} (member {owner})", at.as_nanos(), fault.name())?)
    }

    /// Moves the lock's slot, its keys one by one.
    fn move_slot(&mut self, owner: usize) {
        let to = self.cluster.other_than(owner);
        let pauses: [u64; 3] = std::array::from_fn(|_| self.random.u64(0..200));
        let [first, second, third] = pauses.map(Duration::from_millis);
        let moved = self.cluster.move_slot(KEYS[0], to);
        std::thread::sleep(first);
        if self.random.bool() {
            moved.key(KEYS[0]);
        }
        std::thread::sleep(second);
        moved.rest();
        std::thread::sleep(third);
        // What was set meanwhile.
        moved.rest();
        moved.end();
    }

    /// Stops a primary for a moment, or until its replica has taken over.
    fn stop(&mut self, owner: usize) {
        let heir = self.cluster.replica_of(owner);
        self.cluster.servers[owner].freeze();
        if self.random.bool() {
            self.pause(50..800);
        } else {
            self.cluster.taken_over(heir);
            self.pause(0..1000);
        }
        self.cluster.servers[owner].thaw();
    }

    fn kill(&mut self, owner: usize) {
        let heir = self.cluster.replica_of(owner);
        self.cluster.in_step(owner);
        self.cluster.servers[owner].crash();
        self.cluster.taken_over(heir);
        self.pause(0..1000);
        self.cluster.servers[owner].come_back();
    }

    fn pause(&mut self, millis: std::ops::Range<u64>) {
        std::thread::sleep(Duration::from_millis(self.random.u64(millis)));
    }
}
