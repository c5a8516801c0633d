//! PostgreSQL: one server with ShedLock's table, and a row of ShedLock's as what is not rlock's.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::sql::SqlStore;
use rlock::store::sql::session::{SqlAccess, dial};

use super::{Ability, Data, Wire, World};
use crate::{Postgres, Shared};

/// A server that the scenarios share.
pub struct PostgresWorld(RefCell<Postgres>);

impl World for PostgresWorld {
    fn with(test: impl FnOnce(&Self)) {
        static SHARED: Shared<Option<PostgresWorld>> = Shared::new();
        let start = || Postgres::start().map(|server| PostgresWorld(RefCell::new(server)));
        SHARED.with(start, |world| {
            if let Some(world) = world {
                test(world);
            }
        });
    }

    fn open(&self, wire: &Wire, limit: Duration) -> Box<dyn Store> {
        let Ok(Address::Sql(address)) = Address::parse(&self.0.borrow().url()) else {
            panic!("an address of PostgreSQL")
        };
        let access = SqlAccess {
            hosts: vec![(address.hosts[0].clone(), None)],
            user: "rlock".to_owned(),
            database: "rlock".to_owned(),
            trust: None,
            renew: None,
        };
        let dial = wire.over(dial());
        Box::new(SqlStore::over(&address, access, dial, limit))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Leases
            | Ability::Healing
            | Ability::TakingAway
            | Ability::Records
            | Ability::LongerLeases
            | Ability::TimeLeft
            | Ability::Servers => None,
            Ability::Line => Some("postgres: the line tells who asks first, and decides nothing"),
            Ability::Superseding => Some("postgres: a waiter does not know of others"),
            Ability::Shared | Ability::Slots => Some("postgres: a row has one holder"),
            Ability::Uptime => Some("postgres: a database keeps its locks over a restart"),
        }
    }

    fn dates_grants(&self) -> bool {
        true
    }

    fn delete(&self, key: &Key) {
        let name = key.stored();
        self.0
            .borrow()
            .sql(&format!("DELETE FROM shedlock WHERE name = '{name}'"));
    }

    fn occupy(&self, key: &Key) -> Box<dyn Any> {
        let name = key.stored();
        self.0.borrow().sql(&format!(
            "INSERT INTO shedlock VALUES('{name}', timezone('utc', now()) + interval '1 hour', timezone('utc', now()), 'host1') \
             ON CONFLICT (name) DO UPDATE SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = 'host1'"
        ));
        Box::new(())
    }

    fn hang(&self, _key: &Key) {
        self.0.borrow().freeze();
    }

    fn resume(&self, _key: &Key) {
        self.0.borrow().thaw();
    }

    fn restart(&self, key: &Key, data: Data) {
        let mut server = self.0.borrow_mut();
        server.kill();
        server.come_back();
        drop(server);
        // As after a failover to a server that had not heard of it.
        if data == Data::Lost {
            self.delete(key);
        }
    }
}
