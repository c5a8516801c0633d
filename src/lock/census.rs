//! The observations of all nodes, counted: the holder of the lock, if there is one. *Unknown is not no.*

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::fence::Fence;
use super::instant::Instant;
use super::observation::Observation;
use super::occupant::{Occupant, OccupantKind};
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

impl<'a> Census<'a> {
    /// A census of the answers of all nodes, at least one.
    pub fn of(of_nodes: &'a [Option<Observation>]) -> Self {
        Self { quorum: Quorum::of(of_nodes.len()), of_nodes }
    }

    /// Returns the majority that is needed.
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    fn answers(&self) -> impl Iterator<Item = &'a Observation> {
        self.of_nodes.iter().flatten()
    }

    fn silent(&self) -> usize {
        self.of_nodes.iter().filter(|observation| observation.is_none()).count()
    }

    /// Whether a majority answered at all.
    pub fn is_answered(&self) -> bool {
        self.answers().count() >= self.quorum.needed()
    }

    /// Returns the occupant at most nodes, and their number. Of its entries, the one with the longest TTL is returned.
    pub fn leading(&self) -> Option<(&'a Occupant, usize)> {
        let occupants = || self.answers().filter_map(|observation| observation.occupant());
        let votes = |who: &OccupantKind| occupants().filter(|other| other.who.is_same(who)).count();
        occupants().map(|occupant| (occupant, votes(&occupant.who))).max_by_key(|(occupant, votes)| {
            let ttl = occupant.ttl.map_or(u128::MAX, |ttl| ttl.as_millis());
            (*votes, ttl)
        })
    }

    /// Returns the occupant that holds the lock, or may. `None` if the lock is free, whatever an attempt or a lost lock has left
    /// at a minority.
    pub fn holder(&self) -> Option<&'a Occupant> {
        self.leading().filter(|_| self.state() != State::Free).map(|(occupant, _)| occupant)
    }

    /// Whether node `node` has the leading occupant's key; `None` if it gave no answer or has no key.
    pub fn agrees_with_leading(&self, node: usize) -> Option<bool> {
        let there = self.of_nodes[node].as_ref()?.occupant()?;
        self.leading().map(|(leading, _)| there.who.is_same(&leading.who))
    }

    /// Returns the time for which the leading occupant has the key at a majority, or at as many nodes as it has. `None` if it
    /// has no end.
    pub fn ttl(&self) -> Option<Duration> {
        let (leading, votes) = self.leading()?;
        let own =
            self.answers().filter_map(|observation| observation.occupant()).filter(|o| o.who.is_same(&leading.who));
        let mut ttls: Vec<Duration> = own.map(|occupant| occupant.ttl.unwrap_or(Duration::MAX)).collect();
        ttls.sort_unstable_by(|a, b| b.cmp(a));
        ttls.get(self.quorum.needed().min(votes) - 1).copied().filter(|ttl| *ttl != Duration::MAX)
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

    fn of_token(&self, token: Token) -> impl Iterator<Item = &'a Observation> {
        self.answers().filter(move |observation| observation.is(token))
    }

    /// Whether `token` has a majority; `None` if it cannot be told.
    pub fn is_held_by(&self, token: Token) -> Option<bool> {
        let votes = self.of_token(token).count();
        if votes >= self.quorum.needed() {
            Some(true)
        } else if votes + self.silent() < self.quorum.needed() {
            Some(false)
        } else {
            None
        }
    }

    /// Whether more answers would change nothing about `token`: it has a majority, or the holder is known, or there is none.
    pub fn tells_whose(&self, token: Token) -> bool {
        match self.is_held_by(token) {
            Some(true) => true,
            Some(false) => self.state() != State::Unknown,
            None => false,
        }
    }

    /// Returns a node whose holder uses another number of nodes than were asked, and why that matters
    /// ([`Occupant::other_list`]).
    pub fn other_list(&self) -> Option<(usize, String)> {
        let why = |observation: &Observation| observation.occupant()?.other_list(self.quorum.total());
        self.of_nodes.iter().enumerate().find_map(|(node, observation)| Some((node, why(observation.as_ref()?)?)))
    }

    /// Returns the time until which `token` has a majority without another renewal: the q-th largest end.
    pub fn valid_until(&self, token: Token, drift: f64) -> Option<Instant> {
        self.quorum.reached_by(self.of_token(token).map(|observation| observation.valid_until(drift)))
    }

    /// The fence of `token`'s lock: what the holder says where it set the key again, else the largest that a majority knows
    /// where the token is.
    ///
    /// A node that granted late or was healed may have a larger counter (docs/design.md §6); a majority of those that granted knows
    /// the right one.
    pub fn fence(&self, token: Token) -> Option<Fence> {
        self.told_fence(token).or_else(|| self.known_fence(token))
    }

    fn told_fence(&self, token: Token) -> Option<Fence> {
        let details = |observation: &'a Observation| {
            observation.occupant().and_then(Occupant::holder).map(|(_, details)| details)
        };
        self.of_token(token).find_map(|observation| details(observation)?.fence.and_then(Fence::new))
    }

    fn known_fence(&self, token: Token) -> Option<Fence> {
        self.quorum.reached_by(self.of_token(token).filter_map(|observation| observation.fence))
    }

    /// Returns the waiters at any node, the next one first. A ticket is the same at all nodes.
    pub fn queue(&self) -> Vec<&'a Ticket> {
        let all: BTreeMap<_, _> = self
            .answers()
            .flat_map(|observation| &observation.queue)
            .map(|ticket| ((ticket.number, ticket.waiter.id), ticket))
            .collect();
        let mut met = HashSet::new();
        all.into_values().filter(|ticket| met.insert(ticket.waiter.id)).collect()
    }

    /// Whether there are more waiters than were told.
    pub fn has_more_waiters(&self) -> bool {
        self.answers().any(|observation| observation.more)
    }

    /// Whether `fence` belongs to `token`'s lock: the holder says so where it set the key again, or a majority knows it, and it
    /// is some node's very number.
    pub fn has_fence(&self, token: Token, fence: Fence) -> bool {
        if let Some(told) = self.told_fence(token) {
            return told == fence;
        }
        let known = self.of_token(token).filter(|observation| observation.fence >= Some(fence)).count();
        known >= self.quorum.needed() && self.of_token(token).any(|observation| observation.fence == Some(fence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::details::Details;
    use crate::lock::queue::Waiter;

    #[expect(clippy::unnecessary_wraps, reason = "what a census counts is optional")]
    fn observation(token: Option<Token>, ttl: u64, fence: u64) -> Option<Observation> {
        let occupant = token.map(|token| Occupant {
            who: OccupantKind::Holder(token, Details::default()),
            ttl: Some(Duration::from_secs(ttl)),
        });
        Some(Observation {
            holders: occupant.into_iter().collect(),
            fence: Fence::new(fence),
            ..Observation::of_nothing(Instant::from_nanos(0))
        })
    }

    #[test]
    fn a_majority_holds_and_a_minority_does_not() {
        let (a, b) = (Token::fresh(), Token::fresh());
        let of_nodes = [observation(Some(a), 9, 7), observation(Some(a), 8, 7), observation(Some(b), 7, 6)];
        let census = Census::of(&of_nodes);
        assert_eq!(census.state(), State::Held);
        assert_eq!((census.is_held_by(a), census.is_held_by(b)), (Some(true), Some(false)));
        assert_eq!(census.fence(a), Fence::new(7));
        let until = census.valid_until(a, 0.0);
        assert_eq!(until, Some(Instant::from_nanos(0) + Duration::from_millis(7998)));
    }

    #[test]
    fn a_silent_node_leaves_open_what_it_could_decide_and_nothing_else() {
        let a = Token::fresh();
        let one_of_three = [observation(Some(a), 9, 7), None, observation(None, 0, 7)];
        let census = Census::of(&one_of_three);
        assert_eq!((census.state(), census.is_held_by(a), census.is_answered()), (State::Unknown, None, true));
        let none_of_three = [observation(None, 0, 7), None, observation(None, 0, 7)];
        assert_eq!(Census::of(&none_of_three).state(), State::Free);
        assert!(!Census::of(&[observation(None, 0, 7), None, None]).is_answered());
    }

    #[test]
    fn a_look_goes_on_until_the_holder_is_known_or_nobody_can_be() {
        let (ours, theirs) = (Token::fresh(), Token::fresh());
        let free = || observation(None, 0, 7);
        let tells = |of_nodes: &[Option<Observation>]| Census::of(of_nodes).tells_whose(ours);
        assert!(!tells(&[free(), None, None]));
        assert!(!tells(&[observation(Some(theirs), 9, 7), None, free()]));
        assert!(tells(&[observation(Some(theirs), 9, 7), None, observation(Some(theirs), 9, 7)]));
        assert!(tells(&[free(), None, free()]));
        assert!(tells(&[observation(Some(ours), 9, 7), None, observation(Some(ours), 9, 7)]));
        assert!(!tells(&[observation(Some(ours), 9, 7), None, None]));
    }

    #[test]
    fn a_holder_of_another_list_is_met_at_any_node() {
        let of = |n| {
            let details = Details { n, ..Details::default() };
            let occupant = Some(Occupant { who: OccupantKind::Holder(Token::fresh(), details), ttl: None });
            Some(Observation {
                holders: occupant.into_iter().collect(),
                ..Observation::of_nothing(Instant::from_nanos(0))
            })
        };
        let met = |of_nodes: &[Option<Observation>]| Census::of(of_nodes).other_list();
        // A value of an rlock that does not say how many nodes it uses proves nothing.
        assert_eq!(met(&[of(3), None, of(0)]), None);
        let (node, why) = met(&[of(3), None, of(1)]).unwrap();
        assert!(node == 2 && why.contains("with 1 node; we have 3:"), "{why}");
        assert!(met(&[of(5)]).is_some_and(|(_, why)| why.contains("with 5 nodes; we have 1:")));
    }

    #[test]
    fn who_waits_is_who_waits_anywhere_in_the_order_of_the_tickets() {
        let ticket = |host: &str, number| Ticket {
            waiter: Waiter { id: Token::fresh().as_uuid(), host: host.to_owned(), pid: 1, since: 1 },
            number,
        };
        let [a, b, c] = [ticket("a", 3), ticket("b", -1), ticket("c", 2)];
        let node = |queue: Vec<Ticket>, more| {
            Some(Observation { queue, more, ..Observation::of_nothing(Instant::from_nanos(0)) })
        };
        let of_nodes = [node(vec![b.clone(), a.clone()], false), None, node(vec![b.clone(), c.clone()], false)];
        let hosts = |census: &Census| census.queue().iter().map(|t| t.waiter.host.clone()).collect::<String>();
        assert_eq!(
            (hosts(&Census::of(&of_nodes)), Census::of(&of_nodes).has_more_waiters()),
            ("bca".to_owned(), false)
        );
        // It gave up its place and came again, and one node has not heard of it.
        let again = [node(vec![Ticket { number: 1, ..a.clone() }, c], true), node(vec![a], false)];
        assert_eq!((hosts(&Census::of(&again)), Census::of(&again).has_more_waiters()), ("ac".to_owned(), true));
    }

    #[test]
    fn the_fence_is_one_that_a_majority_knows_and_some_node_has() {
        let a = Token::fresh();
        let fence = |number| Fence::new(number).unwrap();
        let late_grant = [observation(Some(a), 9, 7), observation(Some(a), 9, 7), observation(Some(a), 9, 9)];
        let census = Census::of(&late_grant);
        assert_eq!(census.fence(a), Fence::new(7));
        assert!(census.has_fence(a, fence(7)));
        for wrong in [6, 8, 9] {
            assert!(!census.has_fence(a, fence(wrong)), "{wrong}");
        }
    }

    #[test]
    fn a_fence_that_a_healed_node_tells_stands_whatever_the_counters_say() {
        let a = Token::fresh();
        let fence = |number| Fence::new(number).unwrap();
        let mut healed = observation(Some(a), 9, 11);
        let details = Details { fence: Some(7), ..Details::default() };
        healed.as_mut().unwrap().holders[0].who = OccupantKind::Holder(a, details);
        let of_nodes = [observation(Some(a), 9, 7), healed, observation(Some(a), 9, 9)];
        let census = Census::of(&of_nodes);
        assert_eq!(census.fence(a), Fence::new(7));
        assert!(census.has_fence(a, fence(7)) && !census.has_fence(a, fence(9)));
    }
}
