//! Several nodes together: one attempt to take the lock ([`attempt`]), waiting for it ([`wait`]),
//! keeping it ([`holding`]); and the locks of one run, taken one after another and kept
//! ([`holdings`]). Other rlocks find it and look at it ([`observe`]), and renew, release or break it
//! ([`outside`]).
//!
//! The decisions are `lock`'s. Here requests go out, replies come in, and the clock is read.

pub mod attempt;
pub mod holding;
pub mod holdings;
pub mod observe;
pub mod outside;
pub mod wait;

use std::future::poll_fn;
use std::ops::Deref;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::clock;
use crate::lock::fault::{Fault, Faults};
use crate::lock::lease::Revoked;
use crate::lock::quorum::Quorum;
use crate::store::{Hint, Node, Pending, Queue, Release, ReleaseReply, Wakes};

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

    /// Whether node `node` wakes the waiter, or the holder that listens.
    fn wakes(&self, node: usize) -> bool {
        self[node]
            .queue()
            .is_some_and(|queue| queue.wakes() == Wakes::Yes)
    }

    /// Whether a place in the queue becomes the lock; see [`Queue::becomes_the_lock`].
    fn places_become_locks(&self) -> bool {
        self.iter()
            .any(|node| node.queue().is_some_and(Queue::becomes_the_lock))
    }

    /// Sends each node its `request`, all at once, and hands each reply to `heard`, until that says
    /// that it has heard enough or `limit` is over. Nodes whose request is `None` are not asked.
    /// Returns the faults that `heard` found in replies, and the timeouts of the nodes that were
    /// silent; no timeouts if `heard` had enough.
    pub async fn ask<T>(
        &self,
        limit: Duration,
        request: impl Fn(usize, &dyn Node) -> Option<Pending<T>>,
        mut heard: impl FnMut(usize, T) -> Result<bool, Fault>,
    ) -> Faults {
        let ends = clock::now() + limit;
        let asked = self
            .iter()
            .enumerate()
            .filter_map(|(node, there)| Some((node, request(node, there.as_ref())?)));
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

/// The hints of the nodes.
struct Hints {
    nodes: Nodes,
    next: Vec<Pending<Hint>>,
}

impl Hints {
    /// Begins to wait for them.
    fn new(nodes: &Nodes) -> Self {
        Self {
            next: nodes.iter().map(|node| node.next()).collect(),
            nodes: nodes.clone(),
        }
    }

    /// Returns the next one, and the node that it is of. May be dropped and called again.
    async fn next(&mut self) -> (usize, Hint) {
        poll_fn(|cx| {
            for (node, next) in self.next.iter_mut().enumerate() {
                if let Poll::Ready(hint) = next.as_mut().poll(cx) {
                    *next = self.nodes[node].next();
                    return Poll::Ready((node, hint));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Longest wait for the replies to a failed attempt's release, and to leaving the queue. No
/// decision depends on them.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// The outcome of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReleaseOutcome {
    /// As many nodes as the lock needs said that it had been ours.
    Ours,
    /// It was not ours any more: lost before the release.
    NotOurs(Revoked),
    /// No majority answered. The release was written; a key that it did not reach expires by
    /// itself.
    Unconfirmed(Faults),
}

/// The nodes' replies to a release, counted.
#[derive(Default)]
struct ReleaseCount {
    /// Number of nodes that had the key as ours.
    ours: usize,
    revoked: Vec<(usize, Revoked)>,
    /// The nodes that have given the lock back, and may lack what it was to leave.
    gone: Faults,
    /// The nodes that gave no answer.
    faults: Faults,
}

/// Waits until the nodes will get what they were sent though rlock exits: a node that hangs executes
/// it when it resumes.
/// Not longer than `limit` for what the kernel does not take.
async fn settle(nodes: &Nodes, limit: Duration) {
    join_all(nodes.iter().map(|node| node.settled(limit))).await;
}

/// Sends `release` to the nodes `which`. Returns when a majority has deleted the key, or all have
/// answered, or after `limit`.
async fn release(
    nodes: &Nodes,
    which: &[usize],
    release: &Release,
    limit: Duration,
) -> ReleaseCount {
    let needed = nodes.quorum().needed().min(which.len());
    let mut count = ReleaseCount::default();
    let request =
        |node: usize, there: &dyn Node| which.contains(&node).then(|| there.release(release));
    let faults = nodes.ask(limit, request, |node, reply| {
        match reply {
            ReleaseReply::Released => count.ours += 1,
            ReleaseReply::NotOurs(how) => count.revoked.push((node, how)),
            ReleaseReply::Gone(fault) => nodes.add_fault(&mut count.gone, node, fault),
            ReleaseReply::Failed(fault) => return Err(fault),
        }
        Ok(count.ours >= needed)
    });
    count.faults = faults.await;
    count
}
