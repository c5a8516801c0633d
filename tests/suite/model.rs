//! The rules of several nodes as a model: every interleaving of requests, replies, time and restarts that fits the bounds,
//! over the very functions that decide in rlock (`lock::ballot`, `lock::lease`, `lock::fence`, `lock::restart`).
//!
//! Three nodes, a lease of two seconds, whole seconds. A request may be executed at any later moment or never, in order
//! on its connection; its reply is heard at once or never, and acted upon at once or later. Never two holders at once, and
//! each holder's fence is above the last one's. With any one of the rules taken out, the search finds the history that
//! breaks this. Worlds that differ only in the nodes' names count as one.

use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use rlock::lock::ballot::{self, Ballot, Discount, Verdict};
use rlock::lock::fence::Fence;
use rlock::lock::instant::Instant;
use rlock::lock::lease::{Lease, Revoked};
use rlock::lock::occupant::{Occupant, OccupantKind};
use rlock::lock::quorum::Quorum;
use rlock::lock::restart::{self, RestartGuard};
use rlock::lock::schedule::{Schedule, ScheduleOptions};
use rlock::lock::token;
use rlock::lock::vote::Vote;

const NODES: usize = 3;

/// What can be taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Fences that a majority does not know are told to it before they count.
    Confirm,
    /// A lease that is over when the last grant comes in is no lease.
    Tenure,
    /// A node that restarted grants nothing for as long as the longest lease.
    RestartGuard,
    /// The command is dead when the lease is over.
    DeadByDeadline,
}

/// All rules, but for one perhaps.
#[derive(Clone, Copy)]
struct Rules {
    without: Option<Rule>,
}

const ALL: Rules = Rules { without: None };

impl Rules {
    fn without(rule: Rule) -> Self {
        Self { without: Some(rule) }
    }

    fn have(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

/// How far the search goes.
#[derive(Clone, Copy)]
struct Bounds {
    clients: usize,
    /// The lease's length in seconds.
    ttl: u64,
    /// Seconds.
    horizon: u64,
    /// By each client.
    attempts: u8,
    /// Renewals and healings in all, by each client.
    upkeep: u8,
    restarts: u8,
    /// The nodes' fence counters at the beginning.
    counters: [u64; NODES],
    /// So many steps from the beginning, at most.
    depth: u32,
}

const UNBOUNDED: u32 = u32::MAX;

type Token = (usize, u8);

#[derive(Clone, Copy, Default)]
struct Node {
    key: Option<(Token, u64)>,
    counter: u64,
    /// `None`: before all leases.
    started: Option<u64>,
}

#[derive(Clone)]
enum Request {
    Acquire { token: Token, asked: u64 },
    Renew { token: Token, asked: u64, fence: Fence },
    Heal { token: Token, asked: u64, fence: Fence, told: Option<u64> },
}

#[derive(Clone)]
enum Reply {
    Granted(Fence),
    /// Held by another, or restarted.
    Denied(bool),
    /// With the counter, before anything was changed.
    Renewed(u64),
    Healed(u64),
    Revoked(Revoked, u64),
}

#[derive(Clone)]
enum Phase {
    Idle,
    Asking { begun: u64, ballot: Box<Ballot>, confirming: Option<Fence> },
    Holding { fence: Fence, lease: Lease },
}

#[derive(Clone)]
struct Client {
    attempts: u8,
    upkeep: u8,
    phase: Phase,
    requests: [VecDeque<Request>; NODES],
    /// The counter that a node told when it had no key.
    told: [Option<u64>; NODES],
    /// What the ballot and the lease know of each node, once more, since they keep it to themselves.
    known: [Known; NODES],
}

/// The vote (0: open, 1: missing, else the fence), the end of the tenure, when we were struck, and since when the tenure lacks
/// proof.
#[derive(Clone, Copy, Hash, Default)]
struct Known {
    vote: u64,
    end: u64,
    revoked: Option<(Revoked, u64)>,
    unproven: Option<u64>,
    vouched: u64,
}

#[derive(Clone)]
struct World {
    now: u64,
    nodes: [Node; NODES],
    clients: Vec<Client>,
    last_fence: u64,
    restarts: u8,
    ttl: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    TwoHolders,
    FenceNotAbove,
}

fn at(second: u64) -> Instant {
    Instant::from_nanos(second * 1_000_000_000)
}

/// The terms of every attempt. The model has restarts of its own, so the ballot's guard is off.
fn terms() -> ballot::Terms {
    static TERMS: OnceLock<ballot::Terms> = OnceLock::new();
    *TERMS.get_or_init(|| {
        let options =
            ScheduleOptions { ttl: Duration::from_secs(30), drift: 0.01, node_timeout: None, kill_after: None };
        let schedule = Schedule::new(options).expect("a schedule that fits");
        ballot::Terms { token: token::Token::fresh(), schedule, guard: RestartGuard::Off, min_uptime: Duration::ZERO }
    })
}

/// A refusal: the key is held, or the node has restarted.
fn denied(held: bool) -> Vote {
    if held { Vote::Held(Box::new(Occupant { who: OccupantKind::Unnamed, ttl: None })) } else { Vote::Restarted }
}

impl Client {
    fn token(&self, index: usize) -> Token {
        (index, self.attempts)
    }
}

impl Request {
    /// All of it but whose it is.
    fn print(&self) -> (u8, u8, u64, u64, u64) {
        match self {
            Self::Acquire { token, asked } => (0, token.1, *asked, 0, 0),
            Self::Renew { token, asked, fence } => (1, token.1, *asked, fence.get(), 0),
            Self::Heal { token, asked, fence, told } => {
                (2, token.1, *asked, fence.get(), told.map_or(0, |told| told + 1))
            }
        }
    }
}

/// A quick hash for small numbers: 64 bits, mixed as splitmix64 does.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mut mixed = (self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Reply {
    /// The counter of a node that has our key.
    fn counter(&self) -> Option<u64> {
        match self {
            Self::Granted(fence) => Some(fence.get()),
            Self::Renewed(counter) | Self::Healed(counter) => Some(*counter),
            Self::Denied(_) | Self::Revoked(..) => None,
        }
    }
}

impl Known {
    fn learn(&mut self, node: usize, phase: &Phase, [asked, now, end]: [u64; 3], reply: &Reply) {
        let confirming = matches!(phase, Phase::Asking { confirming: Some(_), .. });
        let asking = matches!(phase, Phase::Asking { .. });
        match reply {
            Reply::Granted(_) | Reply::Renewed(_) | Reply::Healed(_) => {
                self.vouched = self.vouched.max(asked + 1);
                if let (Some(counter), Phase::Holding { fence, lease }) = (reply.counter(), phase)
                    && counter > fence.get()
                    && lease.wants_healing(node)
                {
                    self.unproven = Some(now);
                }
                self.end = self.end.max(end);
                self.revoked = None;
                match reply {
                    Reply::Granted(fence) if asking && !confirming => self.vote = fence.get() + 2,
                    Reply::Renewed(_) if asking => self.vote = 2,
                    _ => {}
                }
            }
            Reply::Denied(_) | Reply::Revoked(..) => {
                self.vote = u64::from(asking);
                if let Reply::Revoked(how, _) = reply {
                    *self = Self { end: 0, revoked: Some((*how, now)), unproven: None, ..*self };
                }
            }
        }
    }
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let client = Client {
            attempts: 0,
            upkeep: bounds.upkeep,
            phase: Phase::Idle,
            requests: Default::default(),
            told: Default::default(),
            known: Default::default(),
        };
        Self {
            now: 0,
            nodes: bounds.counters.map(|counter| Node { counter, ..Node::default() }),
            clients: vec![client; bounds.clients],
            last_fence: 0,
            restarts: bounds.restarts,
            ttl: bounds.ttl,
        }
    }

    /// A number for this world, whatever its nodes are called, and its clients if there are two.
    fn print(&self) -> u64 {
        let order: Vec<usize> = (0..self.clients.len()).collect();
        if let [first, second] = order[..] {
            self.print_in(&order).min(self.print_in(&[second, first]))
        } else {
            self.print_in(&order)
        }
    }

    fn print_in(&self, order: &[usize]) -> u64 {
        let mut columns = [0; NODES];
        for (node, column) in columns.iter_mut().enumerate() {
            let mut hasher = Mixer::default();
            let Node { key, counter, started } = self.nodes[node];
            (counter, started).hash(&mut hasher);
            key.map(|((client, attempt), expires)| (order[client], attempt, expires)).hash(&mut hasher);
            for &client in order {
                let client = &self.clients[client];
                (client.known[node], client.told[node]).hash(&mut hasher);
                for request in &client.requests[node] {
                    request.print().hash(&mut hasher);
                }
            }
            *column = hasher.finish();
        }
        columns.sort_unstable();
        let mut hasher = Mixer::default();
        (self.now, self.last_fence, self.restarts, columns).hash(&mut hasher);
        for &client in order {
            let client = &self.clients[client];
            let phase = match &client.phase {
                Phase::Idle => (0, 0, 0),
                Phase::Asking { begun, confirming, .. } => (1, *begun, confirming.map_or(0, Fence::get)),
                Phase::Holding { fence, .. } => (2, fence.get(), 0),
            };
            (client.attempts, client.upkeep, phase).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// All that can happen next.
    fn successors(&self, rules: Rules, bounds: Bounds) -> Result<Vec<Self>, Broken> {
        let mut all = Vec::new();
        if self.now < bounds.horizon {
            self.tick(rules, &mut all);
        }
        for node in 0..NODES {
            if self.restarts > 0 && self.may_restart(node) {
                let mut next = self.clone();
                next.restarts -= 1;
                next.nodes[node] = Node { started: Some(self.now), ..Node::default() };
                all.push(next);
            }
        }
        for index in 0..self.clients.len() {
            self.of_client(index, rules, bounds, &mut all)?;
        }
        Ok(all)
    }

    /// A minority at a time forgets: not while another node that restarted does not count yet.
    fn may_restart(&self, node: usize) -> bool {
        (0..NODES).all(|other| other == node || !self.is_young(other))
    }

    fn is_young(&self, node: usize) -> bool {
        let least = restart::least_uptime(Duration::from_secs(self.ttl));
        self.nodes[node].started.is_some_and(|started| self.now - started < least)
    }

    fn tick(&self, rules: Rules, all: &mut Vec<Self>) {
        let mut next = self.clone();
        next.now += 1;
        for node in &mut next.nodes {
            node.key = node.key.filter(|(_, expires)| *expires > next.now);
        }
        let is_over = |client: &Client| match &client.phase {
            Phase::Holding { lease, .. } => lease.deadline().is_none_or(|deadline| deadline <= at(next.now)),
            _ => false,
        };
        // At most one holds, or the search has ended.
        match next.clients.iter().position(is_over).filter(|_| rules.have(Rule::DeadByDeadline)) {
            Some(index) => next.let_go(index, all),
            None => all.push(next),
        }
    }

    /// Sends a release behind all that was sent, and listens to nothing that is still to come. At each node it is
    /// executed at once or never; what was not executed before it then never is either, or may be at any time.
    fn let_go(&self, index: usize, all: &mut Vec<Self>) {
        let mut quiet = self.clone();
        let token = quiet.clients[index].token(index);
        quiet.clients[index].phase = Phase::Idle;
        quiet.clients[index].known = Default::default();
        quiet.clients[index].told = Default::default();
        for reached in 0..1 << NODES {
            let mut next = quiet.clone();
            for at in (0..NODES).filter(|node| reached >> node & 1 == 1) {
                next.nodes[at].key = next.nodes[at].key.filter(|(holder, _)| *holder != token);
                next.clients[index].requests[at].clear();
            }
            all.push(next);
        }
    }

    fn of_client(&self, index: usize, rules: Rules, bounds: Bounds, all: &mut Vec<Self>) -> Result<(), Broken> {
        let client = &self.clients[index];
        for node in 0..NODES {
            if !client.requests[node].is_empty() {
                self.execute(index, node, rules, all);
            }
        }
        match &client.phase {
            Phase::Idle if client.attempts < bounds.attempts => all.push(self.ask(index)),
            Phase::Idle => {}
            Phase::Asking { begun, ballot, confirming } => {
                let verdict = ballot.verdict();
                if verdict == Verdict::Lost || self.now > *begun {
                    self.let_go(index, all);
                }
                match verdict {
                    Verdict::Won(fence) => self.take(index, fence, rules, all)?,
                    Verdict::Unconfirmed(fence) if !rules.have(Rule::Confirm) => self.take(index, fence, rules, all)?,
                    Verdict::Unconfirmed(fence) if confirming.is_none() => all.push(self.confirm(index, fence)),
                    _ => {}
                }
            }
            Phase::Holding { fence, lease } => {
                self.let_go(index, all);
                if client.upkeep > 0 {
                    for node in (0..NODES).filter(|node| client.requests[*node].is_empty()) {
                        let (token, asked, fence) = (client.token(index), self.now, *fence);
                        let request = if lease.wants_healing(node) {
                            Request::Heal { token, asked, fence, told: client.told[node] }
                        } else {
                            Request::Renew { token, asked, fence }
                        };
                        all.push(self.changed(index, |client| {
                            client.upkeep -= 1;
                            client.requests[node].push_back(request);
                        }));
                    }
                }
            }
        }
        Ok(())
    }

    fn changed(&self, index: usize, change: impl FnOnce(&mut Client)) -> Self {
        let mut next = self.clone();
        change(&mut next.clients[index]);
        next
    }

    fn ask(&self, index: usize) -> Self {
        self.changed(index, |client| {
            client.attempts += 1;
            let (token, asked) = (client.token(index), self.now);
            let ballot = Box::new(Ballot::new(Quorum::of(NODES), terms()));
            client.phase = Phase::Asking { begun: self.now, ballot, confirming: None };
            client.requests.iter_mut().for_each(|queue| queue.push_back(Request::Acquire { token, asked }));
        })
    }

    fn confirm(&self, index: usize, fence: Fence) -> Self {
        self.changed(index, |client| {
            let (token, asked) = (client.token(index), self.now);
            let Phase::Asking { ballot, confirming, .. } = &mut client.phase else { return };
            *confirming = Some(fence);
            client.known.iter_mut().filter(|known| known.vote == 0).for_each(|known| known.vote = 1);
            for node in ballot.confirm(fence) {
                client.requests[node].push_back(Request::Renew { token, asked, fence });
            }
        })
    }

    fn take(&self, index: usize, fence: Fence, rules: Rules, all: &mut Vec<Self>) -> Result<(), Broken> {
        let mut next = self.clone();
        let client = &mut next.clients[index];
        let Phase::Asking { ballot, .. } = &client.phase else { return Ok(()) };
        let lease = ballot.lease().clone();
        if rules.have(Rule::Tenure) && lease.deadline().is_none_or(|deadline| deadline <= at(self.now)) {
            self.let_go(index, all);
            return Ok(());
        }
        if self.clients.iter().any(|other| matches!(other.phase, Phase::Holding { .. })) {
            return Err(Broken::TwoHolders);
        }
        if fence.get() <= self.last_fence {
            return Err(Broken::FenceNotAbove);
        }
        client.phase = Phase::Holding { fence, lease };
        client.known.iter_mut().for_each(|known| known.vote = 0);
        next.last_fence = fence.get();
        all.push(next);
        Ok(())
    }

    /// The first request of a connection is executed: the scripts' rules.
    fn execute(&self, index: usize, at: usize, rules: Rules, all: &mut Vec<Self>) {
        let mut next = self.clone();
        let young = rules.have(Rule::RestartGuard) && self.is_young(at);
        let Some(request) = next.clients[index].requests[at].pop_front() else { return };
        let node = &mut next.nodes[at];
        let holder = node.key.map(|(token, _)| token);
        let expires = self.now + self.ttl;
        let (asked, token, reply) = match request {
            Request::Acquire { token, asked } if holder.is_some() => (asked, token, Reply::Denied(true)),
            Request::Acquire { token, asked } if young => (asked, token, Reply::Denied(false)),
            Request::Acquire { token, asked } => {
                // Seconds of a clock that is finer than they are: more attempts than that do not fit into one.
                let fence = Fence::after(node.counter, asked * 10).expect("a small number");
                (node.counter, node.key) = (fence.get(), Some((token, expires)));
                (asked, token, Reply::Granted(fence))
            }
            Request::Renew { token, asked, fence } | Request::Heal { token, asked, fence, .. }
                if holder == Some(token) =>
            {
                let reply = Reply::Renewed(node.counter);
                (node.counter, node.key) = (node.counter.max(fence.get()), Some((token, expires)));
                (asked, token, reply)
            }
            Request::Heal { token, asked, fence, told }
                if holder.is_none() && (node.counter <= fence.get() || told == Some(node.counter)) =>
            {
                let reply = Reply::Healed(node.counter);
                (node.counter, node.key) = (node.counter.max(fence.get()), Some((token, expires)));
                (asked, token, reply)
            }
            Request::Renew { token, asked, .. } | Request::Heal { token, asked, .. } => {
                let how = if holder.is_some() { Revoked::TakenOver } else { Revoked::Missing };
                (asked, token, Reply::Revoked(how, node.counter))
            }
        };
        let client = &next.clients[index];
        if client.token(index) == token && !matches!(client.phase, Phase::Idle) {
            next.hear(index, at, asked, &reply, all);
        }
        // A refusal that is not heard is as good as one that was never asked for.
        if !matches!(reply, Reply::Denied(_)) {
            all.push(next);
        }
    }

    /// A reply reaches its client: what `redlock` does with it.
    fn hear(&self, index: usize, node: usize, asked: u64, reply: &Reply, all: &mut Vec<Self>) {
        let mut next = self.clone();
        let client = &mut next.clients[index];
        client.known[node].learn(node, &client.phase, [asked, self.now, asked + self.ttl], reply);
        let (now, sent, end) = (at(self.now), at(asked), at(asked + self.ttl));
        let lost = match (&mut client.phase, reply.clone()) {
            (Phase::Asking { ballot, .. }, Reply::Granted(fence)) => {
                ballot.answered(node, sent, Vote::Granted { until: end, fence }.into(), now);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Denied(held)) => {
                ballot.answered(node, sent, denied(held).into(), now);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Renewed(_)) => {
                ballot.confirmed(node, sent, end);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Revoked(how, _)) => {
                ballot.discount(node, Discount::Lost(how), now);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Healed(_)) => {
                ballot.discount(node, Discount::Unconfirmed, now);
                false
            }
            (Phase::Holding { fence, lease }, Reply::Granted(_) | Reply::Renewed(_) | Reply::Healed(_)) => {
                let gains = lease.wants_healing(node);
                if !gains {
                    lease.extend(node, sent, end);
                } else if lease.deadline().is_some_and(|deadline| now < deadline) {
                    match reply.counter() {
                        Some(counter) if counter <= fence.get() => lease.extend(node, sent, end),
                        _ => lease.admit(node, sent, end, now),
                    }
                }
                false
            }
            (Phase::Holding { lease, .. }, Reply::Revoked(how, counter)) => {
                client.told[node] = (how == Revoked::Missing).then_some(counter);
                if how == Revoked::TakenOver || !lease.wants_healing(node) {
                    lease.revoke(node, how, now);
                }
                lease.loss(now).is_some()
            }
            (Phase::Holding { lease, .. }, Reply::Denied(true)) => {
                lease.revoke(node, Revoked::TakenOver, now);
                lease.loss(now).is_some()
            }
            (Phase::Holding { .. }, Reply::Denied(false)) | (Phase::Idle, _) => false,
        };
        if lost { next.let_go(index, all) } else { all.push(next) }
    }
}

/// Breadth first, so that the first broken history is a shortest one. What broke, after how many steps; and how many
/// states were met.
fn explore(rules: Rules, bounds: Bounds) -> (Option<(Broken, u32)>, usize) {
    let first = World::new(bounds);
    let mut met = HashSet::from([first.print()]);
    let mut queue = VecDeque::from([(first, 0)]);
    while let Some((world, steps)) = queue.pop_front() {
        if steps == bounds.depth {
            continue;
        }
        match world.successors(rules, bounds) {
            Err(broken) => return (Some((broken, steps + 1)), met.len()),
            Ok(all) => {
                queue.extend(all.into_iter().filter(|next| met.insert(next.print())).map(|next| (next, steps + 1)));
            }
        }
    }
    (None, met.len())
}

/// Two clients, one attempt each: one node may restart, at any moment.
const RESTARTS: Bounds = Bounds {
    clients: 2,
    ttl: 1,
    horizon: 2,
    attempts: 1,
    upkeep: 0,
    restarts: 1,
    counters: [0; NODES],
    depth: UNBOUNDED,
};

/// One node's counter was set far above the others' by hand.
const APART: Bounds = Bounds { restarts: 0, horizon: 1, counters: [0, 700, 0], ..RESTARTS };

/// A longer lease, renewed once by whoever has it.
const KEPT: Bounds = Bounds { ttl: 2, upkeep: 1, restarts: 0, ..RESTARTS };

/// The same with a node that restarts and is healed; all histories of so many steps.
const HEALED: Bounds = Bounds { restarts: 1, depth: 9, ..KEPT };

/// Three clients; all histories of so many steps.
const CROWDED: Bounds = Bounds { clients: 3, depth: 7, ..RESTARTS };

#[track_caller]
fn holds(bounds: Bounds, at_least: usize) {
    let (broken, states) = explore(ALL, bounds);
    assert_eq!(broken, None);
    assert!(states > at_least, "only {states} states were met: the search is not what it was");
}

#[test]
fn two_clients_never_hold_together_though_a_node_restarts() {
    holds(RESTARTS, 300_000);
}

#[test]
fn fences_rise_though_the_nodes_counters_are_apart() {
    holds(APART, 50_000);
}

#[test]
fn renewals_keep_others_out() {
    holds(KEPT, 100_000);
}

#[test]
fn healing_a_node_that_restarted_lets_nobody_in() {
    holds(HEALED, 50_000);
}

#[test]
fn three_clients_never_hold_together() {
    holds(CROWDED, 50_000);
}

#[test]
fn without_the_confirm_round_a_fence_is_not_above_the_last() {
    let (broken, _) = explore(Rules::without(Rule::Confirm), APART);
    assert!(matches!(broken, Some((Broken::FenceNotAbove, _))), "{broken:?}");
}

#[test]
fn without_the_tenure_check_a_late_grant_makes_a_second_holder() {
    let (broken, _) = explore(Rules::without(Rule::Tenure), APART);
    assert!(matches!(broken, Some((Broken::TwoHolders, _))), "{broken:?}");
}

#[test]
fn without_the_restart_guard_a_node_that_forgot_makes_a_second_holder() {
    let (broken, _) = explore(Rules::without(Rule::RestartGuard), RESTARTS);
    assert!(matches!(broken, Some((Broken::TwoHolders, _))), "{broken:?}");
}

#[test]
fn a_command_that_outlives_its_lease_makes_a_second_holder() {
    let (broken, _) = explore(Rules::without(Rule::DeadByDeadline), APART);
    assert!(matches!(broken, Some((Broken::TwoHolders, _))), "{broken:?}");
}
