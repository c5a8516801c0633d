//! A wait in words: its reports, its status line, and what blocks it.

use std::time::Duration;

use crate::lock::key::Key;
use crate::lock::waiting::{Blocked, Notice};
use crate::report::{Reporter, StatusLine};
use crate::text::duration;

/// Reports `notice`: a warning is printed in any case, a step with `-v`.
pub(super) fn say(report: &Reporter, status: &StatusLine, notice: &Notice) {
    let warn = |event: &str, text: String| {
        status.clear();
        report.note(event, text);
    };
    match notice {
        Notice::Waiting { blocked: what, ahead: rank } => {
            report.step("waiting", format_args!("waiting{}: {}", ahead(*rank), cause(what)));
        }
        Notice::TryingAgain(what) => report.step("unreachable", format_args!("{}; trying again", cause(what))),
        Notice::WaitingForever(what) => warn("waiting", format!("waiting: {}", cause(what))),
        Notice::MajorityGone(what) => warn("unreachable", format!("{}; trying again", cause(what))),
        Notice::OuterSilent(holder) => {
            warn("silent", format!("waiting: the outer rlock does not answer: {}", holder.named()));
        }
        Notice::Refused(refusal) => {
            warn("refused", format!("{}: {}", refusal.name, refusal.fault.as_missing_vote()));
        }
        Notice::NoUptime { node, why } => {
            warn("unguarded", format!("{node}: INFO is refused, so a restart of it cannot be seen: {why}"));
        }
        Notice::NoQueue { node, why } => {
            warn("unqueued", format!("{node}: waiting without a place in the queue, which is refused: {why}"));
        }
        Notice::NoWakeups { node } => {
            let why = "we may not listen there (SUBSCRIBE to rlock:wake:*), and look every 250 ms";
            warn("unheard", format!("{node}: {why}"));
        }
    }
}

/// Returns what blocks the wait.
pub(super) fn cause(blocked: &Blocked) -> String {
    match blocked {
        Blocked::Busy(party) => party.to_string(),
        Blocked::Split(party, faults) if faults.is_empty() => format!("too few votes are free: {party}"),
        Blocked::Split(party, faults) => format!("too few votes are free: {party}; {faults}"),
        Blocked::Unreachable(faults, quorum) => faults.no_majority(*quorum),
        Blocked::TooLate => "the grant came too late to be of use".to_owned(),
    }
}

/// Returns the status line: `rlock: job: waiting 3s, 2 ahead: held by …`.
pub(super) fn status(key: &Key, waited: Duration, what: &Blocked, rank: Option<u32>) -> String {
    let waited = duration::show(Duration::from_secs(waited.as_secs()));
    let what = match what {
        // The end of the lease would change each second without being news.
        Blocked::Busy(party) => party.named(),
        _ => cause(what),
    };
    format!("rlock: {key}: waiting {waited}{}: {what}", ahead(rank))
}

fn ahead(rank: Option<u32>) -> String {
    rank.filter(|rank| *rank > 0).map_or_else(String::new, |rank| format!(", {rank} ahead"))
}
