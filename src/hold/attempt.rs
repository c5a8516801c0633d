//! One attempt to take the lock: ask every node, count the votes, and leave nothing behind if it
//! fails.
//!
//! The rules are [`Ballot`]'s. Here requests go out, replies come in, and the clock is read.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::holding::{Holding, WonAttempt};
use super::{Nodes, release};
use crate::clock::{self, Alarm};
use crate::lock::ballot::{self, Ballot, Discount, Tally, Verdict};
use crate::lock::blocker::Blocker;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::queue::Ticket;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::Schedule;
use crate::lock::waiting::Tried;
use crate::store::{Answer, Claim, Pending, Queue, QueueAction, Renewal, Vote, Wakes};

/// Time that the remaining nodes have once the outcome is certain: they may report a refusal, a
/// duplicate server, or the current holder.
const SETTLING: Duration = Duration::from_millis(15);

/// An attempt that is under way. It must be brought to an end: [`Attempt::hold`],
/// [`Attempt::undo`], or the release of its claim.
pub struct Attempt {
    nodes: Nodes,
    claim: Claim,
    schedule: Schedule,
    ballot: Ballot,
    replies: FuturesUnordered<Pending<(usize, Reply)>>,
    begun: Instant,
    ends: Instant,
    phase: AttemptPhase,
    /// Made first, and passed on to the holding: once the lock is won, nothing may fail.
    alarm: Alarm,
}

enum Reply {
    Answer(Instant, Box<Answer>),
    Confirmed(Instant, Renewal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AttemptPhase {
    /// The votes decide.
    Voting,
    /// The outcome is certain but for the confirm round. The remaining nodes are waited for until
    /// then.
    Settling(Instant),
    /// The nodes that granted are told the fence.
    Confirming,
}

impl Attempt {
    /// Asks all nodes at once, with a limit of one node timeout for all.
    pub fn start(
        nodes: &Nodes,
        claim: Claim,
        schedule: Schedule,
        guard: RestartGuard,
    ) -> std::io::Result<Self> {
        let alarm = Alarm::new()?;
        let begun = clock::now();
        let ask = |index: usize| -> Pending<(usize, Reply)> {
            let answer = nodes[index].acquire(&claim);
            Box::pin(async move { (index, Reply::Answer(begun, Box::new(answer.await))) })
        };
        let guarded = claim.guarded.unwrap_or_default();
        let terms = ballot::Rules {
            token: claim.token,
            schedule,
            guard,
            guarded,
        };
        Ok(Self {
            nodes: nodes.clone(),
            replies: (0..nodes.len()).map(ask).collect(),
            ballot: Ballot::new(nodes.quorum(), terms),
            begun,
            ends: begun + schedule.node_timeout(),
            phase: AttemptPhase::Voting,
            claim,
            schedule,
            alarm,
        })
    }

    /// Returns the book of the votes so far.
    pub fn ballot(&self) -> &Ballot {
        &self.ballot
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
                // Every node has answered, or the time is over.
                None if self.go_on() => {}
                None => break,
            }
        }
        self.tally_so_far()
    }

    /// Returns the outcome of the votes so far, as if no other came.
    pub fn tally_so_far(&self) -> Tally {
        self.ballot
            .tally(clock::now(), |node| self.nodes[node].name())
    }

    /// Returns the time until which more votes are waited for; `None` if the outcome is certain.
    fn waits_until(&mut self) -> Option<Instant> {
        let ballot = &self.ballot;
        match (ballot.verdict(), self.phase) {
            (Verdict::Open, _) if ballot.was_offered_again() => None,
            (Verdict::Failed, AttemptPhase::Settling(_)) if ballot.is_undecided() => {
                (!ballot.was_offered_again()).then_some(self.ends)
            }
            (Verdict::Open, _) | (Verdict::Unconfirmed(_), AttemptPhase::Confirming) => {
                Some(self.ends)
            }
            (Verdict::Failed, AttemptPhase::Voting | AttemptPhase::Settling(_))
                if self.replies.is_empty() || ballot.is_decided() =>
            {
                None
            }
            (
                Verdict::Won(_) | Verdict::Misaligned | Verdict::Unconfirmed(_) | Verdict::Failed,
                AttemptPhase::Voting,
            ) => {
                self.phase = AttemptPhase::Settling(self.ends.min(clock::now() + SETTLING));
                self.waits_until()
            }
            // Every node has answered: a healthy set is not waited for.
            (Verdict::Won(_), AttemptPhase::Settling(_)) if self.replies.is_empty() => None,
            (_, AttemptPhase::Settling(until)) => Some(until),
            (Verdict::Won(_) | Verdict::Misaligned | Verdict::Failed, AttemptPhase::Confirming) => {
                None
            }
        }
    }

    /// Begins the next phase, if there is one. The time of this one is over, or every node has
    /// answered.
    fn go_on(&mut self) -> bool {
        let AttemptPhase::Settling(_) = self.phase else {
            return false;
        };
        let (fence, now) = match self.ballot.verdict() {
            Verdict::Misaligned => return self.align(),
            Verdict::Unconfirmed(fence) => (fence, clock::now()),
            _ => return false,
        };
        self.phase = AttemptPhase::Confirming;
        self.ends = now + self.schedule.node_timeout();
        self.claim.index = self.ballot.index();
        for node in self.ballot.confirm(fence) {
            let asked = clock::now();
            let renewal = self.nodes[node].keep(&self.claim.confirmation(fence));
            self.replies.push(Box::pin(async move {
                (node, Reply::Confirmed(asked, renewal.await))
            }));
        }
        true
    }

    /// Asks nodes that gave another slot for the one with the most votes. Returns whether there are
    /// slots at all.
    fn align(&mut self) -> bool {
        let Some(slots) = self.claim.details.mode.number() else {
            return false;
        };
        let (index, nodes) = self.ballot.align(self.claim.index, slots);
        (self.claim.index, self.claim.is_exact) = (index, true);
        self.phase = AttemptPhase::Voting;
        let asked = clock::now();
        self.ends = asked + self.schedule.node_timeout();
        for node in nodes {
            let answer = self.nodes[node].acquire(&self.claim);
            self.replies.push(Box::pin(async move {
                (node, Reply::Answer(asked, Box::new(answer.await)))
            }));
        }
        true
    }

    fn heard(&mut self, node: usize, reply: Reply) {
        let now = clock::now();
        match reply {
            Reply::Answer(asked, answer) => {
                self.ballot.answered(node, asked, *answer, now);
            }
            Reply::Confirmed(asked, Renewal::Renewed(until, _)) => {
                self.ballot.confirmed(node, asked, until);
            }
            Reply::Confirmed(_, Renewal::NotOurs(how, ..)) => {
                self.ballot.discount(node, Discount::Lost(how), now);
            }
            Reply::Confirmed(_, Renewal::Broken(..)) => {
                self.ballot
                    .discount(node, Discount::Lost(Revoked::TakenOver), now);
            }
            Reply::Confirmed(_, Renewal::Healed(..)) => {
                self.ballot.discount(node, Discount::Unconfirmed, now);
            }
            Reply::Confirmed(_, Renewal::Failed(fault)) => {
                self.ballot.failed_to_confirm(node, fault);
            }
        }
    }

    /// Node `node` has offered us the turn.
    pub fn offered(&mut self, node: usize) {
        self.ballot.offered(node);
    }

    /// Takes the lock that the tally found won. Nodes that have not answered yet may still grant
    /// it.
    pub fn hold(mut self, fence: Fence) -> Holding {
        let index = self.ballot.index();
        self.claim.index = index;
        let is_open = |node| (!self.ballot.has_answered(node)).then_some(self.begun);
        let open: Vec<Option<Instant>> = (0..self.nodes.len()).map(is_open).collect();
        let replies = self.replies.into_iter().map(|reply| -> Pending<_> {
            Box::pin(async move {
                match reply.await {
                    (node, Reply::Answer(asked, answer)) => (node, asked, late(answer.vote, index)),
                    (node, Reply::Confirmed(asked, renewal)) => (node, asked, renewal),
                }
            })
        });
        let grant = WonAttempt {
            claim: self.claim,
            schedule: self.schedule,
            fence,
            lease: self.ballot.lease(),
        };
        Holding::new(self.nodes, grant, self.alarm, &open, replies.collect())
    }

    /// Returns the result of the attempt, which has come to `tally`. `is_complete`: it was not cut
    /// short.
    pub fn tried(&self, tally: Tally, is_complete: bool) -> Tried {
        let (ballot, name) = (&self.ballot, |node: usize| {
            self.nodes[node].name().to_owned()
        });
        let mut refusals = Faults::default();
        ballot
            .refusals()
            .for_each(|(node, fault)| self.nodes.add_fault(&mut refusals, node, fault));
        let wakes = |node: usize| self.nodes[node].queue().map(Queue::wakes);
        let denies_wakeups =
            |node: &usize| ballot.has_voted(*node) && wakes(*node) == Some(Wakes::Denied);
        Tried {
            tally,
            is_complete,
            by_majority: ballot.holder().is_some(),
            voted: ballot.votes(),
            counts_in: ballot.counts_in(),
            has_taken_any: ballot.has_taken_any(),
            entered: ballot.queue_entry_time(),
            rank: ballot.rank(),
            longest_ttl: ballot.longest_ttl(),
            refusals,
            unguarded: ballot
                .unguarded()
                .map(|(node, why)| (name(node), why.to_owned())),
            no_queue: ballot
                .unqueued()
                .map(|(node, why)| (name(node), why.to_owned())),
            no_wakeups: (0..self.nodes.len()).find(denies_wakeups).map(name),
        }
    }

    /// Ends the waiters with `--supersede` that came before `ticket`, the place that this attempt
    /// would have had in the queue. The request is on its way to each node; a majority's replies
    /// are waited for, not for long.
    pub async fn announce(&self, ticket: Ticket) {
        let claim = Claim {
            ticket: Some(ticket),
            ..self.claim.clone()
        };
        let (mut heard, needed) = (0, self.nodes.quorum().needed());
        let replies = self.nodes.ask(
            super::STRAGGLERS,
            |_, there| Some(there.queue()?.announce(&claim)),
            |_, ()| {
                heard += 1;
                Ok(heard >= needed)
            },
        );
        replies.await;
    }

    /// Sends a release to every node that granted, or that may yet, behind its SET. The waiter
    /// keeps its place in the queues.
    pub async fn undo(&self) {
        let which = self.ballot.may_have_set();
        if !which.is_empty() {
            let queue = self
                .claim
                .ticket
                .clone()
                .map_or(QueueAction::None, QueueAction::Keep);
            release(
                &self.nodes,
                &which,
                &self.claim.release(queue),
                super::STRAGGLERS,
            )
            .await;
        }
    }
}

/// Returns what a vote means that comes when the lock is held already, in slot `index`. A late
/// grant is as good as a renewal that found the counter it raised; one of another slot is to be
/// moved.
fn late(vote: Vote, index: u16) -> Renewal {
    match vote {
        Vote::Granted {
            fence,
            index: other,
            ..
        } if other != index => Renewal::NotOurs(Revoked::Missing, Some(fence.get()), None),
        Vote::Granted { until, fence, .. } => Renewal::Renewed(until, Some(fence.get())),
        Vote::Blocked(Blocker::Occupant(_)) => Renewal::NotOurs(Revoked::TakenOver, None, None),
        Vote::Blocked(Blocker::Reserved(_) | Blocker::Newer(_)) => {
            Renewal::NotOurs(Revoked::Missing, None, None)
        }
        Vote::Restarted => Renewal::Failed(Fault::new(
            FaultKind::Unavailable,
            "it restarted a short while ago",
        )),
        Vote::Failed(fault) => Renewal::Failed(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_grant_of_another_slot_is_no_renewal() {
        let (until, fence) = (Instant::from_nanos(9), Fence::FIRST);
        let granted = |index| Vote::Granted {
            until,
            fence,
            index,
        };
        assert!(matches!(late(granted(2), 2), Renewal::Renewed(..)));
        assert!(matches!(
            late(granted(1), 2),
            Renewal::NotOurs(Revoked::Missing, Some(_), _)
        ));
    }
}
