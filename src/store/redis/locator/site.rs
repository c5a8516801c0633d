//! A server that takes the requests of a node for a time, and the replies that come from it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{HashSlot, Location};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::messages::Server;
use crate::store::Fault;
use crate::store::redis::connect::Connector;

/// A server that takes the requests of a node, for a time or always.
pub struct Site {
    /// Opens connections to it.
    pub connector: Connector,
    /// Its address and its failover; `None` if it is named by the node's own address.
    pub primary: Option<Primary>,
    /// Whether it was silent, or could not be reached, since it was last confirmed. It is not
    /// connected to with an old map.
    suspect: AtomicBool,
}

/// A server that may be replaced by another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Primary {
    pub(super) location: Location,
    /// The number of the failover that made it the primary, if sentinels count them.
    pub epoch: Option<u64>,
    /// When it became the primary, as far back as any sentinel has seen it.
    pub(super) since: Option<Instant>,
}

/// The server that gave a reply, and what the reply is worth.
pub struct Source {
    /// The server; of a key that is on its way to another member, the one that it comes from.
    pub site: Arc<Site>,
    /// The slot that the request was for, in a cluster.
    pub slot: Option<HashSlot>,
    /// Whether the reply took longer than an exchange may.
    pub is_late: bool,
    /// Whether the reply is that of the member to which the slot is being moved.
    pub is_detour: bool,
}

impl Site {
    /// A server that nothing is held against.
    pub fn new(connector: Connector, primary: Option<Primary>) -> Self {
        Self {
            connector,
            primary,
            suspect: AtomicBool::default(),
        }
    }

    /// Whether this is the same server, and no failover was between the two.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        fn of(site: &Site) -> Option<(&Location, Option<u64>)> {
            site.primary
                .as_ref()
                .map(|primary| (&primary.location, primary.epoch))
        }
        of(self) == of(other)
    }

    /// Returns its address, if it is not named by the node's own.
    pub fn location(&self) -> Option<&Location> {
        self.primary.as_ref().map(|primary| &primary.location)
    }

    /// Returns the time since this server became the primary; `None` if it did by no failover that
    /// is known.
    pub fn age(&self) -> Option<Duration> {
        self.primary.as_ref().and_then(Primary::age)
    }

    /// Returns `fault` with the server's address, if the node's name does not tell it.
    pub fn named(&self, fault: Fault) -> Fault {
        match &self.primary {
            Some(primary) => Fault {
                why: format!("primary {}: {}", primary.location, fault.why),
                ..fault
            },
            None => fault,
        }
    }

    /// Records that it was silent, or could not be reached.
    pub fn suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Whether it was silent, or could not be reached, since it was last confirmed.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    /// Records that it is the primary still.
    pub(super) fn clear(&self) {
        self.suspect.store(false, Ordering::Relaxed);
    }
}

impl Primary {
    /// Returns it as users are told of it.
    pub fn told(&self) -> Server {
        Server {
            address: self.location.to_string(),
            epoch: self.epoch,
        }
    }

    /// Returns the time since it became the primary, if that is known.
    pub fn age(&self) -> Option<Duration> {
        self.since.map(|since| clock::now().since(since))
    }
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told().fmt(f)
    }
}
