//! `--supersede`: of the waiters that have it, the last that came ends the others. It says so in
//! their second entries, which they watch. One that holds the lock by then is left alone.
//!
//! A waiter that lost its place enters again at the end, and came no later for that. So its new
//! entry tells when it came, and it looks whether a newer one is there.

use super::jute::{Operation, Request};
use super::line::Party;
use super::path::LockPath;
use super::place::Keeper;
use super::second::Second;
use super::view::View;
use super::visit;
use super::wire::Wire;
use crate::lock::queue::Waiter;
use crate::store::{Claim, Fault};

/// The part of a place in `--supersede`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Superseding {
    /// It does not have the option.
    Never,
    /// It is to end the older ones.
    Due,
    /// It has ended them, and may be ended by a newer one.
    Done,
}

impl Superseding {
    pub(super) fn of(claim: &Claim) -> Self {
        let ticket = claim.ticket.as_ref();
        if ticket.is_some_and(|ticket| ticket.supersedes.is_some()) {
            Self::Due
        } else {
            Self::Never
        }
    }
}

impl Keeper {
    /// Ends the older waiters, once for each place, but those that a free slot is for. Returns the
    /// waiter that has ended this one, or that came while it had no place.
    pub(super) async fn supersede(
        &mut self,
        claim: &Claim,
        view: &View,
    ) -> Result<Option<Waiter>, Fault> {
        let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
            return Ok(None);
        };
        let ticket = claim
            .ticket
            .as_ref()
            .filter(|_| place.superseding != Superseding::Never && !place.is_held());
        let Some(ticket) = ticket else {
            return Ok(None);
        };
        if place.superseding == Superseding::Due {
            let came = self.came.unwrap_or_default();
            if came < place.fence.get()
                && let Some(newer) = newest_since(wire, &self.path, view, came).await?
            {
                return Ok(Some(newer));
            }
            let own = view.line.party(place.token).map(|party| party.number);
            let is_ahead = |party: &&Party| party.is_rlocks() && Some(party.number) < own;
            let ahead = view.without_slot().into_iter().filter(is_ahead).collect();
            end_older(wire, &self.path, ahead, came, &ticket.waiter).await?;
            place.superseding = Superseding::Done;
        }
        let own = self.path.child(&place.own[1]);
        newer(wire, own).await
    }
}

/// Returns the waiter that has ended the one of this second entry, and watches the entry.
pub(super) async fn newer(wire: &mut Wire, entry: String) -> Result<Option<Waiter>, Fault> {
    let xid = wire.queue(&Request::Data(entry, true));
    let told = wire.reply(xid).await?.data()?;
    Ok(told.ok().and_then(|(data, _)| Second::read(&data).newer))
}

/// Returns the last waiter that has come with `--supersede` after `came`, also if it holds the lock.
async fn newest_since(
    wire: &mut Wire,
    path: &LockPath,
    view: &View,
    came: u64,
) -> Result<Option<Waiter>, Fault> {
    let ours = view.line.0.iter().filter(|party| party.is_rlocks());
    let entries: Vec<&str> = ours.map(Party::second).collect();
    let told = visit::read_all(wire, path, &entries).await?;
    let seconds = told.into_iter().flatten();
    Ok(newest(
        seconds.map(|(data, stat)| (Second::read(&data), stat.czxid)),
        came,
    ))
}

/// Returns the waiter among `seconds` that came last, if it came after `came`. Each has the
/// transaction that created it.
fn newest(seconds: impl Iterator<Item = (Second, u64)>, came: u64) -> Option<Waiter> {
    let newer = seconds.filter_map(|(second, created)| {
        let other = second.came(created).filter(|other| *other > came)?;
        Some((other, second.waiter?))
    });
    newer
        .max_by_key(|(came, _)| *came)
        .map(|(_, waiter)| waiter)
}

/// Ends the waiters among `ahead` that have come with `--supersede` before `came`.
async fn end_older(
    wire: &mut Wire,
    path: &LockPath,
    ahead: Vec<&Party>,
    came: u64,
    newer: &Waiter,
) -> Result<(), Fault> {
    let entries: Vec<&str> = ahead.into_iter().map(Party::second).collect();
    let told = visit::read_all(wire, path, &entries).await?;
    let mut xids = Vec::new();
    for (entry, told) in entries.into_iter().zip(told) {
        let Some((data, stat)) = told else { continue };
        let second = Second::read(&data);
        let is_older = second.came(stat.czxid).is_some_and(|other| other < came);
        if is_older && second.newer.is_none() {
            let newer = Some(newer.clone());
            let ended = Second { newer, ..second }.to_string().into_bytes();
            let set = Operation::Set(path.child(entry), ended, stat.version);
            xids.push(wire.queue(&Request::Multi(vec![set])));
        }
    }
    // One that has left meanwhile, or that another one has ended, is of no account.
    for xid in xids {
        wire.reply(xid).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_came_is_newer_wherever_its_entry_stands() {
        let second = |number, supersedes, came| Second {
            waiter: Some(Waiter::example(number)),
            supersedes,
            came,
            ..Second::default()
        };
        let own = (second(1, true, Some(5)), 9);
        let newest = |others: &[(Second, u64)]| {
            let all = [others, std::slice::from_ref(&own)].concat();
            newest(all.into_iter(), 5)
        };
        // One ahead that came meanwhile, and one that has entered again.
        let (ahead, again) = ((second(2, true, None), 7), (second(3, true, Some(6)), 12));
        assert_eq!(newest(&[]), None);
        assert_eq!(newest(&[ahead.clone(), again.clone()]), ahead.0.waiter);
        assert_eq!(newest(std::slice::from_ref(&again)), again.0.waiter);
        // An older one that has entered again, and one without the option.
        let (older, plain) = ((second(4, true, Some(4)), 11), (second(5, false, None), 8));
        assert_eq!(newest(&[older, plain]), None);
    }
}
