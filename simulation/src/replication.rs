//! Asynchronous replication: the states of a primary that a replica has or will have.

use std::collections::VecDeque;
use std::time::Duration;

use rlock::lock::instant::Instant;

use crate::kernel::Kernel;
use crate::node::Node;
use crate::server::Snapshot;

/// Longest time in which a write reaches a replica, where nothing is slow.
const REPLICATION: Duration = Duration::from_millis(2);

/// The data that a replica gets.
#[derive(Debug)]
pub struct Link {
    /// The machine of its primary.
    pub primary: usize,
    /// When it gets which state of the primary. The first one is there.
    states: VecDeque<(Instant, Snapshot)>,
    /// When it gets the last of so many writes of this machine.
    written: VecDeque<(Instant, usize, u64)>,
}

impl Link {
    /// The link of a replica that has this state of its primary.
    pub fn new(primary: usize, state: Snapshot, now: Instant) -> Self {
        Self {
            primary,
            states: VecDeque::from([(now, state)]),
            written: VecDeque::new(),
        }
    }

    /// Returns when the replica gets the last of so many writes of machine `from`, as far as it was
    /// sent them.
    pub fn has(&self, from: usize, writes: u64) -> Option<Instant> {
        let is_later =
            |(_, machine, number): &&(Instant, usize, u64)| *machine == from && *number >= writes;
        self.written.iter().find(is_later).map(|(at, _, _)| *at)
    }

    /// Sends the data of machine `from`, if that is the primary, which take `lag` longer than
    /// usual.
    pub fn feed(&mut self, from: usize, node: &Node, lag: Duration, kernel: &mut Kernel) {
        if self.primary != from {
            return;
        }
        let arrives = kernel.now + lag + kernel.random.time(Duration::ZERO, REPLICATION);
        // A stream keeps its order.
        let at = self
            .states
            .back()
            .map_or(arrives, |(last, _)| arrives.max(*last));
        self.states.push_back((at, node.server().snapshot()));
        self.written.push_back((at, from, node.server().writes()));
        while self
            .written
            .get(1)
            .is_some_and(|(at, _, _)| *at <= kernel.now)
        {
            self.written.pop_front();
        }
        while self.states.get(1).is_some_and(|(at, _)| *at <= kernel.now) {
            self.states.pop_front();
        }
    }

    /// Gives the replica the data of machine `from` at once, if that is the primary.
    pub fn copy(&mut self, from: usize, node: &Node, now: Instant) {
        if self.primary == from {
            self.states = VecDeque::from([(now, node.server().snapshot())]);
        }
    }

    /// Returns the state that has arrived.
    pub fn arrived(mut self, now: Instant) -> Option<Snapshot> {
        self.states.retain(|(at, _)| *at <= now);
        self.states.pop_back().map(|(_, state)| state)
    }
}
