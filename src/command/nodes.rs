//! The nodes that the command line names, and what is said when they do not do.

use std::time::Duration;

use tokio::runtime;

use crate::cli::OutputArgs;
use crate::exit::{Failure, Outcome};
use crate::lock::census::{Census, State};
use crate::lock::details::{LONGEST_NOTE, fits};
use crate::lock::fault::{FaultKind, Faults};
use crate::lock::key::Key;
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::node::Node;
use crate::node::local::LocalNode;
use crate::node::redis::RedisNode;
use crate::node::redis::connection::Access;
use crate::redlock::Nodes;
use crate::redlock::observe::Observations;
use crate::report::{self, Event, Reporter};
use crate::settings::{LockSettings, StoreConfig};

/// Runs `work` to its end, on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let result = runtime.block_on(work);
    // Not dropped: a name look-up that hangs must not keep us, and what is left is gone with the process.
    std::mem::forget(runtime);
    result
}

/// Says which node is used where none was named: `sudo`, cron and `ssh HOST rlock` drop `RLOCK_NODE`, and a server on this
/// machine would then give each host a lock of its own.
pub(super) fn tell_of_default_node(place: &StoreConfig, node_is_default: bool, output: &OutputArgs, key: Option<&Key>) {
    if node_is_default && place.local().is_none() && !output.quiet {
        report::print(output.log, &Event::DefaultNode { node: &place.shown() }, key);
    }
}

/// The same for `run` and `acquire`, which also say that a note is cut.
pub(super) fn tell_of_defaults(settings: &LockSettings, output: &OutputArgs) {
    if settings.note.as_deref().is_some_and(|note| !fits(note, LONGEST_NOTE)) {
        settings.report.say(&Event::NoteCut { limit: LONGEST_NOTE });
    }
    tell_of_default_node(&settings.place, settings.node_is_default, output, Some(&settings.key));
}

/// Makes the nodes ready to be asked; each exchange takes `limit` at most.
pub(super) fn open(place: &StoreConfig, limit: Duration) -> Result<Nodes, Failure> {
    open_as(place, |access| RedisNode::new(access, limit))
}

/// The same, for so many looks at once that also tell who waits.
pub(super) fn open_for_looks(place: &StoreConfig, limit: Duration, looks: usize) -> Result<Nodes, Failure> {
    open_as(place, |access| RedisNode::for_looks(access, limit, looks))
}

fn open_as(place: &StoreConfig, server: impl Fn(Access) -> RedisNode) -> Result<Nodes, Failure> {
    let Some(dir) = place.local() else {
        let servers = place.servers().iter();
        return Ok(servers.map(|access| -> Box<dyn Node> { Box::new(server(access.clone())) }).collect());
    };
    let node = LocalNode::open(dir).map_err(|why| Failure::new(Outcome::Config, why))?;
    Ok(std::iter::once::<Box<dyn Node>>(Box::new(node)).collect())
}

/// Returns the failure of a command to which too few nodes gave an answer about a lock.
pub(super) fn unanswered(key: &Key, nodes: &Nodes, faults: &Faults, node_is_default: bool) -> Failure {
    no_majority(&key.to_string(), nodes, faults, node_is_default)
}

/// Returns the failure of a command to which too few nodes gave an answer, which was about `what`.
pub(super) fn no_majority(what: &str, nodes: &Nodes, faults: &Faults, node_is_default: bool) -> Failure {
    let outcome = outcome_of(faults, nodes.quorum());
    let hint = match (outcome, node_is_default) {
        (Outcome::Unreachable, true) => "; name a server with --node or RLOCK_NODE",
        _ => "",
    };
    Failure::new(outcome, format!("{what}: {}{hint}", faults.no_majority(nodes.quorum())))
}

fn outcome_of(faults: &Faults, quorum: Quorum) -> Outcome {
    match faults.kind(quorum) {
        FaultKind::Refused => Outcome::Refused,
        FaultKind::Unfit => Outcome::Config,
        FaultKind::Unavailable | FaultKind::Unknown => Outcome::Unreachable,
    }
}

/// Warns of the nodes that refuse us, of which a majority that answered did without.
pub(super) fn warn_of_refusals(report: &Reporter, faults: &Faults) {
    for refusal in faults.refusals() {
        report.say(&Event::Refused { node: &refusal.name, fault: &refusal.fault });
    }
}

/// Refuses to judge a lock whose holder uses another number of nodes: what a majority of ours says is then perhaps a
/// minority's word.
pub(super) fn same_list(key: &Key, nodes: &Nodes, looks: &Observations) -> Result<(), Failure> {
    let other = looks.census().other_list();
    other.map_or(Ok(()), |(node, why)| {
        Err(Failure::new(Outcome::Config, format!("{key}: {}: {why}", nodes[node].name())))
    })
}

/// The end of a command whose token has no majority: nobody's fault, but somebody may want to know who has the lock.
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
        Some(_) => Failure::new(Outcome::No, format!("{key}: not the holder's token: {}", whose(&census))),
    }
}

/// Who has the lock, in words.
fn whose(census: &Census) -> String {
    let votes = |number: usize| format!("{number} of {} nodes", census.quorum().total());
    match (census.state(), census.leading()) {
        (_, None) => "nobody holds the lock".to_owned(),
        (State::Held, Some((occupant, _))) => occupant.to_string(),
        (State::Free, Some((occupant, number))) => {
            format!("nobody holds the lock; at {} it is {occupant}", votes(number))
        }
        (State::Unknown, Some((occupant, number))) => format!("at {} it is {occupant}", votes(number)),
    }
}
