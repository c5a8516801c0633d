//! The outcome of the votes for the caller: won, busy, split, unreachable, refused; and sets of
//! nodes that cannot hold the lock as configured, whatever the votes.

use std::time::Duration;

use super::{Ballot, Discount, Verdict};
use crate::lock::blocker::Blocker;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::messages::{ServerInfo, Vote};
use crate::lock::occupant::Occupant;
use crate::lock::quorum::Quorum;
use crate::lock::restart::Restarted;

/// The outcome of an attempt: the fence of the lock, which is ours for long enough to be of use, or
/// why it is not ours.
pub type Tally = Result<Fence, Reason>;

/// Why an attempt, or the wait, ends without the lock.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// This keeps it from us, which may pass: a wait ends once its patience is over.
    Blocked(Blocked),
    /// This other waiter came later, and both have `--supersede`. So many nodes say so that no
    /// majority can grant.
    Superseded(Box<Blocker>),
    /// The nodes that refuse us leave no majority.
    Refused(Faults),
    /// The set of nodes cannot hold this lock as configured, as the named node shows. Waiting does
    /// not mend that.
    Unfit(String, Fault),
    /// The outer rlock that holds the lock cannot be reached.
    OuterUnreachable(Box<Occupant>),
}

/// The cause that keeps a waiter from the lock.
#[derive(Clone, PartialEq, Debug)]
pub enum Blocked {
    /// This party has it, or its turn.
    Busy(Box<Blocker>),
    /// No client has a majority; this party has the most votes. The faults are those of the nodes
    /// without a vote.
    Split(Box<Blocker>, Faults),
    /// Too few of the nodes gave a vote.
    Unreachable(Faults, Quorum),
    /// A majority granted, too late for the lease to be of use.
    TooLate,
}

impl Blocked {
    /// Returns the same, but for votes split in favour of a waiter whose turn it is. That does not
    /// tie: it comes within its second, or its turn ends.
    pub(in crate::lock) fn of_turn(self, quorum: Quorum) -> Self {
        match self {
            Self::Split(blocker, faults)
                if blocker.occupant().is_none() && faults.len() <= quorum.tolerated() =>
            {
                Self::Busy(blocker)
            }
            other => other,
        }
    }

    /// Whether no majority gave a vote that is of use.
    pub(in crate::lock) fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::TooLate)
    }
}

impl Ballot {
    /// Returns the outcome of the votes so far, as if no other came. `name` returns a node's name.
    pub fn tally<'a>(&self, now: Instant, name: impl Fn(usize) -> &'a str) -> Tally {
        if let Some((node, fault)) = self.misconfiguration(&name) {
            return Err(Reason::Unfit(name(node).to_owned(), fault));
        }
        if (0..self.votes.len())
            .filter(|node| self.refuses(*node))
            .count()
            > self.quorum.tolerated()
        {
            return Err(Reason::Refused(self.faults(name)));
        }
        if let Verdict::Won(fence) = self.verdict() {
            // The lease counts from before the requests were sent. The rest must be enough to stop
            // the command.
            let is_of_use = self
                .lease()
                .deadline()
                .is_some_and(|d| now < self.rules.schedule.signal_at(d));
            return if is_of_use {
                Ok(fence)
            } else {
                Err(Reason::Blocked(Blocked::TooLate))
            };
        }
        if let Some(newer) = self.newer() {
            return Err(Reason::Superseded(Box::new(newer.clone())));
        }
        let needed = self.quorum.needed();
        let there = self.votes();
        // A node that was not waited for is not away.
        let unanswered = if self.missed_deadline() {
            0
        } else {
            self.unanswered()
        };
        Err(Reason::Blocked(match self.leading_blocker() {
            // The slots that nodes gave were not the same, and one to which they were to move was
            // taken meanwhile.
            None if self.verdict() == Verdict::Misaligned => Blocked::TooLate,
            Some((blocker, votes)) if self.aligned.is_none() && self.may_hold(votes) => {
                Blocked::Busy(Box::new(blocker.clone()))
            }
            Some((blocker, _)) if there + unanswered >= needed => {
                Blocked::Split(Box::new(blocker.clone()), self.faults(name))
            }
            _ => Blocked::Unreachable(self.faults(name), self.quorum),
        }))
    }

    /// Number of nodes that gave a vote, for us or not.
    pub fn votes(&self) -> usize {
        (0..self.votes.len())
            .filter(|node| self.has_voted(*node))
            .count()
    }

    /// Returns the time until a majority counts, if only nodes under their restart guard are
    /// missing for it.
    pub fn counts_in(&self) -> Option<Duration> {
        if self.unanswered() + self.failed() > 0 {
            return None;
        }
        let mut left: Vec<Duration> = (0..self.votes.len())
            .filter_map(|node| Some(self.restarted(node)?.left))
            .collect();
        left.sort_unstable();
        let missing = self
            .quorum
            .needed()
            .checked_sub(self.votes.len() - left.len())?;
        left.get(missing.checked_sub(1)?).copied()
    }

    /// Whether it is certain which outcome an attempt that cannot be won has: busy or not.
    pub fn is_decided(&self) -> bool {
        let (needed, unanswered) = (self.quorum.needed(), self.unanswered());
        self.newer().is_some()
            || self.leading_blocker().is_some_and(|(blocker, votes)| {
                let is_own = blocker
                    .occupant()
                    .is_some_and(|occupant| self.is_own(occupant));
                !is_own && (votes >= needed || votes + unanswered < needed)
            })
    }

    /// Whether the nodes that have not answered yet decide between busy and split. Two clients that
    /// tie on an even number of nodes, each of which took the other for the holder at once, would
    /// both give up. A nested run that took its outer one's lock for a split vote would not join
    /// it.
    pub fn is_undecided(&self) -> bool {
        let Some((_, votes)) = self.leading_blocker() else {
            return false;
        };
        let (unanswered, failed) = (self.unanswered(), self.failed());
        self.may_be_majority(votes + unanswered, failed) && !self.may_be_majority(votes, failed)
    }

    /// Whether a node that was blocked has offered us the turn since. Waiting for nodes that hang
    /// would then cost us our turn.
    pub fn was_offered_again(&self) -> bool {
        self.votes
            .iter()
            .any(|vote| vote.was_offered && matches!(vote.told(), Some(Vote::Blocked(_))))
    }

    /// Returns the waiter that ends this one, if that many nodes name one that no majority can
    /// grant. They may name different ones.
    fn newer(&self) -> Option<&Blocker> {
        let mut newer = self
            .told()
            .filter_map(Vote::blocker)
            .filter(|by| matches!(by, Blocker::Newer(_)));
        newer.nth(self.quorum.tolerated())
    }

    /// Returns the occupant that a majority of the nodes named.
    pub fn holder(&self) -> Option<&Occupant> {
        let (blocker, votes) = self.leading_blocker()?;
        blocker.occupant().filter(|_| votes >= self.quorum.needed())
    }

    /// Returns a node that may not tell when it restarted and counts all the same, with its words.
    pub fn unguarded(&self) -> Option<(usize, &str)> {
        if self.rules.guard.is_strict() || self.guarded_span().is_zero() {
            return None;
        }
        self.votes
            .iter()
            .enumerate()
            .find_map(|(node, vote)| match &vote.server {
                ServerInfo::Forbidden(why) => Some((node, why.as_str())),
                _ => None,
            })
    }

    /// Returns the nodes that refuse us, and why.
    pub fn refusals(&self) -> impl Iterator<Item = (usize, Fault)> {
        (0..self.votes.len()).filter_map(|node| Some((node, self.refusal(node)?)))
    }

    /// Whether node `node` refuses us: the vote itself, or its identity, on which `--restart-guard DUR`
    /// relies.
    pub(super) fn refuses(&self, node: usize) -> bool {
        let vote = &self.votes[node];
        matches!(vote.told(), Some(Vote::Failed(fault)) if fault.kind == FaultKind::Refused)
            || matches!(vote.server, ServerInfo::Forbidden(_)) && self.rules.guard.is_strict()
    }

    fn refusal(&self, node: usize) -> Option<Fault> {
        let vote = &self.votes[node];
        match (vote.told(), &vote.server) {
            _ if !self.refuses(node) => None,
            (_, ServerInfo::Forbidden(why)) => {
                let why = format!("--restart-guard cannot see whether it restarted: {why}");
                Some(Fault::new(FaultKind::Refused, why))
            }
            (Some(Vote::Failed(fault)), _) => Some(fault.clone()),
            _ => None,
        }
    }

    /// Whether the missing votes were waited for until the end. If not, a node without a vote is
    /// not called silent.
    pub(super) fn missed_deadline(&self) -> bool {
        self.verdict() != Verdict::Failed && !self.was_offered_again()
    }

    fn unanswered(&self) -> usize {
        self.votes
            .iter()
            .filter(|vote| vote.reply.is_none())
            .count()
    }

    fn failed(&self) -> usize {
        self.told()
            .filter(|vote| matches!(vote, Vote::Failed(_)))
            .count()
    }

    /// Whether the party at `votes` nodes, too many for us, may have a majority.
    fn may_hold(&self, votes: usize) -> bool {
        self.may_be_majority(votes, self.unanswered() + self.failed())
    }

    /// Whether a party at `votes` nodes leaves no majority for us, and may have one with `unknown`
    /// more. Of an even number, half is not enough for any party: two that tie must not take each
    /// other for the holder.
    fn may_be_majority(&self, votes: usize, unknown: usize) -> bool {
        votes > self.quorum.tolerated() && votes + unknown >= self.quorum.needed()
    }

    /// Returns the party at most nodes, and their number.
    fn leading_blocker(&self) -> Option<(&Blocker, usize)> {
        let blockers = || self.told().filter_map(Vote::blocker);
        let votes = |own: &Blocker| blockers().filter(|other| other.is_same(own)).count();
        blockers()
            .map(|blocker| (blocker, votes(blocker)))
            .max_by_key(|(_, votes)| *votes)
    }

    fn faults<'a>(&self, name: impl Fn(usize) -> &'a str) -> Faults {
        let mut faults = Faults::default();
        for node in 0..self.votes.len() {
            if let Some(fault) = self.fault(node) {
                faults.push(node, name(node), fault);
            }
        }
        faults
    }

    fn fault(&self, node: usize) -> Option<Fault> {
        if let Some(refusal) = self.refusal(node) {
            return Some(refusal);
        }
        if let Some(restarted) = self.restarted(node) {
            return Some(Fault::new(FaultKind::Unavailable, restarted.to_string()));
        }
        let vote = &self.votes[node];
        match (vote.told(), vote.discounted) {
            (None, _) => self
                .missed_deadline()
                .then(|| Fault::timeout(self.rules.schedule.node_timeout())),
            (Some(Vote::Failed(fault)), _) => Some(fault.clone()),
            (_, Some(Discount::Lost(how))) => {
                Some(Fault::new(FaultKind::Unavailable, how.to_string()))
            }
            (Some(Vote::Granted { .. } | Vote::Blocked(_) | Vote::Restarted), _) => None,
        }
    }

    /// Returns the state of node `node`, if it does not count since it restarted.
    fn restarted(&self, node: usize) -> Option<Restarted> {
        let vote = &self.votes[node];
        let is_young = matches!(vote.told(), Some(Vote::Restarted))
            || vote.discounted == Some(Discount::Restarted);
        is_young.then(|| {
            let (event, remembers) = self
                .identity(node)
                .map_or(("restarted", Duration::ZERO), |it| (it.event, it.remembers));
            Restarted::new(event, remembers, self.guarded_span())
        })
    }
}

impl Ballot {
    /// Returns the fault in the configuration of one node, or of all of them together, and the node
    /// that shows it. Waiting does not mend it.
    pub(super) fn misconfiguration<'a>(
        &self,
        name: &impl Fn(usize) -> &'a str,
    ) -> Option<(usize, Fault)> {
        self.unfit_node()
            .or_else(|| self.shared_server(name))
            .or_else(|| self.met_itself())
    }

    fn unfit_node(&self) -> Option<(usize, Fault)> {
        self.votes
            .iter()
            .enumerate()
            .find_map(|(node, vote)| match vote.told() {
                Some(Vote::Failed(fault))
                    if matches!(fault.kind, FaultKind::Unfit | FaultKind::Short) =>
                {
                    Some((node, fault.clone()))
                }
                Some(reply) => {
                    let why = reply.occupant()?.other_list(self.votes.len())?;
                    Some((node, Fault::new(FaultKind::Unfit, why)))
                }
                None => None,
            })
    }

    fn shared_server<'a>(&self, name: &impl Fn(usize) -> &'a str) -> Option<(usize, Fault)> {
        (0..self.votes.len()).find_map(|node| {
            let own = self.identity(node)?;
            let shares = |earlier| Some((earlier, own.shared_with(self.identity(earlier)?)?));
            let (earlier, how) = (0..node).find_map(shares)?;
            let why = format!("it {how} {}: nodes must be independent", name(earlier));
            Some((node, Fault::new(FaultKind::Unfit, why)))
        })
    }

    /// Finds a server that was named twice where INFO tells nothing, or where one of its names has
    /// not answered yet.
    fn met_itself(&self) -> Option<(usize, Fault)> {
        let is_own = |vote: &Vote| {
            vote.occupant()
                .is_some_and(|occupant| self.is_own(occupant))
        };
        let node = self
            .votes
            .iter()
            .position(|vote| vote.told().is_some_and(is_own))?;
        let why =
            "it has the token that another node was given just now: nodes must be independent";
        Some((node, Fault::new(FaultKind::Unfit, why)))
    }

    /// Whether `occupant` is this attempt itself, at a server that it has met by another name.
    pub(super) fn is_own(&self, occupant: &Occupant) -> bool {
        occupant
            .holder()
            .is_some_and(|(token, _)| token == self.rules.token)
    }
}
