//! `--once`: a command that has succeeded is not run again for a time.

use std::time::Duration;

use crate::support::{Nodes, RLOCK, Rlock, Running, Server, Session, eventually, rlock, rlock_words};

const MARK: &str = "rlock:once:{job}:job";

/// Returns `rlock run --once 1h` for the lock `job` on all of `nodes`, to be completed.
fn once(nodes: &Nodes) -> Rlock {
    rlock("job").on_all(nodes).args(["--once", "1h"])
}

fn verb(nodes: &Nodes, words: &[&str]) -> Rlock {
    rlock_words(words).node(&nodes.url())
}

/// A script that counts its runs in the list `ran` of the first node.
fn counts(nodes: &Nodes, then: &str) -> String {
    format!("redis-cli -s {} rpush ran x >/dev/null; {then}", nodes[0].socket().display())
}

fn runs(nodes: &Nodes) -> String {
    nodes[0].cli(&["LLEN", "ran"])
}

#[test]
fn of_twenty_hosts_one_runs_and_the_others_wait_for_it() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let script = counts(&nodes, "sleep 0.3");
        let hosts: Vec<Running> =
            (0..20).map(|_| once(&nodes).args(["-w", "60s", "--", "sh", "-c", &script]).spawn()).collect();
        for host in hosts {
            host.finish().code(0).silent();
        }
        assert_eq!(runs(&nodes), "1");
        let told = once(&nodes).args(["-v"]).sh("echo ran").code(0).printed(&[]);
        told.mentions(&["not run: tester@", "ran sh with success (--once); that counts for 59m", "released"]);
        for node in nodes.iter() {
            assert_eq!(node.cli(&["EXISTS", "job"]), "0");
            let left: u64 = node.cli(&["PTTL", MARK]).parse().expect("a number");
            assert!((3_500_000..=3_600_000).contains(&left), "{left}");
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
    assert!(told.contains("rlock: job: not run: ") && told.contains("ran true with success"), "{told}");
    assert_eq!(shell.answer(&format!("{run} -q -- echo ran")).trim(), "");
    assert_eq!(shell.answer(&format!("{run} -v -- echo ran")).matches("not run").count(), 1);
    assert_eq!(shell.answer(&format!("{run} -- echo ran 2>&1 | cat")).trim(), "");
}

#[test]
fn a_failure_counts_for_nothing() {
    let nodes = Nodes::start(1);
    for script in ["exit 3", "kill -9 $$", "exit 0"] {
        let job = once(&nodes).args(["--"]).args(["sh", "-c", &counts(&nodes, script)]).finish();
        assert_eq!(job.exited_with(0), script == "exit 0");
    }
    assert_eq!(runs(&nodes), "3", "the success is the last run");
}

#[test]
fn a_command_that_is_stopped_or_loses_its_lock_has_not_succeeded() {
    let nodes = Nodes::start(1);
    once(&nodes).args(["--max-run", "100ms"]).sh("trap 'exit 0' TERM; while :; do sleep 0.01; done").code(124);
    let lost = once(&nodes).args(["--ttl", "2s"]).hold("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    nodes[0].cli(&["DEL", "job"]);
    lost.finish().code(79);
    assert_eq!(nodes[0].cli(&["EXISTS", MARK]), "0");
}

#[test]
fn a_run_without_the_option_runs() {
    let nodes = Nodes::start(1);
    once(&nodes).sh("true").code(0);
    rlock("job").on_all(&nodes).sh("echo ran").code(0).printed(&["ran"]);
}

#[test]
fn the_time_ends_by_itself_or_by_break() {
    let nodes = Nodes::start(3);
    rlock("job").on_all(&nodes).args(["--once", "500ms"]).sh("echo ran").code(0).printed(&["ran"]);
    eventually("the mark is gone", || nodes.iter().all(|node| node.cli(&["EXISTS", MARK]) == "0"));
    let ran = || once(&nodes).sh("echo ran").code(0);
    ran().printed(&["ran"]);
    ran().printed(&[]);
    verb(&nodes, &["break", "job"]).finish().code(64).said(&["tester@", "ran sh with success", "give --yes"]);
    ran().printed(&[]);
    let told = verb(&nodes, &["break", "job", "--yes"]).finish().code(0);
    told.mentions(&["ran sh with success", "the next run with --once runs its command again"]);
    verb(&nodes, &["break", "job", "--yes"]).finish().code(1).said(&["nothing to break"]);
    ran().printed(&["ran"]);
}

#[test]
fn inspect_shows_the_success_of_a_free_lock() {
    let nodes = Nodes::start(3);
    once(&nodes).sh("true").code(0);
    let table = verb(&nodes, &["inspect", "job"]).finish().code(1).stdout.join("\n");
    assert!(table.contains("(free)") && table.contains("ran sh with success (--once); that counts for 59m"), "{table}");
    let shown = verb(&nodes, &["inspect", "job", "--json"]).finish().code(1).stdout.concat();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert!(shown[0]["once"]["cmd"] == "sh" && shown[0]["once"]["ttl_ms"].as_u64() > Some(3_500_000), "{shown}");
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

/// A majority loses the key shortly before the command ends. The node that still has it is sent the mark with the release.
#[test]
fn a_loss_that_is_noticed_with_the_release_is_no_success() {
    let nodes = Nodes::start(3);
    let lost = once(&nodes).args(["--ttl", "9s"]).hold("echo ready; read line; true");
    for node in &nodes[..2] {
        node.cli(&["DEL", "job"]);
    }
    rlock("job").on_all(&nodes).sh("true").code(0);
    lost.finish().code(79).said(&["lost the lock unnoticed"]);
    for node in nodes.iter() {
        assert_eq!(node.cli(&["EXISTS", MARK]), "0");
    }
    once(&nodes).sh("echo ran").code(0).printed(&["ran"]);
}

/// The release has reached one node of three: the mark there is enough.
#[test]
fn a_release_that_reached_a_minority_is_found_there() {
    let nodes = Nodes::start(3);
    once(&nodes).sh("true").code(0);
    nodes[0].cli(&["DEL", MARK]);
    nodes[1].cli(&["DEL", MARK]);
    once(&nodes).sh("echo ran").code(0).printed(&[]);
}

/// Two nodes of three hang when the command ends, and come back while the lease lasts.
#[test]
fn the_release_is_repeated_until_a_majority_knows_of_the_success() {
    let nodes = Nodes::start(3);
    let job = once(&nodes).args(["--ttl", "20s", "--node-timeout", "200ms", "-v"]).hold("echo ready; read line; true");
    nodes[0].freeze();
    nodes[1].freeze();
    let waiting = std::thread::spawn(move || job.finish());
    eventually("the third node has the mark", || nodes[2].cli(&["EXISTS", MARK]) == "1");
    nodes[0].thaw();
    nodes[1].thaw();
    waiting.join().expect("its end").code(0).never_said("no majority of the nodes knows");
    for node in nodes.iter() {
        assert_eq!(node.cli(&["EXISTS", MARK]), "1");
    }
}

#[test]
fn a_success_that_no_majority_confirms_is_told() {
    let nodes = Nodes::start(3);
    let job = once(&nodes).args(["--ttl", "3s", "--node-timeout", "100ms"]).hold("echo ready; read line; true");
    nodes[0].freeze();
    nodes[1].freeze();
    job.finish().mentions(&["no majority of the nodes knows of the success"]).within(Duration::from_secs(10));
    nodes[0].thaw();
    nodes[1].thaw();
}

#[test]
fn a_parked_lock_has_its_mark() {
    let nodes = Nodes::start(1);
    once(&nodes).args(["--hold-at-least", "1s"]).sh("echo ran").code(0).printed(&["ran"]);
    assert!(nodes[0].cli(&["GET", "job"]).starts_with("parked "));
    once(&nodes).sh("echo ran").code(0).printed(&[]);
}

#[test]
fn what_makes_no_sense_is_refused_before_a_server_is_asked() {
    let refused = |words: &[&str], why: &str| {
        let told = rlock("job").node("redis://127.0.0.1:1").args(["--once", "1h"]).args(words);
        let told = told.command(["true"]).code(64).said(&["--once", why]);
        assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);
    };
    refused(&["-s"], "exclusive");
    refused(&["--slots", "2"], "exclusive");
    refused(&["-k", "other"], "one lock");
    rlock("job").node("local").args(["--once", "1h"]).command(["true"]).code(64).said(&["--once", "needs a server"]);
    for (time, why) in [("0s", "longer time"), ("9000h", "at most"), ("1", "unit")] {
        let job = rlock("job").node("redis://127.0.0.1:1").args(["--once", time]);
        job.command(["true"]).code(64).said(&["--once", why]);
    }
}

#[test]
fn inside_a_run_that_holds_the_lock_it_is_refused() {
    let server = Server::start();
    let inner = format!("{} run -k job --once 1h -- echo ran", crate::support::RLOCK);
    let told = rlock("job").on(&server).sh(&inner).code(64).printed(&[]);
    told.mentions(&["whose success alone can be marked: give --once outside"]);
}
