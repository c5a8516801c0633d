//! `--node`: the addresses, checked without asking any of them, and the kind of store that they
//! name.

use std::time::Duration;

use super::{Sources, config, credentials, strange_variables, usage};
use crate::cli::{CopyArgs, NodeArgs};
use crate::exit::{Failure, Outcome};
use crate::lock::fence::Fence;
use crate::lock::key::Key;
use crate::store::address::{Address, has_scheme, joined};
#[cfg(feature = "etcd")]
use crate::store::etcd::{self, EtcdStore};
use crate::store::examine::{Rights, Role};
use crate::store::local::{self, LocalDir, LocalStore};
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use crate::store::net::quorum::{QuorumAccess, QuorumAddress};
use crate::store::redis::locator::Way;
use crate::store::redis::{self, Copies, RedisServer, WriteOptions, acl};
#[cfg(feature = "sql")]
use crate::store::sql::{self, SqlStore, address::SqlAddress, session::SqlAccess};
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::{self, ZooKeeperStore};
use crate::store::{Feature, Store};

/// Most nodes that are accepted.
const MOST_NODES: usize = 9;

/// Where the lock lives, ready to be opened.
pub enum StoreConfig {
    /// One server, or several independent ones.
    Servers(Vec<Way>),
    /// A cluster of etcd.
    #[cfg(feature = "etcd")]
    Etcd(Box<(QuorumAddress, QuorumAccess)>),
    /// An ensemble of ZooKeeper.
    #[cfg(feature = "zookeeper")]
    ZooKeeper(Box<(QuorumAddress, QuorumAccess)>),
    /// A table of a database. Without access where no file may be read.
    #[cfg(feature = "sql")]
    Sql(Box<(SqlAddress, Option<SqlAccess>)>),
    /// A directory of this machine; `None` is the user's own.
    Local(Option<LocalDir>),
}

impl StoreConfig {
    /// Checks the addresses, then reads the passwords and the certificates that they need.
    pub fn new(args: &NodeArgs, sources: &Sources) -> Result<Self, Failure> {
        if args.node.is_empty() {
            return Err(no_node());
        }
        credentials::certificate(args)?;
        let addresses = addresses_that_fit(&args.node)?;
        match Self::standing_alone(&addresses) {
            None => credentials::attach(addresses, args, sources).map(Self::Servers),
            #[cfg(feature = "etcd")]
            Some(Self::Etcd(mut cluster)) => {
                cluster.1 = credentials::access(&cluster.0, args, sources)?;
                Ok(Self::Etcd(cluster))
            }
            #[cfg(feature = "zookeeper")]
            Some(Self::ZooKeeper(mut ensemble)) => {
                ensemble.1 = credentials::access(&ensemble.0, args, sources)?;
                Ok(Self::ZooKeeper(ensemble))
            }
            #[cfg(feature = "sql")]
            Some(Self::Sql(mut table)) => {
                table.1 = Some(credentials::sql_access(&table.0, args, sources)?);
                Ok(Self::Sql(table))
            }
            Some(store) => Ok(store),
        }
    }

    /// Checks the addresses, if there are any yet, and reads no file. The servers are left out.
    pub(super) fn kind(args: &NodeArgs, _: &Sources) -> Result<Self, Failure> {
        credentials::certificate(args)?;
        let store = Self::standing_alone(&addresses_that_fit(&args.node)?);
        Ok(store.unwrap_or_else(|| Self::Servers(Vec::new())))
    }

    /// Returns the store of an address that stands alone, without the secrets that it needs; `None`
    /// for servers.
    fn standing_alone(addresses: &[Address]) -> Option<Self> {
        match addresses.first()? {
            Address::Local(dir) => Some(Self::Local(dir.clone())),
            #[cfg(feature = "etcd")]
            Address::Etcd(cluster) => Some(Self::Etcd(Box::new((
                cluster.clone(),
                QuorumAccess::default(),
            )))),
            #[cfg(feature = "zookeeper")]
            Address::ZooKeeper(ensemble) => Some(Self::ZooKeeper(Box::new((
                ensemble.clone(),
                QuorumAccess::default(),
            )))),
            #[cfg(feature = "sql")]
            Address::Sql(table) => Some(Self::Sql(Box::new((table.clone(), None)))),
            Address::Remote(_) => None,
        }
    }

    /// Opens the stores; each exchange takes `limit` at most. `observations`: number of locks that
    /// are asked about at once. `writes`: how locks are written at servers.
    pub fn open(
        &self,
        limit: Duration,
        observations: usize,
        writes: WriteOptions,
    ) -> Result<Vec<Box<dyn Store>>, Failure> {
        match self {
            Self::Servers(ways) => {
                let server = |way: &Way| -> Box<dyn Store> {
                    Box::new(RedisServer::new(way, limit, observations).writing(writes))
                };
                Ok(ways.iter().map(server).collect())
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(cluster) => {
                let (address, access) = &**cluster;
                let store = EtcdStore::new(address, access.clone(), limit);
                Ok(vec![Box::new(store)])
            }
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(ensemble) => {
                let (address, access) = &**ensemble;
                let store = ZooKeeperStore::new(address, access.clone(), limit);
                Ok(vec![Box::new(store)])
            }
            #[cfg(feature = "sql")]
            Self::Sql(table) => {
                let (address, access) = &**table;
                let access = access.clone();
                let store = access.map(|access| SqlStore::new(address, access, limit));
                Ok(store
                    .map(|store| Box::new(store) as _)
                    .into_iter()
                    .collect())
            }
            Self::Local(dir) => {
                let store = LocalStore::at(dir.as_ref())
                    .map_err(|fault| Failure::new(fault.kind.into(), fault.why))?;
                Ok(vec![Box::new(store)])
            }
        }
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        match self {
            Self::Servers(ways) => ways.len(),
            #[cfg(feature = "etcd")]
            Self::Etcd(..) => 1,
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(..) => 1,
            #[cfg(feature = "sql")]
            Self::Sql(..) => 1,
            Self::Local(_) => 1,
        }
    }

    /// The servers' addresses without passwords, separated by commas.
    pub fn shown(&self) -> String {
        match self {
            Self::Servers(ways) => {
                let ways: Vec<String> = ways.iter().map(Way::to_string).collect();
                ways.join(",")
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(cluster) => cluster.0.to_string(),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(ensemble) => ensemble.0.to_string(),
            #[cfg(feature = "sql")]
            Self::Sql(table) => table.0.to_string(),
            Self::Local(_) => String::new(),
        }
    }

    /// Returns the text that gives a user at the servers the rights of `role` to these locks, or to
    /// all if there are none.
    pub fn grant(&self, role: Role, locks: acl::Locks) -> Result<Option<Rights>, Failure> {
        match self {
            Self::Servers(ways) => acl::grant(ways, role, locks).map(Some).map_err(config),
            #[cfg(feature = "etcd")]
            Self::Etcd(cluster) => Ok(Some(etcd::rights(&cluster.0, role, locks))),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(..) => Ok(None),
            #[cfg(feature = "sql")]
            Self::Sql(table) => Ok(Some(sql::rights(&table.0))),
            Self::Local(_) => Ok(None),
        }
    }

    /// Refuses the name of a lock that the store cannot have. `has_record`: its successes are
    /// recorded.
    #[cfg_attr(
        not(feature = "sql"),
        expect(unused_variables, reason = "only rows have room for so much")
    )]
    pub fn must_know(&self, key: &Key, has_record: bool) -> Result<(), Failure> {
        let checked: Result<(), String> = match self {
            #[cfg(feature = "etcd")]
            Self::Etcd(cluster) => etcd::check_key(&cluster.0, key).map_err(str::to_owned),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(ensemble) => zookeeper::check_key(&ensemble.0, key),
            #[cfg(feature = "sql")]
            Self::Sql(_) => sql::check_key(key, has_record),
            _ => Ok(()),
        };
        checked.map_err(|why| Failure::about(key, Outcome::Usage, format!("the name {why}")))
    }

    /// Returns the largest fence of a lock there.
    pub fn largest_fence(&self) -> u64 {
        if matches!(self, Self::Servers(_)) {
            redis::FENCE_LIMIT - 1
        } else {
            Fence::LIMIT - 1
        }
    }

    /// Whether the store has the feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.lacks(feature).is_none()
    }

    /// Refuses a store without the feature that the subcommand or option `what` needs.
    pub fn needs(&self, feature: Feature, what: &str) -> Result<(), Failure> {
        self.lacks(feature)
            .map_or(Ok(()), |why| Err(usage(format!("{what} {why}"))))
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        let lacking = match self {
            Self::Servers(_) => redis::LACKING,
            #[cfg(feature = "etcd")]
            Self::Etcd(..) => etcd::LACKING,
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(..) => zookeeper::LACKING,
            #[cfg(feature = "sql")]
            Self::Sql(..) => sql::LACKING,
            Self::Local(_) => local::LACKING,
        };
        let row = lacking.iter().find(|(lacks, _)| *lacks == feature);
        row.map(|(_, why)| *why)
    }
}

/// [`StoreConfig::new`], or [`StoreConfig::kind`].
pub(super) type FindStore = fn(&NodeArgs, &Sources) -> Result<StoreConfig, Failure>;

/// Limit for each exchange of a subcommand without a TTL to take a share of.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit for an exchange with `--fsync`, unless one is given. A server with `appendfsync everysec`
/// takes a second, and may skip one (redis.conf).
const WITH_FSYNC: Duration = Duration::from_millis(2500);

/// The nodes, and the limit for each exchange.
pub struct NodeSettings {
    pub store: StoreConfig,
    /// Limit for each exchange with one of them.
    pub limit: Duration,
    /// `--wait-replicas` and `--fsync` of `renew`.
    pub writes: WriteOptions,
}

impl NodeSettings {
    /// Checks what was typed.
    pub fn new(args: &NodeArgs, sources: &Sources) -> Result<Self, Failure> {
        Ok(Self {
            store: StoreConfig::new(args, sources)?,
            limit: args.node_timeout.unwrap_or(NODE_TIMEOUT),
            writes: WriteOptions::default(),
        })
    }

    /// Asks for copies of each write. Returns the limit for an exchange, if one was `given` or the
    /// copies need one.
    pub fn copied(&mut self, given: Option<Duration>, args: CopyArgs) -> Option<Duration> {
        let limit = node_timeout(given, args);
        self.limit = limit.unwrap_or(self.limit);
        self.writes.copies = copies(args);
        limit
    }
}

/// Returns the copies that are asked for; `None` if none are.
pub(super) fn copies(args: CopyArgs) -> Option<Copies> {
    let copies = Copies {
        replicas: args.wait_replicas.unwrap_or_default(),
        fsync: args.fsync,
    };
    (copies.replicas > 0 || copies.fsync).then_some(copies)
}

/// Returns the limit for an exchange, `given` or that of `--fsync`; `None` if it follows from the
/// TTL.
pub(super) fn node_timeout(given: Option<Duration>, args: CopyArgs) -> Option<Duration> {
    given.or(args.fsync.then_some(WITH_FSYNC))
}

/// Refuses to guess a node: `sudo`, cron and `ssh HOST rlock` drop `RLOCK_NODE`, and a server on
/// this machine would give each host a lock of its own.
fn no_node() -> Failure {
    let node = "--node, RLOCK_NODE or node in /etc/rlock/config.toml";
    let told = format!(
        "no node is configured; name a server with {node}, or local for a lock on this machine alone"
    );
    config([vec![told], strange_variables()].concat().join("; "))
}

/// Reads the addresses, which must fit together: several servers, or one directory.
fn addresses_that_fit(nodes: &[String]) -> Result<Vec<Address>, Failure> {
    let addresses = addresses(nodes)?;
    let count = addresses.len();
    for (index, address) in addresses.iter().enumerate() {
        if count > 1 && address.stands_alone() {
            return Err(usage(match address {
                Address::Local(_) => {
                    "--node local is a lock on this machine alone: give no other node"
                }
                #[cfg(feature = "zookeeper")]
                Address::ZooKeeper(_) => {
                    "--node zookeeper://… has a quorum of its own: give no other node, and all its servers in one address"
                }
                #[cfg(feature = "sql")]
                Address::Sql(_) => {
                    "--node of a database is one node, whose failover is its own: give no other node, and all its servers in one address"
                }
                _ => {
                    "--node etcd://… has a quorum of its own: give no other node, and all its members in one address"
                }
            }));
        }
        if addresses[..index]
            .iter()
            .any(|other| other.overlaps(address))
        {
            return Err(config(format!(
                "--node names {address} twice: nodes must be independent"
            )));
        }
    }
    if count > MOST_NODES {
        return Err(usage(format!(
            "--node names {count} nodes; {MOST_NODES} are enough to survive the loss of four"
        )));
    }
    Ok(addresses)
}

/// Reads the addresses one by one.
pub fn addresses(nodes: &[String]) -> Result<Vec<Address>, Failure> {
    // The rest of an address whose password has a comma. None of its parts may be shown.
    let is_rest = |node: &String| node.contains('@') && !has_scheme(node);
    let nodes = joined(nodes.iter().map(String::as_str));
    if nodes.iter().skip(1).any(is_rest) {
        return Err(config(
            "--node: an address begins with redis:// or the like; a comma in a password must be written %2C",
        ));
    }
    nodes
        .iter()
        .map(|node| Address::parse(node.trim()).map_err(config))
        .collect()
}
