//! The failures that several subcommands share, in words: what failed, where, and what to do.

use crate::exit::{Failure, Outcome};
use crate::lock::census::{Census, State};
use crate::lock::fault::{FaultKind, Faults};
use crate::lock::key::Key;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::redlock::Nodes;
use crate::redlock::observe::Observations;

/// Returns the failure of a command to which too few nodes gave an answer about a lock.
pub(super) fn unanswered(key: &Key, nodes: &Nodes, faults: &Faults, node_is_default: bool) -> Failure {
    let (outcome, why) = without_majority(nodes, faults, node_is_default);
    Failure::about(key, outcome, why)
}

/// Returns the failure of a command to which too few nodes gave an answer, which was about `what`.
pub(super) fn no_majority(what: &str, nodes: &Nodes, faults: &Faults, node_is_default: bool) -> Failure {
    let (outcome, why) = without_majority(nodes, faults, node_is_default);
    Failure::new(outcome, format!("{what}: {why}"))
}

fn without_majority(nodes: &Nodes, faults: &Faults, node_is_default: bool) -> (Outcome, String) {
    let outcome = outcome_of(faults, nodes.quorum());
    let hint = match (outcome, node_is_default) {
        (Outcome::Unreachable, true) => "; name a server with --node or RLOCK_NODE".to_owned(),
        (Outcome::Refused, _) => remedy(faults),
        _ => String::new(),
    };
    (outcome, format!("{}{hint}", faults.no_majority(nodes.quorum())))
}

/// Returns the remedy of a refusal, to be put behind the faults.
pub(super) fn remedy(faults: &Faults) -> String {
    faults.refusals().next().map_or_else(String::new, |refusal| format!("; {}", refusal.fault.cure()))
}

fn outcome_of(faults: &Faults, quorum: Quorum) -> Outcome {
    match faults.kind(quorum) {
        FaultKind::Refused => Outcome::Refused,
        FaultKind::Unfit => Outcome::Config,
        FaultKind::Unavailable | FaultKind::Unknown => Outcome::Unreachable,
    }
}

/// Refuses to judge a lock whose holder uses another number of nodes: a majority of our nodes may be a minority of the
/// holder's.
pub(super) fn same_list(key: &Key, nodes: &Nodes, looks: &Observations) -> Result<(), Failure> {
    let other = looks.census().other_list();
    other.map_or(Ok(()), |(node, why)| {
        Err(Failure::about(key, Outcome::Config, format_args!("{}: {why}", nodes[node].name())))
    })
}

/// Returns the failure of a subcommand whose token has no majority. It names the holder.
pub(super) fn not_the_holder(
    key: &Key,
    nodes: &Nodes,
    looks: &Observations,
    token: Token,
    node_is_default: bool,
) -> Failure {
    let census = looks.census();
    match census.is_held_by(token) {
        None => unanswered(key, nodes, &looks.faults, node_is_default),
        Some(_) => Failure::about(key, Outcome::No, format_args!("not the holder's token: {}", whose(&census))),
    }
}

/// Describes the holder, as far as the nodes agree.
fn whose(census: &Census) -> String {
    let votes = |number: usize| format!("{number} of {} nodes", census.quorum().total());
    match (census.state(), census.leading()) {
        (_, None) => "the lock is free".to_owned(),
        (State::Held, Some((occupant, _))) => occupant.to_string(),
        (State::Free, Some((occupant, number))) => {
            format!("the lock is free; at {} it is {occupant}", votes(number))
        }
        (State::Unknown, Some((occupant, number))) => format!("at {} it is {occupant}", votes(number)),
    }
}
