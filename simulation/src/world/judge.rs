//! Judgements beside the witness: keys, waiting, requests, exit codes, and sockets that a process
//! leaves open.

use std::time::Duration;

use rlock::exit::Outcome;
use rlock::lock::backoff::BACKSTOP;
use rlock::lock::instant::Instant;

use super::World;
use crate::kernel::{self, BEGIN, Event, ProcessId};
use crate::node::Node;
use crate::scenario::Kind;
use crate::witness::{Share, Violation, Waiter};

/// Interval at which the world is looked at as a whole.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Longest time for which a free lock may wait for its next holder while no fault is on: a wake-up
/// was lost, and the waiter looks after its backstop.
const IDLE: Duration = BACKSTOP.saturating_mul(2);

/// The same where no fault is at all.
const CALM_IDLE: Duration = Duration::from_millis(500);

/// The same where only waiters stop, die or leave, counted during these faults: each may cost its
/// turn, 0.5 s.
const WAITERS_IDLE: Duration = Duration::from_secs(4);

/// The same beyond a TTL, for which a waiter that is killed in the middle of an attempt leaves its
/// lock behind.
const LEFT_BEHIND_IDLE: Duration = Duration::from_secs(2);

/// The same where a holder dies too: its lease of 0.9 s, the turns of stopped waiters, and the time
/// to take what is free.
const CROWD_IDLE: Duration = Duration::from_millis(1_900);

/// Time after which no key but a fence counter, the newest waiter and the record is left: of the
/// others a queue lives longest.
const ALL_BUT_COUNTERS: Duration = Duration::from_secs(660);

/// Most sockets of a process to one node: four that are kept for late replies, and one that is
/// opened. Three renewals and a release may follow an `acquire`. Each opens one more, since their
/// process is the same one here.
const SOCKETS: usize = 9;

/// Most tasks of a process: some for each node and request.
const TASKS: usize = 120;

/// Most requests that a client may cost a node where no fault is.
const REQUESTS: u64 = 24;

impl World<'_> {
    /// Looks at keys and at the time without a holder.
    pub(super) fn look(&mut self) {
        kernel::with(|kernel| kernel.after(LOOK, Event::Look));
        let now = kernel::now();
        for (number, node) in self.nodes.iter().enumerate() {
            let mut keys = node.server().keys(node.wall(now));
            if let Some((name, _)) = keys.find(|(_, entry)| entry.expires.is_none()) {
                let why = format!(
                    "node {number} has {} without an expiry",
                    String::from_utf8_lossy(name)
                );
                kernel::with(|kernel| kernel.witness.violated(Violation::LeftKey(why)));
            }
            if self.clusters.is_empty() && !self.tenures.ends_with_its_last(node, now) {
                let why = format!("node {number} keeps the lock longer than its last member");
                kernel::with(|kernel| kernel.witness.violated(Violation::LeftKey(why)));
            }
        }
        self.judge_idle(now);
        if self.scenario.kind == Kind::Calm {
            self.judge_places(now);
        }
    }

    /// Judges that a holder whose renewals have come to all nodes has the lock, or its slot, at
    /// each.
    fn judge_places(&mut self, now: Instant) {
        let settled = self.scenario.settings.schedule.ttl() / 2;
        for (token, share) in kernel::with(|kernel| kernel.witness.held_for(0, settled, now)) {
            let index = match share {
                Share::Exclusive => None,
                Share::Shared => Some(0),
                Share::Slot { index, .. } => Some(index),
            };
            let lacks = |node: &Node| !self.tenures.is_on(node, token, index, now);
            if let Some(node) = self.nodes.iter().position(lacks) {
                let why = format!("node {node} does not have the place of {token}, {share:?}");
                kernel::with(|kernel| kernel.witness.violated(Violation::Bare(why)));
            }
        }
    }

    /// Returns the time after which a server counts that has restarted.
    pub(super) fn grown_up(&self) -> Duration {
        let guard = self
            .scenario
            .settings
            .guard
            .span(self.nodes.len(), self.scenario.settings.schedule.ttl());
        guard + Duration::from_secs(2)
    }

    /// Judges how long the lock has been free while a client waited and nothing kept it from the
    /// lock.
    fn judge_idle(&mut self, now: Instant) {
        let grown_up = self.grown_up();
        let started = self.nodes.iter().map(Node::started).max().unwrap_or(BEGIN);
        let ready = started.max(self.deployments_changed()) + grown_up;
        kernel::with(|kernel| kernel.witness.judge_doomed(now));
        let only_waiters = matches!(
            self.scenario.kind,
            Kind::Waiters | Kind::Newest | Kind::Crowd
        );
        if self.faults > 0 && !only_waiters {
            return;
        }
        let most = match self.scenario.kind {
            Kind::Calm => CALM_IDLE,
            Kind::Waiters | Kind::Newest => {
                WAITERS_IDLE.max(self.scenario.settings.schedule.ttl() + LEFT_BEHIND_IDLE)
            }
            Kind::Crowd => CROWD_IDLE,
            _ => IDLE + self.scenario.settings.schedule.remembered() + self.set_back,
        };
        let (processes, settings) = (&self.processes, &self.scenario.settings);
        let is_stopped = |id: &ProcessId| {
            processes
                .get(id)
                .is_some_and(|running| running.process.is_stopped)
        };
        for (lock, key) in settings.keys.iter().enumerate() {
            // A run that waits for another lock keeps this one: it is not free.
            let has_key = |node: &Node| {
                node.server()
                    .get(key.stored().as_bytes(), node.wall(now))
                    .is_some()
            };
            if settings.keys.len() > 1 && self.nodes.iter().any(has_key) {
                self.last_kept[lock] = now;
            }
            kernel::with(|kernel| {
                let Some(free) = kernel.witness.free_since(lock, now) else {
                    return;
                };
                let waits = |(id, waiter): (&ProcessId, &Waiter)| {
                    (waiter.lock == lock && !is_stopped(id)).then_some(waiter.since)
                };
                let Some(first) = kernel.witness.waiting.iter().filter_map(waits).min() else {
                    return;
                };
                let calm_since = if only_waiters { BEGIN } else { self.calm_since };
                let begun = free
                    .max(first)
                    .max(calm_since)
                    .max(ready)
                    .max(self.last_kept[lock]);
                let idle = now.since(begun);
                kernel.witness.counts.idle = kernel.witness.counts.idle.max(idle);
                if idle > most {
                    kernel.witness.violated(Violation::Idle(format!(
                        "no waiter has taken lock {lock} for {idle:?}"
                    )));
                }
            });
        }
    }

    pub(super) fn judge_exit(
        &mut self,
        id: ProcessId,
        outcome: Outcome,
        sockets: usize,
        tasks: usize,
    ) {
        let is_calm = self.scenario.kind == Kind::Calm;
        let is_expected = match outcome {
            Outcome::Bug | Outcome::Config | Outcome::Usage | Outcome::Refused => false,
            Outcome::Lost | Outcome::Unreachable | Outcome::Signalled(_) | Outcome::Killed(_) => {
                !is_calm
            }
            _ => true,
        };
        kernel::with(|kernel| {
            let superseded = (outcome == Outcome::Superseded)
                .then(|| kernel.witness.newest.superseded(id))
                .flatten();
            if let Some(violation) = superseded {
                kernel.witness.violated(violation);
            }
            if !is_expected {
                kernel
                    .witness
                    .violated(Violation::Exit(format!("{id} ended with {outcome:?}")));
            }
            if sockets > SOCKETS || tasks > TASKS {
                let why =
                    format!("{id} ended with {sockets} sockets to one node and {tasks} tasks");
                kernel.witness.violated(Violation::Leak(why));
            }
        });
    }

    /// Judges what is left when all clients have ended.
    pub(super) fn judge_the_end(&mut self) {
        let now = kernel::now();
        let later = now + ALL_BUT_COUNTERS + self.set_back;
        for (number, node) in self.nodes.iter().enumerate() {
            let mut keys = node.server().keys(node.wall(later));
            let stays = |name: &[u8]| {
                ["fence", "newest", "last"]
                    .iter()
                    .any(|kind| name.starts_with(format!("rlock:{kind}:").as_bytes()))
            };
            if let Some((name, _)) = keys.find(|(name, _)| !stays(name)) {
                let why = format!("node {number} keeps {}", String::from_utf8_lossy(name));
                kernel::with(|kernel| kernel.witness.violated(Violation::LeftKey(why)));
            }
        }
        let etcd = self.etcd.as_ref();
        let mut keys = etcd.into_iter().flat_map(|etcd| etcd.store().keys());
        if let Some(kv) = keys.find(|kv| kv.lease == 0) {
            let why = format!("etcd keeps {}", String::from_utf8_lossy(&kv.key));
            kernel::with(|kernel| kernel.witness.violated(Violation::LeftKey(why)));
        }
        let ensemble = self.zookeeper.as_ref();
        let mut left = ensemble.into_iter().flat_map(|it| it.tree().persistent());
        let stays = |path: &str| path == "/" || path.starts_with("/rlock:once:");
        if let Some(path) = left.find(|path| !stays(path)) {
            let why = format!("ZooKeeper keeps {path}");
            kernel::with(|kernel| kernel.witness.violated(Violation::LeftKey(why)));
        }
        let database = self.database.as_ref();
        if let Some(name) =
            database.and_then(|database| database.left_behind(ALL_BUT_COUNTERS, now))
        {
            let why = format!("the database keeps {name}");
            kernel::with(|kernel| kernel.witness.violated(Violation::LeftKey(why)));
        }
        // A client that gives up has asked in vain.
        let (nodes, clients) = (self.nodes.len() as u64, self.exits.values().sum::<u64>());
        let requests = self.requests();
        if self.scenario.kind == Kind::Calm && requests > REQUESTS * nodes * (clients + 1) {
            let why = format!("{requests} for {clients} clients on {nodes} nodes");
            kernel::with(|kernel| kernel.witness.violated(Violation::Requests(why)));
        }
    }
}
