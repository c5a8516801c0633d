//! The record of the last run, beside a lock that is free again.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Nodes, Rlock, Server, eventually, rlock, rlock_words};

const LAST: &str = "rlock:last:{job}:job";

fn verb(nodes: &Nodes, words: &[&str]) -> Rlock {
    rlock_words(words).node(&nodes.url())
}

/// Returns what a look at the free lock shows of its last run, for people and as JSON.
#[track_caller]
fn last(nodes: &Nodes) -> (String, Value) {
    let table = verb(nodes, &["inspect", "job"]).finish().code(1).stdout;
    let line = table
        .iter()
        .find_map(|line| line.strip_prefix("job: last: "))
        .unwrap_or_default()
        .to_owned();
    let shown = verb(nodes, &["inspect", "job", "--json"])
        .finish()
        .code(1)
        .stdout
        .concat();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    (line, shown[0]["last"].clone())
}

/// Whether the lock is free, and its last run is shown so.
#[track_caller]
fn is_told(nodes: &Nodes, words: &[&str]) {
    let (line, json) = last(nodes);
    for word in words {
        assert!(line.contains(word), "{word}: {line} {json}");
    }
}

#[test]
fn a_free_lock_tells_its_last_run() {
    for (count, kind) in [(1, &[][..]), (1, &["-s"]), (3, &[]), (3, &["--slots", "2"])] {
        let nodes = Nodes::start(count);
        assert_eq!(last(&nodes), (String::new(), Value::Null));
        let run = || rlock("job").on_all(&nodes).args(kind);
        run().sh("sleep 0.1; exit 3").code(3);
        let (line, json) = last(&nodes);
        assert!(
            line.starts_with("tester@") && line.contains("s ago, ran ") && line.contains(", sh, "),
            "{line}"
        );
        assert!(line.ends_with(", exit 3"), "{line}");
        let lasted = json["end"]
            .as_u64()
            .zip(json["start"].as_u64())
            .map(|(end, start)| end - start);
        // rlock takes the time once it knows that the command runs, which a busy machine delays.
        assert!(
            lasted >= Some(50) && json["exit"] == 3 && json["signal"].is_null(),
            "{json}"
        );
        assert!(
            json["age_ms"].as_u64() < Some(60_000)
                && json["user"] == "tester"
                && json["cmd"] == "sh",
            "{json}"
        );
        run().sh("kill -TERM $$").code(143);
        is_told(&nodes, &[", killed by SIGTERM"]);
        run().args(["--name", "\u{1b}[1mred"]).sh("true").code(0);
        is_told(&nodes, &["\\x1b[1mred", ", exit 0"]);
        // What starts no command leaves nothing.
        run().command(["/nowhere/at/all"]).code(127);
        is_told(&nodes, &["\\x1b[1mred", ", exit 0"]);
    }
}

#[test]
fn each_of_several_locks_tells_it_and_a_nested_run_leaves_it_to_the_outer_one() {
    let server = Server::start();
    let inner = format!("{} run -k a -- true; exit 5", crate::support::RLOCK);
    rlock("a").on(&server).args(["-k", "b"]).sh(&inner).code(5);
    for key in ["a", "b"] {
        let told = server.cli(&["GET", &format!("rlock:last:{{{key}}}:{key}")]);
        assert!(
            told.contains("\"cmd\":\"sh\"") && told.contains("\"exit\":5"),
            "{told}"
        );
    }
}

#[test]
fn a_run_whose_rlock_was_killed_is_recorded_by_its_guard() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let job = rlock("job")
            .on_all(&nodes)
            .args(["--ttl", "5m"])
            .hold("echo ready; exec sleep 60");
        job.signal(Signal::SIGKILL);
        nodes.become_clean();
        eventually("it is recorded", || !last(&nodes).0.is_empty());
        is_told(&nodes, &["tester@", ", sh, ", ", killed with its rlock"]);
    }
}

#[test]
fn a_lock_that_was_broken_tells_by_whom_and_why() {
    for (count, kind) in [(1, &[][..]), (3, &[]), (1, &["-s"])] {
        let nodes = Nodes::start(count);
        for (words, how) in [
            (&["--reason", "it hung"][..], ": it hung"),
            (&["--now", "--reason", "a\u{7}b"], ": a\\x07b"),
            (&[], " ago"),
        ] {
            let job = rlock("job")
                .on_all(&nodes)
                .args(kind)
                .args(["--ttl", "3s"])
                .hold("echo ready; exec sleep 60");
            verb(&nodes, &[&["break", "job", "--yes"], words].concat())
                .finish()
                .code(0);
            let told = job.finish().code(79);
            if words.len() == 2 {
                told.mentions(&["broke the lock: it hung"]);
            }
            let (line, json) = last(&nodes);
            assert!(
                line.contains(", sh, broken by tester@") && line.ends_with(how),
                "{line}"
            );
            assert!(
                json["broken_by"]
                    .as_str()
                    .is_some_and(|by| by.starts_with("tester@")),
                "{json}"
            );
            assert_eq!(json["reason"].is_null(), words.is_empty(), "{json}");
        }
    }
}

#[test]
fn a_reason_that_is_too_long_is_64_and_changes_nothing() {
    let nodes = Nodes::start(1);
    let token = verb(&nodes, &["acquire", "-k", "job"])
        .finish()
        .code(0)
        .stdout
        .remove(0);
    let long = "x".repeat(201);
    let told = verb(&nodes, &["break", "job", "--yes", "--reason", &long])
        .finish()
        .code(64)
        .said(&["at most 200 bytes"]);
    assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);
    assert!(nodes[0].cli(&["GET", "job"]).starts_with(&token));
    verb(&nodes, &["break", "job", "--yes", "--reason", &long[1..]])
        .finish()
        .code(0);
    is_told(&nodes, &[", acquire, broken by tester@", &long[1..]]);
}

/// A value of another type, and a server without memory: the lock is freed all the same.
#[test]
fn a_record_that_cannot_be_written_keeps_no_lock() {
    for kind in [&[][..], &["-s"], &["--once", "1h"]] {
        let nodes = Nodes::start(1);
        let run = || rlock("job").on_all(&nodes).args(kind);
        nodes[0].cli(&["LPUSH", LAST, "x"]);
        run().sh("true").code(0).silent();
        nodes.are_clean();
        is_told(&nodes, &[", exit 0"]);
        verb(&nodes, &["break", "job", "--yes"]).finish();
        let job = run().hold("echo ready; read line; true");
        nodes[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
        job.finish().code(0).silent();
        nodes.are_clean();
    }
}
