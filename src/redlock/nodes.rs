//! The nodes of one lock, and the one way to ask all of them.

use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::clock;
use crate::lock::fault::{Fault, Faults};
use crate::lock::quorum::Quorum;
use crate::node::{Node, Pending};

/// The nodes of one lock, at least one, in the order in which the user named them.
#[derive(Clone)]
pub struct Nodes(Rc<[Box<dyn Node>]>);

impl Nodes {
    /// Returns the majority that a lock on these nodes needs.
    pub fn quorum(&self) -> Quorum {
        Quorum::of(self.len())
    }

    /// Adds the fault of node `node` to `faults`, under the node's name.
    pub fn add_fault(&self, faults: &mut Faults, node: usize, fault: Fault) {
        faults.push(node, self[node].name(), fault);
    }

    /// Sends each node its `request`, all at once, and hands each reply to `heard`, until that says that it has heard enough
    /// or `limit` is over. Nodes whose request is `None` are not asked. Returns the faults that `heard` found in replies, and
    /// the timeouts of the nodes that were silent; no timeouts if `heard` had enough.
    pub async fn ask<T>(
        &self,
        limit: Duration,
        request: impl Fn(usize, &dyn Node) -> Option<Pending<T>>,
        mut heard: impl FnMut(usize, T) -> Result<bool, Fault>,
    ) -> Faults {
        let ends = clock::now() + limit;
        let asked = self.iter().enumerate().filter_map(|(node, there)| Some((node, request(node, there.as_ref())?)));
        let mut silent = Vec::with_capacity(self.len());
        let mut faults = Faults::default();
        let mut replies: FuturesUnordered<_> = asked
            .map(|(node, reply)| {
                silent.push(node);
                async move { (node, reply.await) }
            })
            .collect();
        while let Some(Some((node, reply))) = clock::until(ends, replies.next()).await {
            silent.retain(|&other| other != node);
            match heard(node, reply) {
                Ok(true) => return faults,
                Ok(false) => {}
                Err(fault) => self.add_fault(&mut faults, node, fault),
            }
        }
        for node in silent {
            self.add_fault(&mut faults, node, Fault::timeout(limit));
        }
        faults
    }
}

impl FromIterator<Box<dyn Node>> for Nodes {
    fn from_iter<I: IntoIterator<Item = Box<dyn Node>>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

impl Deref for Nodes {
    type Target = [Box<dyn Node>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
