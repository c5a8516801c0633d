//! The scripts that rlock ships, in generated sequences of what holders, waiters and operators do.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rlock::node::redis as scripts;

use super::frame::Frame;
use super::pair::{Fault, Pair, Words, now, words};
use super::{compare, read};

const LOCK: &str = "job";
const FENCE: &str = "rlock:fence:{job}:job";
const QUEUE: &str = "rlock:queue:{job}:job";
const OFFER: &str = "rlock:offer:{job}:job";
const STANDBY: &str = "rlock:standby:{job}:job";

/// Waiters by their number: of two hosts.
const WAITERS: [&str; 5] = ["", "w1 here 1 5", "w2 here 2 5", "w3 there 3 5", "w4 there 4 5"];

/// TTL of locks, queues and counters, in ms: none expires during a case.
const LONG: &str = "100000000";

/// A step of a client, of an operator, or of fate.
#[derive(Clone, Debug)]
enum Step {
    Acquire {
        token: usize,
        waiter: usize,
        hint: i64,
        uptime: &'static str,
        is_alone: bool,
    },
    Renew {
        token: usize,
        fence: i64,
    },
    Heal {
        token: usize,
        waiter: usize,
        fence: i64,
        told: &'static str,
    },
    Release {
        token: usize,
        waiter: usize,
        stays: bool,
    },
    Tombstone(usize),
    ForceDelete {
        token: usize,
        fence: i64,
    },
    DeleteForeign,
    Observe(usize),
    /// A waiter's connection, which has its own client of the pair.
    Listens {
        waiter: usize,
        is_on: bool,
    },
    /// The open offer, or the standbys, as they were this many ms ago.
    Aged {
        key: &'static str,
        waiter: usize,
        ms: i64,
    },
    Raw(&'static str),
    Fault(Fault),
}

const RAW: &[&str] = &[
    "DEL job",
    "SET job foreign",
    "HSET job f v",
    "DEL rlock:fence:{job}:job",
    "SET rlock:fence:{job}:job garbage",
    "ZADD rlock:fence:{job}:job 1 m",
    "SET rlock:queue:{job}:job x",
    "DEL rlock:queue:{job}:job",
    "FOO",
    "SET rlock:fence:{job}:job 4503599627370495",
];

fn step() -> impl Strategy<Value = Step> {
    let (token, waiter) = (0..3usize, 0..WAITERS.len());
    let fence = || select(vec![0, 1, 100_000, 1_000_000]);
    let acquire = (token.clone(), waiter.clone(), fence(), select(vec!["", "", "0", "99999999"]), any::<bool>());
    let heal = (token.clone(), waiter.clone(), fence(), select(vec!["", "0", "1"]));
    let aged = (select(vec![OFFER, STANDBY]), 1..WAITERS.len(), select(vec![0, 500, 1500, -5000]));
    let faults = vec![
        Fault::OutOfMemory(true),
        Fault::OutOfMemory(false),
        Fault::Replica(true),
        Fault::Replica(false),
        Fault::DenyChannels,
        Fault::DenyCommand("publish"),
        Fault::DenyCommand("zadd"),
        Fault::DenyCommand("info"),
        Fault::AllowAll,
        Fault::AllowAll,
    ];
    prop_oneof![
        8 => acquire.prop_map(|(token, waiter, hint, uptime, is_alone)| Step::Acquire { token, waiter, hint, uptime, is_alone }),
        2 => (token.clone(), fence()).prop_map(|(token, fence)| Step::Renew { token, fence }),
        2 => heal.prop_map(|(token, waiter, fence, told)| Step::Heal { token, waiter, fence, told }),
        5 => (token.clone(), waiter.clone(), any::<bool>())
            .prop_map(|(token, waiter, stays)| Step::Release { token, waiter, stays }),
        1 => token.clone().prop_map(Step::Tombstone),
        1 => (token, fence()).prop_map(|(token, fence)| Step::ForceDelete { token, fence }),
        1 => Just(Step::DeleteForeign),
        1 => (0..4usize).prop_map(Step::Observe),
        4 => (1..WAITERS.len(), any::<bool>()).prop_map(|(waiter, is_on)| Step::Listens { waiter, is_on }),
        2 => aged.prop_map(|(key, waiter, ms)| Step::Aged { key, waiter, ms }),
        1 => select(RAW).prop_map(Step::Raw),
        1 => select(faults).prop_map(Step::Fault),
    ]
}

fn eval(script: &str, keys: &[&str], args: &[&str]) -> Words {
    let count = keys.len().to_string();
    let head = ["EVAL", script, &count];
    head.iter().chain(keys).chain(args).map(|word| word.as_bytes().to_vec()).collect()
}

fn id(waiter: usize) -> &'static str {
    WAITERS[waiter].split(' ').next().unwrap_or_default()
}

/// Returns the client that takes a step, and its request. `start` is the clock at the begin of the case, in µs.
fn request(step: &Step, start: i64) -> Option<(usize, Words)> {
    let name = |token: usize| format!("token{token}");
    let value = |token: usize| format!("token{token} {{\"host\":\"here\",\"n\":1}}");
    let after = |micros: i64| (start + micros).to_string();
    let request = match *step {
        Step::Acquire { token, waiter, hint, uptime, is_alone } => {
            let (hint, alone, ticket) = (after(hint), if is_alone { "1" } else { "" }, waiter.to_string());
            let args = [&value(token), LONG, &hint, LONG, uptime, WAITERS[waiter], &ticket, LONG, alone];
            eval(scripts::ACQUIRE, &[LOCK, FENCE, QUEUE, OFFER, STANDBY], &args)
        }
        Step::Renew { token, fence } => {
            eval(scripts::RENEW, &[LOCK, FENCE], &[&name(token), LONG, &after(fence), LONG])
        }
        Step::Heal { token, waiter, fence, told } => {
            let args = [&name(token), &value(token), LONG, &after(fence), LONG, WAITERS[waiter], told];
            eval(scripts::HEAL, &[LOCK, FENCE, QUEUE], &args)
        }
        Step::Release { token, waiter, stays } => {
            // Token 0 is none here: the waiter leaves the queue.
            let token = if token == 0 { String::new() } else { name(token) };
            let ticket = if stays && waiter > 0 { waiter.to_string() } else { String::new() };
            eval(scripts::RELEASE, &[LOCK, QUEUE, OFFER, STANDBY], &[&token, WAITERS[waiter], &ticket, LONG])
        }
        Step::Tombstone(token) => {
            eval(scripts::TOMBSTONE, &[LOCK], &[&name(token), &format!("broken {} {{}}", name(token))])
        }
        Step::ForceDelete { token, fence } => {
            let keys = [LOCK, FENCE, QUEUE, OFFER, STANDBY];
            eval(scripts::FORCE_DELETE, &keys, &[&name(token), &after(fence), LONG])
        }
        Step::DeleteForeign => {
            eval(scripts::DELETE_FOREIGN, &[LOCK, QUEUE, OFFER, STANDBY], &["string", "7", "foreign"])
        }
        Step::Observe(most) => eval(scripts::OBSERVE, &[LOCK, FENCE, QUEUE], &[&most.to_string(), "40"]),
        Step::Listens { waiter, is_on } => {
            let verb = if is_on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
            return Some((waiter, words(&format!("{verb} rlock:wake:{{job}}:{}", id(waiter)))));
        }
        Step::Aged { key, waiter, ms } => {
            let since = start / 1000 - ms;
            let record = if key == OFFER {
                format!("{} {since}", id(waiter))
            } else {
                format!("{since}\n{}\n{}", WAITERS[waiter], WAITERS[1])
            };
            ["SET", key, &record].map(|word| word.as_bytes().to_vec()).to_vec()
        }
        Step::Raw(text) => words(text),
        Step::Fault(_) => return None,
    };
    Some((0, request))
}

/// A reply to acquire without what differs by nature: the server's identity, and the ms that a turn has left.
fn without_identity(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    if let Frame::List('*', parts) = &mut frame
        && let [Frame::List('*', answer), Frame::List('*', server), Frame::List('*', _)] = parts.as_mut_slice()
    {
        let word = |text: &str| Frame::Bulk('$', Some(text.as_bytes().to_vec()));
        if answer.first() == Some(&word("turn")) {
            answer.truncate(2);
        }
        if server.len() == 3 {
            server.fill(word("its own"));
        }
    }
    frame
}

#[test]
fn the_shipped_scripts_do_what_they_do_on_a_real_server() {
    compare(&vec(step(), 1..60), |real, steps| {
        let mut pair = Pair::new(real, WAITERS.len(), "3");
        let start = now().0;
        for step in &steps {
            let is_about_rights = matches!(step, Step::Fault(Fault::DenyChannels | Fault::DenyCommand("publish")));
            if is_about_rights && !pair.real.tells_rights {
                continue;
            }
            if let Step::Listens { waiter, is_on: false } = *step {
                // Valkey refuses to end what was not begun.
                let (client, begin) = request(&Step::Listens { waiter, is_on: true }, start).expect("a request");
                if matches!(pair.ask(client, &begin)?.as_slice(), [Frame::Line('-', _)]) {
                    continue;
                }
            }
            match request(step, start) {
                Some((client, request)) => drop(pair.ask_as(client, &request, without_identity)?),
                None => {
                    if let Step::Fault(fault) = step {
                        pair.inflict(fault);
                    }
                }
            }
        }
        pair.inflict(&Fault::AllowAll);
        [LOCK, FENCE, QUEUE, OFFER, STANDBY].iter().try_for_each(|key| read(&mut pair, key))
    });
}
