//! Examinations of stores for `rlock doctor`, as values that are shown without knowing the store;
//! and the checks that hold for any server.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use crate::lock::key::Key;
use crate::lock::messages::ServerIdentity;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::text::duration;
use crate::text::table::Column;

/// Largest clock offset that counts as right: time servers keep clocks within some milliseconds.
const SKEW: Duration = Duration::from_secs(1);

/// The use that a user makes of the locks, which decides the rights that it needs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Role {
    /// Runs commands under locks
    Job,
    /// Shows locks and breaks them
    Operator,
    /// Shows locks
    Monitor,
}

/// Planned use of a store.
#[derive(Clone)]
pub struct Plan {
    /// The use of the locks.
    pub role: Role,
    /// Locks that it must be able to hold.
    pub keys: Vec<Key>,
    /// Number of nodes.
    pub nodes: usize,
    /// The schedule of a lock.
    pub schedule: Schedule,
    /// The choices that made the schedule.
    pub options: ScheduleOptions,
    /// `--restart-guard`.
    pub guard: RestartGuard,
}

impl Plan {
    /// Returns the time of the restart guard.
    pub fn guarded(&self) -> Duration {
        self.guard.span(self.nodes, self.schedule.ttl())
    }
}

/// The weight of a finding, before the votes are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Good to know; the nodes are fit.
    Note,
    /// Locks work, but may be lost or cost more than they must.
    Warn,
    /// It costs the node its vote.
    NoVote,
    /// The same: the node refuses rlock.
    Refused,
    /// No lock can be held with this node in the list.
    Unfit,
}

/// A fact that the user should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How much it weighs.
    pub weight: Weight,
    /// The fact.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl Finding {
    /// A finding in these words.
    pub fn new(weight: Weight, what: impl Into<String>, remedy: &str) -> Self {
        Self {
            weight,
            what: what.into(),
            remedy: remedy.to_owned(),
        }
    }
}

/// The facts about a store that answered.
#[derive(Default)]
pub struct Examination {
    /// Its version, if it has one of its own. Only stores that have one stand in the table.
    pub version: Option<String>,
    /// The other cells of its row in the table.
    pub cells: Vec<(Column, String)>,
    /// Lines below the table.
    pub lines: Vec<String>,
    /// Its JSON object, without its name.
    pub fields: Value,
    /// The findings, in the order in which they are shown.
    pub findings: Vec<Finding>,
    /// Its identity, by which a server is known that is named twice.
    pub identity: Option<ServerIdentity>,
    /// Whether its user needs [`Rights`].
    pub lacks_rights: bool,
}

/// The text that gives a user the rights that rlock needs.
pub struct Rights {
    /// A command for the store.
    pub line: String,
    /// The part of it to be replaced first.
    pub note: String,
}

/// Tells of a clock that is `ahead` milliseconds ahead of this machine's, as was seen in `trip`.
pub fn another_time(ahead: i64, trip: Duration) -> Option<Finding> {
    let off = Duration::from_millis(ahead.unsigned_abs());
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    // The trip takes a little off a whole minute.
    let shown = duration::show_rounded(Duration::from_millis(
        (ahead.unsigned_abs().saturating_add(50)) / 100 * 100,
    ));
    (off > SKEW + trip).then(|| {
        let what = format!(
            "its clock is {shown} {side} this machine's: correcting it ends leases early or late"
        );
        let remedy = "run a time service on both (chrony, systemd-timesyncd), and set the clock in small steps";
        Finding::new(Weight::Warn, what, remedy)
    })
}

/// Tells of a round trip that takes too much of the node timeout.
pub fn slowness(trip: Duration, plan: &Plan) -> Option<Finding> {
    let limit = plan.schedule.node_timeout();
    (trip > limit / 2).then(|| {
        let (trip, limit) = (duration::show_rounded(trip), duration::show(limit));
        let what =
            format!("a round trip takes {trip}, more than half of the node timeout of {limit}");
        Finding::new(Weight::Warn, what, "give a longer --ttl or --node-timeout")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_ours() {
        let trip = Duration::from_millis(1);
        assert_eq!(another_time(500, trip), None);
        for (ahead, side) in [(60_000, "1m ahead of"), (-60_000, "1m behind")] {
            let told = another_time(ahead, trip).map(|finding| finding.what);
            assert!(told.is_some_and(|what| what.contains(side)), "{ahead}");
        }
    }
}
