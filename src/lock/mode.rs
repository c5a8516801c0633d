//! The kind of a lock: exclusive, shared, or slots. Kinds exclude each other, and slots of another
//! number are another kind.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most slots of a lock.
pub const MOST_SLOTS: u16 = 1000;

/// A kind of lock. A value of a kind that is unknown here is foreign: it is respected and never
/// touched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug, Default)]
#[serde(try_from = "String", into = "String")]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of holders.
    Shared,
    /// At most this many holders, each with an index from 1 on that is its own.
    Slots(u16),
}

impl Mode {
    /// Returns the kind with `number` slots; one slot is the exclusive lock. `None` for no slot,
    /// and for more than [`MOST_SLOTS`].
    pub fn slots(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Exclusive),
            2..=MOST_SLOTS => Some(Self::Slots(number)),
            _ => None,
        }
    }

    /// Whether holders of this kind are members of a group, each with a lease of its own.
    pub fn has_members(self) -> bool {
        self != Self::Exclusive
    }

    /// Returns the kind in JSON for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Slots(_) => "slots",
        }
    }

    /// Returns the number of slots, if it has slots.
    pub fn number(self) -> Option<u16> {
        if let Self::Slots(number) = self {
            Some(number)
        } else {
            None
        }
    }

    /// Whether a run of kind `inner` may run under an outer lock of this kind. An exclusive lock
    /// covers every kind. Any other covers its own kind only, since the inner lock would otherwise
    /// wait for the outer one.
    pub fn covers(self, inner: Self) -> bool {
        self == Self::Exclusive || self == inner
    }
}

/// The stored form: `x`, `s` or `k5`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("x"),
            Self::Shared => f.write_str("s"),
            Self::Slots(number) => write!(f, "k{number}"),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = match text {
            "x" => Some(Self::Exclusive),
            "s" => Some(Self::Shared),
            _ => text
                .strip_prefix('k')
                .and_then(|number| Self::slots(number.parse().ok()?)),
        };
        mode.filter(|mode| mode.to_string() == text)
            .ok_or_else(|| "not a kind of lock".to_owned())
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_back_only_in_its_own_spelling() {
        for mode in [
            Mode::Exclusive,
            Mode::Shared,
            Mode::Slots(2),
            Mode::Slots(MOST_SLOTS),
        ] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for text in [
            "", "X", "k", "k0", "k1", "k01", "k1001", "k+5", "k99999", "sx",
        ] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_outer_lock_covers_what_need_not_wait_for_it() {
        use Mode::{Exclusive, Shared, Slots};
        let kinds = [Exclusive, Shared, Slots(2), Slots(3)];
        let covered = |outer: Mode| kinds.map(|inner| outer.covers(inner));
        assert_eq!(covered(Exclusive), [true; 4]);
        assert_eq!(covered(Shared), [false, true, false, false]);
        assert_eq!(covered(Slots(2)), [false, false, true, false]);
    }
}
