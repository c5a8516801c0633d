//! `--supersede`: of the waiters that have it, the last that came goes on.

use nix::sys::signal::Signal;

use crate::support::{Nodes, Rlock, Running, STEADY, Server, eventually, rlock, rlock_words};

const QUEUE: &str = "rlock:queue:{job}:job";
const NEWEST: &str = "rlock:newest:{job}:job";

const SUPERSEDE: &[&str] = &["--supersede"];

fn job(nodes: &Nodes, options: &[&str]) -> Rlock {
    rlock("job").on_all(nodes).args(options)
}

fn hold(nodes: &Nodes, options: &[&str]) -> Running {
    job(nodes, options).hold("echo ready; read line; true")
}

/// Starts a waiter that prints `ran` once it has the lock, and waits until it is in the queue of
/// every node.
fn queued(nodes: &Nodes, options: &[&str]) -> Running {
    let waiter = job(nodes, options).args(["--", "echo", "ran"]).spawn();
    let pid = format!(" {} ", waiter.pid());
    for node in nodes.iter() {
        eventually("it stands in the queue", || {
            node.cli(&["ZRANGE", QUEUE, "0", "-1"]).contains(&pid)
        });
    }
    waiter
}

/// Checks that `waiter` for the lock `key` ends because a newer one came.
#[track_caller]
pub(crate) fn is_superseded(waiter: Running, key: &str) {
    let by = format!("{key}: superseded by ");
    let ended = waiter.finish().code(76).printed(&[]);
    ended.said(&[&by, ", pid ", "came later"]);
}

#[test]
fn the_newer_run_is_named_with_its_note() {
    let nodes = Nodes::start(1);
    let holder = hold(&nodes, &[]);
    let older = queued(&nodes, SUPERSEDE);
    let newer = queued(&nodes, &["--supersede", "--note", "build 77"]);
    older
        .finish()
        .code(76)
        .said(&["superseded by tester@", "(build 77), which came later"]);
    holder.finish().code(0);
    newer.finish().code(0);
}

/// Checks that `waiter` gets the lock.
#[track_caller]
pub(crate) fn has_run(waiter: Running) {
    waiter.finish().code(0).printed(&["ran"]).silent();
}

/// Closes all connections of clients to the nodes.
fn disconnect(nodes: &Nodes) {
    for node in nodes.iter() {
        for kind in ["normal", "pubsub"] {
            node.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
    }
}

#[test]
fn of_fifteen_that_come_at_once_one_stays() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let holder = hold(&nodes, &[]);
        let mut all: Vec<Running> = (0..15)
            .map(|_| job(&nodes, SUPERSEDE).args(["--", "echo", "ran"]).spawn())
            .collect();
        eventually("one is left", || {
            all.iter_mut()
                .map(Running::is_running)
                .filter(|runs| *runs)
                .count()
                == 1
        });
        holder.finish().code(0).silent();
        let (mut ran, mut ended) = (0, 0);
        for one in all {
            let one = one.finish();
            if one.exited_with(0) {
                ran += 1;
                one.printed(&["ran"]).silent();
            } else {
                ended += 1;
                one.code(76)
                    .printed(&[])
                    .said(&["job: superseded by ", "came later"]);
            }
        }
        assert_eq!((ran, ended), (1, 14));
        for node in nodes.iter() {
            eventually("none is left in a queue", || {
                node.cli(&["EXISTS", QUEUE, "rlock:turns:{job}:job", "job"]) == "0"
            });
            assert_ne!(node.cli(&["PTTL", NEWEST]), "-1");
        }
    }
}

#[test]
fn holders_and_waiters_without_the_option_are_left_alone() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let holder = hold(&nodes, SUPERSEDE);
        let plain = queued(&nodes, &[]);
        let older = queued(&nodes, SUPERSEDE);
        let newer = queued(&nodes, SUPERSEDE);
        is_superseded(older, "job");
        holder.finish().code(0).silent();
        has_run(plain);
        has_run(newer);
    }
}

#[test]
fn it_is_the_same_for_every_kind_of_lock_and_for_acquire() {
    for kind in [&["-s", "--supersede"][..], &["--slots", "2", "--supersede"]] {
        let nodes = Nodes::start(1);
        let holder = hold(&nodes, &[]);
        let older = queued(&nodes, kind);
        let newer = queued(&nodes, kind);
        is_superseded(older, "job");
        holder.finish().code(0).silent();
        has_run(newer);
    }
    let nodes = Nodes::start(1);
    let holder = hold(&nodes, &[]);
    let acquire = rlock_words(["acquire", "-k", "job", "--supersede"])
        .on_all(&nodes)
        .spawn();
    eventually("it stands in the queue", || {
        nodes[0].cli(&["ZCARD", QUEUE]) == "1"
    });
    let newer = queued(&nodes, SUPERSEDE);
    is_superseded(acquire, "job");
    holder.finish().code(0).silent();
    has_run(newer);
}

/// Returns a text for the newest waiter that came now.
fn newest(node: &Server) -> String {
    let time = node.cli(&["TIME"]);
    let (seconds, micros) = time.split_once('\n').expect("seconds and microseconds");
    format!("{seconds}{micros:0>6} 00000000-0000-4000-8000-000000000001 web9 7 1")
}

#[test]
fn a_waiter_that_missed_the_word_learns_it_when_it_looks() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let holder = hold(&nodes, &STEADY);
        let older = queued(&nodes, SUPERSEDE);
        for node in nodes.iter() {
            node.cli(&["SET", NEWEST, &newest(node), "PX", "60000"]);
        }
        older
            .finish()
            .code(76)
            .printed(&[])
            .said(&["superseded by web9, pid 7"]);
        holder.finish().code(0).silent();
    }
}

#[test]
fn a_minority_that_says_so_ends_no_waiter() {
    let nodes = Nodes::start(3);
    let holder = hold(&nodes, &STEADY);
    let waiter = queued(&nodes, SUPERSEDE);
    nodes[0].cli(&["SET", NEWEST, &newest(&nodes[0]), "PX", "60000"]);
    disconnect(&nodes);
    eventually("it has left the first queue", || {
        nodes[0].cli(&["ZCARD", QUEUE]) == "0"
    });
    holder.finish().code(0).silent();
    has_run(waiter);
}

#[test]
fn a_waiter_that_was_cut_off_does_not_run_after_a_newer_one() {
    // The newer one stands in line, or gets the lock at once.
    for (count, at_once) in [(1, false), (1, true), (3, false), (3, true)] {
        let nodes = Nodes::start(count);
        let holder = hold(&nodes, &[]);
        let older = queued(&nodes, SUPERSEDE);
        older.signal(Signal::SIGSTOP);
        disconnect(&nodes);
        let newer = (!at_once).then(|| queued(&nodes, SUPERSEDE));
        holder.finish().code(0).silent();
        has_run(
            newer.unwrap_or_else(|| job(&nodes, SUPERSEDE).args(["--", "echo", "ran"]).spawn()),
        );
        older.signal(Signal::SIGCONT);
        is_superseded(older, "job");
    }
}

#[test]
fn a_waiter_that_gives_up_has_ended_the_older_ones_all_the_same() {
    let nodes = Nodes::start(1);
    let holder = hold(&nodes, &[]);
    let older = queued(&nodes, SUPERSEDE);
    let newer = queued(&nodes, SUPERSEDE);
    is_superseded(older, "job");
    newer.signal(Signal::SIGTERM);
    newer.finish().code(143);
    let newest = queued(&nodes, SUPERSEDE);
    holder.finish().code(0).silent();
    has_run(newest);
}

#[test]
fn the_line_is_left_out_with_quiet_and_has_its_data_in_json() {
    let nodes = Nodes::start(1);
    let holder = hold(&nodes, &[]);
    let quiet = queued(&nodes, &["--supersede", "-q"]);
    let json = queued(&nodes, &["--supersede", "--log", "json"]);
    quiet.finish().code(76).silent();
    let newest = queued(&nodes, SUPERSEDE);
    let newer = format!("\"pid\":{}", newest.pid());
    json.finish()
        .code(76)
        .mentions(&["\"code\":76", "\"newer\":{", &newer]);
    holder.finish().code(0).silent();
    has_run(newest);
}

#[test]
fn what_it_does_not_fit_is_refused_before_a_node_is_asked() {
    let refused = |words: &[&str], node: &str, told: &str| {
        rlock("job")
            .node(node)
            .args(words)
            .command(["true"])
            .code(64)
            .said(&[told]);
    };
    let nowhere = "redis://127.0.0.1:1";
    refused(&["--supersede", "-k", "other"], nowhere, "is for one lock");
    refused(&["--supersede"], "local", "needs a server");
    refused(&["--replace"], nowhere, "rlock break --yes KEY");
}
