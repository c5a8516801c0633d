//! A ZooKeeper ensemble of three members, of which one at a time is hurt, and kazoo's `Lock`.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::program::clean;
use testkit::{Proxy, ZooKeeper, eventually_within, held_while, until};

use crate::deployment::{Deployment, pause};
use crate::fault::Fault;
use crate::foreign::{self, Foreign, Witness};
use crate::network::address;
use crate::share::KEYS;
use crate::tool;

/// Number of members.
const MEMBERS: usize = 3;

/// A follower that has lost its leader serves its clients for four seconds, which is longer than a
/// lease.
const OPTIONS: &[&str] = &[
    "tickTime=500",
    "initLimit=20",
    "syncLimit=8",
    "clientPortAddress=0.0.0.0",
    "4lw.commands.whitelist=*",
];

/// Faults of members.
const FAULTS: [Fault; 8] = [
    Fault::StopMember,
    Fault::StopMember,
    Fault::KillMember,
    Fault::KillMember,
    Fault::CutMemberOff,
    Fault::CutMemberOff,
    Fault::KillConnections,
    Fault::Revoke,
];

/// Longest time of an election, and of a member's start. On a busy machine one takes some 20 s.
const ELECTION: Duration = Duration::from_secs(90);

/// Python that has Debian's python3-kazoo.
const PYTHON: &str = "/usr/bin/python3";

/// An ensemble.
pub(crate) struct Ensemble {
    members: Vec<ZooKeeper>,
    /// The member whose lines to the leader, or to its followers, are cut.
    cut_off: Arc<AtomicUsize>,
}

impl Ensemble {
    /// Starts an ensemble.
    pub(crate) fn start() -> Result<Self> {
        let is_there = testkit::zookeeper::has_zookeeper() && testkit::zookeeper::kazoo().is_some();
        is_there
            .then_some(())
            .context("ZooKeeper and kazoo are needed")?;
        let cut_off = Arc::new(AtomicUsize::new(MEMBERS));
        let line = |own: usize, other: usize, port: u16| {
            let cut_off = Arc::clone(&cut_off);
            let delays = move |_| {
                let cut_off = Arc::clone(&cut_off);
                held_while(move || [own, other].contains(&cut_off.load(Ordering::Relaxed)))
            };
            let proxy = Proxy::open(Ipv4Addr::LOCALHOST, port, delays);
            // No member starts with the port 0.
            proxy.map_or(0, |proxy| proxy.port())
        };
        Ok(Self {
            members: ZooKeeper::ensemble(MEMBERS, OPTIONS, line),
            cut_off,
        })
    }

    fn hosts(&self, address: &str) -> String {
        let host = |member: &ZooKeeper| format!("{address}:{}", member.port());
        let hosts: Vec<String> = self.members.iter().map(host).collect();
        hosts.join(",")
    }

    /// Deletes the entries of an rlock that holds the lock, as an operator may do by hand. Returns
    /// its token.
    fn take_away(&self) -> Result<Option<String>> {
        let client = Kazoo(self.hosts("127.0.0.1"))
            .client("take-away")
            .output()?;
        let token = String::from_utf8_lossy(&client.stdout).trim().to_owned();
        Ok(Some(token).filter(|token| !token.is_empty()))
    }
}

impl Deployment for Ensemble {
    fn url_for(&self, contender: usize) -> String {
        format!("zookeeper://{}", self.hosts(&address(contender)))
    }

    fn foreign(&self) -> Option<Box<dyn Foreign>> {
        Some(Box::new(Kazoo(self.hosts("127.0.0.1"))))
    }

    fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<(Fault, String)> {
        let fault = FAULTS[random.usize(..FAULTS.len())];
        // The leader is hurt as often as both others.
        let leader = self
            .members
            .iter()
            .position(ZooKeeper::leads)
            .unwrap_or_default();
        let member = (leader + [0, 0, 1, 2][random.usize(..4)]) % MEMBERS;
        match fault {
            Fault::Revoke => {
                let token = until("an rlock holds the lock", || self.take_away())?;
                return Ok((fault, token));
            }
            Fault::StopMember => {
                self.members[member].freeze();
                pause(random, 50..8000);
                self.members[member].thaw();
            }
            Fault::KillMember => {
                self.members[member].crash();
                pause(random, 0..3000);
                self.members[member].come_back();
            }
            Fault::CutMemberOff => {
                self.cut_off.store(member, Ordering::Relaxed);
                pause(random, 50..8000);
                self.cut_off.store(MEMBERS, Ordering::Relaxed);
            }
            _ => tool::kill_connections(self.members[member].port())?,
        }
        self.settle();
        pause(random, 0..4000);
        let role = if member == leader { ", the leader" } else { "" };
        Ok((fault, format!("member {member}{role}")))
    }

    fn settle(&self) {
        eventually_within(ELECTION, "all members serve", || {
            let serves = |member: &ZooKeeper| member.told("srvr").contains("Mode:");
            self.members.iter().all(serves)
        });
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        // A client of kazoo that failed has left its entry, until its session ends.
        let _ = until("no entry is left", || {
            let told = self.members[0].told("dump");
            let entries = told.lines().filter(|line| line.contains(KEYS[0]));
            left = entries.map(|line| line.trim().to_owned()).collect();
            Ok(left.is_empty().then_some(()))
        });
        Ok(left)
    }
}

/// kazoo's `Lock` at these hosts.
struct Kazoo(String);

impl Kazoo {
    fn client(&self, what: &str) -> Command {
        let script = testkit::repository().join("tests/soak/kazoo_lock.py");
        let (path, seconds) = (
            format!("/{}", KEYS[0]),
            foreign::LEASE.as_secs().to_string(),
        );
        let mut client = clean(Path::new(PYTHON));
        client.arg(script).args([what, &self.0, &path, &seconds]);
        client
    }
}

impl Foreign for Kazoo {
    fn name(&self) -> &'static str {
        "kazoo"
    }

    fn run(&self, witness: &Witness) -> Result<()> {
        let mut client = self.client("lock");
        client.args(witness.words());
        witness.told_by(&mut client).status()?;
        Ok(())
    }
}
