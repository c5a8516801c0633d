//! The events of a lock that are told on stderr: the name, level and fields of each. The sentences are in `words`.
//!
//! The last line of a run that fails is a [`super::Problem`]. Words inside the sentences come from the values that they are
//! about: an occupant, a blocker or a fault of `lock`.
//!
//! Text and JSON are two views of one event: [`Event`]'s `Display` is the text, and the `message` of the JSON object. The
//! names and fields are an interface that scripts read: they may be added to, not changed.

mod words;

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

pub(super) use words::holders_nodes;
use words::lost_how;
pub use words::strange_variable;

use super::Level;
use super::status_text::{Status, at_node, fields_of, holder};
use crate::exit::Outcome;
use crate::job::facts::ExitStatus;
use crate::job::policy::Reaction;
use crate::lock::backoff;
use crate::lock::fault::Fault;
use crate::lock::fence::Fence;
use crate::lock::lease::{Loss, Revoked};
use crate::lock::occupant::Occupant;
use crate::lock::waiting::{Blocked, Notice};
use crate::text::duration::millis;

/// A node's name and what went wrong there.
#[derive(Clone, Copy, Debug)]
pub struct AtNode<'a> {
    pub node: &'a str,
    pub why: &'a str,
}

/// A change of a lock, or of its command.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// No `--node` and no `RLOCK_NODE` was given, so the default is used.
    DefaultNode { node: &'a str },
    /// A variable looks like one of rlock's and is none. `meant`: the one that it resembles.
    StrangeVariable { name: &'a str, meant: Option<&'a str> },
    /// `--note` exceeds the limit, in bytes.
    NoteCut { limit: usize },
    /// The wait goes on. `ahead`: number of waiters in front.
    Waiting { blocked: &'a Blocked, ahead: Option<u32> },
    /// Something takes long. `still`: it is not the first line about this.
    Progress { status: &'a Status<'a>, still: bool },
    /// A wait that was shown in plain lines has ended with the lock.
    WaitOver { after: Duration },
    /// The processes that the command left behind are being ended (`--contain`).
    EndingLeftovers { count: usize },
    /// A foreign value without a TTL blocks the lock, so the wait has no end of its own.
    WaitingForever { blocked: &'a Blocked },
    /// No majority voted; the nodes are asked again. `had_majority`: one had answered earlier, so `--wait` alone ends this.
    Unreachable { blocked: &'a Blocked, had_majority: bool },
    /// The outer rlock that holds the lock does not answer.
    OuterSilent { occupant: &'a Occupant },
    /// `--replace`: this holder was told to stop.
    Replaced { occupant: &'a Occupant },
    /// `--replace`: this holder is none that can be told to stop.
    NotReplaced { occupant: &'a Occupant },
    /// A node denies INFO, so its restarts are invisible.
    NoUptime(AtNode<'a>),
    /// A node denies the queue's commands.
    NoQueue(AtNode<'a>),
    /// A node denies the subscription to wake-ups.
    NoWakeups { node: &'a str, poll_every: Duration },
    /// A node refuses rlock; a majority of the others answers.
    Refused { node: &'a str, fault: &'a Fault },
    /// The lock was taken.
    Acquired { fence: Fence, after: Duration },
    /// The command runs under the lock of an outer rlock.
    Nested { occupant: &'a Occupant },
    /// The command was started.
    Running { pid: i32 },
    /// A signal was forwarded to the command.
    Forwarded { signal: Signal },
    /// The guard was killed or stopped, and replaced.
    GuardReplaced,
    /// The lease was extended.
    Renewed { left: Duration },
    /// A renewal failed at one node and is repeated.
    RenewalFailed(AtNode<'a>),
    /// A lock that was kept while another was waited for is lost. All are released, and the wait begins anew.
    LostWhileWaiting,
    /// The keys of the lock were lost and are set again: the command goes on.
    Reclaimed { why: &'a str },
    /// The lock was lost, or can no longer be renewed in time (`how` is `None`).
    Lost { why: &'a str, how: Option<Loss>, reaction: Reaction },
    /// The release found that the lock had been lost.
    LostUnnoticed { how: Revoked },
    /// `--max-run` is over.
    TimeIsUp,
    /// The command has ended, and nested runs still need the lock.
    Lingering,
    /// A nested run outlives the time in which it had to end.
    NestedUnkillable,
    /// Killed processes are still there.
    Unkillable { group: i32 },
    /// The command has ended. `outer`: the lock is the outer rlock's, and stays held.
    Ended { outer: bool, status: Option<ExitStatus>, run: Duration },
    /// rlock exits.
    Exit { outcome: Outcome },
    /// `--once`: the command is not run, because this run has succeeded.
    RunBefore { run: &'a Occupant },
    /// `--once`: too few nodes have confirmed that they know of the success.
    SuccessUnmarked,
    /// The command has ended, and the lock stays for this time.
    Parked { left: Duration },
    /// The lock was given back.
    Released,
    /// The release found no lock of this rlock.
    NothingToRelease,
    /// A node did not confirm the release.
    NotReleased(AtNode<'a>),
    /// `check`: the lock is the caller's.
    Checked,
    /// `break --yes`: the holder whose lock is broken.
    Holder { occupant: &'a Occupant },
    /// `break`: a tombstone is in the lock's place.
    Tombstoned,
    /// `break --foreign`: the holder uses another number of nodes, of which so many have the tombstone.
    TombstonedAt { broken: usize, of: usize },
    /// `break`: the key was deleted; at so many of the holder's nodes, if it uses another number of them.
    KeyDeleted { at: Option<(usize, usize)> },
    /// `break --yes`: the run whose mark is deleted.
    Marked { run: &'a Occupant },
    /// `break`: the mark of a success was deleted.
    MarkDeleted,
    /// `break`: the holder has stopped its command and released the lock. `parked`: it stays for this time.
    HolderReleased { after: Duration, parked: Option<Duration> },
    /// `--metrics-dir`: a file could not be written.
    MetricsUnwritten { directory: &'a str, why: &'a io::Error },
    /// Lines found no room in the queue to stderr.
    Dropped { count: u64 },
    /// rlock panicked at `place`.
    Bug { place: &'a str },
}

impl<'a> From<&'a Notice> for Event<'a> {
    fn from(notice: &'a Notice) -> Self {
        match notice {
            Notice::Waiting { blocked, ahead } => Self::Waiting { blocked, ahead: *ahead },
            Notice::WaitingForever(blocked) => Self::WaitingForever { blocked },
            Notice::TryingAgain(blocked) => Self::Unreachable { blocked, had_majority: false },
            Notice::MajorityGone(blocked) => Self::Unreachable { blocked, had_majority: true },
            Notice::OuterSilent(occupant) => Self::OuterSilent { occupant },
            Notice::Replaced(occupant) => Self::Replaced { occupant },
            Notice::NotReplaced(occupant) => Self::NotReplaced { occupant },
            Notice::Refused(refusal) => Self::Refused { node: &refusal.name, fault: &refusal.fault },
            Notice::NoUptime { node, why } => Self::NoUptime(AtNode { node, why }),
            Notice::NoQueue { node, why } => Self::NoQueue(AtNode { node, why }),
            Notice::NoWakeups { node } => Self::NoWakeups { node, poll_every: backoff::LONGEST_POLL },
        }
    }
}

impl Event<'_> {
    /// Name in `--log json`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DefaultNode { .. } => "default-node",
            Self::StrangeVariable { .. } => "variable",
            Self::NoteCut { .. } => "note",
            Self::Waiting { .. } | Self::WaitingForever { .. } | Self::Progress { .. } => "waiting",
            Self::EndingLeftovers { .. } => "leftovers",
            Self::Unreachable { .. } => "unreachable",
            Self::OuterSilent { .. } => "silent",
            Self::Replaced { .. } | Self::NotReplaced { .. } => "replacing",
            Self::NoUptime(_) => "unguarded",
            Self::NoQueue(_) => "unqueued",
            Self::NoWakeups { .. } => "unheard",
            Self::Refused { .. } => "refused",
            Self::Acquired { .. } | Self::WaitOver { .. } => "acquired",
            Self::Nested { .. } => "nested",
            Self::Running { .. } => "running",
            Self::Forwarded { .. } => "signal",
            Self::GuardReplaced => "guard",
            Self::Renewed { .. } => "renewed",
            Self::RenewalFailed(_) => "trouble",
            Self::LostWhileWaiting => "anew",
            Self::Reclaimed { .. } => "reclaimed",
            Self::Lost { .. } | Self::LostUnnoticed { .. } => "lost",
            Self::TimeIsUp => "max-run",
            Self::Lingering => "lingering",
            Self::NestedUnkillable | Self::Unkillable { .. } => "unkillable",
            Self::Ended { .. } => "ended",
            Self::Exit { .. } => "exit",
            Self::RunBefore { .. } | Self::Marked { .. } => "once",
            Self::SuccessUnmarked => "unmarked",
            Self::Parked { .. } => "parked",
            Self::Released | Self::NothingToRelease => "released",
            Self::NotReleased(_) => "unreleased",
            Self::Checked => "checked",
            Self::Holder { .. } => "holder",
            Self::Tombstoned | Self::TombstonedAt { .. } => "entombed",
            Self::KeyDeleted { .. } | Self::MarkDeleted | Self::HolderReleased { .. } => "broken",
            Self::MetricsUnwritten { .. } => "metrics",
            Self::Dropped { .. } => "dropped",
            Self::Bug { .. } => "bug",
        }
    }

    /// Level, which decides whether it is printed.
    pub fn level(&self) -> Level {
        match self {
            Self::StrangeVariable { .. }
            | Self::Waiting { .. }
            | Self::Progress { .. }
            | Self::WaitOver { .. }
            | Self::EndingLeftovers { .. }
            | Self::Unreachable { had_majority: false, .. }
            | Self::Replaced { .. }
            | Self::Acquired { .. }
            | Self::Nested { .. }
            | Self::Running { .. }
            | Self::Forwarded { .. }
            | Self::GuardReplaced
            | Self::Renewed { .. }
            | Self::RenewalFailed(_)
            | Self::Lingering
            | Self::Ended { .. }
            | Self::Exit { .. }
            | Self::RunBefore { .. }
            | Self::Parked { .. }
            | Self::Released
            | Self::NothingToRelease
            | Self::Checked
            | Self::Tombstoned => Level::Info,
            Self::DefaultNode { .. }
            | Self::NoteCut { .. }
            | Self::WaitingForever { .. }
            | Self::Unreachable { had_majority: true, .. }
            | Self::OuterSilent { .. }
            | Self::NotReplaced { .. }
            | Self::LostWhileWaiting
            | Self::Reclaimed { .. }
            | Self::NoUptime(_)
            | Self::NoQueue(_)
            | Self::NoWakeups { .. }
            | Self::Refused { .. }
            | Self::NotReleased(_)
            | Self::Holder { .. }
            | Self::TombstonedAt { .. }
            | Self::SuccessUnmarked
            | Self::KeyDeleted { .. }
            | Self::Marked { .. }
            | Self::MarkDeleted
            | Self::HolderReleased { .. }
            | Self::MetricsUnwritten { .. }
            | Self::Dropped { .. } => Level::Warning,
            Self::Lost { .. }
            | Self::LostUnnoticed { .. }
            | Self::TimeIsUp
            | Self::NestedUnkillable
            | Self::Unkillable { .. }
            | Self::Bug { .. } => Level::Error,
        }
    }

    /// Its data in `--log json`, beside ts, level, event, key and message.
    pub fn fields(&self) -> Map<String, Value> {
        let fields = match self {
            Self::DefaultNode { node } => json!({ "node": node }),
            Self::StrangeVariable { name, meant } => json!({ "variable": name, "meant": meant }),
            Self::NoteCut { limit } => json!({ "limit": limit }),
            Self::Waiting { blocked, ahead } => {
                let mut fields = fields_of(blocked);
                fields.extend(ahead.map(|ahead| ("ahead".to_owned(), ahead.into())));
                return fields;
            }
            Self::Progress { status, .. } => return status.fields(),
            Self::WaitOver { after } => json!({ "wait_ms": millis(*after) }),
            Self::WaitingForever { blocked } | Self::Unreachable { blocked, .. } => return fields_of(blocked),
            Self::NoUptime(at) | Self::NoQueue(at) | Self::RenewalFailed(at) | Self::NotReleased(at) => {
                return at_node(at.node, at.why);
            }
            Self::Refused { node, fault } => return at_node(node, &fault.why),
            Self::NoWakeups { node, poll_every } => json!({ "node": node, "poll_ms": millis(*poll_every) }),
            Self::Acquired { fence, after } => json!({ "fence": fence.get(), "wait_ms": millis(*after) }),
            Self::OuterSilent { occupant }
            | Self::Replaced { occupant }
            | Self::NotReplaced { occupant }
            | Self::Nested { occupant }
            | Self::Holder { occupant } => return holder(occupant),
            Self::Running { pid } => json!({ "pid": pid }),
            Self::Forwarded { signal } => json!({ "signal": signal.as_str() }),
            Self::Renewed { left } | Self::Parked { left } => json!({ "left_ms": millis(*left) }),
            Self::Lost { why, .. } | Self::Reclaimed { why } => json!({ "reason": why }),
            Self::LostUnnoticed { how } => json!({ "reason": lost_how(*how) }),
            Self::Unkillable { group } => json!({ "pid": group }),
            Self::TombstonedAt { broken, of } | Self::KeyDeleted { at: Some((broken, of)) } => {
                json!({ "nodes": broken, "of": of })
            }
            Self::HolderReleased { after, parked } => {
                json!({ "wait_ms": millis(*after), "left_ms": parked.map(millis) })
            }
            Self::RunBefore { run } | Self::Marked { run } => {
                let mut fields = holder(run);
                fields.extend(run.ttl.map(|left| ("left_ms".to_owned(), millis(left).into())));
                return fields;
            }
            Self::EndingLeftovers { count } => json!({ "count": count }),
            Self::MetricsUnwritten { directory, why } => json!({ "path": directory, "reason": why.to_string() }),
            Self::Dropped { count } => json!({ "count": count }),
            Self::Ended { status, run, .. } => {
                let (code, signal) = match status {
                    Some(ExitStatus::Exited(code)) => (Some(*code), None),
                    Some(ExitStatus::Killed(number)) => (None, Some(signal_name(*number))),
                    None => (None, None),
                };
                json!({ "exit_code": code, "signal": signal, "run_ms": millis(*run) })
            }
            Self::Exit { outcome } => json!({ "code": outcome.code() }),
            Self::Bug { place } => json!({ "place": place, "code": Outcome::Bug.code() }),
            Self::GuardReplaced
            | Self::LostWhileWaiting
            | Self::TimeIsUp
            | Self::Lingering
            | Self::NestedUnkillable
            | Self::SuccessUnmarked
            | Self::Released
            | Self::NothingToRelease
            | Self::Checked
            | Self::Tombstoned
            | Self::MarkDeleted
            | Self::KeyDeleted { at: None } => Value::Null,
        };
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }
}

/// Returns `SIGTERM`, or the number of a signal without a name.
fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.as_str().to_owned())
}
