//! `doctor --try`: takes a lock of its own at each node, and gives it back.

use std::time::{Duration, SystemTime};

use crate::clock;
use crate::command::caller::Caller;
use crate::lock::blocker::Blocker;
use crate::lock::details::Details;
use crate::lock::fence;
use crate::lock::key::Key;
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::examine::{Finding, Weight};
use crate::store::{Claim, Fault, FaultKind, Node, QueueAction, ReleaseReply, Store, Vote};
use crate::text::duration;

/// Name of the lock, behind `--prefix`.
pub(super) const NAME: &str = "rlock-doctor";

/// The command in its details, by which another doctor is known.
const COMMAND: &str = "doctor";

/// Tries the lock `key` at each of these nodes, by number. Returns a finding for each that failed.
pub(super) async fn findings(
    stores: impl Iterator<Item = (usize, &Box<dyn Store>)>,
    key: &Key,
    nodes: usize,
    term: Term,
    limit: Duration,
) -> Vec<(Option<usize>, Finding)> {
    // Each node has a claim of its own: a server with two names would take one claim for the same
    // attempt.
    let tried = stores.map(async |(node, store)| {
        let found = attempt(store.open(key).as_ref(), &claim(term, nodes), limit).await?;
        Some((Some(node), found))
    });
    futures_util::future::join_all(tried)
        .await
        .into_iter()
        .flatten()
        .collect()
}

fn claim(term: Term, nodes: usize) -> Claim {
    let (now, Caller { host, user }) = (SystemTime::now(), Caller::new());
    let details = Details {
        host,
        pid: Some(std::process::id()),
        user,
        since: clock::unix_millis(now),
        cmd: COMMAND.to_owned(),
        ttl: duration::millis(term.ttl()),
        n: nodes,
        ..Details::default()
    };
    Claim {
        token: Token::fresh(),
        details: details.fitted(),
        fence_hint: fence::hint(now),
        term,
        guarded: None,
        ticket: None,
        index: 0,
        is_exact: false,
        outer: Vec::new(),
    }
}

async fn attempt(node: &dyn Node, claim: &Claim, limit: Duration) -> Option<Finding> {
    let answer = clock::until(clock::now() + limit, node.acquire(claim)).await;
    let vote = answer.map_or_else(|| Vote::Failed(Fault::timeout(limit)), |answer| answer.vote);
    // Whatever was answered: the key may be set.
    let release = node.release(&claim.release(QueueAction::None));
    let released = clock::until(clock::now() + limit, release).await;
    clock::until(clock::now() + limit, node.settled(limit)).await;
    judge(
        vote,
        released.unwrap_or_else(|| ReleaseReply::Failed(Fault::timeout(limit))),
    )
}

fn judge(vote: Vote, released: ReleaseReply) -> Option<Finding> {
    let undecided = |why: &str| {
        let what = format!("no lock could be tried: {why}");
        Some(Finding::new(Weight::Warn, what, "try again"))
    };
    match (vote, released) {
        (Vote::Granted { .. }, ReleaseReply::Released) => None,
        (Vote::Granted { .. }, ReleaseReply::NotOurs(how)) => Some(failed(&Fault::new(
            FaultKind::Unavailable,
            format!("a lock was lost at once: {how}"),
        ))),
        (Vote::Granted { .. }, ReleaseReply::Gone(fault) | ReleaseReply::Failed(fault))
        | (Vote::Failed(fault), _) => Some(failed(&fault)),
        // The node has granted it to another doctor a moment ago.
        (Vote::Blocked(Blocker::Occupant(occupant)), _)
            if occupant
                .holder()
                .is_some_and(|(_, details)| details.cmd == COMMAND) =>
        {
            None
        }
        (Vote::Blocked(Blocker::Occupant(_)), _) => {
            undecided(&format!("{NAME} is held by another client"))
        }
        (Vote::Blocked(Blocker::Reserved(_) | Blocker::Newer(_)) | Vote::Restarted, _) => {
            undecided(&format!("it is another client's turn to take {NAME}"))
        }
    }
}

fn failed(fault: &Fault) -> Finding {
    // A user who may not use the name of this lock may use others.
    if fault.is_about_names() {
        let what = format!("no lock could be tried: the user may not use {NAME}");
        let remedy = "grant the line of rlock doctor -k rlock-doctor too, or leave --try out";
        return Finding::new(Weight::Warn, what, remedy);
    }
    let (weight, remedy) = match fault.kind {
        FaultKind::Refused => (Weight::Refused, fault.remedy.unwrap_or("see its log")),
        FaultKind::Unfit | FaultKind::Short => (
            Weight::Unfit,
            fault
                .remedy
                .unwrap_or("mend what it says, or name another server"),
        ),
        FaultKind::Unavailable | FaultKind::Unknown => {
            (Weight::NoVote, "see the other findings, and its log")
        }
    };
    let what = format!(
        "a lock could not be taken and given back: {}",
        fault.cause()
    );
    Finding::new(weight, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fault::Denied;
    use crate::lock::fence::Fence;
    use crate::lock::instant::Instant;
    use crate::lock::lease::Revoked;
    use crate::lock::occupant::{Occupant, OccupantKind};

    fn granted() -> Vote {
        let (until, fence) = (
            Instant::from_nanos(9),
            Fence::new(7).unwrap_or_else(|| panic!()),
        );
        Vote::Granted {
            until,
            fence,
            index: 0,
        }
    }

    fn held_by(cmd: &str) -> Vote {
        let details = Details {
            cmd: cmd.to_owned(),
            ..Details::default()
        };
        Vote::Blocked(Blocker::Occupant(Occupant::new(
            OccupantKind::Holder(Token::fresh(), details),
            None,
        )))
    }

    #[test]
    fn a_node_passes_that_gave_the_lock_and_took_it_back() {
        let weight = |vote, released| judge(vote, released).map(|found| found.weight);
        let timeout = || Fault::timeout(Duration::from_secs(1));
        assert_eq!(weight(granted(), ReleaseReply::Released), None);
        assert_eq!(
            weight(held_by("doctor"), ReleaseReply::NotOurs(Revoked::TakenOver)),
            None
        );
        assert_eq!(
            weight(held_by("x"), ReleaseReply::NotOurs(Revoked::TakenOver)),
            Some(Weight::Warn)
        );
        assert_eq!(
            weight(granted(), ReleaseReply::NotOurs(Revoked::Missing)),
            Some(Weight::NoVote)
        );
        assert_eq!(
            weight(granted(), ReleaseReply::Failed(timeout())),
            Some(Weight::NoVote)
        );
        assert_eq!(
            weight(Vote::Failed(timeout()), ReleaseReply::Released),
            Some(Weight::NoVote)
        );
    }

    #[test]
    fn a_failed_trial_costs_the_vote_unless_only_its_name_is_refused() {
        let weight = |fault: Fault| failed(&fault).weight;
        assert_eq!(
            weight(Fault::new(FaultKind::Unavailable, "OOM")),
            Weight::NoVote
        );
        assert_eq!(
            weight(Fault::denied(Denied::Command, "NOPERM", "grant it")),
            Weight::Refused
        );
        assert_eq!(
            weight(Fault::denied(Denied::Key, "NOPERM", "grant it")),
            Weight::Warn
        );
    }
}
