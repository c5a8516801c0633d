//! The observations of all nodes, counted: the holder of the lock, if there is one. *Unknown is not
//! no.*

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::details::Details;
use super::fence::Fence;
use super::instant::Instant;
use super::last::Entry;
use super::messages::Observation;
use super::occupant::Occupant;
use super::queue::Ticket;
use super::quorum::Quorum;
use super::token::Token;

/// The answers so far; `None` for a node that gave none.
#[derive(Clone, Debug)]
pub struct Census<'a> {
    quorum: Quorum,
    of_nodes: &'a [Option<Observation>],
}

/// The state of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// One party has a majority.
    Held,
    /// No party has one, nor would with the nodes that gave no answer.
    Free,
    /// It cannot be told.
    Unknown,
}

/// An earlier run's success (`--once`), as the nodes of a holder tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Success<'a> {
    /// One of them knows of this one, which is the newest.
    Known(&'a Entry),
    /// A majority knows of none.
    None,
    /// It cannot be told.
    Unknown,
}

impl<'a> Census<'a> {
    /// A census of the answers of all nodes, at least one.
    pub fn of(of_nodes: &'a [Option<Observation>]) -> Self {
        Self {
            quorum: Quorum::of(of_nodes.len()),
            of_nodes,
        }
    }

    /// Returns the majority that is needed.
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    fn answers(&self) -> impl Iterator<Item = &'a Observation> {
        self.of_nodes.iter().flatten()
    }

    /// Whether a majority answered at all.
    pub fn is_answered(&self) -> bool {
        self.answers().count() >= self.quorum.needed()
    }

    fn silent(&self) -> usize {
        self.of_nodes
            .iter()
            .filter(|observation| observation.is_none())
            .count()
    }

    fn occupants(&self) -> impl Iterator<Item = &'a Occupant> {
        self.answers().flat_map(|observation| &observation.holders)
    }

    /// Returns the occupants and the number of nodes that each has, those with the most nodes last.
    /// Of an occupant's entries, the one with the longest TTL is returned.
    fn parties(&self) -> Vec<(&'a Occupant, usize)> {
        let mut parties: Vec<(&Occupant, usize)> = Vec::new();
        let mut met: HashMap<(Token, u16), usize> = HashMap::new();
        for occupant in self.occupants() {
            let at = match occupant.holder() {
                Some((token, _)) => *met
                    .entry((token, occupant.seat.index))
                    .or_insert(parties.len()),
                None => parties
                    .iter()
                    .position(|(other, _)| other.is_same(occupant))
                    .unwrap_or(parties.len()),
            };
            match parties.get_mut(at) {
                None => parties.push((occupant, 1)),
                Some((longest, votes)) => {
                    *votes += 1;
                    if length(occupant) > length(longest) {
                        *longest = occupant;
                    }
                }
            }
        }
        parties.sort_by_key(|(occupant, votes)| (*votes, length(occupant)));
        parties
    }

    /// Returns the occupant at most nodes, and their number. Of its entries, the one with the
    /// longest TTL is returned.
    pub fn leading(&self) -> Option<(&'a Occupant, usize)> {
        self.parties().pop()
    }

    /// Returns the occupant that holds the lock, or may. `None` if the lock is free, whatever an
    /// attempt or a lost lock has left at a minority.
    pub fn holder(&self) -> Option<&'a Occupant> {
        self.leading()
            .filter(|_| self.state() != State::Free)
            .map(|(occupant, _)| occupant)
    }

    /// Returns all that hold the lock, or if none is known to, all that may: by slot, then by the
    /// time since which they hold. With the number of nodes that each has.
    pub fn holders(&self) -> Vec<(&'a Occupant, usize)> {
        let (parties, needed) = (self.parties(), self.quorum.needed());
        let is_held = parties.iter().any(|(_, votes)| *votes >= needed);
        let silent = if is_held { 0 } else { self.silent() };
        let mut holders: Vec<_> = parties
            .into_iter()
            .filter(|(_, votes)| votes + silent >= needed)
            .collect();
        holders.sort_by_key(|(occupant, _)| {
            (
                occupant.seat.index,
                occupant.holder().map(|(_, details)| details.since),
            )
        });
        holders
    }

    /// Returns the number of members that a node has told, where more than were listed.
    pub fn unlisted(&self) -> u64 {
        let more = |observation: &Observation| {
            observation
                .members
                .saturating_sub(observation.holders.len() as u64)
        };
        self.answers().map(more).max().unwrap_or_default()
    }

    /// Whether node `node` has the leading occupant's key; `None` if it gave no answer or has no
    /// key.
    pub fn agrees_with_leading(&self, node: usize) -> Option<bool> {
        let there = self.of_nodes[node]
            .as_ref()
            .filter(|there| !there.holders.is_empty())?;
        self.leading()
            .map(|(leading, _)| there.holders.iter().any(|other| other.is_same(leading)))
    }

    /// Returns the number of nodes that `occupant` has.
    pub fn votes_of(&self, occupant: &Occupant) -> usize {
        self.occupants()
            .filter(|other| other.is_same(occupant))
            .count()
    }

    /// Returns the time for which `occupant` has the key at a majority, or at as many nodes as it
    /// has. `None` if it has no end.
    pub fn ttl_of(&self, occupant: &Occupant) -> Option<Duration> {
        let own = self.occupants().filter(|other| other.is_same(occupant));
        let mut ttls: Vec<Duration> = own
            .map(|other| other.ttl.unwrap_or(Duration::MAX))
            .collect();
        ttls.sort_unstable_by(|a, b| b.cmp(a));
        let last = self.quorum.needed().min(ttls.len()).checked_sub(1)?;
        ttls.get(last).copied().filter(|ttl| *ttl != Duration::MAX)
    }

    /// Returns the same of the leading occupant.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl_of(self.leading()?.0)
    }

    /// Whether the lock is held.
    pub fn state(&self) -> State {
        let votes = self.leading().map_or(0, |(_, votes)| votes);
        if votes >= self.quorum.needed() {
            State::Held
        } else if votes + self.silent() < self.quorum.needed() {
            State::Free
        } else {
            State::Unknown
        }
    }

    /// Returns the entries of `token`, whose lock was neither broken nor parked, with their nodes.
    /// If nodes disagree about a member's index, its slot is the index at which most nodes have it,
    /// and entries at other indexes do not count.
    fn of_token(&self, token: Token) -> Vec<(&'a Observation, &'a Occupant)> {
        let is_over = |occupant: &Occupant| {
            occupant
                .holder()
                .is_some_and(|(_, details)| details.broken.is_some() || details.parked)
        };
        let there = |observation: &'a Observation| {
            observation
                .of(token)
                .filter(|occupant| !is_over(occupant))
                .map(|occupant| (observation, occupant))
        };
        let all: Vec<_> = self.answers().filter_map(there).collect();
        let votes = |index: u16| {
            all.iter()
                .filter(|(_, other)| other.seat.index == index)
                .count()
        };
        let index = all
            .iter()
            .map(|(_, occupant)| occupant.seat.index)
            .max_by_key(|index| votes(*index));
        all.into_iter()
            .filter(|(_, occupant)| Some(occupant.seat.index) == index)
            .collect()
    }

    /// Returns `token`'s entry at one of the nodes where it holds.
    pub fn entry(&self, token: Token) -> Option<&'a Occupant> {
        self.of_token(token).first().map(|(_, occupant)| *occupant)
    }

    /// Whether `token` has a majority; `None` if it cannot be told.
    pub fn is_held_by(&self, token: Token) -> Option<bool> {
        let votes = self.of_token(token).len();
        if votes >= self.quorum.needed() {
            Some(true)
        } else if votes + self.silent() < self.quorum.needed() {
            Some(false)
        } else {
            None
        }
    }

    /// Whether `token` has the key at a node that answered, broken or not. A lock that is parked is
    /// the run's no more.
    pub fn is_anywhere(&self, token: Token) -> bool {
        self.answers().any(|observation| {
            observation
                .of(token)
                .is_some_and(|occupant| !occupant.is_parked())
        })
    }

    /// Returns what the run of `token` says of itself, if it has the key at a majority, or may have
    /// it, broken or not.
    pub fn kept(&self, token: Token) -> Option<&'a Details> {
        let there = |observation: &'a Observation| observation.of(token)?.holder();
        let own: Vec<_> = self.answers().filter_map(there).collect();
        let (_, details) = own.iter().find(|(_, details)| details.kept)?;
        (own.len() + self.silent() >= self.quorum.needed()).then_some(details)
    }

    /// Returns the last success before `token` got the lock, if it is no older than `within`. Only
    /// nodes that have the lock as the token's count: a success that a majority knows is known to
    /// one of any majority that granted the lock since.
    pub fn success_before(&self, token: Token, within: Duration) -> Success<'a> {
        let own = self.of_token(token);
        let known = newest(
            own.iter()
                .filter_map(|(observation, _)| observation.last.success.as_ref()),
        );
        match known.filter(|success| success.age <= within) {
            Some(success) => Success::Known(success),
            None if own.len() >= self.quorum.needed() => Success::None,
            None => Success::Unknown,
        }
    }

    /// Returns the last run and the last success that any node knows.
    pub fn last(&self) -> [Option<&'a Entry>; 2] {
        let run = newest(
            self.answers()
                .filter_map(|observation| observation.last.run.as_ref()),
        );
        [
            run,
            newest(
                self.answers()
                    .filter_map(|observation| observation.last.success.as_ref()),
            ),
        ]
    }

    /// Returns the time for which the lock of `token` stays parked: the longest at any node.
    pub fn parked(&self, token: Token) -> Option<Duration> {
        let there = |observation: &'a Observation| {
            observation
                .of(token)
                .filter(|occupant| occupant.is_parked())
        };
        // Where no look tells the time, the lock has been parked just now.
        let delay = |occupant: &Occupant| {
            let (_, details) = occupant.holder()?;
            Some(Duration::from_millis(details.delay))
        };
        self.answers()
            .filter_map(there)
            .filter_map(|occupant| occupant.ttl.or_else(|| delay(occupant)))
            .max()
    }

    /// Whether more answers would change nothing about `token`: it has a majority, or the holder is
    /// known, or there is none.
    pub fn tells_whose(&self, token: Token) -> bool {
        match self.is_held_by(token) {
            Some(true) => true,
            Some(false) => self.state() != State::Unknown,
            None => false,
        }
    }

    /// Returns a node whose holder uses another number of nodes than were asked, and why that
    /// matters ([`Occupant::other_list`]).
    pub fn other_list(&self) -> Option<(usize, String)> {
        let why =
            |observation: &Observation| observation.occupant()?.other_list(self.quorum.total());
        self.of_nodes
            .iter()
            .enumerate()
            .find_map(|(node, observation)| Some((node, why(observation.as_ref()?)?)))
    }

    /// Returns the time until which `token` has a majority without another renewal: the q-th
    /// largest end.
    pub fn valid_until(&self, token: Token, drift: f64) -> Option<Instant> {
        let own = self.of_token(token);
        self.quorum.reached_by(
            own.into_iter()
                .map(|(observation, occupant)| observation.valid_until(occupant, drift)),
        )
    }

    /// The fence of `token`'s lock: what the holder says where it set the key again, else the
    /// largest that a majority knows where the token is.
    ///
    /// A node that granted late or was healed may have a larger counter (docs/design.md §3); a
    /// majority of those that granted knows the right one.
    pub fn fence(&self, token: Token) -> Option<Fence> {
        self.told_fence(token)
            .or_else(|| self.quorum.reached_by(self.known_fences(token)))
    }

    fn told_fence(&self, token: Token) -> Option<Fence> {
        let details = |occupant: &'a Occupant| occupant.holder().map(|(_, details)| details);
        self.of_token(token)
            .into_iter()
            .find_map(|(_, occupant)| details(occupant)?.fence.and_then(Fence::new))
    }

    /// Returns the fences that nodes know of `token`'s lock: a member's own, else the counter.
    fn known_fences(&self, token: Token) -> Vec<Fence> {
        let known = |(observation, occupant): (&Observation, &Occupant)| match occupant.mode() {
            Some(mode) if mode.has_members() => occupant.seat.fence,
            _ => observation.fence,
        };
        self.of_token(token).into_iter().filter_map(known).collect()
    }

    /// Returns the waiters at any node, the next one first. A ticket is the same at all nodes.
    pub fn queue(&self) -> Vec<&'a Ticket> {
        let all: BTreeMap<_, _> = self
            .answers()
            .flat_map(|observation| &observation.queue)
            .map(|ticket| ((ticket.number, ticket.waiter.id), ticket))
            .collect();
        let mut met = HashSet::new();
        all.into_values()
            .filter(|ticket| met.insert(ticket.waiter.id))
            .collect()
    }

    /// Whether there are more waiters than were told.
    pub fn has_more_waiters(&self) -> bool {
        self.answers().any(|observation| observation.more)
    }

    /// Whether `fence` belongs to `token`'s lock: the holder says so where it set the key again, or
    /// a majority knows it, and it is some node's very number.
    pub fn has_fence(&self, token: Token, fence: Fence) -> bool {
        if let Some(told) = self.told_fence(token) {
            return told == fence;
        }
        let known = self.known_fences(token);
        known.iter().filter(|known| **known >= fence).count() >= self.quorum.needed()
            && known.contains(&fence)
    }
}

/// Returns the entry of the highest fence. Of several nodes, the youngest: a success counts for its
/// time from the last node on.
fn newest<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<&'a Entry> {
    entries.max_by_key(|entry| (entry.fence, Reverse(entry.age)))
}

fn length(occupant: &Occupant) -> Duration {
    occupant.ttl.unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
