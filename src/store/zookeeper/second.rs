//! The second entry of an rlock: its waiter, and the session's password.

use std::fmt;

use crate::lock::queue::Waiter;
use crate::store::Claim;

/// The word of a waiter that ends those which came before it, and have it too.
const SUPERSEDES: &str = "supersedes";

/// The data of an rlock's second entry, a line for each. What no rlock wrote is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Second {
    /// The waiter.
    pub(super) waiter: Option<Waiter>,
    /// The session's password, for the process that renews a lock which none keeps.
    pub(super) password: Vec<u8>,
    /// `--supersede`.
    pub(super) supersedes: bool,
    /// When the waiter came, if it has lost the entries that it made then.
    pub(super) came: Option<u64>,
    /// The waiter that came later and has ended this one.
    pub(super) newer: Option<Waiter>,
}

impl Second {
    /// Returns what the entry of `claim` says, whose waiter came at `came` unless it comes now.
    pub(super) fn of(claim: &Claim, password: &[u8], came: Option<u64>) -> Self {
        let ticket = claim.ticket.as_ref();
        Self {
            waiter: ticket.map(|ticket| ticket.waiter.clone()),
            password: password.to_vec(),
            supersedes: ticket.is_some_and(|ticket| ticket.supersedes.is_some()),
            came,
            newer: None,
        }
    }

    pub(super) fn read(data: &[u8]) -> Self {
        let text = std::str::from_utf8(data).unwrap_or_default();
        let mut lines = text.split('\n').map(str::trim);
        let mut line = || lines.next().unwrap_or_default();
        let (waiter, password) = (line().parse().ok(), line());
        let byte = |at: usize| u8::from_str_radix(password.get(2 * at..2 * at + 2)?, 16).ok();
        let password = (0..password.len() / 2).map(byte).collect::<Option<_>>();
        let mut words = line().split(' ');
        Self {
            waiter,
            password: password.unwrap_or_default(),
            supersedes: words.next() == Some(SUPERSEDES),
            came: words.next().and_then(|came| came.parse().ok()),
            newer: line().parse().ok(),
        }
    }

    /// Returns when its waiter came, if that has `--supersede`: the transaction that created its
    /// first entries. `created`: the one that created this entry.
    pub(super) fn came(&self, created: u64) -> Option<u64> {
        self.supersedes.then(|| self.came.unwrap_or(created))
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiter =
            |waiter: &Option<Waiter>| waiter.as_ref().map_or_else(String::new, Waiter::to_string);
        writeln!(f, "{}", waiter(&self.waiter))?;
        for byte in &self.password {
            write!(f, "{byte:02x}")?;
        }
        writeln!(f)?;
        if self.supersedes {
            write!(f, "{SUPERSEDES}")?;
            if let Some(came) = self.came {
                write!(f, " {came}")?;
            }
        }
        write!(f, "\n{}", waiter(&self.newer))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let full = Second {
            waiter: Some(Waiter::example(1)),
            password: vec![0, 9, 255],
            supersedes: true,
            came: Some(7),
            newer: Some(Waiter::example(2)),
        };
        let of_first = Second {
            came: None,
            ..full.clone()
        };
        for second in [full, of_first, Second::default()] {
            assert_eq!(Second::read(second.to_string().as_bytes()), second);
        }
    }

    #[test]
    fn a_waiter_came_with_its_first_entry() {
        let second = |supersedes, came| Second {
            supersedes,
            came,
            ..Second::default()
        };
        assert_eq!(second(true, None).came(9), Some(9));
        assert_eq!(second(true, Some(7)).came(9), Some(7));
        assert_eq!(second(false, Some(7)).came(9), None);
    }

    proptest! {
        #[test]
        fn no_data_make_the_reader_panic(data in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Second::read(&data);
        }
    }
}
