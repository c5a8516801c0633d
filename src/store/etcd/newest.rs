//! `--supersede`: the key that names the last waiter which came with it, and what the others do.
//!
//! 1. A waiter is named there in the transaction that makes its entry. So etcd's revision tells which
//!    of two came later.
//! 2. The others watch the key, and read it with each proof. A waiter leaves if the key was put
//!    after its first entry, also where it has lost that entry meanwhile.
//! 3. The key has a lease of its own, because the waiter may be gone before another one asks.

use std::sync::Arc;
use std::time::Duration;

use super::line::{AGAIN, PUT, sleep};
use super::lock::{Lock, given_up};
use super::rpc::{
    CompareTo, KeyValue, PutRequest, Request, RequestOp, TxnRequest, TxnResponse, compare, header,
    kvs, op, single,
};
use crate::lock::blocker::Blocker;
use crate::lock::queue::Ticket;
use crate::store::{Claim, Fault, Hint, Wake};

/// Time for which the last waiter is known.
const KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

impl Lock {
    /// Returns the request that names the waiter of `ticket`, with a new lease that is added to
    /// `made`.
    pub(super) async fn naming(
        &self,
        ticket: &Ticket,
        made: &mut Vec<i64>,
    ) -> Result<RequestOp, Fault> {
        let lease = self.new_lease(KNOWN_FOR, made).await;
        Ok(op(Request::Put(PutRequest {
            key: self.names.newest(),
            value: ticket.waiter.to_string().into_bytes(),
            lease: lease.map_err(|no| no.result().err().unwrap_or_else(given_up))?,
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
        let earlier = read.kvs.first();
        let seen = earlier.map_or(0, |kv| kv.mod_revision);
        if seen > place.created {
            return Ok(());
        }
        let mut over = Vec::new();
        let naming = TxnRequest {
            success: vec![self.naming(ticket, &mut over).await?],
            compare: vec![compare(&key, CompareTo::Mod(seen))],
            failure: Vec::new(),
        };
        if self.client.ask(naming).await?.succeeded {
            over = earlier.map(|kv| kv.lease).into_iter().collect();
        }
        self.end_leases(over);
        Ok(())
    }
}
