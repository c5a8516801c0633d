//! Requests of waiters: how many they send, when, and to which node.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use super::{QUEUE, all_run, hold, holder_listens, job, nothing_is_left, queued, ran, servers};
use crate::support::{Running, Server, eventually, far, rlock, rlock_words, slow};

/// A span without an event, in which a waiter that polls would send a request: it is longer than
/// the longest pause of a poll.
const QUIET: Duration = Duration::from_millis(700);

#[test]
fn no_waiter_polls_while_the_holder_is_an_rlock() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = (0..5)
        .map(|number| queued(&servers, &[], &number.to_string()))
        .collect();
    holder_listens(&servers[0]);
    let asked = servers[0].monitored(|| std::thread::sleep(QUIET));
    assert_eq!(asked, Vec::<String>::new());
    all_run(holder, waiters);
}

#[test]
fn no_waiter_polls_because_one_node_is_gone() {
    let mut servers = servers(3);
    // No renewal comes in the time of the test.
    let holder = job(&servers)
        .args(["--ttl", "2m"])
        .hold("echo ready; read line; true");
    let waiters: Vec<Running> = ["a", "b"]
        .iter()
        .map(|name| queued(&servers, &[], name))
        .collect();
    let before = servers[0].asked();
    servers[2].crash();
    eventually("both have looked", || servers[0].asked() >= before + 2);
    // A waiter that hears of the crash while it looks may look once more.
    eventually("neither looks any more", || {
        let asked = servers[0].asked();
        std::thread::sleep(QUIET);
        servers[0].asked() == asked
    });
    let looks = servers[0].asked() - before;
    assert!(looks <= 4, "{looks} requests of two waiters");
    all_run(holder, waiters);
    assert_eq!(ran(&servers), ["a", "b"]);
}

#[test]
fn a_hand_over_takes_two_commands_however_many_wait() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = (0..10)
        .map(|number| queued(&servers, &[], &number.to_string()))
        .collect();
    let asked = servers[0].monitored(|| all_run(holder, waiters));
    let evals = asked
        .iter()
        .filter(|line| line.contains("\"EVALSHA\""))
        .count();
    // The holder's release, and an acquire and a release of each waiter. A busy machine adds a look
    // now and then.
    assert!((21..=26).contains(&evals), "{evals}: {asked:?}");
}

#[test]
fn a_hand_over_tells_one_waiter_and_one_standby() {
    let servers = servers(1);
    let told = || {
        let before = servers[0].calls("publish");
        let holder = hold(&servers);
        let waiters: Vec<Running> = (0..20)
            .map(|number| queued(&servers, &[], &number.to_string()))
            .collect();
        all_run(holder, waiters);
        servers[0].calls("publish") - before
    };
    // On a busy machine a waiter may take its turn so late that more are told.
    let mut counts = Vec::new();
    let are_few = (0..3).any(|_| {
        counts.push(told());
        counts.last().is_some_and(|count| (20..=40).contains(count))
    });
    assert!(are_few, "{counts:?}");
}

#[test]
fn a_connection_that_breaks_while_we_ask_to_listen_is_not_taken_for_a_refusal() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiter = queued(&servers, &["-v"], "waiter");
    for _ in 0..100 {
        servers[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    holder.finish().code(0);
    waiter.finish().code(0).never_said("may not listen");
}

#[test]
fn no_waiter_is_enqueued_where_it_does_not_listen() {
    let servers = [Server::start(), Server::start(), Server::tcp(&[])];
    let urls = [
        servers[0].url(),
        servers[1].url(),
        slow(&servers[2], Duration::from_millis(100)),
    ]
    .join(",");
    let job = || rlock("job").node(&urls).args(["--restart-guard", "off"]);
    let holder = job().hold("echo ready; read line; true");
    // The waiter learns that it must wait before its connection to the third server is open.
    let waiter = job().args(["--", "true"]).spawn();
    eventually("it stands in line", || {
        servers[2].cli(&["ZCARD", QUEUE]) == "1"
    });
    assert_eq!(
        servers[2]
            .cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"])
            .lines()
            .count(),
        1
    );
    holder.finish().code(0);
    waiter.finish().code(0).silent();
    nothing_is_left(&servers);
}

#[test]
fn a_node_that_says_go_is_asked_again_at_once_though_another_hangs() {
    let servers = [Server::start(), Server::tcp(&[]), Server::start()];
    let job = |second: &str| {
        let urls = [&servers[0].url(), second, &servers[2].url()].join(",");
        rlock("job").node(&urls).args([
            "--restart-guard",
            "off",
            "--ttl",
            "2m",
            "--node-timeout",
            "10s",
        ])
    };
    // The holder's release reaches the second server later than the first.
    let holder =
        job(&far(&servers[1], Duration::from_millis(200))).hold("echo ready; read line; true");
    eventually("it has the second too", || {
        servers[1].cli(&["EXISTS", "job"]) == "1"
    });
    let waiter = job(&servers[1].tcp_url()).args(["--", "true"]).spawn();
    for server in &servers {
        eventually("it stands in the queue", || {
            server.cli(&["ZCARD", QUEUE]) == "1"
        });
    }
    servers[2].freeze();
    let begin = Instant::now();
    holder.finish().code(0);
    waiter.finish().code(0).silent();
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
}

/// A server reads a limited amount at a time (Redis 6.2: 16 KiB), and reads no more from a client
/// that has gone once a reply to it failed. A release further behind the SET than that is never
/// executed.
#[test]
fn a_node_that_hangs_is_not_asked_for_the_lock_again_before_it_has_answered() {
    let servers = servers(3);
    servers[0].cli(&["SET", "job", "one"]);
    servers[1].cli(&["SET", "job", "another"]);
    let waiter = job(&servers).args(["--", "true"]).spawn();
    eventually("it waits", || servers[2].cli(&["ZCARD", QUEUE]) == "1");
    let mut frozen = UNIX_EPOCH;
    let seen = servers[2].monitored(|| {
        servers[2].freeze();
        frozen = SystemTime::now();
        servers[0].wait_until_asked(8);
        waiter.signal(Signal::SIGTERM);
        waiter.finish().code(143);
        servers[2].thaw();
    });
    let since = |line: &&String| {
        let at = line
            .split(' ')
            .next()
            .and_then(|at| at.parse().ok())
            .map(Duration::from_secs_f64);
        UNIX_EPOCH + at.expect("a time") > frozen
    };
    let tries = seen
        .iter()
        .filter(since)
        .filter(|line| line.contains("\"take\""))
        .count();
    assert!(
        tries <= 1,
        "{tries} tries are executed by a server that hung"
    );
    eventually("it is clean", || {
        servers[2].cli(&["EXISTS", "job", QUEUE]) == "0"
    });
}

/// No process renews a lock of `acquire`, so the third node stays free.
#[test]
fn a_waiter_that_gives_a_minority_up_does_not_call_itself() {
    let mut servers = servers(3);
    servers[2].crash();
    let urls = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    let acquire = rlock_words(&[
        "acquire",
        "-k",
        "job",
        "--ttl",
        "5m",
        "--restart-guard",
        "off",
        "--node",
        &urls,
    ]);
    acquire.finish().code(0);
    servers[2].come_back();
    let waiter = job(&servers).args(["--", "true"]).spawn();
    eventually("it stands in the queue", || {
        servers[2].cli(&["ZCARD", QUEUE]) == "1"
    });
    let (asked, begin) = (servers[2].asked(), Instant::now());
    while begin.elapsed() < Duration::from_secs(3) {
        let more = servers[2].asked() - asked;
        assert!(more < 8, "{more} requests in {:?}", begin.elapsed());
    }
    waiter.signal(Signal::SIGTERM);
    waiter.finish().code(143);
}
