//! Databases: one server with ShedLock's table, and a row of ShedLock's as what is not rlock's.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::sql::SqlStore;
use rlock::store::sql::session::{SqlAccess, dial};

use super::{Ability, Data, Wire, World};
use crate::{Database, MariaDb, Postgres, Shared};

/// A server that the scenarios share.
pub struct SqlWorld<D>(RefCell<D>);

/// A database, of which the scenarios share one.
pub trait SharedDatabase: Database {
    /// Returns it.
    fn shared() -> &'static Shared<Option<SqlWorld<Self>>>;
}

impl SharedDatabase for Postgres {
    fn shared() -> &'static Shared<Option<SqlWorld<Self>>> {
        static SHARED: Shared<Option<PostgresWorld>> = Shared::new();
        &SHARED
    }
}

impl SharedDatabase for MariaDb {
    fn shared() -> &'static Shared<Option<SqlWorld<Self>>> {
        static SHARED: Shared<Option<MariaDbWorld>> = Shared::new();
        &SHARED
    }
}

/// PostgreSQL.
pub type PostgresWorld = SqlWorld<Postgres>;

/// MariaDB.
pub type MariaDbWorld = SqlWorld<MariaDb>;

impl<D: SharedDatabase> World for SqlWorld<D> {
    fn with(test: impl FnOnce(&Self)) {
        let start = || {
            D::start().map(|server| {
                server.sql(D::LINGERS);
                Self(RefCell::new(server))
            })
        };
        D::shared().with(start, |world| {
            if let Some(world) = world {
                test(world);
            }
        });
    }

    fn open(&self, wire: &Wire, limit: Duration) -> Box<dyn Store> {
        let Ok(Address::Sql(address)) = Address::parse(&self.0.borrow().url()) else {
            panic!("an address of a database")
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
            Ability::Line => Some("sql: the line tells who asks first, and decides nothing"),
            Ability::Superseding => Some("sql: a waiter does not know of others"),
            Ability::Shared | Ability::Slots => Some("sql: a row has one holder"),
            Ability::Uptime => Some("sql: a database keeps its locks over a restart"),
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
        self.0.borrow().sql(&D::occupies(key.stored()));
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
