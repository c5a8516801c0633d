//! The lease: how long what the nodes granted lasts, and when it is lost. DESIGN.md §5.
//!
//! A node's *tenure* is the time for which its grant is certainly unbroken. The lease runs until the q-th largest end
//! of a tenure: until then at least q nodes refuse everybody else.

use std::fmt;

use super::instant::Instant;
use super::quorum::Quorum;

/// One node's part of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Tenure {
    /// Never granted, or no longer counted.
    None,
    /// Unbroken until then.
    Until(Instant),
    /// The node said that it no longer knows us; heard then.
    Struck(Struck, Instant),
}

/// What a node said when it no longer knew our token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Struck {
    /// Nothing is stored at the key: it expired, was deleted, or the node forgot it.
    Absent,
    /// Something else is stored at the key.
    Another,
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "the key is gone (deleted, or the server came back without it)",
            Self::Another => "somebody else has the key",
        })
    }
}

/// Why a lease is over. Final, even if the nodes should be mended later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Too many nodes have nothing at the key; nobody is known to hold the lock.
    Absent,
    /// Somebody broke it (`rlock break`): the key stays and keeps others out until the command is dead.
    Broken,
    /// What we would need for a majority is in other hands: the lock has passed on.
    TakenOver,
}

/// What is known of all nodes' tenures.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    quorum: Quorum,
    tenures: Vec<Tenure>,
    /// When each node last struck us, whether or not it has been healed since.
    strikes: Vec<Option<Instant>>,
}

impl Lease {
    /// A lease that no node has granted yet.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, tenures: vec![Tenure::None; quorum.total()], strikes: vec![None; quorum.total()] }
    }

    /// Node `node`, asked at `asked`, granted, renewed or was healed: its tenure is unbroken until `end`.
    ///
    /// An earlier end never shortens a tenure: replies may come in any order, and each proves its own span. One to a
    /// question from before the node struck us proves nothing any more: whatever it saw has been lost since.
    pub fn extend(&mut self, node: usize, asked: Instant, end: Instant) {
        let end = match self.tenures[node] {
            Tenure::Struck(_, heard) if asked < heard => return,
            Tenure::Until(known) => known.max(end),
            Tenure::None | Tenure::Struck(..) => end,
        };
        self.tenures[node] = Tenure::Until(end);
    }

    /// Node `node` no longer knows our token, we hear `now`: its tenure ends in this moment.
    pub fn strike(&mut self, node: usize, how: Struck, now: Instant) {
        self.tenures[node] = Tenure::Struck(how, now);
        self.strikes[node] = Some(now);
    }

    /// How node `node` struck us, if it did and nothing has mended it since.
    pub fn struck(&self, node: usize) -> Option<Struck> {
        if let Tenure::Struck(how, _) = self.tenures[node] { Some(how) } else { None }
    }

    /// Whether node `node` is to have the key set again: it has none of ours, for all that is known.
    pub fn wants_healing(&self, node: usize) -> bool {
        !matches!(self.tenures[node], Tenure::Until(_))
    }

    /// D, the q-th largest end of a tenure; `None` if fewer than q nodes have one.
    pub fn deadline(&self) -> Option<Instant> {
        let mut ends: Vec<Instant> = self
            .tenures
            .iter()
            .filter_map(|tenure| if let Tenure::Until(end) = tenure { Some(*end) } else { None })
            .collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends.get(self.quorum.needed() - 1).copied()
    }

    /// The loss, once fewer than q nodes have a tenure, or so many struck us since `round` began that the rest is no
    /// majority, healed or not: what befell them at once may have let somebody in. What others hold includes nodes that
    /// never granted.
    pub fn loss(&self, round: Instant) -> Option<Loss> {
        let at_once = self.strikes.iter().flatten().filter(|at| **at >= round).count();
        if self.deadline().is_some() && at_once <= self.quorum.spare() {
            return None;
        }
        let others = self.tenures.iter().filter(|t| matches!(t, Tenure::Struck(Struck::Another, _))).count();
        Some(if others > self.quorum.spare() { Loss::TakenOver } else { Loss::Absent })
    }

    /// Whether so many nodes struck us that those left are no majority: the verdict on a shield.
    pub fn is_hopeless(&self) -> bool {
        let struck = self.tenures.iter().filter(|t| matches!(t, Tenure::Struck(..))).count();
        struck > self.quorum.spare()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_deadline_is_the_qth_largest_tenure() {
        let mut lease = Lease::new(Quorum::of(5));
        for (node, end) in [(0, 10), (1, 40), (2, 20)] {
            assert_eq!(lease.deadline(), None);
            lease.extend(node, at(0), at(end));
        }
        assert_eq!(lease.deadline(), Some(at(10)));
        lease.extend(3, at(0), at(30));
        assert_eq!(lease.deadline(), Some(at(20)));
    }

    #[test]
    fn a_late_reply_never_shortens_a_tenure() {
        let mut lease = Lease::new(Quorum::of(1));
        lease.extend(0, at(0), at(30));
        lease.extend(0, at(0), at(20));
        assert_eq!(lease.deadline(), Some(at(30)));
    }

    #[test]
    fn one_of_three_may_forget_and_be_healed_two_may_not() {
        let mut lease = Lease::new(Quorum::of(3));
        (0..3).for_each(|node| lease.extend(node, at(0), at(30)));
        lease.strike(0, Struck::Absent, at(0));
        assert_eq!((lease.loss(at(0)), lease.deadline()), (None, Some(at(30))));
        lease.strike(1, Struck::Another, at(0));
        assert_eq!((lease.loss(at(0)), lease.deadline()), (Some(Loss::Absent), None));
        lease.strike(0, Struck::Another, at(0));
        assert_eq!(lease.loss(at(0)), Some(Loss::TakenOver));
    }

    #[test]
    fn on_one_node_the_first_strike_is_the_loss() {
        for (how, loss) in [(Struck::Absent, Loss::Absent), (Struck::Another, Loss::TakenOver)] {
            let mut lease = Lease::new(Quorum::of(1));
            lease.extend(0, at(0), at(30));
            lease.strike(0, how, at(0));
            assert_eq!(lease.loss(at(0)), Some(loss));
        }
    }

    #[test]
    fn a_reply_to_a_question_from_before_the_strike_proves_nothing() {
        let mut lease = Lease::new(Quorum::of(1));
        lease.extend(0, at(0), at(30));
        lease.strike(0, Struck::Absent, at(5));
        lease.extend(0, at(4), at(34));
        assert_eq!(lease.deadline(), None);
        lease.extend(0, at(5), at(35));
        assert_eq!(lease.deadline(), Some(at(35)));
    }

    #[test]
    fn a_majority_that_forgot_in_one_round_is_a_loss_though_one_of_it_was_healed() {
        let mut lease = Lease::new(Quorum::of(3));
        (0..3).for_each(|node| lease.extend(node, at(0), at(30)));
        lease.strike(0, Struck::Absent, at(5));
        lease.extend(0, at(5), at(35));
        lease.strike(1, Struck::Absent, at(6));
        assert_eq!(lease.loss(at(5)), Some(Loss::Absent));
        assert_eq!(lease.loss(at(6)), None, "in rounds of their own");
    }

    #[test]
    fn what_others_held_from_the_start_counts_once_we_lose_the_rest() {
        let mut lease = Lease::new(Quorum::of(3));
        lease.strike(2, Struck::Another, at(0));
        (0..2).for_each(|node| lease.extend(node, at(0), at(30)));
        assert_eq!(lease.loss(at(0)), None);
        lease.strike(0, Struck::Another, at(9));
        assert_eq!(lease.loss(at(0)), Some(Loss::TakenOver));
    }

    #[test]
    fn one_strike_too_many_ends_the_lease_though_another_node_never_spoke() {
        let mut lease = Lease::new(Quorum::of(3));
        (0..2).for_each(|node| lease.extend(node, at(0), at(30)));
        lease.strike(0, Struck::Absent, at(9));
        assert_eq!((lease.loss(at(0)), lease.is_hopeless()), (Some(Loss::Absent), false));
    }

    proptest! {
        #[test]
        fn before_the_deadline_a_majority_is_unbroken(
            total in 1usize..10, events in proptest::collection::vec((0usize..10, 0u64..50, 0u8..4), 0..40),
        ) {
            let mut lease = Lease::new(Quorum::of(total));
            let mut ends = vec![None; total];
            for (node, end, what) in events {
                let node = node % total;
                match what {
                    0 => { lease.strike(node, Struck::Absent, at(0)); ends[node] = None; }
                    1 => { lease.strike(node, Struck::Another, at(0)); ends[node] = None; }
                    _ => { lease.extend(node, at(0), at(end)); ends[node] = ends[node].max(Some(end)); }
                }
            }
            let unbroken_at = |s: u64| ends.iter().filter(|e| e.is_some_and(|e| e >= s)).count();
            match lease.deadline() {
                Some(d) => {
                    let s = d.as_nanos() / 1_000_000_000;
                    prop_assert!(unbroken_at(s) >= Quorum::of(total).needed());
                    prop_assert!(unbroken_at(s + 1) < Quorum::of(total).needed());
                }
                None => prop_assert!(unbroken_at(0) < Quorum::of(total).needed()),
            }
        }
    }
}
