//! The subcommands, one public module each. What several share is private:
//!
//! * the way to the locks ([`acquisition`]), our own or an outer run's ([`joining`]), under which
//!   name ([`caller`]), and what covers the command then ([`cover`])
//! * here: the nodes, the runtime, output on stdout and failures

pub mod acquire;
mod acquisition;
pub mod break_lock;
mod caller;
pub mod config;
mod cover;
pub mod doctor;
pub mod generate;
pub mod held;
pub mod inspect;
mod joining;
pub mod run;

use std::io;

use tokio::runtime;

use crate::cli::Command;
use crate::exit::{Failure, Outcome};
use crate::hold::Nodes;
use crate::hold::observe::Observations;
use crate::job::spawn::Inherited;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::quorum::Quorum;
use crate::report::{Event, Reporter, failures};
use crate::settings::{LockSettings, NodeSettings, Sources};
use crate::store::Store;

/// Runs the subcommand.
pub fn dispatch(
    command: Command,
    sources: &Sources,
    inherited: &Inherited,
) -> anyhow::Result<Outcome> {
    let outcome = match command {
        Command::Run(args) => run::run(*args.0, sources, inherited),
        Command::Acquire(args) => acquire::acquire(&args.0, sources, inherited),
        Command::Renew(args) => held::renew(&args, sources),
        Command::Release(args) => held::release(&args, sources),
        Command::Check(args) => held::check(&args, sources),
        Command::Inspect(args) => inspect::inspect(&args, sources, inherited),
        Command::Break(args) => break_lock::break_lock(&args, sources),
        Command::Doctor(args) => doctor::doctor(&args, sources),
        Command::Config(args) => config::config(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { subcommand } => generate::man(subcommand.as_deref()),
    };
    outcome.map_err(|error| match error.downcast::<Failure>() {
        Ok(failure) => sources.explain(failure).into(),
        Err(error) => error,
    })
}

/// Runs `work` to its end, on this thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let result = runtime.block_on(work);
    // Dropping it would wait for a name look-up that hangs. The kernel frees the rest.
    std::mem::forget(runtime);
    result
}

/// Writes `text` to stdout, at once if the kernel takes it. std would report success for a closed
/// stdout.
fn write_all(mut text: &[u8]) -> io::Result<()> {
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
fn print(text: &[u8]) -> anyhow::Result<bool> {
    match write_all(text) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failures::not_printed(&error).into()),
    }
}

/// Returns the failure of a command to which too few nodes gave an answer about a lock.
fn unanswered(key: &Key, quorum: Quorum, faults: &Faults) -> Failure {
    failures::no_majority(faults, quorum).of(key)
}

/// Refuses to judge a lock whose holder uses another number of nodes: a majority of our nodes may
/// be a minority of the holder's.
fn same_list(key: &Key, nodes: &Nodes, looks: &Observations) -> Result<(), Failure> {
    let other = looks.census().other_list();
    other.map_or(Ok(()), |(node, why)| {
        Err(failures::other_list(nodes[node].name(), &why).of(key))
    })
}

/// Opens the nodes of each lock. The locks on one server share its connections.
fn open_each(settings: &LockSettings) -> Result<Vec<Nodes>, Failure> {
    let limit = settings.schedule().node_timeout();
    let stores = settings
        .store
        .open(limit, settings.keys.len(), settings.writes)?;
    let nodes = |key| nodes_of(&stores, key);
    Ok(settings.keys.iter().map(nodes).collect())
}

/// Opens the nodes of `key`.
fn open(key: &Key, reach: &NodeSettings) -> Result<Nodes, Failure> {
    let stores = reach.store.open(reach.limit, 1, reach.writes)?;
    Ok(nodes_of(&stores, key))
}

/// Returns the nodes of `key`.
fn nodes_of(stores: &[Box<dyn Store>], key: &Key) -> Nodes {
    stores.iter().map(|store| store.open(key)).collect()
}

/// Warns of the nodes that refuse rlock while a majority of the others answers.
fn warn_of_refusals(report: &Reporter, faults: &Faults) {
    for refusal in faults.refusals() {
        report.say(&Event::Refused {
            node: &refusal.name,
            fault: &refusal.fault,
        });
    }
}
