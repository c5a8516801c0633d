//! One attempt to take the lock: ask every node, count the votes, and leave nothing behind if it fails.

mod misconfiguration;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::holding::{Asked, Grant, Holding};
use super::{Nodes, release};
use crate::clock::{self, Alarm};
use crate::lock::ballot::{Ballot, Verdict};
use crate::lock::blocker::Blocker;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::occupant::Occupant;
use crate::lock::queue::QueuePosition;
use crate::lock::quorum::Quorum;
use crate::lock::restart::{self, RestartGuard};
use crate::lock::schedule::Schedule;
use crate::node::{Answer, Claim, Pending, QueueAction, Renewal, ServerInfo, Vote};

/// How long what is decided waits for the other nodes. One of them may refuse us or be no node of its own, and one of
/// them may know the holder, when all that is known is that too few can grant.
const SETTLING: Duration = Duration::from_millis(15);

/// An attempt that is under way. It must be brought to an end: [`Attempt::hold`] or [`Attempt::give_up`].
pub struct Attempt {
    nodes: Nodes,
    claim: Claim,
    schedule: Schedule,
    quorum: Quorum,
    guard: RestartGuard,
    ballot: Ballot,
    replies: FuturesUnordered<Pending<(usize, Reply)>>,
    /// What each node has said so far.
    said: Vec<Option<NodeReply>>,
    /// The nodes that have told us to go since they were asked.
    called: Vec<bool>,
    servers: Vec<ServerInfo>,
    /// Why each node refuses us, if it does: its vote is missing, and does not count as one that may come.
    refusals: Vec<Option<Fault>>,
    places: Vec<Option<QueuePosition>>,
    begun: Instant,
    ends: Instant,
    phase: Phase,
    /// For the holding that may come of it: once the lock is won, nothing must be able to fail.
    alarm: Alarm,
}

enum Reply {
    Answer(Box<Answer>),
    Confirmed(Instant, Renewal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The votes decide.
    Voting,
    /// It is decided but for the confirm round; the rest is waited for until then.
    Settling(Instant),
    /// Those who granted are told the fence.
    Confirming,
}

/// A vote, as far as it matters later.
enum NodeReply {
    Granted,
    Blocked(Blocker),
    Restarted,
    Failed(Fault),
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Tally {
    /// The lock is ours, and long enough to be of use.
    Won(Fence),
    /// Another party has it, or its turn.
    Busy(Box<Blocker>),
    /// No party has it: votes were split among several clients, or one client is at too few nodes.
    Split(Box<Blocker>, Faults),
    /// Too few nodes gave a vote; what those said that did not. `answered`: a majority is there.
    Unreachable {
        /// The nodes that gave no vote.
        faults: Faults,
        /// Whether a majority is there, though it does not count yet.
        answered: bool,
    },
    /// A majority granted, too late for the lease to be of use.
    TooLate,
    /// No time would mend it: the set of nodes cannot hold this lock as configured.
    Unfit(String, Fault),
    /// So many nodes refuse us that the others are no majority; what those said that gave no vote.
    Refused(Faults),
}

impl Attempt {
    /// Asks all nodes at once, with a limit of one node timeout for all. `silent`: the nodes that gave the last attempt no
    /// answer in time, so that nothing is queued behind it.
    pub fn start(
        nodes: &Nodes,
        claim: Claim,
        schedule: Schedule,
        guard: RestartGuard,
        silent: &[bool],
    ) -> std::io::Result<Self> {
        let alarm = Alarm::new()?;
        let quorum = nodes.quorum();
        let begun = clock::now();
        let ask = |index: usize| -> Pending<(usize, Reply)> {
            let answer = nodes[index].acquire(&claim, silent.get(index).copied().unwrap_or_default());
            Box::pin(async move { (index, Reply::Answer(Box::new(answer.await))) })
        };
        Ok(Self {
            nodes: nodes.clone(),
            replies: (0..nodes.len()).map(ask).collect(),
            said: nodes.iter().map(|_| None).collect(),
            called: vec![false; nodes.len()],
            servers: nodes.iter().map(|_| ServerInfo::None).collect(),
            refusals: vec![None; nodes.len()],
            places: nodes.iter().map(|_| None).collect(),
            ballot: Ballot::new(quorum),
            quorum,
            guard,
            begun,
            ends: begun + schedule.node_timeout(),
            phase: Phase::Voting,
            claim,
            schedule,
            alarm,
        })
    }

    /// Counts votes until the outcome is certain. May be dropped and called again.
    pub async fn tally(&mut self) -> Tally {
        while let Some(until) = self.waits_until() {
            let reply = tokio::select! {
                biased;
                reply = self.replies.next() => reply,
                () = self.alarm.reached(until) => None,
            };
            match reply {
                Some((node, reply)) => self.heard(node, reply),
                // Nobody is left to be heard, or the time is over.
                None if self.go_on() => {}
                None => break,
            }
        }
        self.tally_so_far()
    }

    /// Until when more is waited for; `None` if the outcome is certain.
    fn waits_until(&mut self) -> Option<Instant> {
        match (self.ballot.verdict(), self.phase) {
            (Verdict::Open, _) if self.was_offered_again() => None,
            (Verdict::Lost, Phase::Settling(_)) if self.is_undecided_half() => {
                (!self.was_offered_again()).then_some(self.ends)
            }
            (Verdict::Open, _) | (Verdict::Unconfirmed(_), Phase::Confirming) => Some(self.ends),
            (Verdict::Lost, Phase::Voting | Phase::Settling(_)) if self.replies.is_empty() || self.is_decided() => None,
            (Verdict::Won(_) | Verdict::Unconfirmed(_) | Verdict::Lost, Phase::Voting) => {
                let until = self.ends.min(clock::now() + SETTLING);
                self.phase = Phase::Settling(until);
                self.waits_until()
            }
            // All have been heard: a set that is whole is not waited for.
            (Verdict::Won(_), Phase::Settling(_)) if self.replies.is_empty() => None,
            (_, Phase::Settling(until)) => Some(until),
            (Verdict::Won(_) | Verdict::Lost, Phase::Confirming) => None,
        }
    }

    /// The time of this phase is over, or nobody is left to be heard. Whether there is another phase.
    fn go_on(&mut self) -> bool {
        let Phase::Settling(_) = self.phase else { return false };
        let Verdict::Unconfirmed(fence) = self.ballot.verdict() else { return false };
        self.phase = Phase::Confirming;
        self.ends = clock::now() + self.schedule.node_timeout();
        for node in self.ballot.confirm(fence) {
            let asked = clock::now();
            let renewal = self.nodes[node].renew(&self.claim.renewal(fence), false);
            self.replies.push(Box::pin(async move { (node, Reply::Confirmed(asked, renewal.await)) }));
        }
        true
    }

    fn heard(&mut self, node: usize, reply: Reply) {
        let now = clock::now();
        match reply {
            Reply::Answer(answer) => {
                self.refusals[node] = self.refusal(&answer);
                self.servers[node] = answer.server;
                self.places[node] = answer.place;
                self.voted(node, answer.vote, now);
                if self.refusals[node].is_some() {
                    self.ballot.miss(node, None, now);
                }
                self.discount_restarted(now);
            }
            Reply::Confirmed(asked, Renewal::Renewed(until, _)) => self.ballot.confirmed(node, asked, until),
            Reply::Confirmed(_, Renewal::Lost(how, _)) => self.ballot.miss(node, Some(how), now),
            Reply::Confirmed(_, Renewal::Broken(..)) => self.ballot.miss(node, Some(Revoked::TakenOver), now),
            Reply::Confirmed(_, Renewal::Healed(..)) => self.ballot.miss(node, None, now),
            Reply::Confirmed(_, Renewal::Failed(fault)) => {
                self.ballot.miss(node, None, now);
                self.said[node] = Some(NodeReply::Failed(Fault { kind: FaultKind::Unknown, ..fault }));
            }
        }
    }

    fn voted(&mut self, node: usize, vote: Vote, now: Instant) {
        let said = match vote {
            Vote::Granted { until, fence } => {
                self.ballot.grant(node, self.begun, until, fence);
                NodeReply::Granted
            }
            Vote::Held(occupant) => NodeReply::Blocked(Blocker::Occupant(*occupant)),
            Vote::Reserved(reservation) => NodeReply::Blocked(Blocker::Reserved(*reservation)),
            Vote::Restarted => NodeReply::Restarted,
            Vote::Failed(fault) => NodeReply::Failed(fault),
        };
        if !matches!(said, NodeReply::Granted) {
            let is_held = said.occupant().is_some();
            self.ballot.miss(node, is_held.then_some(Revoked::TakenOver), now);
        }
        self.said[node] = Some(said);
    }

    /// A holder that was met may have a longer lease than any that the nodes were asked to allow for.
    fn discount_restarted(&mut self, now: Instant) {
        let least = restart::least_uptime(self.span());
        for node in 0..self.nodes.len() {
            if self.ballot.has_granted(node) && self.uptime(node).is_some_and(|uptime| uptime < least) {
                self.ballot.miss(node, None, now);
            }
        }
    }

    /// M, with what this attempt has seen.
    fn span(&self) -> Duration {
        self.guard.span(self.nodes.len(), self.longest_ttl()).max(self.claim.min_uptime.unwrap_or_default())
    }

    /// The longest lease known: our own, or that of a holder met.
    pub fn longest_ttl(&self) -> Duration {
        let met = self.said.iter().flatten().filter_map(NodeReply::occupant).filter_map(Occupant::lease_length).max();
        met.unwrap_or_default().max(self.claim.term.ttl())
    }

    fn uptime(&self, node: usize) -> Option<u64> {
        if let ServerInfo::Told(identity) = &self.servers[node] { Some(identity.uptime) } else { None }
    }

    /// The tally if no more votes are waited for.
    pub fn tally_so_far(&self) -> Tally {
        if let Some((node, fault)) = self.misconfiguration() {
            return Tally::Unfit(node, fault);
        }
        if self.is_refused() {
            return Tally::Refused(self.faults());
        }
        if let Verdict::Won(fence) = self.ballot.verdict() {
            // The lease counts from before the requests were sent; what is left must be enough to stop the command.
            let deadline = self.ballot.lease().deadline();
            if deadline.is_some_and(|d| clock::now() < self.schedule.signal_at(d)) {
                return Tally::Won(fence);
            }
            return Tally::TooLate;
        }
        let needed = self.quorum.needed();
        let there = self.votes();
        let answered = there >= needed;
        // Whoever was not waited for is not away.
        let unanswered = if self.missed_deadline() { 0 } else { self.unanswered() };
        match self.blocker() {
            Some((blocker, votes)) if self.may_hold(votes) => Tally::Busy(Box::new(blocker.clone())),
            Some((blocker, _)) if there + unanswered >= needed => {
                Tally::Split(Box::new(blocker.clone()), self.faults())
            }
            _ => Tally::Unreachable { faults: self.faults(), answered },
        }
    }

    /// Number of nodes that gave a vote, for us or not.
    pub fn votes(&self) -> usize {
        (0..self.nodes.len()).filter(|node| self.has_voted(*node)).count()
    }

    /// Whether node `node` gave a vote, for us or not.
    pub fn has_voted(&self, node: usize) -> bool {
        self.refusals[node].is_none() && !matches!(self.said[node], None | Some(NodeReply::Failed(_)))
    }

    /// How many nodes have not answered yet.
    fn unanswered(&self) -> usize {
        self.said.iter().filter(|said| said.is_none()).count()
    }

    /// Number of nodes that failed to give a vote.
    fn failed(&self) -> usize {
        self.said.iter().filter(|said| matches!(said, Some(NodeReply::Failed(_)))).count()
    }

    /// Whether it is certain to be busy, or not to be, with what is known of a loss.
    fn is_decided(&self) -> bool {
        let (needed, unanswered) = (self.quorum.needed(), self.unanswered());
        let clear = |(blocker, votes): (&Blocker, usize)| {
            !blocker.occupant().is_some_and(|occupant| self.is_own(occupant))
                && (votes >= needed || votes + unanswered < needed)
        };
        self.blocker().is_some_and(clear)
    }

    /// Whether whoever has so many nodes, too many for us, may have a majority. Of an even number, half is not enough for
    /// anybody: two who tie must not take each other for the holder.
    fn may_hold(&self, votes: usize) -> bool {
        votes > self.quorum.tolerated() && votes + self.unanswered() + self.failed() >= self.quorum.needed()
    }

    /// Whether the occupant of exactly half of the nodes may have the majority at a node that has not answered yet. Two
    /// that tie, each of which took the other for the holder at once, would both give up.
    fn is_undecided_half(&self) -> bool {
        let Some((_, votes)) = self.blocker() else { return false };
        let is_holder_without = votes + self.failed() >= self.quorum.needed();
        self.unanswered() > 0 && self.may_hold(votes) && !is_holder_without
    }

    /// Returns the occupant that a majority of the nodes named.
    pub fn holder(&self) -> Option<&Occupant> {
        self.blocker().filter(|(_, votes)| *votes >= self.quorum.needed()).and_then(|(blocker, _)| blocker.occupant())
    }

    /// Returns the party at most nodes, and their number.
    fn blocker(&self) -> Option<(&Blocker, usize)> {
        let blockers = || self.said.iter().flatten().filter_map(NodeReply::blocker);
        let votes = |own: &Blocker| blockers().filter(|other| other.is_same(own)).count();
        blockers().map(|blocker| (blocker, votes(blocker))).max_by_key(|(_, votes)| *votes)
    }

    /// A node that may not say whether it restarted, and is used all the same; in its words.
    pub fn unguarded(&self) -> Option<(&str, &str)> {
        if self.guard.requires_uptime() {
            return None;
        }
        self.servers.iter().zip(self.nodes.iter()).find_map(|(server, node)| match server {
            ServerInfo::Forbidden(why) if !self.span().is_zero() => Some((node.name(), why.as_str())),
            _ => None,
        })
    }

    fn faults(&self) -> Faults {
        let fault = |node: usize| match &self.said[node] {
            _ if self.refusals[node].is_some() => self.refusals[node].clone(),
            None => self.missed_deadline().then(|| Fault::timeout(self.schedule.node_timeout())),
            Some(NodeReply::Failed(fault)) => Some(fault.clone()),
            Some(NodeReply::Granted) if self.ballot.has_granted(node) => None,
            // Granted, but by a node that turned out to be too young.
            Some(NodeReply::Restarted | NodeReply::Granted) => {
                let why = restart::describe(self.uptime(node).unwrap_or_default(), self.span());
                Some(Fault::new(FaultKind::Unavailable, why))
            }
            Some(NodeReply::Blocked(_)) => None,
        };
        let mut faults = Faults::default();
        for node in 0..self.nodes.len() {
            if let Some(fault) = fault(node) {
                self.nodes.add_fault(&mut faults, node, fault);
            }
        }
        faults
    }

    /// Takes the lock that the tally found won. Nodes that have not answered yet may still.
    pub fn hold(self, fence: Fence) -> Holding {
        let asked = |said: &Option<NodeReply>| match said {
            None => Asked::Open(self.begun),
            Some(_) => Asked::Answered,
        };
        let asked: Vec<Asked> = self.said.iter().map(asked).collect();
        let late = self.replies.into_iter().map(|reply| -> Pending<_> {
            Box::pin(async move {
                match reply.await {
                    (node, Reply::Answer(answer)) => (node, self.begun, answer.vote.into()),
                    (node, Reply::Confirmed(asked, renewal)) => (node, asked, renewal),
                }
            })
        });
        let late = late.collect();
        let grant = Grant { claim: self.claim, schedule: self.schedule, fence, lease: self.ballot.into_lease() };
        Holding::new(self.nodes, grant, self.alarm, &asked, late)
    }

    /// Node `node` has told us to go.
    pub fn called(&mut self, node: usize) {
        self.called[node] = true;
    }

    /// Whether a node that somebody had would grant now. While the votes of others that may hang are waited for, which takes a
    /// node timeout, whoever is behind us would be let pass.
    fn was_offered_again(&self) -> bool {
        self.said.iter().zip(&self.called).any(|(said, called)| *called && matches!(said, Some(NodeReply::Blocked(_))))
    }

    /// Whether a node has granted, and so nobody else got it.
    pub fn has_taken_any(&self) -> bool {
        self.said.iter().any(|said| matches!(said, Some(NodeReply::Granted)))
    }

    /// The nodes that have not answered in time.
    pub fn silent(&self) -> Vec<bool> {
        self.said.iter().map(|said| said.is_none() && self.missed_deadline()).collect()
    }

    /// Whether the votes that are missing were waited for: a node that was not needed to lose is not called silent.
    fn missed_deadline(&self) -> bool {
        self.ballot.verdict() != Verdict::Lost && !self.was_offered_again()
    }

    /// The time that the nodes told, unix time in µs: the median, of two the earlier, so that a minority whose clocks are wrong
    /// puts nobody behind all who come within the next minute.
    pub fn entered(&self) -> Option<u64> {
        let mut times: Vec<u64> = self.places.iter().flatten().map(|place| place.now).collect();
        times.sort_unstable();
        times.get(times.len().checked_sub(1)? / 2).copied()
    }

    /// Our rank among those who wait, where we are furthest ahead.
    pub fn rank(&self) -> Option<u32> {
        self.places.iter().flatten().filter_map(|place| place.rank).min()
    }

    /// A node that does not let us wait in its queue, and why.
    pub fn unqueued(&self) -> Option<(&str, &str)> {
        self.places
            .iter()
            .zip(self.nodes.iter())
            .find_map(|(place, node)| Some((node.name(), place.as_ref()?.refused.as_deref()?)))
    }

    /// Undoes what may have been done: every node that granted, or that may yet, is sent a release behind its SET.
    /// `leaves`: our place in the queues is given up too.
    pub async fn give_up(self, leaves: bool) {
        let (key, token, ticket) = (&self.claim.key, self.claim.token, self.claim.ticket.as_ref());
        if let Some(ticket) = ticket.filter(|_| leaves) {
            return super::leave(&self.nodes, key, token, &ticket.waiter).await;
        }
        let touched = |said: &Option<NodeReply>| match said {
            None | Some(NodeReply::Granted) => true,
            Some(NodeReply::Failed(fault)) => fault.kind == FaultKind::Unknown,
            Some(NodeReply::Blocked(_) | NodeReply::Restarted) => false,
        };
        let which: Vec<usize> = (0..self.nodes.len()).filter(|&index| touched(&self.said[index])).collect();
        if !which.is_empty() {
            let queue = ticket.cloned().map_or(QueueAction::None, QueueAction::Keep);
            release(&self.nodes, &which, &self.claim.release(queue), super::STRAGGLERS).await;
        }
    }
}

impl NodeReply {
    fn blocker(&self) -> Option<&Blocker> {
        if let Self::Blocked(blocker) = self { Some(blocker) } else { None }
    }

    fn occupant(&self) -> Option<&Occupant> {
        self.blocker().and_then(Blocker::occupant)
    }
}

/// A vote that comes when the lock is held already: a late grant is as good as a renewal, at the counter that it raised.
impl From<Vote> for Renewal {
    fn from(vote: Vote) -> Self {
        match vote {
            Vote::Granted { until, fence } => Self::Renewed(until, Some(fence.get())),
            Vote::Held(_) => Self::Lost(Revoked::TakenOver, None),
            Vote::Reserved(_) => Self::Lost(Revoked::Missing, None),
            Vote::Restarted => Self::Failed(Fault::new(FaultKind::Unavailable, "it restarted a short while ago")),
            Vote::Failed(fault) => Self::Failed(fault),
        }
    }
}
