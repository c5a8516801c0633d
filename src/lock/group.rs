//! The members of a shared lock or of slots, as a node tells a client that it refuses: their number and one of them.

use std::fmt;
use std::time::Duration;

use super::details::Details;
use super::fence::Fence;
use super::mode::Mode;
use super::schedule::LONGEST_TTL;
use super::token::Token;

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
        mode.has_members().then_some(Self { mode, nodes: nodes.parse().ok()?, ttl })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARKER}{} n={} ttl={}", self.mode, self.nodes, self.ttl.as_millis())
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
pub struct Group {
    /// The kind, the nodes and the longest TTL of all of them.
    pub marker: Marker,
    /// Their number.
    pub members: u64,
    /// One of them; `None` if none could be read.
    pub shown: Option<(Token, Details)>,
}

impl Group {
    /// Whether both are of one kind, whichever members were shown.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.marker.mode, self.marker.nodes) == (other.marker.mode, other.marker.nodes)
    }
}

/// `held shared by deploy@web1, pid 4711, running backup.sh and 11 more`.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.marker.mode {
            Mode::Slots(number) => write!(f, "held in {} of {number} slots by ", self.members)?,
            _ => f.write_str("held shared by ")?,
        }
        let Some((_, details)) = &self.shown else { return f.write_str("members that cannot be read") };
        f.write_str(&details.person())?;
        if details.parked {
            f.write_str(" (parked)")?;
        }
        match self.members {
            0 | 1 => Ok(()),
            members => write!(f, " and {} more", members - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_is_written_and_nothing_else_is() {
        let ttl = Duration::from_secs(30);
        assert_eq!(Marker::read("rlock s n=3 ttl=30000"), Some(Marker { mode: Mode::Shared, nodes: 3, ttl }));
        let slots = Marker { mode: Mode::Slots(5), nodes: 1, ttl };
        assert_eq!(Marker::read("rlock k5 n=1 ttl=30000"), Some(slots));
        assert_eq!(slots.to_string(), "rlock k5 n=1 ttl=30000");
        for text in ["rlock x n=3 ttl=1", "rlock s n=3", "rlock s n=3 ttl=", "rlock k1 n=1 ttl=1", "rlocks n=1 ttl=1"] {
            assert_eq!(Marker::read(text), None, "{text}");
        }
    }

    #[test]
    fn one_member_is_named_and_the_others_are_counted() {
        let details = Details { user: "u".to_owned(), host: "web1".to_owned(), kept: false, ..Details::default() };
        let marker = |mode| Marker { mode, nodes: 1, ttl: Duration::ZERO };
        let group =
            |mode, members| Group { marker: marker(mode), members, shown: Some((Token::fresh(), details.clone())) };
        assert_eq!(group(Mode::Shared, 1).to_string(), "held shared by u@web1, taken with acquire");
        let parked = Some((Token::fresh(), Details { parked: true, cmd: "job".to_owned(), ..details.clone() }));
        let parked = Group { shown: parked, ..group(Mode::Shared, 1) };
        assert_eq!(parked.to_string(), "held shared by u@web1, which ran job (parked)");
        assert!(group(Mode::Shared, 12).to_string().ends_with("taken with acquire and 11 more"));
        assert!(group(Mode::Slots(5), 3).to_string().starts_with("held in 3 of 5 slots by u@web1"));
    }
}
