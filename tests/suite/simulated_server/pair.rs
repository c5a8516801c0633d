//! A real server and a simulated one that are asked the same.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

use simulation::server::{Peer, Right, Server, WallMicros};
use testkit::cli::Stream;

use super::frame::Frame;
use crate::support;

/// The words of a request.
pub(super) type Words = Vec<Vec<u8>>;

pub(super) fn words(text: &str) -> Words {
    text.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

pub(super) fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// The machine's clock, which the real server goes by too.
pub(super) fn now() -> WallMicros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970");
    WallMicros(i64::try_from(since.as_micros()).expect("a time before the year 292,000"))
}

/// A connection to a real server or sentinel.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

impl Connection {
    fn new(server: &support::Server) -> Self {
        Self::over(UnixStream::connect(server.socket()).expect("a server"))
    }

    /// Connects over TCP.
    pub(super) fn to(port: u16) -> Self {
        Self::over(TcpStream::connect(("127.0.0.1", port)).expect("a server"))
    }

    fn over(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            unread: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, words: &[Vec<u8>]) {
        self.stream
            .write_all(&packed(words))
            .expect("a server that reads");
    }

    pub(super) fn frame(&mut self) -> Frame {
        loop {
            if let Some((frame, used)) = Frame::cut(&self.unread) {
                self.unread.drain(..used);
                return frame;
            }
            let mut buffer = [0; 4096];
            let count = self
                .stream
                .read(&mut buffer)
                .expect("a server that answers");
            assert_ne!(count, 0, "the server closed the connection");
            self.unread.extend(&buffer[..count]);
        }
    }

    /// Returns all frames that come until the reply to the request, and that many further ones as a
    /// request has replies.
    pub(super) fn ask(&mut self, words: &[Vec<u8>], replies: usize) -> Vec<Frame> {
        self.send(words);
        // A marker that is answered in every state: the frames before its reply belong to the
        // request.
        self.send(&super::pair::words("PING rlock-marker"));
        let is_marker = |frame: &Frame| {
            let marker = Frame::Bulk('$', Some(b"rlock-marker".to_vec()));
            *frame == marker
                || matches!(frame, Frame::List('*', items) if items.get(1) == Some(&marker))
        };
        let mut frames = Vec::new();
        loop {
            let frame = self.frame();
            if is_marker(&frame) {
                assert!(frames.len() >= replies);
                return frames;
            }
            frames.push(frame);
        }
    }
}

impl Drop for Connection {
    /// Ends the connection even while a child of a parallel test, forked but not yet executed, has
    /// the descriptor too. Without that the server may keep a subscription for the next case.
    fn drop(&mut self) {
        self.stream.end();
    }
}

/// A real server that serves one case after the other.
pub(super) struct Real {
    server: support::Server,
    control: Connection,
    /// Whether the model's version is the server's: then its words are compared too.
    pub(super) is_the_models: bool,
    /// Whether scripts can ask it for their rights. Redis 6 cannot tell.
    pub(super) tells_rights: bool,
}

impl Real {
    pub(super) fn start() -> Self {
        let server = support::Server::with(&["--databases", "1"]);
        let is_the_models = server
            .cli(&["INFO", "server"])
            .contains("redis_version:7.0.");
        let asks = "return tostring(redis.acl_check_cmd ~= nil)";
        let tells_rights = server.cli(&["EVAL", asks, "0"]) == "true";
        let mut control = Connection::new(&server);
        control.send(&words("ACL SETUSER admin on nopass ~* &* +@all"));
        control.frame();
        control.send(&words("AUTH admin x"));
        control.frame();
        Self {
            server,
            control,
            is_the_models,
            tells_rights,
        }
    }

    fn admin(&mut self, text: &str) {
        self.control.send(&words(text));
        let reply = self.control.frame();
        assert!(
            matches!(&reply, Frame::Line('+', said) if said.starts_with("OK")),
            "{text}: {reply:?}"
        );
    }

    /// Makes the server empty and able to do all.
    fn reset(&mut self) {
        self.admin("REPLICAOF NO ONE");
        self.admin("CONFIG SET maxmemory 0");
        self.admin("ACL SETUSER default on nopass ~* &* +@all");
        self.admin("FLUSHALL");
    }
}

/// A condition of both servers.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    OutOfMemory(bool),
    Replica(bool),
    DenyCommand(&'static str),
    DenyChannels,
    AllowAll,
}

/// Both servers, with the same connections.
pub(super) struct Pair<'a> {
    pub(super) real: &'a mut Real,
    connections: Vec<Connection>,
    simulated: Server,
    peers: Vec<Peer>,
    inboxes: Vec<Vec<Frame>>,
}

impl<'a> Pair<'a> {
    /// Empties both servers, and connects `count` clients to each.
    pub(super) fn new(real: &'a mut Real, count: usize, protocol: &str) -> Self {
        real.reset();
        let connections = (0..count).map(|_| Connection::new(&real.server)).collect();
        let mut simulated = Server::new("simulated", 1, now());
        let peers = (0..count).map(|_| simulated.connect()).collect();
        let mut pair = Self {
            real,
            connections,
            simulated,
            peers,
            inboxes: vec![Vec::new(); count],
        };
        for client in 0..count {
            pair.asked(client, &words(&format!("HELLO {protocol}")));
        }
        pair
    }

    /// Asks both; returns all frames of each for that client: replies and messages.
    pub(super) fn asked(&mut self, client: usize, request: &[Vec<u8>]) -> (Vec<Frame>, Vec<Frame>) {
        let real = self.connections[client].ask(request, 0);
        let out = self
            .simulated
            .receive(self.peers[client], &packed(request), now());
        for (peer, bytes) in out {
            let client = self
                .peers
                .iter()
                .position(|known| *known == peer)
                .expect("a peer");
            self.inboxes[client].extend(Frame::all(&bytes));
        }
        (real, std::mem::take(&mut self.inboxes[client]))
    }

    /// Asks both, and compares what all clients are sent.
    pub(super) fn ask(&mut self, client: usize, request: &[Vec<u8>]) -> Result<Vec<Frame>, String> {
        self.ask_as(client, request, Clone::clone)
    }

    /// The same for replies that are compared as `view` shows them.
    pub(super) fn ask_as(
        &mut self,
        client: usize,
        request: &[Vec<u8>],
        view: impl Fn(&Frame) -> Frame,
    ) -> Result<Vec<Frame>, String> {
        let exactly = self.real.is_the_models;
        let (mut real, mut simulated) = self.asked(client, request);
        if !exactly {
            // Versions differ in whether a message to the sender comes before the reply.
            let is_push = |frame: &Frame| matches!(frame, Frame::List('>', _));
            real.sort_by_key(is_push);
            simulated.sort_by_key(is_push);
        }
        let differ = |client: usize, real: &[Frame], simulated: &[Frame]| {
            let shown: Vec<_> = request
                .iter()
                .map(|word| String::from_utf8_lossy(word))
                .collect();
            Err(format!(
                "client {client} at {shown:?}\n     real: {real:?}\nsimulated: {simulated:?}"
            ))
        };
        let alike = |real: &[Frame], simulated: &[Frame]| {
            let pairs = real.iter().zip(simulated);
            real.len() == simulated.len()
                && pairs
                    .into_iter()
                    .all(|(one, two)| view(one).means(&view(two), exactly))
        };
        if !alike(&real, &simulated) {
            return differ(client, &real, &simulated);
        }
        for other in (0..self.connections.len()).filter(|other| *other != client) {
            let heard = self.connections[other].ask(&[], 0);
            let simulated = std::mem::take(&mut self.inboxes[other]);
            if !alike(&heard, &simulated) {
                return differ(other, &heard, &simulated);
            }
        }
        Ok(simulated)
    }

    pub(super) fn inflict(&mut self, fault: &Fault) {
        match fault {
            Fault::OutOfMemory(is_short) => {
                self.real.admin(if *is_short {
                    "CONFIG SET maxmemory 1"
                } else {
                    "CONFIG SET maxmemory 0"
                });
                self.simulated.set_out_of_memory(*is_short);
            }
            Fault::Replica(is_replica) => {
                self.real.admin(if *is_replica {
                    "REPLICAOF 127.0.0.1 1"
                } else {
                    "REPLICAOF NO ONE"
                });
                self.simulated.set_replica(*is_replica);
            }
            Fault::DenyCommand(name) => {
                self.real.admin(&format!("ACL SETUSER default -{name}"));
                self.simulated.deny(Right::Command((*name).to_owned()));
            }
            Fault::DenyChannels => {
                // A real server closes connections that are subscribed to what is denied.
                for client in 0..self.connections.len() {
                    self.asked(client, &words("UNSUBSCRIBE"));
                }
                self.real.admin("ACL SETUSER default resetchannels");
                self.simulated.deny(Right::Channels(vec![]));
            }
            Fault::AllowAll => {
                self.real.admin("ACL SETUSER default on nopass ~* &* +@all");
                self.simulated.allow_all();
            }
        }
    }

    /// Asks only the real server.
    pub(super) fn ask_real(&mut self, text: &str) -> Vec<Frame> {
        self.connections[0].ask(&words(text), 0)
    }

    /// Asks only the simulated server, at `now`.
    pub(super) fn ask_simulated(&mut self, text: &str, now: WallMicros) -> Vec<Frame> {
        let out = self
            .simulated
            .receive(self.peers[0], &packed(&words(text)), now);
        out.iter()
            .flat_map(|(_, bytes)| Frame::all(bytes))
            .collect()
    }
}

#[test]
fn a_case_ends_its_subscriptions_while_a_fork_has_their_descriptors() {
    let mut real = Real::start();
    let stream = UnixStream::connect(real.server.socket()).expect("a server");
    let forked = stream.try_clone().expect("a descriptor");
    let mut pair = Pair::new(&mut real, 1, "2");
    pair.connections = vec![Connection::over(stream)];
    pair.asked(0, &words("SUBSCRIBE d"));
    drop(pair);
    let mut next = Pair::new(&mut real, 1, "2");
    assert_eq!(
        next.ask_real("PUBLISH d x"),
        [Frame::Line(':', "0".to_owned())]
    );
    drop(forked);
}
