//! Databases: one server with ShedLock's table, and a row of ShedLock's as what is not rlock's.

use std::any::Any;
use std::cell::RefCell;
use std::process::Command;
use std::time::Duration;

use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::sql::SqlStore;
use rlock::store::sql::session::{SqlAccess, dial};

use super::{Ability, Data, Wire, World};
use crate::{MariaDb, Postgres, Shared};

/// A server with the table.
pub trait Database: Sized + 'static {
    /// Starts one; `None` where it is not installed.
    fn start() -> Option<Self>;

    /// Returns the one that the scenarios share.
    fn shared() -> &'static Shared<Option<SqlWorld<Self>>>;

    /// Returns the address for rlock.
    fn url(&self) -> String;

    /// Returns what the database's client prints of statements, as the superuser.
    fn sql(&self, statements: &str) -> String;

    /// Returns the database's client as the superuser. It reads statements from its input.
    fn client(&self) -> Command;

    /// Returns `locked_by` of a lock, if its end has not come.
    fn holder(&self, key: &str) -> Option<String>;

    /// The statement that counts the waiters in line.
    const WAITERS: &'static str;

    /// Returns the statement with which ShedLock takes the lock for an hour.
    fn occupies(name: &str) -> String;

    /// Stops it.
    fn freeze(&self);

    /// Continues it.
    fn thaw(&self);

    /// Kills it, as a crash does.
    fn kill(&mut self);

    /// Starts it again.
    fn come_back(&mut self);
}

impl Database for Postgres {
    const WAITERS: &'static str =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";

    fn start() -> Option<Self> {
        Self::start()
    }

    fn shared() -> &'static Shared<Option<SqlWorld<Self>>> {
        static SHARED: Shared<Option<PostgresWorld>> = Shared::new();
        &SHARED
    }

    fn url(&self) -> String {
        self.url()
    }

    fn sql(&self, statements: &str) -> String {
        self.sql(statements)
    }

    fn client(&self) -> Command {
        self.client()
    }

    fn holder(&self, key: &str) -> Option<String> {
        self.holder(key)
    }

    fn occupies(name: &str) -> String {
        format!(
            "INSERT INTO shedlock VALUES('{name}', timezone('utc', now()) + interval '1 hour', timezone('utc', now()), 'host1') \
             ON CONFLICT (name) DO UPDATE SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = 'host1'"
        )
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }

    fn kill(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.come_back();
    }
}

impl Database for MariaDb {
    const WAITERS: &'static str =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'";

    fn start() -> Option<Self> {
        Self::start()
    }

    fn shared() -> &'static Shared<Option<SqlWorld<Self>>> {
        static SHARED: Shared<Option<MariaDbWorld>> = Shared::new();
        &SHARED
    }

    fn url(&self) -> String {
        self.url()
    }

    fn sql(&self, statements: &str) -> String {
        self.sql(statements)
    }

    fn client(&self) -> Command {
        self.client()
    }

    fn holder(&self, key: &str) -> Option<String> {
        self.holder(key)
    }

    fn occupies(name: &str) -> String {
        format!(
            "INSERT INTO shedlock VALUES('{name}', UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, UTC_TIMESTAMP(3), 'host1') \
             ON DUPLICATE KEY UPDATE lock_until = VALUES(lock_until), locked_at = VALUES(locked_at), locked_by = 'host1'"
        )
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }

    fn kill(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.come_back();
    }
}

/// A server that the scenarios share.
pub struct SqlWorld<D>(RefCell<D>);

/// PostgreSQL.
pub type PostgresWorld = SqlWorld<Postgres>;

/// MariaDB.
pub type MariaDbWorld = SqlWorld<MariaDb>;

impl<D: Database> World for SqlWorld<D> {
    fn with(test: impl FnOnce(&Self)) {
        let start = || D::start().map(|server| Self(RefCell::new(server)));
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
