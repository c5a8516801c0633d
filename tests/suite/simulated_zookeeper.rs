//! The data of the simulated ZooKeeper of `simulation/` against a real one: the same requests must
//! get the same answers, and tell the same watches.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rlock::store::zookeeper::jute::{
    ANY_VERSION, Kind, Operation, Reader, Request, Session, XID_OF_EVENT, XID_OF_PING, connect,
    greeting,
};
use simulation::network::SocketId;
use simulation::zookeeper::frames;
use simulation::zookeeper::replica::Replica;
use simulation::zookeeper::tree::{Command, Transaction, Tree};
use testkit::ZooKeeper;
use testkit::zookeeper::has_zookeeper;

/// Number of requests.
const REQUESTS: usize = 2_000;

/// Number of sessions at a time.
const SESSIONS: usize = 3;

const PATHS: [&str; 7] = ["/a", "/a/b", "/a/c", "/d", "/d/e", "/d/e/f", "/g"];

/// Timeout of each session, which no test takes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A session at a real server, over a connection of its own.
struct Real {
    stream: TcpStream,
    session: Session,
    next_xid: i32,
}

impl Real {
    fn connect(server: &ZooKeeper, session: Option<&Session>) -> Result<Self, Vec<u8>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.write_all(&connect(session, TIMEOUT)).unwrap();
        let frame = read_frame(&mut stream);
        match greeting(&frame).unwrap().session {
            Some(session) => Ok(Self {
                stream,
                session,
                next_xid: 1,
            }),
            None => Err(frame),
        }
    }

    /// Returns what comes up to the reply to this request, which is the last of it.
    fn ask(&mut self, request: &Request) -> (i32, Vec<Vec<u8>>) {
        let (xid, frame) = request.frame(self.next_xid);
        self.next_xid += 1;
        self.stream.write_all(&frame).unwrap();
        let mut told = Vec::new();
        loop {
            let frame = read_frame(&mut self.stream);
            let header = Reader(&frame).header().unwrap();
            told.push(frame);
            if header.xid == xid {
                return (xid, told);
            }
        }
    }
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    frame
}

/// The simulated server, with clients that have the sessions of the real one.
struct Simulated {
    replica: Replica,
    zxid: i64,
    /// Frames that were written to each client since it was looked at.
    written: Vec<Vec<u8>>,
}

impl Simulated {
    fn execute(&mut self, session: i64, command: Command) -> simulation::zookeeper::tree::Answer {
        self.zxid += 1;
        let transaction = Transaction {
            zxid: self.zxid,
            time: 0,
            session,
            command,
        };
        let (answer, told) = self.replica.execute(&transaction);
        for (SocketId(client), happening, path) in told {
            self.written[client].extend(frames::event(happening, &path));
        }
        answer
    }

    /// Executes a request as it is read, for the client of this number.
    fn ask(&mut self, client: usize, session: i64, frame: &[u8]) {
        let (xid, request) = frames::request(&frame[4..]).unwrap();
        let answer = match request {
            Request::Multi(parts) => self.execute(session, Command::Multi(parts)),
            Request::Container(path) => self.execute(session, Command::Container(path)),
            Request::Close => self.execute(session, Command::End),
            read => self.replica.read(SocketId(client), &read),
        };
        self.written[client].extend(frames::reply(xid, self.zxid, &answer));
    }

    fn take(&mut self, client: usize) -> Vec<Vec<u8>> {
        let written = &mut self.written[client];
        std::iter::from_fn(|| frames::take_first(written)).collect()
    }
}

/// Draws requests from a seed.
struct Draw {
    random: fastrand::Rng,
    /// Paths that a request has made.
    made: Vec<String>,
}

impl Draw {
    fn path(&mut self) -> String {
        if self.random.u8(..3) == 0 && !self.made.is_empty() {
            let near = self.made.len().saturating_sub(8);
            return self.made[self.random.usize(near..self.made.len())].clone();
        }
        PATHS[self.random.usize(..PATHS.len())].to_owned()
    }

    fn version(&mut self) -> i32 {
        [ANY_VERSION, ANY_VERSION, 0, 1, 2][self.random.usize(..5)]
    }

    fn data(&mut self) -> Vec<u8> {
        vec![b'x'; self.random.usize(..4)]
    }

    fn part(&mut self) -> Operation {
        match self.random.u8(..12) {
            0..3 => {
                let path = format!("{}/s-", PATHS[self.random.usize(..PATHS.len())]);
                Operation::Create(path, self.data(), Kind::EphemeralSequential)
            }
            3 => Operation::Create(self.path(), self.data(), Kind::Ephemeral),
            4 | 5 => Operation::Create(self.path(), self.data(), Kind::Persistent),
            6 | 7 => Operation::Delete(self.path(), self.version()),
            8 | 9 => Operation::Set(self.path(), self.data(), self.version()),
            _ => Operation::Check(self.path(), self.version()),
        }
    }

    fn request(&mut self) -> Request {
        let is_watched = self.random.bool();
        match self.random.u8(..40) {
            0 => Request::Close,
            1 => Request::Ping,
            2..5 => Request::Container(self.path()),
            5..14 => Request::Data(self.path(), is_watched),
            14..20 => Request::Children(self.path(), is_watched),
            _ => {
                let count = self.random.usize(1..4);
                Request::Multi((0..count).map(|_| self.part()).collect())
            }
        }
    }
}

/// Returns a frame for people, without the times and the order of children.
fn shown(request: &Request, frame: &[u8]) -> String {
    let mut body = Reader(frame);
    let header = body.header().unwrap();
    let told = if header.xid == XID_OF_EVENT {
        let (what, state) = (body.int().unwrap(), body.int().unwrap());
        format!("event {what} {state} {}", body.text().unwrap())
    } else if header.error != 0 {
        String::new()
    } else {
        match request {
            Request::Children(..) => {
                let mut names = body.children().unwrap();
                names.sort();
                format!("{names:?}")
            }
            Request::Data(..) => {
                let data = body.buffer().unwrap().to_vec();
                format!("{data:?} {}", stat(&mut body))
            }
            Request::Container(_) => format!("{} {}", body.text().unwrap(), stat(&mut body)),
            Request::Multi(_) => multi(&mut body),
            Request::Ping | Request::Close | Request::Login(_) => String::new(),
        }
    };
    assert!(
        body.0.is_empty(),
        "{request:?}: {} bytes more",
        body.0.len()
    );
    format!("{header:?} {told}")
}

fn stat(body: &mut Reader<'_>) -> String {
    let zxids = (body.long().unwrap(), body.long().unwrap());
    let _times = (body.long().unwrap(), body.long().unwrap());
    let versions = [(); 3].map(|()| body.int().unwrap());
    let owner = body.long().unwrap();
    let counts = [(); 2].map(|()| body.int().unwrap());
    format!(
        "{zxids:?} {versions:?} {owner:x} {counts:?} {}",
        body.long().unwrap()
    )
}

fn multi(body: &mut Reader<'_>) -> String {
    let mut told = String::new();
    loop {
        let (code, is_last, error) = (body.int(), body.byte(), body.int());
        let _ = write!(told, "{code:?} {is_last:?} {error:?} ");
        match code.unwrap() {
            _ if is_last.unwrap() != 0 => return told,
            1 => told += &body.text().unwrap(),
            5 => told += &stat(body),
            -1 => told += &body.int().unwrap().to_string(),
            _ => {}
        }
    }
}

/// Returns the frames for people. Those that an end of a session tells have no order.
fn all_shown(request: &Request, frames: &[Vec<u8>]) -> Vec<String> {
    let mut all: Vec<String> = frames.iter().map(|frame| shown(request, frame)).collect();
    if *request == Request::Close {
        all.sort();
    }
    all
}

#[test]
fn every_request_is_answered_as_by_a_real_zookeeper() {
    if !has_zookeeper() {
        return;
    }
    let server = ZooKeeper::start(&[]);
    let begin = || Real::connect(&server, None).unwrap_or_else(|_| panic!("a session"));
    let mut sessions: Vec<Real> = (0..SESSIONS).map(|_| begin()).collect();
    // What the server has of its own begins with this transaction.
    let (_, told) = sessions[0].ask(&Request::Ping);
    let zxid = Reader(&told[0]).header().unwrap().zxid;
    let mut simulated = Simulated {
        replica: Replica::of(Tree::after(zxid)),
        zxid,
        written: vec![Vec::new(); SESSIONS],
    };
    let mut draw = Draw {
        random: fastrand::Rng::with_seed(7),
        made: Vec::new(),
    };
    let (mut events, mut failed) = (0, 0);
    for number in 0..REQUESTS {
        let client = draw.random.usize(..SESSIONS);
        let request = draw.request();
        let real = &mut sessions[client];
        let id = real.session.id;
        simulated.ask(client, id, &request.frame(real.next_xid).1);
        let (_, told) = real.ask(&request);
        let ours = simulated.take(client);
        let why = format!("request {number}: {request:?}");
        assert_eq!(
            all_shown(&request, &ours),
            all_shown(&request, &told),
            "{why}"
        );
        let reply = Reader(told.last().unwrap()).header().unwrap();
        failed += usize::from(reply.error != 0);
        events += told.len() - 1;
        if let Request::Multi(_) = request {
            let frame = told.last().unwrap();
            let mut body = Reader(frame);
            body.header().unwrap();
            draw.made.extend(body.multi().unwrap().unwrap_or_default());
        }
        if request == Request::Close {
            let over = real.session.clone();
            let refused = Real::connect(&server, Some(&over)).err();
            let refusal = frames::greeting(None)[4..].to_vec();
            assert_eq!(refused.as_ref(), Some(&refusal), "{why}");
            // A wrong password ends the connection of another client, and its watches.
            let other = (client + 1) % SESSIONS;
            let session = sessions[other].session.clone();
            let mut wrong = session.clone();
            wrong.password[0] ^= 1;
            let refused = Real::connect(&server, Some(&wrong)).err();
            assert_eq!(refused.as_ref(), Some(&refusal), "{why}");
            let again = Real::connect(&server, Some(&session));
            sessions[other] = again.unwrap_or_else(|_| panic!("the session stands"));
            assert_eq!(sessions[other].session, session);
            simulated.replica.forget(SocketId(other));
            simulated.take(other);
            simulated.replica.forget(SocketId(client));
            sessions[client] = begin();
            let timeout = i32::try_from(TIMEOUT.as_millis()).unwrap();
            simulated.execute(sessions[client].session.id, Command::Begin(timeout));
        }
        // Watches of the others were told before their pings are answered.
        for (other, real) in sessions.iter_mut().enumerate() {
            let (xid, told) = real.ask(&Request::Ping);
            assert_eq!(xid, XID_OF_PING);
            simulated.ask(other, real.session.id, &Request::Ping.frame(0).1);
            let (mut ours, mut theirs) = (
                all_shown(&Request::Ping, &simulated.take(other)),
                all_shown(&Request::Ping, &told),
            );
            if request == Request::Close {
                ours.sort();
                theirs.sort();
            }
            assert_eq!(ours, theirs, "{why}");
            events += told.len() - 1;
        }
    }
    assert!(
        events > 60 && failed > 100,
        "{events} events, {failed} failed"
    );
}
