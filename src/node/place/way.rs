//! The way to a node: its address, completed with the secrets that its servers and its sentinels ask for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Location;
use super::{Cluster, Place, Sentinels};
use crate::node::address::{Endpoint, Secret, Seeds, Server, Service};
use crate::node::redis::connect::{Access, Connector};
use crate::node::redis::tls::Trust;

/// Returns what opens connections to the server that is named.
pub type Connect = Arc<dyn Fn(Access) -> Connector + Send + Sync>;

/// How to reach a node's server.
#[derive(Clone)]
pub enum Way {
    /// At its own address.
    Direct(Access),
    /// Through the sentinels of its service.
    Sentinel(Box<Watched>),
    /// Through the members of its cluster.
    Cluster(Box<Members>),
}

/// A service with sentinels, and the secrets for both.
#[derive(Clone)]
pub struct Watched {
    /// The sentinels, and the user and the database at the servers.
    pub service: Service,
    /// The servers' password, from whichever source.
    pub password: Option<Secret>,
    /// User and password at the sentinels.
    pub sentinel: SentinelLogin,
    /// Needed for `rediss-sentinel://` only.
    pub trust: Option<Trust>,
}

/// Members of a cluster, and the secrets for all of them.
#[derive(Clone)]
pub struct Members {
    /// The members that are asked first, and the user at all of them.
    pub seeds: Seeds,
    /// The password, from whichever source.
    pub password: Option<Secret>,
    /// Needed for `rediss-cluster://` only.
    pub trust: Option<Trust>,
}

/// The name and the password by which sentinels know rlock.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SentinelLogin {
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
}

impl Way {
    /// Returns the place; each question where the server is takes `limit` at most.
    pub fn place(&self, limit: Duration) -> Place {
        let connect: Connect = Arc::new(Connector::new);
        self.place_over(limit, &connect)
    }

    /// The same, over connections that `connect` opens.
    pub fn place_over(&self, limit: Duration, connect: &Connect) -> Place {
        match self {
            Self::Direct(access) => Place::fixed(connect(access.clone())),
            Self::Sentinel(watched) => Place::Sentinel(Arc::new(watched.sentinels(limit, connect))),
            Self::Cluster(members) => Place::Cluster(Arc::new(members.cluster(limit, connect))),
        }
    }

    /// Returns the user at the servers.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Direct(access) => access.server.user.as_deref(),
            Self::Sentinel(watched) => watched.service.user.as_deref(),
            Self::Cluster(members) => members.seeds.user.as_deref(),
        }
    }

    /// Returns the database.
    pub fn db(&self) -> u32 {
        match self {
            Self::Direct(access) => access.server.db,
            Self::Sentinel(watched) => watched.service.db,
            Self::Cluster(_) => 0,
        }
    }

    /// Returns the servers' password, if it is not in the address.
    pub fn password_from_elsewhere(&self) -> Option<&Secret> {
        let (in_address, password) = match self {
            Self::Direct(access) => (&access.server.password, &access.password),
            Self::Sentinel(watched) => (&watched.service.password, &watched.password),
            Self::Cluster(members) => (&members.seeds.password, &members.password),
        };
        password.as_ref().filter(|_| in_address.is_none())
    }

    /// Returns user and password at the sentinels, where there are any.
    pub fn sentinel_login(&self) -> Option<&SentinelLogin> {
        match self {
            Self::Direct(_) | Self::Cluster(_) => None,
            Self::Sentinel(watched) => Some(&watched.sentinel),
        }
    }
}

impl Watched {
    fn sentinels(&self, limit: Duration, connect: &Connect) -> Sentinels {
        let to_sentinel = |endpoint: &Endpoint| {
            let SentinelLogin { user, password } = self.sentinel.clone();
            let server = Server { endpoint: endpoint.clone(), user, password: None, db: 0 };
            connect(Access { server, password, trust: self.trust.clone() })
        };
        let named = self.service.sentinels.iter().map(|endpoint| (endpoint.to_string(), to_sentinel(endpoint)));
        let (watched, connect) = (self.clone(), Arc::clone(connect));
        let server_at = move |location: &Location| {
            let server = watched.service.server_at(location.host.clone(), location.port);
            let (password, trust) = (watched.password.clone(), watched.trust.clone());
            connect(Access { server, password, trust })
        };
        Sentinels::new(self.service.name.clone(), named, Box::new(server_at), limit)
    }
}

impl Members {
    fn cluster(&self, limit: Duration, connect: &Connect) -> Cluster {
        let location = |endpoint: &Endpoint| match endpoint {
            Endpoint::Tcp { host, port, .. } => Some(Location { host: host.clone(), port: *port }),
            Endpoint::Unix(_) => None,
        };
        let seeds = self.seeds.members.iter().filter_map(location).collect();
        let (members, connect) = (self.clone(), Arc::clone(connect));
        let server_at = move |location: &Location| {
            let server = members.seeds.server_at(location.host.clone(), location.port);
            let (password, trust) = (members.password.clone(), members.trust.clone());
            connect(Access { server, password, trust })
        };
        Cluster::new(seeds, Box::new(server_at), limit)
    }
}

/// The node's name in messages: its address without user and password.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(access) => access.server.fmt(f),
            Self::Sentinel(watched) => watched.service.fmt(f),
            Self::Cluster(members) => members.seeds.fmt(f),
        }
    }
}
