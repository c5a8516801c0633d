//! An etcd cluster of three members, of which one at a time is hurt, and `etcdctl lock`.

use std::process::Command;

use anyhow::{Context, Result};
use testkit::until;

use crate::deployment::{Deployment, pause};
use crate::fault::Fault;
use crate::foreign::{self, Foreign, Witness};
use crate::network::address;
use crate::share::KEYS;
use crate::tool;

/// Number of members.
const MEMBERS: usize = 3;

/// Faults of members. Those by which another one leads come more often.
const FAULTS: [Fault; 9] = [
    Fault::StopMember,
    Fault::StopMember,
    Fault::KillMember,
    Fault::KillMember,
    Fault::CutMemberOff,
    Fault::CutMemberOff,
    Fault::MoveLeader,
    Fault::KillConnections,
    Fault::Revoke,
];

/// A cluster.
pub(crate) struct Etcd(testkit::Etcd);

impl Etcd {
    /// Starts a cluster.
    pub(crate) fn start() -> Result<Self> {
        let cluster = testkit::Etcd::apart_for_all(MEMBERS);
        cluster.map(Self).context("etcd is needed")
    }

    /// Revokes the lease of an rlock that holds the lock, as an operator may do by hand. Returns its
    /// token.
    fn revoke(&self) -> Option<String> {
        let first = ["get", "--prefix", "--sort-by=CREATE", "--limit=1"];
        let shown = self
            .0
            .ctl(&[&first[..], &[&format!("{}/", KEYS[0])]].concat());
        let (key, value) = shown.split_once('\n')?;
        let (_, lease) = key.rsplit_once('/')?;
        // An entry of etcdctl has no value. One that was broken keeps the next client out until its
        // holder has heard of it.
        let value = value.strip_prefix("broken ").unwrap_or(value);
        let (token, _) = value.split_once(' ')?;
        // It may have been given back meanwhile.
        let _ = self.0.client().args(["lease", "revoke", lease]).output();
        Some(token.to_owned())
    }
}

impl Deployment for Etcd {
    fn url_for(&self, contender: usize) -> String {
        let host = |member| format!("{}:{}", address(contender), self.0.port(member));
        let hosts: Vec<String> = (0..MEMBERS).map(host).collect();
        format!("etcd://{}", hosts.join(","))
    }

    fn foreign(&self) -> Option<Box<dyn Foreign>> {
        let hosts: Vec<String> = (0..MEMBERS).map(|member| self.0.endpoint(member)).collect();
        Some(Box::new(Etcdctl(hosts.join(","))))
    }

    fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<(Fault, String)> {
        let fault = FAULTS[random.usize(..FAULTS.len())];
        if fault == Fault::Revoke {
            let token = until("an rlock holds the lock", || Ok(self.revoke()))?;
            return Ok((fault, token));
        }
        // The leader is hurt as often as both others.
        let leader = self.0.leader();
        let member = (leader + [0, 0, 1, 2][random.usize(..4)]) % MEMBERS;
        match fault {
            Fault::StopMember => {
                self.0.freeze(member);
                pause(random, 50..5000);
                self.0.thaw(member);
            }
            Fault::KillMember => {
                self.0.kill(member);
                pause(random, 0..3000);
                self.0.come_back(member);
            }
            Fault::CutMemberOff => {
                self.0.cut_off(member);
                pause(random, 50..5000);
                self.0.mend();
            }
            Fault::MoveLeader => self.0.move_leader(leader, (leader + 1) % MEMBERS),
            _ => tool::kill_connections(self.0.port(member))?,
        }
        self.settle();
        // A new leader gives each lease its whole time. An entry of an etcdctl that has failed would
        // never end if leaders changed all the time.
        pause(random, 0..6000);
        let role = if member == leader { ", the leader" } else { "" };
        Ok((fault, format!("member {member}{role}")))
    }

    fn settle(&self) {
        self.0.settle();
    }

    fn left(&self) -> Result<Vec<String>> {
        // An etcdctl that failed has left its entry, until its lease ends.
        let mut keys = self.0.keys();
        let _ = until("no key is left", || {
            keys = self.0.keys();
            Ok(keys.is_empty().then_some(()))
        });
        Ok(keys)
    }
}

/// `etcdctl lock` of these members.
struct Etcdctl(String);

impl Foreign for Etcdctl {
    fn name(&self) -> &'static str {
        "etcdctl"
    }

    fn run(&self, witness: &Witness) -> Result<()> {
        let mut client: Command = testkit::program::clean("etcdctl");
        client
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.0))
            .arg("lock")
            .arg(format!("--ttl={}", foreign::LEASE.as_secs()))
            .args([KEYS[0], "--"])
            .args(witness.words());
        witness.told_by(&mut client).status()?;
        Ok(())
    }
}
