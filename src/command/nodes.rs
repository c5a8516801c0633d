//! Opens the nodes of a command, and warns of settings and refusals.

use std::time::Duration;

use crate::cli::{StrangeVariable, strange_variables};
use crate::exit::Failure;
use crate::lock::details::{LONGEST_NOTE, fits};
use crate::lock::fault::Faults;
use crate::lock::request::Copies;
use crate::node::Store;
use crate::node::local::LocalStore;
use crate::node::place::Way;
use crate::node::redis::RedisServer;
use crate::redlock::Nodes;
use crate::report::{Event, Problem, Reporter};
use crate::settings::{LockSettings, StoreConfig};

/// Warns of settings of `run` and `acquire` that are taken otherwise than the user may expect.
pub(super) fn warn_of_settings(settings: &LockSettings) {
    if settings.note.as_deref().is_some_and(|note| !fits(note, LONGEST_NOTE)) {
        settings.report.say(&Event::NoteCut { limit: LONGEST_NOTE });
    }
    if settings.report.tells_steps() {
        for StrangeVariable { name, meant } in strange_variables() {
            settings.report.say(&Event::StrangeVariable { name: &name, meant: meant.as_deref() });
        }
    }
}

/// Opens the nodes of each lock. The locks on one server share its connections.
pub(super) fn open_each(settings: &LockSettings) -> Result<Vec<Nodes>, Failure> {
    let limit = settings.schedule.node_timeout();
    let stores = stores(&settings.place, limit, settings.keys.len(), settings.copies)?;
    Ok(settings.keys.iter().map(|_| nodes_of(&stores)).collect())
}

/// Opens the nodes; each exchange takes `limit` at most. Of the writes only those with `copies` count.
pub(super) fn open(place: &StoreConfig, limit: Duration, copies: Option<Copies>) -> Result<Nodes, Failure> {
    Ok(nodes_of(&stores(place, limit, 1, copies)?))
}

/// Returns nodes for one lock, or for observations of many.
pub(super) fn nodes_of(stores: &[Box<dyn Store>]) -> Nodes {
    stores.iter().map(|store| store.lock()).collect()
}

/// Opens the stores; each exchange takes `limit` at most. `observations`: number of locks that are asked about at once. Of the
/// writes only those with `copies` count.
pub(super) fn stores(
    place: &StoreConfig,
    limit: Duration,
    observations: usize,
    copies: Option<Copies>,
) -> Result<Vec<Box<dyn Store>>, Failure> {
    let Some(dir) = place.local() else {
        let server =
            |way: &Way| -> Box<dyn Store> { Box::new(RedisServer::new(way, limit, observations).with_copies(copies)) };
        return Ok(place.servers().iter().map(server).collect());
    };
    let store = LocalStore::open(dir).map_err(|why| Problem::Store { why }.failure())?;
    Ok(vec![Box::new(store)])
}

/// Warns of the nodes that refuse rlock while a majority of the others answers.
pub(super) fn warn_of_refusals(report: &Reporter, faults: &Faults) {
    for refusal in faults.refusals() {
        report.say(&Event::Refused { node: &refusal.name, fault: &refusal.fault });
    }
}
