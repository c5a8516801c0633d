//! Work that several subcommands share: the runtime, output on stdout, and the failures and events from what the nodes said.

use std::io;

use tokio::runtime;

use crate::exit::Failure;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::redlock::observe::{Observations, observe_token};
use crate::redlock::{Nodes, ReleaseOutcome};
use crate::report::{AtNode, Event, Problem, Reporter};
use crate::settings::token::HeldLock;

/// Runs `work` to its end, on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let result = runtime.block_on(work);
    // Dropping it would wait for a name look-up that hangs. The kernel frees the rest.
    std::mem::forget(runtime);
    result
}

/// Writes `text` to stdout, at once if the kernel takes it. std would report success for a closed stdout.
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
        Err(error) => Err(Problem::NotPrinted { error: &error }.failure().into()),
    }
}

/// Returns the failure of a command to which too few nodes gave an answer about a lock.
pub(super) fn unanswered(key: &Key, nodes: &Nodes, faults: &Faults) -> Failure {
    Problem::NoMajority { faults, quorum: nodes.quorum() }.about(key)
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
pub(super) fn not_the_holder(key: &Key, nodes: &Nodes, looks: &Observations, token: Token) -> Failure {
    let census = looks.census();
    match census.is_held_by(token) {
        None => unanswered(key, nodes, &looks.faults),
        Some(_) => Problem::NotTheHolder { census: &census }.about(key),
    }
}

/// Refuses to change a lock that an outer `rlock run` renews. Its command would go on without the lock, or with a lease
/// that its holder does not know.
///
/// The nodes confirm what the variables claim, and name the holder. A lock that `acquire` took is the caller's. If too few
/// nodes answer, nothing is changed: *unknown is not no*.
pub(super) async fn refuse_inside(lock: &HeldLock, nodes: &Nodes) -> Result<(), Failure> {
    let HeldLock { key, token, reach, .. } = lock;
    if !lock.is_kept {
        return Ok(());
    }
    let looks = observe_token(nodes, key, *token, reach.limit, |census| census.tells_whose(*token)).await;
    let census = looks.census();
    if census.is_held_by(*token) != Some(true) {
        return Err(not_the_holder(key, nodes, &looks, *token));
    }
    match census.entry(*token).and_then(Occupant::holder) {
        Some((_, details)) if !details.kept => Ok(()),
        holder => {
            let pid = holder.and_then(|(_, details)| details.pid);
            Err(Problem::KeptByRun { pid }.about(key))
        }
    }
}

/// Reports the outcomes of the releases of all locks of `report`.
pub(super) fn report_releases(report: &Reporter, freed: &[ReleaseOutcome]) {
    for (key, freed) in report.keys.iter().zip(freed) {
        report_release(&report.of(key), freed);
    }
}

/// Reports the outcome of a release.
pub(super) fn report_release(report: &Reporter, freed: &ReleaseOutcome) {
    match freed {
        ReleaseOutcome::Ours => report.say(&Event::Released),
        ReleaseOutcome::NotOurs(_) => report.say(&Event::NothingToRelease),
        ReleaseOutcome::Unconfirmed(faults) => {
            for there in faults.iter() {
                report.say(&Event::NotReleased(AtNode { node: &there.name, why: &there.fault.why }));
            }
        }
    }
}
