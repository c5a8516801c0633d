//! The value at a key: another rlock's lock, or a foreign client's value. It is read from a stranger, so nothing is trusted.

use std::fmt;
use std::time::Duration;

use super::details::{BROKEN, Details, PARKED};
use super::fence::Fence;
use super::group::{Group, Marker, Seat};
use super::mode::Mode;
use super::schedule::LONGEST_TTL;
use super::token::Token;
use crate::text::duration;
use crate::text::escape;

/// The value at the key as the node told it, before it is parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawValue {
    /// Redis' name of the type: `string`, `hash`, …
    pub kind: String,
    /// Length of the whole string; 0 for other types.
    pub length: u64,
    /// At most the first [`super::details::LARGEST_VALUE`] bytes of a string.
    pub head: Vec<u8>,
    /// Time to live, `None` if the key never expires.
    pub ttl: Option<Duration>,
}

/// The owner of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Occupant {
    /// Its kind.
    pub who: OccupantKind,
    /// Time until the key expires, or until the member is over; `None` if it never does.
    pub ttl: Option<Duration>,
    /// Of a member, its place.
    pub seat: Seat,
}

/// A holder that speaks our format, or anything else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OccupantKind {
    /// An rlock.
    Holder(Token, Details),
    /// Several rlocks, or one beside which others may come.
    Group(Box<Group>),
    /// Another client's value, described for people. It is respected and never touched.
    Foreign(String),
    /// A process of this machine that has not said who it is.
    Unnamed,
}

impl OccupantKind {
    /// Whether both are one party. A holder is the same whatever else its value says: a healed node has more details, and a
    /// broken one others. Anything else is the same if it looks the same.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Holder(own, _), Self::Holder(other, _)) => own == other,
            (Self::Group(own), Self::Group(other)) => own.is_same(other),
            _ => self == other,
        }
    }
}

impl Occupant {
    /// An occupant of the key itself.
    pub fn new(who: OccupantKind, ttl: Option<Duration>) -> Self {
        Self { who, ttl, seat: Seat::default() }
    }

    /// The holder's token and what it says of itself, if it is an rlock.
    pub fn holder(&self) -> Option<(Token, &Details)> {
        if let OccupantKind::Holder(token, details) = &self.who { Some((*token, details)) } else { None }
    }

    /// Its TTL, if it says so: how long a node keeps its key without a renewal.
    pub fn lease_length(&self) -> Option<Duration> {
        match &self.who {
            OccupantKind::Holder(_, details) => {
                (details.ttl > 0).then(|| Duration::from_millis(details.ttl).min(LONGEST_TTL))
            }
            OccupantKind::Group(group) => Some(group.marker.ttl),
            OccupantKind::Foreign(_) | OccupantKind::Unnamed => None,
        }
    }

    /// Whether its command has ended and the lock stays for a time. Of a group: whether that is so of its only member.
    pub fn is_parked(&self) -> bool {
        match &self.who {
            OccupantKind::Holder(_, details) => details.parked,
            OccupantKind::Group(group) => {
                group.members == 1 && group.shown.as_ref().is_some_and(|(_, told)| told.parked)
            }
            OccupantKind::Foreign(_) | OccupantKind::Unnamed => false,
        }
    }

    /// Returns the kind of its lock, if it is an rlock.
    pub fn mode(&self) -> Option<Mode> {
        match &self.who {
            OccupantKind::Holder(_, details) => Some(details.mode),
            OccupantKind::Group(group) => Some(group.marker.mode),
            OccupantKind::Foreign(_) | OccupantKind::Unnamed => None,
        }
    }

    /// Whether both are one party, and at the same place. A member that a node has at another index has no vote there.
    pub fn is_same(&self, other: &Self) -> bool {
        self.who.is_same(&other.who) && self.seat.index == other.seat.index
    }

    /// How many nodes it uses, if it says so.
    pub fn nodes(&self) -> Option<usize> {
        match &self.who {
            OccupantKind::Holder(_, details) => (details.n > 0).then_some(details.n),
            OccupantKind::Group(group) => Some(group.marker.nodes),
            OccupantKind::Foreign(_) | OccupantKind::Unnamed => None,
        }
    }

    /// Why a list of `ours` nodes cannot judge this lock: its holder uses another number of nodes.
    pub fn other_list(&self, ours: usize) -> Option<String> {
        let theirs = self.nodes().filter(|theirs| *theirs != ours)?;
        let s = if theirs == 1 { "" } else { "s" };
        Some(format!(
            "{self}, with {theirs} node{s}; we have {ours}: majorities of different sets need not meet, so give --node the same list everywhere"
        ))
    }
}

impl From<RawValue> for Occupant {
    fn from(seen: RawValue) -> Self {
        let who = understand(&seen).unwrap_or_else(|| OccupantKind::Foreign(describe(&seen)));
        Self::new(who, seen.ttl)
    }
}

impl Occupant {
    /// A member, as a node tells it. `ttl`: time until it is over. `entry`: `INDEX FENCE VALUE`.
    pub fn member(entry: &[u8], ttl: Option<Duration>) -> Option<Self> {
        let (index, rest) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
        let (fence, value) = rest.split_once(' ')?;
        let (kind, length, head) = ("string".to_owned(), value.len() as u64, value.as_bytes().to_vec());
        let who = understand(&RawValue { kind, length, head, ttl })?;
        Some(Self { who, ttl, seat: Seat { index: index.parse().ok()?, fence: Fence::new(fence.parse().ok()?) } })
    }
}

fn understand(seen: &RawValue) -> Option<OccupantKind> {
    if seen.kind != "string" || seen.length != seen.head.len() as u64 {
        return None;
    }
    let text = std::str::from_utf8(&seen.head).ok()?;
    if let Some(marker) = Marker::read(text) {
        return Some(OccupantKind::Group(Box::new(Group { marker, members: 0, shown: None })));
    }
    let (lock, parked) = (text.strip_prefix(BROKEN), text.strip_prefix(PARKED));
    let (token, details) = lock.or(parked).unwrap_or(text).split_once(' ')?;
    let told: Details = serde_json::from_str(details).ok()?;
    // A tombstone is one by its first word, and so is a parked lock.
    let broken = lock.map(|_| told.broken.unwrap_or_else(|| "another user".to_owned()));
    Some(OccupantKind::Holder(token.parse().ok()?, Details { broken, parked: parked.is_some(), ..told }))
}

fn describe(seen: &RawValue) -> String {
    if seen.kind != "string" {
        return format!("a {}", escape::text(&seen.kind));
    }
    let shown = &seen.head[..seen.head.len().min(40)];
    if seen.length > shown.len() as u64 {
        format!("a string of {} bytes, {}…", seen.length, escape::bytes(shown))
    } else {
        format!("the value {}", escape::bytes(shown))
    }
}

/// `held by deploy@web1, pid 4711, running backup.sh (note); free in 12s 300ms at the latest`.
impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named())?;
        match self.ttl {
            Some(ttl) if self.is_parked() => write!(f, "; free in {}", duration::show_rounded(ttl)),
            Some(ttl) => write!(f, "; its lease ends in {} unless renewed", duration::show_rounded(ttl)),
            None if !matches!(self.who, OccupantKind::Foreign(_)) => Ok(()),
            None => write!(f, "; it has no TTL and will never go away by itself"),
        }
    }
}

impl Occupant {
    /// Returns the run whose success this marks, for people, and for how long it counts.
    pub fn success(&self) -> String {
        let left = self.ttl.map_or_else(|| "for ever".to_owned(), |ttl| format!("for {}", duration::show_rounded(ttl)));
        match self.holder() {
            Some((_, details)) => {
                let [user, host, cmd] = [&details.user, &details.host, &details.cmd].map(|text| escape::text(text));
                format!("{user}@{host} ran {cmd} with success (--once); that counts {left}")
            }
            None => format!("a mark that no rlock wrote says that it was run (--once); that counts {left}"),
        }
    }

    /// Returns the occupant for people: `held by deploy@web1, pid 4711, running backup.sh (note)`.
    pub fn named(&self) -> String {
        match &self.who {
            OccupantKind::Holder(_, details) => {
                let how = match details.mode {
                    Mode::Exclusive if details.parked => "parked by".to_owned(),
                    Mode::Shared if details.parked => "parked, and shared, by".to_owned(),
                    Mode::Slots(number) if details.parked => {
                        format!("slot {} of {number} is parked by", self.seat.index)
                    }
                    Mode::Exclusive => "held by".to_owned(),
                    Mode::Shared => "held shared by".to_owned(),
                    Mode::Slots(number) => format!("slot {} of {number} is held by", self.seat.index),
                };
                let broken = details.broken.as_ref();
                let broken = broken.map(|by| format!(", and being stopped: {} broke the lock", escape::text(by)));
                format!("{how} {}{}", details.person(), broken.unwrap_or_default())
            }
            OccupantKind::Group(group) => group.to_string(),
            OccupantKind::Unnamed => "held by a process that has not said who it is".to_owned(),
            OccupantKind::Foreign(what) => format!("held by a client that is not rlock: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sighting(head: &[u8]) -> RawValue {
        RawValue { kind: "string".to_owned(), length: head.len() as u64, head: head.to_vec(), ttl: None }
    }

    #[test]
    fn a_value_of_ours_is_understood_and_a_truncated_one_is_foreign() {
        let details = Details { host: "web1".to_owned(), n: 1, ..Details::default() }.fitted();
        let token = Token::fresh();
        let value = details.value(token);
        let seen = sighting(value.as_bytes());
        assert_eq!(Occupant::from(seen.clone()).who, OccupantKind::Holder(token, details));
        let longer = RawValue { length: seen.length + 1, ..seen };
        assert!(matches!(Occupant::from(longer).who, OccupantKind::Foreign(_)));
    }

    #[test]
    fn a_tombstone_names_the_holder_and_who_broke_the_lock() {
        let details = Details { host: "web1".to_owned(), n: 3, ttl: 9, ..Details::default() }.fitted();
        let token = Token::fresh();
        let seen = Occupant::from(sighting(details.tombstone(token, "me@ops".to_owned()).as_bytes()));
        assert_eq!(seen.holder().map(|(token, _)| token), Some(token));
        assert_eq!((seen.nodes(), seen.lease_length()), (Some(3), Some(Duration::from_millis(9))));
        assert!(seen.to_string().contains("me@ops broke the lock"), "{seen}");
        let liar = Details { broken: Some("me".to_owned()), ..details };
        let seen = Occupant::from(sighting(liar.value(token).as_bytes()));
        assert_eq!(seen.holder().and_then(|(_, details)| details.broken.clone()), None);
    }

    #[test]
    fn a_parked_lock_names_the_run_that_has_ended_and_who_meets_it_allows_for_its_whole_time() {
        let run = Details { host: "web1".to_owned(), pid: Some(7), ttl: 30_000, n: 3, ..Details::default() }.fitted();
        let token = Token::fresh();
        let seen = |span| Occupant::from(sighting(run.parked(token, Duration::from_secs(span)).as_bytes()));
        assert!(seen(60).is_parked() && seen(60).holder().is_some_and(|(_, told)| !told.kept && told.pid.is_none()));
        assert_eq!([60, 5].map(|span| seen(span).lease_length()), [60, 30].map(|span| Some(Duration::from_secs(span))));
        let shown = Occupant { ttl: Some(Duration::from_secs(40)), ..seen(60) }.to_string();
        assert_eq!(shown, "parked by @web1, which ran ; free in 40s");
        assert!(!Occupant::from(sighting(run.value(token).as_bytes())).is_parked());
    }

    #[test]
    fn a_foreign_key_without_a_ttl_is_said_to_stay() {
        let text = Occupant::from(sighting(b"\x1b]0;owned\x07")).to_string();
        assert!(text.contains("\\x1b]0;owned\\x07") && text.contains("never go away"), "{text}");
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic_or_print_control_characters(head in proptest::collection::vec(any::<u8>(), 0..300), n in 0u64..600) {
            let seen = RawValue { length: n, ..sighting(&head) };
            prop_assert!(!Occupant::from(seen).to_string().chars().any(char::is_control));
        }
    }
}
