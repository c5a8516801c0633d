//! Waiters that are skipped: dead, stopped, or gone from the queue; and holders that are dead.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{
    all_run, all_run_of, hold, job, line, listening, nothing_is_left, queued, ran, servers,
};
use crate::support::{Running, Server, eventually};

#[test]
fn waiters_that_die_are_skipped_at_once() {
    let servers = servers(3);
    let holder = hold(&servers);
    let dead: Vec<Running> = (0..3)
        .map(|number| queued(&servers, &[], &format!("dead{number}")))
        .collect();
    let alive = queued(&servers, &[], "alive");
    for waiter in &dead {
        waiter.signal(Signal::SIGKILL);
    }
    // A dead waiter counts as a listener until the servers see its connection end.
    drop(dead);
    let begin = Instant::now();
    all_run(holder, vec![alive]);
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(ran(&servers), ["alive"]);
    nothing_is_left(&servers);
}

#[test]
fn waiters_that_stopped_cost_seconds_and_get_their_turn_when_they_go_on() {
    let servers = servers(1);
    let holder = hold(&servers);
    let stopped = [
        queued(&servers, &[], "stopped"),
        queued(&servers, &[], "stopped"),
    ];
    let alive = queued(&servers, &[], "alive");
    for waiter in &stopped {
        waiter.signal(Signal::SIGSTOP);
    }
    let begin = Instant::now();
    all_run(holder, vec![alive]);
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    for waiter in stopped {
        waiter.signal(Signal::SIGCONT);
        waiter.finish().code(0).silent();
    }
    assert_eq!(ran(&servers), ["alive", "stopped", "stopped"]);
    nothing_is_left(&servers);
}

#[test]
fn one_that_stopped_is_passed_by_though_all_were_told_to_watch_another() {
    let servers = servers(1);
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    let stopped = queued(&servers, &[], "stopped");
    let waiters = ["a", "b", "c"]
        .map(|name| queued(&servers, &[], name))
        .into();
    stopped.signal(Signal::SIGSTOP);
    let begin = Instant::now();
    holder.finish().code(0);
    first.finish().code(0);
    all_run_of(waiters);
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(ran(&servers), ["first", "a", "b", "c"]);
    stopped.signal(Signal::SIGCONT);
    stopped.finish().code(0);
    nothing_is_left(&servers);
}

/// An offer from the future must not count as one that the first waiter still has time to take.
#[test]
fn one_that_stopped_is_passed_by_though_the_clock_is_set_back() {
    let servers = [Server::ahead(0)];
    let holder = hold(&servers);
    let stopped = queued(&servers, &[], "stopped");
    let waiter = queued(&servers, &[], "waiter");
    stopped.signal(Signal::SIGSTOP);
    holder.finish().code(0);
    servers[0].set_clock(-300);
    let begin = Instant::now();
    waiter.finish().code(0).silent();
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    stopped.signal(Signal::SIGCONT);
    stopped.finish().code(0);
    assert_eq!(ran(&servers), ["waiter", "stopped"]);
    nothing_is_left(&servers);
}

#[test]
fn a_holder_that_crashed_is_followed_when_its_lease_is_over() {
    let servers = servers(1);
    let holder = job(&servers)
        .args(["--ttl", "2s"])
        .hold("echo ready; read line; true");
    let waiters = vec![queued(&servers, &[], "a"), queued(&servers, &[], "b")];
    holder.signal(Signal::SIGKILL);
    let begin = Instant::now();
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(ran(&servers), ["a", "b"]);
}

#[test]
fn dead_waiters_do_not_delay_those_behind_them_when_the_holder_is_dead_too() {
    // On a busy machine the lease may be over before the queue is looked at.
    assert!((0..5).any(|_| the_one_that_lives_is_alone_before_the_lease_ends()));
}

fn the_one_that_lives_is_alone_before_the_lease_ends() -> bool {
    let servers = servers(1);
    let holder = hold(&servers);
    let value = servers[0].cli(&["GET", "job"]);
    let dead: Vec<Running> = (0..20)
        .map(|number| queued(&servers, &[], &format!("dead{number}")))
        .collect();
    for waiter in &dead {
        waiter.signal(Signal::SIGKILL);
    }
    drop(dead);
    eventually("their connections have ended", || {
        listening(&servers[0]) == 0
    });
    // A holder that will neither renew nor release.
    servers[0].cli(&["SET", "job", &value, "PX", "3000"]);
    let ends = Instant::now() + Duration::from_secs(3);
    let script = format!(
        "redis-cli -s {} rpush ran alive >/dev/null",
        servers[0].socket().display()
    );
    let alive = job(&servers).args(["--", "sh", "-c", &script]).spawn();
    let pid = alive.pid().to_string();
    let is_alone = |line: Vec<String>| line.len() == 1 && line[0].split(' ').nth(2) == Some(&pid);
    let mut was_alone = false;
    eventually(
        "only the one that lives is in the queue, or it has run",
        || {
            was_alone = is_alone(line(&servers[0]));
            was_alone || ran(&servers) == ["alive"]
        },
    );
    alive.finish().code(0).silent();
    let late = Instant::now().saturating_duration_since(ends);
    assert!(
        late < Duration::from_secs(5),
        "{late:?} after the end of the lease"
    );
    assert_eq!(ran(&servers), ["alive"]);
    holder.finish();
    was_alone
}

#[test]
fn servers_that_forget_everything_block_no_waiter() {
    let servers = servers(1);
    let holder = job(&servers)
        .args(["--ttl", "2s"])
        .hold("echo ready; read line; true");
    let waiters = vec![queued(&servers, &[], "a"), queued(&servers, &[], "b")];
    servers[0].cli(&["FLUSHALL"]);
    let begin = Instant::now();
    holder.finish();
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    nothing_is_left(&servers);
}

#[test]
fn the_first_in_line_sees_a_foreign_client_go() {
    let servers = servers(1);
    servers[0].cli(&["SET", "job", "foreign", "PX", "60000"]);
    let waiters = vec![queued(&servers, &[], "a"), queued(&servers, &[], "b")];
    servers[0].cli(&["DEL", "job"]);
    let begin = Instant::now();
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(ran(&servers), ["a", "b"]);
}
