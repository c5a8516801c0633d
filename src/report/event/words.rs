//! The words of each event, for people.

use std::fmt;

use super::{AtNode, Event, Share};
use crate::job::policy::Reaction;
use crate::lock::lease::Revoked;
use crate::report::status_text::{ahead, occupied, told};
use crate::text::{duration, escape};

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StrangeVariable { name, meant } => f.write_str(&strange_variable(name, *meant)),
            Self::NoteCut { limit } => write!(f, "--note is cut to the {limit} bytes that are stored"),
            Self::Waiting { blocked, ahead: rank } => write!(f, "waiting{}: {}", ahead(*rank), told(blocked)),
            Self::Progress { status } => f.write_str(&status.line()),
            Self::WaitOver { after } => write!(f, "acquired after {}", duration::show_rounded(*after)),
            Self::EndingLeftovers { count: 1 } => f.write_str("ending a process that the command left behind"),
            Self::EndingLeftovers { count } => write!(f, "ending {count} processes that the command left behind"),
            Self::WaitingForever { blocked } => write!(f, "waiting: {}", told(blocked)),
            Self::Unreachable { blocked, .. } => write!(f, "{}; trying again", told(blocked)),
            Self::OuterSilent { occupant } => {
                write!(f, "waiting: the outer rlock does not answer: {}", occupant.named())
            }
            Self::NoUptime(at) => {
                write!(f, "{}: INFO is refused, so a restart of this node goes unseen: {}", at.node, at.why)
            }
            Self::NoQueue(at) => write!(f, "{}: cannot join the queue, waiting without a place: {}", at.node, at.why),
            Self::NoWakeups { node, poll_every } => {
                let every = duration::show_rounded(*poll_every);
                write!(f, "{node}: SUBSCRIBE to rlock:wake:* is not allowed; polling every {every} instead")
            }
            Self::Refused { node, fault } => write!(f, "{node}: {}", fault.as_missing_vote()),
            Self::Acquired { fence, after } => {
                write!(f, "acquired, fence {fence}, after {}", duration::show_rounded(*after))
            }
            Self::Nested { occupant } => write!(f, "running under the outer lock, {}", occupant.named()),
            Self::Running { pid } => write!(f, "running, pid {pid}"),
            Self::Forwarded { signal } => write!(f, "{signal} forwarded to the command"),
            Self::RlockKilled => f.write_str("rlock was killed; the command was killed; the lock is being given back"),
            Self::GuardReplaced => f.write_str("the guard was killed or stopped; it was replaced"),
            Self::Renewed { left } => write!(f, "renewed for {}", duration::show_rounded(*left)),
            Self::RenewalFailed(at) => write!(f, "{at}; trying again"),
            Self::LostWhileWaiting => {
                f.write_str("lost the lock while waiting for another; all are released, and the wait begins anew")
            }
            Self::Lost { why, reaction, .. } => write!(f, "lost the lock: {why}; {}", reacted(*reaction)),
            Self::LostUnnoticed { how } => write!(
                f,
                "lost the lock unnoticed: its key {} when the command had ended; another command may have run at the same time",
                lost_how(*how)
            ),
            Self::TimeIsUp => f.write_str("--max-run is over; the command is being stopped"),
            Self::Lingering => {
                f.write_str("the command has ended; keeping the lock until the nested rlock runs have ended")
            }
            Self::NestedUnkillable => {
                f.write_str("a nested rlock run must kill its command and has not ended; the lock is kept until it has")
            }
            Self::Unkillable { group } => {
                write!(f, "process group {group} was killed and is still there; the lock is kept until it is gone")
            }
            Self::Exit { outcome } => write!(f, "exit code {}", outcome.code()),
            Self::Ended { outer: false, .. } => f.write_str("the command has ended; giving the lock back"),
            Self::Ended { outer: true, .. } => f.write_str("the command has ended; the outer rlock keeps the lock"),
            Self::RunBefore { run } => write!(f, "not run: {}", run.success()),
            Self::SuccessUnmarked => {
                f.write_str("no majority of the nodes knows of the success: another run with --once may repeat it")
            }
            Self::Parked { left } => {
                write!(f, "parked: the lock stays for another {}", duration::show_rounded(*left))
            }
            Self::Released => f.write_str("released"),
            Self::NothingToRelease => f.write_str("released nothing: the lock was not held any more"),
            Self::NotReleased(at) => {
                write!(f, "{}: release not confirmed ({}); the lock ends with its lease at the latest", at.node, at.why)
            }
            Self::Checked => f.write_str("the lock is the caller's"),
            Self::Holder { occupant } => f.write_str(&occupied(occupant)),
            Self::Tombstoned { at: None } => {
                f.write_str("broken; the holder learns it at its next renewal at the latest")
            }
            Self::Tombstoned { at: Some(share) } => write!(f, "broken at {share}"),
            Self::KeyDeleted { at: None } => f.write_str("broken: the key was deleted"),
            Self::KeyDeleted { at: Some(share) } => write!(f, "broken: the key was deleted at {share}"),
            Self::Marked { run } => f.write_str(&run.success()),
            Self::MarkDeleted => f.write_str("broken: the next run with --once runs its command again"),
            Self::HolderReleased { after, parked } => {
                write!(f, "broken: its holder released it after {}", duration::show_rounded(*after))?;
                parked.map_or(Ok(()), |left| {
                    write!(f, "; it stays parked for another {} (--lock-delay)", duration::show_rounded(left))
                })
            }
            Self::MetricsUnwritten { directory, why } => {
                write!(f, "--metrics-dir {directory}: {why}; metrics are missing")
            }
            Self::Dropped { count } => {
                let lines = if *count == 1 { "line was" } else { "lines were" };
                write!(f, "{count} {lines} dropped: stderr was not read")
            }
            Self::Bug { place } => {
                write!(f, "a bug in rlock {} at {place}: please report it", env!("CARGO_PKG_VERSION"))
            }
        }
    }
}

impl fmt::Display for AtNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.why)
    }
}

/// `2 of the holder's 3 nodes`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the holder's {} node{}", self.done, self.of, if self.of == 1 { "" } else { "s" })
    }
}

pub(super) fn lost_how(how: Revoked) -> &'static str {
    match how {
        Revoked::Missing => "was missing",
        Revoked::TakenOver => "belonged to another client",
    }
}

fn reacted(reaction: Reaction) -> &'static str {
    match reaction {
        Reaction::Signalled => "the command is being stopped",
        Reaction::Killed => "the command was killed",
        Reaction::Ignored => "the command goes on (--on-lost warn) and may not be alone",
    }
}

/// Tells of a variable that rlock does not know, and which one it resembles.
pub fn strange_variable(name: &str, meant: Option<&str>) -> String {
    let meant = meant.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
    format!("unknown variable {}{meant}", escape::text(name))
}
