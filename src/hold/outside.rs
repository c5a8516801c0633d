//! Work on a lock from outside the rlock that took it: renew, release and break, each on all nodes
//! at once.

use std::time::Duration;

use super::Nodes;
use crate::lock::details::Details;
use crate::lock::fault::{Fault, Faults};
use crate::lock::instant::Instant;
use crate::lock::last::Note;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::store::{Counter, Keep, Node, Pending, Release, ReleaseReply, Renewal, TakeAway};

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

/// Sends each node its request, and counts the nodes whose reply `has_done` finds to say that they
/// did it. All are waited for.
async fn count<T>(
    nodes: &Nodes,
    limit: Duration,
    request: impl Fn(usize, &dyn Node) -> Option<Pending<T>>,
    mut has_done: impl FnMut(usize, T) -> Result<bool, Fault>,
) -> Count {
    let mut done = 0;
    let faults = nodes.ask(limit, request, |node, reply| {
        done += usize::from(has_done(node, reply)?);
        Ok(false)
    });
    let faults = faults.await;
    Count { done, faults }
}

/// Extends the lock everywhere. Returns the count, and the end of the lease if a majority extended
/// it.
///
/// Where the key is gone, it is set again with the details `healing`:
///
/// 1. Such a node tells its fence counter.
/// 2. After that a majority must say once more that it has had the key all along. So the lock was
///    held when the counter was told.
/// 3. The key is set if the counter is still the one that was told: no other client was granted the
///    lock there since.
pub async fn renew(
    nodes: &Nodes,
    keep: &Keep,
    healing: Option<Details>,
    limit: Duration,
) -> (Count, Option<Instant>) {
    let mut missing = vec![None; nodes.len()];
    let renewed = extend(nodes, limit, |_| Some(keep.clone()), &mut missing).await;
    let (Some(details), true) = (healing, missing.iter().any(Option::is_some)) else {
        return renewed;
    };
    let has_key = |node: usize| missing[node].is_none().then(|| keep.clone());
    let (again, end) = extend(nodes, limit, has_key, &mut vec![None; nodes.len()]).await;
    if renewed.1.is_none() || end.is_none() {
        return (again, end);
    }
    let heals = |node: usize| Some(keep.healing(details.clone(), Some(missing[node]?), None));
    let (healed, _) = extend(nodes, limit, heals, &mut vec![None; nodes.len()]).await;
    let done = again.done + healed.done;
    (Count { done, ..again }, end)
}

/// Sends each node its request to keep the lock, all at once. Notes in `missing` the counters of the
/// nodes that have no key.
async fn extend(
    nodes: &Nodes,
    limit: Duration,
    request: impl Fn(usize) -> Option<Keep>,
    missing: &mut [Counter],
) -> (Count, Option<Instant>) {
    let mut ends = Vec::with_capacity(nodes.len());
    let request = |node, there: &dyn Node| request(node).map(|keep| there.keep(&keep));
    let count = count(nodes, limit, request, |node, renewal| match renewal {
        Renewal::Renewed(end, _) | Renewal::Healed(end, _) => {
            ends.push(end);
            Ok(true)
        }
        Renewal::NotOurs(_, counter, _) => {
            missing[node] = counter;
            Ok(false)
        }
        Renewal::Broken(..) => Ok(false),
        Renewal::Failed(fault) => Err(fault),
    });
    (count.await, nodes.quorum().reached_by(ends))
}

/// Deletes the lock everywhere if it is `token`'s, and writes `note` into its record. All nodes are
/// waited for: no holder renews this lock, and a key that stays at a slow node would stay for its
/// whole TTL.
pub async fn release(nodes: &Nodes, token: Token, note: Option<Note>, limit: Duration) -> Count {
    let release = Release {
        note,
        ..Release::of(token)
    };
    let request = |_, there: &dyn Node| Some(there.release(&release));
    let count = count(nodes, limit, request, |_, reply| match reply {
        ReleaseReply::Released => Ok(true),
        ReleaseReply::NotOurs(_) => Ok(false),
        ReleaseReply::Gone(fault) | ReleaseReply::Failed(fault) => Err(fault),
    });
    count.await
}

/// Takes the key from its holder at each node, as `how` says for it; `None`: that node is not
/// asked.
pub async fn take_away(
    nodes: &Nodes,
    limit: Duration,
    how: impl Fn(usize) -> Option<TakeAway>,
) -> Count {
    let request = |node, there: &dyn Node| how(node).map(|how| there.take_away(how));
    count(nodes, limit, request, |_, answer| Ok(answer?.is_none())).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fault::Fault;

    #[test]
    fn nodes_without_an_answer_decide_nothing_where_they_could() {
        let count = |done, silent| {
            let mut faults = Faults::default();
            (0..silent)
                .for_each(|node| faults.push(node, "node", Fault::timeout(Duration::from_secs(1))));
            Count { done, faults }.is_majority(Quorum::of(3))
        };
        assert_eq!(
            (count(2, 1), count(1, 1), count(0, 2), count(1, 0)),
            (Some(true), None, None, Some(false))
        );
    }
}
