//! A member of a cluster: its clients, and what it knows of the others.

use std::collections::{BTreeMap, BTreeSet};

use rlock::lock::instant::Instant;

use super::connection::Connection;
use super::store::{Command, Refusal, Reply};
use crate::kernel::Kernel;
use crate::network::{self, Packet, SocketId, Way};
use crate::node::{State, WallClock};

/// A call of a client at this member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct CallId {
    pub(super) socket: SocketId,
    pub(super) number: u64,
}

/// A request that waits for a leader who can serve it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) call: CallId,
    pub(super) command: Command,
    pub(super) since: Instant,
}

/// A watch of one key.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) call: CallId,
    pub(super) key: Vec<u8>,
    pub(super) from: i64,
}

/// A lease as one leader counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) end: Instant,
    /// Its length in seconds.
    pub(super) ttl: i64,
}

/// Leases by their numbers, as one leader counts them.
pub(super) type Ends = BTreeMap<i64, Term>;

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) state: State,
    /// Its disk stands still: it hears nothing of raft, and answers what needs no raft.
    pub(super) is_stalled: bool,
    /// The part of the network that it is in.
    pub(super) part: usize,
    pub(super) clock: WallClock,
    /// The leader that it knows, and the term.
    pub(super) leader: Option<usize>,
    pub(super) term: u64,
    /// While it takes itself for the leader: when each lease ends.
    pub(super) ends: Ends,
    /// Keepalives of leases that are over and not ended yet.
    pub(super) unrenewed: Vec<(i64, usize, CallId, u64)>,
    pub(super) connections: BTreeMap<SocketId, Connection>,
    /// Packets that came while it was stopped.
    pub(super) inbox: Vec<(SocketId, Packet)>,
    pub(super) held: Vec<Held>,
    /// Results that it has not heard of yet.
    pub(super) results: Vec<(CallId, Result<Reply, Refusal>)>,
    pub(super) watches: Vec<Watch>,
    /// Number of events that it knows.
    pub(super) applied: usize,
}

impl Member {
    pub(super) fn new(clock: WallClock) -> Self {
        Self {
            state: State::Up,
            is_stalled: false,
            part: 0,
            clock,
            leader: None,
            term: 0,
            ends: Ends::new(),
            unrenewed: Vec::new(),
            connections: BTreeMap::new(),
            inbox: Vec::new(),
            held: Vec::new(),
            results: Vec::new(),
            watches: Vec::new(),
            applied: 0,
        }
    }

    /// Whether it takes part in raft.
    pub(super) fn is_live(&self) -> bool {
        self.state == State::Up && !self.is_stalled
    }

    /// Whether a client still waits for this call.
    pub(super) fn awaits(&self, call: CallId) -> bool {
        self.connections
            .get(&call.socket)
            .is_some_and(|connection| connection.is_open(call.number))
    }

    /// Answers a call.
    pub(super) fn reply(
        &mut self,
        kernel: &mut Kernel,
        call: CallId,
        answer: Result<Vec<u8>, Refusal>,
    ) {
        let Some(connection) = self.connections.get_mut(&call.socket) else {
            return;
        };
        match answer {
            Ok(message) => connection.answer(call.number, &message),
            Err(refusal) => connection.refuse(call.number, refusal),
        }
        self.flush(kernel, call.socket);
    }

    /// Tells a watch.
    pub(super) fn tell(&mut self, kernel: &mut Kernel, call: CallId, message: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&call.socket) {
            connection.tell(call.number, message);
            self.flush(kernel, call.socket);
        }
    }

    /// Sends what a connection has to say.
    pub(super) fn flush(&mut self, kernel: &mut Kernel, socket: SocketId) {
        if let Some(connection) = self.connections.get_mut(&socket) {
            let bytes = connection.take_outgoing();
            if !bytes.is_empty() {
                network::send(kernel, socket, Way::Down, Packet::Bytes(bytes));
            }
        }
    }

    /// Closes all connections. `packet`: the last word to each client.
    pub(super) fn disconnect(&mut self, kernel: &mut Kernel, packet: &Packet) {
        let pending = std::mem::take(&mut self.inbox).into_iter();
        let sockets: BTreeSet<SocketId> = pending
            .map(|(socket, _)| socket)
            .chain(self.connections.keys().copied())
            .collect();
        self.connections.clear();
        self.watches.clear();
        for socket in sockets {
            network::send(kernel, socket, Way::Down, packet.clone());
        }
    }
}
