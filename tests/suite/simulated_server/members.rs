//! The simulated member of a cluster against real ones: the map, and what is sent away while a slot
//! moves.

use simulation::server::{Member, Server, Slots, slot};

use super::frame::Frame;
use super::pair::{Connection, now, packed, words};
use crate::support::Cluster;

/// Requests whose keys are there, missing, or both. The third and the fourth key never are.
const REQUESTS: &[&str] = &[
    "GET {job}1",
    "EXISTS {job}1 {job}2",
    "EXISTS {job}3 {job}4",
    "EXISTS {job}1 {job}3",
    "EXISTS {job}3",
    "EXISTS {job}1 other",
    "EVAL return(redis.call('EXISTS',KEYS[1])) 1 {job}1",
    "EVAL return(redis.call('EXISTS',KEYS[1])) 2 {job}1 {job}3",
    "EVAL return(1) 2 {job}3 {job}4",
    "EVAL return(1) 0",
    "PING",
];

/// A member of each kind, asked the same.
struct Pair {
    real: Connection,
    simulated: Server,
}

impl Pair {
    fn asked(&mut self, request: &str, is_asking: bool) -> (Vec<Frame>, Vec<Frame>) {
        let words = words(request);
        let mut real = Vec::new();
        let peer = self.simulated.connect();
        if is_asking {
            // One write, as rlock sends it: the marker of `ask` would take the permission.
            self.real.send(&super::pair::words("ASKING"));
            real.push(self.real.frame());
        }
        self.real.send(&words);
        real.push(self.real.frame());
        let mut bytes = if is_asking {
            packed(&super::pair::words("ASKING"))
        } else {
            vec![]
        };
        bytes.extend(packed(&words));
        let said = self.simulated.receive(peer, &bytes, now());
        let simulated = Frame::all(
            &said
                .into_iter()
                .flat_map(|(_, bytes)| bytes)
                .collect::<Vec<u8>>(),
        );
        (real, simulated)
    }

    fn compare(&mut self, state: &str, exactly: bool) {
        for request in REQUESTS {
            for is_asking in [false, true] {
                let (real, simulated) = self.asked(request, is_asking);
                let alike = real.len() == simulated.len()
                    && real
                        .iter()
                        .zip(&simulated)
                        .all(|(one, two)| one.means(two, exactly));
                assert!(
                    alike,
                    "{state}, asking {is_asking}: {request}\n     real: {real:?}\nsimulated: {simulated:?}"
                );
            }
        }
    }
}

/// The first and the last slot of each range, with its servers' ports, as CLUSTER SLOTS tells them.
fn ranges(reply: &[Frame]) -> Vec<Vec<Frame>> {
    let Some(Frame::List(_, ranges)) = reply.first() else {
        panic!("no map: {reply:?}")
    };
    let range = |range: &Frame| {
        let Frame::List(_, parts) = range else {
            panic!("no range: {range:?}")
        };
        let address = |server: &Frame| match server {
            Frame::List(_, facts) => Frame::List('*', facts[..2].to_vec()),
            slot => slot.clone(),
        };
        parts.iter().map(address).collect()
    };
    let mut all: Vec<Vec<Frame>> = ranges.iter().map(range).collect();
    all.sort_by_key(|range| format!("{range:?}"));
    all
}

#[test]
fn a_member_sends_requests_away_as_a_real_one_does() {
    let cluster = Cluster::start(3, false);
    let exactly = cluster.servers[0]
        .cli(&["INFO", "server"])
        .contains("redis_version:7.0.");
    // Redis 6.2 says ASK where some keys are gone, and later ones TRYAGAIN.
    let is_old = cluster.servers[0]
        .cli(&["INFO", "server"])
        .contains("redis_version:6.");
    let ports = |number: usize| ("127.0.0.1".to_owned(), cluster.servers[number].port());
    let slots = Slots {
        addresses: (0..3).map(ports).collect(),
        ranges: vec![(0, 5_460, 0), (5_461, 10_921, 1), (10_922, 16_383, 2)],
        replicates: std::collections::BTreeMap::new(),
    };
    let (from, job) = (cluster.owner("{job}"), slot(b"{job}1"));
    assert_eq!(cluster.slot("{job}"), job.to_string());
    assert_eq!(slots.owner(job), Some(from));
    let to = cluster.other_than(from);
    let member = |number: usize| {
        let mut simulated = Server::new("simulated", 1, now());
        simulated.join(Member::new(number, slots.clone()));
        Pair {
            real: Connection::to(cluster.servers[number].port()),
            simulated,
        }
    };
    let [mut source, mut target, mut third] = [from, to, 3 - from - to].map(member);
    for pair in [&mut source, &mut target, &mut third] {
        let (real, simulated) = pair.asked("CLUSTER SLOTS", false);
        assert_eq!(ranges(&real), ranges(&simulated));
        pair.compare("no move", exactly);
    }
    for key in ["{job}1", "{job}2"] {
        source.asked(&format!("SET {key} v"), false);
    }
    let moved = cluster.move_slot("{job}", to);
    source
        .simulated
        .member_mut()
        .unwrap()
        .migrating
        .insert(job, to);
    target
        .simulated
        .member_mut()
        .unwrap()
        .importing
        .insert(job, from);
    let mut compare = |source: &mut Pair, target: &mut Pair, state: &str| {
        if !is_old {
            source.compare(state, exactly);
            target.compare(state, exactly);
        }
        third.compare(state, exactly);
    };
    compare(&mut source, &mut target, "nothing has moved");
    for key in ["{job}1", "{job}2"] {
        moved.key(key);
        let entry = source.simulated.take(key.as_bytes(), now()).unwrap();
        target.simulated.add(key.as_bytes().to_vec(), entry, now());
        compare(&mut source, &mut target, key);
    }
}

#[test]
fn a_server_in_no_cluster_says_so() {
    let server = crate::support::Server::tcp(&[]);
    let exactly = server
        .cli(&["INFO", "server"])
        .contains("redis_version:7.0.");
    let mut pair = Pair {
        real: Connection::to(server.port()),
        simulated: Server::new("simulated", 1, now()),
    };
    for request in ["CLUSTER SLOTS", "CLUSTER NODES", "ASKING"] {
        let (real, simulated) = pair.asked(request, false);
        let alike = real
            .iter()
            .zip(&simulated)
            .all(|(one, two)| one.means(two, exactly));
        assert!(
            alike,
            "{request}\n     real: {real:?}\nsimulated: {simulated:?}"
        );
    }
}
