//! Several locks in one run: `-k a -k b`. How they are taken, and that clients neither wait for
//! each other nor starve.

mod held;
mod local;
mod nested;
mod waiting;

use std::path::Path;

use crate::support::{Nodes, RLOCK, Rlock, Running, Server, eventually, rlock_words};

/// Returns `rlock run -k KEY…`, to be completed.
fn run(keys: &[&str]) -> Rlock {
    rlock_words(["run"]).args(keys.iter().flat_map(|key| ["-k", key]))
}

/// Returns a script that fails with 9 if another one of these keys runs at the same time.
fn alone(dir: &Path, keys: &[&str]) -> String {
    let paths: Vec<String> = keys
        .iter()
        .map(|key| dir.join(key).display().to_string())
        .collect();
    let paths = paths.join(" ");
    format!("mkdir {paths} || exit 9; rmdir {paths}")
}

/// Waits for the ends of all, which must have gone well.
fn end(jobs: Vec<Running>) {
    for job in jobs {
        job.finish().code(0);
    }
}

#[test]
fn locks_that_are_free_cost_two_requests_each() {
    let server = Server::start();
    let asked = server.asked();
    run(&["b", "a", "c", "a"])
        .on(&server)
        .sh("echo $RLOCK_KEY")
        .code(0)
        .silent()
        .printed(&["a,b,c"]);
    assert_eq!(server.asked() - asked, 6);
    assert_eq!(server.cli(&["EXISTS", "a", "b", "c"]), "0");
}

#[test]
fn clients_that_name_their_locks_in_opposite_orders_do_not_wait_for_each_other() {
    let (server, nodes, dir) = (
        Server::start(),
        Nodes::start(3),
        tempfile::tempdir().expect("a directory"),
    );
    let script = alone(dir.path(), &["a", "b"]);
    for place in ["one", "several"] {
        let start = |keys: &[&str]| {
            let job = run(keys).args(["--ttl", "1h"]);
            let job = if place == "one" {
                job.on(&server)
            } else {
                job.on_all(&nodes)
            };
            job.args(["-c", &script]).spawn()
        };
        end((0..12)
            .map(|number| {
                start(if usize::is_multiple_of(number, 2) {
                    &["a", "b"]
                } else {
                    &["b", "a"]
                })
            })
            .collect());
    }
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "0");
    eventually("all keys are gone", || {
        nodes
            .cli(&["EXISTS", "a", "b"])
            .iter()
            .all(|count| count == "0")
    });
}

#[test]
fn twenty_clients_with_some_of_six_locks_each_all_finish() {
    let (server, dir) = (Server::start(), tempfile::tempdir().expect("a directory"));
    let names = ["a", "b", "c", "d", "e", "f"];
    let start = |number: usize| {
        let keys: Vec<&str> = (0..=number % 4)
            .map(|step| names[(number + step * (1 + number % 2)) % 6])
            .collect();
        let mut each = keys.clone();
        each.sort_unstable();
        each.dedup();
        run(&keys)
            .on(&server)
            .args(["--ttl", "1h", "-c", &alone(dir.path(), &each)])
            .spawn()
    };
    end((0..20).map(start).collect());
    assert_eq!(server.cli(&[&["EXISTS"][..], &names].concat()), "0");
}

#[test]
fn a_node_that_is_away_does_not_keep_several_locks_from_being_taken() {
    let nodes = Nodes::start(3);
    nodes[1].freeze();
    run(&["a", "b"])
        .on_all(&nodes)
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
    for there in [0, 2] {
        assert_eq!(nodes[there].cli(&["EXISTS", "a", "b"]), "0");
    }
}

#[test]
fn without_a_wait_all_are_released_and_the_busy_one_is_named() {
    let (server, nodes) = (Server::start(), Nodes::start(3));
    for url in [server.url(), nodes.url()] {
        let place = |job: Rlock| {
            job.node(&url)
                .args(["--restart-guard", "off", "--ttl", "1h"])
        };
        let holder = place(run(&["b"])).hold("echo ready; read x; true");
        place(run(&["a", "b", "c"]))
            .args(["-n", "true"])
            .finish()
            .code(75)
            .said(&["rlock: b: busy: held by"]);
        place(run(&["a", "c"]))
            .args(["-n", "true"])
            .finish()
            .code(0);
        holder.finish().code(0);
    }
}

#[test]
fn bad_combinations_are_one_line_and_64_before_any_server_is_asked() {
    let nowhere = "redis+unix:///nowhere";
    let many: Vec<String> = (0..65).map(|number| format!("key{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (keys, words) in [
        (&["a,b", "c"][..], &["a,b has a comma"][..]),
        (&many, &["65 locks", "64 are allowed"]),
        (&["a", ""], &["empty"]),
    ] {
        run(keys)
            .node(nowhere)
            .args(["true"])
            .finish()
            .code(64)
            .said(words);
    }
}

#[test]
fn every_other_command_takes_one_lock() {
    let two = ["-k", "a", "-k", "b"];
    rlock_words(["acquire"])
        .args(two)
        .node("redis+unix:///nowhere")
        .finish()
        .code(64)
        .said(&["acquire takes one lock"]);
    let server = Server::start();
    let script = "for command in check renew release; do
            $R $command; echo $?
            $R $command -k a -k b --token ${RLOCK_TOKEN#*,}; echo $?
            $R $command -k b --token ${RLOCK_TOKEN#*,} >&2; echo $?
        done";
    let job = run(&["a", "b"])
        .on(&server)
        .env("R", RLOCK)
        .args(["-c", script])
        .finish()
        .code(0);
    // With --fence too, or without a list in the environment, `check` and `renew` of one lock are
    // what they are for one lock.
    let job = job.printed(&["64", "64", "64", "64", "64", "64", "64", "64", "64"]);
    job.mentions(&[
        "tokens of several locks",
        "fences of several locks",
        "b: rlock run (pid",
    ]);
    let script = "unset RLOCK_FENCE; $R check -k b --token ${RLOCK_TOKEN#*,} && echo ours";
    run(&["a", "b"])
        .on(&server)
        .env("R", RLOCK)
        .args(["-c", script])
        .finish()
        .code(0)
        .silent()
        .printed(&["ours"]);
}
