//! Runs of several locks inside runs of several locks.

use std::process::Stdio;

use nix::sys::signal::Signal;

use super::run;
use crate::support::{Nodes, RLOCK, STEADY, Server, alive, eventually};

/// A script that prints its pid, and runs until it is killed, for a minute at most. TERM does not
/// end it.
const STUBBORN: &str = "trap \"\" TERM; echo work $$; for i in $(seq 600); do sleep 0.1; done";

/// Returns `rlock run -k KEY… -- WORDS` for a shell script.
fn inner(keys: &[&str], words: &str) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("-k {key}")).collect();
    format!("{RLOCK} run --restart-guard off {} {words}", keys.join(" "))
}

#[test]
fn locks_that_outer_runs_hold_are_run_under_at_once() {
    let (server, nodes) = (Server::start(), Nodes::start(3));
    let dir = tempfile::tempdir().expect("a directory");
    for url in [
        server.url(),
        nodes.url(),
        format!("local:{}", dir.path().display()),
    ] {
        let job = |keys: &[&str]| run(keys).node(&url).args(["--restart-guard", "off"]);
        // A subset of one outer run's locks, and all of them.
        for keys in [&["b"][..], &["c", "a"], &["a", "b", "c"]] {
            for wait in ["", "-n"] {
                let script = inner(
                    keys,
                    &format!("{wait} -- sh -c 'echo $RLOCK_KEY $RLOCK_TOKEN'"),
                );
                let script = format!("echo $RLOCK_TOKEN; {script}");
                let finished = job(&["a", "b", "c"])
                    .args(["-c", &script])
                    .finish()
                    .code(0)
                    .silent();
                let tokens: Vec<&str> = finished.stdout[0].split(',').collect();
                let mut keys = keys.to_vec();
                keys.sort_unstable();
                let own = keys
                    .iter()
                    .map(|key| tokens[usize::from(key.as_bytes()[0] - b'a')])
                    .collect::<Vec<_>>();
                assert_eq!(
                    finished.stdout[1],
                    format!("{} {}", keys.join(","), own.join(","))
                );
            }
        }
        let again = inner(&["a"], "-- echo again");
        let between = inner(&["b"], &format!("-- {again}"));
        job(&["a"])
            .args(["-c", &between])
            .finish()
            .code(0)
            .silent()
            .printed(&["again"]);
        // Locks of two outer runs.
        let both = inner(
            &["b"],
            &format!("-- sh -c '{}; echo $?'", inner(&["a", "b"], "-- echo both")),
        );
        let refused = job(&["a", "c"])
            .args(["-c", &both])
            .finish()
            .code(0)
            .printed(&["64"]);
        refused.said(&[
            "one of these locks is held by",
            "let the outer rlock take all of them",
        ]);
    }
    assert_eq!(server.cli(&["EXISTS", "a", "b", "c"]), "0");
}

#[test]
fn a_run_whose_locks_an_outer_run_holds_in_part_is_refused() {
    let (server, nodes) = (Server::start(), Nodes::start(3));
    let dir = tempfile::tempdir().expect("a directory");
    for url in [
        server.url(),
        nodes.url(),
        format!("local:{}", dir.path().display()),
    ] {
        let job = || run(&["b", "c"]).node(&url).args(["--restart-guard", "off"]);
        for keys in [&["a", "b"][..], &["c", "d"], &["a", "b", "c", "d"]] {
            let script = format!("{}; echo $?", inner(keys, "-- echo ran"));
            let finished = job()
                .args(["-c", &script])
                .finish()
                .code(0)
                .printed(&["64"]);
            finished.said(&[
                "one of these locks is held by",
                "let the outer rlock take all of them",
            ]);
        }
        // Another client's lock is not waited for.
        let holder = run(&["a"])
            .node(&url)
            .args(["--restart-guard", "off"])
            .hold("echo ready; read x; true");
        let script = format!("{}; echo $?", inner(&["a", "b"], "-- echo ran"));
        job()
            .args(["-c", &script])
            .finish()
            .code(0)
            .printed(&["64"])
            .said(&["rlock: a: one of these locks"]);
        holder.finish().code(0);
    }
    assert_eq!(server.cli(&["EXISTS", "a", "b", "c", "d"]), "0");
}

#[test]
fn a_node_that_stalls_as_the_nested_run_starts_is_waited_for() {
    let server = Server::start();
    let pause = format!(
        "redis-cli -s {} client pause 1600 all",
        server.socket().display()
    );
    let script = format!("{pause}; {}", inner(&["a", "b"], "-- echo hi"));
    run(&["a", "b"])
        .on(&server)
        .args(["-c", &script])
        .finish()
        .code(0)
        .silent()
        .printed(&["OK", "hi"]);
}

#[test]
fn a_nested_command_in_the_background_does_not_outlive_any_of_the_outer_locks() {
    let server = Server::start();
    for lost in ["a", "b", "c"] {
        let script = format!(
            "setsid {} & echo ready; read x; exit 5",
            inner(&["a", "b"], &format!("-- sh -c '{STUBBORN}'"))
        );
        let job = run(&["a", "b", "c"])
            .on(&server)
            .args(STEADY)
            .args(["-v"])
            .stdin(Stdio::piped());
        let mut job = job.args(["-c", &script]).spawn();
        let work = job.wait_for_pid("work");
        drop(job.stdin.take());
        job.wait_until_told("keeping the lock until the nested rlock runs have ended");
        assert!(alive(work));
        assert_eq!(server.cli(&["EXISTS", "a", "b", "c"]), "3");
        server.cli(&["SET", lost, "another's"]);
        let finished = job.finish();
        assert!(!alive(work), "it outlived {lost}: {}", finished.stderr);
        server.cli(&["DEL", lost]);
    }
}

#[test]
fn a_nested_command_dies_with_the_outer_run_that_is_killed() {
    let server = Server::start();
    let script = format!(
        "setsid {} & read x",
        inner(&["b"], &format!("-- sh -c '{STUBBORN}'"))
    );
    let job = run(&["a", "b"])
        .on(&server)
        .args(["--ttl", "1h"])
        .stdin(Stdio::piped());
    let mut job = job.args(["-c", &script]).spawn();
    let work = job.wait_for_pid("work");
    job.signal(Signal::SIGKILL);
    eventually("the nested command is dead", || !alive(work));
    eventually("all is free", || server.cli(&["EXISTS", "a", "b"]) == "0");
}
