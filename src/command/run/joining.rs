//! A wait for a lock that an outer rlock holds: it would wait for itself, so it asks to run under that lock instead.

use std::time::Duration;

use crate::clock;
use crate::command::acquisition::Purpose;
use crate::exit::Failure;
use crate::job::nested::outer::{JoinError, OuterRun};
use crate::lock::key::Key;
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::lock::waiting::Unjoined;
use crate::report::Problem;

/// Time that an outer rlock gets to answer before the nodes are asked again.
const ANSWER: Duration = Duration::from_secs(1);

/// Asks the rlock of `token`, which a majority of the nodes named as the holder of `key`, to let a command run under its lock.
/// `mode`: the kind of lock that the command wants.
pub(in crate::command) async fn join(
    key: &Key,
    mode: Mode,
    purpose: Purpose<'_>,
    holder: &Occupant,
    token: Token,
) -> Result<Result<OuterRun, Unjoined>, Failure> {
    if holder.mode().is_some_and(|outer| !outer.covers(mode)) {
        return Err(Problem::OtherKindInside { holder, inner: mode }.about(key));
    }
    let is_kept = holder.holder().is_some_and(|(_, details)| details.kept);
    match purpose {
        // No rlock keeps the lock of an `acquire`, so the command could outlive it.
        Purpose::Command(..) if !is_kept => return Err(Problem::KeptByNoRun.about(key)),
        Purpose::Command(..) => {}
        Purpose::Steps => return Err(Problem::WouldWaitForItself { holder }.about(key)),
    }
    Ok(match clock::until(clock::now() + ANSWER, OuterRun::join(token)).await {
        Some(Ok(outer)) => Ok(outer),
        Some(Err(JoinError::Busy)) | None => Err(Unjoined::Silent),
        Some(Err(JoinError::Refused)) => Err(Unjoined::Refused),
    })
}
