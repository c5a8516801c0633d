//! A simulated machine with a server on it: its wall clock, and whether the server runs, is stopped
//! or is down.

use std::collections::BTreeMap;
use std::time::Duration;

use rlock::lock::instant::Instant;

use crate::client::UNIX_BEGIN;
use crate::kernel::{BEGIN, Kernel};
use crate::network::{self, Packet, SocketId, Way};
use crate::server::{Kept, Peer, Server, Snapshot, Value, WallMicros, Watch};

/// Bytes that Redis 6.2 reads at once. Of a client that has gone it reads no more than this when it
/// resumes.
const READ_AT_ONCE: usize = 16 * 1024;

/// A day in microseconds.
const DAY: i64 = 24 * 3_600_000_000;

/// The first word of the reply of heal.lua, where it has set the key again.
const HEALED: &[u8] = b"$6\r\nhealed\r\n";

/// A wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WallClock {
    /// Its error, in microseconds.
    pub ahead: i64,
    /// Parts per million by which it is too fast.
    pub rate: i64,
}

impl WallClock {
    /// Returns its time, in unix microseconds.
    pub fn at(self, now: Instant) -> WallMicros {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let passed = micros(now.since(BEGIN));
        WallMicros(micros(UNIX_BEGIN) + passed + passed * self.rate / 1_000_000 + self.ahead)
    }

    /// Returns how fast it goes.
    pub fn speed(self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "some thousand")]
        let rate = self.rate as f64;
        1.0 + rate / 1e6
    }
}

/// Whether a server's process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs.
    Up,
    /// SIGSTOP: the kernel still takes connections and bytes.
    Stopped,
    /// It has ended.
    Down,
}

impl State {
    /// Answers a request for a connection, as the kernel of the server's machine does.
    pub fn answer(self, kernel: &mut Kernel, socket: SocketId, packet: &Packet) {
        if *packet == Packet::Open {
            let answer = match self {
                Self::Down => Packet::Reset,
                Self::Up | Self::Stopped => Packet::Open,
            };
            network::send(kernel, socket, Way::Down, answer);
        }
    }
}

/// The key of the newest waiter with `--supersede`, where all clients want one lock.
const NEWEST: &[u8] = b"rlock:newest:{job}:job";

/// A server and its machine.
#[derive(Debug)]
pub struct Node {
    number: usize,
    server: Server,
    state: State,
    clock: WallClock,
    peers: BTreeMap<SocketId, Peer>,
    sockets: BTreeMap<Peer, SocketId>,
    /// Packets that came while the server was stopped.
    inbox: Vec<(SocketId, Packet)>,
    /// When the server last started.
    started: Instant,
    /// Its data at an earlier time.
    snapshot: Option<Snapshot>,
}

impl Node {
    /// A server that has been up for a day.
    pub fn new(number: usize, clock: WallClock) -> Self {
        let WallMicros(begin) = clock.at(BEGIN);
        let server = Server::new("node", number as u64, WallMicros(begin - DAY));
        let (peers, sockets) = Default::default();
        Self {
            number,
            server,
            state: State::Up,
            clock,
            peers,
            sockets,
            inbox: Vec::new(),
            started: Instant::from_nanos(0),
            snapshot: None,
        }
    }

    /// Puts a sentinel on the machine that has seen its primary for a day. `watch`: what it watches
    /// since then.
    pub fn watch(&mut self, watch: impl FnOnce(WallMicros) -> Watch) {
        let since = WallMicros(self.clock.at(BEGIN).0 - DAY);
        self.server = Server::sentinel("sentinel", self.number as u64, since, watch(since));
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The server, to be harmed.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Returns the wall-clock time of the machine.
    pub fn wall(&self, now: Instant) -> WallMicros {
        self.clock.at(now)
    }

    /// Whether the server runs.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether the server is stopped.
    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Returns when the server last started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Takes a packet from the network.
    pub fn take(&mut self, kernel: &mut Kernel, socket: SocketId, packet: Packet) {
        self.state.answer(kernel, socket, &packet);
        match self.state {
            State::Down => {}
            State::Stopped => self.inbox.push((socket, packet)),
            State::Up => self.serve(kernel, socket, packet),
        }
    }

    fn serve(&mut self, kernel: &mut Kernel, socket: SocketId, packet: Packet) {
        match packet {
            Packet::Open => {
                let peer = self.server.connect();
                self.peers.insert(socket, peer);
                self.sockets.insert(peer, socket);
            }
            Packet::Bytes(bytes) => {
                let Some(&peer) = self.peers.get(&socket) else {
                    return;
                };
                let wall = self.clock.at(kernel.now);
                let written = self.server.receive(peer, &bytes, wall);
                self.write(kernel, written);
                if let Some(newest) = self.newest(wall) {
                    kernel.witness.is_newest_at(self.number, newest, kernel.now);
                }
            }
            Packet::End | Packet::Reset => self.forget(socket),
        }
    }

    fn write(&self, kernel: &mut Kernel, written: Vec<(Peer, Vec<u8>)>) {
        for (peer, bytes) in written {
            kernel.witness.counts.healed +=
                u64::from(bytes.windows(HEALED.len()).any(|part| part == HEALED));
            if let Some(&socket) = self.sockets.get(&peer) {
                network::send(kernel, socket, Way::Down, Packet::Bytes(bytes));
            }
        }
    }

    /// Answers a client that has waited for replicas.
    pub fn answer(&mut self, kernel: &mut Kernel, peer: Peer, replicas: usize) {
        let written = self
            .server
            .answer(peer, replicas, self.clock.at(kernel.now));
        self.write(kernel, written);
    }

    /// The number of the newest waiter that the server knows.
    fn newest(&self, wall: WallMicros) -> Option<u64> {
        let Value::String(text) = &self.server.get(NEWEST, wall)?.value else {
            return None;
        };
        std::str::from_utf8(text)
            .ok()?
            .split(' ')
            .next()?
            .parse()
            .ok()
    }

    fn forget(&mut self, socket: SocketId) {
        if let Some(peer) = self.peers.remove(&socket) {
            self.sockets.remove(&peer);
            self.server.disconnect(peer);
        }
    }

    /// Stops the server as SIGSTOP does.
    pub fn stop(&mut self) {
        if self.state == State::Up {
            self.state = State::Stopped;
        }
    }

    /// Continues a stopped server. It reads what its clients have written, in any order of the
    /// clients. Of a client that has gone it reads all, or what it reads at once, or nothing.
    pub fn resume(&mut self, kernel: &mut Kernel) {
        if self.state != State::Stopped {
            return;
        }
        self.state = State::Up;
        let mut inbox: BTreeMap<SocketId, Vec<Packet>> = BTreeMap::new();
        for (socket, packet) in std::mem::take(&mut self.inbox) {
            inbox.entry(socket).or_default().push(packet);
        }
        let mut left: Vec<_> = inbox.into_iter().collect();
        while !left.is_empty() {
            let (socket, packets) = left.swap_remove(kernel.random.below(left.len()));
            let has_gone = packets
                .iter()
                .any(|packet| matches!(packet, Packet::End | Packet::Reset));
            let most = if has_gone {
                kernel
                    .random
                    .weighted(&[(2, usize::MAX), (1, READ_AT_ONCE), (1, 0)])
            } else {
                usize::MAX
            };
            let mut room = most;
            for packet in packets {
                match packet {
                    Packet::Bytes(mut bytes) => {
                        bytes.truncate(room);
                        room -= bytes.len();
                        self.serve(kernel, socket, Packet::Bytes(bytes));
                    }
                    other => self.serve(kernel, socket, other),
                }
            }
        }
    }

    /// Ends the server as SIGKILL does: its connections break.
    pub fn kill(&mut self, kernel: &mut Kernel) {
        if self.state == State::Down {
            return;
        }
        self.state = State::Down;
        let pending = std::mem::take(&mut self.inbox)
            .into_iter()
            .map(|(socket, _)| socket);
        let mut broken: Vec<SocketId> = self.peers.keys().copied().chain(pending).collect();
        broken.sort_unstable();
        broken.dedup();
        for socket in broken {
            self.forget(socket);
            network::send(kernel, socket, Way::Down, Packet::Reset);
        }
    }

    /// Remembers the data as they are now, for a later restart.
    pub fn save(&mut self) {
        self.snapshot = Some(self.server.snapshot());
    }

    /// Starts the server again, with the data that `kept` says.
    pub fn restart(&mut self, kernel: &mut Kernel, kept: Survives) {
        self.kill(kernel);
        if kept != Survives::All {
            kernel.witness.forgets(kernel.now);
        }
        let kept = match (kept, self.snapshot.take()) {
            (Survives::All, _) => Kept::All,
            (Survives::Saved, Some(snapshot)) => Kept::Snapshot(snapshot),
            (Survives::Saved | Survives::Nothing, _) => Kept::None,
        };
        self.server.restart(kept, self.clock.at(kernel.now));
        (self.state, self.started) = (State::Up, kernel.now);
    }

    /// Closes all connections, as CLIENT KILL does.
    pub fn disconnect_all(&mut self, kernel: &mut Kernel) {
        if self.state == State::Up {
            for socket in self.peers.keys().copied().collect::<Vec<_>>() {
                self.forget(socket);
                network::send(kernel, socket, Way::Down, Packet::End);
            }
        }
    }

    /// Makes the server a replica with these data, or a primary with them. Sentinels close its
    /// connections then.
    pub fn takes_role(&mut self, kernel: &mut Kernel, is_replica: bool, data: Option<Snapshot>) {
        if let Some(data) = data {
            self.server.load(data);
        }
        self.server.set_replica(is_replica);
        self.disconnect_all(kernel);
    }

    /// Sends a message that no client of the server has published to the subscribers of a channel.
    pub fn publish(&mut self, kernel: &mut Kernel, channel: &[u8], message: &[u8]) {
        for (peer, bytes) in self.server.publish(channel, message) {
            if let Some(&socket) = self.sockets.get(&peer) {
                network::send(kernel, socket, Way::Down, Packet::Bytes(bytes));
            }
        }
    }

    /// Sets the wall clock forward, or back, by `micros`.
    pub fn step_clock(&mut self, micros: i64) {
        self.clock.ahead += micros;
    }
}

/// Data of a server that survive a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survives {
    /// Everything.
    All,
    /// The data that were saved last.
    Saved,
    /// Nothing.
    Nothing,
}
