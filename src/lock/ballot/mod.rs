//! The book of one attempt's votes: every node's answer, and their outcome so far (docs/design.md
//! §2).
//!
//! A fence stands once a majority of the nodes that granted *this* attempt know it. A later holder
//! needs a grant of one of them, given after that node's tenure for us was over, and the fences
//! that a node gives only go up.
//!
//! This file counts the votes. The file `tally.rs` says what they mean for the caller.

mod tally;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::fault::{Fault, FaultKind};
use super::fence::Fence;
use super::instant::Instant;
use super::lease::{Lease, Revoked};
use super::messages::{Answer, ServerIdentity, ServerInfo, Vote};
use super::occupant::Occupant;
use super::queue::QueuePosition;
use super::quorum::Quorum;
use super::restart::RestartGuard;
use super::schedule::Schedule;
use super::token::Token;
pub use tally::{Blocked, Reason, Tally};

/// The terms of one attempt, by which its votes are judged.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The attempt's own token. A server that was named twice is recognised by it.
    pub token: Token,
    /// The schedule of the lock.
    pub schedule: Schedule,
    /// The restart guard that the user chose.
    pub guard: RestartGuard,
    /// Time for which the nodes were asked to have forgotten nothing.
    pub guarded: Duration,
}

/// The votes so far.
#[derive(Clone, Debug)]
pub struct Ballot {
    quorum: Quorum,
    rules: Rules,
    lease: Lease,
    votes: Vec<NodeVote>,
    /// The index to which the votes were moved, once they were asked to.
    aligned: Option<u16>,
    /// The fence of the confirm round, once that has begun: no vote joins any more.
    confirming: Option<Fence>,
}

/// One node's vote.
#[derive(Clone, Debug)]
struct NodeVote {
    /// The node's answer; `None` if there is none yet.
    reply: Option<NodeReply>,
    /// Why the vote does not count, whatever the answer says.
    discounted: Option<Discount>,
    server: ServerInfo,
    position: Option<QueuePosition>,
    /// The node has offered us the turn since it was asked.
    was_offered: bool,
}

/// A node's answer.
#[derive(Clone, Debug)]
struct NodeReply {
    /// When the node was asked.
    asked: Instant,
    vote: Vote,
}

/// A grant.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// The node's number for it is at least this.
    fence: Fence,
    /// The index of the slot. Grants of different indexes are votes for different locks.
    index: u16,
    /// When the node was asked, and until when it certainly keeps the key.
    tenure: (Instant, Instant),
}

/// Why a vote does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discount {
    /// The node has been up for too short a time.
    Restarted,
    /// The confirm round had begun when it came.
    Late,
    /// In the confirm round the node had lost our key.
    Lost(Revoked),
    /// In the confirm round the node gave no answer that counts.
    Unconfirmed,
}

/// The state of a vote.
#[derive(Clone, Copy, Debug)]
enum VoteState {
    Open,
    Granted(Grant),
    Missing,
}

/// The outcome of the votes so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Both outcomes are possible.
    Open,
    /// A majority granted, but not the same slot: some must move to another.
    Misaligned,
    /// A majority granted, but too few of them know the largest fence: they must be told it first.
    Unconfirmed(Fence),
    /// A majority granted and knows this fence.
    Won(Fence),
    /// It can no longer be won.
    Failed,
}

impl Ballot {
    /// A ballot without an answer.
    pub fn new(quorum: Quorum, rules: Rules) -> Self {
        let open = || NodeVote {
            reply: None,
            discounted: None,
            server: ServerInfo::None,
            position: None,
            was_offered: false,
        };
        let votes = (0..quorum.total()).map(|_| open()).collect();
        Self {
            quorum,
            rules,
            lease: Lease::new(quorum),
            votes,
            aligned: None,
            confirming: None,
        }
    }

    /// Records the answer of node `node`, which was asked at `asked`.
    pub fn answered(&mut self, node: usize, asked: Instant, answer: Answer, now: Instant) {
        if answer.vote.occupant().is_some() {
            self.lease.revoke(node, Revoked::TakenOver, now);
        }
        let reply = NodeReply {
            asked,
            vote: answer.vote,
        };
        let vote = &mut self.votes[node];
        (vote.reply, vote.server, vote.position) = (Some(reply), answer.server, answer.position);
        self.discount_restarted();
    }

    /// Discounts the grants of nodes that restarted too short a time ago. A holder that was met may
    /// have a longer lease than any that the nodes were asked to allow for.
    fn discount_restarted(&mut self) {
        let span = self.guarded_span();
        for node in 0..self.votes.len() {
            if matches!(self.state(node), VoteState::Granted(_))
                && self
                    .identity(node)
                    .is_some_and(|identity| identity.remembers < span)
            {
                self.votes[node].discounted = Some(Discount::Restarted);
            }
        }
    }

    /// Returns the index for which most nodes have voted, or to which the votes were moved.
    pub fn index(&self) -> u16 {
        let votes = |index: u16| self.granted().filter(|grant| grant.index == index).count();
        let leading = || {
            self.granted()
                .map(|grant| grant.index)
                .max_by_key(|index| votes(*index))
        };
        self.aligned.or_else(leading).unwrap_or_default()
    }

    /// Begins to move votes of [`Verdict::Misaligned`] to one index, which it returns with the
    /// nodes to be asked for it. `first`: the index from which the nodes looked for a free one, of
    /// `slots`.
    ///
    /// Each node gave its first free index, so all before that one are taken there. Therefore only
    /// an index can win at which or before which a majority gave one. Of those it is the one that
    /// most nodes gave.
    pub fn align(&mut self, first: u16, slots: u16) -> (u16, Vec<usize>) {
        let steps = |index: u16| (index + slots - first) % slots;
        let count = |is_meant: &dyn Fn(u16) -> bool| {
            self.granted().filter(|grant| is_meant(grant.index)).count()
        };
        let may_win =
            |index: &u16| count(&|other| steps(other) <= steps(*index)) >= self.quorum.needed();
        let indexes = self.granted().map(|grant| grant.index).filter(may_win);
        let index = indexes.max_by_key(|index| {
            (
                count(&|other| other == *index),
                std::cmp::Reverse(steps(*index)),
            )
        });
        let index = index.unwrap_or(first);
        self.aligned = Some(index);
        let is_elsewhere = |node: &usize| matches!(self.state(*node), VoteState::Granted(grant) if grant.index != index);
        let nodes: Vec<usize> = (0..self.votes.len()).filter(is_elsewhere).collect();
        for node in &nodes {
            self.votes[*node].reply = None;
        }
        (index, nodes)
    }

    /// Begins the confirm round. Returns the nodes to be told `fence`. A node that has not granted
    /// by now does not count.
    pub fn confirm(&mut self, fence: Fence) -> Vec<usize> {
        let index = self.index();
        (self.aligned, self.confirming) = (Some(index), Some(fence));
        for node in 0..self.votes.len() {
            if matches!(self.state(node), VoteState::Open) {
                self.votes[node].discounted = Some(Discount::Late);
            }
        }
        let is_behind = |node: &usize| matches!(self.state(*node), VoteState::Granted(own) if own.index == index && own.fence < fence);
        (0..self.votes.len()).filter(is_behind).collect()
    }

    /// Records that node `node`, asked at `asked`, still had our key in the confirm round and knows
    /// the fence now.
    pub fn confirmed(&mut self, node: usize, asked: Instant, until: Instant) {
        if let (Some(fence), VoteState::Granted(grant)) = (self.confirming, self.state(node)) {
            let vote = Vote::Granted {
                // An earlier end never shortens a tenure.
                until: until.max(grant.tenure.1),
                fence,
                index: grant.index,
            };
            self.votes[node].reply = Some(NodeReply { asked, vote });
        }
    }

    /// Discounts the vote of node `node`.
    pub fn discount(&mut self, node: usize, why: Discount, now: Instant) {
        self.votes[node].discounted = Some(why);
        if let Discount::Lost(how) = why {
            self.lease.revoke(node, how, now);
        }
    }

    /// Records that node `node` failed to confirm. The request may have run, so the node is sent a
    /// release like any other.
    pub fn failed_to_confirm(&mut self, node: usize, fault: Fault) {
        self.votes[node].discounted = Some(Discount::Unconfirmed);
        if let Some(reply) = &mut self.votes[node].reply {
            reply.vote = Vote::Failed(Fault {
                kind: FaultKind::Unknown,
                ..fault
            });
        }
    }

    /// Records that node `node` has offered us the turn.
    pub fn offered(&mut self, node: usize) {
        self.votes[node].was_offered = true;
    }

    /// Returns what the votes come to.
    pub fn verdict(&self) -> Verdict {
        let open = (0..self.votes.len())
            .filter(|node| matches!(self.state(*node), VoteState::Open))
            .count();
        let (index, needed) = (self.index(), self.quorum.needed());
        let fences = || {
            self.granted()
                .filter(|grant| grant.index == index)
                .map(|grant| grant.fence)
        };
        let granted = fences().count();
        let Some(fence) = self.confirming.or_else(|| fences().max()) else {
            return if open < needed {
                Verdict::Failed
            } else {
                Verdict::Open
            };
        };
        if granted < needed && self.aligned.is_none() && self.granted().count() >= needed {
            Verdict::Misaligned
        } else if granted + open < needed {
            let strays = if self.aligned.is_none() {
                self.granted().count()
            } else {
                0
            };
            if strays + open < needed {
                Verdict::Failed
            } else {
                Verdict::Open
            }
        } else if granted < needed {
            Verdict::Open
        } else if fences().filter(|known| *known == fence).count() >= needed {
            Verdict::Won(fence)
        } else {
            Verdict::Unconfirmed(fence)
        }
    }

    fn state(&self, node: usize) -> VoteState {
        let vote = &self.votes[node];
        if vote.discounted.is_some() || self.refuses(node) {
            return VoteState::Missing;
        }
        match &vote.reply {
            None => VoteState::Open,
            Some(reply) => reply.grant().map_or(VoteState::Missing, VoteState::Granted),
        }
    }

    /// Returns the grants that count, of whatever index.
    fn granted(&self) -> impl Iterator<Item = Grant> {
        (0..self.votes.len()).filter_map(|node| {
            if let VoteState::Granted(grant) = self.state(node) {
                Some(grant)
            } else {
                None
            }
        })
    }

    /// Returns the lease that the grants make.
    ///
    /// A grant that came after the confirm round began, with a counter above the confirmed fence,
    /// is no part of it until the holder has asked that node again. In between another client may
    /// have had a majority with it ([`Lease::admit`]).
    pub fn lease(&self) -> Lease {
        let (mut lease, index) = (self.lease.clone(), self.index());
        for (node, vote) in self.votes.iter().enumerate() {
            let is_lost = matches!(vote.discounted, Some(Discount::Lost(_)));
            if let Some(Grant {
                fence,
                index: own,
                tenure: (asked, until),
            }) = vote.reply.as_ref().and_then(NodeReply::grant)
                && own == index
                && !is_lost
                && self.confirming.is_none_or(|confirming| fence <= confirming)
            {
                lease.extend(node, asked, until);
            }
        }
        lease
    }

    /// Whether node `node` has answered.
    pub fn has_answered(&self, node: usize) -> bool {
        self.votes[node].reply.is_some()
    }

    /// Whether node `node` gave a vote, for us or not.
    pub fn has_voted(&self, node: usize) -> bool {
        !self.refuses(node) && !matches!(self.votes[node].told(), None | Some(Vote::Failed(_)))
    }

    /// Whether a node has granted, and so kept others from its vote.
    pub fn has_taken_any(&self) -> bool {
        self.told().any(|vote| matches!(vote, Vote::Granted { .. }))
    }

    /// Returns the nodes that may have set our key, or may yet: they must be sent a release.
    pub fn may_have_set(&self) -> Vec<usize> {
        let may_have = |vote: &NodeVote| match vote.told() {
            None | Some(Vote::Granted { .. }) => true,
            Some(Vote::Failed(fault)) => fault.kind == FaultKind::Unknown,
            Some(Vote::Blocked(_) | Vote::Restarted) => false,
        };
        (0..self.votes.len())
            .filter(|&node| may_have(&self.votes[node]))
            .collect()
    }

    /// Returns the longest TTL known: our own, or that of a holder that was met.
    pub fn longest_ttl(&self) -> Duration {
        let met = self
            .told()
            .filter_map(Vote::occupant)
            .filter_map(Occupant::lease_length)
            .max();
        met.unwrap_or_default()
            .max(self.rules.schedule.remembered())
    }

    /// Returns M, with what this attempt has met.
    fn guarded_span(&self) -> Duration {
        self.rules
            .guard
            .span(self.votes.len(), self.longest_ttl())
            .max(self.rules.guarded)
    }

    fn identity(&self, node: usize) -> Option<&ServerIdentity> {
        if let ServerInfo::Told(identity) = &self.votes[node].server {
            Some(identity)
        } else {
            None
        }
    }

    /// Returns the votes that the nodes have told.
    fn told(&self) -> impl Iterator<Item = &Vote> {
        self.votes.iter().filter_map(NodeVote::told)
    }

    /// Returns the waiter's time of entry, unix time in µs: the median of the nodes' times, of two
    /// the earlier. So a minority of wrong clocks puts no waiter behind all that come within the
    /// next minute.
    pub fn queue_entry_time(&self) -> Option<u64> {
        let mut times: Vec<u64> = self.places().map(|(_, place)| place.now).collect();
        times.sort_unstable();
        times.get(times.len().checked_sub(1)? / 2).copied()
    }

    /// Returns the waiter's rank in the queue where it is furthest ahead.
    pub fn rank(&self) -> Option<u32> {
        self.places().filter_map(|(_, place)| place.rank).min()
    }

    /// Returns a node that refuses the waiter a place in its queue, and the node's words.
    pub fn unqueued(&self) -> Option<(usize, &str)> {
        self.places()
            .find_map(|(node, place)| Some((node, place.refused.as_deref()?)))
    }

    fn places(&self) -> impl Iterator<Item = (usize, &QueuePosition)> {
        self.votes
            .iter()
            .enumerate()
            .filter_map(|(node, vote)| Some((node, vote.position.as_ref()?)))
    }
}

impl NodeVote {
    /// Returns the vote, if the node has told it.
    fn told(&self) -> Option<&Vote> {
        self.reply.as_ref().map(|reply| &reply.vote)
    }
}

impl NodeReply {
    fn grant(&self) -> Option<Grant> {
        if let Vote::Granted {
            until,
            fence,
            index,
        } = self.vote
        {
            Some(Grant {
                fence,
                index,
                tenure: (self.asked, until),
            })
        } else {
            None
        }
    }
}
