//! A lock as one client sees it: its line, and its slots. Pure.
//!
//! 1. Runs of all kinds stand in the lock's line, so slots keep out all that are no slots of their
//!    number.
//! 2. The slots themselves are Curator's semaphore (`InterProcessSemaphoreV2.java`), in two znodes
//!    below the lock's: `leases`, and `locks`, the mutex of those that may make a lease. A run enters
//!    the line and that of the mutex in one transaction. So the order is the same in both, and no two
//!    clients wait for each other.
//! 3. The first one of the mutex makes its lease once fewer than K are there, and leaves the mutex
//!    in the same transaction.
//! 4. A lease is a slot if fewer than K came before it. Curator counts all, so it may wait longer,
//!    and a client that makes a lease out of its turn takes no slot away.

use super::line::{Line, Party};
use crate::lock::mode::Mode;
use crate::lock::token::Token;

/// The znode of the mutex, below the lock's.
pub(super) const MUTEX: &str = "locks";

/// The znode of the leases, likewise.
pub(super) const LEASES: &str = "leases";

/// Returns the znode below the lock's that an entry is in.
pub(super) fn znode_of(name: &str) -> Option<&str> {
    name.split_once('/').map(|(znode, _)| znode)
}

/// Something that keeps a place from being the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// This entry.
    Entry(String),
    /// This entry of the mutex.
    Mutex(String),
    /// As many leases as there are slots, this many.
    Leases(usize),
    /// Nothing, so it may make its lease.
    NoLease,
}

/// The names of the entries of a lock. Those below another znode have its name before their own.
pub(super) struct View {
    pub(super) line: Line,
    mutex: Line,
    leases: Line,
    /// Number of all leases. Curator counts whatever is there.
    count: usize,
}

impl View {
    pub(super) fn of(names: &[String]) -> Self {
        let in_znode = |znode| names.iter().filter(move |name| znode_of(name) == znode);
        Self {
            line: Line::of(in_znode(None)),
            mutex: Line::of(in_znode(Some(MUTEX))),
            leases: Line::of_leases(in_znode(Some(LEASES))),
            count: in_znode(Some(LEASES)).count(),
        }
    }

    /// Returns what the party of `token` sees, whose entries are `own`. Others with its token are of
    /// an attempt whose answer was lost. They are no place of its own, since they end with another
    /// session. Such a lease counts as another client's.
    pub(super) fn seen_by(token: Token, own: &[String], names: &[String]) -> Self {
        let token = token.to_string();
        let is_of_it = |name: &&String| !name.contains(&token) || own.contains(*name);
        let seen: Vec<String> = names.iter().filter(is_of_it).cloned().collect();
        let is_lease = |name: &&String| znode_of(name) == Some(LEASES);
        Self {
            count: names.iter().filter(is_lease).count(),
            ..Self::of(&seen)
        }
    }

    /// Returns what keeps out the party at `place` of the line; `None`: it is the lock, or one of
    /// those that are it together.
    pub(super) fn before(&self, place: usize) -> Option<Before> {
        let party = &self.line.0[place];
        if let Some(before) = self.line.before(place) {
            return Some(Before::Entry(before.last_before(party).to_owned()));
        }
        let slots = usize::from(party.mode.number()?);
        if self.lease(party).is_some() {
            return None;
        }
        let in_mutex = party.token.and_then(|token| self.mutex.place(token));
        if let Some(place) = in_mutex
            && let Some(before) = self.mutex.before(place)
        {
            let before = before.last_before(&self.mutex.0[place]);
            return Some(Before::Mutex(before.to_owned()));
        }
        Some(if self.count < slots {
            Before::NoLease
        } else {
            Before::Leases(slots)
        })
    }

    /// Whether no other client has to end before a slot is free.
    pub(super) fn has_free_slot(&self, mode: Mode) -> bool {
        mode.number()
            .is_some_and(|slots| self.count < usize::from(slots))
    }

    /// Whether the lease of `token` is one of the first, of as many as there are slots.
    pub(super) fn is_slot(&self, token: Token, slots: u16) -> bool {
        let unknown = self.count - self.leases.0.len();
        let place = self.leases.place(token);
        place.is_some_and(|place| unknown + place < usize::from(slots))
    }

    fn lease(&self, party: &Party) -> Option<&Party> {
        self.leases.party(party.token?)
    }

    /// Returns the lease of a party that has a slot. Another client's is all that there is of it.
    pub(super) fn lease_of(&self, party: &Party) -> Option<&str> {
        self.lease(party).map(Party::first)
    }

    /// Returns the names of all leases that may be an rlock's.
    pub(super) fn leases(&self) -> Vec<&str> {
        self.leases.0.iter().map(Party::first).collect()
    }

    /// Returns the names of all entries of a party.
    pub(super) fn entries(&self, party: &Party) -> Vec<String> {
        let lines = [&self.line, &self.mutex, &self.leases];
        let of_it = lines
            .iter()
            .flat_map(|line| &line.0)
            .filter(|other| *other == party || is_one(other, party));
        of_it.flat_map(|party| party.entries.clone()).collect()
    }

    /// Returns the kind of the lock that is held, as far as its line tells it.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.line.mode()
    }

    /// Whether it is the lock of a semaphore, as far as its line tells it.
    fn has_slots(&self) -> bool {
        self.mode().is_none_or(|mode| mode.number().is_some())
    }

    /// Returns the parties that have the lock, in their order.
    pub(super) fn holders(&self) -> Vec<&Party> {
        let ahead = &self.line.0[..self.line.holders()];
        if self.has_slots() {
            self.leases
                .0
                .iter()
                .map(|lease| named(ahead, lease))
                .collect()
        } else {
            ahead.iter().collect()
        }
    }

    /// Whether one of these tokens is a holder's.
    pub(super) fn is_held_by(&self, tokens: &[Token]) -> bool {
        !tokens.is_empty() && self.holders().iter().any(|party| party.is_of(tokens))
    }

    /// Returns the parties that wait, in their order.
    pub(super) fn waiting(&self) -> Vec<&Party> {
        let behind = &self.line.0[self.line.holders()..];
        self.in_mutex().chain(behind).collect()
    }

    /// Returns the party that keeps `own` out: of several holders one that is among `outer`, and without
    /// a holder the first waiter. `None` if `own` has come to be a holder, and none of `outer` is.
    pub(super) fn keeps_out(&self, own: Token, outer: &[Token]) -> Option<&Party> {
        let holders = self.holders();
        let meant = holders.iter().copied().find(|party| party.is_of(outer));
        if meant.is_none() && holders.iter().any(|party| party.is_of(&[own])) {
            return None;
        }
        let first = meant.or(holders.first().copied());
        first.or_else(|| self.waiting().first().copied())
    }

    /// Returns the parties that wait for a slot alone, in their order.
    fn in_mutex(&self) -> impl Iterator<Item = &Party> {
        let (ahead, behind) = self.line.0.split_at(self.line.holders());
        let is_ahead = |party: &&Party| !behind.iter().any(|other| is_one(other, party));
        let of_slots = if self.has_slots() {
            &self.mutex.0[..]
        } else {
            &[]
        };
        let first = of_slots.iter().filter(is_ahead);
        first.map(|party| named(ahead, party))
    }

    /// Returns the waiters for which no slot is free, in their order.
    pub(super) fn without_slot(&self) -> Vec<&Party> {
        let slots = self.mode().and_then(Mode::number).map_or(0, usize::from);
        let free = slots.saturating_sub(self.count);
        let served = self.in_mutex().take(free).count();
        self.waiting().split_off(served)
    }

    /// Returns the number of waiters before the party of `token`.
    pub(super) fn rank(&self, token: Token) -> usize {
        let waiting = self.waiting().into_iter();
        waiting
            .take_while(|party| party.token != Some(token))
            .count()
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.line.0.is_empty() && self.count == 0
    }
}

/// Returns the party of the lock's line whose entry this is too, or the entry's own.
fn named<'v>(line: &'v [Party], party: &'v Party) -> &'v Party {
    line.iter()
        .find(|other| is_one(other, party))
        .unwrap_or(party)
}

fn is_one(one: &Party, other: &Party) -> bool {
    one.token.is_some() && one.token == other.token
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::zookeeper::line::{name_in_mutex, name_of_lease, names};

    const CURATOR: &str = "_c_6c0f4a5e-9d0f-4c5b-8e86-1f0c7a4f3c2d-";

    /// The entries in the line, from this number on.
    fn in_line(token: Token, mode: Mode, number: usize) -> Vec<String> {
        let all = names(token, mode).into_iter().enumerate();
        all.map(|(index, name)| format!("{name}{:010}", number + index))
            .collect()
    }

    fn waits(token: Token, mode: Mode, number: usize) -> Vec<String> {
        let in_mutex = format!("{MUTEX}/{}{number:010}", name_in_mutex(token));
        [in_line(token, mode, 4 * number), vec![in_mutex]].concat()
    }

    fn lease(token: Token, number: usize) -> String {
        format!("{LEASES}/{}{number:010}", name_of_lease(token))
    }

    fn before(view: &View, token: Token) -> Option<Before> {
        view.before(view.line.place(token).unwrap())
    }

    const MODE: Mode = Mode::Slots(2);

    #[test]
    fn the_first_waiters_have_the_slots_that_are_free_unless_another_kind_is_before_them() {
        let [holder, first, second, other] = [(); 4].map(|()| Token::fresh());
        let held = [in_line(holder, MODE, 0), vec![lease(holder, 7)]].concat();
        let without_slot = |more: &[Vec<String>]| {
            let view = View::of(&[held.clone(), more.concat()].concat());
            let tokens = view.without_slot().into_iter().map(|party| party.token);
            tokens.map(Option::unwrap).collect::<Vec<_>>()
        };
        let [one, two] = [waits(first, MODE, 2), waits(second, MODE, 3)];
        assert_eq!(without_slot(&[one.clone(), two.clone()]), [second]);
        let between = in_line(other, Mode::Exclusive, 4);
        assert_eq!(without_slot(&[between, one, two]), [other, first, second]);
    }

    #[test]
    fn a_holder_keeps_others_out_and_not_itself() {
        let [own, other, waiter] = [(); 3].map(|()| Token::fresh());
        let out = |names: &[Vec<String>], outer: &[Token]| {
            let view = View::of(&names.concat());
            view.keeps_out(own, outer).map(|party| party.token.unwrap())
        };
        let readers = [
            in_line(other, Mode::Shared, 0),
            in_line(waiter, Mode::Shared, 2),
        ];
        assert_eq!(out(&readers, &[]), Some(other));
        assert_eq!(out(&readers, &[waiter]), Some(waiter));
        let ours = in_line(own, Mode::Exclusive, 0);
        assert_eq!(out(&[ours, in_line(waiter, Mode::Exclusive, 4)], &[]), None);
        assert_eq!(out(&[waits(waiter, MODE, 1)], &[]), Some(waiter));
    }

    #[test]
    fn the_first_of_the_mutex_makes_a_lease_once_a_slot_is_free() {
        let [holder, first, second] = [(); 3].map(|()| Token::fresh());
        let mut names = in_line(holder, MODE, 0);
        names.push(lease(holder, 7));
        names.extend(waits(first, MODE, 1));
        names.extend(waits(second, MODE, 2));
        let view = View::of(&names);
        assert_eq!(before(&view, holder), None);
        assert_eq!(before(&view, first), Some(Before::NoLease));
        let ahead = format!("{MUTEX}/{}0000000001", name_in_mutex(first));
        assert_eq!(before(&view, second), Some(Before::Mutex(ahead)));
        assert!(view.has_free_slot(MODE));
        names.push(format!("{LEASES}/{CURATOR}lease-0000000009"));
        let view = View::of(&names);
        assert_eq!(before(&view, first), Some(Before::Leases(2)));
        let tokens =
            |parties: Vec<&Party>| parties.iter().map(|party| party.token).collect::<Vec<_>>();
        assert_eq!(tokens(view.holders())[0], Some(holder));
        assert_eq!(view.holders().len(), 2);
        assert_eq!(tokens(view.waiting()), [Some(first), Some(second)]);
        assert_eq!(view.entries(view.holders()[0]).len(), 5);
    }

    #[test]
    fn a_client_of_curator_at_the_mutex_is_waited_for_and_shown() {
        let first = Token::fresh();
        let curator = format!("{MUTEX}/{CURATOR}lock-0000000000");
        let mut names = waits(first, MODE, 1);
        names.push(curator.clone());
        let view = View::of(&names);
        assert_eq!(before(&view, first), Some(Before::Mutex(curator.clone())));
        assert_eq!(view.waiting()[0].first(), curator);
        assert_eq!(view.waiting()[1].token, Some(first));
        assert!(view.holders().is_empty());
    }

    #[test]
    fn another_kind_keeps_slots_out_and_they_keep_it_out() {
        let [writer, slot, reader] = [(); 3].map(|()| Token::fresh());
        let mut names = in_line(writer, Mode::Exclusive, 0);
        names.extend(waits(slot, MODE, 1));
        names.extend(in_line(reader, Mode::Shared, 8));
        let view = View::of(&names);
        let ahead = format!("_c_{writer}-__lock__0000000002");
        assert_eq!(before(&view, slot), Some(Before::Entry(ahead)));
        let ahead = format!("_c_{slot}-slots-2-0000000007");
        assert_eq!(before(&view, reader), Some(Before::Entry(ahead)));
        assert_eq!((view.holders().len(), view.waiting().len()), (1, 2));
    }

    #[test]
    fn a_lease_that_others_came_before_is_no_slot() {
        let [first, second] = [(); 2].map(|()| Token::fresh());
        let mut names = vec![lease(first, 1), lease(second, 3)];
        assert!(View::of(&names).is_slot(second, 2));
        names.push(format!("{LEASES}/{CURATOR}lease-0000000002"));
        assert!(View::of(&names).is_slot(first, 2));
        assert!(!View::of(&names).is_slot(second, 2));
        names[2] = format!("{LEASES}/whatever");
        assert!(!View::of(&names).is_slot(second, 2));
        // An own one that ends with another session is another client's.
        let names = [lease(first, 1), lease(second, 3), lease(second, 4)];
        let own = &names[2..];
        assert!(!View::seen_by(second, own, &names).is_slot(second, 2));
        assert!(View::seen_by(second, own, &names).is_slot(second, 3));
    }

    #[test]
    fn entries_of_an_attempt_that_was_lost_are_no_place_of_ours() {
        let [ours, other] = [(); 2].map(|()| Token::fresh());
        let own = in_line(ours, Mode::Exclusive, 6);
        let mut names = in_line(ours, Mode::Exclusive, 0);
        names.extend(in_line(other, Mode::Exclusive, 3));
        names.extend(own.clone());
        let line = View::seen_by(ours, &own, &names).line;
        assert_eq!((line.place(ours), line.place(other)), (Some(1), Some(0)));
    }
}
