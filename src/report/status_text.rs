//! The sentences of status lines, and the words for what blocks a waiter, which events and failures contain too.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::lock::blocker::Blocker;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::waiting::Blocked;
use crate::text::duration;

/// Returns the data of a blocked wait in `--log json`: the holder, and what failed at which node.
pub(super) fn fields_of(blocked: &Blocked) -> Map<String, Value> {
    let (mut fields, faults) = match blocked {
        Blocked::Busy(party) => (holder_of(party), None),
        Blocked::Split(party, faults) => (holder_of(party), Some(faults)),
        Blocked::Unreachable(faults, _) => (Map::new(), Some(faults)),
        Blocked::TooLate => (Map::new(), None),
    };
    fields.extend(faults.map(fields_of_faults).unwrap_or_default());
    fields
}

/// Returns `faults`, if there are any: `node` and `reason` of each.
pub(super) fn fields_of_faults(faults: &Faults) -> Map<String, Value> {
    let faults = faults.iter().map(|there| Value::Object(at_node(&there.name, &there.fault.why)));
    let faults: Vec<Value> = faults.collect();
    if faults.is_empty() { Map::new() } else { Map::from_iter([("faults".to_owned(), faults.into())]) }
}

/// Returns `node` and `reason`.
pub(super) fn at_node(node: &str, why: &str) -> Map<String, Value> {
    Map::from_iter([("node".to_owned(), node.into()), ("reason".to_owned(), why.into())])
}

impl fmt::Display for Blocked {
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
    pub blocked: &'a Blocked,
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

/// The status line of a scan: `scanning: 2000 of 30000 keys`.
#[derive(Clone, Copy, Debug)]
pub struct ScanStatus {
    pub seen: u64,
    pub of: u64,
}

impl fmt::Display for ScanStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scanning: {} of {} keys", self.seen.min(self.of), self.of)
    }
}

/// The status line of `break` while the holder stops its command.
#[derive(Clone, Copy, Debug)]
pub struct BreakStatus {
    pub waited: Duration,
    pub limit: Duration,
}

impl fmt::Display for BreakStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [waited, limit] =
            [self.waited, self.limit].map(|span| duration::show_rounded(Duration::from_secs(span.as_secs())));
        write!(f, "waiting for the holder to stop its command: {waited} of {limit} at most")
    }
}

/// `, 2 ahead`; nothing for the first in the queue.
pub(super) fn ahead(rank: Option<u32>) -> String {
    rank.filter(|rank| *rank > 0).map_or_else(String::new, |rank| format!(", {rank} ahead"))
}

/// `holder`, if the occupant says who it is; and `members`, the number of them, if there may be several.
pub(super) fn holder(occupant: &Occupant) -> Map<String, Value> {
    let mut fields = Map::new();
    let details = match &occupant.who {
        OccupantKind::Holder(_, details) => Some(details),
        OccupantKind::Group(group) => {
            fields.insert("members".to_owned(), group.members.into());
            group.shown.as_ref().map(|(_, details)| details)
        }
        OccupantKind::Foreign(_) | OccupantKind::Unnamed => None,
    };
    if let Some(details) = details {
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

/// `newer`: the waiter that came later, if it says who it is.
pub(super) fn newer_waiter(blocker: &Blocker) -> Map<String, Value> {
    let Blocker::Newer(Some(waiter)) = blocker else { return Map::new() };
    let user = Some(&waiter.user).filter(|user| !user.is_empty());
    let newer =
        json!({ "host": waiter.host, "user": user, "pid": waiter.pid, "note": waiter.note, "since": waiter.since });
    Map::from_iter([("newer".to_owned(), newer)])
}

fn holder_of(blocker: &Blocker) -> Map<String, Value> {
    blocker.occupant().map(holder).unwrap_or_default()
}
