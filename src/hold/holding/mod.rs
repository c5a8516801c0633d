//! A lock that is held: renewed in time, healed where a node has forgotten it, given back at the
//! end.
//!
//! [`Holding::next`] is polled beside the command. It says what the lease has become; `job::policy`
//! decides what that means for the command. The file `upkeep.rs` keeps each node's renewals, and
//! `losing.rs` hears of nodes that lost ours, up to the loss of the lock.
//!
//! `--once` asks while the lock is held whether a run has succeeded under it already:
//! [`Holding::run_before`]. A success is written on each node that its release reaches. If those
//! are a majority, one of them is among any majority that grants the lock afterwards. So one node
//! that knows it is enough to skip the command, and a majority without one to run it.

mod losing;
#[cfg(test)]
mod tests;
mod upkeep;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use super::observe::observe;
use super::outside::take_away;
use super::{Hints, Nodes, ReleaseCount, ReleaseOutcome, release, settle};
use crate::clock::{self, Alarm};
use crate::lock::census::Success;
use crate::lock::details::Breaker;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::last::Entry;
use crate::lock::lease::{Lease, LeaseChange, Revoked};
use crate::lock::remains::Remains;
use crate::lock::schedule::Schedule;
use crate::lock::token::Token;
use crate::store::{Claim, Look, Node, Pending, QueueAction, Release, Renewal, TakeAway};
use upkeep::Upkeep;

/// Time after which a holder listens to the nodes, so that `rlock break` reaches it at once. It
/// needs another connection to each.
const LISTENS_AFTER: Duration = Duration::from_secs(1);

/// A held lock.
pub struct Holding {
    nodes: Nodes,
    claim: Claim,
    schedule: Schedule,
    fence: Fence,
    lease: Lease,
    upkeep: Vec<Upkeep>,
    replies: Replies,
    hints: Hints,
    alarm: Alarm,
    stage: Stage,
    /// When the current stage began: replies to earlier requests say nothing about its lease.
    since: Instant,
    /// The user that broke the lock, if one did. The tombstones are kept until the command is dead.
    broken: Option<Breaker>,
    /// D as the caller was last told.
    told_deadline: Option<Instant>,
    /// D of which the caller was told that no renewal extends it.
    told_failing: Option<Instant>,
    /// When to begin to listen; `None` once it does. A shorter run is spared the connection that
    /// can be told something.
    listens_at: Option<Instant>,
}

/// A won attempt.
pub(super) struct WonAttempt {
    pub(super) claim: Claim,
    pub(super) schedule: Schedule,
    pub(super) fence: Fence,
    pub(super) lease: Lease,
}

/// Replies that are under way: the node, when it was asked, and its reply.
pub(super) type Replies = FuturesUnordered<Pending<(usize, Instant, Renewal)>>;

/// The purpose of the exchanges with the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Keeping the lease.
    Keeping,
    /// The lease was lost, and no other client is known to have the lock. The key is a shield until
    /// the command is dead.
    Shielding,
    /// Others have the lock; there is nothing to keep.
    Over,
}

/// News of a lock that is held.
#[derive(Debug)]
pub enum Change {
    /// Its lease has changed.
    Lease(LeaseChange),
    /// The named node failed to renew. The lease still stands.
    Trouble(String, Fault),
    /// The same, because the node refuses us; told once for each node.
    Refused(String, Fault),
    /// No majority has renewed it for this time, as a majority fails. It is lost after that time
    /// unless one does. Told once for each renewal that is missed.
    Failing {
        since: Duration,
        left: Duration,
        why: String,
    },
}

impl Holding {
    /// A lock that was won just now. `open`: for each node that has not answered the attempt yet,
    /// when it was asked; its reply is among those of `late`.
    pub(super) fn new(
        nodes: Nodes,
        grant: WonAttempt,
        alarm: Alarm,
        open: &[Option<Instant>],
        late: Replies,
    ) -> Self {
        let WonAttempt {
            claim,
            schedule,
            fence,
            lease,
        } = grant;
        let now = clock::now();
        // Counted from the request, as the lease is. A lease without an end is checked in the same
        // rhythm.
        let later = now + schedule.renew_every();
        let rhythm = lease
            .deadline()
            .map_or(later, |deadline| schedule.renew_at(deadline).min(later));
        let upkeep = (0..nodes.len()).map(|node| {
            let (due, asked) = match open[node] {
                Some(asked) => (asked + schedule.node_timeout(), Some(asked)),
                // Later, so that a short command is not delayed. One vote more is of use to a
                // longer one.
                None if lease.wants_healing(node) => (now + upkeep::pause(schedule), None),
                None => (rhythm, None),
            };
            Upkeep::new(due, asked)
        });
        let upkeep = upkeep.collect();
        let told_deadline = lease.deadline();
        let (replies, stage, since) = (late, Stage::Keeping, Instant::from_nanos(0));
        Self {
            hints: Hints::new(&nodes),
            nodes,
            claim,
            schedule,
            fence,
            lease,
            upkeep,
            replies,
            alarm,
            stage,
            since,
            broken: None,
            told_deadline,
            told_failing: None,
            listens_at: Some(now + LISTENS_AFTER),
        }
    }

    /// Records that the caller knows that the nodes `which` refuse us.
    pub fn has_told_refusals(&mut self, which: &[usize]) {
        for &node in which {
            self.upkeep[node].refusal_told = true;
        }
    }

    /// Returns the holder's proof.
    pub fn token(&self) -> Token {
        self.claim.token
    }

    /// Returns the holder's fence.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns the number of the holder's slot, if the lock has slots.
    pub fn slot(&self) -> Option<u16> {
        self.claim.details.mode.number().map(|_| self.claim.index)
    }

    /// Returns the open files that are the lock, where there are any.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.nodes
            .iter()
            .flat_map(|node| node.descriptors())
            .collect()
    }

    /// Returns D: until then no other client can hold the lock.
    pub fn deadline(&self) -> Instant {
        self.lease.deadline().unwrap_or(Instant::from_nanos(0))
    }

    /// Returns the nodes that fail just now, and why.
    pub fn faults(&self) -> impl Iterator<Item = (&str, &Fault)> {
        self.upkeep
            .iter()
            .zip(self.nodes.iter())
            .filter_map(|(u, node)| Some((node.name(), u.fault.as_ref()?)))
    }

    /// Returns the next change. May be dropped and called again; requests go on.
    pub async fn next(&mut self) -> Change {
        loop {
            if self.stage == Stage::Over {
                return std::future::pending().await;
            }
            let due = self
                .upkeep
                .iter()
                .map(|u| u.due)
                .min()
                .unwrap_or(Instant::NEVER);
            let due = due.min(self.listens_at.unwrap_or(Instant::NEVER));
            let change = tokio::select! {
                biased;
                Some((node, asked, renewal)) = self.replies.next() => self.heard(node, asked, renewal),
                (node, _) = self.hints.next() => { self.renew_soon(node); None }
                () = self.alarm.reached(due) => self.tick(),
            };
            if let Some(change) = change {
                return change;
            }
        }
    }

    /// Asks the nodes that are due. An exchange that is due has failed.
    fn tick(&mut self) -> Option<Change> {
        let now = clock::now();
        if self.listens_at.is_some_and(|at| at <= now) {
            self.listen();
        }
        for node in 0..self.nodes.len() {
            if self.upkeep[node].due > now {
                continue;
            }
            if self.upkeep[node].asked.is_some() {
                // The other nodes are still due when the caller comes back.
                return Some(self.failed(node, Fault::timeout(self.schedule.node_timeout())));
            }
            self.ask(node, now);
        }
        None
    }

    fn ask(&mut self, node: usize, now: Instant) {
        let upkeep = &mut self.upkeep[node];
        (upkeep.asked, upkeep.asked_last, upkeep.hinted_meanwhile) = (Some(now), now, false);
        upkeep.due = now + self.schedule.node_timeout();
        let keep = if self.lease.wants_healing(node)
            || self.stage != Stage::Keeping
            || self.broken.is_some()
        {
            // After the lease nothing is set where another client may have had the lock.
            let told = upkeep
                .told_counter
                .filter(|_| self.stage == Stage::Keeping && Some(now) < self.lease.deadline());
            self.claim.healing(self.fence, told)
        } else {
            self.claim.renewal(self.fence)
        };
        let reply = self.nodes[node].keep(&keep);
        self.replies
            .push(Box::pin(async move { (node, now, reply.await) }));
    }

    fn heard(&mut self, node: usize, asked: Instant, renewal: Renewal) -> Option<Change> {
        if asked < self.since {
            return None;
        }
        let timely = self.upkeep[node].asked == Some(asked);
        // A node without a tenure gains one only while no other client can have had its key, which
        // ends with the lease. It may say "renewed": an earlier healing may have been heard of too
        // late, or never.
        let gains = self.lease.wants_healing(node);
        let too_late = gains && self.stage == Stage::Keeping && clock::now() >= self.deadline();
        match renewal {
            Renewal::Renewed(..) | Renewal::Healed(..) if too_late => {
                let fault = Fault::new(FaultKind::Unavailable, "it was healed too late");
                timely.then(|| self.failed(node, fault))
            }
            // Even a late one counts: it proves that the tenure was unbroken when the request ran.
            Renewal::Renewed(until, counter) => self.renewed(node, asked, until, counter),
            Renewal::Healed(until, counter) if timely => self.renewed(node, asked, until, counter),
            Renewal::Broken(until, by) => {
                self.was_broken(node, asked, until.filter(|_| !too_late), by)
            }
            // A refused healing is no news: the counter has moved since it was told.
            Renewal::NotOurs(Revoked::Missing, counter, _)
                if gains && self.stage == Stage::Keeping =>
            {
                self.refused_healing(node, asked, counter);
                None
            }
            Renewal::NotOurs(how, counter, left) => self.revoked(node, asked, how, counter, left),
            Renewal::Failed(fault) if timely => Some(self.failed(node, fault)),
            Renewal::Healed(..) | Renewal::Failed(_) => None,
        }
    }

    /// Returns D, if it is not what the caller was last told.
    fn changed_deadline(&mut self) -> Option<Instant> {
        let deadline = self.lease.deadline();
        if std::mem::replace(&mut self.told_deadline, deadline) == deadline {
            None
        } else {
            deadline
        }
    }

    fn trouble(&self, node: usize) -> Change {
        let fault = self.upkeep[node].fault.clone();
        let unknown = || Fault::new(FaultKind::Unknown, "no answer");
        Change::Trouble(
            self.nodes[node].name().to_owned(),
            fault.unwrap_or_else(unknown),
        )
    }

    fn failed(&mut self, node: usize, fault: Fault) -> Change {
        let now = clock::now();
        let upkeep = &mut self.upkeep[node];
        // A node that refuses us is there, and remembers.
        upkeep.lost_since = upkeep
            .lost_since
            .or(Some(now))
            .filter(|_| fault.kind != FaultKind::Refused);
        let pause = self.pause_after_failure(node, now);
        let upkeep = &mut self.upkeep[node];
        upkeep.asked = None;
        upkeep.due = now + pause;
        upkeep.failures = upkeep.failures.saturating_add(1);
        let is_news =
            fault.kind == FaultKind::Refused && !std::mem::replace(&mut upkeep.refusal_told, true);
        upkeep.fault = Some(fault.clone());
        if is_news {
            return Change::Refused(self.nodes[node].name().to_owned(), fault);
        }
        self.failing(now).unwrap_or_else(|| self.trouble(node))
    }

    /// Returns the news that no majority has renewed the lock for a round, though it was due.
    fn failing(&mut self, now: Instant) -> Option<Change> {
        let deadline = self.lease.deadline()?;
        let due = self.schedule.renew_at(deadline);
        let is_late = self.stage == Stage::Keeping && now >= due + self.schedule.round();
        if !is_late || self.told_failing.replace(deadline) == Some(deadline) {
            return None;
        }
        let faults = self
            .faults()
            .map(|(node, fault)| format!("{node}: {fault}"));
        Some(Change::Failing {
            why: faults.collect::<Vec<_>>().join("; "),
            since: now.since(due),
            left: self.schedule.signal_at(deadline).since(now),
        })
    }

    /// Asks the nodes for a success under the lock no older than `within`. Asks until so little of
    /// the lease is left that it must be renewed.
    ///
    /// Returns the run that has succeeded, if one has; or the nodes that failed, if too few have
    /// told. *Unknown is not no.*
    pub async fn run_before(
        &self,
        within: Duration,
    ) -> io::Result<Result<Option<Box<Entry>>, Faults>> {
        let (token, schedule) = (self.claim.token, self.schedule);
        let mut alarm = Alarm::new()?;
        loop {
            let wanted = Look::of(token);
            let looks = observe(&self.nodes, schedule.node_timeout(), wanted, |census| {
                matches!(census.success_before(token, within), Success::Known(_))
            });
            let looks = looks.await;
            match looks.census().success_before(token, within) {
                Success::Known(run) => return Ok(Ok(Some(Box::new(run.clone())))),
                Success::None => return Ok(Ok(None)),
                Success::Unknown => {}
            }
            let next = clock::now() + schedule.retry();
            if next >= schedule.renew_at(self.deadline()) {
                return Ok(Err(looks.faults));
            }
            alarm.reached(next).await;
        }
    }

    /// Removes our queue entry from nodes that gave no vote, and waits until each node will get what
    /// it was sent, undone attempts included, though rlock exits. `acquire` needs it, which exits
    /// without a renewal.
    pub async fn leave_queue(&self) {
        if let Some(ticket) = self.claim.ticket.as_ref().filter(|_| self.nodes.len() > 1) {
            let left = |_, there: &dyn Node| Some(there.queue()?.leave(&ticket.waiter));
            self.nodes
                .ask(super::STRAGGLERS, left, |_, ()| Ok(false))
                .await;
        }
        settle(&self.nodes, super::STRAGGLERS).await;
    }

    /// Gives the lock back, and leaves `remains`: compare-and-delete on every node.
    pub async fn release(self, remains: &Remains) -> ReleaseOutcome {
        let hurried = watch::channel(false).1;
        self.release_unless(remains, hurried).await
    }

    /// The same. Nothing is repeated once the caller is `hurried`.
    pub async fn release_unless(
        mut self,
        remains: &Remains,
        hurried: watch::Receiver<bool>,
    ) -> ReleaseOutcome {
        let begun = clock::now();
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        let waiter = self
            .claim
            .ticket
            .as_ref()
            .map(|ticket| ticket.waiter.clone());
        let queue = waiter.map_or(QueueAction::None, QueueAction::Leave);
        let request = self
            .claim
            .release_leaving(queue, self.fence, self.broken.clone(), remains);
        let mut count = self.give_back(&all, &request).await;
        if request.leaves_something() {
            self.repeat(&request, &mut count, hurried).await;
        }
        let outcome = self.outcome(&count, begun);
        if remains.run.is_some()
            && request.is_success()
            && matches!(outcome, ReleaseOutcome::NotOurs(_))
        {
            self.take_back(&request).await;
        }
        outcome
    }

    /// Sends `request` to the nodes `which`, and waits for their replies and until they will get
    /// it.
    async fn give_back(&self, which: &[usize], request: &Release) -> ReleaseCount {
        let limit = self.schedule.node_timeout();
        let count = release(&self.nodes, which, request, limit).await;
        settle(&self.nodes, limit).await;
        count
    }

    fn outcome(&mut self, count: &ReleaseCount, begun: Instant) -> ReleaseOutcome {
        if count.ours >= self.nodes.quorum().needed() {
            return ReleaseOutcome::Ours;
        }
        for (node, how) in &count.revoked {
            self.lease.revoke(*node, *how, begun);
        }
        match count.revoked.last() {
            Some((_, how)) if self.deadline() <= begun => ReleaseOutcome::NotOurs(*how),
            _ => {
                let mut faults = count.gone.clone();
                faults.extend(count.faults.clone());
                ReleaseOutcome::Unconfirmed(faults)
            }
        }
    }

    /// Deletes the success of a command that ended after its lock was lost, at the nodes that still
    /// had the lock and took it.
    async fn take_back(&self, request: &Release) {
        let limit = self.schedule.node_timeout();
        take_away(&self.nodes, limit, |_| {
            Some(TakeAway::Forget(request.token))
        })
        .await;
        settle(&self.nodes, limit).await;
    }

    /// Repeats a release that a majority has not confirmed, for as long as no other client can have
    /// the lock at the nodes that are silent. A success that too few nodes know of would be
    /// repeated, and a parked lock at too few nodes be given to others. A node that refuses it is
    /// not asked again.
    async fn repeat(
        &mut self,
        request: &Release,
        count: &mut ReleaseCount,
        mut hurried: watch::Receiver<bool>,
    ) {
        // The nodes that may have given the lock back, though no answer came.
        let is_unknown = |fault: &Fault| fault.kind == FaultKind::Unknown;
        let mut unheard = nodes_of(&count.faults, is_unknown);
        while count.ours < self.nodes.quorum().needed() {
            let silent = nodes_of(&count.faults, Fault::may_pass);
            if silent.is_empty() {
                return;
            }
            let next = clock::now() + upkeep::pause(self.schedule);
            if next >= self.deadline() {
                return;
            }
            tokio::select! {
                () = self.alarm.reached(next) => {}
                Ok(_) = hurried.wait_for(|hurried| *hurried) => return,
            }
            // The alarm may be late.
            if clock::now() >= self.deadline() {
                return;
            }
            let again = self.give_back(&silent, request).await;
            count.ours += again.ours;
            for (node, how) in again.revoked {
                if unheard.contains(&node) {
                    self.nodes
                        .add_fault(&mut count.gone, node, Fault::unheard());
                } else {
                    count.revoked.push((node, how));
                }
            }
            unheard.extend(nodes_of(&again.faults, is_unknown));
            count.gone.extend(again.gone);
            count.faults = count.faults.only(|fault| !fault.may_pass());
            count.faults.extend(again.faults);
        }
    }
}

/// Returns the nodes whose faults satisfy `is_meant`.
fn nodes_of(faults: &Faults, is_meant: impl Fn(&Fault) -> bool) -> Vec<usize> {
    let meant = faults.only(is_meant);
    meant.iter().map(|there| there.node).collect()
}
