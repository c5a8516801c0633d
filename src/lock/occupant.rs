//! The party that has a lock at a node, as that tells it: a holder, the members of a lock together,
//! or a client that is not rlock.

use std::fmt;
use std::time::Duration;

use super::details::{BROKEN, Details, PARKED};
use super::fence::Fence;
use super::mode::Mode;
use super::schedule::LONGEST_TTL;
use super::token::Token;
use crate::text::duration;

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
#[expect(clippy::large_enum_variant, reason = "almost all are holders")]
pub enum OccupantKind {
    /// An rlock.
    Holder(Token, Details),
    /// Several rlocks, or one beside which others may come.
    Members(Box<Members>),
    /// Another client's value, described for people. It is respected and never touched.
    Foreign(String),
    /// Another client that stands in the same line, described for people. Its end wakes the next
    /// waiter.
    InLine(String),
    /// A process of this machine that has not said who it is.
    Unnamed,
}

impl OccupantKind {
    /// Whether both are one party. A holder is the same whatever else its value says: a healed node
    /// has more details, and a broken one others. Anything else is the same if it looks the same.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Holder(own, _), Self::Holder(other, _)) => own == other,
            (Self::Members(own), Self::Members(other)) => own.is_same(other),
            _ => self == other,
        }
    }
}

impl Occupant {
    /// An occupant of the key itself.
    pub fn new(who: OccupantKind, ttl: Option<Duration>) -> Self {
        Self {
            who,
            ttl,
            seat: Seat::default(),
        }
    }

    /// The holder's token and what it says of itself, if it is an rlock.
    pub fn holder(&self) -> Option<(Token, &Details)> {
        if let OccupantKind::Holder(token, details) = &self.who {
            Some((*token, details))
        } else {
            None
        }
    }

    /// Its TTL, if it says so: how long a node keeps its key without a renewal.
    pub fn lease_length(&self) -> Option<Duration> {
        match &self.who {
            OccupantKind::Holder(_, details) => {
                (details.ttl > 0).then(|| Duration::from_millis(details.ttl).min(LONGEST_TTL))
            }
            OccupantKind::Members(members) => Some(members.marker.ttl),
            OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => None,
        }
    }

    /// Whether its command has ended and the lock stays for a time. Of members: whether that is so
    /// of its only member.
    pub fn is_parked(&self) -> bool {
        match &self.who {
            OccupantKind::Holder(_, details) => details.parked,
            OccupantKind::Members(members) => {
                members.count == 1 && members.shown.as_ref().is_some_and(|(_, told)| told.parked)
            }
            OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => false,
        }
    }

    /// Returns the kind of its lock, if it is an rlock.
    pub fn mode(&self) -> Option<Mode> {
        match &self.who {
            OccupantKind::Holder(_, details) => Some(details.mode),
            OccupantKind::Members(members) => Some(members.marker.mode),
            OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => None,
        }
    }

    /// Whether both are one party, and at the same place. A member that a node has at another index
    /// has no vote there.
    pub fn is_same(&self, other: &Self) -> bool {
        self.who.is_same(&other.who) && self.seat.index == other.seat.index
    }

    /// How many nodes it uses, if it says so.
    pub fn nodes(&self) -> Option<usize> {
        match &self.who {
            OccupantKind::Holder(_, details) => (details.n > 0).then_some(details.n),
            OccupantKind::Members(members) => Some(members.marker.nodes),
            OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => None,
        }
    }

    /// Why a list of `ours` nodes cannot judge this lock: its holder uses another number of nodes.
    pub fn other_list(&self, ours: usize) -> Option<String> {
        let theirs = self.nodes().filter(|theirs| *theirs != ours)?;
        let s = if theirs == 1 { "" } else { "s" };
        Some(format!(
            "{}, with {theirs} node{s}; we have {ours}: majorities of different sets need not meet, so give --node the same list everywhere",
            self.named()
        ))
    }
}

impl Occupant {
    /// Reads a whole stored value, of which the node told this time to live. `None` if it is not
    /// rlock's.
    pub fn read(value: &[u8], ttl: Option<Duration>) -> Option<Self> {
        Some(Self::new(understand(value)?, ttl))
    }

    /// A member, as a node tells it. `ttl`: time until it is over. `entry`: `INDEX FENCE VALUE`.
    pub fn member(entry: &[u8], ttl: Option<Duration>) -> Option<Self> {
        let (index, rest) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
        let (fence, value) = rest.split_once(' ')?;
        Some(Self {
            who: understand(value.as_bytes())?,
            ttl,
            seat: Seat {
                index: index.parse().ok()?,
                fence: Fence::new(fence.parse().ok()?),
            },
        })
    }
}

fn understand(value: &[u8]) -> Option<OccupantKind> {
    let text = std::str::from_utf8(value).ok()?;
    if let Some(marker) = Marker::read(text) {
        return Some(OccupantKind::Members(Box::new(Members {
            marker,
            count: 0,
            shown: None,
        })));
    }
    let (lock, parked) = (text.strip_prefix(BROKEN), text.strip_prefix(PARKED));
    let (token, details) = lock.or(parked).unwrap_or(text).split_once(' ')?;
    let told: Details = serde_json::from_str(details).ok()?;
    // A tombstone is one by its first word, and so is a parked lock.
    let broken = lock.map(|_| told.broken.unwrap_or_else(|| "another user".into()));
    Some(OccupantKind::Holder(
        token.parse().ok()?,
        Details {
            broken,
            parked: parked.is_some(),
            ..told
        },
    ))
}

impl Occupant {
    /// Returns the occupant for people at this unix time in ms:
    /// `held by deploy@web1, pid 4711, running backup.sh (note), for 3m 2s`.
    pub fn told(&self, now: u64) -> String {
        let held = self.held_for(now).map_or_else(String::new, |span| {
            format!(", for {}", duration::show_seconds(span))
        });
        format!("{}{held}{}", self.named(), self.end(now))
    }

    /// Returns the same in fewer words: `held for 3m 2s by deploy@web1, backup.sh (note)`.
    pub fn brief(&self, now: u64) -> String {
        let (Some(span), Some((_, details))) = (self.held_for(now), self.holder()) else {
            return self.told(now);
        };
        let how = match details.mode {
            Mode::Exclusive => "held".to_owned(),
            Mode::Shared => "held shared".to_owned(),
            Mode::Slots(number) => format!("slot {} of {number} is held", self.seat.index),
        };
        format!(
            "{how} for {} by {}{}",
            duration::show_seconds(span),
            details.brief(),
            self.end(now)
        )
    }

    /// Returns the time for which a live run has held the lock by now, if its clock and ours agree
    /// on that.
    fn held_for(&self, now: u64) -> Option<Duration> {
        let (_, details) = self.holder()?;
        let is_live =
            details.kept && !details.parked && details.broken.is_none() && details.since > 0;
        now.checked_sub(details.since)
            .filter(|_| is_live)
            .map(Duration::from_millis)
    }

    /// Returns when the occupant ends, as far as that is news: a live run renews its lease before
    /// it ends.
    fn end(&self, now: u64) -> String {
        match self.ttl {
            Some(ttl) if self.is_parked() => {
                format!("; free in {}", duration::show_until(ttl, now))
            }
            Some(ttl) if self.is_overdue(ttl) => {
                format!(
                    "; its renewal is overdue: its lease ends in {}",
                    duration::show_rounded(ttl)
                )
            }
            Some(_) if self.is_renewed() => String::new(),
            Some(ttl) => format!(
                "; its lease ends in {} unless renewed",
                duration::show_until(ttl, now)
            ),
            None if !matches!(self.who, OccupantKind::Foreign(_)) => String::new(),
            None => "; it has no TTL and will never go away by itself".to_owned(),
        }
    }

    /// Whether a process renews it.
    fn is_renewed(&self) -> bool {
        match &self.who {
            OccupantKind::Holder(_, details) => details.kept,
            OccupantKind::Members(_) => true,
            OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => false,
        }
    }

    /// Whether less of the lease is left than a live run lets it come to: it renews after a third,
    /// and this allows for a half.
    fn is_overdue(&self, left: Duration) -> bool {
        let Some((_, details)) = self
            .holder()
            .filter(|(_, details)| details.kept && details.ttl > details.delay)
        else {
            return false;
        };
        let lease = Duration::from_millis(details.ttl - details.delay);
        left < Duration::from_millis(details.delay) + lease / 2
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
                    Mode::Slots(number) => {
                        format!("slot {} of {number} is held by", self.seat.index)
                    }
                };
                let broken = details
                    .broken
                    .as_ref()
                    .map(|by| format!(", and being stopped: {by}"));
                format!("{how} {}{}", details.person(), broken.unwrap_or_default())
            }
            OccupantKind::Members(members) => members.to_string(),
            OccupantKind::Unnamed => "held by a process that has not said who it is".to_owned(),
            OccupantKind::Foreign(what) | OccupantKind::InLine(what) => {
                format!("held by a client that is not rlock: {what}")
            }
        }
    }
}

/// The first word of a marker.
const MARKER: &str = "rlock ";

/// The value at the key of a lock with members: `rlock KIND n=NODES ttl=MS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The kind of all members.
    pub mode: Mode,
    /// Number of nodes that they use.
    pub nodes: usize,
    /// The longest TTL of any of them so far.
    pub ttl: Duration,
}

impl Marker {
    /// Reads a marker; `None` if the text is none.
    pub fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.strip_prefix(MARKER)?.split_once(" n=")?;
        let (nodes, ttl) = rest.split_once(" ttl=")?;
        let mode: Mode = kind.parse().ok()?;
        let ttl = Duration::from_millis(ttl.parse().ok()?).min(LONGEST_TTL);
        mode.has_members().then_some(Self {
            mode,
            nodes: nodes.parse().ok()?,
            ttl,
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{MARKER}{} n={} ttl={}",
            self.mode,
            self.nodes,
            self.ttl.as_millis()
        )
    }
}

/// A member's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seat {
    /// The index of the slot; 0 without slots.
    pub index: u16,
    /// The fence as this node knows it. The counter moves on while a member holds.
    pub fence: Option<Fence>,
}

/// The members, as a node tells a client that it refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// The kind, the nodes and the longest TTL of all of them.
    pub marker: Marker,
    /// Their number.
    pub count: u64,
    /// One of them; `None` if none could be read.
    pub shown: Option<(Token, Details)>,
}

impl Members {
    /// Whether both are of one kind, whichever members were shown.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.marker.mode, self.marker.nodes) == (other.marker.mode, other.marker.nodes)
    }
}

/// `held shared by deploy@web1, pid 4711, running backup.sh and 11 more`.
impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.marker.mode {
            Mode::Slots(number) => write!(f, "held in {} of {number} slots by ", self.count)?,
            _ => f.write_str("held shared by ")?,
        }
        let Some((_, details)) = &self.shown else {
            return f.write_str("members that cannot be read");
        };
        f.write_str(&details.person())?;
        if details.parked {
            f.write_str(" (parked)")?;
        }
        match self.count {
            0 | 1 => Ok(()),
            count => write!(f, " and {} more", count - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::details::Breaker;
    use proptest::prelude::*;

    fn occupant(value: &str) -> Occupant {
        Occupant::read(value.as_bytes(), None).expect("a value of ours")
    }

    #[test]
    fn a_value_of_ours_is_understood_and_a_truncated_one_is_not() {
        let details = Details {
            host: "web1".to_owned(),
            n: 1,
            ..Details::default()
        }
        .fitted();
        let token = Token::fresh();
        let value = details.value(token);
        assert_eq!(occupant(&value).who, OccupantKind::Holder(token, details));
        assert_eq!(
            Occupant::read(&value.as_bytes()[..value.len() - 1], None),
            None
        );
    }

    #[test]
    fn a_tombstone_names_the_holder_and_who_broke_the_lock() {
        let details = Details {
            host: "web1".to_owned(),
            n: 3,
            ttl: 9,
            ..Details::default()
        }
        .fitted();
        let token = Token::fresh();
        let breaker = Breaker {
            name: "me@ops".to_owned(),
            reason: Some("hung".to_owned()),
        };
        let seen = occupant(&details.tombstone(token, breaker));
        assert_eq!(seen.holder().map(|(token, _)| token), Some(token));
        assert_eq!(
            (seen.nodes(), seen.lease_length()),
            (Some(3), Some(Duration::from_millis(9)))
        );
        assert!(
            seen.told(9).contains("me@ops broke the lock: hung"),
            "{seen:?}"
        );
        let liar = Details {
            broken: Some("me".into()),
            ..details
        };
        let seen = occupant(&liar.value(token));
        assert_eq!(
            seen.holder()
                .and_then(|(_, details)| details.broken.clone()),
            None
        );
    }

    #[test]
    fn a_parked_lock_names_the_run_that_has_ended_and_who_meets_it_allows_for_its_whole_time() {
        let run = Details {
            host: "web1".to_owned(),
            pid: Some(7),
            ttl: 30_000,
            n: 3,
            ..Details::default()
        }
        .fitted();
        let token = Token::fresh();
        let seen = |span| occupant(&run.parked(token, Duration::from_secs(span)));
        assert!(
            seen(60).is_parked()
                && seen(60)
                    .holder()
                    .is_some_and(|(_, told)| !told.kept && told.pid.is_none())
        );
        assert_eq!(
            [60, 5].map(|span| seen(span).lease_length()),
            [60, 30].map(|span| Some(Duration::from_secs(span)))
        );
        let shown = Occupant {
            ttl: Some(Duration::from_secs(40)),
            ..seen(60)
        }
        .told(0);
        assert_eq!(shown, "parked by @web1, which ran ; free in 40s");
        assert!(!occupant(&run.value(token)).is_parked());
    }

    #[test]
    fn a_lease_is_news_only_where_its_renewal_is_overdue() {
        let run = Details {
            user: "ci".to_owned(),
            host: "web1".to_owned(),
            cmd: "job".to_owned(),
            ..Details::default()
        };
        let run = Details {
            pid: Some(7),
            since: 1_000,
            ttl: 45_000,
            delay: 15_000,
            n: 1,
            ..run
        };
        let held = |run: &Details, left| {
            let who = OccupantKind::Holder(Token::fresh(), run.clone());
            Occupant::new(who, Some(Duration::from_secs(left)))
        };
        assert_eq!(
            held(&run, 35).told(183_000),
            "held by ci@web1, pid 7, running job, for 3m 2s"
        );
        assert_eq!(
            held(&run, 35).brief(183_999),
            "held for 3m 2s by ci@web1, job"
        );
        let overdue = "; its renewal is overdue: its lease ends in 29s";
        assert!(
            held(&run, 29)
                .told(183_000)
                .ends_with(&format!("for 3m 2s{overdue}"))
        );
        assert!(held(&run, 29).brief(183_000).ends_with(overdue));
        assert!(!held(&run, 30).told(183_000).contains("lease"));
        // The holder's clock is ahead of ours.
        assert_eq!(
            held(&run, 35).told(999),
            "held by ci@web1, pid 7, running job"
        );
        let steps = Details {
            kept: false,
            pid: None,
            ..run
        };
        let left = "held by ci@web1, taken with acquire; its lease ends in 5s unless renewed";
        assert_eq!(
            (held(&steps, 5).told(2_000), held(&steps, 5).brief(2_000)),
            (left.to_owned(), left.to_owned())
        );
    }

    #[test]
    fn a_foreign_key_without_a_ttl_is_said_to_stay() {
        let text = Occupant::new(OccupantKind::Foreign("a hash".to_owned()), None).told(0);
        assert!(text.contains("never go away"), "{text}");
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic_or_print_control_characters(json in "\\PC{0,300}|\\{\"(user|host|cmd|note|broken)\":\"(\\\\u00[01][0-9a-f]|x){0,9}\"\\}", n in 0u64..600) {
            let value = format!("{} {json}", Token::fresh());
            if let Some(seen) = Occupant::read(value.as_bytes(), None) {
                prop_assert!(!(seen.told(n) + &seen.brief(n)).chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn a_marker_is_read_as_it_is_written_and_nothing_else_is() {
        let ttl = Duration::from_secs(30);
        assert_eq!(
            Marker::read("rlock s n=3 ttl=30000"),
            Some(Marker {
                mode: Mode::Shared,
                nodes: 3,
                ttl
            })
        );
        let slots = Marker {
            mode: Mode::Slots(5),
            nodes: 1,
            ttl,
        };
        assert_eq!(Marker::read("rlock k5 n=1 ttl=30000"), Some(slots));
        assert_eq!(slots.to_string(), "rlock k5 n=1 ttl=30000");
        for text in [
            "rlock x n=3 ttl=1",
            "rlock s n=3",
            "rlock s n=3 ttl=",
            "rlock k1 n=1 ttl=1",
            "rlocks n=1 ttl=1",
        ] {
            assert_eq!(Marker::read(text), None, "{text}");
        }
    }

    #[test]
    fn one_member_is_named_and_the_others_are_counted() {
        let details = Details {
            user: "u".to_owned(),
            host: "web1".to_owned(),
            kept: false,
            ..Details::default()
        };
        let marker = |mode| Marker {
            mode,
            nodes: 1,
            ttl: Duration::ZERO,
        };
        let group = |mode, members| Members {
            marker: marker(mode),
            count: members,
            shown: Some((Token::fresh(), details.clone())),
        };
        assert_eq!(
            group(Mode::Shared, 1).to_string(),
            "held shared by u@web1, taken with acquire"
        );
        let parked = Some((
            Token::fresh(),
            Details {
                parked: true,
                cmd: "job".to_owned(),
                ..details.clone()
            },
        ));
        let parked = Members {
            shown: parked,
            ..group(Mode::Shared, 1)
        };
        assert_eq!(
            parked.to_string(),
            "held shared by u@web1, which ran job (parked)"
        );
        assert!(
            group(Mode::Shared, 12)
                .to_string()
                .ends_with("taken with acquire and 11 more")
        );
        assert!(
            group(Mode::Slots(5), 3)
                .to_string()
                .starts_with("held in 3 of 5 slots by u@web1")
        );
    }
}
