//! `doctor --try`: takes a lock of its own at each node, and gives it back.

use std::time::{Duration, SystemTime};

use crate::clock;
use crate::command::identity::Identity;
use crate::exit::Outcome;
use crate::lock::details::Details;
use crate::lock::fence;
use crate::lock::key::Key;
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::node::{Claim, Fault, FaultKind, Node, QueueAction, ReleaseReply, Store, Vote};
use crate::text::duration;

use super::diagnosis::{Level, Votes};

/// Name of the lock, behind `--prefix`.
pub(super) const NAME: &str = "rlock-doctor";

/// The command in its details, by which another doctor is known.
const COMMAND: &str = "doctor";

/// Outcome of the trial at one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trial {
    /// The lock was taken and given back.
    Passed,
    /// It could not be tried, for this reason.
    Undecided(String),
    /// The node failed.
    Failed(Fault),
}

/// Tries the lock `key` at each node that `is_meant`. The others have `None`, and so have all without a lock.
pub(super) async fn of_each(
    stores: &[Box<dyn Store>],
    key: Option<&Key>,
    is_meant: impl Fn(usize) -> bool,
    term: Term,
    limit: Duration,
) -> Vec<Option<Trial>> {
    let attempt = async |number: usize, store: &dyn Store| {
        let key = key.filter(|_| is_meant(number))?;
        Some(of(store.lock().as_ref(), &claim(key, term, stores.len()), limit).await)
    };
    futures_util::future::join_all(stores.iter().enumerate().map(|(number, store)| attempt(number, store.as_ref())))
        .await
}

/// Each node has a claim of its own: a server with two names would take one claim for the same attempt.
fn claim(key: &Key, term: Term, nodes: usize) -> Claim {
    let (now, Identity { host, user }) = (SystemTime::now(), Identity::new());
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
        key: key.clone(),
        token: Token::fresh(),
        details: details.fitted(),
        fence_hint: fence::hint(now),
        term,
        min_uptime: None,
        ticket: None,
        index: 0,
        is_exact: false,
        outer: Vec::new(),
    }
}

async fn of(node: &dyn Node, claim: &Claim, limit: Duration) -> Trial {
    let answer = clock::until(clock::now() + limit, node.acquire(claim)).await;
    let vote = answer.map_or_else(|| Vote::Failed(Fault::timeout(limit)), |answer| answer.vote);
    // Whatever was answered: the key may be set.
    let release = node.release(&claim.release(QueueAction::None));
    let released = clock::until(clock::now() + limit, release).await;
    clock::until(clock::now() + limit, node.written()).await;
    judged(vote, released.unwrap_or_else(|| ReleaseReply::Failed(Fault::timeout(limit))))
}

fn judged(vote: Vote, released: ReleaseReply) -> Trial {
    match (vote, released) {
        (Vote::Granted { .. }, ReleaseReply::Released) => Trial::Passed,
        (Vote::Granted { .. }, ReleaseReply::NotOurs(how)) => {
            Trial::Failed(Fault::new(FaultKind::Unavailable, format!("a lock was lost at once: {how}")))
        }
        (Vote::Granted { .. }, ReleaseReply::Failed(fault)) | (Vote::Failed(fault), _) => Trial::Failed(fault),
        (Vote::Held(occupant), _) => match occupant.holder() {
            // The node has granted it to another doctor a moment ago.
            Some((_, details)) if details.cmd == COMMAND => Trial::Passed,
            _ => Trial::Undecided(format!("{NAME} is held by another client")),
        },
        (Vote::Reserved(_) | Vote::Superseded(_) | Vote::Restarted, _) => {
            Trial::Undecided(format!("it is another client's turn to take {NAME}"))
        }
    }
}

/// Whether the node refuses rlock.
pub(super) fn refuses(trial: Option<&Trial>) -> bool {
    fails(trial) && matches!(trial, Some(Trial::Failed(fault)) if fault.kind == FaultKind::Refused)
}

/// Whether the node gives no vote. A user who may not use the name of this lock may use others.
pub(super) fn fails(trial: Option<&Trial>) -> bool {
    matches!(trial, Some(Trial::Failed(fault)) if !fault.is_about_names())
}

pub(super) fn judge(trial: Option<&Trial>, votes: Votes, say: &mut impl FnMut(Level, String, &str)) {
    match trial {
        None | Some(Trial::Passed) => {}
        Some(Trial::Undecided(why)) => say(Level::Warn, format!("no lock could be tried: {why}"), "try again"),
        Some(Trial::Failed(fault)) if fault.is_about_names() => {
            let what = format!("no lock could be tried: the user may not use {NAME}");
            say(Level::Warn, what, "grant the line of rlock doctor -k rlock-doctor too, or leave --try out");
        }
        Some(Trial::Failed(fault)) => {
            let (level, cure) = match fault.kind {
                FaultKind::Refused => (votes.refusal(), fault.remedy.unwrap_or("see its log")),
                FaultKind::Unfit => (Level::Unfit(Outcome::Config), "mend what it says, or name another server"),
                FaultKind::Unavailable | FaultKind::Unknown => (votes.missing(), "see the other findings, and its log"),
            };
            say(level, format!("a lock could not be taken and given back: {}", fault.why.trim_end_matches('.')), cure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fault::Denied;
    use crate::lock::fence::Fence;
    use crate::lock::instant::Instant;
    use crate::lock::lease::Revoked;
    use crate::lock::occupant::{Occupant, OccupantKind};

    fn fault(kind: FaultKind, why: &str) -> Fault {
        Fault::new(kind, why)
    }

    fn granted() -> Vote {
        let (until, fence) = (Instant::from_nanos(9), Fence::new(7).unwrap_or_else(|| panic!()));
        Vote::Granted { until, fence, index: 0 }
    }

    fn held_by(cmd: &str) -> Vote {
        let details = Details { cmd: cmd.to_owned(), ..Details::default() };
        Vote::Held(Box::new(Occupant::new(OccupantKind::Holder(Token::fresh(), details), None)))
    }

    #[test]
    fn a_node_passes_that_gave_the_lock_and_took_it_back() {
        assert_eq!(judged(granted(), ReleaseReply::Released), Trial::Passed);
        assert_eq!(judged(held_by("doctor"), ReleaseReply::NotOurs(Revoked::TakenOver)), Trial::Passed);
        assert!(matches!(judged(held_by("x"), ReleaseReply::NotOurs(Revoked::TakenOver)), Trial::Undecided(_)));
        assert!(matches!(judged(granted(), ReleaseReply::NotOurs(Revoked::Missing)), Trial::Failed(_)));
        let timeout = || Fault::timeout(Duration::from_secs(1));
        assert_eq!(judged(granted(), ReleaseReply::Failed(timeout())), Trial::Failed(timeout()));
        assert_eq!(judged(Vote::Failed(timeout()), ReleaseReply::Released), Trial::Failed(timeout()));
    }

    #[test]
    fn a_failed_trial_costs_the_vote_unless_only_its_name_is_refused() {
        let failed = |kind, why| Some(Trial::Failed(fault(kind, why)));
        assert!(fails(failed(FaultKind::Unavailable, "OOM").as_ref()));
        assert!(fails(failed(FaultKind::Refused, "NOPERM no permissions to run the 'eval' command").as_ref()));
        let name = Trial::Failed(Fault::denied(Denied::Key, "NOPERM No permissions to access a key", "grant it"));
        assert!(!fails(Some(&name)) && !fails(Some(&Trial::Passed)) && !fails(None));
    }
}
