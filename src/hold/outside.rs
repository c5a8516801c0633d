//! Work on a lock from outside the rlock that took it: renew, release and break, each on all nodes
//! at once.

use std::time::Duration;

use super::Nodes;
use crate::lock::fault::{Fault, Faults};
use crate::lock::instant::Instant;
use crate::lock::last::Note;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::store::{Keep, Node, Pending, QueueAction, Release, ReleaseReply, Renewal, TakeAway};

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
    mut has_done: impl FnMut(T) -> Result<bool, Fault>,
) -> Count {
    let mut done = 0;
    let faults = nodes.ask(limit, request, |_, reply| {
        done += usize::from(has_done(reply)?);
        Ok(false)
    });
    let faults = faults.await;
    Count { done, faults }
}

/// Extends the lock everywhere. Returns the count, and the end of the lease if a majority extended
/// it.
pub async fn renew(nodes: &Nodes, keep: &Keep, limit: Duration) -> (Count, Option<Instant>) {
    let mut ends = Vec::with_capacity(nodes.len());
    let request = |_, there: &dyn Node| Some(there.keep(keep));
    let count = count(nodes, limit, request, |renewal| match renewal {
        Renewal::Renewed(end, _) | Renewal::Healed(end, _) => {
            ends.push(end);
            Ok(true)
        }
        Renewal::NotOurs(..) | Renewal::Broken(..) => Ok(false),
        Renewal::Failed(fault) => Err(fault),
    });
    (count.await, nodes.quorum().reached_by(ends))
}

/// Deletes the lock everywhere if it is `token`'s, and writes `note` into its record. All nodes are
/// waited for: no holder renews this lock, and a key that stays at a slow node would stay for its
/// whole TTL.
pub async fn release(nodes: &Nodes, token: Token, note: Option<Note>, limit: Duration) -> Count {
    let release = Release {
        token,
        queue: QueueAction::None,
        mode: None,
        parked: None,
        note,
    };
    let request = |_, there: &dyn Node| Some(there.release(&release));
    let count = count(nodes, limit, request, |reply| match reply {
        ReleaseReply::Released => Ok(true),
        ReleaseReply::NotOurs(_) => Ok(false),
        ReleaseReply::Failed(fault) => Err(fault),
    });
    count.await
}

/// Takes the key from its holder at each node, as `how` says for it; `None`: that node is not
/// asked.
pub async fn take_away<'a>(
    nodes: &Nodes,
    limit: Duration,
    how: impl Fn(usize) -> Option<TakeAway<'a>>,
) -> Count {
    let request = |node, there: &dyn Node| how(node).map(|how| there.take_away(how));
    count(nodes, limit, request, |answer| Ok(answer?.is_none())).await
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
