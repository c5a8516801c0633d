//! The scripts that rlock ships, in generated sequences of what holders, waiters and operators do.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rlock::store::redis::script::{FREE, FREE_MEMBER, KEEP, KEEP_MEMBER, LOCK, Script};

use super::frame::Frame;
use super::pair::{Fault, Pair, Words, now, words};
use super::{compare, read};

const KEY: &str = "job";
const FENCE: &str = "rlock:fence:{job}:job";
const LEASES: &str = "rlock:leases:{job}:job";
const HOLDERS: &str = "rlock:holders:{job}:job";
const LAST: &str = "rlock:last:{job}:job";
const QUEUE: &str = "rlock:queue:{job}:job";
const TURNS: &str = "rlock:turns:{job}:job";
const NEWEST: &str = "rlock:newest:{job}:job";

/// The keys that each operation takes, in their order.
const KEYS: [&str; 6] = [KEY, FENCE, LEASES, HOLDERS, QUEUE, TURNS];

/// Waiters by their number: of two hosts, and of several kinds.
const WAITERS: [&str; 5] = [
    "",
    "w1 here 1 5",
    "w2 here 2 5 s",
    "w3 there 3 5 k2",
    "w4 there 4 5 s",
];

/// TTL of queues and counters, in ms: none expires during a case.
const LONG: &str = "100000000";
const HOLDERS_CHANNEL: &str = "rlock:wake:{job}:holder";

/// TTL of the lock of a token, in ms. They differ, so that the ends of members have one order on
/// both servers.
const TTLS: [&str; 3] = ["100000000", "200000000", "300000000"];

/// A step of a client, of an operator, or of fate.
#[derive(Clone, Debug)]
enum Step {
    Acquire {
        token: usize,
        waiter: usize,
        hint: i64,
        uptime: &'static str,
        is_alone: bool,
        place: Option<Place>,
        supersedes: bool,
    },
    Announce {
        waiter: usize,
        is_alone: bool,
    },
    Renew {
        token: usize,
        fence: i64,
        index: &'static str,
    },
    Heal {
        token: usize,
        waiter: usize,
        fence: i64,
        told: &'static str,
        place: Option<Place>,
    },
    Release {
        token: usize,
        waiter: usize,
        stays: bool,
    },
    /// A script that needs nothing that the server keeps.
    Alone {
        token: usize,
        script: usize,
    },
    /// A release once a command has run.
    End {
        token: usize,
        waiter: usize,
        leaves: Leaves,
        fence: i64,
    },
    Forget(usize),
    Tombstone(usize),
    ForceDelete {
        token: usize,
        fence: i64,
    },
    DeleteForeign,
    Observe {
        waiters: usize,
        members: usize,
        token: usize,
    },
    /// A waiter's connection, which has its own client of the pair.
    Listens {
        waiter: usize,
        is_on: bool,
    },
    /// A waiter's turn as it was this many ms ago.
    Aged {
        waiter: usize,
        ms: i64,
    },
    Raw(&'static str),
    Fault(Fault),
}

/// The remains of a release.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// An exclusive lock is parked, perhaps in a tombstone's place.
    Parked { parks_tombstone: bool },
    /// A run alone.
    Run,
    /// A success.
    Success,
    /// A copy of an earlier one.
    Earlier,
    /// A member is parked.
    Member {
        parks_tombstone: bool,
        index: &'static str,
    },
}

fn leaves() -> impl Strategy<Value = Leaves> {
    (0..5usize, any::<bool>(), index()).prop_map(|(which, parks_tombstone, index)| match which {
        0 => Leaves::Parked { parks_tombstone },
        1 => Leaves::Run,
        2 => Leaves::Success,
        3 => Leaves::Earlier,
        _ => Leaves::Member {
            parks_tombstone,
            index,
        },
    })
}

/// The index of a member's place.
fn index() -> impl Strategy<Value = &'static str> {
    select(vec!["0", "1", "2"])
}

/// A place among the members of a lock.
#[derive(Clone, Copy, Debug)]
struct Place {
    kind: &'static str,
    nodes: &'static str,
    index: &'static str,
    is_exact: bool,
}

/// That of an exclusive lock.
const EXCLUSIVE: Place = Place {
    kind: "x",
    nodes: "3",
    index: "0",
    is_exact: false,
};

fn place() -> impl Strategy<Value = Place> {
    let kind = select(vec!["s", "s", "k2", "k2", "k3"]);
    (
        kind,
        select(vec!["3", "3", "3", "1"]),
        select(vec!["1", "2"]),
        any::<bool>(),
    )
        .prop_map(|(kind, nodes, index, is_exact)| {
            let index = if kind == "s" { "0" } else { index };
            Place {
                kind,
                nodes,
                index,
                is_exact: is_exact && kind != "s",
            }
        })
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
    "SET rlock:turns:{job}:job x",
    "SET rlock:newest:{job}:job x",
    "SET rlock:newest:{job}:job 9999999999999999 w9 there 9 5",
    "HSET rlock:newest:{job}:job f v",
    "DEL rlock:leases:{job}:job",
    "ZREM rlock:leases:{job}:job token1",
    "ZADD rlock:leases:{job}:job 1 token1",
    "DEL rlock:holders:{job}:job",
    "HDEL rlock:holders:{job}:job 1",
    "SET rlock:holders:{job}:job x",
    "FOO",
    "HSET rlock:last:{job}:job a b",
    "SET rlock:last:{job}:job x",
    "DEL rlock:last:{job}:job",
    "SET rlock:fence:{job}:job 4503599627370495",
];

fn step() -> impl Strategy<Value = Step> {
    let (token, waiter) = (0..3usize, 0..WAITERS.len());
    let fence = || select(vec![0, 1, 100_000, 1_000_000]);
    let uptime = select(vec!["", "", "0", "99999999"]);
    let among = || proptest::option::weighted(0.7, place());
    let acquire = (
        token.clone(),
        waiter.clone(),
        fence(),
        uptime,
        any::<bool>(),
        among(),
        any::<bool>(),
    );
    let announce = (waiter.clone(), any::<bool>());
    let renew = (token.clone(), fence(), index());
    let heal = (
        token.clone(),
        waiter.clone(),
        fence(),
        select(vec!["", "0", "1"]),
        among(),
    );
    let release = (token.clone(), waiter.clone(), any::<bool>());
    let aged = (1..WAITERS.len(), select(vec![0, 500, 1500, -5000]));
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
        12 => acquire.prop_map(|(token, waiter, hint, uptime, is_alone, place, supersedes)| {
            Step::Acquire { token, waiter, hint, uptime, is_alone, place, supersedes: supersedes && waiter > 0 }
        }),
        1 => announce.prop_map(|(waiter, is_alone)| Step::Announce { waiter, is_alone }),
        2 => renew.prop_map(|(token, fence, index)| Step::Renew { token, fence, index }),
        3 => heal.prop_map(|(token, waiter, fence, told, place)| Step::Heal { token, waiter, fence, told, place }),
        5 => release.prop_map(|(token, waiter, stays)| Step::Release { token, waiter, stays }),
        4 => (token.clone(), 0..4usize).prop_map(|(token, script)| Step::Alone { token, script }),
        6 => (token.clone(), 0..WAITERS.len(), leaves(), fence())
            .prop_map(|(token, waiter, leaves, fence)| Step::End { token, waiter, leaves, fence }),
        1 => token.clone().prop_map(Step::Forget),
        2 => token.clone().prop_map(Step::Tombstone),
        1 => (token.clone(), fence()).prop_map(|(token, fence)| Step::ForceDelete { token, fence }),
        1 => Just(Step::DeleteForeign),
        1 => (0..4usize, 0..4usize, token).prop_map(|(waiters, members, token)| Step::Observe { waiters, members, token }),
        4 => (1..WAITERS.len(), any::<bool>()).prop_map(|(waiter, is_on)| Step::Listens { waiter, is_on }),
        2 => aged.prop_map(|(waiter, ms)| Step::Aged { waiter, ms }),
        1 => select(RAW).prop_map(Step::Raw),
        1 => select(faults).prop_map(Step::Fault),
    ]
}

/// A call of an operation, with the usual keys and a further one.
fn call(operation: &str, further: Option<&str>, args: &[&str]) -> Words {
    let count = (KEYS.len() + usize::from(further.is_some())).to_string();
    let head = ["EVALSHA", &LOCK.digest, &count];
    let keys = KEYS.iter().copied().chain(further);
    let words = head
        .into_iter()
        .chain(keys)
        .chain([operation])
        .chain(args.iter().copied());
    words.map(|word| word.as_bytes().to_vec()).collect()
}

fn eval(script: &Script, keys: &[&str], args: &[&str]) -> Words {
    let count = keys.len().to_string();
    let head = ["EVAL", &script.text, &count];
    head.iter()
        .chain(keys)
        .chain(args)
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// The token whose exclusive lock has the form of Redisson's.
const HASHED: usize = 2;

/// The text of a waiter with `--supersede`.
fn came(waiter: usize) -> String {
    format!("{:016} {}", 1_000_000 + waiter, WAITERS[waiter])
}

fn id(waiter: usize) -> &'static str {
    WAITERS[waiter].split(' ').next().unwrap_or_default()
}

/// Returns the client that takes a step, and its request. `start` is the clock at the begin of the
/// case, in µs.
#[expect(clippy::too_many_lines, reason = "one row for each request")]
fn request(step: &Step, start: i64) -> Option<(usize, Words)> {
    let name = |token: usize| format!("token{token}");
    let value = |token: usize| format!("token{token} {{\"host\":\"here\",\"n\":1}}");
    let after = |micros: i64| (start + micros).to_string();
    let request = match *step {
        Step::Acquire {
            token,
            waiter,
            hint,
            uptime,
            is_alone,
            place,
            supersedes,
        } => {
            let (hint, alone, ticket) = (
                after(hint),
                if is_alone { "1" } else { "" },
                waiter.to_string(),
            );
            let (name, value) = (name(token), value(token));
            let outer = "token9 token0";
            let args = [
                value.as_str(),
                TTLS[token],
                &hint,
                LONG,
                uptime,
                WAITERS[waiter],
                &ticket,
                LONG,
                alone,
                outer,
            ];
            let Place {
                kind,
                nodes,
                index,
                is_exact,
            } = place.unwrap_or(EXCLUSIVE);
            let flag = |is_set: bool| if is_set { "1" } else { "" };
            let as_redisson = flag(token == HASHED && kind == "x");
            let place = [
                name.as_str(),
                kind,
                nodes,
                index.max("1"),
                flag(is_exact),
                as_redisson,
            ];
            let came = came(waiter);
            let mut args = [&args[..], &place].concat();
            args.extend(supersedes.then_some(came.as_str()));
            call("take", supersedes.then_some(NEWEST), &args)
        }
        Step::Announce { waiter, is_alone } => call(
            "announce",
            Some(NEWEST),
            &[&came(waiter), LONG, if is_alone { "1" } else { "" }],
        ),
        Step::Renew {
            token,
            fence,
            index,
        } => call(
            "renew",
            None,
            &[&name(token), TTLS[token], &after(fence), LONG, index],
        ),
        Step::Heal {
            token,
            waiter,
            fence,
            told,
            place,
        } => {
            let Place {
                kind, nodes, index, ..
            } = place.unwrap_or(EXCLUSIVE);
            let (name, value, fence) = (name(token), value(token), after(fence));
            let as_redisson = if token == HASHED && kind == "x" {
                "1"
            } else {
                ""
            };
            let args = [
                &name,
                &value,
                TTLS[token],
                &fence,
                LONG,
                WAITERS[waiter],
                told,
                kind,
                nodes,
                index,
                as_redisson,
            ];
            call("heal", None, &args)
        }
        Step::Release {
            token,
            waiter,
            stays,
        } => {
            // Token 0 is none here: the waiter leaves the queue.
            let token = if token == 0 {
                String::new()
            } else {
                name(token)
            };
            let ticket = if stays && waiter > 0 {
                waiter.to_string()
            } else {
                String::new()
            };
            let came = if waiter % 2 == 1 {
                came(waiter)
            } else {
                String::new()
            };
            call(
                "release",
                Some(NEWEST),
                &[&token, WAITERS[waiter], &ticket, LONG, &came],
            )
        }
        Step::Alone { token, script } => {
            let (name, members) = (name(token), [KEY, LEASES, HOLDERS]);
            match script {
                0 => eval(&KEEP, &[KEY], &[&name, TTLS[token]]),
                1 => eval(&FREE, &[KEY], &[&name, "redisson_lock__channel:{job}"]),
                2 => eval(&KEEP_MEMBER, &members, &[&name, TTLS[token], "1"]),
                _ => eval(&FREE_MEMBER, &members, &[&name]),
            }
        }
        Step::End {
            token,
            waiter,
            leaves,
            fence,
        } => {
            let (name, parked) = (name(token), format!("parked {}", value(token)));
            let flag = |is_set: bool| if is_set { "1" } else { "" };
            // A member may be parked so too, and the ends of members have one order.
            let parking = match leaves {
                Leaves::Parked { parks_tombstone } => {
                    vec![TTLS[token], &parked, LONG, flag(parks_tombstone), "0"]
                }
                Leaves::Member {
                    parks_tombstone,
                    index,
                } => {
                    vec![TTLS[token], &parked, TTLS[2], flag(parks_tombstone), index]
                }
                _ => vec![],
            };
            let [age, run, success] = match leaves {
                Leaves::Success => ["0", LONG, TTLS[2]],
                Leaves::Earlier => ["100000", "", TTLS[2]],
                _ => ["0", LONG, ""],
            };
            let fence = format!("{:016}", 1 + fence);
            let note = [
                fence.as_str(),
                &name,
                "{\"host\":\"here\"}",
                age,
                run,
                success,
            ];
            let args = [
                &[name.as_str(), WAITERS[waiter], "", LONG, ""],
                &parking[..],
                &note,
            ]
            .concat();
            call(
                if parking.is_empty() {
                    "release"
                } else {
                    "park"
                },
                Some(LAST),
                &args,
            )
        }
        Step::Forget(token) => call("forget", Some(LAST), &[&name(token)]),
        Step::Tombstone(token) => call(
            "break",
            None,
            &[
                &name(token),
                &format!("broken {} {{}}", name(token)),
                HOLDERS_CHANNEL,
            ],
        ),
        Step::ForceDelete { token, fence } => {
            let (name, highest, fence) = (name(token), after(fence), format!("{:016}", 1 + fence));
            let args = [
                &name,
                &highest,
                LONG,
                HOLDERS_CHANNEL,
                &fence,
                &name,
                "{}",
                "0",
                LONG,
                "",
            ];
            call("delete", Some(LAST), &args)
        }
        Step::DeleteForeign => call("delete_foreign", None, &["string", "7", "foreign"]),
        Step::Observe {
            waiters,
            members,
            token,
        } => {
            let (waiters, members) = (waiters.to_string(), members.to_string());
            call(
                "observe",
                Some(LAST),
                &[&waiters, "40", &members, "120", &name(token)],
            )
        }
        Step::Listens { waiter, is_on } => {
            let verb = if is_on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
            return Some((
                waiter,
                words(&format!("{verb} rlock:wake:{{job}}:{}", id(waiter))),
            ));
        }
        Step::Aged { waiter, ms } => {
            let since = (start / 1000 - ms).to_string();
            ["ZADD", TURNS, &since, WAITERS[waiter]]
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect()
        }
        Step::Raw(text) => words(text),
        Step::Fault(_) => return None,
    };
    Some((0, request))
}

/// A reply to acquire without what differs by nature: the server's identity, and the ms that a turn
/// has left.
fn without_identity(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    if let Frame::List('*', parts) = &mut frame
        && let [
            Frame::List('*', answer),
            Frame::List('*', server),
            Frame::List('*', _),
        ] = parts.as_mut_slice()
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
        // Both servers keep it from then on.
        pair.ask(0, &eval(&LOCK, &[], &[]))?;
        for step in &steps {
            let is_about_rights = matches!(
                step,
                Step::Fault(Fault::DenyChannels | Fault::DenyCommand("publish"))
            );
            if is_about_rights && !pair.real.tells_rights {
                continue;
            }
            if let Step::Listens {
                waiter,
                is_on: false,
            } = *step
            {
                // Valkey refuses to end what was not begun.
                let (client, begin) = request(
                    &Step::Listens {
                        waiter,
                        is_on: true,
                    },
                    start,
                )
                .expect("a request");
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
        KEYS.iter()
            .chain(&[NEWEST, LAST])
            .try_for_each(|key| read(&mut pair, key))
    });
}
