//! Reads the scripts' replies: pure functions of a reply that a hostile server may have written.
//!
//! A reply that no script of ours returns is a fault of kind unknown: the command may have run.

use std::fmt::{self, Write};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use super::call::fence_told;
use super::error::NAME_THE_PRIMARY;
use crate::lock::blocker::Blocker;
use crate::lock::blocker::Reservation;
use crate::lock::details::LARGEST_VALUE;
use crate::lock::instant::Instant;
use crate::lock::last::Record;
use crate::lock::lease::Revoked;
use crate::lock::messages::ServerIdentity;
use crate::lock::messages::{ForeignValue, Observation};
use crate::lock::mode::MOST_SLOTS;
use crate::lock::occupant::{Marker, Members, Occupant, OccupantKind};
use crate::lock::queue::{QueuePosition, Ticket};
use crate::store::{Answer, Counter, Fault, FaultKind, Renewal, ServerInfo, Vote, Wake};
use crate::text::escape;

/// Number of words of which `peek.lua` makes what is at the key.
const SEEN: usize = 5;

/// The largest entry of a member: its index, its fence and its value.
const LARGEST_ENTRY: usize = LARGEST_VALUE + 32;

/// The largest record: two lines.
const LARGEST_RECORD: usize = 2 * LARGEST_VALUE;

/// Longest name of a type in Redis or a module, in bytes.
const LONGEST_TYPE: usize = 64;

/// Reads the reply to an acquire. A grant lasts until `until`.
pub fn answer(value: &Value, until: Instant) -> Result<Answer, Fault> {
    let read = || {
        let [vote, server, place] = array(value)? else {
            return None;
        };
        let (vote, position) = (self::vote(vote, until)?, queue_position(place)?);
        Some(Answer {
            vote,
            server: server_info(server)?,
            position: Some(position),
        })
    };
    read().ok_or_else(|| garbled(value))
}

fn vote(answer: &Value, until: Instant) -> Option<Vote> {
    Some(match parts(answer)? {
        [Some("granted"), Some(fence)] => {
            let index = text(array(answer)?.get(2)?)?
                .parse()
                .ok()
                .filter(|index| *index <= MOST_SLOTS)?;
            Vote::Granted {
                until,
                fence: fence_told(fence)?,
                index,
            }
        }
        [Some("held"), _] => Vote::Blocked(Blocker::Occupant(held(answer)?)),
        [Some("turn"), Some(next)] => Vote::Blocked(Blocker::Reserved(reservation(answer, next)?)),
        [Some("superseded"), Some(newer)] => {
            Vote::Blocked(Blocker::Newer(newer.parse().ok().map(Box::new)))
        }
        [Some("restarted"), None] => Vote::Restarted,
        [Some("replica"), None] => {
            let fault = Fault::new(
                FaultKind::Unavailable,
                "READONLY: it is a replica, and grants nothing",
            );
            Vote::Failed(fault.with_remedy(NAME_THE_PRIMARY))
        }
        [Some("exhausted"), None] => {
            let what = "the fence counter has reached 2^52";
            Vote::Failed(Fault::unfit(what, "delete it if that was by hand"))
        }
        _ => return None,
    })
}

/// Reads what is at the key: of a marker, with its members. A member that is meant is returned in
/// the marker's place.
fn held(answer: &Value) -> Option<Occupant> {
    let (seen, crowd) = array(answer)?.split_first_chunk::<SEEN>()?;
    let seen = Peeked::read(seen)?;
    let marker = std::str::from_utf8(seen.head).ok().and_then(Marker::read);
    let (Some(marker), [Value::Int(count), Value::Int(meant), entry]) = (marker, crowd) else {
        return Some(seen.occupant());
    };
    let entry = bulk(entry).filter(|entry| entry.len() <= LARGEST_ENTRY)?;
    let member = Occupant::member(entry, seen.ttl);
    if *meant == 1
        && let Some(member) = member
    {
        return Some(member);
    }
    let shown = member.and_then(|member| {
        member
            .holder()
            .map(|(token, details)| (token, details.clone()))
    });
    let members = Members {
        marker,
        count: u64::try_from(*count).ok()?,
        shown,
    };
    Some(Occupant::new(
        OccupantKind::Members(Box::new(members)),
        seen.ttl,
    ))
}

/// Whether the reply to a request for the lock tells the first waiter that a hash is at the key, as
/// Redisson's locks are.
pub(super) fn is_redissons_before_the_first(reply: &Value) -> bool {
    let Some([Value::Array(answer), _, Value::Array(place)]) = array(reply) else {
        return false;
    };
    let [held, kind, ..] = answer.as_slice() else {
        return false;
    };
    (text(held), text(kind)) == (Some("held"), Some("hash"))
        && place.first() == Some(&Value::Int(0))
}

fn server_info(about: &Value) -> Option<ServerInfo> {
    Some(match array(about)? {
        [] => ServerInfo::None,
        [word, why] if text(word)? == "forbidden" => {
            ServerInfo::Forbidden(format!("INFO: {}", escape::short(text(why)?)))
        }
        [uptime, run_id, replication_id] => ServerInfo::Told(identity(
            text(uptime)?.parse().ok()?,
            text(run_id)?,
            text(replication_id)?,
        )),
        _ => return None,
    })
}

/// Returns the identity that a server's INFO tells: its uptime in seconds, and the marks of its
/// process and its data. The first is new with every start, and replicas have the second too.
pub(super) fn identity(uptime: u64, run_id: &str, replication_id: &str) -> ServerIdentity {
    let marks = [
        (run_id, "is the same server as"),
        (
            replication_id,
            "has the same data as, being a replica of or with,",
        ),
    ];
    let told = marks.into_iter().filter(|(mark, _)| !mark.is_empty());
    ServerIdentity {
        remembers: proven(uptime),
        event: "restarted",
        marks: told.map(|(mark, words)| (mark.to_owned(), words)).collect(),
    }
}

/// Returns the time that a server has certainly been up which tells this uptime, in seconds.
pub(super) fn proven(uptime: u64) -> Duration {
    Duration::from_secs(uptime.saturating_sub(1))
}

fn queue_position(place: &Value) -> Option<QueuePosition> {
    let [Value::Int(rank), now, refused] = array(place)? else {
        return None;
    };
    let now = text(now)?.parse().ok()?;
    let refused = String::from_utf8_lossy(bulk(refused)?);
    let refused = (!refused.is_empty()).then(|| escape::short(&refused));
    Some(QueuePosition {
        rank: u32::try_from(*rank).ok(),
        now,
        refused,
    })
}

/// Reads "it is another waiter's turn".
fn reservation(answer: &Value, next: &str) -> Option<Reservation> {
    let Value::Int(left) = array(answer)?.get(2)? else {
        return None;
    };
    Some(Reservation {
        waiter: next.parse().ok(),
        left: Duration::from_millis(u64::try_from(*left).unwrap_or(0)),
    })
}

/// Whether a script answered that the server is a replica.
pub fn is_replica(value: &Value) -> bool {
    first_parts(value) == Some([Some("replica"), None])
}

/// Whether a script answered that it has written what must have copies.
pub fn has_written(value: &Value) -> bool {
    matches!(first_parts(value), Some([Some("granted"), _]))
        || matches!(
            parts(value),
            Some([Some("renewed" | "healed" | "broken" | "released"), _])
        )
}

/// Reads the reply to a renewal. A key that was extended lasts until `until`. `keeps`: the script
/// extends a tombstone too.
pub fn renewal(value: &Value, until: Instant, keeps: bool) -> Renewal {
    match parts(value) {
        Some([Some("healed"), counter]) => Renewal::Healed(until, counted(counter)),
        Some([Some("broken"), _]) => {
            let by = held(value).and_then(|seen| seen.holder()?.1.broken.clone());
            Renewal::Broken(keeps.then_some(until), by.unwrap_or_default())
        }
        Some([Some("renewed"), counter]) => Renewal::Renewed(until, counted(counter)),
        Some([Some("absent"), counter]) => {
            Renewal::NotOurs(Revoked::Missing, counted(counter), None)
        }
        Some([Some("held"), _]) => Renewal::NotOurs(Revoked::TakenOver, None, left(value)),
        _ => Renewal::Failed(garbled(value)),
    }
}

/// Returns the TTL of what is at the key.
fn left(value: &Value) -> Option<Duration> {
    let seen = array(value)?.first_chunk::<SEEN>()?;
    Peeked::read(seen)?.ttl
}

fn counted(counter: Option<&str>) -> Counter {
    counter?.parse().ok()
}

/// Reads the reply to a release or a removal: `None` if it was done, else how the key was not the
/// token's.
pub fn standing(value: &Value, good: &str) -> Result<Option<Revoked>, Fault> {
    match parts(value) {
        Some([Some(word), _]) if word == good => Ok(None),
        Some([Some("absent"), _]) => Ok(Some(Revoked::Missing)),
        Some([Some("held"), _]) => Ok(Some(Revoked::TakenOver)),
        _ => Err(garbled(value)),
    }
}

/// Returns the channel and the wake-up of a message; `None` if the push is something else.
pub fn wake(push: &PushInfo) -> Option<(&[u8], Wake)> {
    let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(word)]) =
        (&push.kind, &push.data[..])
    else {
        return None;
    };
    Some((
        channel,
        if word == b"standby" {
            Wake::StandBy
        } else {
            Wake::YourTurn
        },
    ))
}

/// Returns the first two words of an array.
fn parts(value: &Value) -> Option<[Option<&str>; 2]> {
    let items = array(value)?;
    Some([0, 1].map(|index| items.get(index).and_then(text)))
}

/// Returns those of the first array in an array.
fn first_parts(value: &Value) -> Option<[Option<&str>; 2]> {
    array(value)?.first().and_then(parts)
}

pub(in crate::store) fn array(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value {
        Some(items)
    } else {
        None
    }
}

pub(in crate::store) fn bulk(value: &Value) -> Option<&[u8]> {
    if let Value::BulkString(bytes) = value {
        Some(bytes)
    } else {
        None
    }
}

pub(in crate::store) fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(bulk(value)?).ok()
}

/// The value at a key, as `peek.lua` tells it.
struct Peeked<'a> {
    /// Redis' name of the type: `string`, `hash`, …
    kind: &'a [u8],
    /// Length of the whole string; 0 for other types.
    length: u64,
    /// At most the first [`LARGEST_VALUE`] bytes of a string.
    head: &'a [u8],
    /// Time to live, `None` if the key never expires.
    ttl: Option<Duration>,
}

impl<'a> Peeked<'a> {
    fn read(seen: &'a [Value; SEEN]) -> Option<Self> {
        let [_, kind, Value::Int(length), head, Value::Int(ttl)] = seen else {
            return None;
        };
        // No script of ours returns more of either, and both are shown to people.
        let kind = bulk(kind).filter(|kind| kind.len() <= LONGEST_TYPE)?;
        let head = bulk(head).filter(|head| head.len() <= LARGEST_VALUE)?;
        Some(Self {
            kind,
            length: u64::try_from(*length).ok()?,
            head,
            ttl: u64::try_from(*ttl).ok().map(Duration::from_millis),
        })
    }

    fn is_string(&self) -> bool {
        self.kind == b"string"
    }

    fn occupant(&self) -> Occupant {
        // Of another client's hash no text is told.
        let is_whole = self.length == self.head.len() as u64;
        let ours = is_whole.then(|| Occupant::read(self.head, self.ttl));
        let mut occupant = ours
            .flatten()
            .unwrap_or_else(|| Occupant::new(OccupantKind::Foreign(self.described()), self.ttl));
        if let OccupantKind::Holder(_, details) = &mut occupant.who {
            details.has_other_form = !self.is_string();
        }
        occupant
    }

    fn described(&self) -> String {
        if !self.is_string() {
            return format!("a {}", escape::bytes(self.kind));
        }
        let shown = &self.head[..self.head.len().min(40)];
        if self.length > shown.len() as u64 {
            format!(
                "a string of {} bytes, {}…",
                self.length,
                escape::bytes(shown)
            )
        } else {
            format!("the value {}", escape::bytes(shown))
        }
    }

    /// Returns the words by which `delete_foreign` knows the value again.
    fn foreign(&self) -> ForeignValue {
        let length = self.length.to_string().into_bytes();
        ForeignValue(vec![self.kind.to_vec(), length, self.head.to_vec()])
    }
}

/// Reads the reply to an observation, which was about to be sent at `asked`.
pub fn observation(value: &Value, asked: Instant) -> Result<Observation, Fault> {
    seen(value, asked).ok_or_else(|| garbled(value))
}

fn seen(value: &Value, asked: Instant) -> Option<Observation> {
    let [
        Value::Array(at_key),
        Value::Array(members),
        fence,
        Value::Array(waiters),
        Value::Int(more),
        last,
        now,
    ] = array(value)?
    else {
        return None;
    };
    let (seen, number) = match at_key.as_slice() {
        [] => (None, 0),
        [seen @ .., Value::Int(number)] if seen.len() == SEEN => {
            (Some(Peeked::read(seen.first_chunk()?)?), *number)
        }
        seen => (Some(Peeked::read(seen.first_chunk()?)?), 0),
    };
    let mut holders: Vec<Occupant> = members.chunks_exact(3).filter_map(member).collect();
    let mut foreign = None;
    if let Some(seen) = seen.filter(|_| holders.is_empty()) {
        let occupant = seen.occupant();
        foreign = occupant.holder().is_none().then(|| seen.foreign());
        holders.push(occupant);
    }
    let members = u64::try_from(number).ok()?;
    // A value that is no counter counts as none: observing it changes nothing for the lock.
    let fence = std::str::from_utf8(bulk(fence)?).ok().and_then(fence_told);
    let now = text(now)?.parse().ok()?;
    let last = Record::read(
        &String::from_utf8_lossy(bulk(last).filter(|last| last.len() <= LARGEST_RECORD)?),
        now,
    );
    // A member that is not a waiter of rlock is skipped when its turn comes, and so it is here.
    let queue = waiters.chunks_exact(2).filter_map(ticket).collect();
    Some(Observation {
        holders,
        members,
        foreign,
        fence,
        queue,
        more: *more > 0,
        last,
        asked,
        size: size(value),
    })
}

/// Returns the bytes that a reply takes, about: its texts, and what holds them.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(size).sum(),
        other => size_of::<Value>() + bulk(other).map_or(0, <[u8]>::len),
    }
}

/// Reads a member: its token, the ms until it is over, and its entry. One that another release
/// wrote may not be readable.
fn member(parts: &[Value]) -> Option<Occupant> {
    let [_, Value::Int(left), entry] = parts else {
        return None;
    };
    let entry = bulk(entry).filter(|entry| entry.len() <= LARGEST_ENTRY)?;
    let ttl = Duration::from_millis(u64::try_from(*left).unwrap_or_default());
    Occupant::member(entry, Some(ttl))
}

/// Reads a waiter and its ticket.
fn ticket(pair: &[Value]) -> Option<Ticket> {
    let [waiter, score] = pair else { return None };
    let score: f64 = text(score)?.parse().ok()?;
    // Tickets are unix microseconds, which a float holds exactly. Other numbers only sort to either
    // end.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(Ticket {
        waiter: text(waiter)?.parse().ok()?,
        number: score as u64,
        supersedes: None,
    })
}

/// The fault of a reply that no script of ours returns: an unknown server's, or a proxy's own. The
/// command may have run.
fn garbled(value: &Value) -> Fault {
    let mut shown = First {
        text: String::new(),
        left: 80,
    };
    let _ = write!(shown, "{value:?}");
    Fault::new(
        FaultKind::Unknown,
        format!("unexpected reply: {}", escape::text(&shown.text)),
    )
}

/// Takes the first characters of a text, and ends the writing there.
struct First {
    text: String,
    left: usize,
}

impl fmt::Write for First {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(c);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fence::Fence;

    fn words(words: &[&str]) -> Vec<Value> {
        words
            .iter()
            .map(|word| Value::BulkString(word.as_bytes().to_vec()))
            .collect()
    }

    fn blocked(kind: &str, head: &str) -> Value {
        let mut items = words(&["held", kind]);
        items.extend(
            [Value::Int(0)]
                .into_iter()
                .chain(words(&[head]))
                .chain([Value::Int(9)]),
        );
        let place = [vec![Value::Int(0)], words(&["1", ""])].concat();
        Value::Array(vec![
            Value::Array(items),
            Value::Array(Vec::new()),
            Value::Array(place),
        ])
    }

    #[test]
    fn a_server_met_twice_and_a_replica_are_no_independent_nodes() {
        let shared = |(run_id, data), (other, others)| {
            identity(9, run_id, data).shared_with(&identity(9, other, others))
        };
        assert_eq!(shared(("a", "x"), ("b", "y")), None);
        assert!(shared(("a", "x"), ("a", "x")).is_some_and(|how| how.contains("same server")));
        assert!(shared(("a", "x"), ("b", "x")).is_some_and(|how| how.contains("replica")));
        assert_eq!(shared(("", ""), ("", "")), None);
    }

    #[test]
    fn what_is_longer_than_any_script_sends_is_no_answer() {
        let now = Instant::from_nanos(0);
        assert!(matches!(
            answer(&blocked("hash", ""), now),
            Ok(Answer {
                vote: Vote::Blocked(Blocker::Occupant(_)),
                ..
            })
        ));
        for long in [
            blocked(&"y".repeat(65), ""),
            blocked("string", &"y".repeat(LARGEST_VALUE + 1)),
        ] {
            let fault = answer(&long, now).unwrap_err();
            assert!(
                fault.kind == FaultKind::Unknown && fault.why.len() < 200,
                "{fault}"
            );
        }
    }

    #[test]
    fn a_marker_is_told_with_one_member_which_takes_its_place_where_it_is_meant() {
        let token = crate::lock::token::Token::fresh();
        let entry = format!("2 41 {token} {{\"mode\":\"k3\",\"host\":\"web1\",\"n\":3}}");
        let marker = "rlock k3 n=3 ttl=30000";
        let told = |meant: i64| {
            let mut items = words(&["held", "string"]);
            items.extend(
                [Value::Int(22)]
                    .into_iter()
                    .chain(words(&[marker]))
                    .chain([Value::Int(9)]),
            );
            items.extend(
                [Value::Int(2), Value::Int(meant)]
                    .into_iter()
                    .chain(words(&[&entry])),
            );
            held(&Value::Array(items)).unwrap()
        };
        let group = told(0);
        assert_eq!(
            (group.holder(), group.nodes(), group.lease_length()),
            (None, Some(3), Some(Duration::from_secs(30)))
        );
        assert!(
            group.named().starts_with("held in 2 of 3 slots by ")
                && group.named().ends_with(" and 1 more")
        );
        let member = told(1);
        assert_eq!(member.holder().map(|(token, _)| token), Some(token));
        assert_eq!((member.seat.index, member.seat.fence), (2, Fence::new(41)));
    }

    #[test]
    fn only_an_answer_that_something_was_written_is_one_of_a_write() {
        let renewal = |word| has_written(&Value::Array(words(&[word, "7"])));
        assert!(
            renewal("renewed") && renewal("healed") && renewal("broken") && renewal("released")
        );
        assert!(!renewal("absent") && !renewal("held") && !has_written(&Value::Nil));
        let acquired = |word| {
            has_written(&Value::Array(vec![
                Value::Array(words(&[word, "7", "0"])),
                Value::Nil,
            ]))
        };
        assert!(acquired("granted") && !acquired("held") && !acquired("turn"));
    }

    #[test]
    fn a_fence_that_no_script_gives_is_no_answer() {
        let now = Instant::from_nanos(0);
        let place = [vec![Value::Int(0)], words(&["1", ""])].concat();
        let granted = |fence: &str| {
            let parts = [words(&["granted", fence, "0"]), Vec::new(), place.clone()];
            answer(
                &Value::Array(parts.into_iter().map(Value::Array).collect()),
                now,
            )
        };
        assert!(granted("4503599627370495").is_ok());
        for fence in ["0", "4503599627370496", "9007199254740993", "-1", "1e9", ""] {
            assert!(granted(fence).is_err(), "{fence}");
        }
    }

    #[test]
    fn an_index_that_no_lock_has_is_no_answer() {
        let now = Instant::from_nanos(0);
        let place = [vec![Value::Int(0)], words(&["1", ""])].concat();
        let granted = |index: &str| {
            let parts = [words(&["granted", "7", index]), Vec::new(), place.clone()];
            answer(
                &Value::Array(parts.into_iter().map(Value::Array).collect()),
                now,
            )
        };
        assert!(granted("1000").is_ok());
        for index in ["1001", "65535", "70000", "-1", ""] {
            assert!(granted(index).is_err(), "{index}");
        }
    }

    #[test]
    fn a_hash_at_the_key_is_told_to_the_first_waiter_alone() {
        let word = |text: &str| Value::BulkString(text.into());
        let reply = |vote: &str, kind: &str, place: &[i64]| {
            let place = place.iter().map(|rank| Value::Int(*rank)).collect();
            Value::Array(vec![
                Value::Array(vec![word(vote), word(kind)]),
                Value::Nil,
                Value::Array(place),
            ])
        };
        assert!(is_redissons_before_the_first(&reply("held", "hash", &[0])));
        assert!(
            !is_redissons_before_the_first(&reply("held", "hash", &[1])),
            "a waiter further back"
        );
        assert!(
            !is_redissons_before_the_first(&reply("held", "hash", &[])),
            "a client without a place"
        );
        assert!(
            !is_redissons_before_the_first(&reply("held", "string", &[0])),
            "another lock"
        );
        assert!(!is_redissons_before_the_first(&reply(
            "granted",
            "hash",
            &[0]
        )));
    }
}
