//! The place where a lock lives: a [`Store`], on which each lock is a [`Node`]; and a folder for
//! each kind of store.
//!
//! A kind of store is known by its [`address`], chosen and opened by
//! `settings::store::StoreConfig`. The requests and replies of a node are plain values of `lock::messages`.
//!
//! A node answers for itself alone; `hold` decides what the answers of several mean together. A
//! request is on its way when the method returns. Dropping the returned future stops the listening,
//! never the request: a SET that was written may run, and its release must not depend on a caller
//! that still listens.

pub mod address;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod examine;
pub mod local;
pub mod net;
pub mod redis;
#[cfg(feature = "sql")]
pub mod sql;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::os::fd::RawFd;
use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;

use self::examine::{Examination, Plan};
pub use crate::lock::fault::{Denied, Fault, FaultKind};
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
pub use crate::lock::messages::{
    Answer, Claim, Counter, Heal, Keep, Look, Parked, QueueAction, Release, ReleaseReply, Renewal,
    ServerInfo, TakeAway, Vote,
};
use crate::lock::messages::{Observation, Server};
use crate::lock::queue::Waiter;
pub use crate::lock::queue::Wake;
use crate::lock::token::Token;

/// A reply that may come.
pub type Pending<T> = Pin<Box<dyn Future<Output = T>>>;

/// A reply that is there already.
pub fn ready<T: 'static>(reply: T) -> Pending<T> {
    Box::pin(std::future::ready(reply))
}

/// Pages of names that may come.
pub type Pages = Pin<Box<dyn Stream<Item = Result<Page, Fault>>>>;

/// A place where locks live: a server, or a directory of this machine.
pub trait Store {
    /// Returns the store's name in messages: its address without user and password.
    fn name(&self) -> &str;

    /// Returns the lock `key` there. The nodes of one store may share its connections; what is asked
    /// of one never touches another.
    fn open(&self, key: &Key) -> Box<dyn Node>;

    /// Returns what lists the locks of the store, if it can.
    fn listing(&self) -> Option<&dyn Listing> {
        None
    }

    /// Examines the store for `doctor`, and whether it lets us hold the locks of `plan`. Changes
    /// nothing.
    fn examine(&self, plan: &Plan) -> Pending<Result<Examination, Fault>>;
}

/// A store that lists its locks.
pub trait Listing {
    /// Finds the locks under `prefix`.
    fn pages(&self, prefix: &str) -> Pages;
}

/// Some of the locks of a store. A lock may be found twice.
#[derive(Clone, Default, Debug)]
pub struct Page {
    /// The locks.
    pub keys: Vec<Key>,
    /// Places that the user may not list: locks may be there, and below.
    pub closed: Vec<Key>,
    /// Number of names that were looked at for this page.
    pub visited: u64,
    /// Number of names in all, if the store knows.
    pub total: Option<u64>,
}

/// One lock at one place.
pub trait Node {
    /// Returns the node's name in messages: its address without user and password.
    fn name(&self) -> &str;

    /// Sets the key if there is none.
    fn acquire(&self, claim: &Claim) -> Pending<Answer>;

    /// Extends the key if it is the token's, and sets it again if there is none and the request says
    /// so.
    fn keep(&self, keep: &Keep) -> Pending<Renewal>;

    /// Returns the lock's holders and its first waiters. Changes nothing.
    fn look(&self, look: Look) -> Pending<Result<Observation, Fault>>;

    /// Takes the key from its holder. `None` if it was done, or how the key was not that holder's.
    fn take_away(&self, how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>>;

    /// Deletes the key if it is the token's, behind all requests that were sent before, and wakes
    /// the next waiter.
    fn release(&self, release: &Release) -> Pending<ReleaseReply>;

    /// Returns the next reason to ask the node again. It decides nothing. May be dropped and called
    /// again: each is told once.
    fn next(&self) -> Pending<Hint>;

    /// Returns the queue that the node keeps for the lock; `None` if its waiters poll, or wait by
    /// themselves.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// Returns the open files that are the lock, where there are any. A process that inherits them
    /// keeps the lock.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Hears that the client waits for the lock no more, though it does not have it.
    fn gives_up(&self) {}

    /// Returns the server that answers for the lock now, where the node's name does not tell it.
    fn server(&self) -> Option<Server> {
        None
    }

    /// Returns when the node will get all that it was sent though rlock exits, or takes too long.
    /// `false` if the last request was handed to no connection, or to one that is broken, or not
    /// within `limit`.
    fn settled(&self, _limit: Duration) -> Pending<bool> {
        ready(true)
    }
}

/// A reason to ask a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// The node says this to the waiter of the last claim, or to the holder that listens.
    Woken(Wake),
    /// The connection broke on which it answered last, which is how a restarted node is noticed. Or
    /// its server is another one now, or the files are gone that were the lock.
    Changed,
}

/// The waiters of one lock at one place.
pub trait Queue {
    /// Takes `waiter` out of the queue.
    fn leave(&self, waiter: &Waiter) -> Pending<()>;

    /// Whether a place in the queue becomes the lock. The first claim with a ticket then enters the
    /// queue, which orders its places by itself; the token is the place's until it is left.
    fn becomes_the_lock(&self) -> bool {
        false
    }

    /// Ends the waiters with `--supersede` that came before the holder, whose claim this was.
    fn announce(&self, _claim: &Claim) -> Pending<()> {
        ready(())
    }

    /// Listens for the holder of `token` from now on: the node says when its lock was taken away.
    fn listen(&self, _token: Token) {}

    /// Whether the node tells the waiter of the last claim, or the holder that listens, when it is
    /// to ask again.
    fn wakes(&self) -> Wakes;
}

/// Whether a node wakes a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakes {
    /// It was not asked to, or its connection is gone.
    No,
    /// It does. A request for it that is not answered yet is taken for one that succeeds.
    Yes,
    /// It refuses.
    Denied,
}

/// A feature that a kind of store may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// A lock may outlive the process that took it, and is known by its token.
    Parking,
    /// A lock may stay for a time when its run has ended.
    Remains,
    /// A look tells how long a lease lasts.
    TimeLeft,
    /// A later waiter may end the earlier ones.
    Supersede,
    /// The last success is recorded, to be skipped by others.
    Once,
    /// A lock may have holders that share it.
    Shared,
    /// A lock may have a number of holders.
    Slots,
    /// A server that has restarted may have to wait before it grants.
    RestartGuard,
    /// A grant may wait for copies of what was written.
    Copies,
    /// A lock may have the form of another client's.
    OtherForms,
    /// All locks can be listed.
    Listing,
}

/// The features that a kind of store lacks, with the end of a sentence that begins with the option.
pub type Lacking = &'static [(Feature, &'static str)];
