//! `--once`: a command that has succeeded is not run again for a time.

use std::time::Duration;

use crate::replicas::replicated;
use crate::support::{
    Nodes, RLOCK, Rlock, Running, Server, Session, eventually, rlock, rlock_words,
};

const LAST: &str = "rlock:last:{job}:job";

/// Returns `rlock run --once 1h` for the lock `job` on all of `nodes`, to be completed.
fn once(nodes: &Nodes) -> Rlock {
    rlock("job").on_all(nodes).args(["--once", "1h"])
}

fn verb(nodes: &Nodes, words: &[&str]) -> Rlock {
    rlock_words(words).node(&nodes.url())
}

/// Returns the success in a node's record; empty if it knows of none.
fn success(node: &Server) -> String {
    node.cli(&["GET", LAST])
        .lines()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// A script that counts its runs in the list `ran` of the first node.
fn counts(nodes: &Nodes, then: &str) -> String {
    format!(
        "redis-cli -s {} rpush ran x >/dev/null; {then}",
        nodes[0].socket().display()
    )
}

fn runs(nodes: &Nodes) -> String {
    nodes[0].cli(&["LLEN", "ran"])
}

#[test]
fn of_twenty_hosts_one_runs_and_the_others_wait_for_it() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let script = counts(&nodes, "sleep 0.3");
        let hosts: Vec<Running> = (0..20)
            .map(|_| {
                once(&nodes)
                    .args(["-w", "60s", "--", "sh", "-c", &script])
                    .spawn()
            })
            .collect();
        for host in hosts {
            host.finish().code(0).silent();
        }
        assert_eq!(runs(&nodes), "1");
        let told = once(&nodes)
            .args(["-v"])
            .sh("echo ran")
            .code(0)
            .printed(&[]);
        told.mentions(&[
            "not run: tester@",
            "ran sh with success",
            "(--once)",
            "released",
        ]);
        for node in nodes.iter() {
            assert_eq!(node.cli(&["EXISTS", "job"]), "0");
            let left: u64 = node.cli(&["TTL", LAST]).parse().expect("a number");
            assert!((604_000..=604_800).contains(&left), "{left}");
        }
    }
}

#[test]
fn a_run_that_was_not_needed_says_so_at_a_terminal() {
    let server = Server::start();
    let run = "rlock run -k job --once 1h";
    let mut shell = Session::bash_on(RLOCK, &server);
    assert_eq!(shell.answer(&format!("{run} -- true")).trim(), "");
    let told = shell.answer(&format!("{run} -- echo ran"));
    assert!(
        told.contains("rlock: job: not run: ") && told.contains("ran true with success"),
        "{told}"
    );
    assert_eq!(shell.answer(&format!("{run} -q -- echo ran")).trim(), "");
    assert_eq!(
        shell
            .answer(&format!("{run} -v -- echo ran"))
            .matches("not run")
            .count(),
        1
    );
    assert_eq!(
        shell
            .answer(&format!("{run} -- echo ran 2>&1 | cat"))
            .trim(),
        ""
    );
}

#[test]
fn a_failure_counts_for_nothing() {
    let nodes = Nodes::start(1);
    for script in ["exit 3", "kill -9 $$", "exit 0"] {
        let job = once(&nodes)
            .args(["--"])
            .args(["sh", "-c", &counts(&nodes, script)])
            .finish();
        assert_eq!(job.exited_with(0), script == "exit 0");
    }
    assert_eq!(runs(&nodes), "3", "the success is the last run");
}

#[test]
fn a_command_that_is_stopped_or_loses_its_lock_has_not_succeeded() {
    let nodes = Nodes::start(1);
    once(&nodes)
        .args(["--max-run", "100ms"])
        .sh("trap 'exit 0' TERM; while :; do sleep 0.1; done")
        .code(124);
    let lost = once(&nodes)
        .args(["--ttl", "2s"])
        .hold("trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done");
    nodes[0].cli(&["DEL", "job"]);
    lost.finish().code(79);
    assert_eq!(success(&nodes[0]), "");
}

#[test]
fn a_run_without_the_option_runs() {
    let nodes = Nodes::start(1);
    once(&nodes).sh("true").code(0);
    rlock("job")
        .on_all(&nodes)
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
}

#[test]
fn the_time_ends_by_itself_or_by_break() {
    let nodes = Nodes::start(3);
    let ran = || once(&nodes).sh("echo ran").code(0);
    ran().printed(&["ran"]);
    ran().printed(&[]);
    let soon = || {
        rlock("job")
            .on_all(&nodes)
            .args(["--once", "500ms"])
            .sh("echo ran")
            .code(0)
            .stdout
    };
    eventually("the time is over", || soon() == ["ran"]);
    // Each judges by its own time, whatever that of the run was.
    ran().printed(&[]);
    verb(&nodes, &["break", "job"]).finish().code(64).said(&[
        "tester@",
        "ran sh with success",
        "give --yes",
    ]);
    ran().printed(&[]);
    let told = verb(&nodes, &["break", "job", "--yes"]).finish().code(0);
    told.mentions(&[
        "ran sh with success",
        "the next run with --once runs its command again",
    ]);
    verb(&nodes, &["break", "job", "--yes"])
        .finish()
        .code(1)
        .said(&["nothing to break"]);
    ran().printed(&["ran"]);
}

#[test]
fn inspect_shows_the_success_of_a_free_lock() {
    let nodes = Nodes::start(3);
    once(&nodes).sh("true").code(0);
    let table = verb(&nodes, &["inspect", "job"])
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(
        table.contains("(free)")
            && table.contains("job: last: tester@")
            && table.contains(", exit 0"),
        "{table}"
    );
    let shown = verb(&nodes, &["inspect", "job", "--json"])
        .finish()
        .code(1)
        .stdout
        .concat();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown[0]["once"], shown[0]["last"], "{shown}");
    rlock("job").on_all(&nodes).sh("exit 3").code(3);
    let table = verb(&nodes, &["inspect", "job"])
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(
        table.contains(", exit 3") && table.contains("ran sh with success"),
        "{table}"
    );
}

/// A success that a majority knows of is found by every majority, whichever node is away.
#[test]
fn a_minority_that_lost_its_data_or_is_away_changes_nothing() {
    let nodes = Nodes::start(3);
    nodes[2].freeze();
    once(&nodes).sh("true").code(0);
    nodes[2].thaw();
    for away in 0..2 {
        nodes[away].freeze();
        once(&nodes).sh("echo ran").code(0).printed(&[]);
        nodes[away].thaw();
    }
    nodes[0].cli(&["FLUSHALL"]);
    once(&nodes).sh("echo ran").code(0).printed(&[]);
}

/// A majority loses the key shortly before the command ends. The node that still has it is sent the
/// success with the release.
#[test]
fn a_loss_that_is_noticed_with_the_release_is_no_success() {
    let nodes = Nodes::start(3);
    let lost = once(&nodes)
        .args(["--ttl", "5m"])
        .hold("echo ready; read line; true");
    for node in &nodes[..2] {
        node.cli(&["DEL", "job"]);
    }
    rlock("job").on_all(&nodes).sh("true").code(0);
    lost.finish().code(79).said(&["lost the lock unnoticed"]);
    for node in nodes.iter() {
        assert_eq!(success(node), "");
    }
    once(&nodes).sh("echo ran").code(0).printed(&["ran"]);
}

/// The release has reached one node of three: its word is enough.
#[test]
fn a_release_that_reached_a_minority_is_found_there() {
    let nodes = Nodes::start(3);
    once(&nodes).sh("true").code(0);
    nodes[0].cli(&["DEL", LAST]);
    nodes[1].cli(&["DEL", LAST]);
    once(&nodes).sh("echo ran").code(0).printed(&[]);
}

/// The contract's limit: one node was away when the run ended, and another has lost its data since.
#[test]
fn a_success_that_a_majority_lacks_is_repeated() {
    let nodes = Nodes::start(3);
    once(&nodes).sh("true").code(0);
    eventually("all know it", || {
        nodes.iter().all(|node| !success(node).is_empty())
    });
    nodes[1].cli(&["DEL", LAST]);
    nodes[2].cli(&["FLUSHALL"]);
    nodes[0].freeze();
    once(&nodes).sh("echo ran").code(0).printed(&["ran"]);
    nodes[0].thaw();
}

/// A node that lost its record, or was away when it was written, gets the success from the next run
/// that it skips.
#[test]
fn a_run_that_is_skipped_copies_the_success_and_leaves_no_run() {
    let nodes = Nodes::start(3);
    once(&nodes).sh("true").code(0);
    let known = success(&nodes[0]);
    eventually("all know it", || {
        nodes.iter().all(|node| success(node).len() == known.len())
    });
    nodes[2].cli(&["DEL", LAST]);
    rlock("job").on_all(&nodes).sh("exit 3").code(3);
    eventually("it is recorded", || {
        nodes
            .iter()
            .all(|node| node.cli(&["GET", LAST]).contains("\"exit\":3"))
    });
    let runs: Vec<String> = nodes
        .iter()
        .map(|node| {
            node.cli(&["GET", LAST])
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    once(&nodes).sh("echo ran").code(0).printed(&[]).silent();
    eventually("it is copied", || success(&nodes[2]).len() == known.len());
    // Its time at the node is that of the success, not of the copy.
    let at = |entry: &str| {
        entry
            .split(' ')
            .nth(2)
            .and_then(|at| at.parse::<i64>().ok())
            .expect("a time")
    };
    assert!(
        (at(&success(&nodes[2])) - at(&known)).abs() < 1500,
        "{known} {}",
        success(&nodes[2])
    );
    for (node, run) in nodes.iter().zip(&runs) {
        assert_eq!(
            node.cli(&["GET", LAST]).lines().next(),
            Some(run.as_str()),
            "the run is that of before"
        );
    }
    // With the copy, no two nodes may forget it.
    nodes[0].cli(&["FLUSHALL"]);
    nodes[1].freeze();
    once(&nodes).sh("echo ran").code(0).printed(&[]);
    nodes[1].thaw();
}

/// A failover would forget a success that no replica has.
#[test]
fn a_success_or_a_parked_lock_that_no_replica_has_is_told() {
    let (primary, replica) = replicated(&[]);
    let run = || {
        rlock("job")
            .on(&primary)
            .args(["--once", "1h", "--wait-replicas", "1"])
    };
    run().sh("echo ran").code(0).printed(&["ran"]).silent();
    assert!(
        success(&replica).contains("\"cmd\":\"sh\""),
        "it has it already"
    );
    rlock_words(["break", "job", "--yes"])
        .on(&primary)
        .finish()
        .code(0);
    let job = run()
        .args(["--ttl", "9s", "--node-timeout", "500ms"])
        .hold("echo ready; read line; true");
    let parked =
        rlock("other")
            .on(&primary)
            .args(["--hold-at-least", "1m", "--wait-replicas", "1"]);
    let parked = parked
        .args(["--node-timeout", "500ms"])
        .hold("echo ready; read line; true");
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    job.finish()
        .mentions(&["no majority of the nodes knows of the success"]);
    parked
        .finish()
        .mentions(&["release not confirmed (only 0 of 1 replicas have the write"]);
}

/// Two nodes of three hang when the command ends, and come back while the lease lasts.
#[test]
fn the_release_is_repeated_until_a_majority_knows_of_the_success() {
    let nodes = Nodes::start(3);
    let job = once(&nodes)
        .args(["--ttl", "20s", "--node-timeout", "200ms", "-v"])
        .hold("echo ready; read line; true");
    nodes[0].freeze();
    nodes[1].freeze();
    let waiting = std::thread::spawn(move || job.finish());
    eventually("the third node knows it", || !success(&nodes[2]).is_empty());
    nodes[0].thaw();
    nodes[1].thaw();
    waiting
        .join()
        .expect("its end")
        .code(0)
        .never_said("no majority of the nodes knows");
    for node in nodes.iter() {
        assert_ne!(success(node), "");
    }
}

#[test]
fn a_success_that_no_majority_confirms_is_told() {
    let nodes = Nodes::start(3);
    let job = once(&nodes)
        .args(["--ttl", "3s", "--node-timeout", "100ms"])
        .hold("echo ready; read line; true");
    nodes[0].freeze();
    nodes[1].freeze();
    job.finish()
        .mentions(&["no majority of the nodes knows of the success"])
        .within(Duration::from_secs(10));
    nodes[0].thaw();
    nodes[1].thaw();
}

#[test]
fn a_parked_lock_has_its_success() {
    let nodes = Nodes::start(1);
    once(&nodes)
        .args(["--hold-at-least", "1s"])
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
    assert!(nodes[0].cli(&["GET", "job"]).starts_with("parked "));
    once(&nodes).sh("echo ran").code(0).printed(&[]);
}

#[test]
fn what_makes_no_sense_is_refused_before_a_server_is_asked() {
    let refused = |words: &[&str], why: &str| {
        let told = rlock("job")
            .node("redis://127.0.0.1:1")
            .args(["--once", "1h"])
            .args(words);
        let told = told.command(["true"]).code(64).said(&["--once", why]);
        assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);
    };
    refused(&["-s"], "exclusive");
    refused(&["--slots", "2"], "exclusive");
    refused(&["-k", "other"], "one lock");
    rlock("job")
        .node("local")
        .args(["--once", "1h"])
        .command(["true"])
        .code(64)
        .said(&["--once", "needs a server"]);
    for (time, why) in [("0s", "longer time"), ("9000h", "at most"), ("1", "unit")] {
        let job = rlock("job")
            .node("redis://127.0.0.1:1")
            .args(["--once", time]);
        job.command(["true"]).code(64).said(&["--once", why]);
    }
}

#[test]
fn inside_a_run_that_holds_the_lock_it_is_refused() {
    let server = Server::start();
    let inner = format!("{} run -k job --once 1h -- echo ran", crate::support::RLOCK);
    let told = rlock("job").on(&server).sh(&inner).code(64).printed(&[]);
    told.mentions(&["whose success alone counts: give --once outside"]);
}
