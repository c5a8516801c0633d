//! The data of the simulated etcd of `simulation/` against a real one: the same requests must get
//! the same answers, and leave the same events for a watch.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request as HttpRequest};
use prost::Message;
use rlock::store::etcd::rpc::{
    CompareTo, LeaseGrantRequest, LeaseResponse, LeaseRevokeRequest, PutRequest, RangeRequest,
    RangeResponse, Request, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse, compare, deletion, framed, op, range, take_first,
};
use simulation::etcd::store::{Command, Refusal, Reply, Store};

use crate::support::Etcd;

/// Number of requests.
const REQUESTS: usize = 2_000;

/// Shortest lease of an etcd with the default election timeout, in seconds.
const SHORTEST_LEASE: i64 = 2;

const KEYS: [&[u8]; 5] = [b"a", b"b", b"c/1", b"c/2", b"d"];

/// An answer without the member and the term.
#[derive(PartialEq, Debug)]
enum Answer {
    Message(i64, String),
    Refusal(String, String),
}

/// A connection to a real etcd.
struct Real(SendRequest<Bytes>);

impl Real {
    async fn connect(endpoint: &str) -> Self {
        let stream = tokio::net::TcpStream::connect(endpoint).await.unwrap();
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(send)
    }

    /// Calls `path`, and returns the first message that `is_meant`, or the status.
    async fn call(
        &mut self,
        path: &str,
        message: Vec<u8>,
        is_meant: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, (String, String)> {
        let request = HttpRequest::builder()
            .method("POST")
            .uri(format!("http://etcd/etcdserverpb.{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut send = self.0.clone().ready().await.unwrap();
        let (response, mut body) = send.send_request(request.body(()).unwrap(), false).unwrap();
        let is_watch = path.starts_with("Watch");
        body.send_data(framed(&message), !is_watch).unwrap();
        let response = response.await.unwrap();
        if let Some(status) = status(response.headers()) {
            return Err(status);
        }
        let mut stream = response.into_body();
        let mut buffer = BytesMut::new();
        loop {
            while let Some(message) = take_first(&mut buffer) {
                if is_meant(&message) {
                    return Ok(message);
                }
            }
            let Some(data) = stream.data().await else {
                let trailers = stream.trailers().await.unwrap().unwrap();
                return Err(status(&trailers).expect("a status"));
            };
            let data = data.unwrap();
            stream.flow_control().release_capacity(data.len()).unwrap();
            buffer.put(data);
        }
    }

    async fn answer(&mut self, command: &Command) -> Answer {
        let (path, message) = match command {
            Command::Txn(txn) => ("KV/Txn", txn.encode_to_vec()),
            Command::Range(range) => ("KV/Range", range.encode_to_vec()),
            Command::Grant(grant) => ("Lease/LeaseGrant", grant.encode_to_vec()),
            Command::Revoke(id) => (
                "Lease/LeaseRevoke",
                LeaseRevokeRequest { id: *id }.encode_to_vec(),
            ),
        };
        let answer = match self.call(path, message, |_| true).await {
            Ok(answer) => answer,
            Err((code, words)) => return Answer::Refusal(code, words),
        };
        let answer = &answer[..];
        shown(match command {
            Command::Txn(_) => Reply::Txn(TxnResponse::decode(answer).unwrap()),
            Command::Range(_) => Reply::Range(RangeResponse::decode(answer).unwrap()),
            Command::Grant(_) => Reply::Lease(LeaseResponse::decode(answer).unwrap()),
            Command::Revoke(_) => Reply::Done,
        })
    }

    /// Returns the kinds of the events of `key` from a revision on, of which there are so many.
    async fn events(&mut self, key: &[u8], from: i64, count: usize) -> Vec<i32> {
        let create = WatchCreateRequest {
            key: key.to_vec(),
            start_revision: from,
        };
        let request = WatchRequest {
            create: Some(create),
        };
        let seen = std::cell::RefCell::new(Vec::new());
        let has_all = |message: &[u8]| {
            let told = WatchResponse::decode(message).unwrap();
            seen.borrow_mut()
                .extend(told.events.iter().map(|event| event.kind));
            seen.borrow().len() >= count
        };
        let watch = self.call("Watch/Watch", request.encode_to_vec(), has_all);
        watch.await.expect("events");
        seen.into_inner()
    }
}

fn status(headers: &HeaderMap) -> Option<(String, String)> {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    Some((
        text("grpc-status")?,
        text("grpc-message").unwrap_or_default(),
    ))
}

/// Returns an answer without the member and the term, which are each side's own.
fn shown(reply: Reply) -> Answer {
    let without = |header: &mut Option<rlock::store::etcd::rpc::ResponseHeader>| {
        header.take().map_or(0, |header| header.revision)
    };
    match reply {
        Reply::Txn(mut reply) => {
            let revision = without(&mut reply.header);
            for response in &mut reply.responses {
                use rlock::store::etcd::rpc::Response;
                if let Some(Response::Range(range)) = &mut response.response {
                    range.header = None;
                }
            }
            Answer::Message(revision, format!("{reply:?}"))
        }
        Reply::Range(mut reply) => {
            Answer::Message(without(&mut reply.header), format!("{reply:?}"))
        }
        Reply::Lease(mut reply) => {
            Answer::Message(without(&mut reply.header), format!("{reply:?}"))
        }
        Reply::Done => Answer::Message(0, String::new()),
    }
}

/// Draws requests from a seed.
struct Draw(fastrand::Rng);

impl Draw {
    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())].clone()
    }

    fn range(&mut self, revision: i64) -> RangeRequest {
        let (key, end): (&[u8], &[u8]) = match self.0.u8(..5) {
            0 => (b"a", b"c"),
            1 => (b"c/", b"c0"),
            2 => (b"b", b"\0"),
            _ => (self.one_of(&KEYS), b""),
        };
        let near = revision - self.0.i64(-1..12);
        RangeRequest {
            key: key.to_vec(),
            range_end: end.to_vec(),
            limit: self.0.i64(0..3),
            revision: self.one_of(&[0, 0, 0, near.max(1)]),
            sort_order: self.0.i32(0..3),
            sort_target: self.one_of(&[0, 2]),
            keys_only: self.0.bool(),
            max_create_revision: self.one_of(&[0, 0, near.max(1)]),
        }
    }

    /// Returns reads, and a put and a deletion of different keys.
    fn ops(&mut self, revision: i64) -> Vec<rlock::store::etcd::rpc::RequestOp> {
        let (put, deleted) = (self.0.usize(..5), self.0.usize(1..5));
        let mut all = vec![range(self.range(revision))];
        if self.0.bool() {
            let ignore_lease = self.0.u8(..4) == 0;
            all.push(op(Request::Put(PutRequest {
                key: KEYS[put].to_vec(),
                value: vec![b'v'; self.0.usize(..3)],
                lease: if ignore_lease { 0 } else { self.0.i64(0..5) },
                ignore_lease,
            })));
        }
        if self.0.u8(..4) == 0 {
            all.push(deletion(KEYS[(put + deleted) % 5]));
        }
        all.push(range(self.range(revision)));
        all
    }

    fn txn(&mut self, revision: i64) -> TxnRequest {
        let near = revision - self.0.i64(0..6);
        let to = match self.0.u8(..3) {
            0 => CompareTo::Create(self.one_of(&[0, near])),
            1 => CompareTo::Mod(self.one_of(&[0, near])),
            _ => CompareTo::Lease(self.0.i64(0..5)),
        };
        TxnRequest {
            compare: vec![compare(self.one_of(&KEYS), to)],
            success: self.ops(revision),
            failure: self.ops(revision),
        }
    }

    fn command(&mut self, revision: i64) -> Command {
        match self.0.u8(..10) {
            0..6 => Command::Txn(self.txn(revision)),
            6 | 7 => Command::Range(self.range(revision)),
            8 => Command::Grant(LeaseGrantRequest {
                // None of them ends by itself meanwhile.
                ttl: self.one_of(&[5_000, 9_000_000_000, 9_000_000_001]),
                id: self.0.i64(1..5),
            }),
            _ => Command::Revoke(self.0.i64(1..5)),
        }
    }
}

#[test]
fn every_request_is_answered_as_by_a_real_etcd() {
    let Some(etcd) = Etcd::start(1) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut real = Real::connect(&etcd.endpoint(0)).await;
        let mut simulated = Store::new(SHORTEST_LEASE);
        let mut draw = Draw(fastrand::Rng::with_seed(7));
        let short = |id| Command::Grant(LeaseGrantRequest { ttl: 1, id });
        let first = [short(9), Command::Revoke(9)];
        for number in 0..REQUESTS {
            let revision = simulated.header().revision;
            let command = match first.get(number) {
                Some(command) => command.clone(),
                None => draw.command(revision),
            };
            let ours = match simulated.execute(&command) {
                Ok(reply) => shown(reply),
                Err(Refusal(code, words)) => Answer::Refusal(code.to_owned(), words.to_owned()),
            };
            let theirs = real.answer(&command).await;
            assert_eq!(ours, theirs, "request {number}: {command:?}");
        }
        for key in KEYS {
            let events = simulated.events().iter().filter(|event| event.key == key);
            let kinds: Vec<i32> = events.map(|event| event.kind).collect();
            assert!(kinds.len() > 50, "{} events", kinds.len());
            assert_eq!(real.events(key, 1, kinds.len()).await, kinds);
        }
    });
}
