//! Failovers of a primary, its replicas and three sentinels: planned, after a crash, and of a
//! server that resumes.

use std::time::{Duration, Instant};

use crate::contest::Contest;
use crate::support::{Rlock, Running, Sentinel, Server, Watched, eventually, rlock, rlock_words};

const QUEUE: &str = "rlock:queue:{job}:job";

#[test]
fn in_a_planned_failover_no_two_hold_the_lock() {
    let set = Watched::start();
    let contest = Contest::new(set.url());
    // The old primary goes on taking writes for ten seconds.
    contest.run(|| {
        set.fail_over();
    });
    contest.is_fair();
}

#[test]
fn after_a_crash_no_two_hold_the_lock_though_the_old_primary_comes_back_empty() {
    let mut set = Watched::start();
    let contest = Contest::new(set.url());
    contest.run(|| {
        set.servers[0].crash();
        set.switched_from(0);
        contest.goes_on();
        set.servers[0].come_back();
    });
    contest.is_fair();
}

#[test]
fn a_primary_that_resumes_after_it_was_replaced_gives_no_lock() {
    let set = Watched::start();
    let contest = Contest::new(set.url());
    contest.run(|| {
        set.servers[0].freeze();
        set.switched_from(0);
        contest.goes_on();
        set.servers[0].thaw();
    });
    contest.is_fair();
}

fn job(set: &Watched) -> Rlock {
    rlock("job").node(&set.url()).args(["--ttl", "5m"])
}

/// Starts a waiter that prints its number, and waits until it stands in line at server number
/// `primary`.
fn waiter(set: &Watched, primary: usize, number: usize) -> Running {
    let waiter = job(set).args(["--", "echo", &number.to_string()]).spawn();
    eventually("it stands in line", || {
        set.servers[primary].cli(&["ZCARD", QUEUE]) == number.to_string()
    });
    waiter
}

#[test]
fn a_planned_failover_disturbs_no_holder_and_each_waiter_keeps_its_place() {
    let set = Watched::start();
    let told = rlock_words(["doctor"])
        .node(&Watched::url_of(&[&set.sentinels[0]]))
        .finish()
        .stdout
        .join("\n");
    assert!(told.contains("1 of its 3 sentinels are listed"), "{told}");
    let holder = job(&set).hold("echo ready; read line; true");
    let waiters = [1, 2].map(|number| waiter(&set, 0, number));
    let new = set.fail_over();
    let begin = Instant::now();
    let listening = || {
        set.servers[new]
            .cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"])
            .lines()
            .count()
    };
    eventually("the holder and they listen at the new primary", || {
        listening() == 3
    });
    // The old primary is demoted, and closes their connections, ten seconds after the switch.
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "they heard of the switch: {:?}",
        begin.elapsed()
    );
    let young = rlock("other")
        .node(&set.url())
        .args(["-n", "--restart-guard", "1h"])
        .command(["true"])
        .code(69);
    young.said(&["it became the primary ", "restart guard"]);
    assert_eq!(set.servers[new].cli(&["EXISTS", "other"]), "0");
    outvoted(&set, new);
    holder.finish().code(0).silent();
    let begin = Instant::now();
    let [first, second] = waiters;
    first.finish().code(0).printed(&["1"]);
    second.finish().code(0).printed(&["2"]);
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(set.servers[new].cli(&["EXISTS", "job", QUEUE]), "0");
}

/// A sentinel that names another server at a lower epoch is outvoted by a majority, and keeps half
/// of them from being one.
#[track_caller]
fn outvoted(set: &Watched, primary: usize) {
    let elsewhere = Server::tcp(&[]);
    let stale = Sentinel::start(elsewhere.port(), "");
    let [first, second, ..] = &set.sentinels[..] else {
        panic!("three sentinels")
    };
    let run = |sentinels: &[&Sentinel], wait| {
        rlock("other")
            .node(&Watched::url_of(sentinels))
            .args(["--wait", wait])
            .command(["echo", "ran"])
    };
    run(&[&stale, first, second], "5")
        .code(0)
        .silent()
        .printed(&["ran"]);
    run(&[&stale, first], "1")
        .code(69)
        .printed(&[])
        .said(&["too few sentinels name 127.0.0.1"]);
    assert_eq!(set.servers[primary].cli(&["EXISTS", "other"]), "0");
    assert_eq!(elsewhere.cli(&["DBSIZE"]), "0");
}

#[test]
fn a_holder_survives_the_crash_of_its_primary_and_a_waiter_follows() {
    let mut set = Watched::start();
    let holder = job(&set).hold("echo ready; read line; echo done");
    let waiter = waiter(&set, 0, 1);
    // The key and the queue are at both replicas.
    for replica in &set.servers[1..] {
        eventually("it has caught up", || {
            replica.cli(&["EXISTS", "job", QUEUE]) == "2"
        });
    }
    set.servers[0].crash();
    let new = set.switched_from(0);
    let before = set.servers[new].asked();
    eventually("it is renewed at the new primary", || {
        set.servers[new].asked() > before
    });
    eventually("the holder and the waiter listen there", || {
        set.servers[new]
            .cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"])
            .lines()
            .count()
            == 2
    });
    holder.finish().code(0).printed(&["ready", "done"]);
    waiter.finish().code(0).printed(&["1"]);
    assert_eq!(set.servers[new].cli(&["EXISTS", "job"]), "0");
}
