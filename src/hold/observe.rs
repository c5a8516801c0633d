//! A look at all nodes at once, which changes nothing.

use std::time::Duration;

use super::Nodes;
use crate::lock::census::Census;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::observation::{Observation, Server};
use crate::store::{Look, Node, Store};

/// The nodes' answers.
pub struct Observations {
    /// Each node's observation; `None` if it gave no answer.
    pub of_nodes: Vec<Option<Observation>>,
    /// The nodes that gave none.
    pub faults: Faults,
    /// The server that answers for each node, or should; see [`Node::server`].
    pub servers: Vec<Option<Server>>,
}

impl Observations {
    /// Returns the nodes that will not answer another question soon either, whatever lock it is
    /// about.
    pub fn away(&self) -> Faults {
        self.faults
            .only(|fault| matches!(fault.kind, FaultKind::Unavailable | FaultKind::Unknown))
    }

    /// Returns what the answers come to.
    pub fn census(&self) -> Census<'_> {
        Census::of(&self.of_nodes)
    }
}

/// Room for one node's answers to many observations, in bytes: some 10,000 locks that are held.
const ROOM: usize = 8 << 20;

/// The room that is left for each node. A node that invents locks must not use our memory up.
pub struct Room {
    left: Vec<usize>,
    /// The nodes that are not asked any more.
    away: Faults,
    is_overfull: bool,
}

impl Room {
    /// Room for each of that many nodes, of which those `away` are not asked.
    pub fn new(nodes: usize, away: Faults) -> Self {
        Self {
            left: vec![ROOM; nodes],
            away,
            is_overfull: false,
        }
    }

    /// Counts `seen`. A node that has told more than there is room for is not asked any more.
    pub fn count(&mut self, stores: &[Box<dyn Store>], seen: &Observations) {
        for (node, observation) in seen.of_nodes.iter().enumerate() {
            let takes = observation
                .as_ref()
                .map_or(0, |observation| observation.size);
            if takes > self.left[node] && self.away.of(node).is_none() {
                let why = format!(
                    "its locks take over {} MiB; name those that are meant",
                    ROOM >> 20
                );
                self.is_overfull = true;
                self.away.push(
                    node,
                    stores[node].name(),
                    Fault::new(FaultKind::Unknown, why),
                );
            }
            self.left[node] = self.left[node].saturating_sub(takes);
        }
    }

    /// Whether a node has told more than there is room for.
    pub fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// Returns the nodes that are not asked any more.
    pub fn away(&self) -> &Faults {
        &self.away
    }
}

/// Asks all nodes for what is `wanted`, until `enough` says that more would change nothing, at most
/// for `limit`.
pub async fn observe(
    nodes: &Nodes,
    limit: Duration,
    wanted: Look,
    enough: impl Fn(&Census) -> bool,
) -> Observations {
    observe_but(nodes, &Faults::default(), limit, wanted, enough).await
}

/// Like [`observe`], but does not ask the nodes `away`, which have just failed.
pub async fn observe_but(
    nodes: &Nodes,
    away: &Faults,
    limit: Duration,
    wanted: Look,
    enough: impl Fn(&Census) -> bool,
) -> Observations {
    let mut seen = Observations {
        of_nodes: vec![None; nodes.len()],
        faults: away.clone(),
        servers: Vec::new(),
    };
    let request =
        |node: usize, there: &dyn Node| away.of(node).is_none().then(|| there.look(wanted));
    let faults = nodes.ask(limit, request, |node, observation| {
        seen.of_nodes[node] = Some(observation?);
        Ok(enough(&seen.census()))
    });
    let faults = faults.await;
    seen.faults.extend(faults);
    seen.servers = nodes.iter().map(|node| node.server()).collect();
    seen
}
