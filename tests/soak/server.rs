//! A server that is hurt: beside what the kit can do to one, a slow way to it, and questions that
//! end.

use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use testkit::{Delay, Proxy};

use crate::{network, tool};

/// Delays on a slow way in ms, drawn anew for each request or reply. The node timeout of the
/// contenders is 150 ms.
const SLOW: std::ops::RangeInclusive<u64> = 50..=400;

/// A server, and a second way to it that can be slow.
pub(crate) struct Server {
    redis: testkit::Server,
    proxy: Proxy,
    /// Whether requests and replies are slow.
    slow: [Arc<AtomicBool>; 2],
}

/// A direction on the slow way.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Requests,
    Replies,
}

impl Server {
    /// Starts a server. If it `keeps` its data, they are in an append-only file, which a SIGKILL
    /// does not hurt.
    pub(crate) fn start(keeps: bool) -> Result<Self> {
        let append = if keeps { "yes" } else { "no" };
        let all = [
            "--bind",
            "0.0.0.0",
            "--protected-mode",
            "no",
            "--appendonly",
            append,
            "--appendfsync",
            "no",
        ];
        let redis = testkit::Server::tcp_with_clock(&all);
        let slow: [Arc<AtomicBool>; 2] = Default::default();
        let delay = |slow: &Arc<AtomicBool>| {
            let slow = Arc::clone(slow);
            let delay = move || {
                Duration::from_millis(if slow.load(Ordering::Relaxed) {
                    fastrand::u64(SLOW)
                } else {
                    0
                })
            };
            Box::new(delay) as Delay
        };
        let directions = slow.clone();
        let delays = move |_| directions.each_ref().map(delay);
        let proxy = Proxy::open(Ipv4Addr::UNSPECIFIED, redis.port(), delays)?;
        Ok(Self { redis, proxy, slow })
    }

    /// Returns its address for the contender `number`, on a network address of its own, so that the
    /// contender can be cut off alone. Every other contender gets the proxy's, so that a slow
    /// server is not slow for all.
    pub(crate) fn url_for(&self, contender: usize) -> String {
        let port = if contender.is_multiple_of(2) {
            self.proxy.port()
        } else {
            self.port()
        };
        format!("redis://{}:{port}", network::address(contender))
    }

    /// Asks the server.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<String> {
        ask(self, words)
    }

    /// Kills the server, and starts it again with the data that it keeps and the right time.
    pub(crate) fn restart(&mut self) {
        self.crash();
        self.come_back_in_time();
    }

    /// Starts the server after a crash, with the right time.
    pub(crate) fn come_back_in_time(&mut self) {
        self.set_clock(0);
        self.come_back();
    }

    /// Makes a direction slow or fast.
    pub(crate) fn set_slow(&self, direction: Direction, slow: bool) {
        self.slow[direction as usize].store(slow, Ordering::Relaxed);
    }
}

/// Returns what redis-cli prints, or an error after some seconds: a stopped server answers nothing.
pub(crate) fn ask(server: &testkit::Server, words: &[&str]) -> Result<String> {
    let socket = server.socket().to_string_lossy().into_owned();
    tool::run("redis-cli", &[&["-e", "-s", &socket], words].concat())
}

/// Returns the keys on `servers`, fence counters and records excepted.
pub(crate) fn left<'s>(
    servers: impl IntoIterator<Item = &'s testkit::Server>,
) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for server in servers {
        let all = ask(server, &["KEYS", "*"])?;
        let stays = |key: &str| {
            ["rlock:fence:", "rlock:last:"]
                .iter()
                .any(|kind| key.starts_with(kind))
        };
        for key in all.lines().filter(|key| !key.is_empty() && !stays(key)) {
            let is_queue = key.starts_with("rlock:queue:");
            let waiters = if is_queue {
                ask(server, &["ZRANGE", key, "0", "-1"])?
            } else {
                String::new()
            };
            keys.push(format!("{key} {waiters}").trim_end().to_owned());
        }
    }
    Ok(keys)
}

impl Deref for Server {
    type Target = testkit::Server;

    fn deref(&self) -> &testkit::Server {
        &self.redis
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut testkit::Server {
        &mut self.redis
    }
}
