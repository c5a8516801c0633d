//! A look at all nodes at once, which changes nothing.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Nodes;
use crate::clock;
use crate::lock::census::Census;
use crate::lock::key::Key;
use crate::lock::sight::Sight;
use crate::node::{Fault, FaultKind};

/// What was seen.
pub struct Looks {
    /// Of each node; `None` if it gave no answer.
    pub sights: Vec<Option<Sight>>,
    /// The nodes that gave none, by their numbers, and why.
    pub faults: Vec<(usize, Fault)>,
}

impl Looks {
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

/// Asks all nodes who has the lock, until `enough` says that more would change nothing, at most for `limit`.
pub async fn look(nodes: &Nodes, key: &Key, limit: Duration, enough: impl Fn(&Census) -> bool) -> Looks {
    look_closely(nodes, key, limit, 0, &[], enough).await
}

/// The same, and for the first `crowd` of those who wait; but not the nodes `away`, which have just failed.
pub async fn look_closely(
    nodes: &Nodes,
    key: &Key,
    limit: Duration,
    crowd: usize,
    away: &[(usize, Fault)],
    enough: impl Fn(&Census) -> bool,
) -> Looks {
    let ends = clock::now() + limit;
    let failed = |faults: &[(usize, Fault)], node: usize| faults.iter().any(|(failed, _)| *failed == node);
    let mut replies: FuturesUnordered<_> = (0..nodes.len())
        .filter(|node| !failed(away, *node))
        .map(|node| {
            let reply = nodes[node].look(key, crowd);
            async move { (node, reply.await) }
        })
        .collect();
    let mut looks = Looks { sights: vec![None; nodes.len()], faults: away.to_vec() };
    while let Some(Some((node, sight))) = clock::until(ends, replies.next()).await {
        match sight {
            Ok(sight) => looks.sights[node] = Some(sight),
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
