//! Servers that replace one another: a deployment, in a thread of its own with its faults, while
//! contenders take a lock there.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use testkit::now;

use crate::fault::{Event, Fault};
use crate::foreign::Foreign;

/// Servers that have faults of their own kind, or of which one takes over from another.
pub(crate) trait Deployment: Send {
    /// Returns the node's address for a contender. Only one with an address of its own can be cut
    /// off.
    fn url_for(&self, contender: usize) -> String;

    /// Returns the client of another project that contends for the lock too.
    fn foreign(&self) -> Option<Box<dyn Foreign>> {
        None
    }

    /// Injects a random fault, and waits until the next one may follow. Returns the fault and its
    /// target.
    fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<(Fault, String)>;

    /// Waits until every server has taken its place: what one that was replaced still has is gone
    /// then.
    fn settle(&self);

    /// Returns what is left of locks on the servers.
    fn left(&self) -> Result<Vec<String>>;
}

/// A deployment when its faults are over, and these.
type Ended = (Box<dyn Deployment>, Vec<Event>);

/// A deployment, and the thread of its faults.
pub(crate) struct Unrest {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<Ended>>,
}

impl Unrest {
    /// Starts the thread. `log` gets the faults.
    pub(crate) fn start(mut deployment: Box<dyn Deployment>, seed: u64, mut log: File) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (is_over, mut random) = (Arc::clone(&ends), fastrand::Rng::with_seed(seed));
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let at = now();
                let (fault, target) = deployment.inject_one(&mut random)?;
                writeln!(log, "{} {} ({target})", at.as_nanos(), fault.name())?;
                events.push(Event { at, fault, target });
                pause(&mut random, 300..1700);
            }
            Ok((deployment, events))
        });
        Self { ends, thread }
    }

    /// Waits for the end of the last fault, and returns the deployment and all faults.
    pub(crate) fn finish(self) -> Result<Ended> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("a fault of the servers did not end"))?
            .context("a fault of the servers")
    }
}

/// Waits for a random time.
pub(crate) fn pause(random: &mut fastrand::Rng, millis: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(random.u64(millis)));
}

/// Kills all connections of clients to a server.
pub(crate) fn kill_connections(server: &testkit::Server) {
    for kind in ["normal", "pubsub"] {
        server.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}
