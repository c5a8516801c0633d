//! A lock that is held: renewed in time, healed where a node has forgotten it, given back at the end.
//!
//! [`Holding::next`] is polled beside the command. It says what the lease has become; what that means for the command
//! is `job::policy`'s decision.

use std::os::fd::RawFd;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{Nodes, ReleaseOutcome, release};
use crate::clock::{self, Alarm};
use crate::lock::backoff;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::{Lease, Loss, Revoked};
use crate::lock::schedule::Schedule;
use crate::lock::token::Token;
use crate::node::{Claim, Counter, Fault, FaultKind, Node, Pending, QueueAction, Renewal};

/// A held lock.
pub struct Holding {
    nodes: Nodes,
    claim: Claim,
    schedule: Schedule,
    fence: Fence,
    lease: Lease,
    upkeep: Vec<Upkeep>,
    replies: Replies,
    alarm: Alarm,
    stage: Stage,
    /// Whether somebody broke the lock: the tombstones are kept until the command is dead.
    broken: bool,
    /// D as it was last told.
    told: Option<Instant>,
}

/// A won attempt.
pub(super) struct Grant {
    pub(super) claim: Claim,
    pub(super) schedule: Schedule,
    pub(super) fence: Fence,
    pub(super) lease: Lease,
}

/// Answers that are under way: of which node, when it was asked, and what it says.
pub(super) type Replies = FuturesUnordered<Pending<(usize, Instant, Renewal)>>;

/// Whether a node has answered the attempt that took the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Answered,
    /// Not yet; it was asked then.
    Open(Instant),
}

/// One node's renewals.
struct Upkeep {
    /// When to ask next, or when the exchange under way counts as failed.
    due: Instant,
    /// When the exchange under way was begun.
    asked: Option<Instant>,
    /// The last exchange got no answer in time: the next takes a new connection.
    silent: bool,
    /// The fence counter, as the node told it when it had no key.
    told: Counter,
    /// Number of exchanges since the last one that served the lease.
    failures: u32,
    /// When the first of these failed without an answer that counts.
    lost_since: Option<Instant>,
    /// What the last of them died of.
    fault: Option<Fault>,
    /// Whether its refusal has been told.
    refusal_told: bool,
    /// The connection that last worked has broken.
    broken: Pending<()>,
}

/// What the exchanges with the nodes are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Keeping the lease.
    Keeping,
    /// The lease is lost and the key was absent: holding the place, since then, until the command is dead.
    Shielding(Instant),
    /// Others have the lock; there is nothing to keep.
    Over,
}

/// What the lease has become.
#[derive(Debug)]
pub enum Change {
    /// It lasts until then: longer than before, or less long, since a node has forgotten it.
    Extended(Instant),
    /// A node failed to renew; the lease still stands.
    Trouble(String, Fault),
    /// The same, because the node refuses us; told once for each node.
    Refused(String, Fault),
    /// It is lost, and that is final.
    Lost(Loss),
    /// After a loss: the place is kept until then.
    Shielded(Instant),
    /// After a loss: the place could not be kept.
    Unshielded,
}

impl Holding {
    pub(super) fn new(nodes: Nodes, grant: Grant, alarm: Alarm, asked: &[Asked], late: Replies) -> Self {
        let Grant { claim, schedule, fence, lease } = grant;
        let now = clock::now();
        // Counted from the request, as the lease is; a lease without an end is looked at in the same rhythm.
        let later = now + schedule.renew_every();
        let rhythm = lease.deadline().map_or(later, |deadline| schedule.renew_at(deadline).min(later));
        let upkeep = (0..nodes.len()).map(|node| {
            let (due, asked) = match asked[node] {
                Asked::Open(asked) => (asked + schedule.node_timeout(), Some(asked)),
                // Not in the way of a command that is short: one vote more is of use to a longer one.
                Asked::Answered if lease.wants_healing(node) => (now + pause(schedule), None),
                Asked::Answered => (rhythm, None),
            };
            let broken = nodes[node].broken();
            Upkeep {
                due,
                asked,
                silent: false,
                told: None,
                failures: 0,
                lost_since: None,
                fault: None,
                refusal_told: false,
                broken,
            }
        });
        let upkeep = upkeep.collect();
        let told = lease.deadline();
        Self {
            nodes,
            claim,
            schedule,
            fence,
            lease,
            upkeep,
            replies: late,
            alarm,
            stage: Stage::Keeping,
            broken: false,
            told,
        }
    }

    /// The caller has been told that the nodes `which` refuse us.
    pub fn has_told_refusals(&mut self, which: &[usize]) {
        for &node in which {
            self.upkeep[node].refusal_told = true;
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

    /// The nodes that fail just now, and why.
    pub fn faults(&self) -> impl Iterator<Item = (&str, &Fault)> {
        self.upkeep.iter().zip(self.nodes.iter()).filter_map(|(u, node)| Some((node.name(), u.fault.as_ref()?)))
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
        for node in 0..self.nodes.len() {
            if self.upkeep[node].due > now {
                continue;
            }
            if self.upkeep[node].asked.is_some() {
                self.upkeep[node].silent = true;
                // The rest is still due when the one who hears of this comes back.
                return Some(self.failed(node, Fault::timeout(self.schedule.node_timeout())));
            }
            self.ask(node, now);
        }
        None
    }

    fn ask(&mut self, node: usize, now: Instant) {
        let upkeep = &mut self.upkeep[node];
        upkeep.asked = Some(now);
        upkeep.due = now + self.schedule.node_timeout();
        let anew = std::mem::take(&mut upkeep.silent);
        let reply = if self.lease.wants_healing(node) || self.stage != Stage::Keeping || self.broken {
            // After the lease nothing is set where another client may have had the lock.
            let told = upkeep.told.filter(|_| self.stage == Stage::Keeping && Some(now) < self.lease.deadline());
            self.nodes[node].heal(&self.claim.healing(self.fence, told), anew)
        } else {
            self.nodes[node].renew(&self.claim.renewal(self.fence), anew)
        };
        self.replies.push(Box::pin(async move { (node, now, reply.await) }));
    }

    fn heard(&mut self, node: usize, asked: Instant, renewal: Renewal) -> Option<Change> {
        if matches!(self.stage, Stage::Shielding(since) if asked < since) {
            return None;
        }
        let timely = self.upkeep[node].asked == Some(asked);
        // A node without a tenure gains one only while nobody else can have had its key, which ends with the lease. It may
        // say "renewed": an earlier healing may have been heard of too late, or never.
        let gains = self.lease.wants_healing(node);
        let too_late = gains && self.stage == Stage::Keeping && clock::now() >= self.deadline();
        match renewal {
            Renewal::Renewed(..) | Renewal::Healed(..) if too_late => {
                timely.then(|| self.failed(node, Fault::new(FaultKind::Unavailable, "it was healed too late")))
            }
            // Even a late one counts: it proves that the tenure was unbroken when the request ran.
            Renewal::Renewed(until, counter) => self.renewed(node, asked, until, counter),
            Renewal::Healed(until, counter) if timely => self.renewed(node, asked, until, counter),
            Renewal::Broken(until, by) => self.was_broken(node, asked, until.filter(|_| !too_late), &by),
            // A refused healing is no news: the counter has moved since it was told.
            Renewal::Lost(Revoked::Missing, counter) if gains && self.stage == Stage::Keeping => {
                self.refused_healing(node, asked, counter);
                None
            }
            Renewal::Lost(how, counter) => self.revoked(node, asked, how, counter),
            Renewal::Failed(fault) if timely => Some(self.failed(node, fault)),
            Renewal::Healed(..) | Renewal::Failed(_) => None,
        }
    }

    /// Node `node` has our key, with a fence counter of `counter` before that. While the lease is to be kept, a node that joins
    /// with a counter above our fence joins unproven, and the others are asked at once for their word.
    fn renewed(&mut self, node: usize, asked: Instant, until: Instant, counter: Counter) -> Option<Change> {
        let is_above = counter.is_none_or(|counter| counter > self.fence.get());
        if is_above && self.stage == Stage::Keeping && self.lease.wants_healing(node) {
            let now = clock::now();
            self.lease.admit(node, asked, until, now);
            for (other, upkeep) in self.upkeep.iter_mut().enumerate() {
                if upkeep.asked.is_none() && self.lease.wants_word_of(other) {
                    upkeep.due = now;
                }
            }
        }
        self.extended(node, asked, until)
    }

    /// Node `node` has no key of ours, and set none because its counter is not the one that the request named. Asked again at
    /// once with the counter that it told; later if that was tried already.
    fn refused_healing(&mut self, node: usize, asked: Instant, counter: Counter) {
        let pause = self.pause_for_another(node);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked != Some(asked) {
            return;
        }
        upkeep.asked = None;
        let is_news = upkeep.told.is_none() && counter.is_some();
        (upkeep.told, upkeep.failures) = (counter, upkeep.failures.saturating_add(1));
        upkeep.due = clock::now() + if is_news { Duration::ZERO } else { pause };
    }

    fn extended(&mut self, node: usize, asked: Instant, until: Instant) -> Option<Change> {
        self.lease.extend(node, asked, until);
        if self.lease.wants_healing(node) {
            return None;
        }
        let wanted = self.lease.wants_word_of(node);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked == Some(asked) {
            upkeep.asked = None;
            upkeep.due = if wanted { clock::now() } else { asked + self.schedule.renew_every() };
            upkeep.broken = self.nodes[node].broken();
        }
        (upkeep.failures, upkeep.lost_since, upkeep.fault, upkeep.told) = (0, None, None, None);
        let deadline = self.changed_deadline()?;
        Some(if self.stage == Stage::Keeping { Change::Extended(deadline) } else { Change::Shielded(deadline) })
    }

    /// Node `node` has a tombstone in the place of our key: it keeps others out as the key did, and is kept for that.
    fn was_broken(&mut self, node: usize, asked: Instant, until: Option<Instant>, by: &str) -> Option<Change> {
        let change = until.and_then(|until| self.extended(node, asked, until));
        let upkeep = &mut self.upkeep[node];
        let first = !std::mem::replace(&mut self.broken, true);
        if until.is_none() && upkeep.asked == Some(asked) {
            upkeep.asked = None;
            upkeep.due = clock::now() + if first { Duration::ZERO } else { pause(self.schedule) };
        }
        upkeep.fault = Some(Fault::new(FaultKind::Unavailable, format!("{by} broke the lock")));
        let news = first && self.stage == Stage::Keeping;
        if news { Some(Change::Lost(Loss::Broken)) } else { change }
    }

    /// D, if it is not what was last told.
    fn changed_deadline(&mut self) -> Option<Instant> {
        let deadline = self.lease.deadline();
        if std::mem::replace(&mut self.told, deadline) == deadline { None } else { deadline }
    }

    fn revoked(&mut self, node: usize, asked: Instant, how: Revoked, counter: Counter) -> Option<Change> {
        let now = clock::now();
        let pause_for_another = self.pause_for_another(node);
        let upkeep = &mut self.upkeep[node];
        if upkeep.asked == Some(asked) {
            upkeep.asked = None;
        }
        upkeep.fault = Some(Fault::new(FaultKind::Unavailable, how.to_string()));
        (upkeep.told, upkeep.failures) = (counter, upkeep.failures.saturating_add(1));
        let news = self.lease.revoked(node) != Some(how);
        self.lease.revoke(node, how, now);
        if self.stage != Stage::Keeping {
            self.upkeep[node].due = now + pause(self.schedule);
            if !self.lease.majority_revoked() {
                return None;
            }
            self.stage = Stage::Over;
            return Some(Change::Unshielded);
        }
        // A node without a key is healed at once. Another's key is mostly that of an attempt which is about to fail.
        self.upkeep[node].due = if how == Revoked::Missing { now } else { now + pause_for_another };
        let Some(loss) = self.lease.loss(now.before(self.schedule.round())) else {
            // What is left of the lease may be shorter than before.
            return self.changed_deadline().map(Change::Extended).or_else(|| news.then(|| self.trouble(node)));
        };
        match loss {
            Loss::TakenOver => self.stage = Stage::Over,
            Loss::Absent | Loss::Broken => self.begin_shield(now),
        }
        Some(Change::Lost(loss))
    }

    fn trouble(&self, node: usize) -> Change {
        let fault = self.upkeep[node].fault.clone();
        let unknown = || Fault::new(FaultKind::Unknown, "no answer");
        Change::Trouble(self.nodes[node].name().to_owned(), fault.unwrap_or_else(unknown))
    }

    /// From here on only the place is held: a lease of its own, whose end says how long the command may take to die.
    fn begin_shield(&mut self, now: Instant) {
        self.stage = Stage::Shielding(now);
        self.lease = Lease::new(self.nodes.quorum());
        self.told = None;
        (0..self.nodes.len()).for_each(|node| self.ask(node, now));
    }

    fn failed(&mut self, node: usize, fault: Fault) -> Change {
        let now = clock::now();
        let upkeep = &mut self.upkeep[node];
        // A node that refuses us is there, and remembers.
        upkeep.lost_since = upkeep.lost_since.or(Some(now)).filter(|_| fault.kind != FaultKind::Refused);
        let pause = self.pause_after_failure(node, now);
        let upkeep = &mut self.upkeep[node];
        upkeep.asked = None;
        upkeep.due = now + pause;
        upkeep.failures = upkeep.failures.saturating_add(1);
        upkeep.broken = Box::pin(std::future::pending());
        let is_news = fault.kind == FaultKind::Refused && !std::mem::replace(&mut upkeep.refusal_told, true);
        upkeep.fault = Some(fault.clone());
        if is_news { Change::Refused(self.nodes[node].name().to_owned(), fault) } else { self.trouble(node) }
    }

    /// Short while the lease needs the node, and for as long as a node that restarts grants nothing. The guard goes by the
    /// server's wall clock, which a step puts forward: the holder then heals the node before others are granted there. Later,
    /// if a majority has renewed without it, longer and longer: a node that is gone for a day must not cost four connections
    /// a second.
    fn pause_after_failure(&self, node: usize, now: Instant) -> Duration {
        let short = pause(self.schedule);
        let (schedule, upkeep) = (self.schedule, &self.upkeep[node]);
        let may_restart =
            upkeep.lost_since.is_some_and(|since| now < since + self.claim.min_uptime.unwrap_or_default());
        let at_ease = self.stage == Stage::Keeping && now < schedule.renew_at(self.deadline());
        if at_ease && !may_restart { backoff::doubled(short, upkeep.failures, schedule.renew_every()) } else { short }
    }

    /// Until a node at which others are is asked again: short at first, longer and longer up to the usual rhythm.
    fn pause_for_another(&self, node: usize) -> Duration {
        backoff::doubled(pause(self.schedule), self.upkeep[node].failures, self.schedule.renew_every())
    }

    /// A connection broke: renew at once, so that a server that came back empty is noticed in milliseconds. Not sooner
    /// than a pause after the last exchange, or a peer that closes after each reply would have us spin.
    fn reconnect(&mut self, node: usize) {
        let upkeep = &mut self.upkeep[node];
        upkeep.broken = Box::pin(std::future::pending());
        if upkeep.asked.is_none() {
            let last = upkeep.due.before(self.schedule.renew_every());
            upkeep.due = upkeep.due.min(clock::now().max(last + self.schedule.retry()));
        }
    }

    /// Removes our queue entry from nodes that gave no vote. `run` does this with its first renewal; `acquire` never renews.
    pub async fn leave_queue(&self) {
        if let Some(ticket) = self.claim.ticket.as_ref().filter(|_| self.nodes.len() > 1) {
            let left = |_, there: &dyn Node| Some(there.leave(&self.claim.key, &ticket.waiter));
            self.nodes.ask(super::STRAGGLERS, left, |_, ()| false).await;
        }
    }

    /// Gives the lock back: compare-and-delete on every node.
    pub async fn release(mut self) -> ReleaseOutcome {
        let begun = clock::now();
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        let limit = self.schedule.node_timeout();
        let waiter = self.claim.ticket.as_ref().map(|ticket| ticket.waiter.clone());
        let request = self.claim.release(waiter.map_or(QueueAction::None, QueueAction::Leave));
        let freed = release(&self.nodes, &all, &request, limit).await;
        if freed.ours >= self.nodes.quorum().needed() {
            return ReleaseOutcome::Ours;
        }
        for (node, how) in &freed.revoked {
            self.lease.revoke(*node, *how, begun);
        }
        match freed.revoked.last() {
            Some((_, how)) if self.deadline() <= begun => ReleaseOutcome::NotOurs(*how),
            _ => ReleaseOutcome::Unconfirmed(freed.faults),
        }
    }
}

/// The pause before a failed exchange is tried again.
fn pause(schedule: Schedule) -> Duration {
    backoff::retry(schedule.retry(), fastrand::f64())
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

#[cfg(test)]
mod tests;
