//! What several nodes mean together: one attempt to take the lock ([`attempt`]), standing in line for it ([`line`]), and
//! keeping it ([`holding`]).
//!
//! The decisions are `lock`'s; here requests go out, replies come in, and the clock is looked at.

pub mod attempt;
pub mod holding;
pub mod observe;
pub mod scan;
pub mod wakeups;

use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::clock;
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::queue::Waiter;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::node::{Fault, Node, QueueAction, ReleaseReply};

/// How long a waiter that gives up waits for replies.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// The nodes of one lock.
pub type Nodes = Rc<[Box<dyn Node>]>;

/// What became of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReleaseOutcome {
    /// So many nodes as the lock needs said that it had been ours.
    Ours,
    /// It was not ours any more: lost before the release.
    NotOurs(Revoked),
    /// No majority answered. The release was written; what it did not reach expires by itself.
    Unconfirmed(Vec<(String, Fault)>),
}

/// What the nodes said to a release.
#[derive(Default)]
struct ReleaseCount {
    /// So many had it as ours.
    ours: usize,
    revoked: Vec<(usize, Revoked)>,
    faults: Vec<(String, Fault)>,
}

/// Deletes the lock at the nodes `which` if it is `token`'s. Returns when a majority has deleted it, or all have answered, and
/// every release is written: a node that hangs executes it when it wakes. At the latest `limit` later, and `limit` more for the
/// writing.
async fn release(
    nodes: &Nodes,
    which: &[usize],
    key: &Key,
    token: Token,
    queued: QueueAction<'_>,
    limit: Duration,
) -> ReleaseCount {
    let needed = Quorum::of(nodes.len()).needed().min(which.len());
    let mut replies: FuturesUnordered<_> = which
        .iter()
        .map(|&index| {
            let reply = nodes[index].release(key, token, queued);
            async move { (index, reply.await) }
        })
        .collect();
    let mut silent = which.to_vec();
    let ends = clock::now() + limit;
    let mut freeing = ReleaseCount::default();
    while freeing.ours < needed
        && let Some(Some((index, freed))) = clock::until(ends, replies.next()).await
    {
        silent.retain(|&node| node != index);
        match freed {
            ReleaseReply::Released => freeing.ours += 1,
            ReleaseReply::NotOurs(how) => freeing.revoked.push((index, how)),
            ReleaseReply::Failed(fault) => freeing.faults.push((nodes[index].name().to_owned(), fault)),
        }
    }
    // One that answered may have been sent it on an older connection too.
    let mut written: FuturesUnordered<_> = which.iter().map(|&node| nodes[node].written()).collect();
    clock::until(clock::now() + limit, async { while written.next().await.is_some() {} }).await;
    freeing.faults.extend(silent.into_iter().map(|node| (nodes[node].name().to_owned(), Fault::timeout(limit))));
    freeing
}

/// Takes `waiter` out of the queue everywhere, with whatever its last attempt, for `token`, may still take.
pub async fn leave(nodes: &Nodes, key: &Key, token: Token, waiter: &Waiter) {
    let all: Vec<usize> = (0..nodes.len()).collect();
    release(nodes, &all, key, token, QueueAction::Leave(waiter), STRAGGLERS).await;
}
