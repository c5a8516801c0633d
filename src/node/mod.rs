//! Where a lock lives: one trait, [`Node`], and one file for each kind of store.
//!
//! A node answers for itself alone; what the answers of several mean together is `redlock`'s business. A request is on
//! its way when the method returns, and dropping what it returned stops the listening, never the request: a SET that
//! was written may run, and its release must not depend on who is still interested.

pub mod address;
pub mod local;
pub mod redis;

use std::os::fd::RawFd;
use std::pin::Pin;
use std::time::Duration;

use crate::lock::details::Details;
pub use crate::lock::fault::{Fault, FaultKind};
use crate::lock::fence::Fence;
use crate::lock::identity::Identity;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::observation::Observation;
use crate::lock::occupant::{Occupant, RawValue};
use crate::lock::queue::{QueuePosition, Ticket, Waiter};
use crate::lock::schedule::Schedule;
use crate::lock::token::Token;

/// An answer that will come, or not.
pub type Pending<T> = Pin<Box<dyn Future<Output = T>>>;

/// One place where a lock lives.
pub trait Node {
    /// The node's name in messages: its address without user and password.
    fn name(&self) -> &str;

    /// Sets the key if there is none. `anew`: the last exchange got no answer, so do not queue behind it.
    fn acquire(&self, claim: &Claim, anew: bool) -> Pending<Answer>;

    /// Extends the key if it is ours. `anew`: the last exchange got no answer, so do not queue behind it.
    fn renew(&self, claim: &Claim, fence: Fence, anew: bool) -> Pending<Renewal>;

    /// Sets the key again, with the same token, if there is none; extends it if it is still ours. A node whose fence counter
    /// is above `fence` does so only if the counter is still `told`. `anew` as for [`Node::renew`].
    fn heal(&self, claim: &Claim, fence: Fence, told: Counter, anew: bool) -> Pending<Renewal>;

    /// Tells what stands at the key, and the first `max_waiters` of those who wait for it. Changes nothing.
    fn look(&self, key: &Key, max_waiters: usize) -> Pending<Result<Observation, Fault>>;

    /// Takes the key from its holder. `None` if it was done, or how the key was not that holder's.
    fn force(&self, key: &Key, force: ForceUnlock) -> Pending<Result<Option<Revoked>, Fault>>;

    /// Deletes the key if it is ours, behind whatever was sent before, and tells the next who waits. `queued`: what is to
    /// become of our own place.
    fn release(&self, key: &Key, token: Token, queued: QueueAction<'_>) -> Pending<ReleaseReply>;

    /// Word for the waiter that the last acquire was for. May be dropped and asked for again.
    fn wake(&self) -> Pending<Wake> {
        Box::pin(std::future::pending())
    }

    /// Whether that waiter will be told when the lock is free.
    fn listens(&self) -> bool {
        false
    }

    /// Whether it will not, because the node refuses it.
    fn is_deaf(&self) -> bool {
        false
    }

    /// Comes true when the connection is found broken, which is how a node that restarted is noticed.
    fn broken(&self) -> Pending<()>;

    /// The lock itself, where it is a descriptor of ours: who shares it, holds the lock too.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// Comes true when all that was sent has been handed to the kernel, or can no longer be, or no key was ever asked for.
    fn written(&self) -> Pending<()>;
}

/// What is asked of a node: this lock, for this holder.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lock.
    pub key: Key,
    /// The holder's proof.
    pub token: Token,
    /// Who holds it: stored beside the token.
    pub details: Details,
    /// Where a forgotten fence counter starts again, in unix microseconds; one for all nodes of an attempt.
    pub fence_hint: u64,
    /// How long the lease is, and how much of that counts.
    pub schedule: Schedule,
    /// How long a node must have been up to grant; `None`: it is not asked what it is.
    pub inquiry: Option<Duration>,
    /// Our place among those who wait; `None` if we have not waited.
    pub ticket: Option<Ticket>,
}

impl Claim {
    /// What is stored at the key.
    pub fn value(&self) -> String {
        self.details.value(self.token)
    }

    /// What is stored where the key is set again.
    pub fn healed_value(&self, fence: Fence) -> String {
        Details { fence: Some(fence.get()), ..self.details.clone() }.value(self.token)
    }
}

/// What becomes of a waiter's place when its lock is released or an attempt given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueAction<'a> {
    /// It has none.
    None,
    /// It leaves the queue.
    Leave(&'a Waiter),
    /// It goes on waiting.
    Keep(&'a Ticket),
}

/// What a waiter is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The lock is free, and it is its turn.
    YourTurn,
    /// The lock is free, and it is the turn of another, who should have gone in a second.
    StandBy,
    /// The lock is free, and it is anybody's turn.
    Recheck,
}

/// A node's answer to an acquire, and what it is.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether the key is ours now.
    pub vote: Vote,
    /// Which server gave it.
    pub server: ServerInfo,
    /// Our place among those who wait.
    pub place: Option<QueuePosition>,
}

impl From<Vote> for Answer {
    fn from(vote: Vote) -> Self {
        Self { vote, server: ServerInfo::None, place: None }
    }
}

/// What a node told of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerInfo {
    /// Nothing: it was not asked, or gave no answer at all.
    None,
    /// What it is.
    Told(Identity),
    /// It must not tell us; in its words.
    Forbidden(String),
}

/// A node's answer to an acquire. *Unknown is not no*: the key may be set.
#[derive(Clone, Debug)]
pub enum Vote {
    /// The key is ours.
    Granted {
        /// Until when the grant certainly stands.
        until: Instant,
        /// The node's fence for this grant.
        fence: Fence,
    },
    /// Somebody else has it.
    Held(Box<Occupant>),
    /// It is free, but the node has restarted and may have forgotten who has it. Nothing was changed.
    Restarted,
    /// The node failed, and says or implies what may have happened to the key.
    Failed(Fault),
}

/// A node's fence counter, as the node told it; `None` if it did not.
pub type Counter = Option<u64>;

/// A node's answer to a renewal.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// The key was ours all along and is until then. Counts even if it comes late.
    Renewed(Instant, Counter),
    /// The key was gone and is ours again until then. Counts only if it comes while the lease stands. With the counter as it
    /// was before.
    Healed(Instant, Counter),
    /// The lock was broken, by whom; its place is kept, until then if it was extended.
    Broken(Option<Instant>, String),
    /// The key is not ours any more. The counter is told where there is no key.
    Lost(Revoked, Counter),
    /// No answer that counts.
    Failed(Fault),
}

/// How a key is taken from its holder, and from nobody else.
#[derive(Clone, Copy, Debug)]
pub enum ForceUnlock<'a> {
    /// A tombstone takes the lock's place and keeps the key's TTL; the holder will stop its command and delete it.
    Tombstone(Token, &'a str),
    /// The lock, or its tombstone, is deleted; the fence counter passes the number, so that the holder cannot set it again.
    Delete(Token, u64),
    /// What is none of rlock's is deleted, if it is still this.
    DeleteForeign(&'a RawValue),
}

/// A node's answer to a release.
#[derive(Clone, Debug)]
pub enum ReleaseReply {
    /// It was ours and is gone.
    Released,
    /// It was not ours any more, so nothing was changed.
    NotOurs(Revoked),
    /// No answer that counts; the key expires by itself.
    Failed(Fault),
}
