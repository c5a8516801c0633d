//! The line of a lock: the znodes below it by which clients wait and hold. Pure.
//!
//! 1. An entry is a child whose name ends with a stem of Curator's or kazoo's and a number. All
//!    other children are of no account: they may be locks themselves.
//! 2. The numbers are the order. Entries of one token are one party. An rlock has an entry of each
//!    stem of its kind, made in one transaction: each other client finds one of its own.
//! 3. A writer is kept out by each party ahead, and a reader by each writer ahead.

use std::collections::HashMap;

use crate::lock::mode::Mode;
use crate::lock::token::Token;

/// The stems of a writer: Curator's mutex, its write lock, kazoo's locks.
const OF_WRITERS: [&str; 3] = ["lock-", "__WRIT__", "__lock__"];

/// The stems of a reader: Curator's and kazoo's read lock.
const OF_READERS: [&str; 2] = ["__READ__", "__rlock__"];

/// Least number of digits behind a stem (`%010d`).
const DIGITS: usize = 10;

/// The text before the token, by which Curator knows a protected entry.
const PREFIX: &str = "_c_";

/// Returns the names of the entries that a party of `token` creates, without their numbers.
pub(super) fn names(token: Token, mode: Mode) -> Vec<String> {
    let stems: &[&str] = match mode {
        Mode::Shared => &OF_READERS,
        Mode::Exclusive | Mode::Slots(_) => &OF_WRITERS,
    };
    let name = |stem: &&str| format!("{PREFIX}{token}-{stem}");
    stems.iter().map(name).collect()
}

/// Whether the name of a lock would be taken for an entry.
pub(super) fn is_entry(name: &str) -> bool {
    read(name).is_some()
}

/// Reads the name of an entry: its party, whether it is a writer's, and its number.
fn read(name: &str) -> Option<(&str, bool, i64)> {
    let writers = OF_WRITERS.iter().map(|stem| (stem, true));
    let readers = OF_READERS.iter().map(|stem| (stem, false));
    writers.chain(readers).find_map(|(stem, is_writer)| {
        let at = name.rfind(stem)?;
        let (party, number) = (&name[..at], &name[at + stem.len()..]);
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = number.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number)?;
        // Without a prefix of its own an entry is a party by its whole name.
        let party = if party.is_empty() { name } else { party };
        Some((party, is_writer, number))
    })
}

/// The entries of one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Party {
    /// The names of its entries in their order, at least one.
    pub(super) entries: Vec<String>,
    /// Its token, if it may be an rlock's. Curator's entries have one too.
    pub(super) token: Option<Token>,
    is_writer: bool,
    number: i64,
}

impl Party {
    /// The entry with the party's details.
    pub(super) fn first(&self) -> &str {
        &self.entries[0]
    }

    /// The entry that tells of an rlock's waiter.
    pub(super) fn second(&self) -> &str {
        &self.entries[1 % self.entries.len()]
    }

    /// The last entry ahead of `other`, which watches it.
    pub(super) fn last_before(&self, other: &Self) -> &str {
        let is_ahead =
            |name: &&String| read(name).is_some_and(|(_, _, number)| number < other.number);
        self.entries
            .iter()
            .rfind(is_ahead)
            .unwrap_or(&self.entries[0])
    }

    /// Whether it has the form of an rlock's: an entry of each stem.
    pub(super) fn is_rlocks(&self) -> bool {
        let stems = if self.is_writer {
            OF_WRITERS.len()
        } else {
            OF_READERS.len()
        };
        self.token.is_some() && self.entries.len() == stems
    }
}

/// The parties of a lock in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Line(pub(super) Vec<Party>);

impl Line {
    /// Reads the names of a lock's children.
    pub(super) fn of(children: &[String]) -> Self {
        let mut entries: Vec<_> = children
            .iter()
            .filter_map(|name| Some((name, read(name)?)))
            .collect();
        entries.sort_by_key(|(name, (_, _, number))| (*number, *name));
        let (mut parties, mut places) = (Vec::<Party>::new(), HashMap::new());
        for (name, (key, is_writer, number)) in entries {
            // A token is its party's own; a party that came twice stands where it came first.
            let place = *places.entry(key).or_insert(parties.len());
            if let Some(party) = parties.get_mut(place) {
                party.entries.push(name.clone());
                party.is_writer |= is_writer;
                continue;
            }
            let token = key
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.strip_suffix('-'));
            let party = Party {
                entries: vec![name.clone()],
                token: token.and_then(|token| token.parse().ok()),
                is_writer,
                number,
            };
            parties.push(party);
        }
        Self(parties)
    }

    /// Reads the line as the party of `token` does, whose entries are `own`. Others with its token are
    /// of an attempt whose answer was lost. They are no place of its own, since they end with another
    /// session.
    pub(super) fn seen_by(token: Token, own: &[String], children: &[String]) -> Self {
        let token = token.to_string();
        let is_of_it = |name: &&String| !name.contains(&token) || own.contains(*name);
        Self::of(
            &children
                .iter()
                .filter(is_of_it)
                .cloned()
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the place of the party of `token`.
    pub(super) fn place(&self, token: Token) -> Option<usize> {
        self.0.iter().position(|party| party.token == Some(token))
    }

    /// Returns the party that keeps out the one at `place`: the last of several. `None` if that is
    /// the lock, or one of those that are it together.
    pub(super) fn before(&self, place: usize) -> Option<&Party> {
        let is_writer = self.0[place].is_writer;
        self.0[..place]
            .iter()
            .rfind(|ahead| is_writer || ahead.is_writer)
    }

    /// Number of parties that are the lock.
    pub(super) fn holders(&self) -> usize {
        let is_holder = |place: &usize| self.before(*place).is_none();
        (0..self.0.len()).take_while(is_holder).count()
    }

    /// Whether the holders share the lock.
    pub(super) fn is_shared(&self) -> bool {
        self.0.first().is_some_and(|first| !first.is_writer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CURATOR: &str = "_c_6c0f4a5e-9d0f-4c5b-8e86-1f0c7a4f3c2d-";
    const KAZOO: &str = "0123456789abcdef0123456789abcdef";

    fn line(names: &[String]) -> Line {
        Line::of(names)
    }

    /// The entries of an rlock whose first number is `number`.
    fn rlock(token: Token, mode: Mode, number: usize) -> Vec<String> {
        let numbered = |(index, name): (usize, String)| format!("{name}{:010}", number + index);
        names(token, mode)
            .into_iter()
            .enumerate()
            .map(numbered)
            .collect()
    }

    #[test]
    fn entries_of_all_clients_are_read_and_other_children_are_not() {
        for (name, is_writer) in [
            (format!("{CURATOR}lock-0000000001"), true),
            (format!("{CURATOR}__WRIT__0000000001"), true),
            (format!("{CURATOR}__READ__0000000001"), false),
            (format!("{KAZOO}__lock__0000000001"), true),
            (format!("{KAZOO}__rlock__0000000001"), false),
            ("lock-0000000001".to_owned(), true),
            ("lock--2147483648".to_owned(), true),
        ] {
            let read = read(&name).map(|(_, is_writer, _)| is_writer);
            assert_eq!(read, Some(is_writer), "{name}");
        }
        for name in [
            "lock",
            "lock-",
            "lock-1",
            "locks",
            "leases",
            "lock-00000000x1",
            "job",
        ] {
            assert!(!is_entry(name), "{name}");
        }
    }

    #[test]
    fn a_writer_waits_for_all_ahead_and_a_reader_for_writers() {
        let [reader, writer, late] = [(); 3].map(|()| Token::fresh());
        let foreign = format!("{KAZOO}__rlock__0000000002");
        let mut names = rlock(reader, Mode::Shared, 0);
        names.push(foreign.clone());
        names.extend(rlock(writer, Mode::Exclusive, 3));
        names.extend(rlock(late, Mode::Shared, 6));
        names.push("leases".to_owned());
        names.reverse();
        let line = line(&names);
        assert_eq!((line.0.len(), line.holders()), (4, 2));
        assert!(line.is_shared());
        let before = |token| {
            let place = line.place(token).unwrap();
            line.before(place)
                .map(|party| party.last_before(&line.0[place]).to_owned())
        };
        assert_eq!(before(reader), None);
        assert_eq!(before(writer), Some(foreign));
        assert_eq!(
            before(late),
            Some(format!("_c_{writer}-__lock__0000000005"))
        );
        let rlocks = line.0.iter().map(Party::is_rlocks).collect::<Vec<_>>();
        assert_eq!(rlocks, [true, false, true, true]);
    }

    #[test]
    fn entries_of_an_attempt_that_was_lost_are_no_place_of_ours() {
        let [ours, other] = [(); 2].map(|()| Token::fresh());
        let own = rlock(ours, Mode::Exclusive, 6);
        let mut names = rlock(ours, Mode::Exclusive, 0);
        names.extend(rlock(other, Mode::Exclusive, 3));
        names.extend(own.clone());
        let line = Line::seen_by(ours, &own, &names);
        assert_eq!((line.place(ours), line.place(other)), (Some(1), Some(0)));
        // The other one waits for the last entry ahead of its own.
        let line = Line::of(&names);
        let place = line.place(other).unwrap();
        let before = line.before(place).unwrap().last_before(&line.0[place]);
        assert_eq!(before, format!("_c_{ours}-__lock__0000000002"));
    }

    #[test]
    fn numbers_are_the_order_and_not_names() {
        let names = [
            format!("{CURATOR}lock-0000000009"),
            format!("{KAZOO}__lock__0000000010"),
        ];
        let line = line(&names);
        assert_eq!(line.0[0].first(), names[0]);
    }

    proptest! {
        #[test]
        fn no_name_makes_the_line_panic(names in proptest::collection::vec("[-_a-z0-9lock]{0,30}", 0..6)) {
            let line = Line::of(&names);
            prop_assert!(line.holders() <= line.0.len());
        }

        #[test]
        fn writers_have_the_lock_alone(kinds in proptest::collection::vec(any::<bool>(), 1..8)) {
            let modes = kinds.iter().map(|shared| if *shared { Mode::Shared } else { Mode::Exclusive });
            let names = modes.enumerate().flat_map(|(place, mode)| rlock(Token::fresh(), mode, 3 * place));
            let line = Line::of(&names.collect::<Vec<_>>());
            let shared = kinds.iter().take_while(|shared| **shared).count();
            prop_assert_eq!(line.holders(), shared.max(1));
        }
    }
}
