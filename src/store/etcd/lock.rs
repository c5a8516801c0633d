//! One lock in etcd, as one client of it: its requests, and the answers to them (docs/etcd.md,
//! Requests).
//!
//! 1. A client has at most one entry at a time. The first entry is the lock.
//! 2. An entry ends with its lease. The lease's number follows from the token, so a lease without
//!    an entry, and an entry of a request that is carried out late, end with it.
//! 3. `proof` tells from when on a tenure counts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as Gate;
use tokio::task::AbortHandle;

use super::client::{Client, Outcome};
use super::names::{Entry, Names, first_of, lease_of, value};
use super::proof::{Keepalive, Proof};
use super::rpc::{
    CompareTo, KeyValue, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest, Request,
    SortOrder, TxnRequest, compare, header, kvs, op, range, single,
};
use crate::clock;
use crate::lock::blocker::Blocker;
use crate::lock::details::Breaker;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::mode::Mode;
use crate::lock::occupant::{Marker, Members, Occupant, OccupantKind};
use crate::lock::queue::QueuePosition;
use crate::lock::token::Token;
use crate::store::net::hint_queue::HintQueue;
use crate::store::net::unwritten::{Unwritten, Writes};
use crate::store::{Answer, Claim, Fault, FaultKind, Hint, Keep, Renewal, ServerInfo, Vote};

/// Number of entries ahead that are looked at for a place's rank.
const MOST_AHEAD: i64 = 1000;

/// A lock, and the client's place in its line.
pub(super) struct Lock {
    pub(super) client: Client,
    pub(super) names: Names,
    /// One request at a time enters or leaves the line.
    pub(super) gate: Gate<()>,
    state: Mutex<State>,
    pub(super) hints: HintQueue,
    pub(super) writes: Writes,
}

/// The client's part of a lock.
#[derive(Default)]
pub(super) struct State {
    /// The entry, if there is one.
    pub(super) place: Option<Place>,
    /// Tokens that are entering.
    pub(super) entering: Vec<Token>,
    /// Those of them that were released meanwhile.
    pub(super) given_up: HashSet<Token>,
    /// The revision at which the entry was last seen.
    pub(super) seen: i64,
    /// With `--supersede`: the revision of the first entry.
    pub(super) came: Option<i64>,
    /// The waiter with `--supersede` that came after it.
    pub(super) newer: Option<Blocker>,
    /// The last keepalive that was answered.
    pub(super) alive: Option<Keepalive>,
    /// The task that waits in the line at the place.
    pub(super) waiting: Option<AbortHandle>,
    /// The proof that it has made: nothing stands before the place, or the place is gone.
    pub(super) turn: Option<Proof>,
    /// The task that listens for the holder.
    pub(super) listening: Option<AbortHandle>,
    /// Whether it hears.
    pub(super) hears: bool,
}

/// An entry of this client.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) token: Token,
    pub(super) lease: i64,
    pub(super) key: Vec<u8>,
    pub(super) mode: Mode,
    /// The revision that made it; 0 if it is not known.
    pub(super) created: i64,
    /// Whether it was seen to be the lock.
    pub(super) is_held: bool,
    /// Whether a tombstone stands in it.
    pub(super) is_broken: bool,
}

/// Entries that stand in the way of another.
pub(super) struct Ahead {
    /// The nearest entry that keeps it out.
    pub(super) next: KeyValue,
    /// As of this revision.
    pub(super) revision: i64,
    /// Number of entries before it, and of those that are readers'.
    pub(super) before: u32,
    readers: u32,
}

impl Lock {
    pub(super) fn new(client: Client, names: Names) -> Arc<Self> {
        Arc::new(Self {
            hints: HintQueue::of(client.breaks()),
            client,
            names,
            gate: Gate::default(),
            state: Mutex::default(),
            writes: Writes::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `token` enters.
    pub(super) fn enters(&self, token: Token) {
        self.state().entering.push(token);
    }

    /// Takes the lock, or a place in its line.
    pub(super) async fn acquire(self: &Arc<Self>, claim: Claim, written: Unwritten) -> Answer {
        let _turn = self.gate.lock().await;
        let token = claim.token;
        let is_too_late = self.state().given_up.contains(&token);
        let outcome = if is_too_late {
            drop(written);
            None
        } else {
            Some(self.take(&claim, written).await)
        };
        let was_given_up = {
            let mut state = self.state();
            if let Some(at) = state.entering.iter().position(|other| *other == token) {
                state.entering.remove(at);
            }
            state.given_up.remove(&token)
        };
        let (vote, rank) = match outcome {
            Some(voted) if !was_given_up => voted,
            Some(_) => {
                // The release that gave it up has ended the lease too.
                let _ = self.withdraw(lease_of(token)).await;
                (Vote::Failed(given_up()), None)
            }
            None => (Vote::Failed(given_up()), None),
        };
        Answer {
            vote,
            server: ServerInfo::None,
            // The revisions tell who came when.
            position: Some(QueuePosition {
                rank,
                now: 0,
                refused: None,
            }),
        }
    }

    async fn take(self: &Arc<Self>, claim: &Claim, written: Unwritten) -> (Vote, Option<u32>) {
        let known = self.state().place.clone();
        if let Some(place) = known.filter(|place| place.token == claim.token) {
            let proved = self.state().turn.take();
            let proof = match proved.filter(|it| it.will_do(claim.term, clock::now())) {
                Some(proof) => Ok(proof),
                None => self.prove_soon(&place, claim.term).await,
            };
            match proof {
                Ok(Proof::Ours {
                    until,
                    own,
                    ahead,
                    fence,
                }) => {
                    if breaker(&own).is_some() {
                        let left = self.withdraw(place.lease).await;
                        let why = "its place in the line was broken";
                        let fault = Fault::new(FaultKind::Unavailable, why);
                        let fault = left.err().map_or(fault, unknown);
                        return (Vote::Failed(fault), None);
                    }
                    return self.judged(claim, place, until, ahead, fence).await;
                }
                // Its lease is over: it enters again, at the end.
                Ok(Proof::Gone(_)) => self.forget_place(),
                Err(fault) => return (Vote::Failed(fault), None),
            }
        }
        match self.enter(claim, written).await {
            Ok((place, Some(until), ahead, fence)) => {
                self.judged(claim, place, until, ahead, fence).await
            }
            // An earlier request has entered.
            Ok((place, None, ..)) => match self.prove(&place, claim.term).await {
                Ok(Proof::Ours {
                    until,
                    ahead,
                    fence,
                    ..
                }) => self.judged(claim, place, until, ahead, fence).await,
                Ok(Proof::Gone(_)) => (Vote::Failed(given_up()), None),
                Err(fault) => (Vote::Failed(fault), None),
            },
            Err(fault) => (Vote::Failed(fault), None),
        }
    }

    /// Makes the lease and the entry. Returns the entry, until when it is ours if the lease is new,
    /// and what keeps it from being the lock.
    async fn enter(
        self: &Arc<Self>,
        claim: &Claim,
        written: Unwritten,
    ) -> Result<(Place, Option<Instant>, Option<KeyValue>, Option<Fence>), Fault> {
        let lease = lease_of(claim.token);
        let asked = clock::now();
        let grant = LeaseGrantRequest {
            ttl: seconds_up(claim.term.ttl()),
            id: lease,
        };
        let until = match self.client.call(grant, Some(written)).await {
            Outcome::Answered { reply, .. } => {
                let alive = Keepalive::new(lease, asked, &reply);
                self.state().alive = Some(alive);
                Some(alive.end(claim.term)?)
            }
            Outcome::Refused(status) if status.is_lease_known() => None,
            other => return Err(other.result().err().unwrap_or_else(given_up)),
        };
        if self.state().given_up.contains(&claim.token) {
            return Err(given_up());
        }
        let mode = claim.details.mode;
        let key = self.names.entry(mode, lease);
        let put = PutRequest {
            key: key.clone(),
            value: value(claim.token, &claim.details, claim.ticket.as_ref()),
            lease,
            ignore_lease: false,
        };
        let superseding = claim.ticket.as_ref().filter(|it| it.supersedes.is_some());
        let mut puts = vec![op(Request::Put(put))];
        // A waiter that comes back has come when it first did.
        if let Some(ticket) = superseding.filter(|_| self.state().came.is_none()) {
            puts.push(self.naming(ticket).await.map_err(unknown)?);
        }
        let newest = superseding.map(|_| range(single(&self.names.newest())));
        let seen = || {
            let ahead = self.names.ahead(mode).into_iter().map(first_of).map(range);
            newest.clone().into_iter().chain(ahead)
        };
        let request = TxnRequest {
            compare: vec![compare(&key, CompareTo::Create(0))],
            success: seen().chain(puts).collect(),
            failure: [range(single(&key))].into_iter().chain(seen()).collect(),
        };
        let reply = match self.client.call(request, None).await {
            Outcome::Answered { reply, .. } => reply,
            // The entry may come yet, and a release ends it with its lease.
            other => return Err(unknown(other.result().err().unwrap_or_else(given_up))),
        };
        let (revision, is_new) = (header(reply.header)?.revision, reply.succeeded);
        let (newest, found) = self.without_newest(reply);
        let (own, others) = entries(found, &key);
        let created = if is_new {
            revision
        } else {
            own.as_ref().map_or(0, |own| own.create_revision)
        };
        if superseding.is_some() {
            self.state().came.get_or_insert(created);
        }
        self.state().newer = self.newer(newest.as_ref());
        let place = Place {
            token: claim.token,
            lease,
            key,
            mode,
            created,
            is_held: false,
            is_broken: false,
        };
        let ahead = first_before(others, created);
        let mut state = self.state();
        if let Some(earlier) = state.waiting.take() {
            earlier.abort();
        }
        state.place = Some(place.clone());
        (state.seen, state.turn) = (revision, None);
        drop(state);
        Ok((place, until, ahead, fence_of(revision)))
    }

    /// Returns the vote of an entry that is ours until then, and its rank in the line if it is not
    /// the lock.
    async fn judged(
        self: &Arc<Self>,
        claim: &Claim,
        mut place: Place,
        until: Instant,
        ahead: Option<KeyValue>,
        fence: Option<Fence>,
    ) -> (Vote, Option<u32>) {
        let newer = self.state().newer.clone();
        if let Some(newer) = newer {
            return (self.turned_away(&place, newer).await, None);
        }
        let Some(ahead) = ahead else {
            let Some(fence) = fence else {
                let why = "its revision is no fence";
                return (Vote::Failed(Fault::new(FaultKind::Unknown, why)), None);
            };
            place.is_held = true;
            let mut state = self.state();
            if let Some(waiting) = state.waiting.take() {
                waiting.abort();
            }
            self.hints.clear();
            (state.place, state.turn) = (Some(place), None);
            let vote = Vote::Granted {
                until,
                fence,
                index: 0,
            };
            return (vote, None);
        };
        let outer = match self.outer(&claim.outer).await {
            Ok(outer) => outer,
            Err(fault) => return (Vote::Failed(fault), None),
        };
        let shown = self.seen(ahead).await;
        let blocker = |readers| {
            Blocker::Occupant(match &outer {
                Some(outer) => outer.occupant(None),
                None => self.shown(&shown, readers),
            })
        };
        if claim.ticket.is_none() {
            return (self.turned_away(&place, blocker(1)).await, None);
        }
        match self.ahead(&place).await {
            Ok(Some(line)) => {
                let (rank, readers) = (line.before, line.readers);
                let vote = Vote::Blocked(blocker(readers));
                self.wait(place, line, claim.term);
                (vote, Some(rank))
            }
            // It has gone meanwhile.
            Ok(None) => {
                self.hints.tell(Hint::Woken(crate::store::Wake::YourTurn));
                (Vote::Blocked(blocker(1)), Some(0))
            }
            Err(fault) => (Vote::Failed(fault), None),
        }
    }

    /// Returns the entry of a reader among `tokens`, which have locks: what keeps a run inside it out
    /// may wait for it. A writer is the first that is found ahead.
    async fn outer(&self, tokens: &[Token]) -> Result<Option<Entry>, Fault> {
        for token in tokens {
            let key = self.names.entry(Mode::Shared, lease_of(*token));
            let read = self.client.ask(single(&key)).await?;
            let mut found = read.kvs.into_iter().map(Entry::new);
            let is_its = |entry: &Entry| entry.holder.as_ref().is_some_and(|it| it.0 == *token);
            if let Some(entry) = found.find(is_its) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Returns the vote of a place that is left.
    async fn turned_away(&self, place: &Place, by: Blocker) -> Vote {
        match self.withdraw(place.lease).await {
            Ok(()) => Vote::Blocked(by),
            Err(fault) => Vote::Failed(unknown(fault)),
        }
    }

    /// Reads the value of an entry whose key was seen. One that cannot be read is told by its key.
    async fn seen(&self, key: KeyValue) -> Entry {
        let read = self.client.ask(single(&key.key)).await;
        let found = read.ok().and_then(|read| read.kvs.into_iter().next());
        Entry::new(found.unwrap_or(key))
    }

    /// Returns the holder that keeps others out, or all readers together.
    fn shown(&self, first: &Entry, readers: u32) -> Occupant {
        let (true, Some((token, details))) =
            (self.names.is_reader(&first.kv.key), first.holder.clone())
        else {
            return first.occupant(None);
        };
        let members = Members {
            marker: Marker {
                mode: Mode::Shared,
                nodes: details.n,
                ttl: Duration::from_millis(details.ttl),
            },
            count: u64::from(readers.max(1)),
            shown: Some((token, details)),
        };
        Occupant::new(OccupantKind::Members(Box::new(members)), None)
    }

    /// Returns what stands in the way of `place`, if anything does.
    pub(super) async fn ahead(&self, place: &Place) -> Result<Option<Ahead>, Fault> {
        let reply = self.client.ask(self.asking_ahead(place)).await?;
        let revision = header(reply.header)?.revision;
        let mut found: Vec<KeyValue> = kvs(reply).collect();
        found.sort_by(|a, b| (b.create_revision, &b.key).cmp(&(a.create_revision, &a.key)));
        found.dedup_by(|a, b| a.key == b.key);
        let readers = |kvs: &[KeyValue]| {
            let number = kvs
                .iter()
                .filter(|kv| self.names.is_reader(&kv.key))
                .count();
            u32::try_from(number).unwrap_or(u32::MAX)
        };
        let number = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let all = readers(&found);
        let keeps_out =
            |kv: &KeyValue| place.mode != Mode::Shared || !self.names.is_reader(&kv.key);
        Ok(found.into_iter().find(keeps_out).map(|next| Ahead {
            next,
            revision,
            // The first one is the lock.
            before: number.saturating_sub(1),
            readers: all,
        }))
    }

    /// Returns the read of what came before `place`, and of the nearest that keeps it out: that may
    /// be farther away than all that are counted.
    fn asking_ahead(&self, place: &Place) -> TxnRequest {
        let before = |span, limit| RangeRequest {
            limit,
            sort_order: SortOrder::Descend.into(),
            max_create_revision: place.created.saturating_sub(1),
            ..first_of(span)
        };
        let nearest = self.names.ahead(place.mode).into_iter();
        TxnRequest {
            success: std::iter::once(before(self.names.all(), MOST_AHEAD))
                .chain(nearest.map(|span| before(span, 1)))
                .map(range)
                .collect(),
            ..TxnRequest::default()
        }
    }

    /// Renews the lock.
    pub(super) async fn keep(&self, keep: Keep) -> Renewal {
        let known = self.state().place.clone();
        let place = known
            .filter(|place| place.token == keep.token)
            .unwrap_or_else(|| self.place_of(keep.token, keep.mode));
        match self.prove(&place, keep.term).await {
            Err(fault) => Renewal::Failed(fault),
            Ok(Proof::Gone(how)) => Renewal::NotOurs(how, None, None),
            // A waiter of the same token has no lock to renew.
            Ok(Proof::Ours { ahead: Some(_), .. }) => {
                Renewal::NotOurs(Revoked::TakenOver, None, None)
            }
            Ok(Proof::Ours { until, own, .. }) => match breaker(&own) {
                None => Renewal::Renewed(until, None),
                Some(by) => {
                    if let Some(place) = &mut self.state().place {
                        place.is_broken = true;
                    }
                    Renewal::Broken(Some(until), by)
                }
            },
        }
    }

    /// Returns the place of a token whose entry another process has made.
    pub(super) fn place_of(&self, token: Token, mode: Mode) -> Place {
        let lease = lease_of(token);
        Place {
            token,
            lease,
            key: self.names.entry(mode, lease),
            mode,
            created: 0,
            is_held: true,
            is_broken: false,
        }
    }

    /// Forgets the entry, which is not there any more.
    pub(super) fn forget_place(&self) {
        let mut state = self.state();
        state.place = None;
        if let Some(waiting) = state.waiting.take() {
            waiting.abort();
        }
    }

    /// Ends `lease` and the entry that may have it, and forgets both.
    pub(super) async fn withdraw(&self, lease: i64) -> Result<(), Fault> {
        let is_meant = |place: &Place| place.lease == lease;
        if self.state().place.as_ref().is_some_and(is_meant) {
            self.forget_place();
        }
        self.revoke(lease, None).await
    }

    /// Ends `lease` and the keys that have it.
    pub(super) async fn revoke(
        &self,
        lease: i64,
        unwritten: Option<Unwritten>,
    ) -> Result<(), Fault> {
        match self
            .client
            .call(LeaseRevokeRequest { id: lease }, unwritten)
            .await
        {
            Outcome::Refused(status) if status.is_no_lease() => Ok(()),
            other => other.result().map(drop),
        }
    }
}

/// Returns the user that broke the lock, if a tombstone stands there.
fn breaker(own: &Entry) -> Option<Breaker> {
    own.holder.as_ref()?.1.broken.clone()
}

pub(super) fn seconds_up(span: Duration) -> i64 {
    let whole = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

pub(super) fn fence_of(revision: i64) -> Option<Fence> {
    Fence::new(u64::try_from(revision).ok()?)
}

pub(super) fn revoked(has_others: bool) -> Revoked {
    if has_others {
        Revoked::TakenOver
    } else {
        Revoked::Missing
    }
}

pub(super) fn given_up() -> Fault {
    Fault::new(FaultKind::Unknown, "it was given up meanwhile")
}

/// Returns a fault after which an entry may be there.
fn unknown(fault: Fault) -> Fault {
    let kind = match fault.kind {
        FaultKind::Unavailable => FaultKind::Unknown,
        kind => kind,
    };
    Fault { kind, ..fault }
}

/// Returns the entry at `key`, and the others that were found in the order in which they came.
pub(super) fn entries(
    found: impl IntoIterator<Item = KeyValue>,
    key: &[u8],
) -> (Option<KeyValue>, Vec<KeyValue>) {
    let (own, mut others): (Vec<_>, Vec<_>) = found.into_iter().partition(|kv| kv.key == key);
    others.sort_by_key(|kv| kv.create_revision);
    (own.into_iter().next(), others)
}

/// Returns the first of `entries`, if it came before the revision `created`.
pub(super) fn first_before(entries: Vec<KeyValue>, created: i64) -> Option<KeyValue> {
    let first = entries.into_iter().next();
    first.filter(|kv| kv.create_revision < created)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::client::dial;
    use super::super::rpc::RequestOp;
    use super::*;
    use crate::lock::key::Key;
    use crate::store::net::quorum::QuorumAccess;

    pub(in super::super) fn lock() -> Arc<Lock> {
        let client = Client::new(QuorumAccess::default(), dial(None), Duration::ZERO, 0);
        Lock::new(client, Names::new("", &Key::new("", "job").unwrap()))
    }

    pub(in super::super) fn ranges(ops: Vec<RequestOp>) -> Vec<RangeRequest> {
        ops.into_iter()
            .filter_map(|op| match op.request {
                Some(Request::Range(range)) => Some(range),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_reader_finds_the_writer_before_it_behind_any_number_of_readers() {
        let lock = lock();
        let place = Place {
            created: 7,
            ..lock.place_of(Token::fresh(), Mode::Shared)
        };
        let asked = ranges(lock.asking_ahead(&place).success);
        assert_eq!(asked[0].limit, MOST_AHEAD);
        let spans: Vec<_> = asked[1..]
            .iter()
            .map(|range| (range.key.clone(), range.range_end.clone()))
            .collect();
        assert_eq!(spans, lock.names.ahead(Mode::Shared));
        assert!(asked.iter().all(|range| range.max_create_revision == 6));
    }

    #[test]
    fn the_revisions_of_a_mad_server_end_nothing() {
        let lock = lock();
        for created in [i64::MIN, i64::MAX] {
            let place = Place {
                created,
                ..lock.place_of(Token::fresh(), Mode::Exclusive)
            };
            let asked = ranges(lock.asking_ahead(&place).success);
            assert_eq!(asked[0].max_create_revision, created.saturating_sub(1));
        }
    }
}
