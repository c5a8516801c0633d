//! Tenures as the nodes really keep them, and as a holder may believe them: which losses a lease
//! certainly outlasts.
//!
//! 1. A holder's D is at most the q-th largest end that the nodes ever promised.
//! 2. A node that loses the key leaves its promise behind until the holder hears of it.
//! 3. So a lease outlasts a loss if the q-th largest end among the *other* nodes is no earlier than
//!    the q-th largest promise. The allowance for drift covers a small difference.

use std::collections::BTreeSet;
use std::time::Duration;

use rlock::lock::instant::Instant;
use rlock::lock::quorum::Quorum;
use rlock::lock::token::Token;
use rlock::store::redis::names::{Derived, Names};

use crate::node::Node;
use crate::scenario::Scenario;
use crate::server::Value;

/// A holder: its token, and for a member its index behind that.
type Holder = Vec<u8>;

/// The promises of the nodes.
#[derive(Debug)]
pub struct Tenures {
    names: Names,
    quorum: usize,
    /// Whether the clocks of all hosts agree.
    hosts_agree: bool,
    /// Part of the drift allowance that clocks of a wrong rate leave.
    slack: Duration,
    /// For each server: the promises that may still be believed, as holder and end.
    promised: Vec<Vec<(Holder, Instant)>>,
}

impl Tenures {
    /// The promises of nodes that have made none.
    pub fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.settings.nodes;
        Self {
            names: Names::of(&scenario.settings.keys[0]),
            quorum: Quorum::of(nodes).needed(),
            hosts_agree: scenario.skews.iter().all(|skew| *skew == 0),
            slack: scenario.settings.schedule.ttl().mul_f64(0.004),
            promised: vec![Vec::new(); scenario.clocks.len()],
        }
    }

    /// Notes what `node` promises by now.
    pub fn observe(&mut self, number: usize, node: &Node, now: Instant) {
        let promised = &mut self.promised[number];
        promised.retain(|(_, end)| *end > now);
        for (holder, end) in held(node, &self.names, now) {
            match promised.iter_mut().find(|(other, _)| *other == holder) {
                Some((_, before)) => *before = end.max(*before),
                None => promised.push((holder, end)),
            }
        }
    }

    /// Whether each holder outlasts that node `lost` loses its key.
    pub fn may_lose(&self, lost: usize, nodes: &[Node], now: Instant) -> bool {
        let outlasts = |(holder, _): (Holder, Instant)| {
            let others = (0..nodes.len()).filter(|number| *number != lost);
            let real = others.filter_map(|number| {
                let there = held(&nodes[number], &self.names, now);
                end_of(&there, &holder)
            });
            let promised = self.promised.iter().filter_map(|all| end_of(all, &holder));
            match (
                nth_largest(real, self.quorum),
                nth_largest(promised, self.quorum),
            ) {
                (Some(real), Some(believed)) => real + self.slack >= believed,
                _ => false,
            }
        };
        held(&nodes[lost], &self.names, now)
            .into_iter()
            .all(outlasts)
    }

    /// Whether a majority outlasts that node `lost` loses its record: whichever nodes grant the
    /// lock, one of them still knows the last success.
    pub fn may_forget(&self, lost: usize, nodes: &[Node], now: Instant) -> bool {
        let known: Vec<Vec<u8>> = nodes
            .iter()
            .map(|node| success(node, &self.names, now))
            .collect();
        let newest = known.iter().max();
        let others = known.iter().enumerate();
        let others = others.filter(|(number, there)| *number != lost && Some(*there) == newest);
        newest.is_none_or(Vec::is_empty)
            || Some(&known[lost]) != newest
            || others.count() > nodes.len() - self.quorum
    }

    /// Whether fences rise though these nodes lose their counters. With hosts whose clocks agree
    /// they do. Otherwise one node of any majority must know a fence that is no lower than those
    /// which are lost.
    pub fn may_lose_counters(&self, lost: &[usize], nodes: &[Node], now: Instant) -> bool {
        let known = |number: usize| counter(&nodes[number], &self.names, now);
        let highest = lost.iter().map(|number| known(*number)).max();
        let others = (0..nodes.len()).filter(|number| !lost.contains(number));
        let know = others.filter(|number| Some(known(*number)) >= highest);
        self.hosts_agree || highest == Some(0) || know.count() > nodes.len() - self.quorum
    }

    /// Whether one holder alone has the lock at all of these nodes.
    pub fn is_on_all(
        &self,
        which: impl Iterator<Item = usize>,
        nodes: &[Node],
        now: Instant,
    ) -> bool {
        let held: Vec<_> = which
            .map(|node| held(&nodes[node], &self.names, now))
            .collect();
        let holders: BTreeSet<&Holder> = held.iter().flatten().map(|(holder, _)| holder).collect();
        held.iter().all(|there| !there.is_empty()) && holders.len() == 1
    }

    /// Whether the lock at `node` ends with its last member. It may end later only if it was moved
    /// there from a server whose clock is behind.
    pub fn ends_with_its_last(&self, node: &Node, now: Instant) -> bool {
        let wall = node.wall(now);
        let get = |name: &str| node.server().get(name.as_bytes(), wall);
        let lock = get(self.names.stored());
        let leases = get(&self.names.derived(Derived::Leases));
        let (Some(lock), Some(leases)) = (lock, leases) else {
            return true;
        };
        let is_marker = matches!(&lock.value, Value::String(value) if value.starts_with(b"rlock "));
        let Value::SortedSet(leases) = &leases.value else {
            return true;
        };
        let last = leases.members().last().map(|(end, _)| whole(*end));
        !is_marker || last.is_none() || last == lock.expires
    }

    /// Whether the holder with `token` has the lock, or its place, at `node`. `index`: that of its
    /// place, if it is a member.
    pub fn is_on(&self, node: &Node, token: Token, index: Option<u32>, now: Instant) -> bool {
        let index = index.map_or_else(String::new, |index| format!(" {index}"));
        let holder = format!("{token}{index}").into_bytes();
        end_of(&held(node, &self.names, now), &holder).is_some()
    }
}

fn end_of(promises: &[(Holder, Instant)], holder: &Holder) -> Option<Instant> {
    let mut of = promises.iter().filter(|(other, _)| other == holder);
    of.next().map(|(_, end)| *end)
}

fn nth_largest(ends: impl Iterator<Item = Instant>, number: usize) -> Option<Instant> {
    let mut ends: Vec<Instant> = ends.collect();
    ends.sort_unstable();
    ends.into_iter().rev().nth(number - 1)
}

/// Returns the holders at `node`, and when the lock or the place of each ends.
fn held(node: &Node, names: &Names, now: Instant) -> Vec<(Holder, Instant)> {
    let wall = node.wall(now);
    let get = |name: &[u8]| node.server().get(name, wall);
    let ends =
        |ms: i64| now + Duration::from_micros(u64::try_from(ms * 1000 - wall.0).unwrap_or(0));
    let Some((Value::String(value), Some(expires))) =
        get(names.stored().as_bytes()).map(|entry| (&entry.value, entry.expires))
    else {
        return Vec::new();
    };
    if !value.starts_with(b"rlock ") {
        let mut words = value.split(|byte| *byte == b' ');
        let token = words.find(|word| !matches!(*word, b"broken" | b"parked"));
        let token = token.unwrap_or_default().to_vec();
        return vec![(token, ends(expires))];
    }
    let [leases, members] = [Derived::Leases, Derived::Holders]
        .map(|kind| get(names.derived(kind).as_bytes()).map(|entry| &entry.value));
    let (Some(Value::SortedSet(leases)), Some(Value::Hash(members))) = (leases, members) else {
        return Vec::new();
    };
    // Members' ends were written by a clock that is as far behind as the last of them is too early.
    let last = leases
        .members()
        .last()
        .map_or(expires, |(end, _)| whole(*end));
    let behind = Some(expires - last)
        .filter(|early| *early > 1000)
        .unwrap_or(0);
    let holder = |(end, token): &(f64, Vec<u8>)| {
        let end = whole(*end) + behind;
        let (_, entry) = members.iter().find(|(name, _)| name == token)?;
        let index = entry.split(|byte| *byte == b' ').next()?;
        let holder = [token, b" ".as_slice(), index].concat();
        (end * 1000 >= wall.0).then(|| (holder, ends(end)))
    };
    leases.members().iter().filter_map(holder).collect()
}

/// Returns a whole number of ms.
#[allow(clippy::cast_possible_truncation, reason = "an end in unix time")]
fn whole(end: f64) -> i64 {
    end as i64
}

/// Returns the fence counter of `node`; 0 if it has none.
fn counter(node: &Node, names: &Names, now: Instant) -> u64 {
    let name = names.derived(Derived::Fence);
    let entry = node.server().get(name.as_bytes(), node.wall(now));
    let Some(Value::String(text)) = entry.map(|entry| &entry.value) else {
        return 0;
    };
    String::from_utf8_lossy(text).parse().unwrap_or(0)
}

/// Returns the fence and the token of the last success that `node` knows; empty if it knows none.
fn success(node: &Node, names: &Names, now: Instant) -> Vec<u8> {
    let record = node
        .server()
        .get(names.derived(Derived::Last).as_bytes(), node.wall(now));
    let Some(Value::String(record)) = record.map(|entry| &entry.value) else {
        return Vec::new();
    };
    let line = record.split(|byte| *byte == b'\n').nth(1);
    let words = line.unwrap_or_default().split(|byte| *byte == b' ');
    words.take(2).collect::<Vec<_>>().join(&b' ')
}
