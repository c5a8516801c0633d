//! A wait for locks that outer rlocks hold: it would wait for itself, so it asks to run under those
//! locks instead.

use std::time::Duration;

use futures_util::future::join_all;

use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::hold::Nodes;
use crate::hold::observe::observe;
use crate::job::nested::outer::{JoinError, OuterRun};
use crate::lock::backoff::UNREACHABLE;
use crate::lock::key::Key;
use crate::lock::messages::Look;
use crate::lock::occupant::Occupant;
use crate::lock::waiting::{Blocked, Unjoined};
use crate::report::failures;
use crate::settings::LockSettings;

/// Time that an outer rlock gets to answer before the nodes are asked again.
const ANSWER: Duration = Duration::from_secs(1);

/// Returns the holders of several locks, if outer rlocks hold all of them; none if they hold none.
/// A mixture is refused.
///
/// It is settled before the first lock is taken: while a run waits for one, another client may wait
/// for one of the outer rlock's.
pub(super) async fn find_covering(
    nodes: &[Nodes],
    lock: &LockSettings,
) -> anyhow::Result<Vec<Occupant>> {
    if lock.keys.len() == 1 || lock.waiting.outer.is_empty() {
        return Ok(Vec::new());
    }
    let (limit, begun) = (lock.schedule().node_timeout(), clock::now());
    let gives_up = begun + lock.waiting.wait.unwrap_or(UNREACHABLE);
    let mut alarm = Alarm::new()?;
    loop {
        let observed = async |nodes| observe(nodes, limit, Look::default(), |_| false).await;
        let looks = join_all(nodes.iter().map(observed)).await;
        let mut holders = Vec::new();
        let (mut missing, mut unknown) = (None, None);
        for (which, looks) in looks.iter().enumerate() {
            let census = looks.census();
            let tokens = lock.waiting.outer.tokens();
            match tokens
                .iter()
                .find(|token| census.is_held_by(**token) == Some(true))
            {
                Some(token) => holders.extend(census.entry(*token).cloned()),
                None if tokens
                    .iter()
                    .all(|token| census.is_held_by(*token) == Some(false)) =>
                {
                    missing = missing.or(Some(&lock.keys[which]));
                }
                None => unknown = Some(which),
            }
        }
        match (unknown, missing, holders.first()) {
            (None, None, _) => return Ok(holders),
            (_, Some(key), Some(holder)) => {
                return Err(failures::partly_covered(holder).of(key).into());
            }
            (None, Some(_), None) => return Ok(Vec::new()),
            (Some(which), ..) if clock::now() >= gives_up => {
                let blocked =
                    Blocked::Unreachable(looks[which].faults.clone(), nodes[which].quorum());
                return Err(failures::unreachable(&blocked).of(&lock.keys[which]).into());
            }
            (Some(_), ..) => alarm.reached(clock::now() + lock.schedule().retry()).await,
        }
    }
}

/// Asks the rlock that holds the locks, as a majority of the nodes said, to let a command run under
/// them. `key`: the first lock.
pub(super) async fn join(
    key: &Key,
    lock: &LockSettings,
    holders: &[Occupant],
) -> Result<Result<OuterRun, Unjoined>, Failure> {
    let mut tokens = Vec::new();
    for holder in holders {
        let Some((token, details)) = holder.holder() else {
            return Ok(Err(Unjoined::Silent));
        };
        if holder.mode().is_some_and(|outer| !outer.covers(lock.mode)) {
            let (outer, inner) = (holder.named(), lock.mode.name());
            let why = format!(
                "{outer}, which runs us; {inner} inside would wait for itself: take it outside"
            );
            return Err(failures::forbidden_by(holder, why).of(key));
        }
        if !lock.waiting.for_command {
            let why = "and this is part of its command, so acquire would wait for itself; ask rlock check";
            let why = format!("{}, {why}", holder.named());
            return Err(failures::forbidden_by(holder, why).of(key));
        }
        // No rlock keeps the lock of an `acquire`, so the command could outlive it.
        if !details.kept {
            let why = "held by rlock acquire already, with the RLOCK_TOKEN of this environment";
            let remedy =
                "release it first, or ask rlock check and run the command without rlock run";
            return Err(Failure::about(
                key,
                Outcome::Usage,
                format!("{why}: {remedy}"),
            ));
        }
        tokens.push(token);
    }
    let claims = lock.waiting.outer.tokens();
    Ok(
        match clock::until(clock::now() + ANSWER, OuterRun::join(&tokens, &claims)).await {
            Some(Ok(outer)) => Ok(outer),
            Some(Err(JoinError::Partly)) => {
                return Err(failures::partly_covered(&holders[0]).of(key));
            }
            Some(Err(JoinError::Busy)) | None => Err(Unjoined::Silent),
            Some(Err(JoinError::Refused)) => Err(Unjoined::Refused),
        },
    )
}
