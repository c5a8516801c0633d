//! The state of one connection, kept in a `tokio::sync::watch`: requests without a reply, bytes on
//! their way, and whether the connection is of use.

use std::time::Duration;

use crate::clock;
use crate::lock::fault::Fault;
use crate::lock::instant::Instant;

/// Number of a lock among those that share a server's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockId(pub u64);

/// The effect of a request on a key, and the lock whose key it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing that must be undone, or waited for.
    None,
    /// It may set the key.
    Sets(LockId),
    /// It may delete the key.
    Frees(LockId),
    /// Nothing; the server reads no further request until it has answered this one.
    Waits,
}

/// Whether the server wakes a waiter through its channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subscription {
    /// It was not asked to.
    None,
    /// It does. A SUBSCRIBE without a reply yet is taken for one that succeeds.
    Active,
    /// It refuses.
    Denied,
}

/// Longest wait of an rlock that exits, since a request, for a server that has answered others on
/// the connection.
const SLOW: Duration = Duration::from_millis(100);

/// The same for a server that has answered nothing on the connection.
const FIRST_REPLY: Duration = Duration::from_millis(20);

/// The state of a connection, as far as it is known without asking the server.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(in crate::store) struct ConnectionState {
    /// The first byte that came.
    pub(super) first: Option<u8>,
    /// Bytes handed to the redis crate.
    pub(super) queued: u64,
    /// Bytes that the stream has taken.
    pub(super) written: u64,
    /// Bytes flushed to the kernel.
    pub(super) flushed: u64,
    /// No byte will come or go any more.
    pub(super) broken: bool,
    /// The server has closed it.
    pub(super) closed: bool,
    /// It gave way to one that can listen.
    pub(super) retired: bool,
    /// The replies are waited for no longer.
    pub(super) abandoned: bool,
    /// The fault with which the server closes the connection: it executes no request that was sent
    /// behind.
    pub(super) shut_out: Option<Fault>,
    /// The server has said that it is a replica.
    pub(super) demoted: bool,
    /// It has subscribed, and the server takes no request on it any more.
    pub(super) subscribed_only: bool,
    /// Requests without a reply, oldest first. Replies come in the same order.
    pub(super) unanswered: Vec<Unanswered>,
    /// Number of requests so far.
    pub(super) sent: u64,
    pub(super) push: Push,
    /// Channels that were asked for, and how that went.
    pub(super) channels: Vec<(String, Subscription)>,
}

pub(super) struct Unanswered {
    pub(super) number: u64,
    pub(super) effect: Effect,
    pub(super) since: Instant,
}

/// Whether the server can send messages that are no replies.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Push {
    /// The connection was opened for no waiter.
    #[default]
    Untried,
    Works,
    Denied,
}

impl ConnectionState {
    /// Whether it takes requests, and leads to no replica. A failover closes no connection, and a
    /// new one, with a new name look-up, may lead to the primary.
    pub(in crate::store) fn works(&self) -> bool {
        !self.broken && !self.demoted && !self.subscribed_only
    }

    /// Whether new requests may take it; if the caller `waits`, whether it was opened for a waiter.
    pub(super) fn serves(&self, waits: bool) -> bool {
        let is_blocked = self
            .unanswered
            .iter()
            .any(|request| request.effect == Effect::Waits);
        self.works() && !is_blocked && (!waits || self.push != Push::Untried)
    }

    /// Whether a request has had no reply for `limit`.
    pub(super) fn is_stalled(&self, limit: Duration) -> bool {
        self.unanswered
            .first()
            .is_some_and(|oldest| clock::now() >= oldest.since + limit)
    }

    /// Whether it takes requests, and has answered each within `limit`.
    pub(in crate::store) fn is_of_use(&self, limit: Duration) -> bool {
        self.works() && !self.is_stalled(limit)
    }

    /// Whether the server has closed the connection and never said anything.
    pub(super) fn is_dumb(&self) -> bool {
        self.broken && self.first.is_none()
    }

    pub(super) fn begin(&mut self, effect: Effect) -> u64 {
        self.sent += 1;
        self.unanswered.push(Unanswered {
            number: self.sent,
            effect,
            since: clock::now(),
        });
        self.sent
    }

    pub(super) fn end(&mut self, number: u64, demoted: bool) {
        self.unanswered.retain(|request| request.number != number);
        self.demoted |= demoted;
    }

    pub(super) fn may_set(&self, lock: LockId) -> bool {
        !self.broken
            && self
                .unanswered
                .iter()
                .any(|request| request.effect == Effect::Sets(lock))
    }

    /// The last unanswered request that may set or delete the key of `lock`.
    pub(super) fn last_effect(&self, lock: LockId) -> Option<Effect> {
        let is_about =
            |effect: &Effect| matches!(*effect, Effect::Sets(of) | Effect::Frees(of) if of == lock);
        self.unanswered
            .iter()
            .rev()
            .map(|request| request.effect)
            .find(is_about)
    }

    /// Whether a SET of `lock` is unanswered with no release behind it.
    pub(super) fn owes_a_release(&self, lock: LockId) -> bool {
        !self.broken && self.last_effect(lock) == Some(Effect::Sets(lock))
    }

    /// The same for any lock. Closing the connection now could leave an orphaned key.
    pub(super) fn owes_any_release(&self) -> bool {
        let sets = |request: &Unanswered| matches!(request.effect, Effect::Sets(lock) if self.owes_a_release(lock));
        self.unanswered.iter().any(sets)
    }

    /// Whether the server will read all that was sent though we exit now. While it writes a reply
    /// to a client that is gone it closes the connection, and what it has not read by then is lost.
    /// So all but the last request must have been answered.
    pub(super) fn will_be_read(&self) -> bool {
        self.broken || self.unanswered.len() <= 1
    }

    /// Whether the server has answered any request.
    pub(super) fn has_answered(&self) -> bool {
        self.unanswered.len() as u64 != self.sent
    }

    /// The time until which an rlock that exits waits for that. A server that takes longer for a
    /// reply may hang.
    pub(super) fn patience(&self) -> Option<Instant> {
        let patience = if self.has_answered() {
            SLOW
        } else {
            FIRST_REPLY
        };
        self.unanswered
            .first()
            .map(|oldest| oldest.since + patience)
    }

    /// Whether no SET and no release of `lock` is unanswered, or the connection is broken.
    pub(super) fn is_settled(&self, lock: LockId) -> bool {
        self.broken || self.last_effect(lock).is_none()
    }

    /// The same for all locks.
    pub(super) fn is_settled_for_all(&self) -> bool {
        self.broken
            || self
                .unanswered
                .iter()
                .all(|request| request.effect == Effect::None)
    }
}
