//! The keys of a lock at one node, as they were observed.

use std::fmt;
use std::time::Duration;

use super::fence::Fence;
use super::instant::Instant;
use super::last::Record;
use super::occupant::{Occupant, RawValue};
use super::queue::Ticket;
use super::schedule;
use super::token::Token;

/// A look at one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// The occupants of the key; none if it is free. An exclusive lock has at most one.
    pub holders: Vec<Occupant>,
    /// Number of members, if it has members: there may be more than were told.
    pub members: u64,
    /// The value itself, if it is none of rlock's, or if it is a marker without members.
    pub foreign: Option<RawValue>,
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
