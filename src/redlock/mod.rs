//! Several nodes together: one attempt to take the lock ([`attempt`]), waiting for it ([`wait`]), keeping it ([`holding`]); taking several one
//! after another ([`several`]), and keeping them ([`holdings`]).
//! Other rlocks look at it ([`observe`]), find it ([`scan`]), and renew, release or break it ([`outside`]). A run asks whether another
//! has succeeded ([`once`]).
//!
//! The decisions are `lock`'s. Here requests go out, replies come in, and the clock is read.

pub mod attempt;
pub mod claimant;
pub mod holding;
pub mod holdings;
pub mod nodes;
pub mod observe;
pub mod once;
pub mod outside;
pub mod scan;
pub mod several;
pub mod wait;
pub mod wake_listener;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::clock;
use crate::lock::fault::Faults;
use crate::lock::lease::Revoked;
use crate::node::{Node, Release, ReleaseReply};
pub use nodes::Nodes;

/// Longest wait for the replies to a failed attempt's release, and to leaving the queue. No decision depends on them.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// The outcome of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReleaseOutcome {
    /// As many nodes as the lock needs said that it had been ours.
    Ours,
    /// It was not ours any more: lost before the release.
    NotOurs(Revoked),
    /// No majority answered. The release was written; a key that it did not reach expires by itself.
    Unconfirmed(Faults),
}

/// The nodes' replies to a release, counted.
#[derive(Default)]
struct ReleaseCount {
    /// Number of nodes that had the key as ours.
    ours: usize,
    revoked: Vec<(usize, Revoked)>,
    faults: Faults,
}

/// Waits until the nodes will read what they were sent though rlock exits.
async fn caught_up(nodes: &Nodes) {
    join_all(nodes.iter().map(|node| node.caught_up())).await;
}

/// Sends `release` to the nodes `which`. Returns when a majority has deleted the key, or all have answered, and every release
/// is written: a node that hangs executes it when it resumes. The replies are waited for `limit` at most, and then the
/// writing as long again.
async fn release(nodes: &Nodes, which: &[usize], release: &Release, limit: Duration) -> ReleaseCount {
    let needed = nodes.quorum().needed().min(which.len());
    let mut count = ReleaseCount::default();
    let request = |node: usize, there: &dyn Node| which.contains(&node).then(|| there.release(release));
    let faults = nodes.ask(limit, request, |node, reply| {
        match reply {
            ReleaseReply::Released => count.ours += 1,
            ReleaseReply::NotOurs(how) => count.revoked.push((node, how)),
            ReleaseReply::Failed(fault) => return Err(fault),
        }
        Ok(count.ours >= needed)
    });
    count.faults = faults.await;
    // A node that answered may have been sent the release on an older connection too.
    let mut written: FuturesUnordered<_> = which.iter().map(|&node| nodes[node].written()).collect();
    clock::until(clock::now() + limit, async { while written.next().await.is_some() {} }).await;
    count
}
