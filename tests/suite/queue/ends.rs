//! The end of a wait: a waiter leaves, is let in late, or gives up in time.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{QUEUE, all_run, hold, job, nothing_is_left, queued, ran, servers};
use crate::support::{Server, eventually, rlock};

#[test]
fn a_waiter_that_leaves_passes_its_turn_on() {
    let servers = servers(1);
    let holder = hold(&servers);
    let leaver = queued(&servers, &[], "leaver");
    let next = queued(&servers, &[], "next");
    leaver.signal(Signal::SIGSTOP);
    holder.finish().code(0);
    leaver.signal(Signal::SIGTERM);
    let begin = Instant::now();
    leaver.signal(Signal::SIGCONT);
    leaver.finish().code(143);
    next.finish().code(0);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(ran(&servers), ["next"]);
    nothing_is_left(&servers);
}

#[test]
fn a_wait_that_is_over_leaves_the_queue_as_it_was() {
    let servers = servers(3);
    let holder = hold(&servers);
    let stays = queued(&servers, &[], "stays");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let goes = queued(&servers, &[], "goes");
        let begin = Instant::now();
        goes.signal(signal);
        goes.finish().code(128 + signal as i32);
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
    }
    queued(&servers, &["--wait", "3s"], "goes")
        .finish()
        .code(75)
        .said(&["busy: held by"]);
    for server in &servers {
        assert_eq!(server.cli(&["ZCARD", QUEUE]), "1");
    }
    all_run(holder, vec![stays]);
    nothing_is_left(&servers);
}

#[test]
fn a_waiter_that_was_not_woken_looks_once_more_before_its_time_is_over() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    // A holder that will never release.
    let value = server.cli(&["GET", "job"]);
    holder.finish().code(0);
    // There are only 50 ms for that look: on a busy machine its answer may be late.
    let is_let_in = || {
        server.cli(&["SET", "job", &value, "PX", "60000"]);
        let waiter = queued(std::slice::from_ref(&server), &["--wait", "3"], "late");
        server.cli(&["DEL", "job"]);
        waiter.finish().exited_with(0)
    };
    assert!((0..3).any(|_| is_let_in()));
}

#[test]
fn a_wait_is_kept_to_its_time_whatever_the_nodes_do() {
    let servers = servers(3);
    let holder = hold(&servers);
    let time = ["--wait", "3", "--ttl", "2m", "--node-timeout", "5s"];
    let waiter = queued(&servers, &time, "late");
    for server in &servers[..2] {
        server.freeze();
    }
    let finished = waiter.finish();
    // A wait for an answer would be over five seconds later.
    assert!(
        finished.took >= Duration::from_millis(2990) && finished.took < Duration::from_secs(7),
        "{:?}",
        finished.took
    );
    for server in &servers {
        server.thaw();
    }
    holder.finish().code(0);
    for server in &servers {
        eventually("it is clean", || {
            server.cli(&["EXISTS", "job", QUEUE]) == "0"
        });
    }
}

#[test]
fn nodes_that_go_away_while_one_waits_are_waited_for_and_then_69() {
    let mut servers = servers(1);
    let holder = job(&servers)
        .args(["--ttl", "1500ms"])
        .hold("trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done");
    let waiter = queued(&servers, &["--wait", "3"], "never");
    servers[0].crash();
    waiter
        .finish()
        .code(69)
        .mentions(&["job", "cannot connect", "trying again"]);
    holder.finish().code(79);
}

#[test]
fn a_queue_has_an_expiry_while_a_waiter_takes_a_minority_and_gives_it_up() {
    let servers = servers(3);
    for server in &servers[..2] {
        server.cli(&["SET", "job", "theirs"]);
    }
    let waiter = job(&servers).args(["--", "true"]).spawn();
    eventually("it stands in the queue", || {
        servers[2].cli(&["ZCARD", QUEUE]) == "1"
    });
    let asked = servers[2].asked();
    while servers[2].asked() < asked + 8 {
        assert_ne!(servers[2].cli(&["PTTL", QUEUE]), "-1");
    }
    waiter.signal(Signal::SIGTERM);
    waiter.finish().code(143);
}
