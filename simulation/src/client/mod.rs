//! Simulated clients: the shipped waiting, attempts, holdings and policy, called as the subcommands
//! call them.

pub mod acquire;
pub mod operator;
pub mod run;

mod claimant;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rlock::clock;
use rlock::exit::{BUSY, Outcome};
use rlock::hold::Nodes;
use rlock::hold::holding::Change;
use rlock::lock::details::Details;
use rlock::lock::key::Key;
use rlock::lock::mode::Mode;
use rlock::lock::queue::Waiter;
use rlock::lock::quorum::Quorum;
use rlock::lock::remains::RemainsOptions;
use rlock::lock::restart::RestartGuard;
use rlock::lock::schedule::Schedule;
use rlock::lock::token::Token;
use rlock::lock::waiting::{Blocked, Reason, WaitOptions, Waiting};
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::etcd::EtcdStore;
use rlock::store::net::hosts::Endpoint;
use rlock::store::net::quorum::{QuorumAccess, QuorumAddress};
use rlock::store::redis::connect::Connector;
use rlock::store::redis::connection::REPLY_LIMIT;
use rlock::store::redis::locator::way::Connect;
use rlock::store::redis::{Copies, RedisServer, WriteOptions};
use rlock::store::sql::SqlStore;
use rlock::store::sql::session::SqlAccess;
use rlock::store::zookeeper::ZooKeeperStore;
use uuid::Uuid;

use crate::deployment::{self, Deployment};
use crate::kernel::{self, BEGIN};
use crate::network;
use crate::witness::Share;

/// Unix time at which every world begins.
pub const UNIX_BEGIN: Duration = Duration::from_secs(1_800_000_000);

/// Settings that all clients of a world share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of nodes.
    pub nodes: usize,
    /// How each node is deployed.
    pub deployment: Deployment,
    /// `--wait-replicas`.
    pub copies: Option<Copies>,
    /// The locks of the world, in the order of their stored names.
    pub keys: Vec<Key>,
    /// `--ttl` and what follows from it.
    pub schedule: Schedule,
    /// `--restart-guard`.
    pub guard: RestartGuard,
    /// `--once`, `--hold-at-least` and `--lock-delay`, which all runs then give.
    pub remains: RemainsOptions,
}

/// A client of a host whose clock is wrong by `skew_ms`.
#[derive(Clone, Debug)]
pub struct Client {
    /// Settings that it shares with the others.
    pub settings: Settings,
    /// Number of its host.
    pub host: usize,
    /// Error of the host's wall clock.
    pub skew_ms: i64,
    /// `--wait`.
    pub wait: Option<Duration>,
    /// Numbers of the locks that it takes, ascending.
    pub locks: Vec<usize>,
    /// The kind of lock that it wants.
    pub mode: Mode,
    /// `--supersede`.
    pub supersedes: bool,
}

impl Client {
    /// Opens the nodes of each lock, as the subcommands do. The locks share the connections to a
    /// server.
    fn open(&self) -> Vec<Nodes> {
        let limit = self.settings.schedule.node_timeout();
        let host = self.host;
        if let Deployment::Etcd { members, .. } = self.settings.deployment {
            let (address, access) = self.quorum("etcd", members);
            let dial = network::host_dialer(host);
            return self.nodes_of(&[EtcdStore::over(&address, access, dial, limit)]);
        }
        if let Deployment::ZooKeeper { servers, .. } = self.settings.deployment {
            let (address, access) = self.quorum("zookeeper", servers);
            let dial = network::host_dialer(host);
            return self.nodes_of(&[ZooKeeperStore::over(&address, access, dial, limit)]);
        }
        if let Deployment::Database(_) = self.settings.deployment {
            let database = self.database();
            return self.nodes_of(&[database]);
        }
        let connect: Connect =
            Arc::new(move |access| Connector::over(access, network::dialer(host)));
        let server = |node: usize| {
            let way = self.settings.deployment.way(node);
            RedisServer::at(
                way.to_string(),
                way.locator_over(limit, &connect),
                limit,
                REPLY_LIMIT,
            )
            .writing(WriteOptions {
                copies: self.settings.copies,
                ..WriteOptions::default()
            })
        };
        let servers: Vec<RedisServer> = (0..self.settings.nodes).map(server).collect();
        self.nodes_of(&servers)
    }

    /// Returns a cluster of so many members as this client names it. Every other host names one
    /// member alone.
    fn quorum(&self, scheme: &str, members: usize) -> (QuorumAddress, QuorumAccess) {
        let members = if self.host % 2 == 1 {
            vec![self.host / 2 % members]
        } else {
            (0..members).collect()
        };
        let hosts: Vec<Endpoint> = members.into_iter().map(deployment::endpoint).collect();
        let names: Vec<String> = hosts.iter().map(Endpoint::to_string).collect();
        let address = Address::parse(&format!("{scheme}://{}", names.join(",")));
        let Ok(Address::Etcd(address) | Address::ZooKeeper(address)) = address else {
            panic!("an address of a cluster");
        };
        let access = QuorumAccess {
            hosts,
            ..QuorumAccess::default()
        };
        (address, access)
    }

    /// Returns the database. Hosts name its servers in different orders.
    fn database(&self) -> SqlStore {
        let mut servers: Vec<usize> = self.settings.deployment.servers(0).collect();
        let first = self.host % servers.len();
        servers.rotate_left(first);
        let hosts: Vec<Endpoint> = servers.into_iter().map(deployment::endpoint).collect();
        let names: Vec<String> = hosts.iter().map(Endpoint::to_string).collect();
        let address = Address::parse(&format!("postgresql://rlock@{}/rlock", names.join(",")));
        let Ok(Address::Sql(address)) = address else {
            panic!("an address of a database");
        };
        let access = SqlAccess {
            hosts: hosts.into_iter().map(|host| (host, None)).collect(),
            user: "rlock".to_owned(),
            database: "rlock".to_owned(),
            trust: None,
            renew: None,
        };
        let limit = self.settings.schedule.node_timeout();
        SqlStore::over(&address, access, network::host_dialer(self.host), limit)
    }

    fn nodes_of(&self, stores: &[impl Store]) -> Vec<Nodes> {
        self.locks
            .iter()
            .map(|&lock| &self.settings.keys[lock])
            .map(|key| stores.iter().map(|store| store.open(key)).collect())
            .collect()
    }

    /// Returns the wall-clock time of the host.
    fn wall(&self) -> SystemTime {
        let true_time = UNIX_EPOCH + UNIX_BEGIN + clock::now().since(BEGIN);
        let skew = Duration::from_millis(self.skew_ms.unsigned_abs());
        if self.skew_ms < 0 {
            true_time - skew
        } else {
            true_time + skew
        }
    }

    /// Returns a wait that begins now.
    fn waiting(&self, for_command: bool) -> Waiting {
        let options = WaitOptions {
            wait: self.wait,
            restart_guard: self.settings.guard,
            supersede: self.supersedes,
            for_command,
            ..WaitOptions::new(Quorum::of(self.settings.nodes), self.settings.schedule)
        };
        Waiting::new(options, self.waiter(), clock::now())
    }

    /// Returns an entry for the queue that no other client has.
    fn waiter(&self) -> Waiter {
        let pid = kernel::with(|kernel| kernel.current.number());
        let since = clock::unix_millis(self.wall());
        Waiter {
            id: random_uuid(),
            host: format!("host{}", self.host),
            pid: to_u32(pid),
            since,
            mode: self.mode,
            user: String::new(),
            note: None,
        }
    }

    fn details(&self, kept: bool) -> Details {
        let pid = kernel::with(|kernel| kernel.current.number());
        Details {
            mode: self.mode,
            host: format!("host{}", self.host),
            pid: kept.then(|| to_u32(pid)),
            user: "user".to_owned(),
            since: clock::unix_millis(self.wall()),
            cmd: "job".to_owned(),
            kept,
            ttl: u64::try_from(self.settings.schedule.ttl().as_millis()).unwrap_or(u64::MAX),
            n: self.settings.nodes,
            ..Details::default()
        }
        .fitted()
    }
}

/// Tells what has become of a lock that is kept while another one is waited for.
fn tell(_: usize, change: &Change) {
    kernel::tell_of_current(|| format!("{change:?}"));
}

/// Returns the way in which a client has a lock, for the witness. `slot`: the number of its slot.
fn share(mode: Mode, slot: Option<u16>) -> Share {
    match (mode, slot) {
        (Mode::Shared, _) => Share::Shared,
        (Mode::Slots(of), Some(index)) => Share::Slot {
            of: of.into(),
            index: index.into(),
        },
        _ => Share::Exclusive,
    }
}

/// Returns how a client ends whose wait ended without the lock.
fn gave_up(reason: &Reason) -> Outcome {
    kernel::tell_of_current(|| format!("{reason:?}"));
    match reason {
        Reason::Blocked(Blocked::Busy(_) | Blocked::Split(..)) => Outcome::Busy(BUSY),
        Reason::Blocked(Blocked::Unreachable(..) | Blocked::TooLate) => Outcome::Unreachable,
        Reason::Superseded(_) => Outcome::Superseded,
        Reason::Refused(_) => Outcome::Refused,
        Reason::Unfit(..) => Outcome::Config,
        Reason::OuterUnreachable(_) => Outcome::Usage,
    }
}

async fn pause(span: Duration) {
    let until = clock::now() + span;
    clock::Alarm::new()
        .expect("simulated alarms need no descriptor")
        .reached(until)
        .await;
}

/// Returns a uuid that depends on the seed only.
fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_le_bytes()).into_uuid()
}

fn random_token() -> Token {
    random_uuid()
        .hyphenated()
        .to_string()
        .parse()
        .expect("the spelling of a token")
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
