//! The keys of one lock, as clientv3's `Mutex` and `etcdctl lock` have them, and what stands in
//! them (docs/etcd.md, What is stored).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::rpc::{KeyValue, RangeRequest, SortOrder, SortTarget};
use crate::lock::details::{Details, LARGEST_VALUE};
use crate::lock::fence::Fence;
use crate::lock::key::Key;
use crate::lock::messages::ForeignValue;
use crate::lock::mode::Mode;
use crate::lock::occupant::{Occupant, OccupantKind, Seat};
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::token::Token;
use crate::text::escape;

/// The beginning of the key that tells the last success, and of the one that names the last waiter
/// with `--supersede`. They are no part of any lock.
pub(super) const OWN: [&str; 2] = ["rlock:once:", "rlock:newest:"];

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The lock's name with a slash: the beginning of all its keys.
    folder: String,
}

/// Keys from the first one on, up to the last and without it.
pub(super) type Span = (Vec<u8>, Vec<u8>);

impl Names {
    /// The keys of `key` under `prefix`.
    pub(super) fn new(prefix: &str, key: &Key) -> Self {
        let slash = if prefix.is_empty() { "" } else { "/" };
        Self {
            folder: format!("{prefix}{slash}{}/", key.stored()),
        }
    }

    /// Whether the lock's keys would be among those beside the locks.
    pub(super) fn are_own(&self) -> bool {
        OWN.iter().any(|own| self.folder.starts_with(own))
    }

    /// Returns the key of the entry with this lease.
    pub(super) fn entry(&self, mode: Mode, lease: i64) -> Vec<u8> {
        let readers = if mode == Mode::Shared { "read/" } else { "" };
        format!("{}{readers}{lease:x}", self.folder).into_bytes()
    }

    /// Returns the key of the last success.
    pub(super) fn mark(&self) -> Vec<u8> {
        self.beside(OWN[0])
    }

    /// Returns the key that names the last waiter with `--supersede`.
    pub(super) fn newest(&self) -> Vec<u8> {
        self.beside(OWN[1])
    }

    /// Returns the number of that key's lease, which all clients find by the key.
    pub(super) fn lease_of_newest(&self) -> i64 {
        numbered(Uuid::new_v5(&Uuid::NAMESPACE_OID, &self.newest()))
    }

    fn beside(&self, own: &str) -> Vec<u8> {
        format!("{own}{}", &self.folder[..self.folder.len() - 1]).into_bytes()
    }

    /// Returns all keys of the lock.
    pub(super) fn all(&self) -> Span {
        under(&self.folder)
    }

    /// Returns the keys that keep out an entry of this kind, if they were there before it: all, or
    /// for a reader all that are no readers'.
    pub(super) fn ahead(&self, mode: Mode) -> Vec<Span> {
        let (first, end) = self.all();
        if mode != Mode::Shared {
            return vec![(first, end)];
        }
        let (readers, behind) = under(&format!("{}read/", self.folder));
        vec![(first, readers), (behind, end)]
    }

    /// Whether the key is a reader's.
    pub(super) fn is_reader(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.folder.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"read/"))
    }
}

/// Returns the keys that begin with `folder`, which ends with a slash.
pub(super) fn under(folder: &str) -> Span {
    // The character behind the slash.
    let end = format!("{}0", &folder[..folder.len() - 1]);
    (folder.into(), end.into_bytes())
}

/// Returns the request for the key of the first of `span` by the order in which they came. Values of
/// others may be large.
pub(super) fn first_of((key, range_end): Span) -> RangeRequest {
    RangeRequest {
        key,
        range_end,
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        keys_only: true,
        ..RangeRequest::default()
    }
}

/// Returns the lease of a token: its first 63 bits, so that every process finds the lease and the
/// key of a lock by its token.
pub(super) fn lease_of(token: Token) -> i64 {
    numbered(token.as_uuid())
}

/// Returns the first 63 bits of `id`. The version among them is not zero.
fn numbered(id: Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 65).unwrap_or(i64::MAX)
}

/// The fields of an entry beside its token.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    details: &'a Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiter: Option<String>,
}

/// The same as it is read, without the details.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Place {
    waiter: Option<String>,
}

/// Returns the value of an entry: `TOKEN SP DETAILS`, with the name of its waiter.
pub(super) fn value(token: Token, details: &Details, ticket: Option<&Ticket>) -> Vec<u8> {
    let written = Written {
        details,
        waiter: ticket.map(|ticket| ticket.waiter.id.to_string()),
    };
    // Strings and numbers only: writing them cannot fail.
    let json = serde_json::to_string(&written).unwrap_or_default();
    format!("{token} {json}").into_bytes()
}

/// An entry of a lock.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kv: KeyValue,
    /// The rlock whose it is; `None` if it is another client's.
    pub(super) holder: Option<(Token, Details)>,
}

/// Reads what [`Entry::foreign`] wrote: the revision at which the entry was made, and its key.
pub(super) fn read_foreign(seen: &ForeignValue) -> Option<(i64, &[u8])> {
    let [created, key] = &seen.0[..] else {
        return None;
    };
    Some((std::str::from_utf8(created).ok()?.parse().ok()?, key))
}

/// Longest value of an entry, in bytes: another client's may be longer.
const LONGEST_ENTRY: usize = 2 * LARGEST_VALUE;

impl Entry {
    pub(super) fn new(mut kv: KeyValue) -> Self {
        if kv.value.len() > LONGEST_ENTRY {
            kv.value = Vec::new();
        }
        // Another client may have copied the value, and what is done to its token is done to
        // another key.
        let is_its = |token| {
            kv.key
                .ends_with(format!("/{:x}", lease_of(token)).as_bytes())
        };
        let holder = match Occupant::read(&kv.value, None).map(|told| told.who) {
            Some(OccupantKind::Holder(token, details)) if is_its(token) => Some((token, details)),
            _ => None,
        };
        Self { kv, holder }
    }

    /// Returns the token of the rlock whose it is.
    pub(super) fn token(&self) -> Option<Token> {
        self.holder.as_ref().map(|(token, _)| *token)
    }

    /// Returns the entry as a holder, which ends in `ttl` if that is known.
    pub(super) fn occupant(&self, ttl: Option<Duration>) -> Occupant {
        let who = match &self.holder {
            Some((token, details)) => OccupantKind::Holder(*token, details.clone()),
            None => OccupantKind::InLine(self.described()),
        };
        let fence = u64::try_from(self.kv.create_revision).ok();
        Occupant {
            seat: Seat {
                index: 0,
                fence: fence.and_then(Fence::new),
            },
            ..Occupant::new(who, ttl)
        }
    }

    /// Returns another client's entry for people.
    fn described(&self) -> String {
        let key = escape::bytes(&self.kv.key);
        match self.kv.lease {
            0 => format!("the key {key}, which has no lease"),
            lease => format!("the key {key}, lease {lease:x}"),
        }
    }

    /// Returns another client's entry as what `rlock break --foreign` deletes: its name, and the
    /// revision at which it was made.
    pub(super) fn foreign(&self) -> ForeignValue {
        let created = self.kv.create_revision.to_string();
        ForeignValue(vec![created.into_bytes(), self.kv.key.clone()])
    }

    /// Returns the entry as a waiter, if it is one's.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let (token, details) = self.holder.as_ref()?;
        let json = std::str::from_utf8(&self.kv.value).ok()?.split_once(' ')?.1;
        let place: Place = serde_json::from_str(json).unwrap_or_default();
        let id = place.waiter.and_then(|id| Uuid::try_parse(&id).ok());
        Some(Ticket {
            waiter: Waiter {
                id: id.unwrap_or(token.as_uuid()),
                host: details.host.clone(),
                pid: details.pid.unwrap_or_default(),
                since: details.since,
                mode: details.mode,
                user: details.user.clone(),
                note: details.note.clone(),
            },
            number: u64::try_from(self.kv.create_revision).unwrap_or_default(),
            supersedes: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str) -> Names {
        Names::new(prefix, &Key::new("", "job").unwrap())
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn keys_are_those_of_etcdctl() {
        assert_eq!(text(&names("").entry(Mode::Exclusive, 0x1f)), "job/1f");
        let own = names("/locks");
        assert_eq!(text(&own.entry(Mode::Exclusive, 0x1f)), "/locks/job/1f");
        assert_eq!(text(&own.entry(Mode::Shared, 0x1f)), "/locks/job/read/1f");
        assert_eq!(
            own.all(),
            (b"/locks/job/".to_vec(), b"/locks/job0".to_vec())
        );
        assert_eq!(text(&own.mark()), "rlock:once:/locks/job");
        assert_eq!(text(&own.newest()), "rlock:newest:/locks/job");
        let other = Names::new("/locks", &Key::new("", "job/").unwrap());
        assert_eq!(text(&other.mark()), "rlock:once:/locks/job/");
    }

    #[test]
    fn a_reader_is_kept_out_by_all_but_readers() {
        let own = names("");
        let keeps_out = |key: &str| {
            let key = key.as_bytes().to_vec();
            let is_in = |(first, end): &Span| key >= *first && key < *end;
            own.ahead(Mode::Shared).iter().any(is_in)
        };
        assert!(keeps_out("job/1f") && keeps_out("job/write/1") && keeps_out("job/read"));
        assert!(!keeps_out("job/read/1f") && !keeps_out("job2/1f") && !keeps_out("job"));
        assert!(own.is_reader(b"job/read/1f") && !own.is_reader(b"job/1f"));
    }

    #[test]
    fn a_lease_is_positive_and_found_by_the_token() {
        for _ in 0..100 {
            let token = Token::fresh();
            let lease = lease_of(token);
            assert!(lease > 0);
            assert_eq!(lease_of(token.to_string().parse().unwrap()), lease);
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_another_clients_is_none() {
        let (token, details) = (Token::fresh(), Details::default());
        let ticket = Ticket {
            waiter: Waiter::example(7),
            number: 0,
            supersedes: None,
        };
        let kv = |value| KeyValue {
            key: names("").entry(Mode::Exclusive, lease_of(token)),
            create_revision: 3,
            value,
            lease: 0x1f,
            ..KeyValue::default()
        };
        let entry = Entry::new(kv(value(token, &details, Some(&ticket))));
        assert_eq!(entry.holder, Some((token, details.clone())));
        let seen = entry.ticket().unwrap();
        assert_eq!((seen.waiter.id, seen.number), (ticket.waiter.id, 3));
        let broken = details.tombstone(token, "ops".into());
        let entry = Entry::new(kv(broken.into_bytes()));
        assert!(entry.holder.unwrap().1.broken.is_some());
        for value in [Vec::new(), value(token, &details, None)] {
            let key = b"job/1f".to_vec();
            let foreign = Entry::new(KeyValue { key, ..kv(value) });
            assert_eq!(
                foreign.occupant(None).who,
                OccupantKind::InLine("the key job/1f, lease 1f".to_owned())
            );
        }
    }
}
