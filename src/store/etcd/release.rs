//! Giving a lock or a place back, and what stays behind it: a success, or a lock that is parked.
//!
//! A release is one transaction, so nothing stays unless the entry was ours. The leases that have
//! no key any more are ended behind the answer.

use std::sync::Arc;
use std::time::Duration;

use super::client::Outcome;
use super::lock::{Lock, Place, entries, given_up, revoked, seconds_up};
use super::look::mark_of;
use super::names::{first_of, lease_of};
use super::rpc::{
    CompareTo, LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest, RangeRequest, Request,
    RequestOp, TxnRequest, TxnResponse, compare, deletion, header, kvs, op, range, single,
};
use crate::lock::last::Note;
use crate::lock::lease::Revoked;
use crate::lock::mode::Mode;
use crate::lock::token::Token;
use crate::store::net::unwritten::Unwritten;
use crate::store::{FaultKind, Parked, QueueAction, Release, ReleaseReply};

impl Lock {
    /// Notes that the entry of `token` is to go. Returns whether a request is under way that may
    /// make it yet.
    pub(super) fn gives_up(&self, token: Token) -> bool {
        let mut state = self.state();
        if state
            .place
            .as_ref()
            .is_some_and(|place| place.token == token)
            && let Some(waiting) = state.waiting.take()
        {
            waiting.abort();
        }
        if let Some(listening) = state.listening.take() {
            listening.abort();
        }
        let is_entering = state.entering.contains(&token);
        if is_entering {
            state.given_up.insert(token);
        }
        is_entering
    }

    /// Ends the lease of a token whose request is under way: what that still makes fails without
    /// it, or ends with it.
    pub(super) async fn cut_off(&self, token: Token, written: Unwritten) -> ReleaseReply {
        match self.revoke(lease_of(token), Some(written)).await {
            Ok(()) => ReleaseReply::NotOurs(Revoked::Missing),
            Err(fault) => ReleaseReply::Failed(fault),
        }
    }

    /// Gives the lock or the place back, and hands the answer to `answer` as soon as it is there.
    pub(super) async fn release(
        self: &Arc<Self>,
        release: Release,
        written: Unwritten,
        answer: impl FnOnce(ReleaseReply),
    ) {
        let _turn = self.gate.lock().await;
        let token = release.token;
        let known = self
            .state()
            .place
            .clone()
            .filter(|place| place.token == token);
        let places = match (known, release.mode) {
            (Some(place), _) => vec![place],
            (None, Some(mode)) => vec![self.place_of(token, mode)],
            // A release from outside does not know the kind.
            (None, None) => [Mode::Exclusive, Mode::Shared]
                .map(|mode| self.place_of(token, mode))
                .into(),
        };
        let mut reply = ReleaseReply::NotOurs(Revoked::Missing);
        let mut over = Vec::new();
        let mut written = Some(written);
        for place in places {
            reply = self
                .released(&place, &release, &mut written, &mut over)
                .await;
            if !matches!(reply, ReleaseReply::NotOurs(_)) {
                break;
            }
        }
        if self
            .state()
            .place
            .as_ref()
            .is_some_and(|place| place.token == token)
        {
            self.forget_place();
        }
        if !matches!(reply, ReleaseReply::Failed(_)) {
            self.end_own_lease(lease_of(token));
        }
        self.end_lasting_leases(over);
        answer(reply);
    }

    /// Ends the lease of a token, which has no key any more. rlock may exit once the request is
    /// written. A member that sees the end of the connection first may drop the request. Then the
    /// lease ends by itself, a TTL later at most.
    fn end_own_lease(self: &Arc<Self>, lease: i64) {
        let (lock, unwritten) = (Arc::clone(self), self.writes.begin());
        tokio::spawn(async move { lock.revoke(lease, Some(unwritten)).await });
    }

    /// Ends leases of days, which have no keys any more. rlock exits once they are answered, or its
    /// time for that is over.
    fn end_lasting_leases(self: &Arc<Self>, over: Vec<i64>) {
        for lease in over {
            let (lock, unanswered) = (Arc::clone(self), self.writes.begin());
            tokio::spawn(async move {
                let _ = lock.revoke(lease, None).await;
                drop(unanswered);
            });
        }
    }

    /// Gives `place` back. Adds the leases without a key that are left to `over`.
    async fn released(
        &self,
        place: &Place,
        release: &Release,
        written: &mut Option<Unwritten>,
        over: &mut Vec<i64>,
    ) -> ReleaseReply {
        let parked = release
            .parked
            .as_ref()
            .filter(|parked| parked.parks_tombstone || !place.is_broken);
        let mut made = Vec::new();
        let left = self.remains(place, parked, release.note.as_ref(), &mut made);
        let outcome = match left.await {
            Ok(left) => {
                let ending = self.ending(place, left);
                self.client.call(ending, written.take()).await
            }
            Err(outcome) => outcome,
        };
        match outcome {
            Outcome::Answered { reply, .. } if reply.succeeded => {
                // Of a success that was replaced.
                over.extend(kvs(reply).map(|kv| kv.lease).filter(|lease| *lease != 0));
                ReleaseReply::Released
            }
            Outcome::Answered {
                is_repeated: true, ..
            } => ReleaseReply::unheard(),
            Outcome::Answered { reply, .. } => {
                over.extend(made);
                let (_, others) = entries(kvs(reply), &place.key);
                ReleaseReply::NotOurs(revoked(!others.is_empty()))
            }
            Outcome::Refused(status)
                if release.leaves_something() && status.fault().kind != FaultKind::Unknown =>
            {
                over.extend(made);
                let plain = self.ending(place, vec![deletion(&place.key)]);
                match self.client.call(plain, written.take()).await {
                    Outcome::Answered { reply, .. } if reply.succeeded => {
                        ReleaseReply::without(&status.fault())
                    }
                    _ => ReleaseReply::Failed(status.fault()),
                }
            }
            other => ReleaseReply::Failed(other.result().err().unwrap_or_else(given_up)),
        }
    }

    /// Returns the transaction that does `left` if the entry is still ours.
    fn ending(&self, place: &Place, left: Vec<RequestOp>) -> TxnRequest {
        TxnRequest {
            compare: vec![compare(&place.key, CompareTo::Lease(place.lease))],
            success: left,
            failure: vec![range(first_of(self.names.all()))],
        }
    }

    /// Returns what a release does in one transaction: it parks the entry or deletes it, and writes
    /// a success in place of an earlier one, whose key it reads. Adds the leases that it makes to
    /// `made`.
    async fn remains(
        &self,
        place: &Place,
        parked: Option<&Parked>,
        note: Option<&Note>,
        made: &mut Vec<i64>,
    ) -> Result<Vec<RequestOp>, Outcome<TxnResponse>> {
        let mut all = Vec::new();
        // A success that is copied stands here already.
        if let Some((note, life)) = note.and_then(|note| Some((note, note.success?)))
            && note.is_run
        {
            let (lease, term) = self.new_lease(life, made).await?;
            all.push(range(RangeRequest {
                keys_only: true,
                ..single(&self.names.mark())
            }));
            all.push(op(Request::Put(PutRequest {
                key: self.names.mark(),
                value: mark_of(&note.entry, term),
                lease,
                ignore_lease: false,
            })));
        }
        all.push(match parked {
            None => deletion(&place.key),
            Some(parked) => {
                let (lease, _) = self.new_lease(parked.left, made).await?;
                op(Request::Put(PutRequest {
                    key: place.key.clone(),
                    value: parked.value.clone().into_bytes(),
                    lease,
                    ignore_lease: false,
                }))
            }
        });
        Ok(all)
    }

    /// Makes a lease that no process keeps alive, and adds it to `made`. Returns it with the term of
    /// raft in which it begins.
    async fn new_lease(
        &self,
        length: Duration,
        made: &mut Vec<i64>,
    ) -> Result<(i64, u64), Outcome<TxnResponse>> {
        let id = fastrand::i64(1..);
        let ttl = seconds_up(length);
        let lease = match self.client.call(LeaseGrantRequest { ttl, id }, None).await {
            // An earlier try has made it.
            Outcome::Refused(status) if status.is_lease_known() => {
                self.client.call(LeaseKeepAliveRequest { id }, None).await
            }
            lease => lease,
        };
        match lease {
            Outcome::Answered { reply, .. } => {
                made.push(id);
                let header = header(reply.header).map_err(Outcome::Failed)?;
                Ok((id, header.raft_term))
            }
            Outcome::Refused(status) => Err(Outcome::Refused(status)),
            Outcome::Failed(fault) => Err(Outcome::Failed(fault)),
        }
    }

    /// Whether a claim's ticket is to be left alone by a release.
    pub(super) fn is_kept(release: &Release) -> bool {
        matches!(release.queue, QueueAction::Keep(_))
    }
}
