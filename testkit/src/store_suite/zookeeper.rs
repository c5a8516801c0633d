//! ZooKeeper: one server, and an entry of kazoo's as what is not rlock's.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::net::quorum::QuorumAccess;
use rlock::store::zookeeper::ZooKeeperStore;
use rlock::store::zookeeper::ensemble::dial;

use super::{Ability, Data, Wire, World};
use crate::Shared;
use crate::zookeeper::{Peer, has_zookeeper};

/// Timeout of kazoo's session.
const SESSION: Duration = Duration::from_secs(60);

/// A server.
pub struct ZooKeeper {
    server: RefCell<crate::ZooKeeper>,
    kazoo: RefCell<Option<Peer>>,
}

impl ZooKeeper {
    /// Gives a command to kazoo.
    fn ask(&self, command: &str) -> String {
        let mut kazoo = self.kazoo.borrow_mut();
        if kazoo.is_none() {
            let hosts = format!("127.0.0.1:{}", self.server.borrow().port());
            *kazoo = Peer::kazoo(&hosts, SESSION);
        }
        kazoo
            .as_mut()
            .expect("kazoo; install python3-kazoo")
            .ask(command)
    }
}

impl World for ZooKeeper {
    fn with(test: impl FnOnce(&Self)) {
        static SHARED: Shared<ZooKeeper> = Shared::new();
        if !has_zookeeper() {
            return;
        }
        let start = || Self {
            server: RefCell::new(crate::ZooKeeper::start(&[])),
            kazoo: RefCell::default(),
        };
        SHARED.with(start, |world| test(world));
    }

    fn open(&self, wire: &Wire, limit: Duration) -> Box<dyn Store> {
        let Ok(Address::ZooKeeper(address)) = Address::parse(&self.server.borrow().url()) else {
            panic!("an address of ZooKeeper")
        };
        let access = QuorumAccess {
            hosts: address.hosts.clone(),
            ..QuorumAccess::default()
        };
        let dial = wire.over(dial(None));
        Box::new(ZooKeeperStore::over(&address, access, dial, limit))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Leases
            | Ability::Line
            | Ability::Shared
            | Ability::Slots
            | Ability::Superseding
            | Ability::TakingAway
            | Ability::Servers => None,
            Ability::Healing => Some("zookeeper: a lock that is gone is not set again"),
            Ability::Records => Some("zookeeper: no run is recorded but a success"),
            Ability::LongerLeases => Some("zookeeper: a session keeps its length"),
            Ability::Uptime => Some("zookeeper: the servers forget nothing"),
            Ability::TimeLeft => Some("zookeeper: no look tells how long a session has"),
        }
    }

    fn orders_by_arrival(&self) -> bool {
        true
    }

    fn delete(&self, key: &Key) {
        self.ask(&format!("clear /{}", key.stored()));
    }

    fn occupy(&self, key: &Key) -> Box<dyn Any> {
        self.ask(&format!("occupy /{}", key.stored()));
        Box::new(())
    }

    fn hang(&self, _key: &Key) {
        self.server.borrow().freeze();
    }

    fn resume(&self, _key: &Key) {
        self.server.borrow().thaw();
    }

    fn restart(&self, _key: &Key, data: Data) {
        let mut server = self.server.borrow_mut();
        server.crash();
        if data == Data::Lost {
            server.forget();
        }
        server.come_back();
        self.kazoo.replace(None);
    }
}
