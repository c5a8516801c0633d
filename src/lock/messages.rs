//! The words between `hold` and any node: the requests that a node is sent, and its replies, as the
//! rules read them.

use std::fmt;
use std::time::Duration;

use super::blocker::Blocker;
use super::details::{Breaker, Details};
use super::fault::{Fault, FaultKind};
use super::fence::Fence;
use super::instant::Instant;
use super::last::{Note, Record, Run, SUCCESS_LIFE};
use super::lease::Revoked;
use super::mode::Mode;
use super::occupant::Occupant;
use super::queue::{QueuePosition, Ticket, Waiter};
use super::remains::Remains;
use super::schedule::{self, Term};
use super::token::Token;

/// A request for the lock.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The holder's proof.
    pub token: Token,
    /// The holder's own description, stored beside the token.
    pub details: Details,
    /// The value at which a server's lost fence counter starts again, in unix microseconds; one for
    /// all servers of an attempt.
    pub fence_hint: u64,
    /// Expiry that the node is told, and how much of it counts.
    pub term: Term,
    /// Time for which a node must have forgotten no lock to grant; `None`: the node is not asked
    /// for its server's identity.
    pub guarded: Option<Duration>,
    /// The waiter's place in the queue; `None` if it has not waited.
    pub ticket: Option<Ticket>,
    /// Index from which a node looks for a free slot; of a lock that was won, the index of the
    /// slot. 0 without slots.
    pub index: u16,
    /// Whether no other index will do.
    pub is_exact: bool,
    /// The tokens of outer rlocks. A node names one that is a member before any other member.
    pub outer: Vec<Token>,
}

impl Claim {
    /// Returns the renewal of the lock that this request has won with `fence`.
    pub fn renewal(&self, fence: Fence) -> Keep {
        Keep {
            token: self.token,
            fence,
            term: self.term,
            index: self.index,
            mode: self.details.mode,
            raises_counter: false,
            heal: None,
        }
    }

    /// Returns the renewal by which a node is told that this is the lock's fence: it counts only if
    /// the node's counter is no lower then.
    pub fn confirmation(&self, fence: Fence) -> Keep {
        Keep {
            raises_counter: true,
            ..self.renewal(fence)
        }
    }

    /// Returns the healing of the lock that this request has won with `fence`.
    pub fn healing(&self, fence: Fence, told: Counter) -> Keep {
        let waiter = self.ticket.as_ref().map(|ticket| ticket.waiter.clone());
        let renewal = self.renewal(fence);
        renewal.healing(self.details.clone(), told, waiter)
    }

    /// Returns the release of the key that the request may have set; `queue`: the fate of the
    /// waiter's place in the queue.
    pub fn release(&self, queue: QueueAction) -> Release {
        Release {
            queue,
            mode: Some(self.details.mode),
            ..Release::of(self.token)
        }
    }

    /// The same of a lock that was won with `fence`, and broken by `by` if at all; it leaves
    /// `remains`.
    pub fn release_leaving(
        &self,
        queue: QueueAction,
        fence: Fence,
        by: Option<Breaker>,
        remains: &Remains,
    ) -> Release {
        let parked = remains.parked.as_ref().map(|parking| Parked {
            left: parking.left,
            value: self.details.parked(self.token, parking.span),
            ttl: self.term.ttl().max(parking.span),
            parks_tombstone: parking.parks_tombstone,
            index: self.index,
        });
        let success = remains.once.map(|life| life.max(SUCCESS_LIFE));
        let own = remains.run.as_ref().map(|run| {
            let run = Run {
                broken: by,
                ..run.clone().of(&self.details)
            };
            Note {
                success,
                ..Note::of(run, fence, self.token)
            }
        });
        let copy = || {
            remains.earlier.as_ref().map(|entry| Note {
                entry: (**entry).clone(),
                is_run: false,
                success,
            })
        };
        Release {
            parked,
            note: own.or_else(copy),
            ..self.release(queue)
        }
    }
}

#[cfg(test)]
impl Claim {
    /// Returns an exclusive claim of a token of its own, for the waiter if there is one.
    pub(crate) fn example(term: Term, waiter: Option<Waiter>) -> Self {
        Self {
            token: Token::fresh(),
            details: Details::default(),
            fence_hint: 7,
            term,
            guarded: None,
            ticket: waiter.map(|waiter| Ticket {
                waiter,
                number: 1,
                supersedes: None,
            }),
            index: 0,
            is_exact: false,
            outer: Vec::new(),
        }
    }
}

/// A request to extend a key that is the token's.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The holder's proof.
    pub token: Token,
    /// The holder's fence: the node's counter is raised to it.
    pub fence: Fence,
    /// Expiry that the node is told, and how much of it counts.
    pub term: Term,
    /// The index of the member's place, 0 without slots.
    pub index: u16,
    /// The kind of the lock.
    pub mode: Mode,
    /// Whether it is of no use unless it raises the counter.
    pub raises_counter: bool,
    /// The value by which the key is set again if there is none; `None`: it is then lost.
    pub heal: Option<Heal>,
}

impl Keep {
    /// Returns the healing of the same lock, which these details describe.
    #[must_use]
    pub fn healing(&self, details: Details, told: Counter, waiter: Option<Waiter>) -> Self {
        let fence = Some(self.fence.get());
        let details = Details { fence, ..details };
        Self {
            heal: Some(Heal {
                details,
                told,
                waiter,
            }),
            ..self.clone()
        }
    }
}

/// A key that is set again where a node has forgotten it, and its tombstone extended.
#[derive(Clone, Debug)]
pub struct Heal {
    /// Stored beside the token; with the fence, since the node's counter may be above it.
    pub details: Details,
    /// The counter that the node told with "absent". Where its counter is above the fence, the node
    /// sets the key only if the counter is still this one.
    pub told: Counter,
    /// The holder's entry in the queue, which a healed node drops.
    pub waiter: Option<Waiter>,
}

/// A request to delete the key if it is the token's, behind all requests that were sent before.
#[derive(Clone, Debug)]
pub struct Release {
    /// The holder's proof.
    pub token: Token,
    /// The fate of the waiter's place in the queue.
    pub queue: QueueAction,
    /// The kind of the lock; `None` if the caller does not know it, and leaves nothing.
    pub mode: Option<Mode>,
    /// The value that stays in the lock's place; `None`: it is deleted.
    pub parked: Option<Parked>,
    /// Its entry in the lock's record.
    pub note: Option<Note>,
}

impl Release {
    /// Returns the release of a lock of which only the token is known, and which leaves nothing.
    pub fn of(token: Token) -> Self {
        Self {
            token,
            queue: QueueAction::None,
            mode: None,
            parked: None,
            note: None,
        }
    }

    /// Whether more stays than the record of a run: the lock, or a success. Either counts only once
    /// a majority has it.
    pub fn leaves_something(&self) -> bool {
        self.parked.is_some() || self.is_success()
    }

    /// Whether a success is written.
    pub fn is_success(&self) -> bool {
        self.note
            .as_ref()
            .is_some_and(|note| note.success.is_some())
    }
}

/// A lock that stays when its command has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parked {
    /// Time for which it stays, from the release on.
    pub left: Duration,
    /// The value in place of the holder's.
    pub value: String,
    /// The expiry that others must allow for after a node's restart.
    pub ttl: Duration,
    /// Whether it takes a tombstone's place too.
    pub parks_tombstone: bool,
    /// The index of the member's place, 0 without slots.
    pub index: u16,
}

/// The fate of a waiter's place when its lock is released or an attempt given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueAction {
    /// It has none.
    None,
    /// It leaves the queue.
    Leave(Waiter),
    /// It goes on waiting.
    Keep(Ticket),
}

/// The parts of a lock that an observation is about, besides its holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// Number of waiters wanted.
    pub max_waiters: usize,
    /// A holder that is wanted first: of many, not all are told.
    pub token: Option<Token>,
}

impl Look {
    /// A look for the holder `token`.
    pub fn of(token: Token) -> Self {
        Self {
            token: Some(token),
            max_waiters: 0,
        }
    }
}

/// A way to take a key from its holder, and from no later one.
#[derive(Clone, Debug)]
pub enum TakeAway {
    /// A tombstone takes the lock's place and keeps the key's TTL. The holder stops its command and
    /// deletes it.
    Tombstone(Token, String),
    /// The lock, or its tombstone, is deleted, and the record says so. The fence counter passes the
    /// number, so that the holder cannot set it again.
    Delete(Token, u64, Option<Box<Note>>),
    /// A value that is not rlock's is deleted, if it is still this one.
    DeleteForeign(ForeignValue),
    /// The success in the record is deleted, if it is still this token's.
    Forget(Token),
}

/// A value that is not rlock's, in the words by which its store knows it again. Only the store that
/// made them reads them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignValue(pub Vec<Vec<u8>>);

/// A node's answer to a request for the lock, and its identity.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether the key is ours now.
    pub vote: Vote,
    /// The server that gave it.
    pub server: ServerInfo,
    /// The waiter's place in the queue.
    pub position: Option<QueuePosition>,
}

impl From<Vote> for Answer {
    fn from(vote: Vote) -> Self {
        Self {
            vote,
            server: ServerInfo::None,
            position: None,
        }
    }
}

/// A node's word on its own server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerInfo {
    /// None: it was not asked, or gave no answer at all.
    None,
    /// Its identity.
    Told(ServerIdentity),
    /// The ACL denies it to us; in the server's words.
    Forbidden(String),
}

/// A node's vote. *Unknown is not no*: after a failure the key may be set.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an attempt has one for each node"
)]
pub enum Vote {
    /// The key is ours.
    Granted {
        /// The end of the grant, certainly.
        until: Instant,
        /// The node's fence for this grant.
        fence: Fence,
        /// The index of the slot; 0 without slots.
        index: u16,
    },
    /// This party keeps it from us: nothing was granted.
    Blocked(Blocker),
    /// The key is free, but the node has restarted and may have forgotten its holder. Nothing was
    /// changed.
    Restarted,
    /// The node failed, and says or implies what may have happened to the key.
    Failed(Fault),
}

impl Vote {
    /// Returns the party that keeps the key from us.
    pub fn blocker(&self) -> Option<&Blocker> {
        if let Self::Blocked(blocker) = self {
            Some(blocker)
        } else {
            None
        }
    }

    /// Returns the party that has the key.
    pub fn occupant(&self) -> Option<&Occupant> {
        self.blocker().and_then(Blocker::occupant)
    }
}

/// A node's fence counter, as the node told it; `None` if it did not.
pub type Counter = Option<u64>;

/// A node's answer to [`Keep`].
#[derive(Clone, Debug)]
pub enum Renewal {
    /// The key was ours all along and is until then. Counts even if it comes late.
    Renewed(Instant, Counter),
    /// The key was gone and is ours again until then. Counts only if it comes while the lease
    /// stands. With the counter as it was before.
    Healed(Instant, Counter),
    /// There is a tombstone in the key's place: the end of it, if the request extended it, and the
    /// user that broke the lock.
    Broken(Option<Instant>, Breaker),
    /// The key is not ours any more. The counter is told where there is no key, and the time until
    /// another client's key ends, if it is not extended.
    NotOurs(Revoked, Counter, Option<Duration>),
    /// No answer that counts.
    Failed(Fault),
}

/// A node's answer to a release.
#[derive(Clone, Debug)]
pub enum ReleaseReply {
    /// The key was ours and is gone.
    Released,
    /// The key was not ours any more, so nothing was changed.
    NotOurs(Revoked),
    /// The lock is given back, and something that it was to leave may be missing. The same release
    /// would change nothing.
    Gone(Fault),
    /// No answer that counts; the key expires by itself.
    Failed(Fault),
}

impl ReleaseReply {
    /// The lock is given back, and nothing could be left, for the reason of this fault.
    pub fn without(fault: &Fault) -> Self {
        let why = format!("the lock is gone, and nothing could be left: {}", fault.why);
        Self::Gone(Fault::new(FaultKind::Unavailable, why))
    }

    /// A release found the lock gone, and an earlier one had no answer.
    pub fn unheard() -> Self {
        Self::Gone(Fault::unheard())
    }
}

/// A look at one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// The occupants of the key; none if it is free. An exclusive lock has at most one.
    pub holders: Vec<Occupant>,
    /// Number of members, if it has members: there may be more than were told.
    pub members: u64,
    /// The value at the key, if it is none of rlock's, or if it is a marker without members.
    pub foreign: Option<ForeignValue>,
    /// The fence counter; `None` if there is none.
    pub fence: Option<Fence>,
    /// The waiters, as far as they were asked for.
    pub queue: Vec<Ticket>,
    /// Whether there are more waiters.
    pub more: bool,
    /// The last run, and the last success.
    pub last: Record,
    /// When the node was about to be asked: what it told of time counts from then.
    pub asked: Instant,
    /// Bytes that it takes, about: what a node tells is kept, and must have a limit where there are
    /// many of these.
    pub size: usize,
}

/// A server that answers for a node now, and may be replaced by another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its address.
    pub address: String,
    /// The number of the failover that made it the primary, if failovers are counted.
    pub epoch: Option<u64>,
}

/// `primary 10.0.0.5:6379, epoch 7`.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary {}", self.address)?;
        self.epoch
            .map_or(Ok(()), |epoch| write!(f, ", epoch {epoch}"))
    }
}

impl Observation {
    /// A node that has nothing, asked then.
    pub fn of_nothing(asked: Instant) -> Self {
        Self {
            holders: Vec::new(),
            members: 0,
            foreign: None,
            fence: None,
            queue: Vec::new(),
            more: false,
            last: Record::default(),
            asked,
            size: 0,
        }
    }

    /// Returns the occupant of the key; the first, of several.
    pub fn occupant(&self) -> Option<&Occupant> {
        self.holders.first()
    }

    /// Returns the holder `token`, if it is one here, broken or not.
    pub fn of(&self, token: Token) -> Option<&Occupant> {
        self.holders
            .iter()
            .find(|there| there.holder().is_some_and(|(holder, _)| holder == token))
    }

    /// Returns the time until which `occupant` certainly stays here, with clocks whose rates differ
    /// by `drift`. Never, if it has no end.
    pub fn valid_until(&self, occupant: &Occupant, drift: f64) -> Instant {
        // What outlasts the lease is not the holder's.
        let delay = occupant.holder().map_or(0, |(_, details)| details.delay);
        let end = |ttl: Duration| {
            let lease = ttl.saturating_sub(Duration::from_millis(delay));
            self.asked + lease.saturating_sub(schedule::drift(lease, drift))
        };
        occupant.ttl.map_or(Instant::NEVER, end)
    }
}

/// A server's identity, as far as it tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerIdentity {
    /// Time for which it has certainly forgotten no lock.
    pub remembers: Duration,
    /// The event at which it may have forgotten some: `restarted`.
    pub event: &'static str,
    /// Texts that no independent server has too; with the words for one that has.
    pub marks: Vec<(String, &'static str)>,
}

impl ServerIdentity {
    /// Returns how two nodes share a server or its data, if they do. Redlock's proof needs votes
    /// that fail one by one.
    pub fn shared_with(&self, other: &Self) -> Option<&'static str> {
        let shared = self.marks.iter().find(|mark| other.marks.contains(mark));
        shared.map(|(_, words)| *words)
    }
}
