//! A cluster whose slots move and whose primaries fail over.
//!
//! A primary is killed once its replica has all of its writes: no lock could survive the loss of
//! its key.

use std::time::Duration;

use anyhow::Result;
use testkit::Cluster;

use crate::deployment::{Deployment, kill_connections, pause};
use crate::fault::Fault;
use crate::server;
use crate::share::KEYS;

/// Faults of a cluster.
const FAULTS: [Fault; 5] = [
    Fault::MoveSlot,
    Fault::FailOver,
    Fault::StopPrimary,
    Fault::KillPrimary,
    Fault::KillConnections,
];

/// Number of primaries, each of which has a replica.
const PRIMARIES: usize = 3;

/// A cluster. Each fault hits the primary that serves the lock, and is over when the cluster has
/// recovered.
pub(crate) struct Members(Cluster);

impl Members {
    /// Starts a cluster.
    pub(crate) fn start() -> Self {
        Self(Cluster::start(PRIMARIES, true))
    }

    /// Moves the lock's slot, its keys one by one.
    fn move_slot(&self, owner: usize, random: &mut fastrand::Rng) {
        let to = self.0.other_than(owner);
        let pauses: [u64; 3] = std::array::from_fn(|_| random.u64(0..200));
        let [first, second, third] = pauses.map(Duration::from_millis);
        let moved = self.0.move_slot(KEYS[0], to);
        std::thread::sleep(first);
        if random.bool() {
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
    fn stop(&self, owner: usize, random: &mut fastrand::Rng) {
        let heir = self.0.replica_of(owner);
        self.0.servers[owner].freeze();
        if random.bool() {
            pause(random, 50..800);
        } else {
            self.0.taken_over(heir);
            pause(random, 0..1000);
        }
        self.0.servers[owner].thaw();
    }

    fn kill(&mut self, owner: usize, random: &mut fastrand::Rng) {
        let heir = self.0.replica_of(owner);
        self.0.in_step(owner);
        self.0.servers[owner].crash();
        self.0.taken_over(heir);
        pause(random, 0..1000);
        self.0.servers[owner].come_back();
    }
}

impl Deployment for Members {
    fn settle(&self) {
        self.0.settled();
    }

    fn url_for(&self, _: usize) -> String {
        self.0.url()
    }

    fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<(Fault, String)> {
        let fault = FAULTS[random.usize(..FAULTS.len())];
        let owner = self.0.owner(KEYS[0]);
        match fault {
            Fault::FailOver => drop(self.0.fail_over(owner)),
            Fault::StopPrimary => self.stop(owner, random),
            Fault::KillPrimary => self.kill(owner, random),
            Fault::KillConnections => kill_connections(&self.0.servers[owner]),
            _ => self.move_slot(owner, random),
        }
        self.settle();
        Ok((fault, format!("member {owner}")))
    }

    fn left(&self) -> Result<Vec<String>> {
        server::left(&self.0.servers)
    }
}
