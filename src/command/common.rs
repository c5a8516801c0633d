//! Work that several subcommands share: the runtime, the nodes, output on stdout, and the failures,
//! warnings and events from what the nodes said.

use std::io;

use tokio::runtime;

use crate::exit::Failure;
use crate::hold::Nodes;
use crate::hold::observe::Observations;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::quorum::Quorum;
use crate::report::{Event, Reporter, failures};
use crate::settings::{LockSettings, NodeSettings};
use crate::store::Store;

/// Runs `work` to its end, on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let result = runtime.block_on(work);
    // Dropping it would wait for a name look-up that hangs. The kernel frees the rest.
    std::mem::forget(runtime);
    result
}

/// Writes `text` to stdout, at once if the kernel takes it. std would report success for a closed
/// stdout.
pub(super) fn write_all(mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match nix::unistd::write(io::stdout(), text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Prints `text`; false if its reader has gone away (`| head`).
pub(super) fn print(text: &[u8]) -> anyhow::Result<bool> {
    match write_all(text) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failures::not_printed(&error).into()),
    }
}

/// Returns the failure of a command to which too few nodes gave an answer about a lock.
pub(super) fn unanswered(key: &Key, quorum: Quorum, faults: &Faults) -> Failure {
    failures::no_majority(faults, quorum).of(key)
}

/// Refuses to judge a lock whose holder uses another number of nodes: a majority of our nodes may
/// be a minority of the holder's.
pub(super) fn same_list(key: &Key, nodes: &Nodes, looks: &Observations) -> Result<(), Failure> {
    let other = looks.census().other_list();
    other.map_or(Ok(()), |(node, why)| {
        Err(failures::other_list(nodes[node].name(), &why).of(key))
    })
}

/// Opens the nodes of each lock. The locks on one server share its connections.
pub(super) fn open_each(settings: &LockSettings) -> Result<Vec<Nodes>, Failure> {
    let limit = settings.schedule().node_timeout();
    let stores = settings
        .store
        .open(limit, settings.keys.len(), settings.copies)?;
    let nodes = |key| nodes_of(&stores, key);
    Ok(settings.keys.iter().map(nodes).collect())
}

/// Opens the nodes of `key`.
pub(super) fn open(key: &Key, reach: &NodeSettings) -> Result<Nodes, Failure> {
    let stores = reach.store.open(reach.limit, 1, reach.copies)?;
    Ok(nodes_of(&stores, key))
}

/// Returns the nodes of `key`.
pub(super) fn nodes_of(stores: &[Box<dyn Store>], key: &Key) -> Nodes {
    stores.iter().map(|store| store.open(key)).collect()
}

/// Warns of the nodes that refuse rlock while a majority of the others answers.
pub(super) fn warn_of_refusals(report: &Reporter, faults: &Faults) {
    for refusal in faults.refusals() {
        report.say(&Event::Refused {
            node: &refusal.name,
            fault: &refusal.fault,
        });
    }
}
