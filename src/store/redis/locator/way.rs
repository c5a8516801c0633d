//! The way to a node: its address, completed with the secrets that its servers and its sentinels
//! ask for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::naming::Location;
use super::{Cluster, Locator, Sentinels, ServerAt};
use crate::clock;
use crate::lock::instant::Instant;
use crate::secret::Secret;
use crate::store::net::hosts::Endpoint;
use crate::store::net::tls::Trust;
use crate::store::redis::address::{HostKind, Remote};
use crate::store::redis::connect::{Access, Connector, Renew};

/// Returns what opens connections to the server that is named.
pub type Connect = Arc<dyn Fn(Access) -> Connector + Send + Sync>;

/// Reads the secrets again; nothing if that fails.
pub type ReadSecrets = Arc<dyn Fn() -> Option<Secrets> + Send + Sync>;

/// How to reach a node's server.
#[derive(Clone)]
pub struct Way {
    /// The address.
    pub remote: Remote,
    /// The secrets that the address lacks.
    secrets: Secrets,
    /// When they were read.
    since: Instant,
    /// Reads them again.
    read: Option<ReadSecrets>,
}

/// The secrets of all nodes, for addresses that lack them.
#[derive(Clone, Default)]
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
        Self {
            remote,
            secrets: Secrets::default(),
            since: clock::now(),
            read: None,
        }
    }

    /// The way to `remote`, with the secrets that its address lacks. `read` reads them again.
    pub fn with(remote: Remote, secrets: Secrets, read: ReadSecrets) -> Self {
        Self {
            remote,
            secrets,
            since: clock::now(),
            read: Some(read),
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
            HostKind::Server => {
                let host = self.remote.hosts[0].clone();
                Locator::fixed(connect(self.renewable(host, Self::access)))
            }
            HostKind::Sentinel(service) => {
                let login = |host| self.renewable(host, Self::login);
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
            let endpoint = Endpoint::Tcp {
                host: host.clone(),
                port: *port,
                tls,
            };
            connect(way.renewable(endpoint, Self::access))
        })
    }

    /// Returns how to connect to the server at `endpoint`.
    fn access(&self, endpoint: Endpoint) -> Access {
        let Remote {
            user, password, db, ..
        } = self.remote.clone();
        Access {
            user,
            password: password.or_else(|| self.secrets.password.clone()),
            db,
            trust: self.secrets.trust.clone(),
            ..endpoint.into()
        }
    }

    /// Returns how to connect to the sentinel at `endpoint`.
    fn login(&self, endpoint: Endpoint) -> Access {
        let SentinelLogin { user, password } = self.secrets.sentinel.clone();
        Access {
            user,
            password,
            trust: self.secrets.trust.clone(),
            ..endpoint.into()
        }
    }

    /// Returns `access` to `endpoint`, which can be made again of what the files say by then.
    fn renewable(&self, endpoint: Endpoint, access: fn(&Self, Endpoint) -> Access) -> Access {
        let renew = self.read.clone().map(|read| -> Renew {
            let (way, endpoint) = (self.clone(), endpoint.clone());
            Arc::new(move || {
                let secrets = read()?;
                let way = Self {
                    secrets,
                    ..way.clone()
                };
                Some(access(&way, endpoint.clone()))
            })
        });
        Access {
            read: self.since,
            renew,
            ..access(self, endpoint)
        }
    }
}

/// The node's name in messages: its address without user and password.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}
