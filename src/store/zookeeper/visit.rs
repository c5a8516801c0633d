//! Visits to a lock with a session of their own: looks, and changes of other clients' entries.
//!
//! A session begins with a committed transaction, which its server has applied before it answers
//! what follows. So a look is as new as its request.

use std::time::{Duration, SystemTime};

use super::ensemble::{Ensemble, Visit};
use super::jute::{ANY_VERSION, Operation, Request, Session, Stat, error};
use super::line::Party;
use super::path::LockPath;
use super::place::{list, listed, lists};
use super::second::Second;
use super::view::View;
use super::wire::Wire;
use super::{refused, remains, slots};
use crate::clock;
use crate::lock::blocker::Blocker;
use crate::lock::details::{Breaker, Details};
use crate::lock::fence::Fence;
use crate::lock::lease::Revoked;
use crate::lock::messages::{ForeignValue, Observation};
use crate::lock::mode::{MOST_SLOTS, Mode};
use crate::lock::occupant::{Marker, Members, Occupant, OccupantKind, Seat};
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::token::Token;
use crate::store::{Fault, FaultKind, Look, TakeAway};
use crate::text::escape;

/// Most holders that a look tells.
const MOST_HOLDERS: usize = 1000;

/// Longest data that are kept, in bytes. An rlock's have less than half of that.
const LONGEST_DATA: usize = 4096;

/// The data by which a client of Curator asks a holder to give its lock up (`Revoker.java`).
const REVOKE: &[u8] = b"__REVOKE__";

/// Returns the user that broke the lock, if the data of its first entry says so.
pub(super) fn breaker(data: &[u8]) -> Option<Breaker> {
    if data == REVOKE {
        return Some("a client of Curator".into());
    }
    Occupant::read(data, None)?.holder()?.1.broken.clone()
}

/// The kind with which a look finds the entries of all kinds.
const ALL: Mode = Mode::Slots(MOST_SLOTS);

/// Returns the client whose first entry has these data, and whose lease has those of this slot.
fn occupant(party: &Party, data: &[u8], stat: Stat, slot: Option<u16>) -> Occupant {
    let ours = party.is_rlocks().then(|| Occupant::read(data, None));
    let ours = ours.flatten().filter(|known| known.holder().is_some());
    let mut occupant = ours.unwrap_or_else(|| {
        let entry = escape::short(party.first());
        let who = format!("the entry {entry} of session 0x{:x}", stat.owner);
        Occupant::new(OccupantKind::InLine(who), None)
    });
    // The entries of a lock that stays were made anew.
    let fence = Fence::new(stat.czxid).filter(|_| !occupant.is_parked());
    occupant.seat = Seat {
        index: slot.unwrap_or_default(),
        fence,
    };
    occupant
}

/// Reads the data of entries; `None` of those that are gone.
pub(super) async fn read_all(
    wire: &mut Wire,
    path: &LockPath,
    names: &[&str],
) -> Result<Vec<Option<(Vec<u8>, Stat)>>, Fault> {
    let ask = |name: &&str| Request::Data(path.child(name), false);
    let xids: Vec<i32> = names.iter().map(|name| wire.queue(&ask(name))).collect();
    let mut all = Vec::with_capacity(names.len());
    for xid in xids {
        all.push(match wire.reply(xid).await?.data()? {
            // So a thousand holders cost some megabytes at most.
            Ok((data, stat)) if data.len() > LONGEST_DATA => Some((Vec::new(), stat)),
            Ok(told) => Some(told),
            Err(error::NO_NODE) => None,
            Err(code) => return Err(refused(code)),
        });
    }
    Ok(all)
}

/// Returns what keeps `own` out of a lock of which this is seen. `None` if it is gone, or nothing does
/// any more.
pub(super) async fn blocker(
    wire: &mut Wire,
    path: &LockPath,
    view: &View,
    own: Token,
    outer: &[Token],
) -> Result<Option<Blocker>, Fault> {
    let has_slots = view.mode().is_some_and(|mode| mode.number().is_some());
    let listed;
    let view = if has_slots && view.leases().is_empty() {
        // A claim of another kind has not listed the leases.
        listed = View::of(&list(wire, path, ALL).await?);
        &listed
    } else {
        view
    };
    let Some(party) = view.keeps_out(own, outer) else {
        return Ok(None);
    };
    let names: Vec<&str> = [party.first()]
        .into_iter()
        .chain(view.lease_of(party))
        .collect();
    let mut told = read_all(wire, path, &names).await?.into_iter();
    let Some(Some((data, stat))) = told.next() else {
        return Ok(None);
    };
    let slot = told
        .flatten()
        .next()
        .and_then(|(data, _)| slots::index(&data));
    let occupant = occupant(party, &data, stat, slot);
    let members = occupant
        .holder()
        .filter(|(_, details)| !party.is_of(outer) && details.mode.has_members())
        .map(|(token, details)| Members {
            marker: marker(details),
            count: view.holders().len() as u64,
            shown: Some((token, details.clone())),
        });
    let occupant = members.map_or(occupant, |members| {
        Occupant::new(OccupantKind::Members(Box::new(members)), None)
    });
    Ok(Some(Blocker::Occupant(occupant)))
}

fn marker(details: &Details) -> Marker {
    Marker {
        mode: details.mode,
        nodes: details.n,
        ttl: Duration::from_millis(details.ttl),
    }
}

/// Returns what there is of the lock.
async fn seen(visit: &mut Visit, xids: &[i32]) -> Result<View, Fault> {
    match listed(&mut visit.0, xids).await? {
        Ok(names) => Ok(View::of(&names)),
        Err(error::NO_NODE) => Ok(View::of(&[])),
        Err(code) => Err(refused(code)),
    }
}

/// Begins a visit. Returns what there is of the lock.
async fn begin(ensemble: &Ensemble, path: &LockPath) -> Result<(Visit, View), Fault> {
    let (mut visit, xids) = ensemble.visit(&lists(path, ALL)).await?;
    let view = seen(&mut visit, &xids).await?;
    Ok((visit, view))
}

/// Looks at the lock.
pub(super) async fn look(
    ensemble: &Ensemble,
    path: &LockPath,
    look: Look,
) -> Result<Observation, Fault> {
    let asked = clock::now();
    let mut requests = lists(path, ALL);
    requests.push(Request::Data(path.mark().to_owned(), false));
    let (mut visit, xids) = ensemble.visit(&requests).await?;
    let (mark, lists) = xids.split_last().unwrap_or((&0, &[]));
    let view = seen(&mut visit, lists).await?;
    let mark = visit.0.reply(*mark).await?.data()?;
    let (holding, waiting) = (view.holders(), view.waiting());
    // The one that is wanted comes first, since not all may be told.
    let mut told = holding.clone();
    told.sort_by_key(|party| look.token.is_none() || party.token != look.token);
    told.truncate(MOST_HOLDERS);
    let firsts: Vec<&str> = told.iter().map(|party| party.first()).collect();
    let holders = read_all(&mut visit.0, path, &firsts).await?;
    let leases: Vec<&str> = told
        .iter()
        .filter_map(|party| view.lease_of(party))
        .collect();
    let mut leases = read_all(&mut visit.0, path, &leases).await?.into_iter();
    let shown = &waiting[..waiting.len().min(look.max_waiters)];
    let seconds: Vec<&str> = shown.iter().map(|party| party.second()).collect();
    let waiters = read_all(&mut visit.0, path, &seconds).await?;
    visit.end().await;
    let mut seen = Observation::of_nothing(asked);
    // The change of the holder's entry tells the leader's clock.
    let mut now = None;
    for (party, data) in told.into_iter().zip(holders) {
        let lease = view.lease_of(party).and_then(|_| leases.next()).flatten();
        let Some((data, stat)) = data else { continue };
        let slot = lease.and_then(|(data, _)| slots::index(&data));
        let holder = occupant(party, &data, stat, slot);
        now =
            now.or(Some(stat.mtime).filter(|_| look.token.is_some() && party.token == look.token));
        if holder.holder().is_none() && seen.foreign.is_none() {
            seen.foreign = Some(foreign(party, stat));
        }
        seen.fence = seen.fence.max(holder.seat.fence);
        seen.size += data.len();
        seen.holders.push(holder);
    }
    if view.mode().is_some_and(Mode::has_members) {
        seen.members = holding.len() as u64;
    }
    for (party, data) in shown.iter().zip(waiters) {
        let Some((data, stat)) = data else { continue };
        seen.size += data.len();
        let second = Second::read(&data);
        seen.queue.push(Ticket {
            waiter: second.waiter.unwrap_or_else(|| stranger(party, stat)),
            number: stat.czxid,
            supersedes: second.supersedes.then_some(0),
        });
    }
    seen.more = waiting.len() > shown.len();
    seen.last.success = match mark {
        Ok((data, stat)) => {
            let now = now.unwrap_or_else(|| clock::unix_millis(SystemTime::now()));
            remains::success(&data, stat, now)
        }
        Err(error::NO_NODE) => None,
        Err(code) => return Err(refused(code)),
    };
    Ok(seen)
}

/// Returns a waiter that is not rlock.
fn stranger(party: &Party, stat: Stat) -> Waiter {
    Waiter {
        id: party.token.unwrap_or_else(Token::fresh).as_uuid(),
        host: "not-rlock".to_owned(),
        pid: 0,
        since: stat.ctime,
        mode: Mode::Exclusive,
        user: String::new(),
        note: None,
    }
}

/// Returns what names another client's entries, and no later ones: the names, and the first one's
/// creation.
fn foreign(party: &Party, stat: Stat) -> ForeignValue {
    let mut words = vec![stat.czxid.to_string().into_bytes()];
    words.extend(party.entries.iter().map(|entry| entry.clone().into_bytes()));
    ForeignValue(words)
}

/// Takes the lock from its holder. `None` if it was done, or how it was not that holder's.
pub(super) async fn take_away(
    ensemble: &Ensemble,
    path: &LockPath,
    how: &TakeAway,
) -> Result<Option<Revoked>, Fault> {
    if let TakeAway::Forget(token) = how {
        let mark = path.mark();
        let request = Request::Data(mark.to_owned(), false);
        let (mut visit, xids) = ensemble.visit(&[request]).await?;
        let told = visit.0.reply(xids[0]).await?.data()?;
        return remains::forget(visit, mark, told, *token).await;
    }
    let (mut visit, view) = begin(ensemble, path).await?;
    let holders = view.holders();
    let is_meant = |party: &&Party| match how {
        TakeAway::Tombstone(token, _) | TakeAway::Delete(token, ..) => party.token == Some(*token),
        TakeAway::DeleteForeign(seen) => {
            let names = seen.0.iter().skip(1).map(Vec::as_slice);
            party.entries.iter().map(String::as_bytes).eq(names)
        }
        TakeAway::Forget(_) => false,
    };
    let Some(party) = holders.into_iter().find(is_meant) else {
        visit.end().await;
        return Ok(Some(standing(&view)));
    };
    let changes = match how {
        TakeAway::Tombstone(_, tombstone) => {
            let first = path.child(party.first());
            vec![Operation::Set(
                first,
                tombstone.clone().into_bytes(),
                ANY_VERSION,
            )]
        }
        // The record has successes only, and no run that was broken is one.
        TakeAway::Delete(..) | TakeAway::Forget(_) => path.deletions(&view.entries(party)),
        TakeAway::DeleteForeign(seen) => {
            let told = read_all(&mut visit.0, path, &[party.first()])
                .await?
                .remove(0);
            if told.is_none_or(|(_, stat)| foreign(party, stat) != *seen) {
                visit.end().await;
                return Ok(Some(Revoked::TakenOver));
            }
            path.deletions(&view.entries(party))
        }
    };
    change(visit, changes).await
}

/// Deletes the entries of `token`, whose session may be another process'.
pub(super) async fn release(
    ensemble: &Ensemble,
    path: &LockPath,
    token: Token,
) -> Result<Option<Revoked>, Fault> {
    let (mut visit, view) = begin(ensemble, path).await?;
    if let Some(party) = view.line.party(token) {
        let told = read_all(&mut visit.0, path, &[party.first()])
            .await?
            .remove(0);
        // A lock that stays is its run's no more.
        if !told
            .and_then(|(data, _)| Occupant::read(&data, None))
            .is_some_and(|occupant| occupant.is_parked())
        {
            return change(visit, path.deletions(&view.entries(party))).await;
        }
    }
    visit.end().await;
    Ok(Some(standing(&view)))
}

/// Changes all that is meant, or nothing.
pub(super) async fn change(
    mut visit: Visit,
    changes: Vec<Operation>,
) -> Result<Option<Revoked>, Fault> {
    let xid = visit.0.queue(&Request::Multi(changes));
    let outcome = visit.0.reply(xid).await?.multi()?;
    visit.end().await;
    match outcome {
        Ok(_) => Ok(None),
        Err(error::NO_NODE) => Ok(Some(Revoked::Missing)),
        Err(error::BAD_VERSION) => Ok(Some(Revoked::TakenOver)),
        Err(code) => Err(refused(code)),
    }
}

/// How a lock is not that of a party which is not in its line.
pub(super) fn standing(view: &View) -> Revoked {
    if view.is_empty() {
        Revoked::Missing
    } else {
        Revoked::TakenOver
    }
}

/// A lock that no process keeps.
pub(super) struct Kept {
    pub(super) session: Session,
    pub(super) own: Vec<String>,
    pub(super) fence: Fence,
    pub(super) mode: Mode,
}

/// Returns what is known of a lock that no process keeps.
pub(super) async fn session_of(
    ensemble: &Ensemble,
    path: &LockPath,
    token: Token,
) -> Result<Result<Kept, Revoked>, Fault> {
    let (mut visit, view) = begin(ensemble, path).await?;
    let Some(party) = view.line.party(token).filter(|party| party.is_rlocks()) else {
        visit.end().await;
        return Ok(Err(standing(&view)));
    };
    let told = read_all(&mut visit.0, path, &[party.first(), party.second()]).await?;
    visit.end().await;
    let [Some((first, stat)), Some((second, _))] = &told[..] else {
        return Ok(Err(Revoked::Missing));
    };
    let known = Occupant::read(first, None);
    if known.as_ref().is_some_and(Occupant::is_parked) {
        return Ok(Err(Revoked::TakenOver));
    }
    let password = Second::read(second).password;
    let (Some((_, details)), Some(fence), false) = (
        known.as_ref().and_then(Occupant::holder),
        Fence::new(stat.czxid),
        password.is_empty(),
    ) else {
        return Err(Fault::new(
            FaultKind::Unfit,
            "its session is known to its run alone, which renews it",
        ));
    };
    let session = Session {
        id: stat.owner,
        password,
        timeout: Duration::from_millis(details.ttl),
    };
    Ok(Ok(Kept {
        session,
        own: view.entries(party),
        fence,
        mode: party.mode,
    }))
}
