//! Looks at a lock, and takes it away from its holder.

use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::client::Client;
use super::lock::Lock;
use super::names::{Entry, lease_of, read_foreign};
use super::rpc::{
    CompareTo, KeyValue, LeaseResponse, LeaseTimeToLiveRequest, PutRequest, RangeRequest, Request,
    SortOrder, SortTarget, TxnRequest, compare, deletion, header, kvs, op, range, single,
};
use crate::clock;
use crate::lock::last::Entry as LastEntry;
use crate::lock::lease::Revoked;
use crate::lock::messages::Observation;
use crate::lock::mode::Mode;
use crate::lock::token::Token;
use crate::store::{Fault, FaultKind, Look, TakeAway};

/// Number of entries that an observation reads besides the waiters.
const MOST_HOLDERS: usize = 100;

/// Number of values that are read at once.
const AT_ONCE: usize = 8;

impl Lock {
    /// Returns the holders, the first waiters and the last success.
    pub(super) async fn look(&self, look: Look) -> Result<Observation, Fault> {
        let asked = clock::now();
        let (key, range_end) = self.names.all();
        let all = RangeRequest {
            key,
            range_end,
            limit: i64::try_from(MOST_HOLDERS + look.max_waiters).unwrap_or(i64::MAX),
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            keys_only: true,
            ..RangeRequest::default()
        };
        let mut wanted = vec![range(all), range(single(&self.names.mark()))];
        if let Some(token) = look.token {
            let lease = lease_of(token);
            let keys = [Mode::Exclusive, Mode::Shared].map(|mode| self.names.entry(mode, lease));
            wanted.extend(keys.iter().map(|key| {
                range(RangeRequest {
                    keys_only: true,
                    ..single(key)
                })
            }));
        }
        let request = TxnRequest {
            success: wanted,
            ..TxnRequest::default()
        };
        let reply = self.client.ask(request).await?;
        let at = header(reply.header)?;
        let (mark, mut found): (Vec<_>, Vec<_>) =
            kvs(reply).partition(|kv| kv.key == self.names.mark());
        found.sort_by_key(|kv| kv.create_revision);
        found.dedup_by(|a, b| a.key == b.key);
        // Values of others may be large: each is read by itself, as it was then.
        let values = found.into_iter().map(|kv| {
            self.client.ask(RangeRequest {
                revision: at.revision,
                ..single(&kv.key)
            })
        });
        let values = stream::iter(values).buffered(AT_ONCE);
        let values: Vec<_> = values.map_ok(|read| read.kvs).try_collect().await?;
        let entries: Vec<Entry> = values.into_iter().flatten().map(Entry::new).collect();
        let size = entries
            .iter()
            .map(|entry| entry.kv.key.len() + entry.kv.value.len())
            .sum();
        let holding = self.holding(&entries);
        let mut seen = Observation {
            size,
            ..Observation::of_nothing(asked)
        };
        for entry in &entries[..holding] {
            let ttl = self.left(entry.kv.lease).await?;
            if entry.holder.is_none() {
                seen.foreign.get_or_insert_with(|| entry.foreign());
            }
            let occupant = entry.occupant(ttl);
            seen.fence = seen.fence.max(occupant.seat.fence);
            seen.holders.push(occupant);
        }
        if entries
            .first()
            .is_some_and(|entry| self.names.is_reader(&entry.kv.key))
        {
            seen.members = holding as u64;
        }
        let success = match mark.first() {
            Some(mark) => Success::told(&self.client, mark).await?,
            None => None,
        };
        // The times that were told are judged by a read that goes through the leader: it knows each
        // later term.
        let tells_time = look.token.is_some() && holding > 0;
        if tells_time || success.is_some() {
            let check = RangeRequest {
                keys_only: true,
                ..single(&self.names.mark())
            };
            let reply = self.client.ask(check).await?;
            let then = header(reply.header)?;
            if tells_time && (at.member_id, at.raft_term) != (then.member_id, then.raft_term) {
                let why = "its leader has changed";
                return Err(Fault::new(FaultKind::Unavailable, why));
            }
            let is_there = !reply.kvs.is_empty();
            seen.last.success = success
                .filter(|_| is_there)
                .map(|success| success.aged(then.raft_term));
        }
        let waiters: Vec<_> = entries[holding..]
            .iter()
            .filter_map(Entry::ticket)
            .collect();
        seen.more = waiters.len() > look.max_waiters;
        seen.queue = waiters.into_iter().take(look.max_waiters).collect();
        Ok(seen)
    }

    /// Returns the number of entries that hold the lock: the first one, or all readers before the
    /// first writer.
    fn holding(&self, entries: &[Entry]) -> usize {
        let is_reader = |entry: &&Entry| self.names.is_reader(&entry.kv.key);
        let readers = entries.iter().take_while(is_reader).count();
        readers.max(usize::from(!entries.is_empty()))
    }

    /// Returns the time for which a lease certainly lasts; `None` without a lease.
    async fn left(&self, lease: i64) -> Result<Option<Duration>, Fault> {
        if lease == 0 {
            return Ok(None);
        }
        let request = LeaseTimeToLiveRequest { id: lease };
        let told = self.client.ask(request).await?;
        Ok(Some(seconds(told.ttl)))
    }

    /// Takes away what is named, and nothing else. `None` if it was done.
    pub(super) async fn take_away(&self, how: TakeAway) -> Result<Option<Revoked>, Fault> {
        // With the lease of what is deleted, which has no other key.
        let (key, revision, change, lease) = match how {
            TakeAway::DeleteForeign(seen) => {
                let Some((created, key)) = read_foreign(&seen) else {
                    return Ok(Some(Revoked::TakenOver));
                };
                (key.to_vec(), CompareTo::Create(created), deletion(key), 0)
            }
            TakeAway::Forget(token) => {
                let key = self.names.mark();
                let found = self.client.ask(single(&key)).await?.kvs;
                let Some(kv) = found.first() else {
                    return Ok(Some(Revoked::Missing));
                };
                if read_mark(&kv.value).is_none_or(|(_, entry)| entry.token != token) {
                    return Ok(Some(Revoked::TakenOver));
                }
                let delete = deletion(&key);
                (key, CompareTo::Mod(kv.mod_revision), delete, kv.lease)
            }
            // The record has successes only, and no run that was broken is one.
            TakeAway::Tombstone(token, _) | TakeAway::Delete(token, ..) => {
                let Some(kv) = self.entry_of(token).await? else {
                    return Ok(Some(self.absence().await?));
                };
                let (change, lease) = match how {
                    TakeAway::Tombstone(_, value) => {
                        let put = PutRequest {
                            key: kv.key.clone(),
                            value: value.into_bytes(),
                            lease: 0,
                            ignore_lease: true,
                        };
                        (op(Request::Put(put)), 0)
                    }
                    _ => (deletion(&kv.key), kv.lease),
                };
                (kv.key, CompareTo::Mod(kv.mod_revision), change, lease)
            }
        };
        let request = TxnRequest {
            compare: vec![compare(&key, revision)],
            success: vec![change],
            failure: Vec::new(),
        };
        if self.client.ask(request).await?.succeeded {
            if lease != 0 {
                // If this is lost, it ends by itself.
                let _ = self.revoke(lease, None).await;
            }
            return Ok(None);
        }
        Ok(Some(self.absence().await?))
    }

    /// Returns the entry of `token`, parked or not.
    async fn entry_of(&self, token: Token) -> Result<Option<KeyValue>, Fault> {
        let keys =
            [Mode::Exclusive, Mode::Shared].map(|mode| self.names.entry(mode, lease_of(token)));
        let request = TxnRequest {
            success: keys.iter().map(|key| range(single(key))).collect(),
            ..TxnRequest::default()
        };
        let reply = self.client.ask(request).await?;
        let is_its = |kv: &KeyValue| Entry::new(kv.clone()).token() == Some(token);
        Ok(kvs(reply).find(is_its))
    }

    /// Returns how an entry is missing.
    async fn absence(&self) -> Result<Revoked, Fault> {
        let (key, range_end) = self.names.all();
        let any = RangeRequest {
            key,
            range_end,
            limit: 1,
            keys_only: true,
            ..RangeRequest::default()
        };
        let is_empty = self.client.ask(any).await?.kvs.is_empty();
        Ok(if is_empty {
            Revoked::Missing
        } else {
            Revoked::TakenOver
        })
    }
}

/// Returns the value of the key of the last success. `term`: the term of raft in which its lease began.
pub(super) fn mark_of(entry: &LastEntry, term: u64) -> Vec<u8> {
    let now = clock::unix_millis(SystemTime::now());
    format!("{term} {}", entry.line(now)).into_bytes()
}

/// Reads such a value, with the age by the hosts' clocks.
fn read_mark(value: &[u8]) -> Option<(u64, LastEntry)> {
    let (term, line) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let entry = LastEntry::read(line, clock::unix_millis(SystemTime::now()))?;
    Some((term.parse().ok()?, entry))
}

/// The last success, and what was told of its lease.
struct Success {
    /// The term of raft in which the lease began.
    term: u64,
    /// With the age by the hosts' clocks.
    entry: LastEntry,
    lease: LeaseResponse,
}

impl Success {
    /// Returns the success that `mark` tells, and asks for its lease.
    async fn told(client: &Client, mark: &KeyValue) -> Result<Option<Self>, Fault> {
        let Some((term, entry)) = read_mark(&mark.value) else {
            return Ok(None);
        };
        let request = LeaseTimeToLiveRequest { id: mark.lease };
        let lease = client.ask(request).await?;
        Ok(Some(Self { term, entry, lease }))
    }

    /// Returns it with its age, if its key is there later, in the term `then`. The age is the part of
    /// its lease that is over, by the leader's clock. A leader that begins gives the lease its whole
    /// time again, and one that leads no more may tell what it likes. Then the age may be higher, by the
    /// hosts' clocks.
    fn aged(self, then: u64) -> LastEntry {
        let LeaseResponse {
            ttl, granted_ttl, ..
        } = self.lease;
        let is_told = (0..=granted_ttl).contains(&ttl);
        // The time that is left is told in whole seconds, rounded down.
        let over = if is_told {
            seconds(granted_ttl - ttl).saturating_sub(Duration::from_secs(1))
        } else {
            Duration::ZERO
        };
        let age = if is_told && then == self.term {
            over
        } else {
            over.max(self.entry.age)
        };
        LastEntry { age, ..self.entry }
    }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or_default())
}
