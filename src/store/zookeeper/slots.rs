//! The lease of a slot: a znode of Curator's semaphore, see `view`. Its data are the slot's index.

use super::enter::{make_containers, used_up};
use super::jute::{ANY_VERSION, Kind, Operation, Request, error};
use super::line;
use super::path::LockPath;
use super::place::{Keeper, listed, lists};
use super::refused;
use super::view::{Before, LEASES, MUTEX, View, znode_of};
use super::visit;
use super::wire::Wire;
use crate::lock::lease::Revoked;
use crate::store::{Claim, Fault, FaultKind};

impl Before {
    /// Whether it still keeps the place out. With `is_watched`, its change is told.
    pub(super) async fn stands(
        &self,
        wire: &mut Wire,
        path: &LockPath,
        is_watched: bool,
    ) -> Result<bool, Fault> {
        let request = match self {
            Self::Entry(name) | Self::Mutex(name) => Request::Data(path.child(name), is_watched),
            Self::Leases(_) => Request::Children(path.child(LEASES), is_watched),
            Self::NoLease => return Ok(false),
        };
        let xid = wire.queue(&request);
        let reply = wire.reply(xid).await?;
        Ok(match self {
            Self::Leases(slots) => reply.children()?.is_ok_and(|all| all.len() >= *slots),
            _ => reply.header.error == 0,
        })
    }
}

impl Keeper {
    /// Makes the lease of the place, which is the first of the mutex, and leaves the mutex. Returns
    /// what it sees then.
    pub(super) async fn make_lease(&mut self, claim: &Claim, view: &View) -> Result<View, Fault> {
        let (Some(place), Some(wire), Some(slots)) =
            (&mut self.place, &mut self.wire, claim.details.mode.number())
        else {
            return Err(refused(error::NO_NODE));
        };
        let told = visit::read_all(wire, &self.path, &view.leases()).await?;
        let taken: Vec<u16> = told
            .into_iter()
            .flatten()
            .filter_map(|(data, _)| index(&data))
            .collect();
        let index = free(claim.index, slots, &taken);
        let in_mutex = |name: &&String| znode_of(name) == Some(MUTEX);
        let left = place.own.iter().find(in_mutex).cloned().unwrap_or_default();
        let lease = format!("{LEASES}/{}", line::name_of_lease(place.token));
        let both = Request::Multi(vec![
            Operation::Delete(self.path.child(&left), ANY_VERSION),
            Operation::Create(
                self.path.child(&lease),
                index.to_string().into_bytes(),
                Kind::EphemeralSequential,
            ),
        ]);
        let requests = [vec![both], lists(&self.path, place.mode)].concat();
        let mut is_repeated = false;
        let (created, xids) = loop {
            let xids: Vec<i32> = requests.iter().map(|request| wire.queue(request)).collect();
            match wire.reply(xids[0]).await?.multi()? {
                Ok(created) => break (created, xids),
                // The server has deleted the empty container of the leases.
                Err(error::NO_NODE) if !is_repeated => is_repeated = true,
                Err(code) => return Err(refused(code)),
            }
            make_containers(wire, &self.path, place.mode).await?;
        };
        place.own.retain(|name| *name != left);
        place
            .own
            .extend(created.iter().map(|path| self.path.name_of(path)));
        place.index = index;
        let fault = if line::is_used_up(&place.own) {
            used_up()
        } else {
            let view = place.view(&listed(wire, &xids[1..]).await?.map_err(refused)?);
            if view.is_slot(place.token, slots) {
                return Ok(view);
            }
            let why = "another client has made a lease out of its turn";
            Fault::new(FaultKind::Unavailable, why)
        };
        self.forget(Revoked::Missing);
        Err(fault)
    }
}

/// Reads the data of a lease; `None`: no rlock wrote them.
pub(super) fn index(data: &[u8]) -> Option<u16> {
    std::str::from_utf8(data).ok()?.parse().ok()
}

/// Returns the first free index from `first` on.
fn free(first: u16, slots: u16, taken: &[u16]) -> u16 {
    let first = first.clamp(1, slots);
    let all = (first..=slots).chain(1..first);
    let mut free = all.filter(|index| !taken.contains(index));
    free.next().unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_index_is_given() {
        assert_eq!(free(1, 3, &[]), 1);
        assert_eq!(free(2, 3, &[2, 3]), 1);
        assert_eq!(free(0, 2, &[1]), 2);
        assert_eq!(
            (index(b"12"), index(b"127.0.0.1"), index(b"")),
            (Some(12), None, None)
        );
    }
}
