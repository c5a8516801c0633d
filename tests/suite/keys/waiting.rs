//! A run that keeps some of its locks and stands in line for another.

use nix::sys::signal::Signal;

use super::run;
use crate::support::{Nodes, Rlock, Running, STEADY, Server, eventually, rlock_words};

/// A lease that no test outlasts.
const LONG: [&str; 2] = ["--ttl", "1h"];

/// A server and three nodes, by their addresses.
struct Places {
    server: Server,
    nodes: Nodes,
}

impl Places {
    fn start() -> Self {
        Self {
            server: Server::start(),
            nodes: Nodes::start(3),
        }
    }

    /// Each place's address, and its servers.
    fn each(&self) -> [(String, Vec<&Server>); 2] {
        [
            (self.server.url(), vec![&self.server]),
            (self.nodes.url(), self.nodes.iter().collect()),
        ]
    }
}

fn on(job: Rlock, url: &str) -> Rlock {
    job.node(url).args(["--restart-guard", "off"]).args(LONG)
}

/// Whether each of the servers says so to this command.
fn all(servers: &[&Server], command: &[&str], answer: &str) -> bool {
    servers.iter().all(|server| server.cli(command) == answer)
}

/// A holder of `b`, and a run of `a`, `b` and `c` that keeps `a` and waits for `b`.
fn waiting(url: &str, servers: &[&Server]) -> (Running, Running) {
    let holder = on(run(&["b"]), url).hold("echo ready; read x; true");
    let mut waiter = on(run(&["a", "b", "c"]), url)
        .args(["-v", "--", "echo", "ran"])
        .spawn();
    waiter.wait_until_told("b: waiting: held by");
    eventually("it waits with its place", || {
        all(servers, &["ZCARD", "rlock:queue:{b}:b"], "1")
    });
    (holder, waiter)
}

#[test]
fn a_run_keeps_what_is_before_the_lock_that_it_waits_for_and_nothing_behind_it() {
    let places = Places::start();
    for (url, servers) in places.each() {
        let (holder, waiter) = waiting(&url, &servers);
        assert!(all(&servers, &["EXISTS", "a"], "1"));
        eventually("what is behind it is free", || {
            all(&servers, &["EXISTS", "c"], "0")
        });
        on(run(&["c"]), &url).args(["-n", "true"]).finish().code(0);
        on(run(&["a"]), &url)
            .args(["-n", "true"])
            .finish()
            .code(75)
            .said(&["a: busy: held by"]);
        holder.finish().code(0);
        waiter.finish().code(0).printed(&["ran"]);
        eventually("all is free", || {
            all(&servers, &["EXISTS", "a", "b", "c"], "0")
        });
    }
}

#[test]
fn what_is_kept_is_renewed_meanwhile() {
    let server = Server::start();
    let holder = run(&["b"])
        .on(&server)
        .args(LONG)
        .hold("echo ready; read x; true");
    let mut waiter = run(&["a", "b"])
        .on(&server)
        .args(STEADY)
        .args(["-v", "--", "echo", "ran"])
        .spawn();
    waiter.wait_until_told("b: waiting: held by");
    // By now the first lease would be over.
    (0..3).for_each(|_| waiter.wait_until_told("a: renewed for"));
    holder.finish().code(0);
    waiter.finish().code(0).never_said("begins anew");
}

#[test]
fn a_kept_lock_that_is_lost_or_broken_makes_the_run_begin_anew() {
    let places = Places::start();
    for (url, servers) in places.each() {
        for how in ["taken", "broken"] {
            let holder = on(run(&["b"]), &url).hold("echo ready; read x; true");
            let waiter =
                run(&["a", "b"])
                    .node(&url)
                    .args(["--restart-guard", "off", "--ttl", "3s", "-v"]);
            let mut waiter = waiter.args(["--", "echo", "ran"]).spawn();
            waiter.wait_until_told("b: waiting: held by");
            if how == "taken" {
                assert!(all(&servers, &["SET", "a", "another's"], "OK"));
            } else {
                let broken = rlock_words(["break", "a", "--yes"])
                    .node(&url)
                    .finish()
                    .code(0);
                broken.mentions(&["its holder released it after"]);
            }
            waiter.wait_until_told("a: lost the lock while waiting for another");
            if how == "taken" {
                waiter.wait_until_told("a: waiting: held by a client that is not rlock");
                eventually("it has left the other line", || {
                    all(&servers, &["EXISTS", "rlock:queue:{b}:b"], "0")
                });
                assert!(all(&servers, &["DEL", "a"], "1"));
            }
            waiter.wait_until_told("b: waiting: held by");
            holder.finish().code(0);
            waiter.finish().code(0).printed(&["ran"]);
        }
    }
}

#[test]
fn a_run_that_stood_still_past_the_lease_of_a_kept_lock_begins_anew() {
    let places = Places::start();
    for (url, servers) in places.each() {
        let holder = on(run(&["b"]), &url).hold("echo ready; read x; true");
        let waiter =
            run(&["a", "b"])
                .node(&url)
                .args(["--restart-guard", "off", "--ttl", "2s", "-v"]);
        let mut waiter = waiter.args(["--", "echo", "ran"]).spawn();
        waiter.wait_until_told("b: waiting: held by");
        eventually("it waits with its place", || {
            all(&servers, &["ZCARD", "rlock:queue:{b}:b"], "1")
        });
        waiter.signal(Signal::SIGSTOP);
        eventually("its lease is over", || all(&servers, &["EXISTS", "a"], "0"));
        let other = on(run(&["a"]), &url).hold("echo ready; read x; true");
        holder.finish().code(0);
        waiter.signal(Signal::SIGCONT);
        waiter.wait_until_told("a: lost the lock while waiting for another");
        waiter.wait_until_told("a: waiting: held by");
        other.finish().code(0).printed(&["ready"]);
        waiter.finish().code(0).printed(&["ran"]);
    }
}

#[test]
fn a_run_that_is_told_to_end_while_it_waits_leaves_nothing() {
    let places = Places::start();
    for (url, servers) in places.each() {
        let (holder, waiter) = waiting(&url, &servers);
        waiter.signal(Signal::SIGTERM);
        waiter.finish().code(143).printed(&[]);
        eventually("all is free", || {
            all(&servers, &["EXISTS", "a", "c", "rlock:queue:{b}:b"], "0")
        });
        holder.finish().code(0);
    }
}

#[test]
fn the_guard_of_a_run_that_is_killed_while_it_waits_releases_what_was_kept() {
    let places = Places::start();
    for (url, servers) in places.each() {
        let (holder, waiter) = waiting(&url, &servers);
        waiter.signal(Signal::SIGKILL);
        eventually("all is free", || all(&servers, &["EXISTS", "a", "c"], "0"));
        assert!(
            all(&servers, &["EXISTS", "b"], "1"),
            "another's lock is left alone"
        );
        holder.finish().code(0);
    }
}

#[test]
fn a_wait_that_is_over_releases_what_was_kept() {
    let server = Server::start();
    let holder = run(&["b"])
        .on(&server)
        .args(LONG)
        .hold("echo ready; read x; true");
    let waiter = run(&["a", "b", "c"])
        .on(&server)
        .args(LONG)
        .args(["--wait", "3s", "true"])
        .finish();
    waiter.code(75).said(&["rlock: b: busy: held by"]);
    assert_eq!(server.cli(&["EXISTS", "a", "c", "rlock:queue:{b}:b"]), "0");
    holder.finish().code(0);
}
