//! Redis: one server, one that sentinels watch, and a cluster.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use nix::sys::signal::Signal;
use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::address::Address;
use rlock::store::redis::RedisServer;
use rlock::store::redis::connection::REPLY_LIMIT;
use rlock::store::redis::locator::Way;

use super::{Ability, Data, Wire, World};
use crate::processes::signal;
use crate::{Server, Shared, eventually};

/// Servers that other members take for dead never: a test that stops one wants no failover.
const NEVER: &str = "3600000";

/// Servers in this arrangement.
pub struct Servers<A> {
    all: RefCell<A>,
    /// The process that is stopped.
    hung: Cell<Option<i32>>,
}

/// One server.
pub type Redis = Servers<Server>;

/// A primary, its replicas and their sentinels.
pub type Sentinel = Servers<crate::Watched>;

/// Three primaries of a cluster.
pub type Cluster = Servers<crate::Cluster>;

/// An arrangement of servers.
pub trait Arrangement: Sized {
    /// Lets `test` have the servers for itself. They have no keys.
    fn with(test: impl FnOnce(&Servers<Self>));

    /// Returns the node's address.
    fn url(&self) -> String;

    /// Returns the server that has `key`.
    fn server_of(&mut self, key: &str) -> &mut Server;

    /// Waits until all of them know that a server is back.
    fn settle(&self);
}

impl Arrangement for Server {
    fn with(test: impl FnOnce(&Servers<Self>)) {
        test(&Servers::new(Self::start()));
    }

    fn url(&self) -> String {
        self.url()
    }

    fn server_of(&mut self, _key: &str) -> &mut Server {
        self
    }

    fn settle(&self) {}
}

impl Arrangement for crate::Watched {
    fn with(test: impl FnOnce(&Servers<Self>)) {
        static SHARED: Shared<Sentinel> = Shared::new();
        let start = || {
            let all = Self::start();
            for sentinel in &all.sentinels {
                sentinel.cli(&["SENTINEL", "SET", "svc", "down-after-milliseconds", NEVER]);
            }
            Servers::new(all)
        };
        SHARED.with(start, |servers| test(servers));
    }

    fn url(&self) -> String {
        self.url()
    }

    fn server_of(&mut self, _key: &str) -> &mut Server {
        let primary = self.agreed();
        &mut self.servers[primary]
    }

    fn settle(&self) {
        self.settled();
    }
}

impl Arrangement for crate::Cluster {
    fn with(test: impl FnOnce(&Servers<Self>)) {
        static SHARED: Shared<Cluster> = Shared::new();
        let start = || {
            let all = Self::start(3, false);
            for server in &all.servers {
                server.cli(&["CONFIG", "SET", "cluster-node-timeout", NEVER]);
            }
            Servers::new(all)
        };
        SHARED.with(start, |servers| test(servers));
    }

    fn url(&self) -> String {
        self.url()
    }

    fn server_of(&mut self, key: &str) -> &mut Server {
        let owner = self.owner(key);
        &mut self.servers[owner]
    }

    fn settle(&self) {
        self.settled();
    }
}

impl<A: Arrangement> Servers<A> {
    fn new(all: A) -> Self {
        Self {
            all: RefCell::new(all),
            hung: Cell::default(),
        }
    }

    /// Returns what the server that has `key` replies.
    fn ask(&self, key: &Key, command: &[&str]) -> String {
        self.all.borrow_mut().server_of(key.stored()).cli(command)
    }
}

impl<A: Arrangement> World for Servers<A> {
    fn with(test: impl FnOnce(&Self)) {
        A::with(test);
    }

    fn open(&self, wire: &Wire, limit: Duration) -> Box<dyn Store> {
        let address = Address::parse(&self.all.borrow().url()).expect("an address");
        let way = Way::new(address.remote().expect("an arrangement of servers"));
        let locator = way.locator_over(limit, &wire.connect());
        Box::new(RedisServer::at(
            way.to_string(),
            locator,
            limit,
            REPLY_LIMIT,
        ))
    }

    fn lacks(&self, _ability: Ability) -> Option<&'static str> {
        None
    }

    fn delete(&self, key: &Key) {
        assert_eq!(self.ask(key, &["DEL", key.stored()]), "1", "{key} was set");
    }

    fn occupy(&self, key: &Key) -> Box<dyn Any> {
        assert_eq!(
            self.ask(key, &["SET", key.stored(), "mine", "NX"]),
            "OK",
            "{key} was free"
        );
        Box::new(())
    }

    fn hang(&self, key: &Key) {
        let mut all = self.all.borrow_mut();
        let server = all.server_of(key.stored());
        server.freeze();
        self.hung.set(Some(server.pid()));
    }

    fn resume(&self, key: &Key) {
        signal(
            self.hung.take().expect("a server that hangs"),
            Signal::SIGCONT,
        );
        let mut all = self.all.borrow_mut();
        all.settle();
        all.server_of(key.stored()).wake();
    }

    fn restart(&self, key: &Key, data: Data) {
        let mut all = self.all.borrow_mut();
        let server = all.server_of(key.stored());
        if data == Data::Lost {
            server.cli(&["FLUSHALL"]);
        }
        // A server loads its dump when it starts, however it was configured to make one.
        eventually("it saves its data", || server.cli(&["SAVE"]) == "OK");
        server.crash();
        server.come_back();
        all.settle();
    }
}
