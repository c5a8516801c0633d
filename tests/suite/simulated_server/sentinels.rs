//! The simulated sentinel against a real one.

use simulation::server::{Server, Watch};

use super::frame::Frame;
use super::pair::{Connection, now, packed, words};
use crate::support;

/// Difference that two reads of the clock may show, in ms.
const LATER: i64 = 5_000;

/// Requests that rlock sends to a sentinel, and some like them.
const REQUESTS: &[&str] = &[
    "SENTINEL GET-MASTER-ADDR-BY-NAME svc",
    "SENTINEL get-master-addr-by-name other",
    "SENTINEL GET-MASTER-ADDR-BY-NAME",
    "SENTINEL MASTER svc",
    "SENTINEL MASTER other",
    "SENTINEL MASTER",
    "SENTINEL NONE svc",
    "SENTINEL",
    "EVAL return(1) 0",
    "GET k",
    "SELECT 0",
    "CLIENT NONE",
    "PING",
    "AUTH default x",
    "SUBSCRIBE +switch-master",
    "UNSUBSCRIBE +switch-master",
];

fn watch(primary: u16) -> Watch {
    let address = ("127.0.0.1".to_owned(), primary);
    Watch {
        service: "svc".to_owned(),
        named: address.clone(),
        shown: address,
        epoch: 0,
        since: now(),
        down_after: 1_000,
        others: 0,
    }
}

/// The reply of a sentinel without the fields that the model lacks, and without the number of the
/// connection.
fn without_others(frame: &Frame, known: &[Frame]) -> Frame {
    let Frame::List(mark, parts) = frame else {
        return frame.clone();
    };
    let is_number = |name: &Frame| matches!(name, Frame::Bulk(_, Some(word)) if word == b"id");
    let is_kept = |pair: &&[Frame]| known.contains(&pair[0]) && !is_number(&pair[0]);
    Frame::List(
        *mark,
        parts.chunks(2).filter(is_kept).flatten().cloned().collect(),
    )
}

/// Takes the time since which the primary has been seen out of a reply.
fn take_age(frame: &mut Frame) -> Option<i64> {
    let Frame::List(_, parts) = frame else {
        return None;
    };
    let is_age =
        |name: &Frame| matches!(name, Frame::Bulk(_, Some(word)) if word == b"role-reported-time");
    let place = parts.iter().position(is_age)?;
    match parts.remove(place + 1) {
        Frame::Bulk(_, Some(digits)) => String::from_utf8_lossy(&digits).parse().ok(),
        _ => None,
    }
}

/// A sentinel of Redis 6 leaves the word of PING out of its reply, by which the end of other
/// replies is known here.
fn is_too_old(server: &support::Server) -> bool {
    let is_old = server.cli(&["INFO", "server"]).contains("redis_version:6.");
    if is_old {
        support::skipped("a sentinel of Redis 6 answers PING without its word");
    }
    is_old
}

#[test]
fn a_sentinel_answers_as_a_real_one_does() {
    let primary = support::Server::tcp(&[]);
    if is_too_old(&primary) {
        return;
    }
    let exactly = primary
        .cli(&["INFO", "server"])
        .contains("redis_version:7.0.");
    let real = support::Sentinel::start(primary.port(), "");
    support::eventually("it has reached the primary", || {
        real.field("flags") == "master"
    });
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut connection = Connection::to(real.port());
        let mut model = Server::sentinel("simulated", 1, now(), watch(primary.port()));
        let peer = model.connect();
        for request in [hello].iter().chain(REQUESTS) {
            let asked = words(request);
            let real = connection.ask(&asked, 1);
            let bytes: Vec<u8> = model
                .receive(peer, &packed(&asked), now())
                .into_iter()
                .flat_map(|(_, bytes)| bytes)
                .collect();
            let simulated = Frame::all(&bytes);
            let differ =
                || format!("{hello}, {request}\n     real: {real:?}\nsimulated: {simulated:?}");
            assert_eq!(real.len(), simulated.len(), "{}", differ());
            for (real, simulated) in real.iter().zip(&simulated) {
                let is_told = request.starts_with("HELLO") || *request == "SENTINEL MASTER svc";
                let (mut one, mut two) = (real.clone(), simulated.clone());
                if let (Frame::List(_, known), true) = (simulated, is_told) {
                    (one, two) = (
                        without_others(real, known),
                        without_others(simulated, known),
                    );
                    let age = |frame: &mut Frame| take_age(frame).unwrap_or_default();
                    assert!(
                        (age(&mut one) - age(&mut two)).abs() < LATER,
                        "{}",
                        differ()
                    );
                    if !exactly && request.starts_with("HELLO") {
                        continue;
                    }
                }
                assert!(one.means(&two, exactly), "{}", differ());
            }
        }
    }
}

#[test]
fn a_switch_is_announced_as_a_real_sentinel_does() {
    let service = support::Watched::start();
    if is_too_old(&service.servers[0]) {
        return;
    }
    let mut listener = Connection::to(service.sentinels[0].port());
    for request in ["HELLO 3", "SUBSCRIBE +switch-master"] {
        listener.ask(&words(request), 1);
    }
    let old = &service.servers[0];
    let (heard, new) = std::thread::scope(|scope| {
        let hears = scope.spawn(|| {
            let heard = listener.frame();
            // What else the model is made of: the old primary takes writes while the sentinels name the
            // new one. They make a replica of it some ten seconds later.
            assert!(old.cli(&["INFO", "replication"]).contains("role:master"));
            assert_eq!(old.cli(&["SET", "k", "v"]), "OK");
            heard
        });
        let new = service.fail_over();
        (hears.join().expect("an announcement"), new)
    });
    let ports = [0, new].map(|number| service.servers[number].port());
    let mut model = Server::sentinel("simulated", 1, now(), watch(ports[0]));
    let peer = model.connect();
    for request in ["HELLO 3", "SUBSCRIBE +switch-master"] {
        model.receive(peer, &packed(&words(request)), now());
    }
    let message = format!("svc 127.0.0.1 {} 127.0.0.1 {}", ports[0], ports[1]);
    let sent: Vec<u8> = model
        .publish(b"+switch-master", message.as_bytes())
        .into_iter()
        .flat_map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(Frame::all(&sent), [heard]);
}
