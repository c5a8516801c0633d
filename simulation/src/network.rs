//! The simulated network: streams between processes and servers, on which bytes are delayed, held
//! up or lost with their connection.
//!
//! 1. Bytes of one direction of one connection keep their order; nothing else does.
//! 2. A path that is cut holds packets back, as TCP does until it gives up. Neither side notices.
//! 3. A process that ends closes its connections behind what it has written.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rlock::lock::instant::Instant;
use rlock::store::net::dial::{HostDial, Stream};
use rlock::store::net::hosts::Endpoint;
use rlock::store::redis::connect::Dial;
use rlock::store::{Fault, FaultKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::deployment;
use crate::kernel::{self, Event, Kernel, ProcessId};
use crate::random::Random;

/// Number of a socket. None is given away twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SocketId(pub usize);

/// One transmission on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// The request for a connection, or its acceptance.
    Open,
    /// Bytes.
    Bytes(Vec<u8>),
    /// The sender has closed the connection.
    End,
    /// There is no such connection.
    Reset,
}

/// The time that a packet takes.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// At least.
    pub least: Duration,
    /// Most of them, at most.
    pub most: Duration,
    /// The probability that one takes longer.
    pub spikes: f64,
    /// At most, then.
    pub spike: Duration,
}

/// The way between a host and a node.
#[derive(Clone, Debug, Default)]
struct Path {
    /// Whether packets to the server are held back, and those from it.
    is_cut: [bool; 2],
    /// Added to each packet's time.
    extra: Duration,
}

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

#[derive(Debug)]
struct Socket {
    owner: ProcessId,
    host: usize,
    node: usize,
    random: Random,
    /// Bytes that the owner has not read yet.
    incoming: VecDeque<u8>,
    state: State,
    reader: Option<Waker>,
    /// When the last packet of each way arrives.
    last: [Instant; 2],
    /// Packets that a cut path holds back.
    held: [VecDeque<Packet>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Open,
    Ended,
    Reset,
    /// By its owner.
    Closed,
}

/// All sockets, and the paths between hosts and nodes.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    latency: Latency,
    nodes: usize,
    paths: Vec<Path>,
    sockets: Vec<Socket>,
}

impl Network {
    /// The network between `hosts` and `nodes`.
    pub fn new(seed: u64, latency: Latency, hosts: usize, nodes: usize) -> Self {
        Self {
            seed,
            latency,
            nodes,
            paths: vec![Path::default(); hosts * nodes],
            sockets: Vec::new(),
        }
    }

    /// Returns the node to which the socket leads.
    pub fn node(&self, socket: SocketId) -> usize {
        self.sockets[socket.0].node
    }

    /// Returns the process that owns the socket.
    pub fn owner(&self, socket: SocketId) -> ProcessId {
        self.sockets[socket.0].owner
    }

    /// Number of sockets that `process` has open, to the node with the most of them.
    pub fn most_open(&self, process: ProcessId) -> usize {
        let mut counts = vec![0; self.nodes];
        for socket in self
            .sockets
            .iter()
            .rev()
            .filter(|socket| socket.owner == process)
        {
            counts[socket.node] += usize::from(socket.state != State::Closed);
        }
        counts.into_iter().max().unwrap_or(0)
    }

    fn path(&mut self, host: usize, node: usize) -> &mut Path {
        &mut self.paths[host * self.nodes + node]
    }

    fn delay(&mut self, socket: SocketId) -> Duration {
        let Socket { host, node, .. } = self.sockets[socket.0];
        let (latency, extra) = (self.latency, self.path(host, node).extra);
        let random = &mut self.sockets[socket.0].random;
        let most = if random.chance(latency.spikes) {
            latency.spike
        } else {
            latency.most
        };
        random.time(latency.least, most) + extra
    }
}

/// Sends a packet on its way.
pub fn send(kernel: &mut Kernel, socket: SocketId, way: Way, packet: Packet) {
    let network = &mut kernel.network;
    let Socket { host, node, .. } = network.sockets[socket.0];
    if network.path(host, node).is_cut[way as usize] {
        network.sockets[socket.0].held[way as usize].push_back(packet);
        return;
    }
    let arrives = kernel.now + network.delay(socket);
    let last = &mut network.sockets[socket.0].last[way as usize];
    *last = arrives.max(*last);
    let at = *last;
    kernel.at(
        at,
        match way {
            Way::Up => Event::ToServer(socket, packet),
            Way::Down => Event::ToClient(socket, packet),
        },
    );
}

/// Cuts a way of the path between `host` and `node`, or mends it: what was held back goes on then.
pub fn cut(kernel: &mut Kernel, host: usize, node: usize, way: Way, is_cut: bool) {
    kernel.network.path(host, node).is_cut[way as usize] = is_cut;
    if is_cut {
        return;
    }
    for id in 0..kernel.network.sockets.len() {
        let socket = &mut kernel.network.sockets[id];
        if (socket.host, socket.node) == (host, node) {
            for packet in std::mem::take(&mut socket.held[way as usize]) {
                send(kernel, SocketId(id), way, packet);
            }
        }
    }
}

/// Loses what is held back between `host` and `node`, and with it the connections, as TCP does when
/// it gives up.
pub fn give_up(kernel: &mut Kernel, host: usize, node: usize) {
    for id in 0..kernel.network.sockets.len() {
        let socket = &mut kernel.network.sockets[id];
        if (socket.host, socket.node) == (host, node)
            && socket.held.iter().any(|held| !held.is_empty())
        {
            let ends = socket.held[Way::Up as usize].contains(&Packet::End);
            socket.held.iter_mut().for_each(VecDeque::clear);
            kernel.at(kernel.now, Event::ToServer(SocketId(id), Packet::Reset));
            if !ends {
                kernel.at(kernel.now, Event::ToClient(SocketId(id), Packet::Reset));
            }
        }
    }
}

/// Makes the path between `host` and `node` slower by `extra`.
pub fn slow(kernel: &mut Kernel, host: usize, node: usize, extra: Duration) {
    kernel.network.path(host, node).extra = extra;
}

/// Hands a packet to the owner of its socket.
pub fn arrive(kernel: &mut Kernel, id: SocketId, packet: Packet) -> Option<Waker> {
    let socket = &mut kernel.network.sockets[id.0];
    match (socket.state, packet) {
        (State::Connecting, Packet::Open) => socket.state = State::Open,
        (State::Open, Packet::Bytes(bytes)) => socket.incoming.extend(bytes),
        (State::Open, Packet::End) => socket.state = State::Ended,
        (State::Connecting | State::Open, Packet::End | Packet::Reset) => {
            socket.incoming.clear();
            socket.state = State::Reset;
        }
        _ => return None,
    }
    socket.reader.take()
}

/// Closes the sockets of a process that has ended, in the order in which it opened them.
pub fn close_all(kernel: &mut Kernel, owner: ProcessId) {
    for id in 0..kernel.network.sockets.len() {
        if kernel.network.sockets[id].owner == owner {
            close(kernel, SocketId(id));
        }
    }
}

fn close(kernel: &mut Kernel, id: SocketId) {
    let socket = &mut kernel.network.sockets[id.0];
    let was = std::mem::replace(&mut socket.state, State::Closed);
    (socket.incoming, socket.reader) = Default::default();
    if !matches!(was, State::Closed | State::Reset) {
        send(kernel, id, Way::Up, Packet::End);
    }
}

/// Returns what opens connections from `host`.
pub fn dialer(host: usize) -> Dial {
    Arc::new(move |access, _| Box::pin(async move { dialled(host, &access.endpoint).await }))
}

/// The same for stores that name hosts.
pub fn host_dialer(host: usize) -> HostDial {
    Arc::new(move |endpoint, _| Box::pin(async move { dialled(host, &endpoint).await }))
}

async fn dialled(host: usize, endpoint: &Endpoint) -> Result<Box<dyn Stream>, Fault> {
    let refused = || Fault::new(FaultKind::Unavailable, "cannot connect: Connection refused");
    let machine = deployment::machine(endpoint).ok_or_else(refused)?;
    let stream = SimulatedStream::connect(host, machine);
    if !stream.connected().await {
        return Err(refused());
    }
    Ok(Box::new(stream))
}

/// A client's end of a connection.
#[derive(Debug)]
struct SimulatedStream(SocketId);

impl SimulatedStream {
    fn connect(host: usize, node: usize) -> Self {
        kernel::with(|kernel| {
            let (number, now) = (kernel.network.sockets.len(), kernel.now);
            let owner = kernel.current;
            let of_owner = kernel
                .network
                .sockets
                .iter()
                .filter(|socket| socket.owner == owner)
                .count() as u64;
            let part = owner.number() << 12 ^ of_owner;
            kernel.network.sockets.push(Socket {
                owner,
                host,
                node,
                random: Random::of(kernel.network.seed, "socket", part),
                incoming: VecDeque::new(),
                state: State::Connecting,
                reader: None,
                last: [now; 2],
                held: Default::default(),
            });
            let id = SocketId(number);
            send(kernel, id, Way::Up, Packet::Open);
            Self(id)
        })
    }

    async fn connected(&self) -> bool {
        std::future::poll_fn(|cx| {
            kernel::with(|kernel| {
                let socket = &mut kernel.network.sockets[self.0.0];
                if socket.state == State::Connecting {
                    socket.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(socket.state == State::Open)
            })
        })
        .await
    }
}

impl AsyncRead for SimulatedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        kernel::with(|kernel| {
            let socket = &mut kernel.network.sockets[self.0.0];
            if !socket.incoming.is_empty() {
                let count = buffer.remaining().min(socket.incoming.len());
                let bytes: Vec<u8> = socket.incoming.drain(..count).collect();
                buffer.put_slice(&bytes);
                return Poll::Ready(Ok(()));
            }
            match socket.state {
                State::Ended => Poll::Ready(Ok(())),
                State::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                _ => {
                    socket.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        kernel::with(|kernel| {
            if kernel.network.sockets[self.0.0].state == State::Reset {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            send(kernel, self.0, Way::Up, Packet::Bytes(bytes.to_vec()));
            Poll::Ready(Ok(bytes.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        if kernel::is_running() {
            kernel::with(|kernel| close(kernel, self.0));
        }
    }
}
