//! The failures that several subcommands share, from what the nodes said.

use crate::exit::Failure;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::token::Token;
use crate::redlock::Nodes;
use crate::redlock::observe::Observations;
use crate::report::Problem;

/// Returns the failure of a command to which too few nodes gave an answer about a lock.
pub(super) fn unanswered(key: &Key, nodes: &Nodes, faults: &Faults, node_is_default: bool) -> Failure {
    Problem::NoMajority { faults, quorum: nodes.quorum(), node_is_default }.about(key)
}

/// Refuses to judge a lock whose holder uses another number of nodes: a majority of our nodes may be a minority of the
/// holder's. `may_force`: the user may go on with `--foreign`.
pub(super) fn same_list(key: &Key, nodes: &Nodes, looks: &Observations, may_force: bool) -> Result<(), Failure> {
    let other = looks.census().other_list();
    other.map_or(Ok(()), |(node, why)| {
        Err(Problem::OtherList { node: nodes[node].name(), why: &why, may_force }.about(key))
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
        Some(_) => Problem::NotTheHolder { census: &census }.about(key),
    }
}
