//! A service with sentinels: who is its primary, who follows whom, and what a failover leaves
//! behind.
//!
//! 1. A primary that is silent for long is replaced by a replica. So is one on an operator's order.
//! 2. The replica takes writes at once, and the sentinels name it some time later: one first, and
//!    all that can be reached soon after.
//! 3. Replicas get the data of their primary late. What a replica lacks when it is promoted is
//!    lost.
//! 4. An old primary takes writes for up to eleven seconds after the switch, until a sentinel makes
//!    it a replica.
//!
//! A majority of the sentinels knows of a switch within a tenth of the time after which a server
//! counts as dead. rlock promises nothing where a majority names an old primary for seconds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rlock::lock::instant::Instant;

use crate::deployment::{Deployment, SERVICE, address};
use crate::kernel::{BEGIN, Event, Kernel};
use crate::node::Node;
use crate::replication::Link;
use crate::server::{Wait, Watch};

/// Longest time for which an old primary stays one.
const STALE: Duration = Duration::from_secs(11);

/// Channel on which a sentinel announces a switch.
const SWITCHES: &[u8] = b"+switch-master";

/// Something that a service does at its time. Servers and sentinels are named by their machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The sentinels look at a server that is silent since then.
    Suspect(usize, Instant),
    /// A replica is promoted.
    Promote,
    /// The sentinel that leads the failover names the server that was promoted.
    Name(usize),
    /// A sentinel hears of the last switch.
    Tell(usize),
    /// The sentinel that leads shows the server that it names since this epoch.
    Show(usize, u64),
    /// An old primary is made a replica.
    Demote(usize),
    /// A replica follows the primary.
    Follow(usize),
}

/// The service that one node is.
#[derive(Debug)]
pub struct Service {
    node: usize,
    servers: Range<usize>,
    sentinels: Range<usize>,
    /// Time after which a silent server counts as dead.
    down_after: Duration,
    /// The primary that the sentinel with the highest epoch names.
    primary: usize,
    epoch: u64,
    /// Whether a failover is under way.
    is_failing: bool,
    /// The replicas.
    links: BTreeMap<usize, Link>,
    /// Since when servers and sentinels are silent.
    down: BTreeMap<usize, Instant>,
    /// The server that sentinels and other servers do not reach, though it runs.
    cut_off: Option<usize>,
    /// The sentinel that the others do not reach.
    isolated: Option<usize>,
    /// Time by which replicas get writes later than usual.
    lag: Duration,
    /// When a sentinel last heard of a switch, or a server last changed its role.
    changed: Instant,
    /// Number of requests by which a server that had been replaced changed data.
    stale: u64,
}

impl Service {
    /// The service of `node`, whose first server is the primary.
    pub fn new(
        node: usize,
        deployment: Deployment,
        down_after: Duration,
        nodes: &mut [Node],
    ) -> Self {
        let now = BEGIN;
        let (servers, sentinels) = (deployment.servers(node), deployment.sentinels(node));
        let primary = servers.start;
        for sentinel in sentinels.clone() {
            nodes[sentinel].watch(|since| Watch {
                service: SERVICE.to_owned(),
                named: address(primary),
                shown: address(primary),
                epoch: 0,
                since,
                down_after: u64::try_from(down_after.as_millis()).unwrap_or(u64::MAX),
                others: sentinels.len() - 1,
            });
        }
        let state = nodes[primary].server().snapshot();
        let link = || Link::new(primary, state.clone(), now);
        for replica in servers.clone().skip(1) {
            nodes[replica].server_mut().set_replica(true);
        }
        let links = servers
            .clone()
            .skip(1)
            .map(|replica| (replica, link()))
            .collect();
        let down = BTreeMap::new();
        Self {
            node,
            servers,
            sentinels,
            down_after,
            primary,
            epoch: 0,
            is_failing: false,
            links,
            down,
            cut_off: None,
            isolated: None,
            lag: Duration::ZERO,
            changed: now,
            stale: 0,
        }
    }

    /// The primary.
    pub fn primary(&self) -> usize {
        self.primary
    }

    /// The machines of its sentinels.
    pub fn sentinels(&self) -> Range<usize> {
        self.sentinels.clone()
    }

    /// The machines of its servers.
    pub fn servers(&self) -> Range<usize> {
        self.servers.clone()
    }

    /// When a sentinel last heard of a switch, or a server last changed its role.
    pub fn changed(&self) -> Instant {
        self.changed
    }

    /// Number of servers that took over.
    pub fn switches(&self) -> u64 {
        self.epoch
    }

    /// Number of requests by which a server that had been replaced changed data.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Whether a failover is under way, or just over: a majority of the sentinels must hear of it.
    pub fn is_switching(&self, now: Instant) -> bool {
        self.is_failing || now.since(self.changed) < self.down_after
    }

    /// Whether no server and no sentinel is cut off from the others.
    pub fn is_whole(&self) -> bool {
        self.cut_off.is_none() && self.isolated.is_none()
    }

    /// Makes replicas get writes later.
    pub fn set_lag(&mut self, lag: Duration) {
        self.lag = lag;
    }

    /// A server or a sentinel has fallen silent.
    pub fn falls(&mut self, machine: usize, kernel: &mut Kernel) {
        let now = kernel.now;
        self.down.entry(machine).or_insert(now);
        if self.servers.contains(&machine) {
            let noticed =
                self.down_after + kernel.random.time(Duration::ZERO, self.down_after / 10);
            self.later(kernel, noticed, Step::Suspect(machine, now));
        }
    }

    /// A server or a sentinel is there again.
    pub fn rises(&mut self, machine: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        if self.cut_off == Some(machine) {
            return;
        }
        self.down.remove(&machine);
        if self.sentinels.contains(&machine) {
            return self.later(kernel, Duration::ZERO, Step::Tell(machine));
        }
        if let Some(link) = self.links.get(&machine) {
            return self.feed(link.primary, nodes, kernel);
        }
        self.feed(machine, nodes, kernel);
        self.demote_later(machine, kernel);
    }

    /// Cuts a server off from the sentinels and from the other servers, or ends that.
    pub fn cut_off(&mut self, machine: Option<usize>, nodes: &mut [Node], kernel: &mut Kernel) {
        let before = std::mem::replace(&mut self.cut_off, machine);
        if let Some(before) = before.filter(|before| nodes[*before].is_up()) {
            self.rises(before, nodes, kernel);
        }
        if let Some(machine) = machine {
            self.falls(machine, kernel);
        }
    }

    /// Cuts a sentinel off from the others, or ends that.
    pub fn isolate(&mut self, sentinel: Option<usize>, kernel: &mut Kernel) {
        let before = std::mem::replace(&mut self.isolated, sentinel);
        if let Some(before) = before {
            self.later(kernel, Duration::ZERO, Step::Tell(before));
        }
    }

    /// A sentinel's process has started: it has seen the primary since now.
    pub fn sentinel_started(&self, sentinel: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        if self.sentinels.contains(&sentinel) {
            let since = nodes[sentinel].wall(kernel.now);
            if let Some(watch) = nodes[sentinel].server_mut().watch_mut() {
                (watch.shown, watch.since) = (watch.named.clone(), since);
            }
        }
    }

    /// Begins a failover, if the sentinels can agree on one.
    pub fn begins_failover(&mut self, nodes: &[Node], kernel: &mut Kernel) -> bool {
        let may = !self.is_failing
            && self.able(nodes).count() > self.sentinels.len() / 2
            && self.candidate(nodes, kernel).is_some();
        if may {
            self.is_failing = true;
            let elects = kernel
                .random
                .time(self.down_after / 20, self.down_after / 3);
            self.later(kernel, elects, Step::Promote);
        }
        may
    }

    /// A server has changed its data.
    pub fn has_written(&mut self, machine: usize, nodes: &[Node], kernel: &mut Kernel) {
        self.stale += u64::from(machine != self.primary && !self.links.contains_key(&machine));
        self.feed(machine, nodes, kernel);
    }

    /// Returns when this many replicas have so many writes of a server: at `ends` at the latest.
    pub fn copied(&self, machine: usize, wait: &Wait, now: Instant) -> Instant {
        let mut times: Vec<Instant> = self.reached(machine, wait.writes).collect();
        times.sort_unstable();
        let enough = wait
            .replicas
            .checked_sub(1)
            .map_or(Some(now), |last| times.get(last).copied());
        let ends = now + wait.limit;
        enough.map_or(ends, |at| at.min(ends))
    }

    /// Number of replicas that have so many writes of a server.
    pub fn copies(&self, machine: usize, writes: u64, now: Instant) -> usize {
        self.reached(machine, writes)
            .filter(|at| *at <= now)
            .count()
    }

    /// When each replica that is reached has so many writes of a server.
    fn reached(&self, machine: usize, writes: u64) -> impl Iterator<Item = Instant> {
        let is_reached = move |replica: usize| {
            ![Some(replica), Some(machine)].contains(&self.cut_off)
                && !self.down.contains_key(&replica)
        };
        self.links
            .iter()
            .filter(move |(replica, link)| link.primary == machine && is_reached(**replica))
            .filter_map(move |(_, link)| link.has(machine, writes))
    }

    /// Sends the data of a server to its replicas.
    fn feed(&mut self, from: usize, nodes: &[Node], kernel: &mut Kernel) {
        if self.cut_off == Some(from) || !nodes[from].is_up() {
            return;
        }
        for (_, link) in self
            .links
            .iter_mut()
            .filter(|(replica, _)| self.cut_off != Some(**replica))
        {
            link.feed(from, &nodes[from], self.lag, kernel);
        }
    }

    /// Does what is due.
    pub fn step(&mut self, step: Step, nodes: &mut [Node], kernel: &mut Kernel) {
        kernel.tell(|| format!("service {}: {step:?}", self.node));
        match step {
            Step::Suspect(machine, since) => {
                if machine == self.primary
                    && self.down.get(&machine) == Some(&since)
                    && !self.begins_failover(nodes, kernel)
                {
                    self.later(kernel, self.down_after, step);
                }
            }
            Step::Promote => self.promote(nodes, kernel),
            Step::Name(promoted) => self.name(promoted, nodes, kernel),
            Step::Tell(sentinel) => self.tell(sentinel, nodes, kernel),
            Step::Show(sentinel, epoch) => self.show(sentinel, epoch, nodes, kernel),
            Step::Demote(machine) => self.demote(machine, nodes, kernel),
            Step::Follow(replica) => self.follow(replica, nodes, kernel),
        }
    }

    fn promote(&mut self, nodes: &mut [Node], kernel: &mut Kernel) {
        let Some(promoted) = self.candidate(nodes, kernel) else {
            return self.fails(kernel);
        };
        let data = self
            .links
            .remove(&promoted)
            .and_then(|link| link.arrived(kernel.now));
        nodes[promoted].takes_role(kernel, false, data);
        kernel.witness.forgets(kernel.now);
        let seen = kernel.random.time(Duration::ZERO, self.down_after);
        self.later(kernel, seen, Step::Name(promoted));
    }

    fn name(&mut self, promoted: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        let leaders: Vec<usize> = self.able(nodes).collect();
        if !nodes[promoted].is_up() || leaders.is_empty() {
            return self.fails(kernel);
        }
        let old = std::mem::replace(&mut self.primary, promoted);
        (self.epoch, self.is_failing, self.changed) = (self.epoch + 1, false, kernel.now);
        kernel.witness.forgets(kernel.now);
        let leader = leaders[kernel.random.below(leaders.len())];
        if let Some(watch) = nodes[leader].server_mut().watch_mut() {
            (watch.named, watch.epoch) = (address(promoted), self.epoch);
        }
        let shown = kernel.random.time(Duration::ZERO, self.down_after);
        self.later(kernel, shown, Step::Show(leader, self.epoch));
        for sentinel in self
            .sentinels
            .clone()
            .filter(|sentinel| *sentinel != leader)
        {
            let told = kernel.random.time(Duration::ZERO, self.down_after / 10);
            self.later(kernel, told, Step::Tell(sentinel));
        }
        for replica in self.links.keys().copied().collect::<Vec<_>>() {
            let follows = kernel.random.time(Duration::ZERO, self.down_after);
            self.later(kernel, follows, Step::Follow(replica));
        }
        self.demote_later(old, kernel);
    }

    fn tell(&mut self, sentinel: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        let since = nodes[sentinel].wall(kernel.now);
        if self.isolated == Some(sentinel) || !nodes[sentinel].is_up() {
            return;
        }
        let Some(watch) = nodes[sentinel]
            .server_mut()
            .watch_mut()
            .filter(|watch| watch.epoch < self.epoch)
        else {
            return;
        };
        (watch.named, watch.epoch) = (address(self.primary), self.epoch);
        let old = std::mem::replace(&mut watch.shown, address(self.primary));
        watch.since = since;
        self.announce(sentinel, &old, nodes, kernel);
    }

    fn show(&mut self, sentinel: usize, epoch: u64, nodes: &mut [Node], kernel: &mut Kernel) {
        let since = nodes[sentinel].wall(kernel.now);
        if !nodes[sentinel].is_up() {
            return self.later(kernel, self.down_after, Step::Show(sentinel, epoch));
        }
        let Some(watch) = nodes[sentinel].server_mut().watch_mut() else {
            return;
        };
        if watch.epoch == epoch && watch.shown != watch.named {
            let old = std::mem::replace(&mut watch.shown, watch.named.clone());
            watch.since = since;
            self.announce(sentinel, &old, nodes, kernel);
        }
    }

    fn announce(
        &mut self,
        sentinel: usize,
        old: &(String, u16),
        nodes: &mut [Node],
        kernel: &mut Kernel,
    ) {
        self.changed = kernel.now;
        let ((old, port), (new, other)) = (old, address(self.primary));
        let message = format!("{SERVICE} {old} {port} {new} {other}");
        nodes[sentinel].publish(kernel, SWITCHES, message.as_bytes());
    }

    fn demote(&mut self, machine: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        if machine == self.primary
            || self.links.contains_key(&machine)
            || !self.is_there(machine, nodes)
        {
            return;
        }
        if self.is_failing || !self.is_there(self.primary, nodes) {
            return self.later(kernel, self.down_after, Step::Demote(machine));
        }
        self.changed = kernel.now;
        let state = nodes[self.primary].server().snapshot();
        nodes[machine].takes_role(kernel, true, Some(state.clone()));
        self.links
            .insert(machine, Link::new(self.primary, state, kernel.now));
    }

    fn follow(&mut self, replica: usize, nodes: &mut [Node], kernel: &mut Kernel) {
        if let Some(link) = self
            .links
            .get_mut(&replica)
            .filter(|link| link.primary != self.primary)
        {
            if self.is_failing || !nodes[self.primary].is_up() {
                return self.later(kernel, self.down_after, Step::Follow(replica));
            }
            link.primary = self.primary;
            self.feed(self.primary, nodes, kernel);
        }
    }

    /// A failover did not come about.
    fn fails(&mut self, kernel: &mut Kernel) {
        self.is_failing = false;
        if let Some(since) = self.down.get(&self.primary).copied() {
            self.later(kernel, self.down_after, Step::Suspect(self.primary, since));
        }
    }

    /// Lets a server that takes writes, and should not, take them for some time yet.
    fn demote_later(&self, machine: usize, kernel: &mut Kernel) {
        if machine != self.primary {
            let longest =
                kernel
                    .random
                    .weighted(&[(1, self.down_after), (1, STALE / 4), (1, STALE)]);
            let stays = kernel.random.time(Duration::ZERO, longest);
            self.later(kernel, stays, Step::Demote(machine));
        }
    }

    /// The sentinels that can agree.
    fn able<'a>(&self, nodes: &'a [Node]) -> impl Iterator<Item = usize> + use<'a> {
        let isolated = self.isolated;
        self.sentinels
            .clone()
            .filter(move |sentinel| isolated != Some(*sentinel) && nodes[*sentinel].is_up())
    }

    /// Returns a replica that can be promoted.
    fn candidate(&self, nodes: &[Node], kernel: &mut Kernel) -> Option<usize> {
        let fits = |replica: &usize| self.is_there(*replica, nodes);
        let all: Vec<usize> = self.links.keys().copied().filter(fits).collect();
        (!all.is_empty()).then(|| all[kernel.random.below(all.len())])
    }

    /// Whether a server runs, and the sentinels reach it.
    fn is_there(&self, machine: usize, nodes: &[Node]) -> bool {
        nodes[machine].is_up() && self.cut_off != Some(machine)
    }

    fn later(&self, kernel: &mut Kernel, span: Duration, step: Step) {
        kernel.after(span, Event::Service(self.node, step));
    }
}
