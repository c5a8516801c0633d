//! Several independent servers: the nodes of one lock.

use std::ops::{Deref, DerefMut};

use crate::{Server, eventually};

/// Servers that are killed on drop.
pub struct Nodes(Vec<Server>);

impl Nodes {
    /// Starts `count` servers on unix sockets.
    pub fn start(count: usize) -> Self {
        Self::each(count, Server::start)
    }

    /// Starts `count` servers that also listen on TCP ports of their own.
    pub fn tcp(count: usize) -> Self {
        Self::each(count, || Server::tcp(&[]))
    }

    /// Starts all at once: a start is mostly waiting.
    fn each(count: usize, start: impl Fn() -> Server + Sync) -> Self {
        let servers = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(&start)).collect();
            starting
                .into_iter()
                .map(|server| server.join().expect("a server"))
                .collect()
        });
        Self(servers)
    }

    /// Returns the addresses as `--node` takes them.
    pub fn url(&self) -> String {
        self.0.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// Returns what redis-cli prints for `command`, node by node.
    pub fn cli(&self, command: &[&str]) -> Vec<String> {
        self.0.iter().map(|server| server.cli(command)).collect()
    }

    /// Returns the value at the key `job`, node by node; empty where there is none.
    pub fn job(&self) -> Vec<String> {
        self.cli(&["GET", "job"])
    }

    /// Checks that no node has a value at the key `job`.
    #[track_caller]
    pub fn are_clean(&self) {
        assert!(self.job().iter().all(String::is_empty), "{:?}", self.job());
    }

    /// Waits until no node has a value at the key `job`. It proves a release only if the leases
    /// cannot have run out by then.
    pub fn become_clean(&self) {
        eventually("all keys are gone", || {
            self.job().iter().all(String::is_empty)
        });
    }
}

impl Deref for Nodes {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.0
    }
}

impl DerefMut for Nodes {
    fn deref_mut(&mut self) -> &mut [Server] {
        &mut self.0
    }
}
