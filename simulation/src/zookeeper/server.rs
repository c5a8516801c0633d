//! A server of an ensemble: its log, its data, its clients, and its part among the others.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rlock::lock::instant::Instant;
use rlock::lock::token::Token;
use rlock::store::zookeeper::jute::Request;

use super::replica::Replica;
use super::sessions::Tracker;
use super::tree::{Answer, Transaction};
use crate::kernel::{BEGIN, Kernel};
use crate::network::{self, Packet, SocketId, Way};
use crate::node::{State, WallClock};

/// The request of a client at a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub(super) server: usize,
    pub(super) socket: SocketId,
    /// Its number among all requests.
    pub(super) number: u64,
}

/// A transaction in a log.
#[derive(Debug)]
pub struct Entry {
    pub(super) transaction: Transaction,
    pub(super) asker: Asker,
}

/// The party that wants a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    Leader,
    Client(Origin),
    /// A hand that takes away the lock of this holder, whose session has this timeout.
    Hand(Token, Duration),
}

/// Something that wants a transaction.
#[derive(Clone, Debug)]
pub enum Wish {
    /// A new session, with this timeout.
    Begin(i32),
    Request(Request),
}

/// A message between a leader and a follower, over the connection that the follower has made.
#[derive(Clone, Debug)]
pub enum Message {
    /// A client of the follower wants a transaction for its session.
    Wish(i64, Wish, Origin),
    /// A client of the follower wants to attach its session, with this timeout.
    Attach(SocketId, i64, i32),
    /// The sessions that the follower has heard of, and their timeouts.
    Heard(BTreeMap<i64, i32>),
    /// Number of transactions on the follower's disk.
    Logged(usize),
    Propose(Rc<Entry>),
    /// Number of transactions that are agreed on.
    Commit(usize),
    /// The answer to `Attach`.
    Attached(SocketId, i64, bool),
    Ping,
    /// The connection is closed.
    Closed,
}

/// An input that came while a server was stopped.
#[derive(Debug)]
pub(super) enum Input {
    Packet(SocketId, Packet),
    Message(usize, u64, Message),
}

/// The part of a server among the others.
#[derive(Debug)]
pub(super) enum Role {
    /// It knows no leader, and serves no clients.
    Looking,
    Following(Following),
    Leading(Leading),
}

/// A follower's view.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) leader: usize,
    /// The number of its connection to the leader.
    pub(super) link: u64,
    /// When it heard the leader last.
    pub(super) heard_at: Instant,
    /// The sessions that it has heard of since the leader's last ping, and their timeouts.
    pub(super) heard: BTreeMap<i64, i32>,
}

/// A leader's view.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) tracker: Tracker,
    /// Number of ticks that it has counted.
    pub(super) ticks: u64,
    pub(super) followers: BTreeMap<usize, Follower>,
    /// Number of transactions that are agreed on.
    pub(super) committed: usize,
    /// Number of transactions in its epoch.
    pub(super) proposed: i64,
}

/// A follower as its leader sees it.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) link: u64,
    /// The tick until which it counts as one that follows.
    pub(super) counts_until: u64,
    /// Number of transactions on its disk.
    pub(super) logged: usize,
    /// Since when a transaction is to come to its disk.
    pub(super) behind_since: Option<Instant>,
}

/// A request whose reply is to come in its turn.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) xid: i32,
    pub(super) reply: Reply,
    /// Whether the connection ends with it.
    pub(super) is_last: bool,
}

#[derive(Debug)]
pub(super) enum Reply {
    /// It waits for the transaction of this number.
    Waits(u64),
    /// It is answered after the transaction of this zxid.
    Known(Answer, i64),
    /// It is read when its turn comes.
    Reads(Request),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It is to name a session.
    Fresh,
    /// The leader is asked. Nothing is read meanwhile.
    Attaching,
    Attached,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stage: Stage,
    pub(super) session: i64,
    pub(super) timeout: i32,
    pub(super) input: Vec<u8>,
    /// Whether the client has closed it.
    pub(super) is_ended: bool,
    pub(super) asked: VecDeque<Asked>,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Fresh,
            session: 0,
            timeout: 0,
            input: Vec::new(),
            is_ended: false,
            asked: VecDeque::new(),
        }
    }
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) state: State,
    /// Its disk stands still.
    pub(super) is_stalled: bool,
    /// The part of the network that it is in.
    pub(super) part: usize,
    /// Added to the time of each message from its leader.
    pub(super) lag: Duration,
    pub(super) clock: WallClock,
    pub(super) role: Role,
    /// Number of times that it looked for a leader.
    pub(super) searches: u64,
    pub(super) epoch: i64,
    pub(super) log: Vec<Rc<Entry>>,
    /// Number of transactions on its disk.
    pub(super) logged: usize,
    pub(super) replica: Replica,
    /// Number of transactions that the replica knows.
    pub(super) applied: usize,
    pub(super) connections: BTreeMap<SocketId, Connection>,
    pub(super) inbox: Vec<Input>,
}

impl Server {
    pub(super) fn new(clock: WallClock) -> Self {
        Self {
            state: State::Up,
            is_stalled: false,
            part: 0,
            lag: Duration::ZERO,
            clock,
            role: Role::Looking,
            searches: 0,
            epoch: 0,
            log: Vec::new(),
            logged: 0,
            replica: Replica::default(),
            applied: 0,
            connections: BTreeMap::new(),
            inbox: Vec::new(),
        }
    }

    /// Whether it can lead, or follow.
    pub(super) fn is_able(&self) -> bool {
        self.state == State::Up && !self.is_stalled
    }

    /// The time by its clock that cannot be set.
    pub(super) fn time(&self, now: Instant) -> Duration {
        now.since(BEGIN).mul_f64(self.clock.speed())
    }

    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    /// The zxid of its newest transaction, which may not be agreed on.
    pub(super) fn newest(&self) -> i64 {
        self.log.last().map_or(0, |entry| entry.transaction.zxid)
    }

    /// Writes to a client.
    pub(super) fn write(kernel: &mut Kernel, socket: SocketId, bytes: Vec<u8>) {
        network::send(kernel, socket, Way::Down, Packet::Bytes(bytes));
    }

    /// Closes a connection.
    pub(super) fn hang_up(&mut self, kernel: &mut Kernel, socket: SocketId) {
        if self.connections.remove(&socket).is_some() {
            self.replica.forget(socket);
            network::send(kernel, socket, Way::Down, Packet::End);
        }
    }

    /// Closes all connections. `packet`: the last word to each client.
    pub(super) fn disconnect(&mut self, kernel: &mut Kernel, packet: &Packet) {
        let mut sockets: Vec<SocketId> = self.connections.keys().copied().collect();
        for input in std::mem::take(&mut self.inbox) {
            match input {
                Input::Packet(socket, _) if !sockets.contains(&socket) => sockets.push(socket),
                Input::Packet(..) => {}
                message @ Input::Message(..) => self.inbox.push(message),
            }
        }
        self.connections.clear();
        for socket in sockets {
            self.replica.forget(socket);
            network::send(kernel, socket, Way::Down, packet.clone());
        }
    }

    /// Reads its log anew, as a process does that begins.
    pub(super) fn restart(&mut self) {
        self.log.truncate(self.logged);
        if self.applied > self.logged {
            self.replica = Replica::default();
            for entry in &self.log {
                self.replica.execute(&entry.transaction);
            }
            self.applied = self.logged;
        }
    }
}
