//! `--supersede`: the key that names the last waiter which came with it, and what the others do.
//!
//! 1. A waiter is named there in the transaction that makes its entry. So etcd's revision tells which
//!    of two came later.
//! 2. The others watch the key, and read it with each proof. A waiter leaves if the key was put
//!    after its first entry, also where it has lost that entry meanwhile.
//! 3. The key has a lease of its own, because the waiter may be gone before another one asks. All
//!    waiters extend the same one, which is numbered after the key. So none is left without a key,
//!    wherever a waiter is killed.

use std::sync::Arc;
use std::time::Duration;

use super::client::Outcome;
use super::line::{AGAIN, PUT, sleep};
use super::lock::{Lock, seconds_up};
use super::rpc::{
    CompareTo, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest, Request, RequestOp,
    TxnRequest, TxnResponse, compare, header, kvs, op, single,
};
use crate::lock::blocker::Blocker;
use crate::lock::queue::Ticket;
use crate::store::{Claim, Fault, Hint, Wake};

/// Time for which the last waiter is known.
const KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

impl Lock {
    /// Returns the request that names the waiter of `ticket`, once the key's lease is extended or
    /// made.
    pub(super) async fn naming(&self, ticket: &Ticket) -> Result<RequestOp, Fault> {
        let (key, id) = (self.names.newest(), self.names.lease_of_newest());
        let alive = self.client.ask(LeaseKeepAliveRequest { id }).await?;
        if alive.ttl <= 0 {
            let ttl = seconds_up(KNOWN_FOR);
            match self.client.call(LeaseGrantRequest { ttl, id }, None).await {
                // Another waiter has made it meanwhile.
                Outcome::Refused(status) if status.is_lease_known() => {}
                made => drop(made.result()?),
            }
        }
        Ok(op(Request::Put(PutRequest {
            key,
            value: ticket.waiter.to_string().into_bytes(),
            lease: id,
            ignore_lease: false,
        })))
    }

    /// Takes what stands at the key out of an answer.
    pub(super) fn without_newest(&self, reply: TxnResponse) -> (Option<KeyValue>, Vec<KeyValue>) {
        let key = self.names.newest();
        let (newest, found): (Vec<_>, _) = kvs(reply).partition(|kv| kv.key == key);
        (newest.into_iter().next(), found)
    }

    /// Returns the waiter that came after this one, if both supersede.
    pub(super) fn newer(&self, newest: Option<&KeyValue>) -> Option<Blocker> {
        let came = self.state().came?;
        let newest = newest.filter(|kv| kv.mod_revision > came)?;
        let waiter = std::str::from_utf8(&newest.value)
            .ok()
            .and_then(|text| text.parse().ok());
        Some(Blocker::Newer(waiter.map(Box::new)))
    }

    /// Tells the client when a newer waiter has come, if this one supersedes.
    pub(super) async fn until_superseded(&self) {
        if self.state().came.is_none() {
            return std::future::pending().await;
        }
        let key = self.names.newest();
        loop {
            let seen = async {
                let read = self.client.ask(single(&key)).await?;
                if self.newer(read.kvs.first()).is_some() {
                    return Ok(true);
                }
                let behind = header(read.header)?.revision.saturating_add(1);
                self.until_event(&key, behind, PUT).await.map(|()| false)
            };
            match seen.await {
                Ok(true) => return self.hints.tell(Hint::Woken(Wake::Recheck)),
                Ok(false) => {}
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    /// Names the holder, whose claim this was, unless a waiter has come after it.
    pub(super) async fn announce(self: &Arc<Self>, claim: &Claim) {
        let _ = self.announced(claim).await;
    }

    async fn announced(self: &Arc<Self>, claim: &Claim) -> Result<(), Fault> {
        let place = self.state().place.clone();
        let (Some(place), Some(ticket)) = (place, &claim.ticket) else {
            return Ok(());
        };
        let key = self.names.newest();
        let read = self.client.ask(single(&key)).await?;
        let seen = read.kvs.first().map_or(0, |kv| kv.mod_revision);
        if seen > place.created {
            return Ok(());
        }
        let naming = TxnRequest {
            success: vec![self.naming(ticket).await?],
            compare: vec![compare(&key, CompareTo::Mod(seen))],
            failure: Vec::new(),
        };
        self.client.ask(naming).await.map(drop)
    }
}
