//! The proof that an entry is ours, and from when on its lease counts.
//!
//! 1. A tenure counts from a keepalive that was answered, if a later read at the same member and in
//!    the same term of raft went through the leader. The keepalive alone proves nothing: a leader
//!    whose disk stands still, or that has been replaced, answers one too. The read shows that no
//!    other leader had come until then. So the one that answered counts the lease, and ends it no
//!    sooner.
//! 2. However much time is between the two, this holds. So a waiter takes its turn with a read, if
//!    its last keepalive is so young that a holder would not renew yet. The request that makes the
//!    lease is as good as a keepalive.
//! 3. A renewal always begins with a new keepalive.

use std::time::Duration;

use super::lock::{Lock, Place, entries, fence_of, first_before, revoked};
use super::names::{Entry, first_of};
use super::rpc::{
    CompareTo, KeyValue, LeaseKeepAliveRequest, LeaseResponse, RangeRequest, ResponseHeader,
    TxnRequest, compare, header, range, single,
};
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::schedule::Term;
use crate::store::{Fault, FaultKind};

/// Number of times that a proof is tried whose leader changes meanwhile.
const PROOFS: usize = 2;

/// The answer to a keepalive, or to the request that made the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keepalive {
    pub(super) lease: i64,
    /// Time before it was asked for.
    pub(super) asked: Instant,
    /// Seconds that the lease has from then on at least; 0: it is over.
    pub(super) ttl: i64,
    from: Option<Origin>,
}

/// The member that answered, and the term of raft then.
type Origin = (u64, u64);

fn origin(header: &ResponseHeader) -> Origin {
    (header.member_id, header.raft_term)
}

impl Keepalive {
    pub(super) fn new(lease: i64, asked: Instant, reply: &LeaseResponse) -> Self {
        Self {
            lease,
            asked,
            ttl: reply.ttl,
            from: reply.header.as_ref().map(origin),
        }
    }

    /// Whether a waiter may take its turn with it.
    fn will_do(&self, lease: i64, term: Term, now: Instant) -> bool {
        self.lease == lease && self.ttl > 0 && term.is_young(term.end(self.asked), now)
    }

    /// Returns the end of a tenure that counts from here.
    pub(super) fn end(&self, term: Term) -> Result<Instant, Fault> {
        let granted = Duration::from_secs(u64::try_from(self.ttl).unwrap_or_default());
        if granted >= term.ttl() {
            return Ok(term.end(self.asked));
        }
        Err(Fault::unfit(
            format!(
                "its lease lasts {}s and cannot be made longer",
                granted.as_secs()
            ),
            "give a --ttl up to that, or acquire the lock anew",
        ))
    }
}

/// State of the entry, as a proof has seen it.
pub(super) enum Proof {
    /// It is ours until then, or shorter than that by the time for which its lease is too short.
    /// With what keeps it from being the lock.
    Ours {
        until: Instant,
        own: Box<Entry>,
        ahead: Option<KeyValue>,
        fence: Option<Fence>,
    },
    /// It is not there any more.
    Gone(Revoked),
}

impl Proof {
    /// Whether a waiter may take its turn with it. It may have been made some time ago.
    pub(super) fn will_do(&self, term: Term, now: Instant) -> bool {
        match self {
            Self::Ours { until, .. } => term.is_young(*until, now),
            Self::Gone(_) => true,
        }
    }
}

impl Lock {
    /// Proves that the entry of `place` was ours all along, with the last keepalive if that will do.
    pub(super) async fn prove_soon(&self, place: &Place, term: Term) -> Result<Proof, Fault> {
        let known = self.state().alive;
        if let Some(alive) = known.filter(|it| it.will_do(place.lease, term, clock::now()))
            && let Some(proof) = self.proved(place, term, alive).await?
        {
            return Ok(proof);
        }
        self.prove(place, term).await
    }

    /// Renews the lease of `place`, and proves that the entry was ours all along.
    pub(super) async fn prove(&self, place: &Place, term: Term) -> Result<Proof, Fault> {
        for _ in 0..PROOFS {
            let alive = self.extended(place.lease).await?;
            if let Some(proof) = self.proved(place, term, alive).await? {
                return Ok(proof);
            }
        }
        let why = "its leader has changed";
        Err(Fault::new(FaultKind::Unavailable, why))
    }

    /// Renews `lease`, which proves nothing by itself.
    pub(super) async fn extended(&self, lease: i64) -> Result<Keepalive, Fault> {
        let asked = clock::now();
        let request = LeaseKeepAliveRequest { id: lease };
        let alive = Keepalive::new(lease, asked, &self.client.ask(request).await?);
        self.state().alive = Some(alive);
        Ok(alive)
    }

    /// Reads what makes a proof of `alive`; `None` if the leader may have changed since.
    async fn proved(
        &self,
        place: &Place,
        term: Term,
        alive: Keepalive,
    ) -> Result<Option<Proof>, Fault> {
        let reply = self.client.ask(self.proving(place)).await?;
        let at = header(reply.header)?;
        if Some(origin(&at)) != alive.from {
            return Ok(None);
        }
        let is_ours = reply.succeeded && alive.ttl > 0;
        let (newest, found) = self.without_newest(reply);
        self.state().newer = self.newer(newest.as_ref());
        let (own, others) = entries(found, &place.key);
        let Some(own) = own.map(Entry::new).filter(|own| {
            is_ours && (place.created == 0 || own.kv.create_revision == place.created)
        }) else {
            return Ok(Some(Proof::Gone(revoked(!others.is_empty()))));
        };
        let ahead = first_before(others, own.kv.create_revision);
        self.state().seen = at.revision;
        Ok(Some(Proof::Ours {
            until: alive.end(term)?,
            own: Box::new(own),
            ahead,
            fence: fence_of(at.revision),
        }))
    }

    /// Returns the read of a proof: the entry, if it still has its lease, and what stands in its
    /// way.
    fn proving(&self, place: &Place) -> TxnRequest {
        // What came later has no part in it.
        let before = |span| RangeRequest {
            max_create_revision: place.created,
            ..first_of(span)
        };
        let ahead = self.names.ahead(place.mode).into_iter().map(before);
        let newest = self.state().came.map(|_| single(&self.names.newest()));
        TxnRequest {
            compare: vec![compare(&place.key, CompareTo::Lease(place.lease))],
            success: std::iter::once(single(&place.key))
                .chain(newest)
                .chain(ahead)
                .map(range)
                .collect(),
            failure: vec![range(first_of(self.names.all()))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::tests::{lock, ranges};
    use super::*;
    use crate::lock::mode::Mode;
    use crate::lock::remains::RemainsOptions;
    use crate::lock::schedule::{Schedule, ScheduleOptions};
    use crate::lock::token::Token;

    #[test]
    fn an_earlier_keepalive_counts_while_a_holder_would_not_renew_yet() {
        let asked = Instant::from_nanos(5_000_000_000);
        let alive = |ttl| Keepalive {
            lease: 3,
            asked,
            ttl,
            from: Some((1, 1)),
        };
        let wishes = ScheduleOptions::new(Duration::from_secs(30));
        // A lock that stays for longer does not make a tenure longer.
        let schedule = Schedule::new(wishes).unwrap().outlasted(RemainsOptions {
            lock_delay: Duration::from_secs(60),
            ..RemainsOptions::default()
        });
        let term = schedule.term();
        let renews = schedule.renew_at(alive(90).end(term).unwrap());
        assert!(alive(90).will_do(3, term, asked));
        assert!(alive(90).will_do(3, term, renews.before(Duration::from_nanos(1))));
        assert!(!alive(90).will_do(3, term, renews));
        assert!(!alive(90).will_do(4, term, asked), "of another lease");
        assert!(!alive(0).will_do(3, term, asked), "the lease is over");
        let proof = Proof::Ours {
            until: alive(90).end(term).unwrap(),
            own: Box::new(Entry::new(KeyValue::default())),
            ahead: None,
            fence: None,
        };
        assert!(proof.will_do(term, renews.before(Duration::from_nanos(1))));
        assert!(!proof.will_do(term, renews), "the waiter stood still");
    }

    #[test]
    fn a_proof_reads_no_value_of_others_and_nothing_that_came_later() {
        let lock = lock();
        for mode in [Mode::Exclusive, Mode::Shared] {
            let place = Place {
                created: 7,
                ..lock.place_of(Token::fresh(), mode)
            };
            let proving = lock.proving(&place);
            let asked = ranges(proving.success);
            assert_eq!(asked[0], single(&place.key));
            for other in &asked[1..] {
                assert!(other.keys_only && other.max_create_revision == 7);
            }
            assert!(ranges(proving.failure)[0].keys_only);
        }
    }
}
