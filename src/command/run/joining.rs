//! A wait for a lock that an outer rlock holds: it would wait for itself, so it asks to run under that lock instead.

use std::time::Duration;

use super::wait::{Acquired, Purpose};
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::job::nested::outer::{JoinError, OuterRun};
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::report::Event;
use crate::settings::LockSettings;

/// Time that an outer rlock gets to answer before the nodes are asked again.
const ANSWER: Duration = Duration::from_secs(1);

/// Time after which rlock gives up on an outer rlock that refuses connections. It refuses them also while it gives the lock
/// back.
const REFUSALS: Duration = Duration::from_secs(2);

/// The result of an attempt to join an outer lock.
pub(in crate::command) enum Joined {
    /// The wait is over: the command runs under the outer lock.
    Over(Acquired),
    /// The outer rlock does not answer.
    Silent,
    /// The outer rlock cannot be reached, or is giving the lock back.
    Refused,
}

/// The attempts to run under an outer lock.
#[derive(Default)]
pub(in crate::command) struct Joining {
    /// The outer lock that refused us, and since when.
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
                lock.report.say(&Event::Nested { occupant });
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

    /// Forgets the refusals: the nodes name another holder, or none.
    pub(in crate::command) fn forget(&mut self) {
        self.refused = None;
    }
}

/// The failure for a lock that `rlock acquire` took: no rlock keeps it, so the command could outlive it.
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
