//! A lock that is held: renewed in time, mended when a connection breaks, given back at the end.
//!
//! [`Holding::next`] is polled beside the command. It says what the lease has become; what that means for the command
//! is `job::policy`'s decision.

use std::os::fd::RawFd;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{Nodes, Released, release};
use crate::clock::{self, Alarm};
use crate::lock::backoff;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::{Lease, Loss, Struck};
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::node::{Claim, Fault, Pending, Renewal};

/// A held lock.
pub struct Holding {
    nodes: Nodes,
    claim: Claim,
    fence: Fence,
    lease: Lease,
    upkeep: Vec<Upkeep>,
    replies: FuturesUnordered<Pending<(usize, Instant, Renewal)>>,
    alarm: Alarm,
    stage: Stage,
    /// When the stage was begun: what was asked before says nothing of it.
    begun: Instant,
}

/// One node's renewals.
struct Upkeep {
    /// When to ask next, or when the exchange under way counts as failed.
    due: Instant,
    /// When the exchange under way was begun.
    asked: Option<Instant>,
    /// The last exchange got no answer in time: the next takes a new connection.
    silent: bool,
    /// The connection that last worked has broken.
    broken: Pending<()>,
}

/// What the exchanges with the nodes are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Keeping the lease.
    Keeping,
    /// The lease is lost and the key was absent: holding the place until the command is dead.
    Shielding,
    /// Others have the lock; there is nothing to keep.
    Over,
}

/// What the lease has become.
#[derive(Debug)]
pub enum Change {
    /// It lasts until then.
    Extended(Instant),
    /// A node failed to renew; the lease still stands.
    Trouble(String, Fault),
    /// It is lost, and that is final.
    Lost(String, Loss),
    /// After a loss: the place is kept until then.
    Shielded(Instant),
    /// After a loss: the place could not be kept.
    Unshielded,
}

impl Holding {
    pub(super) fn new(nodes: Nodes, claim: Claim, fence: Fence, lease: Lease, alarm: Alarm) -> Self {
        // Counted from the request, as the lease is; a lease without an end is looked at in the same rhythm.
        let later = clock::now() + claim.schedule.renew_every();
        let due = lease.deadline().map_or(later, |deadline| claim.schedule.renew_at(deadline).min(later));
        let upkeep =
            nodes.iter().map(|node| Upkeep { due, asked: None, silent: false, broken: node.broken() }).collect();
        Self {
            nodes,
            claim,
            fence,
            lease,
            upkeep,
            replies: FuturesUnordered::new(),
            alarm,
            stage: Stage::Keeping,
            begun: Instant::from_nanos(0),
        }
    }

    /// What proves the lock to be ours.
    pub fn token(&self) -> Token {
        self.claim.token
    }

    /// The holder's number.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The lock itself, where it is a descriptor.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.nodes.iter().find_map(|node| node.descriptor())
    }

    /// D: until when nobody else can hold the lock.
    pub fn deadline(&self) -> Instant {
        self.lease.deadline().unwrap_or(Instant::from_nanos(0))
    }

    /// The next change. May be dropped and called again; requests go on.
    pub async fn next(&mut self) -> Change {
        loop {
            if self.stage == Stage::Over {
                return std::future::pending().await;
            }
            let due = self.upkeep.iter().map(|u| u.due).min().unwrap_or(Instant::NEVER);
            let change = tokio::select! {
                biased;
                Some((node, asked, renewal)) = self.replies.next() => self.heard(node, asked, renewal),
                node = any_broken(&mut self.upkeep) => { self.reconnect(node); None }
                () = self.alarm.reached(due) => self.tick(),
            };
            if let Some(change) = change {
                return change;
            }
        }
    }

    /// Asks the nodes that are due; an exchange that is due has failed.
    fn tick(&mut self) -> Option<Change> {
        let now = clock::now();
        let mut change = None;
        for node in 0..self.nodes.len() {
            if self.upkeep[node].due > now {
                continue;
            }
            if self.upkeep[node].asked.take().is_some() {
                self.upkeep[node].silent = true;
                change = Some(self.failed(node, Fault::timeout(self.claim.schedule.node_timeout())));
            } else {
                self.ask(node, now);
            }
        }
        change
    }

    fn ask(&mut self, node: usize, now: Instant) {
        let upkeep = &mut self.upkeep[node];
        upkeep.asked = Some(now);
        upkeep.due = now + self.claim.schedule.node_timeout();
        let reply = match self.stage {
            Stage::Shielding => self.nodes[node].shield(&self.claim, self.fence),
            _ => self.nodes[node].renew(&self.claim, self.fence, std::mem::take(&mut upkeep.silent)),
        };
        self.replies.push(Box::pin(async move { (node, now, reply.await) }));
    }

    fn heard(&mut self, node: usize, asked: Instant, renewal: Renewal) -> Option<Change> {
        if asked < self.begun {
            return None;
        }
        let timely = self.upkeep[node].asked == Some(asked);
        if timely {
            self.upkeep[node].asked = None;
        }
        match renewal {
            // Even a late one counts: it proves that the tenure was unbroken when the request ran.
            Renewal::Renewed(until) => {
                if timely {
                    self.upkeep[node].due = asked + self.claim.schedule.renew_every();
                    self.upkeep[node].broken = self.nodes[node].broken();
                }
                self.extended(node, until)
            }
            Renewal::Lost(how) => self.struck(node, how),
            Renewal::Failed(fault) if timely => Some(self.failed(node, fault)),
            Renewal::Failed(_) => None,
        }
    }

    fn extended(&mut self, node: usize, until: Instant) -> Option<Change> {
        self.lease.extend(node, until);
        let deadline = self.lease.deadline()?;
        Some(if self.stage == Stage::Shielding { Change::Shielded(deadline) } else { Change::Extended(deadline) })
    }

    fn struck(&mut self, node: usize, how: Struck) -> Option<Change> {
        if self.stage == Stage::Shielding {
            self.stage = Stage::Over;
            return Some(Change::Unshielded);
        }
        self.lease.strike(node, how);
        let loss = self.lease.loss()?;
        match loss {
            Loss::TakenOver => self.stage = Stage::Over,
            Loss::Absent => self.begin_shield(),
        }
        Some(Change::Lost(self.nodes[node].name().to_owned(), loss))
    }

    /// From here on only the place is held: a lease of its own, whose end says how long the command may take to die.
    fn begin_shield(&mut self) {
        let now = clock::now();
        (self.stage, self.begun) = (Stage::Shielding, now);
        self.lease = Lease::new(Quorum::of(self.nodes.len()));
        (0..self.nodes.len()).for_each(|node| self.ask(node, now));
    }

    fn failed(&mut self, node: usize, fault: Fault) -> Change {
        let pause = backoff::retry(self.claim.schedule.retry(), fastrand::f64());
        self.upkeep[node].due = clock::now() + pause;
        self.upkeep[node].broken = Box::pin(std::future::pending());
        Change::Trouble(self.nodes[node].name().to_owned(), fault)
    }

    /// A connection broke: renew at once, so that a server that came back empty is noticed in milliseconds. Not sooner
    /// than a pause after the last exchange, or a peer that closes after each reply would have us spin.
    fn reconnect(&mut self, node: usize) {
        let upkeep = &mut self.upkeep[node];
        upkeep.broken = Box::pin(std::future::pending());
        if upkeep.asked.is_none() {
            let last = upkeep.due.before(self.claim.schedule.renew_every());
            upkeep.due = upkeep.due.min(clock::now().max(last + self.claim.schedule.retry()));
        }
    }

    /// Gives the lock back: compare-and-delete on every node.
    pub async fn release(self) -> Released {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        release(&self.nodes, &all, &self.claim.key, self.claim.token, self.claim.schedule.node_timeout()).await
    }
}

/// The next node whose connection broke.
async fn any_broken(upkeep: &mut [Upkeep]) -> usize {
    std::future::poll_fn(|cx| {
        for (node, upkeep) in upkeep.iter_mut().enumerate() {
            if upkeep.broken.as_mut().poll(cx).is_ready() {
                return std::task::Poll::Ready(node);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
