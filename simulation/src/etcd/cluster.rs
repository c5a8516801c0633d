//! The members together: who leads, what is agreed on, and who has heard of it.
//!
//! 1. A leader commits what a majority of the members in its part of the network can hear. What it
//!    has taken and not committed is lost with it, or some of it is committed by the next leader.
//! 2. A part with a majority and without its leader chooses another one after an election timeout
//!    or two. That one gives each lease its whole time, and an election timeout more.
//! 3. The others hear of it later. Until then they answer as if nothing had changed, and so does the
//!    leader that was replaced.
//! 4. A read is answered by a leader that still leads afterwards. A keepalive is answered by any
//!    member that takes itself for the leader.

use std::collections::VecDeque;
use std::time::Duration;

use super::leases::EXPIRES_EACH;
use super::member::{CallId, Ends, Member, Term};
use super::requests::{COMMIT, NO_LEADER};
use super::store::{Command, Store};
use crate::kernel::{Event, Kernel};
use crate::node::WallClock;

/// Something that the cluster does at its time.
#[derive(Clone, Debug)]
pub enum Step {
    /// The leader of this term commits its oldest proposal.
    Commit(u64),
    /// A read at this member may be answered.
    Read(usize),
    /// A part without a leader chooses one, unless this number of changes is over.
    Elect(u64),
    /// A member hears of this term.
    Learn(usize, u64),
    /// A member has not heard from its leader, unless this number of changes is over.
    Forget(usize, u64),
    /// The leader of this term ends leases that are over.
    Expire(u64),
}

/// A request that the leader has taken.
#[derive(Debug)]
pub(super) struct Proposal {
    /// The member that its client asked; `None`: the leader's own.
    pub(super) by: Option<(usize, CallId)>,
    pub(super) command: Command,
}

/// A cluster.
#[derive(Debug)]
pub struct EtcdCluster {
    pub(super) members: Vec<Member>,
    pub(super) store: Store,
    /// The newest leader, and its term.
    pub(super) leader: Option<usize>,
    pub(super) term: u64,
    election: Duration,
    pub(super) proposals: VecDeque<Proposal>,
    /// Number of changes of who reaches whom.
    changes: u64,
    switches: u64,
    /// Number of calls so far.
    pub(super) calls: u64,
}

impl EtcdCluster {
    /// A cluster whose first member leads. `clocks`: of the members.
    pub fn new(clocks: &[WallClock], election: Duration, kernel: &mut Kernel) -> Self {
        // Leases last one and a half election timeouts at least (server/etcdserver/server.go).
        let shortest = election.as_millis() * 3 / 2;
        let shortest = i64::try_from(shortest.div_ceil(1000)).unwrap_or(1);
        let mut cluster = Self {
            members: clocks.iter().map(|clock| Member::new(*clock)).collect(),
            store: Store::new(shortest),
            leader: None,
            term: 1,
            election,
            proposals: VecDeque::new(),
            changes: 0,
            switches: 0,
            calls: 0,
        };
        cluster.leads(0, kernel);
        for member in 0..cluster.members.len() {
            cluster.learn(member, kernel);
        }
        cluster
    }

    /// Number of leaders that have taken over.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of calls of clients.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Its data.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Whether two members hear each other's raft.
    pub(super) fn hear(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.members[one], &self.members[other]);
        one.is_live() && other.is_live() && one.part == other.part
    }

    /// Whether so many hear this member that it may commit.
    pub(super) fn has_majority(&self, member: usize) -> bool {
        let all = 0..self.members.len();
        all.filter(|other| self.hear(member, *other)).count() >= self.majority()
    }

    /// Returns the leader, if it can commit.
    pub(super) fn working(&self) -> Option<usize> {
        self.leader.filter(|leader| self.has_majority(*leader))
    }

    /// Returns the working leader if this member knows it and hears it.
    pub(super) fn served_by(&self, member: usize) -> Option<usize> {
        let there = &self.members[member];
        self.working().filter(|leader| {
            there.term == self.term && there.leader == Some(*leader) && self.hear(member, *leader)
        })
    }

    /// Does what is due.
    pub fn step(&mut self, step: &Step, kernel: &mut Kernel) {
        match *step {
            Step::Commit(term) => {
                if self.working().is_some() && self.term == term {
                    self.commit(kernel);
                }
            }
            Step::Read(number) => self.read(number, kernel),
            Step::Elect(changes) => {
                if changes == self.changes && self.working().is_none() {
                    self.elect(kernel);
                }
            }
            Step::Learn(number, term) => {
                if term == self.term && self.leader.is_some_and(|leader| self.hear(number, leader))
                {
                    self.learn(number, kernel);
                }
            }
            Step::Forget(number, changes) => {
                if changes == self.changes {
                    self.forget(number, kernel);
                }
            }
            Step::Expire(term) => {
                if let Some(leader) = self.leader.filter(|_| term == self.term) {
                    self.expire(leader, kernel);
                }
            }
        }
    }

    /// A member takes the leadership in a new term.
    fn leads(&mut self, number: usize, kernel: &mut Kernel) {
        self.leader = Some(number);
        let (now, longer) = (kernel.now, self.election);
        let clock = self.members[number].clock;
        let term = |ttl| Term {
            end: now + lasts(ttl, clock) + longer,
            ttl,
        };
        let leases = self.store.leases().iter();
        let ends: Ends = leases.map(|(lease, it)| (*lease, term(it.ttl))).collect();
        self.members[number].ends = ends;
        self.learn(number, kernel);
        let first = kernel.random.time(Duration::ZERO, EXPIRES_EACH);
        kernel.after(first, Event::Etcd(Step::Expire(self.term)));
    }

    /// Chooses a leader in the part that has a majority.
    fn elect(&mut self, kernel: &mut Kernel) {
        let can = |number: &usize| self.has_majority(*number);
        let able: Vec<usize> = (0..self.members.len()).filter(can).collect();
        if able.is_empty() {
            return self.elect_later(kernel);
        }
        let next = able[kernel.random.below(able.len())];
        self.hand_over(next, kernel);
    }

    pub(super) fn hand_over(&mut self, next: usize, kernel: &mut Kernel) {
        self.term += 1;
        self.switches += 1;
        kernel.tell(|| format!("member {next} leads in term {}", self.term));
        // Some of what the last leader had taken may have reached this one.
        let reached = kernel.random.below(self.proposals.len() + 1);
        self.proposals.truncate(reached);
        self.leader = None;
        while !self.proposals.is_empty() {
            self.commit(kernel);
        }
        self.leads(next, kernel);
        self.changed(kernel);
    }

    /// A member hears who leads.
    fn learn(&mut self, number: usize, kernel: &mut Kernel) {
        let there = &mut self.members[number];
        (there.leader, there.term) = (self.leader, self.term);
        if there.leader != Some(number) {
            there.ends.clear();
            there.unrenewed.clear();
        }
        if self.served_by(number).is_some() {
            self.catch_up(number, kernel);
        }
        self.serve_held(number, kernel);
    }

    /// A member that hears its leader no more takes none for it. A leader that no majority hears is
    /// none any more.
    fn forget(&mut self, number: usize, kernel: &mut Kernel) {
        let there = &self.members[number];
        if !there.is_live() {
            return;
        }
        let is_lost = match there.leader {
            Some(leader) if leader == number => !self.has_majority(number),
            Some(leader) => !self.hear(number, leader),
            None => false,
        };
        if is_lost {
            let there = &mut self.members[number];
            there.leader = None;
            there.ends.clear();
            // It tells its watchers so, and answers what it knows it cannot do.
            for watch in std::mem::take(&mut there.watches) {
                there.reply(kernel, watch.call, Err(NO_LEADER));
            }
            if self.leader == Some(number) {
                self.leader = None;
            }
        }
    }

    /// Follows a change of who hears whom.
    pub(super) fn changed(&mut self, kernel: &mut Kernel) {
        self.changes += 1;
        for number in 0..self.members.len() {
            let soon = kernel.random.time(Duration::ZERO, self.election / 10);
            kernel.after(soon, Event::Etcd(Step::Learn(number, self.term)));
            let later = self.timeout(kernel);
            kernel.after(later, Event::Etcd(Step::Forget(number, self.changes)));
        }
        if self.working().is_some() {
            for _ in 0..self.proposals.len() {
                let takes = kernel.random.time(Duration::ZERO, COMMIT);
                kernel.after(takes, Event::Etcd(Step::Commit(self.term)));
            }
        } else {
            self.elect_later(kernel);
        }
    }

    fn elect_later(&self, kernel: &mut Kernel) {
        let later = self.timeout(kernel);
        kernel.after(later, Event::Etcd(Step::Elect(self.changes)));
    }

    /// Returns an election timeout, which is up to twice the one that is set.
    fn timeout(&self, kernel: &mut Kernel) -> Duration {
        kernel.random.time(self.election, self.election * 2)
    }
}

/// Returns the number by which a member is known in answers.
pub(super) fn id_of(number: usize) -> u64 {
    number as u64 + 1
}

/// Returns the time that so many seconds take by this clock.
pub(super) fn lasts(seconds: i64, clock: WallClock) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    seconds.div_f64(clock.speed())
}
