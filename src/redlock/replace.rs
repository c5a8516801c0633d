//! `--replace`: tells the holders of a lock to stop, as `rlock break` does.

use std::time::Duration;

use futures_util::future::join_all;

use super::Nodes;
use super::observe::observe;
use super::outside::force_unlock;
use crate::lock::details::Details;
use crate::lock::key::Key;
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::outer::OuterLocks;
use crate::lock::replacing::Replacing;
use crate::lock::token::Token;
use crate::lock::waiting::Notice;
use crate::node::ForceUnlock;

/// Tells the holders of `key` that keep a run of this `mode` from it to stop: a tombstone by `by` takes the place of each. `outer`:
/// the locks of outer rlocks, `limit`: for each exchange. Returns what is to be said, and whether all were told.
pub(super) async fn replace(
    nodes: &Nodes,
    key: &Key,
    mode: Mode,
    by: &str,
    outer: &OuterLocks,
    limit: Duration,
) -> (Vec<Notice>, bool) {
    let seen = observe(nodes, key, limit, |_| false).await;
    let census = seen.census();
    let Replacing { told, spared, mut is_complete } = Replacing::of(&census, mode, outer);
    let tell = async |(token, details, occupant): (Token, &Details, &Occupant)| {
        let tombstone = details.tombstone(token, by.to_owned());
        let count = force_unlock(nodes, key, limit, |_| Some(ForceUnlock::Tombstone(token, &tombstone))).await;
        (count, occupant.clone())
    };
    let mut said = Vec::new();
    for (count, occupant) in join_all(told.into_iter().map(tell)).await {
        // One tombstone is enough for the holder. Without one, it has ended by itself, or is told by the next attempt.
        if count.done > 0 {
            said.push(Notice::Replaced(Box::new(occupant)));
        } else {
            is_complete &= count.faults.is_empty();
        }
    }
    said.extend(spared.map(|occupant| Notice::NotReplaced(Box::new(occupant.clone()))));
    (said, is_complete)
}
