//! Shared locks and slots: who may hold beside whom, on one node and on several.

mod local;
mod members;
pub(crate) mod nesting;
mod operators;
mod order;
mod several;

use crate::support::{Nodes, Rlock, Running, Server, eventually, rlock, rlock_words};

const QUEUE: &str = "rlock:queue:{job}:job";
const LEASES: &str = "rlock:leases:{job}:job";
const HOLDERS: &str = "rlock:holders:{job}:job";

const SHARED: &[&str] = &["-s"];
const SLOTS: &[&str] = &["--slots", "2"];

/// Returns `rlock run` for the lock `job` on all of `nodes`, to be completed.
fn job(nodes: &Nodes, options: &[&str]) -> Rlock {
    rlock("job").on_all(nodes).args(options)
}

fn hold(nodes: &Nodes, options: &[&str]) -> Running {
    job(nodes, options).hold("echo ready; read line; true")
}

fn verb(nodes: &Nodes, words: &[&str]) -> Rlock {
    rlock_words(words).node(&nodes.url())
}

/// Starts a waiter, and waits until it is in the queue of every node. Once it has the lock, it
/// appends `name` to the list `ran` of the first one.
fn queued(nodes: &Nodes, options: &[&str], name: &str) -> Running {
    let length = |node: &Server| node.cli(&["ZCARD", QUEUE]);
    let before: Vec<String> = nodes.iter().map(length).collect();
    let script = format!(
        "redis-cli -s {} rpush ran {name} >/dev/null",
        nodes[0].socket().display()
    );
    let waiter = job(nodes, options)
        .args(["--", "sh", "-c", &script])
        .spawn();
    for (node, before) in nodes.iter().zip(before) {
        eventually("it stands in the queue", || length(node) != before);
    }
    waiter
}

fn ran(nodes: &Nodes) -> Vec<String> {
    nodes[0]
        .cli(&["LRANGE", "ran", "0", "-1"])
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Ends these runs, and waits until they have exited with `code`.
#[track_caller]
fn all_end(runs: impl IntoIterator<Item = Running>, code: i32) {
    for run in runs {
        run.finish().code(code);
    }
}

/// Checks that a client that gives `options` finds the lock busy.
#[track_caller]
fn is_busy_for(nodes: &Nodes, options: &[&str]) {
    job(nodes, options)
        .args(["-n"])
        .sh("echo ran")
        .code(75)
        .printed(&[]);
}

/// Checks that nothing of a lock is left but its counter, and that each key of rlock's ends by
/// itself.
#[track_caller]
fn nothing_is_left(nodes: &Nodes) {
    for node in nodes.iter() {
        let left = || {
            node.cli(&[
                "EXISTS",
                "job",
                LEASES,
                HOLDERS,
                QUEUE,
                "rlock:turns:{job}:job",
            ])
        };
        eventually("only the counter is left", || left() == "0");
        every_key_ends(node);
    }
}

#[track_caller]
fn every_key_ends(node: &Server) {
    for key in node
        .cli(&["KEYS", "*"])
        .lines()
        .filter(|key| *key == "job" || key.starts_with("rlock:"))
    {
        // A key may end between the two commands: -2.
        assert_ne!(node.cli(&["PTTL", key]), "-1", "{key}");
    }
}

#[test]
fn readers_hold_together_and_keep_all_others_out() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let readers = [hold(&nodes, SHARED), hold(&nodes, SHARED)];
        for other in [&[][..], SLOTS] {
            is_busy_for(&nodes, other);
        }
        nodes.iter().for_each(every_key_ends);
        all_end(readers, 0);
        nothing_is_left(&nodes);
        let writer = hold(&nodes, &[]);
        for other in [SHARED, SLOTS] {
            is_busy_for(&nodes, other);
        }
        writer.finish().code(0).silent();
        nothing_is_left(&nodes);
    }
}

#[test]
fn slots_are_given_to_as_many_as_there_are_and_each_has_its_own_number() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let options = ["--slots", "3"];
        let mut holders: Vec<Running> = (0..3)
            .map(|_| {
                job(&nodes, &options).hold("echo ready; echo slot $RLOCK_SLOT; read line; true")
            })
            .collect();
        is_busy_for(&nodes, &options);
        for other in [&[][..], SHARED, SLOTS] {
            is_busy_for(&nodes, other);
        }
        let mut slots: Vec<String> = holders
            .iter_mut()
            .map(|holder| holder.wait_for("slot"))
            .collect();
        slots.sort();
        assert_eq!(slots, ["1", "2", "3"]);
        let left = holders.remove(0);
        left.finish().code(0).silent();
        job(&nodes, &options)
            .args(["-n"])
            .sh("true")
            .code(0)
            .silent();
        all_end(holders, 0);
        nothing_is_left(&nodes);
    }
}

#[test]
fn one_slot_is_an_exclusive_lock() {
    let nodes = Nodes::start(1);
    let full = job(&nodes, &["--slots", "3"]).hold("echo ready; read line; true");
    let other = job(&nodes, &["-n", "--slots", "5"])
        .sh("echo ran")
        .code(75)
        .printed(&[]);
    other.said(&[
        "held in 1 of 3 slots by",
        "3 slots and 5 exclude each other",
        "the same --slots",
    ]);
    let writer = job(&nodes, &["-n"]).sh("echo ran").code(75).printed(&[]);
    writer.said(&[
        "busy: held in 1 of 3 slots by",
        "; this run asks for an exclusive lock",
    ]);
    full.finish().code(0).silent();
    let holder = job(&nodes, &["--slots", "1"])
        .hold("echo ready; echo \"${RLOCK_SLOT-none}\"; read line; true");
    assert!(nodes[0].cli(&["GET", "job"]).contains("\"mode\":\"x\""));
    is_busy_for(&nodes, &[]);
    holder.finish().code(0).printed(&["ready", "none"]);
}

#[test]
fn a_foreign_client_and_members_keep_each_other_out() {
    for options in [SHARED, SLOTS] {
        let nodes = Nodes::start(1);
        let member = hold(&nodes, options);
        assert_eq!(
            nodes[0].cli(&["SET", "job", "f00d", "NX", "PX", "60000"]),
            ""
        );
        member.finish().code(0).silent();
        assert_eq!(
            nodes[0].cli(&["SET", "job", "f00d", "NX", "PX", "60000"]),
            "OK"
        );
        job(&nodes, options)
            .args(["-n"])
            .sh("echo ran")
            .code(75)
            .printed(&[])
            .said(&["a client that is not rlock"]);
        nodes[0].cli(&["DEL", "job"]);
        job(&nodes, options)
            .args(["-n"])
            .sh("true")
            .code(0)
            .silent();
    }
}

#[test]
fn kinds_that_contradict_each_other_are_refused_before_a_node_is_asked() {
    let refused = |words: &[&str], told: &str| {
        rlock("job")
            .node("redis://127.0.0.1:1")
            .args(words)
            .command(["true"])
            .code(64)
            .said(&[told]);
    };
    refused(&["-s", "--slots", "2"], "contradict each other");
    refused(&["-s", "-x"], "contradict each other");
    refused(&["--slots", "0"], "write a number from 1 to 1000");
    refused(&["--slots", "1001"], "write a number from 1 to 1000");
    for words in [SHARED, SLOTS] {
        rlock_words(["acquire", "-k", "job", "--node", "local"])
            .args(words)
            .finish()
            .code(64)
            .said(&["needs a server"]);
    }
}

#[test]
fn a_typed_kind_beats_the_variables() {
    let nodes = Nodes::start(1);
    let reader = rlock("job")
        .on_all(&nodes)
        .env("RLOCK_SHARED", "1")
        .hold("echo ready; read line; true");
    job(&nodes, &["-n", "-x"])
        .env("RLOCK_SHARED", "1")
        .sh("true")
        .code(75);
    job(&nodes, &["-n", "-s"])
        .env("RLOCK_SLOTS", "5")
        .sh("true")
        .code(0)
        .silent();
    rlock("job")
        .on_all(&nodes)
        .env("RLOCK_SLOTS", "5")
        .env("RLOCK_SHARED", "1")
        .sh("true")
        .code(64);
    reader.finish().code(0);
}

#[test]
fn fences_rise_from_writer_to_readers_to_writer_and_from_slot_to_slot() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let fence = |options: &[&str]| -> u64 {
            job(&nodes, options)
                .sh("echo $RLOCK_FENCE")
                .code(0)
                .silent()
                .stdout[0]
                .parse()
                .expect("a number")
        };
        let fences: Vec<u64> = [&[][..], SHARED, &[], SLOTS, SLOTS, SHARED, &[]]
            .into_iter()
            .map(fence)
            .collect();
        assert!(
            fences.is_sorted_by(|earlier, later| earlier < later),
            "{fences:?}"
        );
    }
}

#[test]
fn an_uncontended_lock_of_any_kind_costs_two_requests_a_node() {
    for options in [&[][..], SHARED, SLOTS] {
        let nodes = Nodes::start(1);
        let before = nodes[0].asked();
        job(&nodes, options).command(["true"]).code(0).silent();
        assert_eq!(nodes[0].asked() - before, 2, "{options:?}");
    }
}
