//! etcd: one member, whose data outlast a restart.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::etcd::EtcdStore;
use rlock::store::etcd::client::dial;
use rlock::store::net::quorum::QuorumAccess;

use super::{Ability, Data, Wire, World};
use crate::{Etcd, Shared};

/// A cluster that the scenarios share.
pub struct EtcdWorld(RefCell<Etcd>);

impl World for EtcdWorld {
    fn with(test: impl FnOnce(&Self)) {
        static SHARED: Shared<Option<EtcdWorld>> = Shared::new();
        let start = || Etcd::start(1).map(|etcd| EtcdWorld(RefCell::new(etcd)));
        SHARED.with(start, |world| {
            if let Some(world) = world {
                test(world);
            }
        });
    }

    fn open(&self, wire: &Wire, limit: Duration) -> Box<dyn Store> {
        let Ok(Address::Etcd(address)) = Address::parse(&self.0.borrow().url()) else {
            panic!("an address of etcd")
        };
        let access = QuorumAccess {
            hosts: address.hosts.clone(),
            ..QuorumAccess::default()
        };
        let dial = wire.over(dial(None));
        Box::new(EtcdStore::over(&address, access, dial, limit))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Leases
            | Ability::Line
            | Ability::Shared
            | Ability::TakingAway
            | Ability::TimeLeft
            | Ability::Superseding
            | Ability::Servers => None,
            Ability::Healing => Some("etcd: a lock that is gone is not set again"),
            Ability::Records => Some("etcd: no run is recorded but a success"),
            Ability::Slots => Some("etcd: there is no recipe for slots"),
            Ability::LongerLeases => Some("etcd: a lease keeps its length"),
            Ability::Uptime => Some("etcd: the members forget nothing"),
        }
    }

    fn orders_by_arrival(&self) -> bool {
        true
    }

    fn delete(&self, key: &Key) {
        let folder = format!("{}/", key.stored());
        self.0.borrow().ctl(&["del", "--prefix", &folder]);
    }

    fn occupy(&self, key: &Key) -> Box<dyn Any> {
        self.0
            .borrow()
            .ctl(&["put", &format!("{}/mine", key.stored()), ""]);
        Box::new(())
    }

    fn hang(&self, _key: &Key) {
        self.0.borrow().freeze(0);
    }

    fn resume(&self, _key: &Key) {
        let etcd = self.0.borrow();
        etcd.thaw(0);
        etcd.settle();
    }

    fn restart(&self, _key: &Key, data: Data) {
        assert_eq!(data, Data::Kept, "the members forget nothing");
        let mut etcd = self.0.borrow_mut();
        etcd.kill(0);
        etcd.come_back(0);
        etcd.settle();
    }
}
