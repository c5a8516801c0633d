//! The lease: the time for which a majority certainly keeps the lock, and when the lock is lost
//! (docs/design.md §3, §4).
//!
//! A node's *tenure* is the time for which its grant is certainly unbroken. The lease runs until
//! the q-th largest end of a tenure: until then at least q nodes refuse every other client.
//!
//! A node may join late, by a healing or a late grant. If its fence counter was above the holder's
//! fence by then, it had granted the lock to others after the holder. Attempts that failed leave
//! such a counter behind, and so does a complete grant in between. Such a node's tenure is
//! *unproven*. It counts once q nodes with a proven tenure have said that the key is the holder's,
//! each to a request sent after the join was heard. Those q tenures then cover the join, so no
//! other client had a majority up to that moment.

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
    /// Unbroken until then, and unproven since the join was heard.
    Unproven(Instant, Instant),
    /// The node said that it no longer knows our token; heard then.
    Revoked(Revoked, Instant),
}

/// The state of the key at a node that no longer knows our token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Revoked {
    /// Nothing is stored at the key: it expired, was deleted, or the node forgot it.
    Missing,
    /// Something else is stored at the key.
    TakenOver,
}

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the key is gone (deleted, or the server came back without it)",
            Self::TakenOver => "another client has the key",
        })
    }
}

/// Why a lease is over. Final, even if the nodes are healed later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Too many nodes have nothing at the key; no client is known to hold the lock.
    Absent,
    /// It was broken (`rlock break`): the key stays and keeps others out until the command is dead.
    Broken,
    /// Others have so many nodes that we cannot have a majority: the lock has passed on.
    TakenOver,
}

/// A change of a lease, or of all leases of a run as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseChange {
    /// It lasts until then: longer than before, or shorter because a node lost the key.
    Extended(Instant),
    /// It is lost, and that is final.
    Lost(Loss),
    /// After a loss: our token is set again on a majority, so no other client gets the lock before
    /// this instant.
    Shielded(Instant),
    /// After a loss: our token could not be set again on a majority, or was lost there.
    Unshielded,
}

/// The tenures of all nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    quorum: Quorum,
    tenures: Vec<Tenure>,
    /// When each node last lost our key, whether or not it has been healed since.
    revocations: Vec<Option<Instant>>,
    /// The latest request to which each node has said that the key is ours.
    vouched: Vec<Option<Instant>>,
}

impl Lease {
    /// A lease that no node has granted yet.
    pub fn new(quorum: Quorum) -> Self {
        let none = vec![None; quorum.total()];
        Self {
            quorum,
            tenures: vec![Tenure::None; quorum.total()],
            revocations: none.clone(),
            vouched: none,
        }
    }

    /// Records that node `node`, asked at `asked`, granted, renewed or was healed: its tenure is
    /// unbroken until `end`.
    ///
    /// An earlier end never shortens a tenure: replies come in any order, and each proves its own
    /// span. A reply to a request from before the node lost our key proves nothing: the tenure that
    /// it saw is over.
    pub fn extend(&mut self, node: usize, asked: Instant, end: Instant) {
        self.tenures[node] = match self.tenures[node] {
            Tenure::Revoked(_, heard) if asked < heard => return,
            Tenure::Until(known) => Tenure::Until(known.max(end)),
            Tenure::Unproven(known, since) => Tenure::Unproven(known.max(end), since),
            Tenure::None | Tenure::Revoked(..) => Tenure::Until(end),
        };
        self.vouched[node] = self.vouched[node].max(Some(asked));
        self.prove();
    }

    /// Records that node `node`, asked at `asked` and heard `now`, has our key until `end`, with a
    /// counter above our fence. A node without a tenure joins with an unproven one.
    pub fn admit(&mut self, node: usize, asked: Instant, end: Instant, now: Instant) {
        if self.wants_healing(node) && self.revoked_at(node).is_none_or(|heard| asked >= heard) {
            self.tenures[node] = Tenure::Unproven(end, now);
        }
        self.extend(node, asked, end);
    }

    /// Counts the unproven tenures for which q proven ones vouch.
    fn prove(&mut self) {
        let proven = |lease: &Self, since| {
            let vouches = |node: &usize| {
                matches!(lease.tenures[*node], Tenure::Until(_))
                    && lease.vouched[*node] >= Some(since)
            };
            (0..lease.tenures.len()).filter(vouches).count() >= lease.quorum.needed()
        };
        for node in 0..self.tenures.len() {
            if let Tenure::Unproven(end, since) = self.tenures[node]
                && proven(self, since)
            {
                self.tenures[node] = Tenure::Until(end);
            }
        }
    }

    /// Whether node `node` must be asked at once: an unproven tenure lacks its word.
    pub fn wants_word_of(&self, node: usize) -> bool {
        let is_newer = |t: &Tenure| matches!(t, Tenure::Unproven(_, since) if self.vouched[node] < Some(*since));
        matches!(self.tenures[node], Tenure::Until(_)) && self.tenures.iter().any(is_newer)
    }

    fn revoked_at(&self, node: usize) -> Option<Instant> {
        if let Tenure::Revoked(_, heard) = self.tenures[node] {
            Some(heard)
        } else {
            None
        }
    }

    /// Ends the tenure of node `node`, which no longer knows our token, as we hear `now`.
    pub fn revoke(&mut self, node: usize, how: Revoked, now: Instant) {
        self.tenures[node] = Tenure::Revoked(how, now);
        self.revocations[node] = Some(now);
    }

    /// Returns how node `node` lost our key, if it did and has not been healed since.
    pub fn revoked(&self, node: usize) -> Option<Revoked> {
        if let Tenure::Revoked(how, _) = self.tenures[node] {
            Some(how)
        } else {
            None
        }
    }

    /// Whether the key must be set again at node `node`, which has none of ours for all that is
    /// known.
    pub fn wants_healing(&self, node: usize) -> bool {
        matches!(self.tenures[node], Tenure::None | Tenure::Revoked(..))
    }

    /// Returns D, the q-th largest end of a proven tenure; `None` if fewer than q nodes have one.
    pub fn deadline(&self) -> Option<Instant> {
        let end = |tenure: &Tenure| {
            if let Tenure::Until(end) = tenure {
                Some(*end)
            } else {
                None
            }
        };
        self.quorum.reached_by(self.tenures.iter().filter_map(end))
    }

    /// Returns the loss, if there is one:
    /// 1. Fewer than q nodes have a proven tenure.
    /// 2. More than N − q nodes lost our key since `round` began, healed or not. In between another
    ///    client may have had a majority.
    ///
    /// It is [`Loss::TakenOver`] if more than N − q nodes said that another client has the key.
    /// Nodes that said so instead of granting count among them.
    pub fn loss(&self, round: Instant) -> Option<Loss> {
        let at_once = self
            .revocations
            .iter()
            .flatten()
            .filter(|at| **at >= round)
            .count();
        if self.deadline().is_some() && at_once <= self.quorum.tolerated() {
            return None;
        }
        let others = self
            .tenures
            .iter()
            .filter(|t| matches!(t, Tenure::Revoked(Revoked::TakenOver, _)))
            .count();
        Some(if others > self.quorum.tolerated() {
            Loss::TakenOver
        } else {
            Loss::Absent
        })
    }

    /// Whether so many nodes lost our key that the others are no majority. If this happens to a
    /// shield, it has failed.
    pub fn majority_revoked(&self) -> bool {
        let revoked = self
            .tenures
            .iter()
            .filter(|t| matches!(t, Tenure::Revoked(..)))
            .count();
        revoked > self.quorum.tolerated()
    }
}

/// Several leases as one: the locks of a run are held together, and its command may run only while
/// all of them last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leases {
    /// The end of each lease, or of the tombstone or the shield in its place. `None`: it is lost,
    /// and no shield is known.
    ends: Vec<Option<Instant>>,
    /// The lock that was lost first.
    lost: Option<usize>,
}

impl Leases {
    /// Adds a lease that lasts until `end`.
    pub fn push(&mut self, end: Instant) {
        self.ends.push(Some(end));
    }

    /// Records a change of the lease of `lock`. Returns what it means for all: they last until the
    /// smallest end, and nothing is known of that while a lost lock has no shield.
    pub fn changed(&mut self, lock: usize, change: LeaseChange) -> Option<LeaseChange> {
        match change {
            LeaseChange::Extended(end) => self.until(lock, end).map(LeaseChange::Extended),
            LeaseChange::Shielded(end) => self.until(lock, end).map(LeaseChange::Shielded),
            LeaseChange::Lost(loss) => {
                self.lost = self.lost.or(Some(lock));
                // A tombstone lasts as long as the lease would have.
                if loss != Loss::Broken {
                    self.ends[lock] = None;
                }
                Some(change)
            }
            LeaseChange::Unshielded => Some(change),
        }
    }

    fn until(&mut self, lock: usize, end: Instant) -> Option<Instant> {
        self.ends[lock] = Some(end);
        (!self.ends.contains(&None)).then(|| self.deadline())
    }

    /// Returns the smallest end. A lost lock without a shield has none: its loss bounds the
    /// command's time.
    pub fn deadline(&self) -> Instant {
        self.ends
            .iter()
            .flatten()
            .min()
            .copied()
            .unwrap_or(Instant::NEVER)
    }

    /// Returns the lock that was lost first, else the one whose lease ends first.
    pub fn weakest(&self) -> usize {
        let first = self
            .ends
            .iter()
            .enumerate()
            .min_by_key(|(_, end)| end.unwrap_or(Instant::NEVER));
        self.lost
            .or_else(|| first.map(|(lock, _)| lock))
            .unwrap_or_default()
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
        lease.revoke(0, Revoked::Missing, at(0));
        assert_eq!((lease.loss(at(0)), lease.deadline()), (None, Some(at(30))));
        lease.revoke(1, Revoked::TakenOver, at(0));
        assert_eq!(
            (lease.loss(at(0)), lease.deadline()),
            (Some(Loss::Absent), None)
        );
        lease.revoke(0, Revoked::TakenOver, at(0));
        assert_eq!(lease.loss(at(0)), Some(Loss::TakenOver));
    }

    #[test]
    fn on_one_node_the_first_revocation_is_the_loss() {
        for (how, loss) in [
            (Revoked::Missing, Loss::Absent),
            (Revoked::TakenOver, Loss::TakenOver),
        ] {
            let mut lease = Lease::new(Quorum::of(1));
            lease.extend(0, at(0), at(30));
            lease.revoke(0, how, at(0));
            assert_eq!(lease.loss(at(0)), Some(loss));
        }
    }

    #[test]
    fn a_reply_to_a_request_from_before_the_revocation_proves_nothing() {
        let mut lease = Lease::new(Quorum::of(1));
        lease.extend(0, at(0), at(30));
        lease.revoke(0, Revoked::Missing, at(5));
        lease.extend(0, at(4), at(34));
        assert_eq!(lease.deadline(), None);
        lease.extend(0, at(5), at(35));
        assert_eq!(lease.deadline(), Some(at(35)));
    }

    #[test]
    fn a_majority_that_forgot_in_one_round_is_a_loss_though_one_of_it_was_healed() {
        let mut lease = Lease::new(Quorum::of(3));
        (0..3).for_each(|node| lease.extend(node, at(0), at(30)));
        lease.revoke(0, Revoked::Missing, at(5));
        lease.extend(0, at(5), at(35));
        lease.revoke(1, Revoked::Missing, at(6));
        assert_eq!(lease.loss(at(5)), Some(Loss::Absent));
        assert_eq!(lease.loss(at(6)), None, "in rounds of their own");
    }

    #[test]
    fn what_others_held_from_the_start_counts_once_we_lose_the_rest() {
        let mut lease = Lease::new(Quorum::of(3));
        lease.revoke(2, Revoked::TakenOver, at(0));
        (0..2).for_each(|node| lease.extend(node, at(0), at(30)));
        assert_eq!(lease.loss(at(0)), None);
        lease.revoke(0, Revoked::TakenOver, at(9));
        assert_eq!(lease.loss(at(0)), Some(Loss::TakenOver));
    }

    #[test]
    fn one_revocation_too_many_ends_the_lease_though_another_node_never_answered() {
        let mut lease = Lease::new(Quorum::of(3));
        (0..2).for_each(|node| lease.extend(node, at(0), at(30)));
        lease.revoke(0, Revoked::Missing, at(9));
        assert_eq!(
            (lease.loss(at(0)), lease.majority_revoked()),
            (Some(Loss::Absent), false)
        );
    }

    /// Nodes 0 and 1 of three granted; node 2 joined with a counter above the fence, heard at
    /// second 5.
    fn joined() -> Lease {
        let mut lease = Lease::new(Quorum::of(3));
        (0..2).for_each(|node| lease.extend(node, at(0), at(30)));
        lease.admit(2, at(4), at(34), at(5));
        lease
    }

    #[test]
    fn an_unproven_tenure_counts_once_a_majority_has_vouched_for_the_time_since_it_was_heard() {
        let mut lease = joined();
        assert_eq!(
            [0, 1, 2].map(|node| lease.wants_word_of(node)),
            [true, true, false]
        );
        lease.extend(0, at(6), at(36));
        lease.extend(2, at(6), at(36));
        assert_eq!(
            (lease.deadline(), lease.wants_word_of(0)),
            (Some(at(30)), false)
        );
        lease.extend(1, at(5), at(35));
        assert_eq!(
            lease.deadline(),
            Some(at(36)),
            "the second largest of 36, 35 and 36"
        );
        lease.revoke(0, Revoked::Missing, at(9));
        assert_eq!(lease.loss(at(9)), None);
    }

    #[test]
    fn words_from_before_the_join_was_heard_prove_nothing() {
        let mut lease = joined();
        lease.extend(0, at(6), at(36));
        lease.extend(1, at(4), at(34));
        lease.revoke(0, Revoked::Missing, at(9));
        assert_eq!(lease.loss(at(9)), Some(Loss::Absent));
    }

    #[test]
    fn a_node_that_was_revoked_vouches_for_none_until_it_is_proven_itself() {
        let mut lease = joined();
        lease.revoke(0, Revoked::Missing, at(6));
        lease.admit(0, at(7), at(37), at(8));
        (1..3).for_each(|node| lease.extend(node, at(9), at(39)));
        assert_eq!(lease.deadline(), None, "only node 1 is certain");
    }

    #[test]
    fn a_tenure_that_was_proven_vouches_for_another() {
        let mut lease = joined();
        (0..2).for_each(|node| lease.extend(node, at(6), at(36)));
        lease.revoke(0, Revoked::Missing, at(9));
        lease.admit(0, at(9), at(39), at(10));
        (1..3).for_each(|node| lease.extend(node, at(11), at(41)));
        lease.revoke(1, Revoked::Missing, at(12));
        assert_eq!(lease.loss(at(12)), None);
    }

    #[test]
    fn a_late_reply_of_a_node_that_was_revoked_since_does_not_admit_it() {
        let mut lease = joined();
        lease.revoke(2, Revoked::Missing, at(7));
        lease.admit(2, at(6), at(36), at(8));
        assert!(lease.wants_healing(2));
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
                    0 => { lease.revoke(node, Revoked::Missing, at(0)); ends[node] = None; }
                    1 => { lease.revoke(node, Revoked::TakenOver, at(0)); ends[node] = None; }
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

    fn leases(ends: &[u64]) -> Leases {
        let mut leases = Leases::default();
        for end in ends {
            leases.push(at(*end));
        }
        leases
    }

    #[test]
    fn the_lease_that_ends_first_is_the_end_of_all() {
        let mut leases = leases(&[30, 20, 25]);
        assert_eq!((leases.deadline(), leases.weakest()), (at(20), 1));
        assert_eq!(leases.until(1, at(40)), Some(at(25)));
        assert_eq!(
            leases.until(0, at(50)),
            Some(at(25)),
            "a renewal of one does not extend the others"
        );
        assert_eq!(leases.weakest(), 2);
        assert_eq!(
            leases.until(2, at(10)),
            Some(at(10)),
            "a node that was lost shortens it"
        );
    }

    #[test]
    fn a_shield_counts_once_every_lost_lock_has_one() {
        let mut leases = leases(&[30, 20, 25]);
        leases.changed(1, LeaseChange::Lost(Loss::Absent));
        assert_eq!((leases.deadline(), leases.weakest()), (at(25), 1));
        leases.changed(2, LeaseChange::Lost(Loss::Absent));
        assert_eq!(leases.until(1, at(40)), None);
        assert_eq!(
            (leases.until(0, at(60)), leases.deadline()),
            (None, at(40)),
            "the shield goes on counting"
        );
        assert_eq!(leases.until(2, at(50)), Some(at(40)));
        assert_eq!(leases.until(1, at(70)), Some(at(50)));
    }

    #[test]
    fn a_broken_lock_lasts_as_long_as_its_tombstone() {
        let mut leases = leases(&[30, 20]);
        leases.changed(0, LeaseChange::Lost(Loss::Broken));
        assert_eq!(
            (leases.deadline(), leases.weakest()),
            (at(20), 0),
            "the broken one, not the one that ends first"
        );
        assert_eq!(leases.until(1, at(25)), Some(at(25)));
    }
}
