//! One attempt to take the lock: ask every node, count the votes, and leave nothing behind if it fails.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::holding::Holding;
use super::{Nodes, release};
use crate::clock::{self, Alarm};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Lease;
use crate::lock::occupant::Occupant;
use crate::lock::quorum::Quorum;
use crate::node::{Claim, Fault, FaultKind, Pending, Vote};

/// An attempt that is under way. It must be brought to an end: [`Attempt::hold`] or [`Attempt::give_up`].
pub struct Attempt {
    nodes: Nodes,
    claim: Claim,
    quorum: Quorum,
    lease: Lease,
    votes: FuturesUnordered<Pending<(usize, Vote)>>,
    /// What each node has said so far.
    said: Vec<Option<Said>>,
    ends: Instant,
    /// For the holding that may come of it: once the lock is won, nothing must be able to fail.
    alarm: Alarm,
}

/// A vote, as far as it matters later.
enum Said {
    Granted(Fence),
    Held(Box<Occupant>),
    Failed(Fault),
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Tally {
    /// The lock is ours, and long enough to be of use.
    Won(Fence),
    /// A majority answered, and it is not ours.
    Busy(Box<Occupant>),
    /// No majority answered; the nodes' names and faults.
    Unreachable(Vec<(String, Fault)>),
}

impl Attempt {
    /// Asks all nodes at once, with a limit of one node timeout for all. `anew`: the last attempt got no answer in time, so
    /// do not queue behind it.
    pub fn start(nodes: &Nodes, claim: Claim, anew: bool) -> std::io::Result<Self> {
        let alarm = Alarm::new()?;
        let ends = clock::now() + claim.schedule.node_timeout();
        let quorum = Quorum::of(nodes.len());
        let ask = |index: usize| -> Pending<(usize, Vote)> {
            let vote = nodes[index].acquire(&claim, anew);
            Box::pin(async move { (index, vote.await) })
        };
        Ok(Self {
            nodes: nodes.clone(),
            votes: (0..nodes.len()).map(ask).collect(),
            said: nodes.iter().map(|_| None).collect(),
            lease: Lease::new(quorum),
            quorum,
            claim,
            ends,
            alarm,
        })
    }

    /// Counts votes until the outcome is certain. May be dropped and called again.
    pub async fn tally(&mut self) -> Tally {
        while !self.is_certain() {
            let Some(Some((index, vote))) = clock::until(self.ends, self.votes.next()).await else { break };
            self.said[index] = Some(match vote {
                Vote::Granted { until, fence } => {
                    self.lease.extend(index, until);
                    Said::Granted(fence)
                }
                Vote::Held(occupant) => Said::Held(occupant),
                Vote::Failed(fault) => Said::Failed(fault),
            });
        }
        self.found_so_far()
    }

    fn count(&self, wanted: fn(&Said) -> bool) -> usize {
        self.said.iter().flatten().filter(|said| wanted(said)).count()
    }

    fn granted(&self) -> usize {
        self.count(|said| matches!(said, Said::Granted(_)))
    }

    fn is_certain(&self) -> bool {
        let open = self.said.iter().filter(|said| said.is_none()).count();
        self.granted() >= self.quorum.needed() || self.granted() + open < self.quorum.needed()
    }

    /// The tally if no more votes are waited for.
    pub fn found_so_far(&self) -> Tally {
        if self.granted() >= self.quorum.needed() {
            // The lease counts from before the requests were sent; what is left must be enough to stop the command.
            let in_time = self.lease.deadline().is_some_and(|d| clock::now() < self.claim.schedule.signal_at(d));
            let fence = self.said.iter().flatten().filter_map(Said::fence).max();
            return match fence {
                Some(fence) if in_time => Tally::Won(fence),
                _ => Tally::Unreachable(vec![(
                    self.nodes[0].name().to_owned(),
                    Fault::new(FaultKind::Unknown, "the grant came too late to be of use"),
                )]),
            };
        }
        let answered = self.count(|said| !matches!(said, Said::Failed(_)));
        let occupant = self.said.iter().flatten().find_map(Said::occupant);
        match occupant {
            Some(occupant) if answered >= self.quorum.needed() => Tally::Busy(Box::new(occupant.clone())),
            _ => Tally::Unreachable(self.faults()),
        }
    }

    fn faults(&self) -> Vec<(String, Fault)> {
        let timeout = || Some(Fault::timeout(self.claim.schedule.node_timeout()));
        let fault = |said: &Option<Said>| said.as_ref().map_or_else(timeout, Said::fault);
        self.said.iter().zip(self.nodes.iter()).filter_map(|(s, n)| Some((n.name().to_owned(), fault(s)?))).collect()
    }

    /// Takes the lock that the tally found won.
    pub fn hold(self, fence: Fence) -> Holding {
        Holding::new(self.nodes, self.claim, fence, self.lease, self.alarm)
    }

    /// Whether a node has not answered in time.
    pub fn met_silence(&self) -> bool {
        self.said.iter().any(Option::is_none)
    }

    /// Undoes what may have been done: every node that granted, or that may yet, is sent a release behind its SET.
    pub async fn give_up(self) {
        let touched = |said: &Option<Said>| match said {
            None | Some(Said::Granted(_)) => true,
            Some(Said::Failed(fault)) => fault.kind == FaultKind::Unknown,
            Some(Said::Held(_)) => false,
        };
        let which: Vec<usize> = (0..self.nodes.len()).filter(|&index| touched(&self.said[index])).collect();
        if !which.is_empty() {
            let limit = self.claim.schedule.node_timeout().min(super::STRAGGLERS);
            release(&self.nodes, &which, &self.claim.key, self.claim.token, limit).await;
        }
    }
}

impl Said {
    fn fence(&self) -> Option<Fence> {
        if let Self::Granted(fence) = self { Some(*fence) } else { None }
    }

    fn occupant(&self) -> Option<&Occupant> {
        if let Self::Held(occupant) = self { Some(occupant) } else { None }
    }

    fn fault(&self) -> Option<Fault> {
        if let Self::Failed(fault) = self { Some(fault.clone()) } else { None }
    }
}
