//! The lease: how long what the nodes granted lasts, and when it is lost. DESIGN.md §5.
//!
//! A node's *tenure* is the time for which its grant is certainly unbroken. The lease runs until the q-th largest end
//! of a tenure: until then at least q nodes refuse everybody else.

use super::instant::Instant;
use super::quorum::Quorum;

/// One node's part of the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tenure {
    /// Never granted, or no longer counted.
    None,
    /// Unbroken until then.
    Until(Instant),
    /// The node said that it no longer knows us.
    Struck(Struck),
}

/// What a node said when it no longer knew our token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Struck {
    /// Nothing is stored at the key: it expired, was deleted, or the node forgot it.
    Absent,
    /// Something else is stored at the key.
    Another,
}

/// Why a lease is over. Final, even if the nodes should be mended later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Too many nodes have nothing at the key; nobody is known to hold the lock.
    Absent,
    /// What we would need for a majority is in other hands: the lock has passed on.
    TakenOver,
}

/// What is known of all nodes' tenures.
#[derive(Clone, Debug)]
pub struct Lease {
    quorum: Quorum,
    tenures: Vec<Tenure>,
}

impl Lease {
    /// A lease that no node has granted yet.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, tenures: vec![Tenure::None; quorum.total()] }
    }

    /// Node `node` granted, renewed or healed: its tenure is unbroken until `end`.
    ///
    /// An earlier end never shortens a tenure: replies may come in any order, and each proves its own span.
    pub fn extend(&mut self, node: usize, end: Instant) {
        let end = match self.tenures[node] {
            Tenure::Until(known) => known.max(end),
            Tenure::None | Tenure::Struck(_) => end,
        };
        self.tenures[node] = Tenure::Until(end);
    }

    /// Node `node` no longer knows our token: its tenure ends in this moment.
    pub fn strike(&mut self, node: usize, how: Struck) {
        self.tenures[node] = Tenure::Struck(how);
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

    /// The loss, once more than N − q nodes have struck us.
    pub fn loss(&self) -> Option<Loss> {
        let struck = |wanted: fn(Struck) -> bool| {
            self.tenures.iter().filter(|t| matches!(t, Tenure::Struck(how) if wanted(*how))).count()
        };
        if struck(|how| how == Struck::Another) > self.quorum.spare() {
            Some(Loss::TakenOver)
        } else if struck(|_| true) > self.quorum.spare() {
            Some(Loss::Absent)
        } else {
            None
        }
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
            lease.extend(node, at(end));
        }
        assert_eq!(lease.deadline(), Some(at(10)));
        lease.extend(3, at(30));
        assert_eq!(lease.deadline(), Some(at(20)));
    }

    #[test]
    fn a_late_reply_never_shortens_a_tenure() {
        let mut lease = Lease::new(Quorum::of(1));
        lease.extend(0, at(30));
        lease.extend(0, at(20));
        assert_eq!(lease.deadline(), Some(at(30)));
    }

    #[test]
    fn one_of_three_may_forget_and_be_healed_two_may_not() {
        let mut lease = Lease::new(Quorum::of(3));
        (0..3).for_each(|node| lease.extend(node, at(30)));
        lease.strike(0, Struck::Absent);
        assert_eq!((lease.loss(), lease.deadline()), (None, Some(at(30))));
        lease.strike(1, Struck::Another);
        assert_eq!((lease.loss(), lease.deadline()), (Some(Loss::Absent), None));
        lease.strike(0, Struck::Another);
        assert_eq!(lease.loss(), Some(Loss::TakenOver));
    }

    #[test]
    fn on_one_node_the_first_strike_is_the_loss() {
        for (how, loss) in [(Struck::Absent, Loss::Absent), (Struck::Another, Loss::TakenOver)] {
            let mut lease = Lease::new(Quorum::of(1));
            lease.extend(0, at(30));
            lease.strike(0, how);
            assert_eq!(lease.loss(), Some(loss));
        }
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
                    0 => { lease.strike(node, Struck::Absent); ends[node] = None; }
                    1 => { lease.strike(node, Struck::Another); ends[node] = None; }
                    _ => { lease.extend(node, at(end)); ends[node] = ends[node].max(Some(end)); }
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
