//! Opens the nodes that the command line names, and warns about them.

use std::time::Duration;

use crate::cli::OutputArgs;
use crate::exit::{Failure, Outcome};
use crate::lock::details::{LONGEST_NOTE, fits};
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::node::Node;
use crate::node::local::LocalNode;
use crate::node::redis::RedisNode;
use crate::node::redis::connection::Access;
use crate::redlock::Nodes;
use crate::report::{self, Event, Reporter};
use crate::settings::{LockSettings, StoreConfig};

/// Warns if no node was named: `sudo`, cron and `ssh HOST rlock` drop `RLOCK_NODE`, and the default, a server on this
/// machine, would give each host a lock of its own.
pub(super) fn warn_of_default_node(place: &StoreConfig, node_is_default: bool, output: &OutputArgs, key: Option<&Key>) {
    if node_is_default && place.local().is_none() && !output.quiet {
        report::print(output.log, &Event::DefaultNode { node: &place.shown() }, key);
    }
}

/// Warns of settings of `run` and `acquire` that are taken otherwise than the user may expect.
pub(super) fn warn_of_settings(settings: &LockSettings, output: &OutputArgs) {
    if settings.note.as_deref().is_some_and(|note| !fits(note, LONGEST_NOTE)) {
        settings.report.say(&Event::NoteCut { limit: LONGEST_NOTE });
    }
    warn_of_default_node(&settings.place, settings.node_is_default, output, Some(&settings.key));
}

/// Opens the nodes; each exchange takes `limit` at most.
pub(super) fn open(place: &StoreConfig, limit: Duration) -> Result<Nodes, Failure> {
    open_as(place, |access| RedisNode::new(access, limit))
}

/// Opens the nodes for this many observations at once, with their waiters.
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

/// Warns of the nodes that refuse rlock while a majority of the others answers.
pub(super) fn warn_of_refusals(report: &Reporter, faults: &Faults) {
    for refusal in faults.refusals() {
        report.say(&Event::Refused { node: &refusal.name, fault: &refusal.fault });
    }
}
