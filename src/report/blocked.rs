//! What keeps a waiter from the lock, in words: for events, for the failure at the end, and for the status line.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::lock::blocker::Blocker;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::quorum::Quorum;
use crate::text::duration;

/// What keeps a waiter from the lock.
#[derive(Clone, Copy, Debug)]
pub enum Blocked<'a> {
    /// This party has it, or its turn.
    Busy(&'a Blocker),
    /// No client has a majority; this party has the most votes. The faults are those of the nodes without a vote.
    Split(&'a Blocker, &'a Faults),
    /// Too few of the nodes gave a vote.
    Unreachable(&'a Faults, Quorum),
    /// A majority granted, too late for the lease to be of use.
    TooLate,
}

impl Blocked<'_> {
    /// Its data in `--log json`: the holder, and what failed at which node.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let (mut fields, faults) = match self {
            Self::Busy(blocker) => (holder_of(blocker), None),
            Self::Split(blocker, faults) => (holder_of(blocker), Some(*faults)),
            Self::Unreachable(faults, _) => (Map::new(), Some(*faults)),
            Self::TooLate => (Map::new(), None),
        };
        if let Some(faults) = faults.filter(|faults| !faults.is_empty()) {
            let faults = faults.iter().map(|there| json!({ "node": there.name, "reason": there.fault.why }));
            fields.insert("faults".to_owned(), faults.collect());
        }
        fields
    }
}

impl fmt::Display for Blocked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(blocker) => write!(f, "{blocker}"),
            Self::Split(blocker, faults) if faults.is_empty() => write!(f, "no majority is free: {blocker}"),
            Self::Split(blocker, faults) => write!(f, "no majority is free: {blocker}; {faults}"),
            Self::Unreachable(faults, quorum) => f.write_str(&faults.no_majority(*quorum)),
            Self::TooLate => f.write_str("the grant came too late to be of use"),
        }
    }
}

/// The status line of a wait: `rlock: job: waiting 3s, 2 ahead: held by …`.
#[derive(Clone, Copy, Debug)]
pub struct WaitStatus<'a> {
    pub key: &'a Key,
    pub waited: Duration,
    /// Number of waiters in front.
    pub ahead: Option<u32>,
    pub blocked: Blocked<'a>,
}

impl fmt::Display for WaitStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = duration::show(Duration::from_secs(self.waited.as_secs()));
        write!(f, "rlock: {}: waiting {waited}{}: ", self.key, ahead(self.ahead))?;
        match self.blocked {
            // The lease's end would change each second without being news.
            Blocked::Busy(blocker) => f.write_str(&blocker.named()),
            blocked => write!(f, "{blocked}"),
        }
    }
}

/// `, 2 ahead`; nothing for the first in the queue.
pub(super) fn ahead(rank: Option<u32>) -> String {
    rank.filter(|rank| *rank > 0).map_or_else(String::new, |rank| format!(", {rank} ahead"))
}

/// `holder`, if the occupant says who it is.
pub(super) fn holder(occupant: &Occupant) -> Map<String, Value> {
    let mut fields = Map::new();
    if let OccupantKind::Holder(_, details) = &occupant.who {
        let holder = json!({
            "host": details.host,
            "user": details.user,
            "pid": details.pid,
            "cmd": details.cmd,
            "note": details.note,
            "since": details.since,
        });
        fields.insert("holder".to_owned(), holder);
    }
    fields
}

fn holder_of(blocker: &Blocker) -> Map<String, Value> {
    blocker.occupant().map(holder).unwrap_or_default()
}
