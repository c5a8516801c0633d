//! A Redis server in memory, for simulations: bytes in, bytes out, with the clock passed in.
//!
//! 1. It executes the scripts that clients send, in an embedded Lua 5.1, with the commands that
//!    rlock uses.
//! 2. It behaves as Redis 7.0; `tests/suite/simulated_server` compares it with real servers.
//! 3. It knows no sockets, no threads and no time of its own. The same calls give the same bytes.

mod command;
mod condition;
mod identity;
mod keyspace;
mod member;
mod number;
mod peers;
mod refusal;
mod reply;
mod request;
mod script;
mod sorted_set;
mod state;
mod wait;
mod watch;

pub use condition::Right;
pub use keyspace::{Entry, Fields, Value};
pub use member::{Member, SLOTS, Slots, slot};
pub use peers::Peer;
pub use sorted_set::SortedSet;
pub use wait::Wait;
pub use watch::{Address, Watch};

use identity::Identity;
use refusal::Refusal;
use reply::Reply;
use request::Garbled;
use state::State;

/// A server's wall clock: unix time in µs. Expiries, TIME and the uptime go by it, so a step
/// changes all three.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct WallMicros(pub i64);

/// The data of a server at some moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    data: keyspace::Keyspace,
}

/// The data with which a server starts again.
#[derive(Clone, Debug)]
pub enum Kept {
    /// All that it had, as with `appendfsync always`.
    All,
    /// Nothing: it does not persist.
    None,
    /// An earlier state.
    Snapshot(Snapshot),
}

/// A redis-server process with its data.
#[derive(Debug)]
pub struct Server {
    state: State,
}

impl Server {
    /// Starts an empty server. Its ids follow from `name` and `seed`.
    pub fn new(name: &str, seed: u64, now: WallMicros) -> Self {
        Self {
            state: State::new(Identity::new(name, seed, now)),
        }
    }

    /// Starts a sentinel.
    pub fn sentinel(name: &str, seed: u64, now: WallMicros, watch: Watch) -> Self {
        let mut sentinel = Self::new(name, seed, now);
        sentinel.state.watch = Some(watch);
        sentinel
    }

    /// Makes it a member of a cluster.
    pub fn join(&mut self, member: Member) {
        self.state.member = Some(member);
    }

    /// The state of its cluster as it knows it, if it is in one.
    pub fn member_mut(&mut self) -> Option<&mut Member> {
        self.state.member.as_mut()
    }

    /// Takes the messages that the other members are to pass on, as channels and texts.
    pub fn take_bus(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.state.bus)
    }

    /// Takes a key away, with its value and the ms that it has left: the one half of a MIGRATE.
    pub fn take(&mut self, key: &[u8], now: WallMicros) -> Option<(Value, Option<i64>)> {
        let ms = now.0.div_euclid(1000);
        let entry = self
            .state
            .keyspace
            .entries
            .remove(key)
            .filter(|entry| entry.lives(ms))?;
        Some((entry.value, entry.expires.map(|expires| expires - ms)))
    }

    /// Adds a key with the ms that it has left: the other half.
    pub fn add(&mut self, key: Vec<u8>, (value, left): (Value, Option<i64>), now: WallMicros) {
        let expires = left.map(|left| now.0.div_euclid(1000) + left);
        self.state
            .keyspace
            .entries
            .insert(key, Entry { value, expires });
    }

    /// The service that it watches, if it is a sentinel.
    pub fn watch_mut(&mut self) -> Option<&mut Watch> {
        self.state.watch.as_mut()
    }

    /// Sends a message that no client of its own has published to the subscribers of a channel.
    /// Returns bytes for connections.
    pub fn publish(&mut self, channel: &[u8], message: &[u8]) -> Vec<(Peer, Vec<u8>)> {
        self.state.pass_on(channel, message);
        self.state.take_outbox()
    }

    /// Accepts a connection.
    pub fn connect(&mut self) -> Peer {
        self.state.peers.connect()
    }

    /// Closes a connection and forgets its subscriptions.
    pub fn disconnect(&mut self, peer: Peer) {
        self.state.peers.disconnect(peer);
    }

    /// Executes the requests that `bytes` complete. Returns bytes for this and other connections in
    /// the order in which the server writes them; none if the connection is closed.
    pub fn receive(&mut self, peer: Peer, bytes: &[u8], now: WallMicros) -> Vec<(Peer, Vec<u8>)> {
        if !self.state.peers.is_connected(peer) {
            return vec![];
        }
        self.state.caller = peer;
        self.state.set_clock(now);
        let mut pending = self.state.peers.take_pending(peer);
        if pending.is_empty() {
            let used = self.serve_all(bytes);
            pending.extend(bytes.get(used..).unwrap_or_default());
        } else {
            pending.extend(bytes);
            let used = self.serve_all(&pending);
            pending.drain(..used);
        }
        self.state.peers.keep_pending(peer, pending);
        self.state.take_outbox()
    }

    /// Takes the clients that have begun to wait for replicas.
    pub fn take_waits(&mut self) -> Vec<Wait> {
        std::mem::take(&mut self.state.waits)
    }

    /// Tells a client that has waited the number of replicas that have its writes. Returns bytes for
    /// connections, also what it had sent meanwhile leads to.
    pub fn answer(&mut self, peer: Peer, replicas: usize, now: WallMicros) -> Vec<(Peer, Vec<u8>)> {
        if !self.state.peers.is_blocked(peer) {
            return vec![];
        }
        self.state.peers.block(peer, false);
        self.state.send(peer, &Reply::count(replicas));
        let mut bytes = self.state.take_outbox();
        bytes.extend(self.receive(peer, &[], now));
        bytes
    }

    /// Returns the number of bytes that the executed requests took.
    fn serve_all(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            if self.state.peers.is_blocked(self.state.caller) {
                return used;
            }
            match request::first(&bytes[used..]) {
                Ok(Some(request)) => {
                    used += request.length;
                    self.state.serve(&request.words);
                }
                Ok(None) => return used,
                Err(Garbled(why)) => {
                    let peer = self.state.caller;
                    self.state.send(
                        peer,
                        &Reply::Error(Refusal::with(format!("ERR Protocol error: {why}"))),
                    );
                    self.state.peers.disconnect(peer);
                    return bytes.len();
                }
            }
        }
    }

    /// Ends the process and starts another: with new ids, no connection, and the data that `kept`
    /// names.
    pub fn restart(&mut self, kept: Kept, now: WallMicros) {
        self.state.peers.disconnect_all();
        self.state.scripts.clear();
        match kept {
            Kept::All => {}
            Kept::None => self.flush(),
            Kept::Snapshot(snapshot) => self.state.keyspace = snapshot.data,
        }
        // A primary drops what has expired when it loads its data.
        let ms = now.0.div_euclid(1000);
        self.state
            .keyspace
            .entries
            .retain(|_, entry| entry.lives(ms));
        self.state.identity.restart(now);
    }

    /// Returns a copy of the data.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            data: self.state.keyspace.clone(),
        }
    }

    /// Replaces the data, as a replica does when it begins to follow a primary.
    pub fn load(&mut self, snapshot: Snapshot) {
        self.state.keyspace = snapshot.data;
    }

    /// Returns the number of commands so far that may have changed data.
    pub fn writes(&self) -> u64 {
        self.state.writes
    }

    /// Forgets all scripts.
    pub fn flush_scripts(&mut self) {
        self.state.scripts.clear();
    }

    /// Loses one key: a DEL by hand, or an eviction.
    pub fn lose(&mut self, key: &[u8]) {
        self.state.keyspace.entries.remove(key);
    }

    /// Loses all keys.
    pub fn flush(&mut self) {
        self.state.keyspace.entries.clear();
    }

    /// Sets whether memory is short: commands that may take memory are refused.
    pub fn set_out_of_memory(&mut self, is_short: bool) {
        self.state.condition.out_of_memory = is_short;
    }

    /// Sets whether the server is a replica. A replica that becomes a primary gets a new
    /// replication id.
    pub fn set_replica(&mut self, is_replica: bool) {
        if self.state.condition.replica && !is_replica {
            self.state.identity.fork();
        }
        self.state.condition.replica = is_replica;
    }

    /// Whether the server is a replica.
    pub fn is_replica(&self) -> bool {
        self.state.condition.replica
    }

    /// Takes a right from every client. Subscriptions stay, where Redis would close the connection.
    pub fn deny(&mut self, right: Right) {
        self.state.condition.denied.push(right);
    }

    /// Gives all rights back.
    pub fn allow_all(&mut self) {
        self.state.condition.denied.clear();
    }

    /// Returns the keys that are there at `now`, in the order of their names.
    pub fn keys(&self, now: WallMicros) -> impl Iterator<Item = (&[u8], &Entry)> {
        let ms = now.0.div_euclid(1000);
        let entries = self.state.keyspace.entries.iter();
        entries
            .filter(move |(_, entry)| entry.lives(ms))
            .map(|(name, entry)| (name.as_slice(), entry))
    }

    /// Returns the entry at `key`, if it is there at `now`.
    pub fn get(&self, key: &[u8], now: WallMicros) -> Option<&Entry> {
        self.state
            .keyspace
            .entries
            .get(key)
            .filter(|entry| entry.lives(now.0.div_euclid(1000)))
    }

    /// Returns the number of requests for `command` (in lower case) that clients have made, calls
    /// by scripts left out.
    pub fn requests(&self, command: &str) -> u64 {
        self.state
            .requests
            .get(command)
            .copied()
            .unwrap_or_default()
    }
}
