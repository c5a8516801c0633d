//! Hand-over of a lock that did not end with its command: the next waiter is woken at once,
//! whatever freed the key.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Rlock, Running, Server, eventually, rlock, rlock_words};

const QUEUE: &str = "rlock:queue:{job}:job";

/// Shortest time until a waiter that was not woken looks: after ten seconds, or when the lease is
/// over.
const LATE: Duration = Duration::from_secs(4);

fn servers(count: usize) -> (Vec<Server>, String) {
    let servers: Vec<Server> = (0..count).map(|_| Server::start()).collect();
    let nodes = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    (servers, nodes)
}

fn verb(words: &[&str], nodes: &str) -> Rlock {
    rlock_words(words).node(nodes)
}

fn acquire(nodes: &str) -> Rlock {
    verb(
        &[
            "acquire",
            "-k",
            "job",
            "--restart-guard",
            "off",
            "--ttl",
            "1m",
        ],
        nodes,
    )
}

fn run(nodes: &str) -> Rlock {
    rlock("job").node(nodes).args(["--restart-guard", "off"])
}

/// Starts `waiter`, and waits until it stands in every queue.
fn queued(servers: &[Server], waiter: Rlock) -> Running {
    let length = |server: &Server| server.cli(&["ZCARD", QUEUE]);
    let before: Vec<String> = servers.iter().map(length).collect();
    let waiter = waiter.spawn();
    for (server, before) in servers.iter().zip(before) {
        eventually("it stands in the queue", || length(server) != before);
    }
    waiter
}

#[track_caller]
fn is_told(waiter: Running, since: Instant) {
    waiter.finish().code(0).silent();
    assert!(
        since.elapsed() < LATE,
        "it was not told: {:?}",
        since.elapsed()
    );
}

#[track_caller]
fn no_waiter_is_left(servers: &[Server]) {
    for server in servers {
        assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
    }
}

#[test]
fn the_next_waiter_gets_in_at_once_after_a_release() {
    for count in [1, 3] {
        let (servers, nodes) = servers(count);
        let token = acquire(&nodes).finish().code(0).stdout.remove(0);
        let waiter = queued(&servers, run(&nodes).args(["--", "true"]));
        let begin = Instant::now();
        verb(&["release", "-k", "job", "--token", &token], &nodes)
            .finish()
            .code(0)
            .silent();
        is_told(waiter, begin);
        no_waiter_is_left(&servers);
    }
}

#[test]
fn the_next_waiter_gets_in_at_once_after_break_now() {
    for count in [1, 3] {
        let (servers, nodes) = servers(count);
        let _holder = run(&nodes).hold("echo ready; exec sleep 60");
        let waiter = queued(&servers, run(&nodes).args(["--", "true"]));
        let begin = Instant::now();
        verb(&["break", "job", "-y", "-q", "--now"], &nodes)
            .finish()
            .code(0)
            .silent();
        is_told(waiter, begin);
    }
}

#[test]
fn the_next_waiter_gets_in_at_once_after_a_holder_whose_lock_was_broken_has_released_it() {
    for count in [1, 3] {
        let (servers, nodes) = servers(count);
        let holder = run(&nodes)
            .args(["--ttl", "9s"])
            .hold("echo ready; exec sleep 60");
        // The command ends under the tombstone, so that no waiter depends on a renewal.
        let waiter = queued(&servers, run(&nodes).args(["--", "true"]));
        let breaking = verb(&["break", "job", "-y", "-q"], &nodes).spawn();
        for server in &servers {
            eventually("the tombstone", || {
                server.cli(&["GET", "job"]).starts_with("broken ")
            });
        }
        holder.signal(Signal::SIGTERM);
        holder.finish().code(143);
        let begin = Instant::now();
        is_told(waiter, begin);
        breaking.finish().code(0).silent();
    }
}

#[test]
fn the_first_hears_of_a_foreign_key_that_was_deleted() {
    let (servers, nodes) = servers(1);
    servers[0].cli(&["SET", "job", "f00dfeed"]);
    let waiter = queued(&servers, run(&nodes).args(["-q", "--", "true"]));
    let begin = Instant::now();
    verb(&["break", "job", "-y", "-q", "--foreign"], &nodes)
        .finish()
        .code(0)
        .silent();
    is_told(waiter, begin);
}

#[test]
fn acquire_waits_in_the_same_line_as_run() {
    for count in [1, 3] {
        let (servers, nodes) = servers(count);
        let holder = run(&nodes).hold("echo ready; read line; true");
        let first = queued(&servers, acquire(&nodes));
        let mut second = queued(&servers, run(&nodes).args(["--", "true"]));
        let begin = Instant::now();
        holder.finish().code(0);
        let token = first.finish().code(0).silent().stdout.remove(0);
        assert!(
            begin.elapsed() < LATE,
            "it was not told: {:?}",
            begin.elapsed()
        );
        assert!(second.is_running());
        let begin = Instant::now();
        verb(&["release", "-k", "job", "--token", &token], &nodes)
            .finish()
            .code(0)
            .silent();
        is_told(second, begin);
        no_waiter_is_left(&servers);
    }
}

#[test]
fn nothing_is_left_of_an_acquire_that_gave_up() {
    let (servers, nodes) = servers(3);
    let token = acquire(&nodes).finish().code(0).stdout.remove(0);
    let waiter = queued(&servers, acquire(&nodes));
    waiter.signal(Signal::SIGTERM);
    waiter.finish().code(143).printed(&[]);
    no_waiter_is_left(&servers);
    queued(&servers, acquire(&nodes).args(["--wait", "3"]))
        .finish()
        .code(75)
        .printed(&[]);
    no_waiter_is_left(&servers);
    verb(&["check", "-k", "job", "--token", &token], &nodes)
        .finish()
        .code(0)
        .silent();
}

#[test]
fn an_acquire_that_won_waits_nowhere_any_more() {
    let (servers, nodes) = servers(3);
    servers[2].cli(&["SET", "job", "f00dfeed"]);
    let token = acquire(&nodes).finish().code(0).stdout.remove(0);
    let waiter = queued(&servers, acquire(&nodes).args(["-q"]));
    verb(&["release", "-k", "job", "--token", &token], &nodes)
        .finish()
        .code(0);
    waiter.finish().code(0).silent();
    no_waiter_is_left(&servers);
    assert_eq!(servers[2].cli(&["GET", "job"]), "f00dfeed");
}
