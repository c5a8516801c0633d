//! A wait that meets a lock which an rlock above us holds: to wait for it would be to wait for ourselves.

use std::time::Duration;

use super::wait::{Acquired, Purpose};
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::job::nested::outer::{JoinError, OuterRun};
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::settings::LockSettings;

/// How long an outer rlock may take to answer before the nodes are asked again.
const ANSWER: Duration = Duration::from_secs(1);

/// How long an outer rlock that cannot be reached may hold the lock before we give up. One that is giving the lock back
/// cannot be reached either.
const REFUSALS: Duration = Duration::from_secs(2);

/// What became of a look at the holder.
pub(in crate::command) enum Joined {
    /// The lock is held above us, and that ends the wait.
    Over(Acquired),
    /// The rlock that holds it does not answer.
    Silent,
    /// It cannot be reached, or is giving the lock back.
    Refused,
}

/// The attempts to run under an outer lock.
#[derive(Default)]
pub(in crate::command) struct Joining {
    /// The outer lock that could not be joined, since when.
    refused: Option<(Token, Instant)>,
}

impl Joining {
    /// Asks the rlock of `token`, which a majority of the nodes named as the holder, to let us run under its lock.
    pub(in crate::command) async fn join(
        &mut self,
        lock: &LockSettings,
        purpose: Purpose<'_>,
        occupant: &Occupant,
        token: Token,
    ) -> Result<Joined, Failure> {
        let kept = occupant.holder().is_some_and(|(_, details)| !details.acquired);
        match purpose {
            Purpose::Command(..) if !kept => return Err(unkept(lock)),
            Purpose::Command(..) => {}
            Purpose::Steps => return Err(inside(lock, occupant)),
        }
        let asked = OuterRun::join(token);
        Ok(match clock::until(clock::now() + ANSWER, asked).await {
            Some(Ok(outer)) => {
                lock.report.step("nested", format_args!("running under the outer lock, {}", occupant.named()));
                Joined::Over(Acquired::Nested(Box::new(outer), occupant.named()))
            }
            Some(Err(JoinError::Busy)) | None => {
                self.refused = None;
                Joined::Silent
            }
            Some(Err(JoinError::Refused)) => {
                let now = clock::now();
                let since = self.refused.filter(|(refused, _)| *refused == token).map_or(now, |(_, since)| since);
                if now.since(since) >= REFUSALS {
                    return Err(unreachable(lock, occupant));
                }
                self.refused = Some((token, since));
                Joined::Refused
            }
        })
    }

    /// The nodes say something else by now.
    pub(in crate::command) fn forget(&mut self) {
        self.refused = None;
    }
}

/// Under it the command would run on when it ends.
fn unkept(lock: &LockSettings) -> Failure {
    let why = "held by rlock acquire already, with the RLOCK_TOKEN of this environment: release it first, or ask rlock check and run the command without rlock run";
    Failure::new(Outcome::Usage, format!("{}: {why}", lock.key))
}

fn inside(lock: &LockSettings, occupant: &Occupant) -> Failure {
    let why = "and this is part of its command, so acquire would wait for itself; ask rlock check";
    Failure::new(Outcome::Usage, format!("{}: {}, {why}", lock.key, occupant.named()))
}

fn unreachable(lock: &LockSettings, occupant: &Occupant) -> Failure {
    let why = "this is part of its command, but that rlock cannot be reached from here (another host, container or user); run the command without rlock run, and ask rlock check first";
    Failure::new(Outcome::Usage, format!("{}: {}: {why}", lock.key, occupant.named()))
}
