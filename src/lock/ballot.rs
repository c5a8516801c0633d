//! One attempt's votes, and what they come to: the acquire and confirm rules of DESIGN.md §6.
//!
//! A fence stands once a majority of the nodes that granted *this* attempt know it. Any later holder needs a grant of one
//! of them, given after that node's lease of ours was over, and a node's grants only go up.

use super::fence::Fence;
use super::instant::Instant;
use super::lease::{Lease, Revoked};
use super::quorum::Quorum;

/// The votes so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ballot {
    quorum: Quorum,
    lease: Lease,
    votes: Vec<VoteState>,
    /// The fence of the confirm round, once that has begun: no vote joins any more.
    confirming: Option<Fence>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum VoteState {
    Open,
    /// Granted; the node's counter is at least this.
    Granted(Fence),
    Missing,
}

/// What the votes come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Both outcomes are possible.
    Open,
    /// A majority granted, but too few of them know the largest fence: they must be told it first.
    Unconfirmed(Fence),
    /// A majority granted and knows this fence.
    Won(Fence),
    /// It can no longer be won.
    Lost,
}

impl Ballot {
    /// No node has answered yet.
    pub fn new(quorum: Quorum) -> Self {
        Self { quorum, lease: Lease::new(quorum), votes: vec![VoteState::Open; quorum.total()], confirming: None }
    }

    /// Node `node`, asked at `asked`, granted until `end`. A grant that comes after the confirm round began is no part of it.
    /// With a counter above the confirmed fence it is no part of the lease either, until the holder has asked that node again:
    /// another client may have had a majority with it in between ([`Lease::admit`]).
    pub fn grant(&mut self, node: usize, asked: Instant, end: Instant, fence: Fence) {
        if self.confirming.is_none_or(|confirming| fence <= confirming) {
            self.lease.extend(node, asked, end);
        }
        if self.confirming.is_none() {
            self.votes[node] = VoteState::Granted(fence);
        }
    }

    /// Node `node` gives no vote: it failed, restarted, or refused; `how` if it said that it does not know our token.
    pub fn miss(&mut self, node: usize, how: Option<Revoked>, now: Instant) {
        self.votes[node] = VoteState::Missing;
        if let Some(how) = how {
            self.lease.revoke(node, how, now);
        }
    }

    /// Begins the confirm round; the nodes to be told `fence`. Whoever has not granted by now is not counted.
    pub fn confirm(&mut self, fence: Fence) -> Vec<usize> {
        self.confirming = Some(fence);
        for vote in &mut self.votes {
            if *vote == VoteState::Open {
                *vote = VoteState::Missing;
            }
        }
        let behind = |vote: &VoteState| matches!(vote, VoteState::Granted(own) if *own < fence);
        (0..self.votes.len()).filter(|&node| behind(&self.votes[node])).collect()
    }

    /// In the confirm round: node `node`, asked at `asked`, still had our key and now knows the fence.
    pub fn confirmed(&mut self, node: usize, asked: Instant, end: Instant) {
        self.lease.extend(node, asked, end);
        if let (Some(fence), VoteState::Granted(_)) = (self.confirming, self.votes[node]) {
            self.votes[node] = VoteState::Granted(fence);
        }
    }

    /// What the votes come to.
    pub fn verdict(&self) -> Verdict {
        let open = self.votes.iter().filter(|vote| **vote == VoteState::Open).count();
        let fences =
            || self.votes.iter().filter_map(|vote| if let VoteState::Granted(f) = vote { Some(*f) } else { None });
        let granted = fences().count();
        let Some(fence) = self.confirming.or_else(|| fences().max()) else {
            return if open < self.quorum.needed() { Verdict::Lost } else { Verdict::Open };
        };
        if granted + open < self.quorum.needed() {
            Verdict::Lost
        } else if granted < self.quorum.needed() {
            Verdict::Open
        } else if fences().filter(|known| *known == fence).count() >= self.quorum.needed() {
            Verdict::Won(fence)
        } else {
            Verdict::Unconfirmed(fence)
        }
    }

    /// Whether node `node` granted.
    pub fn has_granted(&self, node: usize) -> bool {
        matches!(self.votes[node], VoteState::Granted(_))
    }

    /// The lease that the grants make.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The same, to be kept.
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn ballot(total: usize, granted: &[(usize, u64)]) -> Ballot {
        let mut ballot = Ballot::new(Quorum::of(total));
        for (node, number) in granted {
            ballot.grant(*node, at(0), at(30), fence(*number));
        }
        ballot
    }

    #[test]
    fn it_is_decided_as_soon_as_it_is_certain() {
        assert_eq!(ballot(5, &[(0, 7), (1, 7)]).verdict(), Verdict::Open);
        assert_eq!(ballot(5, &[(0, 7), (1, 7), (4, 7)]).verdict(), Verdict::Won(fence(7)));
        let mut losing = ballot(4, &[(0, 7)]);
        losing.miss(1, Some(Revoked::TakenOver), at(1));
        assert_eq!(losing.verdict(), Verdict::Open);
        losing.miss(2, None, at(1));
        assert_eq!(losing.verdict(), Verdict::Lost);
    }

    #[test]
    fn an_even_set_is_won_by_more_than_half() {
        assert_eq!(ballot(2, &[(0, 7)]).verdict(), Verdict::Open);
        assert_eq!(ballot(2, &[(0, 7), (1, 7)]).verdict(), Verdict::Won(fence(7)));
        assert_eq!(ballot(4, &[(0, 7), (1, 7)]).verdict(), Verdict::Open);
    }

    #[test]
    fn the_largest_fence_stands_once_a_majority_of_those_who_granted_knows_it() {
        let mut ballot = ballot(5, &[(0, 7), (1, 9), (2, 8)]);
        assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
        assert_eq!(ballot.confirm(fence(9)), [0, 2]);
        ballot.confirmed(0, at(1), at(31));
        assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
        ballot.confirmed(2, at(1), at(31));
        assert_eq!(ballot.verdict(), Verdict::Won(fence(9)));
    }

    #[test]
    fn a_node_that_grants_during_the_confirm_round_does_not_join_it() {
        let mut ballot = ballot(3, &[(0, 7), (1, 9)]);
        ballot.confirm(fence(9));
        ballot.grant(2, at(0), at(30), fence(9));
        ballot.confirmed(2, at(1), at(31));
        assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
        ballot.miss(0, None, at(2));
        assert_eq!(ballot.verdict(), Verdict::Lost);
    }

    #[test]
    fn a_node_that_lost_the_key_before_the_confirm_round_is_no_part_of_the_lease() {
        let mut ballot = ballot(3, &[(0, 7), (1, 9), (2, 8)]);
        ballot.confirm(fence(9));
        ballot.miss(0, Some(Revoked::Missing), at(2));
        ballot.confirmed(2, at(1), at(31));
        assert_eq!(ballot.verdict(), Verdict::Won(fence(9)));
        let mut lease = ballot.into_lease();
        assert_eq!((lease.deadline(), lease.wants_healing(0)), (Some(at(30)), true));
        lease.revoke(1, Revoked::Missing, at(3));
        assert!(lease.loss(at(9)).is_some());
    }

    #[test]
    fn a_vote_taken_back_does_not_count() {
        let mut ballot = ballot(3, &[(0, 7), (1, 7)]);
        ballot.miss(1, None, at(1));
        assert_eq!(ballot.verdict(), Verdict::Open);
    }
}
