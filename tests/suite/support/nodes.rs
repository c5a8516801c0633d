//! Several servers, independent of each other: the nodes of one lock.

use std::ops::{Deref, DerefMut};

use super::{Server, eventually};

/// Servers that are gone when the test is.
pub(crate) struct Nodes(Vec<Server>);

impl Nodes {
    /// So many servers on unix sockets.
    pub(crate) fn start(count: usize) -> Self {
        Self::each(count, Server::start)
    }

    /// The same, also on free TCP ports.
    pub(crate) fn tcp(count: usize) -> Self {
        Self::each(count, || Server::tcp(&[]))
    }

    /// All at once: a start is mostly waiting.
    fn each(count: usize, start: impl Fn() -> Server + Sync) -> Self {
        let servers = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(&start)).collect();
            starting.into_iter().map(|server| server.join().expect("a server")).collect()
        });
        Self(servers)
    }

    /// What `--node` takes.
    pub(crate) fn url(&self) -> String {
        self.0.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// What redis-cli prints for `command`, node by node.
    pub(crate) fn cli(&self, command: &[&str]) -> Vec<String> {
        self.0.iter().map(|server| server.cli(command)).collect()
    }

    /// What stands at the key `job`, node by node; empty where nothing does.
    pub(crate) fn job(&self) -> Vec<String> {
        self.cli(&["GET", "job"])
    }

    /// Nothing stands at the key `job` any more.
    #[track_caller]
    pub(crate) fn are_clean(&self) {
        assert!(self.job().iter().all(String::is_empty), "{:?}", self.job());
    }

    /// Nothing stands at the key `job` once those who wake have done what was sent to them. Leases that are not over
    /// by then are what makes this a proof.
    pub(crate) fn become_clean(&self) {
        eventually("all keys are gone", || self.job().iter().all(String::is_empty));
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
