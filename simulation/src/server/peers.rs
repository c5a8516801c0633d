//! The connections of a server, and the channels that they have subscribed to.

use std::collections::BTreeMap;

use super::reply::Protocol;

/// A client's connection, as the server numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Debug)]
pub struct Peer(pub(super) u64);

#[derive(Default, Debug)]
struct Connection {
    protocol: Protocol,
    /// Bytes of a request that is not complete.
    pending: Vec<u8>,
    /// In the order in which they were subscribed to.
    channels: Vec<Vec<u8>>,
    /// Whether it waits, and is not read.
    is_blocked: bool,
}

/// All connections of a server.
#[derive(Default, Debug)]
pub(super) struct Peers {
    connections: BTreeMap<Peer, Connection>,
    /// Subscribers of each channel, in the order in which they subscribed.
    subscribers: BTreeMap<Vec<u8>, Vec<Peer>>,
    last: u64,
}

impl Peers {
    pub(super) fn connect(&mut self) -> Peer {
        self.last += 1;
        self.connections
            .insert(Peer(self.last), Connection::default());
        Peer(self.last)
    }

    pub(super) fn disconnect(&mut self, peer: Peer) {
        for channel in self.channels(peer) {
            self.unsubscribe(peer, &channel);
        }
        self.connections.remove(&peer);
    }

    /// Closes all connections. Their numbers are not used again.
    pub(super) fn disconnect_all(&mut self) {
        self.connections.clear();
        self.subscribers.clear();
    }

    pub(super) fn is_connected(&self, peer: Peer) -> bool {
        self.connections.contains_key(&peer)
    }

    /// Stops reading from the connection, or goes on.
    pub(super) fn block(&mut self, peer: Peer, is_blocked: bool) {
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.is_blocked = is_blocked;
        }
    }

    pub(super) fn is_blocked(&self, peer: Peer) -> bool {
        self.connections
            .get(&peer)
            .is_some_and(|connection| connection.is_blocked)
    }

    pub(super) fn take_pending(&mut self, peer: Peer) -> Vec<u8> {
        self.connections
            .get_mut(&peer)
            .map(|connection| std::mem::take(&mut connection.pending))
            .unwrap_or_default()
    }

    pub(super) fn keep_pending(&mut self, peer: Peer, bytes: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.pending = bytes;
        }
    }

    pub(super) fn protocol(&self, peer: Peer) -> Protocol {
        self.connections
            .get(&peer)
            .map(|connection| connection.protocol)
            .unwrap_or_default()
    }

    pub(super) fn set_protocol(&mut self, peer: Peer, protocol: Protocol) {
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.protocol = protocol;
        }
    }

    /// Whether the connection may only subscribe: it speaks RESP2 and has subscribed.
    pub(super) fn hears_only(&self, peer: Peer) -> bool {
        self.connections.get(&peer).is_some_and(|connection| {
            connection.protocol == Protocol::Resp2 && !connection.channels.is_empty()
        })
    }

    pub(super) fn channels(&self, peer: Peer) -> Vec<Vec<u8>> {
        self.connections
            .get(&peer)
            .map(|connection| connection.channels.clone())
            .unwrap_or_default()
    }

    pub(super) fn subscribers(&self, channel: &[u8]) -> &[Peer] {
        self.subscribers
            .get(channel)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns the number of channels that the connection is subscribed to then.
    pub(super) fn subscribe(&mut self, peer: Peer, channel: &[u8]) -> usize {
        let Some(connection) = self.connections.get_mut(&peer) else {
            return 0;
        };
        if !connection.channels.iter().any(|name| name == channel) {
            connection.channels.push(channel.to_vec());
            self.subscribers
                .entry(channel.to_vec())
                .or_default()
                .push(peer);
        }
        connection.channels.len()
    }

    /// Returns the number of channels that are left.
    pub(super) fn unsubscribe(&mut self, peer: Peer, channel: &[u8]) -> usize {
        let Some(connection) = self.connections.get_mut(&peer) else {
            return 0;
        };
        connection.channels.retain(|name| name != channel);
        if let Some(subscribers) = self.subscribers.get_mut(channel) {
            subscribers.retain(|subscriber| *subscriber != peer);
            if subscribers.is_empty() {
                self.subscribers.remove(channel);
            }
        }
        connection.channels.len()
    }
}
