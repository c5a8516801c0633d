//! The line of a lock: the znodes below it by which clients wait and hold. Pure.
//!
//! 1. An entry is a child whose name ends with a stem of Curator's or kazoo's and a number. All
//!    other children are of no account: they may be locks themselves.
//! 2. The numbers are the order. Entries of one token are one party. An rlock has an entry of each
//!    stem of its kind, made in one transaction: each other client finds one of its own.
//! 3. A party is kept out by each party ahead that does not share the lock with it: readers share it,
//!    and so do slots of one number. To other clients slots are a writer. Their own entry comes last.

use std::collections::HashMap;

use crate::lock::mode::Mode;
use crate::lock::token::Token;

/// The stems of a writer: Curator's mutex, its write lock, kazoo's locks.
const OF_WRITERS: [&str; 3] = ["lock-", "__WRIT__", "__lock__"];

/// The stems of a reader: Curator's and kazoo's read lock.
const OF_READERS: [&str; 2] = ["__READ__", "__rlock__"];

/// The stem of slots, before their number.
const OF_SLOTS: &str = "slots-";

/// The stem of a lease of Curator's semaphore (`InterProcessSemaphoreV2.java`).
const OF_LEASES: &str = "lease-";

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
    let slots = mode
        .number()
        .map(|slots| format!("{PREFIX}{token}-{OF_SLOTS}{slots}-"));
    stems.iter().map(name).chain(slots).collect()
}

/// Returns the name of the entry that a party of slots creates in the line of the semaphore's mutex,
/// without its number.
pub(super) fn name_in_mutex(token: Token) -> String {
    format!("{PREFIX}{token}-{}", OF_WRITERS[0])
}

/// Returns the name of a lease, without its number.
pub(super) fn name_of_lease(token: Token) -> String {
    format!("{PREFIX}{token}-{OF_LEASES}")
}

/// Whether the name of a lock would be taken for an entry.
pub(super) fn is_entry(name: &str) -> bool {
    read(name).is_some()
}

/// Whether this is the name of a lease.
pub(super) fn is_lease(name: &str) -> bool {
    read_lease(name).is_some()
}

/// Reads the name of an entry: its party, its kind as far as it tells one, and its number.
fn read(name: &str) -> Option<(&str, Mode, i64)> {
    let writers = OF_WRITERS.iter().map(|stem| (stem, Mode::Exclusive));
    let readers = OF_READERS.iter().map(|stem| (stem, Mode::Shared));
    let plain = writers.chain(readers).find_map(|(stem, mode)| {
        let (party, number) = split(name, stem)?;
        Some((party, mode, read_number(number)?))
    });
    plain.or_else(|| {
        let (party, rest) = split(name, OF_SLOTS)?;
        let (slots, number) = rest.split_once('-')?;
        Some((
            party,
            Mode::slots(slots.parse().ok()?)?,
            read_number(number)?,
        ))
    })
}

/// Reads the name of a lease likewise.
fn read_lease(name: &str) -> Option<(&str, Mode, i64)> {
    let (party, number) = split(name, OF_LEASES)?;
    Some((party, Mode::Shared, read_number(number)?))
}

/// The same of any child of the leases' znode. Curator counts whatever is there.
fn read_in_leases(name: &str) -> Option<(&str, Mode, i64)> {
    read_lease(name).or(Some((name, Mode::Shared, -1)))
}

/// Splits a name at its last `stem`. Without a prefix of its own an entry is a party by its whole name.
fn split<'n>(name: &'n str, stem: &str) -> Option<(&'n str, &'n str)> {
    let at = name.rfind(stem)?;
    let party = if at == 0 { name } else { &name[..at] };
    Some((party, &name[at + stem.len()..]))
}

fn read_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = text.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Returns the part of an entry's name behind the last slash: entries of the znodes below the lock's
/// have their znode's name before it.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Whether the numbers of a znode's entries have come to their end. They are signed: behind
/// 2147483647 comes it again, or -2147483648, so they are the order no more (`PrepRequestProcessor`).
pub(super) fn is_used_up(own: &[String]) -> bool {
    let number = |name: &String| {
        let name = last_part(name);
        let (.., number) = read(name).or_else(|| read_lease(name))?;
        Some(number)
    };
    own.iter()
        .filter_map(number)
        .any(|number| !(0..i64::from(i32::MAX)).contains(&number))
}

/// The entries of one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Party {
    /// The names of its entries in their order, at least one.
    pub(super) entries: Vec<String>,
    /// Its token, if it may be an rlock's. Curator's entries have one too.
    pub(super) token: Option<Token>,
    pub(super) mode: Mode,
    pub(super) number: i64,
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
        let is_ahead = |name: &&String| {
            read(last_part(name)).is_some_and(|(.., number)| number < other.number)
        };
        self.entries
            .iter()
            .rfind(is_ahead)
            .unwrap_or(&self.entries[0])
    }

    /// Whether it is that of one of these tokens.
    pub(super) fn is_of(&self, tokens: &[Token]) -> bool {
        self.token.is_some_and(|token| tokens.contains(&token))
    }

    /// Whether it has the form of an rlock's: an entry of each stem.
    pub(super) fn is_rlocks(&self) -> bool {
        let count = self.token.map(|token| names(token, self.mode).len());
        count == Some(self.entries.len())
    }

    /// Whether it may have the lock beside `other`.
    fn shares_with(&self, other: &Self) -> bool {
        self.mode == other.mode && self.mode.has_members()
    }
}

/// The parties of a lock in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Line(pub(super) Vec<Party>);

impl Line {
    /// Reads the names of a znode's children.
    pub(super) fn of<'n>(children: impl IntoIterator<Item = &'n String>) -> Self {
        Self::with(children, read)
    }

    /// Reads the names of all that takes up a slot, leases of no client first.
    pub(super) fn of_leases<'n>(children: impl IntoIterator<Item = &'n String>) -> Self {
        Self::with(children, read_in_leases)
    }

    fn with<'n>(
        children: impl IntoIterator<Item = &'n String>,
        read: impl Fn(&str) -> Option<(&str, Mode, i64)>,
    ) -> Self {
        let mut entries: Vec<_> = children
            .into_iter()
            .filter_map(|name| Some((name, read(last_part(name))?)))
            .collect();
        entries.sort_by_key(|(name, (_, _, number))| (*number, *name));
        let (mut parties, mut places) = (Vec::<Party>::new(), HashMap::new());
        for (name, (key, mode, number)) in entries {
            // A token is its party's own; a party that came twice stands where it came first.
            let place = *places.entry(key).or_insert(parties.len());
            if let Some(party) = parties.get_mut(place) {
                party.entries.push(name.clone());
                party.mode = stricter(party.mode, mode);
                continue;
            }
            let token = key
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.strip_suffix('-'));
            let party = Party {
                entries: vec![name.clone()],
                token: token.and_then(|token| token.parse().ok()),
                mode,
                number,
            };
            parties.push(party);
        }
        Self(parties)
    }

    /// Returns the party of `token`.
    pub(super) fn party(&self, token: Token) -> Option<&Party> {
        self.0.iter().find(|party| party.token == Some(token))
    }

    /// Returns the place of the party of `token`.
    pub(super) fn place(&self, token: Token) -> Option<usize> {
        self.0.iter().position(|party| party.token == Some(token))
    }

    /// Returns the party that keeps out the one at `place`: the last of several. `None` if that is
    /// the lock, or one of those that are it together.
    pub(super) fn before(&self, place: usize) -> Option<&Party> {
        let party = &self.0[place];
        self.0[..place]
            .iter()
            .rfind(|ahead| !ahead.shares_with(party))
    }

    /// Number of parties that are the lock.
    pub(super) fn holders(&self) -> usize {
        let is_holder = |place: &usize| self.before(*place).is_none();
        (0..self.0.len()).take_while(is_holder).count()
    }

    /// Returns the kind of the lock that is held.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.0.first().map(|first| first.mode)
    }
}

/// Returns the kind of a party that has entries of both kinds. Slots have entries of writers too.
fn stricter(one: Mode, other: Mode) -> Mode {
    match (one, other) {
        (Mode::Slots(slots), _) | (_, Mode::Slots(slots)) => Mode::Slots(slots),
        (Mode::Shared, Mode::Shared) => Mode::Shared,
        _ => Mode::Exclusive,
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
        let (writer, reader) = (Mode::Exclusive, Mode::Shared);
        for (name, mode) in [
            (format!("{CURATOR}lock-0000000001"), writer),
            (format!("{CURATOR}__WRIT__0000000001"), writer),
            (format!("{CURATOR}__READ__0000000001"), reader),
            (format!("{KAZOO}__lock__0000000001"), writer),
            (format!("{KAZOO}__rlock__0000000001"), reader),
            (format!("{CURATOR}slots-12-0000000001"), Mode::Slots(12)),
            (format!("{CURATOR}slots-2--2147483648"), Mode::Slots(2)),
            ("lock-0000000001".to_owned(), writer),
            ("lock--2147483648".to_owned(), writer),
        ] {
            let read = read(&name).map(|(_, mode, _)| mode);
            assert_eq!(read, Some(mode), "{name}");
        }
        assert!(is_lease(&format!("{CURATOR}lease-0000000001")) && !is_lease("lease-1"));
        for name in [
            "lock",
            "lock-",
            "lock-1",
            "locks",
            "leases",
            "lock-00000000x1",
            "slots-2-1",
            "slots-0000000001",
            "lease-0000000001",
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
        assert_eq!(line.mode(), Some(Mode::Shared));
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
    fn slots_of_one_number_are_beside_each_other_and_keep_all_others_out() {
        let [first, second, third, late] = [(); 4].map(|()| Token::fresh());
        let mut names = rlock(first, Mode::Slots(3), 0);
        names.extend(rlock(second, Mode::Slots(3), 4));
        names.extend(rlock(third, Mode::Slots(2), 8));
        names.extend(rlock(late, Mode::Slots(3), 12));
        let line = line(&names);
        assert_eq!((line.holders(), line.mode()), (2, Some(Mode::Slots(3))));
        assert!(line.0.iter().all(Party::is_rlocks));
        let before = |token| {
            let before = line.before(line.place(token).unwrap());
            before.and_then(|party| party.token)
        };
        assert_eq!([first, second].map(before), [None, None]);
        assert_eq!([third, late].map(before), [Some(second), Some(third)]);
    }

    #[test]
    fn numbers_at_their_end_are_no_order() {
        for entry in ["locks/{}lock-", "leases/{}lease-"] {
            let entry = entry.replace("{}", CURATOR);
            let used = |number: &str| is_used_up(&[format!("{entry}{number}")]);
            assert!(!used("0000000000") && !used("2147483646"), "{entry}");
            assert!(used("2147483647") && used("-2147483648"), "{entry}");
        }
        // A client that has such a number thinks that it is the first.
        let names =
            ["0000000007", "-2147483648"].map(|number| format!("{CURATOR}{number}-lock-{number}"));
        assert_eq!(line(&names).0[0].number, i64::from(i32::MIN));
    }

    #[test]
    fn an_attempt_that_was_lost_is_waited_for_by_its_last_entry_ahead() {
        let [ours, other] = [(); 2].map(|()| Token::fresh());
        let mut names = rlock(ours, Mode::Exclusive, 0);
        names.extend(rlock(other, Mode::Exclusive, 3));
        names.extend(rlock(ours, Mode::Exclusive, 6));
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
