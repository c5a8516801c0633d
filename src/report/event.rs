//! The events of a lock that are told on stderr: the name, fields and level of each. The sentences are in `words`.
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

use words::lost_how;
pub use words::strange_variable;

use super::Level;
use super::status_text::{Status, at_node, fields_of, holder};
use crate::exit::Outcome;
use crate::job::policy::{ExitStatus, Reaction};
use crate::lock::backoff;
use crate::lock::fault::Fault;
use crate::lock::fence::Fence;
use crate::lock::lease::Revoked;
use crate::lock::occupant::Occupant;
use crate::lock::waiting::{Blocked, Notice};
use crate::text::duration::millis;

/// A node's name and what went wrong there.
#[derive(Clone, Copy, Debug)]
pub struct AtNode<'a> {
    pub node: &'a str,
    pub why: &'a str,
}

/// Number of the holder's nodes, where it uses another number of them, and at how many of these something was done.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub done: usize,
    pub of: usize,
}

/// A change of a lock, or of its command.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A variable looks like one of rlock's and is none. `meant`: the one that it resembles.
    StrangeVariable { name: &'a str, meant: Option<&'a str> },
    /// `--note` exceeds the limit, in bytes.
    NoteCut { limit: usize },
    /// The wait goes on. `ahead`: number of waiters in front.
    Waiting { blocked: &'a Blocked, ahead: Option<u32> },
    /// Something takes long.
    Progress { status: &'a Status<'a> },
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
    /// The guard's word: rlock was killed, and then the command.
    RlockKilled,
    /// The guard was killed or stopped, and replaced.
    GuardReplaced,
    /// The lease was extended.
    Renewed { left: Duration },
    /// A renewal failed at one node and is repeated.
    RenewalFailed(AtNode<'a>),
    /// A lock that was kept while another was waited for is lost. All are released, and the wait begins anew.
    LostWhileWaiting,
    /// The lock was lost, or can no longer be renewed in time.
    Lost { why: &'a str, reaction: Reaction },
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
    /// `break`: a tombstone is in the lock's place. `at`: with `--foreign`.
    Tombstoned { at: Option<Share> },
    /// `break`: the key was deleted. `at`: with `--foreign`.
    KeyDeleted { at: Option<Share> },
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
            Notice::Refused(refusal) => Self::Refused { node: &refusal.name, fault: &refusal.fault },
            Notice::NoUptime { node, why } => Self::NoUptime(AtNode { node, why }),
            Notice::NoQueue { node, why } => Self::NoQueue(AtNode { node, why }),
            Notice::NoWakeups { node } => Self::NoWakeups { node, poll_every: backoff::LONGEST_POLL },
        }
    }
}

impl Event<'_> {
    pub fn level(&self) -> Level {
        self.parts().0
    }

    /// Its data in `--log json`, beside ts, level, key and message.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let (_, name, mut fields) = self.parts();
        fields["event"] = name.into();
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }

    /// Returns its level, its name, and the rest of its data.
    fn parts(&self) -> (Level, &'static str, Value) {
        use Level::{Error, Info, Warning};
        match *self {
            Self::StrangeVariable { name, meant } => (Info, "variable", json!({ "variable": name, "meant": meant })),
            Self::NoteCut { limit } => (Warning, "note", json!({ "limit": limit })),
            Self::Waiting { blocked, ahead } => {
                let mut fields = fields_of(blocked);
                fields.extend(ahead.map(|ahead| ("ahead".to_owned(), ahead.into())));
                (Info, "waiting", fields.into())
            }
            Self::Progress { status } => (Info, "waiting", status.fields().into()),
            Self::WaitOver { after } => (Info, "acquired", json!({ "wait_ms": millis(after) })),
            Self::EndingLeftovers { count } => (Info, "leftovers", json!({ "count": count })),
            Self::WaitingForever { blocked } => (Warning, "waiting", fields_of(blocked).into()),
            Self::Unreachable { blocked, had_majority } => {
                (if had_majority { Warning } else { Info }, "unreachable", fields_of(blocked).into())
            }
            Self::OuterSilent { occupant } => (Warning, "silent", holder(occupant).into()),
            Self::NoUptime(at) => (Warning, "unguarded", at_node(at.node, at.why).into()),
            Self::NoQueue(at) => (Warning, "unqueued", at_node(at.node, at.why).into()),
            Self::NoWakeups { node, poll_every } => {
                (Warning, "unheard", json!({ "node": node, "poll_ms": millis(poll_every) }))
            }
            Self::Refused { node, fault } => (Warning, "refused", at_node(node, &fault.why).into()),
            Self::Acquired { fence, after } => {
                (Info, "acquired", json!({ "fence": fence.get(), "wait_ms": millis(after) }))
            }
            Self::Nested { occupant } => (Info, "nested", holder(occupant).into()),
            Self::Running { pid } => (Info, "running", json!({ "pid": pid })),
            Self::Forwarded { signal } => (Info, "signal", json!({ "signal": signal.as_str() })),
            Self::RlockKilled => (Error, "killed", json!({})),
            Self::GuardReplaced => (Info, "guard", json!({})),
            Self::Renewed { left } => (Info, "renewed", json!({ "left_ms": millis(left) })),
            Self::RenewalFailed(at) => (Info, "trouble", at_node(at.node, at.why).into()),
            Self::LostWhileWaiting => (Warning, "anew", json!({})),
            Self::Lost { why, .. } => (Error, "lost", json!({ "reason": why })),
            Self::LostUnnoticed { how } => (Error, "lost", json!({ "reason": lost_how(how) })),
            Self::TimeIsUp => (Error, "max-run", json!({})),
            Self::Lingering => (Info, "lingering", json!({})),
            Self::NestedUnkillable => (Error, "unkillable", json!({})),
            Self::Unkillable { group } => (Error, "unkillable", json!({ "pid": group })),
            Self::Ended { status, run, .. } => {
                let (code, signal) = match status {
                    Some(ExitStatus::Exited(code)) => (Some(code), None),
                    Some(ExitStatus::Killed(number)) => (None, Some(signal_name(number))),
                    None => (None, None),
                };
                (Info, "ended", json!({ "exit_code": code, "signal": signal, "run_ms": millis(run) }))
            }
            Self::Exit { outcome } => (Info, "exit", json!({ "code": outcome.code() })),
            Self::RunBefore { run } => (Info, "once", success(run)),
            Self::SuccessUnmarked => (Warning, "unmarked", json!({})),
            Self::Parked { left } => (Info, "parked", json!({ "left_ms": millis(left) })),
            Self::Released | Self::NothingToRelease => (Info, "released", json!({})),
            Self::NotReleased(at) => (Warning, "unreleased", at_node(at.node, at.why).into()),
            Self::Checked => (Info, "checked", json!({})),
            Self::Holder { occupant } => (Warning, "holder", holder(occupant).into()),
            Self::Tombstoned { at: None } => (Info, "broken", json!({})),
            Self::Tombstoned { at: Some(share) } | Self::KeyDeleted { at: Some(share) } => {
                (Warning, "broken", json!({ "nodes": share.done, "of": share.of }))
            }
            Self::KeyDeleted { at: None } | Self::MarkDeleted => (Warning, "broken", json!({})),
            Self::Marked { run } => (Warning, "once", success(run)),
            Self::HolderReleased { after, parked } => {
                (Warning, "broken", json!({ "wait_ms": millis(after), "left_ms": parked.map(millis) }))
            }
            Self::MetricsUnwritten { directory, why } => {
                (Warning, "metrics", json!({ "path": directory, "reason": why.to_string() }))
            }
            Self::Dropped { count } => (Warning, "dropped", json!({ "count": count })),
            Self::Bug { place } => (Error, "bug", json!({ "place": place, "code": Outcome::Bug.code() })),
        }
    }
}

/// The run, and how long its success counts.
fn success(run: &Occupant) -> Value {
    let mut fields = holder(run);
    fields.extend(run.ttl.map(|left| ("left_ms".to_owned(), millis(left).into())));
    fields.into()
}

/// Returns `SIGTERM`, or the number of a signal without a name.
fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.as_str().to_owned())
}
