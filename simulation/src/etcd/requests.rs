//! The requests of clients: reads and writes that the leader serves, and watches.

use std::time::Duration;

use prost::Message;
use rlock::store::etcd::rpc::{
    Event as KeyEvent, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, RangeRequest, TxnRequest, WatchRequest, WatchResponse,
};

use super::cluster::{EtcdCluster, Proposal, Step, id_of, lasts};
use super::connection::{Call, Connection};
use super::member::{CallId, Held, Term, Watch};
use super::store::{Command, Refusal};
use crate::kernel::{Event, Kernel};
use crate::network::{Packet, SocketId};
use crate::node::State;

/// Longest time from a proposal to its commit, and from a read to its answer.
pub(super) const COMMIT: Duration = Duration::from_millis(3);

/// Time after which a member gives up a request that no leader has served.
const GIVES_UP: Duration = Duration::from_secs(7);

pub(super) const NO_LEADER: Refusal = Refusal("14", "etcdserver: no leader");
const UNKNOWN_CALL: Refusal = Refusal("12", "unknown method");
const MALFORMED: Refusal = Refusal("13", "malformed message");
const TIMED_OUT: Refusal = Refusal("14", "etcdserver: request timed out");

impl EtcdCluster {
    /// Takes a packet from the network.
    pub fn take(&mut self, kernel: &mut Kernel, socket: SocketId, packet: Packet) {
        let number = kernel.network.node(socket);
        let member = &mut self.members[number];
        member.state.answer(kernel, socket, &packet);
        match member.state {
            State::Down => {}
            State::Stopped => member.inbox.push((socket, packet)),
            State::Up => self.serve(kernel, number, socket, packet),
        }
    }

    pub(super) fn serve(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        socket: SocketId,
        packet: Packet,
    ) {
        let member = &mut self.members[number];
        match packet {
            Packet::Open => drop(member.connections.insert(socket, Connection::new())),
            Packet::Bytes(bytes) => {
                let Some(connection) = member.connections.get_mut(&socket) else {
                    return;
                };
                for call in connection.receive(&bytes) {
                    self.calls += 1;
                    self.asked(kernel, number, socket, &call);
                }
                self.members[number].flush(kernel, socket);
            }
            Packet::End | Packet::Reset => {
                member.connections.remove(&socket);
                member.watches.retain(|watch| watch.call.socket != socket);
            }
        }
    }

    pub(super) fn asked(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        socket: SocketId,
        call: &Call,
    ) {
        let id = CallId {
            socket,
            number: call.number,
        };
        let told = self.does(kernel, number, id, call);
        if let Err(refusal) = told {
            self.members[number].reply(kernel, id, Err(refusal));
        }
    }

    pub(super) fn does(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        id: CallId,
        call: &Call,
    ) -> Result<(), Refusal> {
        fn read<M: Message + Default>(message: &[u8]) -> Result<M, Refusal> {
            M::decode(message).map_err(|_| MALFORMED)
        }
        // All that rlock asks has the header `hasleader`.
        if self.members[number].leader.is_none() {
            return Err(NO_LEADER);
        }
        let message = &call.message[..];
        let command = match call.name.as_str() {
            "Range" => Command::Range(read::<RangeRequest>(message)?),
            "Txn" => Command::Txn(read::<TxnRequest>(message)?),
            "LeaseGrant" => Command::Grant(read::<LeaseGrantRequest>(message)?),
            "LeaseRevoke" => Command::Revoke(read::<LeaseRevokeRequest>(message)?.id),
            "LeaseKeepAlive" => {
                let lease = read::<LeaseKeepAliveRequest>(message)?.id;
                let term = self.members[number].term;
                self.keep_alive(kernel, number, id, lease, term);
                return Ok(());
            }
            "LeaseTimeToLive" => {
                let lease = read::<LeaseTimeToLiveRequest>(message)?.id;
                self.time_to_live(kernel, number, id, lease);
                return Ok(());
            }
            "Watch" => {
                let create = read::<WatchRequest>(message)?.create.ok_or(MALFORMED)?;
                let watch = Watch {
                    call: id,
                    key: create.key,
                    from: create.start_revision,
                };
                self.watch(kernel, number, watch);
                return Ok(());
            }
            _ => return Err(UNKNOWN_CALL),
        };
        let since = kernel.now;
        self.members[number].held.push(Held {
            call: id,
            command,
            since,
        });
        self.serve_held(number, kernel);
        Ok(())
    }

    /// Hands requests that wait at a member to the leader, if it hears it. Reads are answered later.
    pub(super) fn serve_held(&mut self, number: usize, kernel: &mut Kernel) {
        let Some(leader) = self.leader.filter(|leader| {
            let there = &self.members[number];
            there.term == self.term && there.leader == Some(*leader) && self.hear(number, *leader)
        }) else {
            return;
        };
        let held = std::mem::take(&mut self.members[number].held);
        let mut reads = false;
        for request in held {
            if kernel.now.since(request.since) >= GIVES_UP {
                self.members[number].reply(kernel, request.call, Err(TIMED_OUT));
            } else if request.command.is_read() {
                reads = true;
                self.members[number].held.push(request);
            } else if self.members[number].awaits(request.call) || kernel.random.chance(0.5) {
                // A client that has gone may have been heard before.
                let by = Some((number, request.call));
                self.propose(leader, by, request.command, kernel);
            }
        }
        if reads {
            let takes = kernel.random.time(Duration::ZERO, COMMIT);
            kernel.after(takes, Event::Etcd(Step::Read(number)));
        }
    }

    pub(super) fn propose(
        &mut self,
        leader: usize,
        by: Option<(usize, CallId)>,
        command: Command,
        kernel: &mut Kernel,
    ) {
        debug_assert_eq!(self.leader, Some(leader));
        self.proposals.push_back(Proposal { by, command });
        let takes = kernel.random.time(Duration::ZERO, COMMIT);
        kernel.after(takes, Event::Etcd(Step::Commit(self.term)));
    }

    /// Answers the reads that wait at a member, if its leader still leads.
    pub(super) fn read(&mut self, number: usize, kernel: &mut Kernel) {
        if self.served_by(number).is_none() {
            return;
        }
        self.catch_up(number, kernel);
        let held = std::mem::take(&mut self.members[number].held);
        let (reads, others): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|held| held.command.is_read());
        self.members[number].held = others;
        for read in reads {
            let result = self.store.execute(&read.command);
            let term = self.members[number].term;
            let answer = result.map(|reply| reply.encoded(id_of(number), term));
            self.members[number].reply(kernel, read.call, answer);
        }
    }

    /// Commits the oldest proposal.
    pub(super) fn commit(&mut self, kernel: &mut Kernel) {
        let Some(Proposal { by, command }) = self.proposals.pop_front() else {
            return;
        };
        let result = self.store.execute(&command);
        let now = kernel.now;
        if let Some(leader) = self.leader {
            let there = &mut self.members[leader];
            match command {
                Command::Grant(grant) if result.is_ok() => {
                    let ttl = self.store.leases()[&grant.id].ttl;
                    let end = now + lasts(ttl, there.clock);
                    there.ends.insert(grant.id, Term { end, ttl });
                }
                Command::Revoke(lease) => {
                    there.ends.remove(&lease);
                    self.refuse_unrenewed(leader, lease, kernel);
                }
                _ => {}
            }
        }
        if let Some((member, call)) = by {
            self.members[member].results.push((call, result));
        }
        for member in 0..self.members.len() {
            if self.served_by(member).is_some() {
                self.catch_up(member, kernel);
            }
        }
    }

    /// Lets a member hear of all that is agreed on.
    pub(super) fn catch_up(&mut self, number: usize, kernel: &mut Kernel) {
        let there = &mut self.members[number];
        let events = &self.store.events()[there.applied..];
        there.applied += events.len();
        for watch in there.watches.clone() {
            let heard = events
                .iter()
                .filter(|event| event.key == watch.key && event.revision >= watch.from);
            let events: Vec<KeyEvent> = heard.map(|event| KeyEvent { kind: event.kind }).collect();
            if !events.is_empty() {
                let told = WatchResponse {
                    events,
                    ..WatchResponse::default()
                };
                there.tell(kernel, watch.call, &told.encode_to_vec());
            }
        }
        for (call, result) in std::mem::take(&mut there.results) {
            let answer = result.map(|reply| reply.encoded(id_of(number), there.term));
            there.reply(kernel, call, answer);
        }
    }

    pub(super) fn watch(&mut self, kernel: &mut Kernel, number: usize, watch: Watch) {
        let there = &mut self.members[number];
        let known = &self.store.events()[..there.applied];
        let past = known
            .iter()
            .filter(|event| event.key == watch.key && event.revision >= watch.from);
        let past: Vec<KeyEvent> = past.map(|event| KeyEvent { kind: event.kind }).collect();
        let created = WatchResponse {
            created: true,
            ..WatchResponse::default()
        };
        there.tell(kernel, watch.call, &created.encode_to_vec());
        if watch.from > 0 && !past.is_empty() {
            let told = WatchResponse {
                events: past,
                ..WatchResponse::default()
            };
            there.tell(kernel, watch.call, &told.encode_to_vec());
        }
        there.watches.push(watch);
    }

    /// Closes all connections of a member.
    pub fn disconnect_all(&mut self, number: usize, kernel: &mut Kernel) {
        if self.members[number].state == State::Up {
            self.members[number].disconnect(kernel, &Packet::End);
        }
    }
}
