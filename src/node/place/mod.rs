//! Where a node's server is. A [`Place`] resolves the node's address to a [`Site`], which labels each connection to it.
//!
//! 1. [`Place::find`] returns the server that takes the requests from now on.
//! 2. [`Place::confirm`] says whether a server that has answered was still the node's. A grant or a renewal counts only then.
//! 3. [`Place::moved`] returns when another server has taken over.
//!
//! Where a server is known only here and in `redis`: a layer above sees one node. No request is repeated here.

mod answer;
mod answers;
mod current;
mod sentinel;
pub mod way;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::redis::connection::Connector;
use super::{Fault, Pending};
use crate::clock;
use crate::lock::instant::Instant;
use answer::Location;
pub use answer::Naming;
pub use sentinel::Sentinels;
pub use way::Way;

/// Where the server of a node is.
#[derive(Clone)]
pub enum Place {
    /// At the node's address, always.
    Fixed(Arc<Site>),
    /// Where sentinels say.
    Sentinel(Arc<Sentinels>),
}

/// A server that takes the requests of a node, for a time or always.
pub struct Site {
    /// Opens connections to it.
    pub connector: Connector,
    /// Its address and its failover; `None` if it is named by the node's own address.
    pub primary: Option<Primary>,
}

/// A server that became a primary by a failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Primary {
    location: Location,
    /// The number of the failover.
    pub epoch: u64,
    /// When it became the primary, as far back as any sentinel has seen it.
    since: Instant,
}

/// The answers of the sentinels of a service.
pub struct Survey {
    /// Number of sentinels that are listed.
    pub listed: usize,
    /// The answers of those that name a primary.
    pub namings: Vec<Naming>,
}

/// Whether a server that has answered was still the node's when it did.
#[derive(Debug)]
pub enum Confirmation {
    /// It was.
    Present,
    /// It was not: another one has taken over.
    Replaced(Fault),
    /// That could not be found out.
    Unknown(Fault),
}

impl Place {
    /// The server that `connector` leads to.
    pub fn fixed(connector: Connector) -> Self {
        Self::Fixed(Arc::new(Site { connector, primary: None }))
    }

    /// Returns the server that takes the requests from now on. The caller limits the time.
    pub async fn find(&self) -> Result<Arc<Site>, Fault> {
        match self {
            Self::Fixed(site) => Ok(Arc::clone(site)),
            Self::Sentinel(sentinels) => Box::pin(sentinels.find()).await,
        }
    }

    /// Whether `site` takes the requests, as far as is known without a question.
    pub fn is_current(&self, site: &Arc<Site>) -> bool {
        match self {
            Self::Fixed(fixed) => Arc::ptr_eq(fixed, site),
            Self::Sentinel(sentinels) => sentinels.is_current(site),
        }
    }

    /// Says whether the server of `site`, which has answered by now, was still the node's.
    pub async fn confirm(&self, site: &Arc<Site>) -> Confirmation {
        match (self, &site.primary) {
            (Self::Sentinel(sentinels), Some(primary)) => Box::pin(sentinels.confirm(site, primary)).await,
            _ => Confirmation::Present,
        }
    }

    /// Returns when another server is found, or announced, after this call.
    pub fn moved(&self) -> Pending<()> {
        match self {
            Self::Fixed(_) => Box::pin(std::future::pending()),
            Self::Sentinel(sentinels) => sentinels.moved(),
        }
    }

    /// Whether a server may take over whose data lack the last writes of another.
    pub fn has_failovers(&self) -> bool {
        matches!(self, Self::Sentinel(_))
    }

    /// Returns the primary that was found last; `None` where there is no failover.
    pub fn primary(&self) -> Option<Primary> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinel(sentinels) => sentinels.current()?.primary.clone(),
        }
    }

    /// Returns what the sentinels say; `None` where there are none.
    pub async fn survey(&self) -> Option<Survey> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinel(sentinels) => Some(sentinels.survey().await),
        }
    }
}

impl Site {
    /// Whether this is the same server, and no failover was between the two.
    fn is_same(&self, other: &Self) -> bool {
        fn of(site: &Site) -> Option<(&Location, u64)> {
            site.primary.as_ref().map(|primary| (&primary.location, primary.epoch))
        }
        of(self) == of(other)
    }

    /// Returns the time since this server became the primary; `None` if it did by no failover.
    pub fn age(&self) -> Option<Duration> {
        self.primary.as_ref().map(Primary::age)
    }

    /// Returns `fault` with the server's address, if the node's name does not tell it.
    pub fn named(&self, fault: Fault) -> Fault {
        match &self.primary {
            Some(primary) => Fault { why: format!("primary {}: {}", primary.location, fault.why), ..fault },
            None => fault,
        }
    }
}

impl Primary {
    /// Returns its address.
    pub fn address(&self) -> String {
        self.location.to_string()
    }

    /// Returns the time since it became the primary.
    pub fn age(&self) -> Duration {
        clock::now().since(self.since)
    }
}

/// `primary 10.0.0.5:6379, epoch 7`.
impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary {}, epoch {}", self.location, self.epoch)
    }
}

#[cfg(test)]
mod tests;
