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

use crate::node::Node;
use crate::scenario::Scenario;
use crate::server::Value;

/// The promises of the nodes.
#[derive(Debug)]
pub struct Tenures {
    key: Vec<u8>,
    quorum: usize,
    /// Part of the drift allowance that clocks of a wrong rate leave.
    slack: Duration,
    /// For each server: the promises that may still be believed, as token and end.
    promised: Vec<Vec<(Vec<u8>, Instant)>>,
}

impl Tenures {
    /// The promises of nodes that have made none.
    pub fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.settings.nodes;
        Self {
            key: scenario.settings.keys[0].stored().as_bytes().to_vec(),
            quorum: Quorum::of(nodes).needed(),
            slack: scenario.settings.schedule.ttl().mul_f64(0.004),
            promised: vec![Vec::new(); scenario.clocks.len()],
        }
    }

    /// Notes what `node` promises by now.
    pub fn observe(&mut self, number: usize, node: &Node, now: Instant) {
        let promised = &mut self.promised[number];
        promised.retain(|(_, end)| *end > now);
        let Some((token, end)) = held(node, &self.key, now) else {
            return;
        };
        match promised.iter_mut().find(|(other, _)| *other == token) {
            Some((_, before)) => *before = end.max(*before),
            None => promised.push((token, end)),
        }
    }

    /// Whether the holder, if there is one, outlasts that node `lost` loses its key.
    pub fn may_lose(&mut self, lost: usize, nodes: &[Node], now: Instant) -> bool {
        let Some((token, _)) = held(&nodes[lost], &self.key, now) else {
            return true;
        };
        let real = |number: usize| {
            held(&nodes[number], &self.key, now).filter(|(other, _)| *other == token)
        };
        let others = (0..nodes.len())
            .filter(|number| *number != lost)
            .filter_map(real)
            .map(|(_, end)| end);
        let promised = self
            .promised
            .iter()
            .flatten()
            .filter(|(other, _)| *other == token)
            .map(|(_, end)| *end);
        match (
            nth_largest(others, self.quorum),
            nth_largest(promised, self.quorum),
        ) {
            (Some(real), Some(believed)) => real + self.slack >= believed,
            _ => false,
        }
    }

    /// Whether the same token is at the key of all these nodes.
    pub fn is_on_all(
        &self,
        which: impl Iterator<Item = usize>,
        nodes: &[Node],
        now: Instant,
    ) -> bool {
        let tokens: Option<BTreeSet<_>> = which
            .map(|node| held(&nodes[node], &self.key, now).map(|(token, _)| token))
            .collect();
        tokens.is_some_and(|tokens| tokens.len() == 1)
    }
}

fn nth_largest(ends: impl Iterator<Item = Instant>, number: usize) -> Option<Instant> {
    let mut ends: Vec<Instant> = ends.collect();
    ends.sort_unstable();
    ends.into_iter().rev().nth(number - 1)
}

/// Returns the token at the key of `node`, and when it ends.
fn held(node: &Node, key: &[u8], now: Instant) -> Option<(Vec<u8>, Instant)> {
    let wall = node.wall(now);
    let entry = node.server().get(key, wall)?;
    let Value::String(value) = &entry.value else {
        return None;
    };
    let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').take(2).collect();
    let token = if words[0] == b"broken" {
        words.get(1)?
    } else {
        words.first()?
    };
    let left = Duration::from_micros(u64::try_from(entry.expires? * 1000 - wall.0).unwrap_or(0));
    Some((token.to_vec(), now + left))
}
