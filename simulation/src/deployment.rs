//! How the nodes of a world are deployed: the machines of each, their addresses, and the way to
//! them.

use std::ops::Range;
use std::time::Duration;

use rlock::store::net::hosts::Endpoint;
use rlock::store::redis::address::{HostKind, Remote};
use rlock::store::redis::locator::Way;

use crate::database::Nature;
use crate::server::Address;

/// Number of sentinels of a service.
const SENTINELS: usize = 3;

/// Number of primaries of a cluster.
pub const PRIMARIES: usize = 3;

/// The name of every service.
pub const SERVICE: &str = "svc";

/// How each node of a world is deployed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deployment {
    /// One server.
    Alone,
    /// A primary with replicas, and three sentinels.
    Sentinels {
        /// Number of replicas.
        replicas: usize,
        /// Time after which the sentinels take a silent server for dead.
        down_after: Duration,
    },
    /// A cluster of three primaries.
    Cluster {
        /// Whether each has a replica.
        replicated: bool,
        /// Time after which the members take a silent one for dead.
        node_timeout: Duration,
    },
    /// One etcd cluster.
    Etcd {
        /// Number of members.
        members: usize,
        /// Time after which they take a silent leader for dead.
        election: Duration,
    },
    /// One ZooKeeper ensemble.
    ZooKeeper {
        /// Number of servers.
        servers: usize,
        /// `tickTime`.
        tick: Duration,
        /// `syncLimit`, in ticks.
        sync_limit: u32,
    },
    /// One database.
    Database(Nature),
}

impl Deployment {
    /// Number of machines of a node.
    pub fn machines(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Sentinels { replicas, .. } => 1 + replicas + SENTINELS,
            Self::Cluster { replicated, .. } => PRIMARIES * if replicated { 2 } else { 1 },
            Self::Etcd { members, .. } => members,
            Self::ZooKeeper { servers, .. } => servers,
            Self::Database(nature) => 1 + usize::from(nature.standby.is_some()),
        }
    }

    /// The machines of the servers of `node`. At the begin the first is its primary, or the first
    /// three are, in a cluster.
    pub fn servers(self, node: usize) -> Range<usize> {
        let first = node * self.machines();
        match self {
            Self::Alone => first..first + 1,
            Self::Sentinels { replicas, .. } => first..first + 1 + replicas,
            Self::Cluster { .. }
            | Self::Etcd { .. }
            | Self::ZooKeeper { .. }
            | Self::Database(_) => first..first + self.machines(),
        }
    }

    /// The machines of the sentinels of `node`.
    pub fn sentinels(self, node: usize) -> Range<usize> {
        self.servers(node).end..(node + 1) * self.machines()
    }

    /// Returns the way of a client to `node`, which is Redis.
    pub fn way(self, node: usize) -> Way {
        let (kind, hosts) = match self {
            Self::Alone | Self::Etcd { .. } | Self::ZooKeeper { .. } | Self::Database(_) => {
                (HostKind::Server, node..node + 1)
            }
            Self::Sentinels { .. } => {
                (HostKind::Sentinel(SERVICE.to_owned()), self.sentinels(node))
            }
            Self::Cluster { .. } => (HostKind::Member, self.servers(node)),
        };
        Way::new(Remote {
            kind,
            hosts: hosts.map(endpoint).collect(),
            user: None,
            password: None,
            db: 0,
        })
    }
}

/// Returns the address of a machine's server.
pub fn address(machine: usize) -> Address {
    (format!("10.0.0.{machine}"), 6379)
}

/// The same as an endpoint of clients.
pub fn endpoint(machine: usize) -> Endpoint {
    let (host, port) = address(machine);
    Endpoint::Tcp {
        host,
        port,
        tls: false,
    }
}

/// Returns the machine at an address; `None` if no machine has it.
pub fn machine(endpoint: &Endpoint) -> Option<usize> {
    match endpoint {
        Endpoint::Tcp { host, .. } => host.strip_prefix("10.0.0.")?.parse().ok(),
        Endpoint::Unix(_) => None,
    }
}
