//! Work on a lock from outside the rlock that took it: renew, release and break, each on all nodes at once.

use std::time::Duration;

use super::Nodes;
use crate::lock::fault::Faults;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::node::{ForceUnlock, Node, QueueAction, Release, ReleaseReply, Renew, Renewal};

/// The nodes that did what they were asked, and those that gave no answer.
pub struct Count {
    /// Number of nodes that did it.
    pub done: usize,
    /// The nodes that gave no answer.
    pub faults: Faults,
}

impl Count {
    /// Whether a majority did it: `None` if the nodes that gave no answer decide.
    pub fn is_majority(&self, quorum: Quorum) -> Option<bool> {
        if self.done >= quorum.needed() {
            Some(true)
        } else if self.done + self.faults.len() >= quorum.needed() {
            None
        } else {
            Some(false)
        }
    }
}

/// Extends the lock everywhere. Returns the count, and the end of the lease if a majority extended it.
pub async fn renew(nodes: &Nodes, renew: &Renew, limit: Duration) -> (Count, Option<Instant>) {
    let mut ends = Vec::with_capacity(nodes.len());
    let mut faults = Faults::default();
    let request = |_, there: &dyn Node| Some(there.renew(renew));
    let silent = nodes.ask(limit, request, |node, renewal| {
        match renewal {
            Renewal::Renewed(end, _) | Renewal::Healed(end, _) => ends.push(end),
            Renewal::Lost(..) | Renewal::Broken(..) => {}
            Renewal::Failed(fault) => nodes.add_fault(&mut faults, node, fault),
        }
        false
    });
    let silent = silent.await;
    faults.extend(silent);
    let count = Count { done: ends.len(), faults };
    (count, nodes.quorum().reached_by(ends))
}

/// Deletes the lock everywhere if it is `token`'s. All nodes are waited for: no holder renews this lock, and a key that stays
/// at a slow node would stay for its whole TTL.
pub async fn release(nodes: &Nodes, key: &Key, token: Token, limit: Duration) -> Count {
    let release = Release { key: key.clone(), token, queue: QueueAction::None };
    let mut count = Count { done: 0, faults: Faults::default() };
    let silent = nodes.ask(
        limit,
        |_, there| Some(there.release(&release)),
        |node, reply| {
            match reply {
                ReleaseReply::Released => count.done += 1,
                ReleaseReply::NotOurs(_) => {}
                ReleaseReply::Failed(fault) => nodes.add_fault(&mut count.faults, node, fault),
            }
            false
        },
    );
    let silent = silent.await;
    count.faults.extend(silent);
    count
}

/// Takes the key from its holder at each node, as `how` says for it; `None`: that node is not asked.
pub async fn force_unlock<'a>(
    nodes: &Nodes,
    key: &Key,
    limit: Duration,
    how: impl Fn(usize) -> Option<ForceUnlock<'a>>,
) -> Count {
    let mut count = Count { done: 0, faults: Faults::default() };
    let request = |node, there: &dyn Node| how(node).map(|how| there.force_unlock(key, how));
    let silent = nodes.ask(limit, request, |node, answer| {
        match answer {
            Ok(None) => count.done += 1,
            Ok(Some(_)) => {}
            Err(fault) => nodes.add_fault(&mut count.faults, node, fault),
        }
        false
    });
    let silent = silent.await;
    count.faults.extend(silent);
    count
}
