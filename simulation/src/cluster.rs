//! A cluster: which member serves which slot, the slot that moves, and replicas that take over.
//!
//! 1. A primary that is silent for long is replaced by its replica. The other members say that the
//!    cluster is down from the time at which they notice until they hear of the replica.
//! 2. A replica has all writes of its primary: against a failover that loses some, no client has a
//!    remedy but `--wait-replicas`. If it takes over on an order, there are never two primaries.
//! 3. A primary that was replaced serves until it hears of that, some ms after it is there again.
//! 4. The locks' slot is moved from one primary to another, its keys one by one, or all at once.
//!
//! Members hear of a change within 50 ms, and only one is away at a time. rlock promises nothing
//! where a member that confirms a server has an old map for seconds. Two things are left out:
//! 1. A move and a failover do not meet. A replica does not know of keys that are being moved.
//! 2. A member that may have forgotten locks keeps its slot and its role until the restart guard is
//!    over: no other member knows that it restarted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rlock::lock::instant::Instant;

use crate::deployment::{Deployment, PRIMARIES, address};
use crate::kernel::{BEGIN, Event, Kernel};
use crate::node::Node;
use crate::replication::Link;
use crate::server::{Member, SLOTS, Slots};

/// Longest time in which a member hears of a change.
const GOSSIP: Duration = Duration::from_millis(50);

/// Something that a cluster does at its time. Members are named by their machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The members look at one that is silent since then.
    Suspect(usize, Instant),
    /// A replica takes the place of its primary.
    Succeed(usize),
    /// A member hears of the present map.
    Hear(usize),
    /// The member that gives the slot away learns of it.
    Migrate,
    /// Keys of the slot are moved.
    Carry,
    /// The move ends at both its members.
    Settle,
}

/// The slot that is being moved.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    /// Whether all keys are moved at once.
    at_once: bool,
    /// Longest time between two steps.
    pause: Duration,
}

/// The cluster that one node is.
#[derive(Debug)]
pub struct Cluster {
    node: usize,
    members: Range<usize>,
    /// Time after which a silent member counts as dead.
    node_timeout: Duration,
    /// The slot of all locks.
    slot: u16,
    /// The map that all members have sooner or later.
    slots: Slots,
    links: BTreeMap<usize, Link>,
    /// The member that is silent, and since when.
    down: Option<(usize, Instant)>,
    is_succeeding: bool,
    moving: Option<Move>,
    /// When the restart guard is over at each member that restarted without all its data.
    guarded_until: Instant,
    changed: Instant,
    switches: u64,
    moves: u64,
    stale: u64,
}

impl Cluster {
    /// The cluster of `node`, whose locks are in `slot`.
    pub fn new(
        node: usize,
        deployment: Deployment,
        node_timeout: Duration,
        slot: u16,
        nodes: &mut [Node],
    ) -> Self {
        let members = deployment.servers(node);
        let shard = SLOTS / 3;
        let ranges = [
            (0, shard - 1, 0),
            (shard, 2 * shard - 1, 1),
            (2 * shard, SLOTS - 1, 2),
        ]
        .to_vec();
        let replicates = (PRIMARIES..members.len())
            .map(|replica| (replica, replica - PRIMARIES))
            .collect();
        let slots = Slots {
            addresses: members.clone().map(address).collect(),
            ranges,
            replicates,
        };
        let mut links = BTreeMap::new();
        for (number, machine) in members.clone().enumerate() {
            nodes[machine]
                .server_mut()
                .join(Member::new(number, slots.clone()));
            if let Some(primary) = slots.replicates.get(&number) {
                let primary = members.start + primary;
                links.insert(
                    machine,
                    Link::new(primary, nodes[primary].server().snapshot(), BEGIN),
                );
                nodes[machine].server_mut().set_replica(true);
            }
        }
        Self {
            node,
            members,
            node_timeout,
            slot,
            slots,
            links,
            down: None,
            is_succeeding: false,
            moving: None,
            guarded_until: BEGIN,
            changed: BEGIN,
            switches: 0,
            moves: 0,
            stale: 0,
        }
    }

    /// The member that serves the locks.
    pub fn primary(&self) -> usize {
        self.members.start + self.slots.owner(self.slot).unwrap_or_default()
    }

    /// When the map last changed.
    pub fn changed(&self) -> Instant {
        self.changed
    }

    /// Number of replicas that took over.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of times that the slot was moved.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Number of requests by which a server that had been replaced changed data.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Whether a member may be stopped or killed, or hand its slot or its role over.
    pub fn may_harm(&self, now: Instant) -> bool {
        self.down.is_none() && self.is_quiet(now) && now >= self.guarded_until
    }

    /// Whether no slot and no role changes, and all members have heard of the last change.
    fn is_quiet(&self, now: Instant) -> bool {
        self.moving.is_none() && !self.is_succeeding && now.since(self.changed) > GOSSIP * 2
    }

    /// A member restarts without all its data. `until`: when the restart guard is over there.
    pub fn forgets(&mut self, until: Instant) {
        self.guarded_until = until;
    }

    /// A member has fallen silent.
    pub fn falls(&mut self, machine: usize, kernel: &mut Kernel) {
        self.down = Some((machine, kernel.now));
        self.later(
            kernel,
            self.node_timeout,
            Step::Suspect(machine, kernel.now),
        );
    }

    /// A member is there again.
    pub fn rises(&mut self, machine: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        self.down = self.down.filter(|(down, _)| *down != machine);
        let primary = self
            .links
            .get(&machine)
            .map_or(machine, |link| link.primary);
        self.feed(primary, nodes, kernel);
        self.all_hear(kernel);
    }

    /// Lets the replica of the locks' primary take over on an order, with all writes. Returns
    /// whether it can.
    pub fn hands_over(&mut self, nodes: &mut [Node], kernel: &mut Kernel) -> bool {
        let primary = self.primary();
        let heir = self
            .heir(primary, nodes)
            .filter(|_| self.may_harm(kernel.now));
        if let Some(heir) = heir {
            self.succeed(heir, nodes, kernel);
            self.hear(primary, nodes, kernel);
        }
        heir.is_some()
    }

    /// Begins to move the slot to the primary behind its own. Returns whether it does.
    pub fn moves_slot(
        &mut self,
        at_once: bool,
        pause: Duration,
        nodes: &mut [Node],
        kernel: &mut Kernel,
    ) -> bool {
        let from = self.primary();
        let primaries: Vec<usize> = self
            .members
            .clone()
            .filter(|member| !self.links.contains_key(member))
            .collect();
        let behind = primaries
            .iter()
            .position(|primary| *primary == from)
            .map_or(0, |place| (place + 1) % primaries.len());
        let to = primaries[behind];
        let may = self.may_harm(kernel.now) && to != from;
        if may {
            self.moving = Some(Move {
                from,
                to,
                at_once,
                pause,
            });
            let (source, slot) = (from - self.members.start, self.slot);
            if let Some(member) = nodes[to].server_mut().member_mut() {
                member.importing.insert(slot, source);
            }
            self.soon(kernel, Step::Migrate);
        }
        may
    }

    /// A server has changed its data.
    pub fn has_written(&mut self, machine: usize, nodes: &[Node], kernel: &mut Kernel) {
        let number = machine - self.members.start;
        let is_primary = self.slots.owner(self.slot) == Some(number);
        let takes = self.moving.is_some_and(|moving| moving.to == machine);
        self.stale += u64::from(!is_primary && !takes);
        self.feed(machine, nodes, kernel);
    }

    fn feed(&mut self, from: usize, nodes: &[Node], kernel: &mut Kernel) {
        if nodes[from].is_up() {
            self.links
                .values_mut()
                .for_each(|link| link.copy(from, &nodes[from], kernel.now));
        }
    }

    /// Does what is due.
    pub fn step(&mut self, step: Step, nodes: &mut [Node], kernel: &mut Kernel) {
        kernel.tell(|| format!("cluster {}: {step:?}", self.node));
        match step {
            Step::Suspect(machine, since) => self.suspect(machine, since, nodes, kernel),
            Step::Succeed(heir) => {
                self.is_succeeding = false;
                if nodes[heir].is_up() && self.links.contains_key(&heir) {
                    self.succeed(heir, nodes, kernel);
                }
            }
            Step::Hear(machine) => self.hear(machine, nodes, kernel),
            Step::Migrate => self.migrate(nodes, kernel),
            Step::Carry => self.carry(nodes, kernel),
            Step::Settle => self.settle(nodes, kernel),
        }
    }

    fn suspect(&mut self, machine: usize, since: Instant, nodes: &mut [Node], kernel: &mut Kernel) {
        if self.down != Some((machine, since)) || self.links.contains_key(&machine) {
            return;
        }
        for other in self.members.clone().filter(|other| *other != machine) {
            if let Some(member) = nodes[other].server_mut().member_mut() {
                member.is_down = true;
            }
        }
        if let Some(heir) = self.heir(machine, nodes) {
            self.is_succeeding = true;
            let elected = kernel
                .random
                .time(self.node_timeout / 20, self.node_timeout);
            self.later(kernel, elected, Step::Succeed(heir));
        }
    }

    /// Lets a replica take over.
    fn succeed(&mut self, heir: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        let Some(link) = self.links.remove(&heir) else {
            return;
        };
        let old = link.primary;
        nodes[heir].takes_role(kernel, false, link.arrived(kernel.now));
        let state = nodes[heir].server().snapshot();
        self.links.insert(old, Link::new(heir, state, kernel.now));
        self.slots.succeed(heir - self.members.start);
        (self.switches, self.changed) = (self.switches + 1, kernel.now);
        self.hear(heir, nodes, kernel);
        self.all_hear(kernel);
    }

    fn all_hear(&self, kernel: &mut Kernel) {
        for member in self.members.clone() {
            let heard = kernel.random.time(Duration::ZERO, GOSSIP);
            self.later(kernel, heard, Step::Hear(member));
        }
    }

    fn hear(&mut self, machine: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        if !nodes[machine].is_up() {
            return;
        }
        let is_down = self.down.is_some_and(|(down, since)| {
            !self.links.contains_key(&down) && kernel.now.since(since) >= self.node_timeout
        });
        let Some(member) = nodes[machine].server_mut().member_mut() else {
            return;
        };
        if member.slots == self.slots && member.is_down == is_down {
            return;
        }
        (member.slots, member.is_down) = (self.slots.clone(), is_down);
        self.changed = kernel.now;
        let is_old = self.links.contains_key(&machine) && !nodes[machine].server().is_replica();
        if let Some(link) = self.links.get(&machine).filter(|_| is_old) {
            let state = nodes[link.primary].server().snapshot();
            nodes[machine].takes_role(kernel, true, Some(state));
        }
    }

    fn migrate(&mut self, nodes: &mut [Node], kernel: &mut Kernel) {
        let Some(Move { from, to, .. }) = self.moving else {
            return;
        };
        let to = to - self.members.start;
        if let Some(member) = nodes[from].server_mut().member_mut() {
            member.migrating.insert(self.slot, to);
        }
        self.soon(kernel, Step::Carry);
    }

    fn carry(&mut self, nodes: &mut [Node], kernel: &mut Kernel) {
        let Some(Move {
            from, to, at_once, ..
        }) = self.moving
        else {
            return;
        };
        let (here, there) = (nodes[from].wall(kernel.now), nodes[to].wall(kernel.now));
        let mut keys: Vec<Vec<u8>> = nodes[from]
            .server()
            .keys(here)
            .map(|(name, _)| name.to_vec())
            .collect();
        if keys.is_empty() {
            return self.soon(kernel, Step::Settle);
        }
        let count = if at_once { keys.len() } else { 1 };
        for _ in 0..count {
            let key = keys.swap_remove(kernel.random.below(keys.len()));
            if let Some(entry) = nodes[from].server_mut().take(&key, here) {
                nodes[to].server_mut().add(key, entry, there);
            }
        }
        for machine in [from, to] {
            self.feed(machine, nodes, kernel);
        }
        self.soon(kernel, Step::Carry);
    }

    fn settle(&mut self, nodes: &mut [Node], kernel: &mut Kernel) {
        let Some(Move { from, to, .. }) = self.moving.take() else {
            return;
        };
        self.slots.give(self.slot, to - self.members.start);
        (self.moves, self.changed) = (self.moves + 1, kernel.now);
        for machine in [to, from] {
            if let Some(member) = nodes[machine].server_mut().member_mut() {
                member.importing.remove(&self.slot);
                member.migrating.remove(&self.slot);
            }
            self.hear(machine, nodes, kernel);
        }
        self.all_hear(kernel);
    }

    /// Returns a replica of `primary` that is there.
    fn heir(&self, primary: usize, nodes: &[Node]) -> Option<usize> {
        let is_heir = |(replica, link): (&usize, &Link)| {
            (link.primary == primary && nodes[*replica].is_up()).then_some(*replica)
        };
        self.links.iter().find_map(is_heir)
    }

    /// Does the next step of the move.
    fn soon(&self, kernel: &mut Kernel, step: Step) {
        let longest = self.moving.map_or(Duration::ZERO, |moving| moving.pause);
        let pause = kernel.random.time(Duration::ZERO, longest);
        self.later(kernel, pause, step);
    }

    fn later(&self, kernel: &mut Kernel, span: Duration, step: Step) {
        kernel.after(span, Event::Cluster(self.node, step));
    }
}
