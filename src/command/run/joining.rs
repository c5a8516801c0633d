//! A wait for a lock that an outer rlock holds: it would wait for itself, so it asks to run under that lock instead.

use std::time::Duration;

use crate::clock;
use crate::command::purpose::Purpose;
use crate::exit::{Failure, Outcome};
use crate::job::nested::outer::{JoinError, OuterRun};
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::lock::waiting::Unjoined;
use crate::report::Event;
use crate::settings::LockSettings;

/// Time that an outer rlock gets to answer before the nodes are asked again.
const ANSWER: Duration = Duration::from_secs(1);

/// Asks the rlock of `token`, which a majority of the nodes named as the holder, to let a command run under its lock.
pub(in crate::command) async fn join(
    lock: &LockSettings,
    purpose: Purpose<'_>,
    holder: &Occupant,
    token: Token,
) -> Result<Result<OuterRun, Unjoined>, Failure> {
    let is_kept = holder.holder().is_some_and(|(_, details)| details.kept);
    match purpose {
        Purpose::Command(..) if !is_kept => return Err(unkept(lock)),
        Purpose::Command(..) => {}
        Purpose::Steps => return Err(inside(lock, holder)),
    }
    Ok(match clock::until(clock::now() + ANSWER, OuterRun::join(token)).await {
        Some(Ok(outer)) => {
            lock.report.say(&Event::Nested { occupant: holder });
            Ok(outer)
        }
        Some(Err(JoinError::Busy)) | None => Err(Unjoined::Silent),
        Some(Err(JoinError::Refused)) => Err(Unjoined::Refused),
    })
}

/// The failure for a lock that `rlock acquire` took: no rlock keeps it, so the command could outlive it.
fn unkept(lock: &LockSettings) -> Failure {
    let why = "held by rlock acquire already, with the RLOCK_TOKEN of this environment: release it first, or ask rlock check and run the command without rlock run";
    Failure::about(&lock.key, Outcome::Usage, why)
}

fn inside(lock: &LockSettings, occupant: &Occupant) -> Failure {
    let why = "and this is part of its command, so acquire would wait for itself; ask rlock check";
    Failure::about(&lock.key, Outcome::Usage, format_args!("{}, {why}", occupant.named()))
}

/// Returns the failure of a wait for an outer rlock that could not be reached.
pub(in crate::command) fn unreachable(lock: &LockSettings, occupant: &Occupant) -> Failure {
    let why = "this is part of its command, but that rlock cannot be reached from here (another host, container or user); run the command without rlock run, and ask rlock check first";
    Failure::about(&lock.key, Outcome::Usage, format_args!("{}: {why}", occupant.named()))
}
