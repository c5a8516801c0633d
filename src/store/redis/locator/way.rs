//! The way to a node: its address, completed with the secrets that its servers and its sentinels
//! ask for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Location;
use super::{Cluster, Locator, Sentinels, ServerAt};
use crate::secret::Secret;
use crate::store::net::tls::Trust;
use crate::store::redis::address::{Endpoint, HostKind, Remote};
use crate::store::redis::connect::{Access, Connector};

/// Returns what opens connections to the server that is named.
pub type Connect = Arc<dyn Fn(Access) -> Connector + Send + Sync>;

/// How to reach a node's server.
#[derive(Clone)]
pub struct Way {
    /// The address, with the password from whichever source.
    pub remote: Remote,
    /// User and password at the sentinels.
    pub sentinel: SentinelLogin,
    /// Needed for TLS only.
    pub trust: Option<Trust>,
}

/// The secrets of all nodes, for addresses that lack them.
#[derive(Default)]
pub struct Secrets {
    /// Password at the servers.
    pub password: Option<Secret>,
    /// User and password at the sentinels.
    pub sentinel: SentinelLogin,
    /// Needed for TLS only.
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
    /// The way to `remote`, as far as the address tells it.
    pub fn new(remote: Remote) -> Self {
        Self::with(remote, &Secrets::default())
    }

    /// The way to `remote`, with the secrets that its address lacks.
    pub fn with(remote: Remote, secrets: &Secrets) -> Self {
        Self {
            sentinel: secrets.sentinel.clone(),
            trust: secrets.trust.clone().filter(|_| remote.is_tls()),
            remote: Remote {
                password: remote.password.or_else(|| secrets.password.clone()),
                ..remote
            },
        }
    }

    /// Returns the locator; each question where the server is takes `limit` at most.
    pub fn locator(&self, limit: Duration) -> Locator {
        let connect: Connect = Arc::new(Connector::new);
        self.locator_over(limit, &connect)
    }

    /// The same, over connections that `connect` opens.
    pub fn locator_over(&self, limit: Duration, connect: &Connect) -> Locator {
        let hosts = self.remote.hosts.iter().cloned();
        match &self.remote.kind {
            HostKind::Server => Locator::fixed(connect(self.access(self.remote.hosts[0].clone()))),
            HostKind::Sentinel(service) => {
                let SentinelLogin { user, password } = &self.sentinel;
                let login = |host| Access {
                    user: user.clone(),
                    password: password.clone(),
                    db: 0,
                    ..self.access(host)
                };
                let sentinels = hosts.map(|host| (host.to_string(), connect(login(host))));
                let server_at = self.server_at(connect);
                Locator::Sentinel(Arc::new(Sentinels::new(
                    service.clone(),
                    sentinels,
                    server_at,
                    limit,
                )))
            }
            HostKind::Member => {
                let seeds = hosts.filter_map(|host| match host {
                    Endpoint::Tcp { host, port, .. } => Some(Location { host, port }),
                    Endpoint::Unix(_) => None,
                });
                Locator::Cluster(Arc::new(Cluster::new(
                    seeds.collect(),
                    self.server_at(connect),
                    limit,
                )))
            }
        }
    }

    fn server_at(&self, connect: &Connect) -> ServerAt {
        let (way, connect, tls) = (self.clone(), Arc::clone(connect), self.remote.is_tls());
        Box::new(move |Location { host, port }| {
            connect(way.access(Endpoint::Tcp {
                host: host.clone(),
                port: *port,
                tls,
            }))
        })
    }

    /// Returns how to connect to the server at `endpoint`.
    fn access(&self, endpoint: Endpoint) -> Access {
        let Remote {
            user, password, db, ..
        } = self.remote.clone();
        Access {
            endpoint,
            user,
            password,
            db,
            trust: self.trust.clone(),
        }
    }
}

/// The node's name in messages: its address without user and password.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}
