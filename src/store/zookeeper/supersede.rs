//! `--supersede`: of the waiters that have it, the last that came ends the others. It says so in
//! their second entries, which they watch. One that holds the lock by then is left alone.

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
    /// waiter that has ended this one.
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
            let own = view.line.party(place.token).map(|party| party.number);
            let is_older = |party: &&Party| party.is_rlocks() && Some(party.number) < own;
            let older = view.without_slot().into_iter().filter(is_older).collect();
            end_all(wire, &self.path, older, &ticket.waiter).await?;
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

/// Ends the waiters among `older` that have `--supersede`.
async fn end_all(
    wire: &mut Wire,
    path: &LockPath,
    older: Vec<&Party>,
    newer: &Waiter,
) -> Result<(), Fault> {
    let entries: Vec<&str> = older.into_iter().map(Party::second).collect();
    let told = visit::read_all(wire, path, &entries).await?;
    let mut xids = Vec::new();
    for (entry, told) in entries.into_iter().zip(told) {
        let Some((data, stat)) = told else { continue };
        let second = Second::read(&data);
        if second.supersedes && second.newer.is_none() {
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
