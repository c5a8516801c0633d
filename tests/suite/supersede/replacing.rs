//! `--replace`: the holder is stopped as by `break`, and its lock passes to the run that replaces it.

use std::time::Duration;

use super::{QUEUE, SUPERSEDE, has_run, hold, is_superseded, job, queued};
use crate::support::{Nodes, Running, alive, eventually, rlock_words};

const REPLACE: &[&str] = &["--replace"];

/// A script that ends on TERM, and prints that.
const OBEDIENT: &str = "trap 'echo terminated; exit 7' TERM; echo ready; while :; do sleep 0.01; done";

fn obedient(nodes: &Nodes, options: &[&str]) -> Running {
    job(nodes, &["--ttl", "3s"]).args(options).hold(OBEDIENT)
}

#[track_caller]
fn is_replaced(holder: Running) {
    holder.finish().code(79).mentions(&["job: lost the lock", "tester@", "broke the lock"]);
}

#[track_caller]
fn replaces(nodes: &Nodes) {
    // A third of the TTL, the grace, and time for a loaded machine.
    job(nodes, REPLACE).command(["echo", "ran"]).code(0).printed(&["ran"]).silent().within(Duration::from_secs(5));
}

#[test]
fn the_holder_is_stopped_and_the_lock_passes_on() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let holder = obedient(&nodes, &[]);
        let older = queued(&nodes, SUPERSEDE);
        replaces(&nodes);
        is_replaced(holder);
        is_superseded(older);
    }
}

#[test]
fn a_free_lock_is_taken_at_once() {
    let nodes = Nodes::start(1);
    replaces(&nodes);
}

#[test]
fn five_readers_are_stopped_by_a_writer_and_none_by_a_reader() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let mut readers: Vec<Running> = (0..5).map(|_| obedient(&nodes, &["-s"])).collect();
        job(&nodes, &["-s", "--replace"]).command(["true"]).code(0).silent();
        assert!(readers.iter_mut().all(Running::is_running));
        replaces(&nodes);
        readers.into_iter().for_each(is_replaced);
    }
}

#[test]
fn a_node_that_hangs_keeps_no_holder_from_being_stopped() {
    let nodes = Nodes::start(3);
    let holder = obedient(&nodes, &[]);
    nodes[2].freeze();
    replaces(&nodes);
    is_replaced(holder);
    nodes[2].thaw();
}

#[test]
fn a_command_that_ignores_term_is_dead_before_the_next_begins() {
    let nodes = Nodes::start(1);
    let mut holder = job(&nodes, &["--ttl", "3s", "--kill-after", "300ms"])
        .args(["--", "sh", "-c", "trap '' TERM; echo self $$; while :; do sleep 0.01; done"])
        .spawn();
    let pid = holder.wait_for_pid("self");
    // A zombie runs no more.
    let looks = format!("grep -s ^State /proc/{pid}/status | grep -v Z || echo alone");
    job(&nodes, REPLACE).sh(&looks).code(0).printed(&["alone"]);
    assert!(!alive(pid));
    is_replaced(holder);
}

#[test]
fn a_lock_of_acquire_and_a_foreign_one_are_waited_for_and_said_once() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let acquire = rlock_words(["acquire", "-k", "job"]).on_all(&nodes).finish().code(0);
        let token = acquire.stdout[0].clone();
        let mut next = job(&nodes, REPLACE).args(["--", "echo", "ran"]).spawn();
        next.wait_until_told("waiting: --replace ends a live run only: held by tester@");
        rlock_words(["release", "-k", "job", "--token", &token]).node(&nodes.url()).finish().code(0);
        let told = next.finish().code(0).printed(&["ran"]).stderr;
        assert_eq!(told.matches("--replace").count(), 1, "{told}");

        nodes.cli(&["SET", "job", "f00d", "PX", "60000"]);
        let mut next = job(&nodes, REPLACE).args(["--", "echo", "ran"]).spawn();
        next.wait_until_told("--replace ends a live run only: held by a client that is not rlock");
        nodes.cli(&["DEL", "job"]);
        let told = next.finish().code(0).printed(&["ran"]).stderr;
        assert_eq!(told.matches("--replace").count(), 1, "{told}");
    }
}

#[test]
fn a_waiter_that_came_before_goes_first_and_is_not_stopped() {
    let nodes = Nodes::start(1);
    let holder = obedient(&nodes, &[]);
    let plain = job(&nodes, &[]).with(|command| {
        command.stdin(std::process::Stdio::piped());
    });
    let mut plain = plain.args(["--ttl", "1s", "--", "sh", "-c", "echo in; read line; echo out"]).spawn();
    eventually("it stands in the queue", || nodes[0].cli(&["ZCARD", QUEUE]) == "1");
    let next = queued(&nodes, REPLACE);
    is_replaced(holder);
    plain.wait_for("in");
    // It looks again when the TTL of a second may be over, and finds this holder.
    let asked = nodes[0].asked();
    eventually("it has looked again", || nodes[0].asked() > asked + 4);
    assert!(!nodes[0].cli(&["GET", "job"]).starts_with("broken"));
    plain.finish().code(0).printed(&["in", "out"]).silent();
    has_run(next);
}

#[test]
fn the_last_of_several_replaces_the_one_that_holds() {
    let nodes = Nodes::start(3);
    let first = job(&nodes, &["--ttl", "3s", "--replace"]).hold(OBEDIENT);
    let second = job(&nodes, &["--ttl", "3s", "--replace"]).hold(OBEDIENT);
    is_replaced(first);
    replaces(&nodes);
    is_replaced(second);
}

#[test]
fn a_run_that_is_part_of_the_holders_command_joins_it() {
    let nodes = Nodes::start(1);
    let inner = format!("{} run -k job --replace -- echo inner", crate::support::RLOCK);
    job(&nodes, &[]).sh(&inner).code(0).printed(&["inner"]);
    let held = hold(&nodes, &[]);
    held.finish().code(0).silent();
}
