//! A look at all nodes at once, which changes nothing.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Nodes;
use crate::clock;
use crate::lock::census::Census;
use crate::lock::key::Key;
use crate::lock::observation::Observation;
use crate::node::{Fault, FaultKind};

/// What was seen.
pub struct Observations {
    /// Of each node; `None` if it gave no answer.
    pub sights: Vec<Option<Observation>>,
    /// The nodes that gave none, by their numbers, and why.
    pub faults: Vec<(usize, Fault)>,
}

impl Observations {
    /// The nodes that will not answer another question soon either, whatever lock it is about.
    pub fn away(&self) -> Vec<(usize, Fault)> {
        let is_away = |fault: &Fault| matches!(fault.kind, FaultKind::Unavailable | FaultKind::Unknown);
        self.faults.iter().filter(|(_, fault)| is_away(fault)).cloned().collect()
    }

    /// What it comes to.
    pub fn census(&self) -> Census<'_> {
        Census::of(&self.sights)
    }
}

/// Room for what one node tells in many looks, in bytes: some 10,000 locks that are held.
const ROOM: usize = 8 << 20;

/// What is left of that, for each node: one that invents locks must not use our memory up.
pub struct Room {
    left: Vec<usize>,
    /// The nodes that are asked no more, by their numbers, and why.
    away: Vec<(usize, Fault)>,
    is_overfull: bool,
}

impl Room {
    /// Room for so many nodes, of which those `away` are not asked.
    pub fn new(nodes: usize, away: Vec<(usize, Fault)>) -> Self {
        Self { left: vec![ROOM; nodes], away, is_overfull: false }
    }

    /// Counts what was seen. A node that has told more than there is room for is asked no more.
    pub fn count(&mut self, looks: &Observations) {
        for (node, observation) in looks.sights.iter().enumerate() {
            let takes = observation.as_ref().map_or(0, Observation::size);
            if takes > self.left[node] && !self.away.iter().any(|(away, _)| *away == node) {
                let why = format!("its locks take over {} MiB; name those that are meant", ROOM >> 20);
                self.is_overfull = true;
                self.away.push((node, Fault::new(FaultKind::Unknown, why)));
            }
            self.left[node] = self.left[node].saturating_sub(takes);
        }
    }

    /// Whether a node has told more than there is room for.
    pub fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// The nodes that are asked no more, by their numbers, and why.
    pub fn away(&self) -> &[(usize, Fault)] {
        &self.away
    }
}

/// Asks all nodes who has the lock, until `enough` says that more would change nothing, at most for `limit`.
pub async fn look(nodes: &Nodes, key: &Key, limit: Duration, enough: impl Fn(&Census) -> bool) -> Observations {
    look_closely(nodes, key, limit, 0, &[], enough).await
}

/// The same, and for the first `max_waiters` of those who wait; but not the nodes `away`, which have just failed.
pub async fn look_closely(
    nodes: &Nodes,
    key: &Key,
    limit: Duration,
    max_waiters: usize,
    away: &[(usize, Fault)],
    enough: impl Fn(&Census) -> bool,
) -> Observations {
    let ends = clock::now() + limit;
    let failed = |faults: &[(usize, Fault)], node: usize| faults.iter().any(|(failed, _)| *failed == node);
    let mut replies: FuturesUnordered<_> = (0..nodes.len())
        .filter(|node| !failed(away, *node))
        .map(|node| {
            let reply = nodes[node].look(key, max_waiters);
            async move { (node, reply.await) }
        })
        .collect();
    let mut looks = Observations { sights: vec![None; nodes.len()], faults: away.to_vec() };
    while let Some(Some((node, observation))) = clock::until(ends, replies.next()).await {
        match observation {
            Ok(observation) => looks.sights[node] = Some(observation),
            Err(fault) => looks.faults.push((node, fault)),
        }
        if enough(&looks.census()) {
            return looks;
        }
    }
    let silent = |node: &usize| looks.sights[*node].is_none() && !failed(&looks.faults, *node);
    let silent: Vec<usize> = (0..nodes.len()).filter(silent).collect();
    looks.faults.extend(silent.into_iter().map(|node| (node, Fault::timeout(limit))));
    looks
}
