//! `--hold-at-least` and `--lock-delay`: a lock that stays when its command has ended.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Nodes, Rlock, Server, alive, eventually, rlock, rlock_words};

/// The kinds, and the one of a client that each keeps out.
const KINDS: [&[&str]; 3] = [&[], &["-s"], &["--slots", "2"]];

fn run(nodes: &Nodes, options: &[&str]) -> Rlock {
    rlock("job").on_all(nodes).args(options)
}

fn verb(nodes: &Nodes, words: &[&str]) -> Rlock {
    rlock_words(words).node(&nodes.url())
}

/// Returns the ms that the lock has left, at each node.
fn left(nodes: &Nodes) -> Vec<i64> {
    nodes
        .iter()
        .map(|node| node.cli(&["PTTL", "job"]).parse().expect("a number"))
        .collect()
}

#[track_caller]
fn stays_for(nodes: &Nodes, seconds: i64) {
    let left = left(nodes);
    let expected = (seconds - 5) * 1000..=seconds * 1000;
    assert!(left.iter().all(|left| expected.contains(left)), "{left:?}");
}

#[test]
fn a_short_job_holds_its_lock_for_its_time_and_rlock_does_not_wait() {
    for kind in KINDS {
        for count in [1, 3] {
            let nodes = Nodes::start(count);
            for script in ["true", "exit 7", "kill -9 $$"] {
                let begin = Instant::now();
                let job = run(&nodes, kind)
                    .args(["--hold-at-least", "1m", "-v"])
                    .sh(script);
                job.mentions(&["parked: the lock stays for another "])
                    .never_said("released");
                assert!(begin.elapsed() < Duration::from_secs(20));
                stays_for(&nodes, 60);
                let busy = run(&nodes, &["-n"]).sh("echo ran").code(75).printed(&[]);
                busy.said(&["parked", "by tester@", "which ran sh", "free in 5"]);
                verb(&nodes, &["break", "job", "-y"])
                    .finish()
                    .code(0)
                    .mentions(&["parked", "the key was deleted"]);
                run(&nodes, &["-n"]).sh("true").code(0).silent();
            }
        }
    }
}

#[test]
fn the_other_host_of_a_cron_job_finds_it_done() {
    let nodes = Nodes::start(1);
    let job = || run(&nodes, &["-n", "-q", "--hold-at-least", "2s"]).sh("echo ran");
    let begin = Instant::now();
    job().code(0).printed(&["ran"]);
    job().code(75).printed(&[]);
    let next = run(&nodes, &["--hold-at-least", "2s"])
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
    assert!(
        begin.elapsed() >= Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
    next.within(Duration::from_secs(10));
}

/// The waiter has looked at a lease of 30s, and learns that the lock ends sooner.
#[test]
fn a_waiter_gets_a_parked_lock_when_its_time_is_over() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let job = run(&nodes, &["--hold-at-least", "3s"]).hold("echo ready; read line; true");
        let waiter = run(&nodes, &[]).args(["--", "true"]).spawn();
        for node in nodes.iter() {
            eventually("it waits", || {
                node.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
            });
        }
        let begin = Instant::now();
        job.finish().code(0).silent();
        waiter.finish().code(0).silent();
        assert!(
            begin.elapsed() < Duration::from_secs(6),
            "{:?}",
            begin.elapsed()
        );
        nodes.become_clean();
    }
}

#[test]
fn a_command_that_ran_long_enough_or_never_started_leaves_nothing() {
    let nodes = Nodes::start(1);
    run(&nodes, &["--hold-at-least", "200ms"])
        .sh("sleep 0.3")
        .code(0)
        .silent();
    run(&nodes, &["-n", "--hold-at-least", "1h"])
        .command(["/nowhere/at/all"])
        .code(127);
    run(&nodes, &["-n", "--hold-at-least", "1h"])
        .command(["/etc/passwd"])
        .code(126);
    nodes.become_clean();
}

#[test]
fn a_nested_run_parks_nothing_and_its_outer_one_does() {
    let nodes = Nodes::start(1);
    let inner = format!(
        "{} run -k job --hold-at-least 1h -- true",
        crate::support::RLOCK
    );
    run(&nodes, &[]).sh(&inner).code(0);
    nodes.become_clean();
    run(&nodes, &["--hold-at-least", "1m"]).sh(&inner).code(0);
    stays_for(&nodes, 60);
}

#[test]
fn the_token_of_a_run_that_has_ended_is_not_the_holders() {
    for kind in KINDS {
        let nodes = Nodes::start(3);
        let job = run(&nodes, kind)
            .args(["--hold-at-least", "1m"])
            .sh("echo $RLOCK_TOKEN")
            .code(0);
        for word in ["check", "renew", "release"] {
            let told = verb(&nodes, &[word, "-k", "job", "--token", &job.stdout[0]])
                .finish()
                .code(1);
            told.said(&["not the holder's token", "parked"]);
        }
        stays_for(&nodes, 60);
        let told: serde_json::Value = {
            let shown = verb(&nodes, &["inspect", "job", "--json"])
                .finish()
                .code(0)
                .stdout
                .concat();
            serde_json::from_str(&shown).expect("JSON")
        };
        let holder = &told[0]["holder"];
        assert!(
            holder["parked"] == true && holder["acquired"] == false && holder["pid"].is_null(),
            "{told}"
        );
        let table = verb(&nodes, &["inspect", "job"])
            .finish()
            .code(0)
            .stdout
            .join("\n");
        assert!(table.contains("sh (parked)"), "{table}");
    }
}

/// A process that the command left in the background does not wait for the rlock that ran it.
#[test]
fn a_process_left_behind_waits_for_the_parked_lock_as_others_do() {
    let nodes = Nodes::start(1);
    let left = format!(
        "{} run -k job -n -- true; echo $? >&2",
        crate::support::RLOCK
    );
    let outer_ended = "while kill -0 $PPID 2>/dev/null; do sleep 0.05; done";
    let script = format!("({outer_ended}; {left}) >/dev/null & true");
    run(&nodes, &["--hold-at-least", "1m"])
        .sh(&script)
        .code(0)
        .mentions(&["busy: parked by", "75"]);
}

#[test]
fn several_locks_are_parked_together() {
    let server = Server::start();
    rlock("a")
        .on(&server)
        .args(["-k", "b", "--hold-at-least", "1m"])
        .command(["true"])
        .code(0)
        .silent();
    for key in ["a", "b"] {
        assert!(
            server.cli(&["GET", key]).starts_with("parked ")
                && server.cli(&["PTTL", key]).len() == 5
        );
    }
}

#[test]
fn a_server_without_memory_parks_a_lock() {
    for kind in KINDS {
        let nodes = Nodes::start(1);
        let job = run(&nodes, &[kind, &["--hold-at-least", "1m"]].concat())
            .hold("echo ready; read line; true");
        nodes[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
        job.finish().code(0).silent();
        stays_for(&nodes, 60);
        let shown = verb(&nodes, &["inspect", "job"])
            .finish()
            .code(0)
            .stdout
            .join("\n");
        assert!(shown.contains("parked"), "{shown}");
    }
}

/// Two nodes of three hang when the command ends, and come back while the lease lasts.
#[test]
fn a_lock_is_parked_again_until_a_majority_has_it() {
    let nodes = Nodes::start(3);
    let options = ["--hold-at-least", "1m", "--ttl", "20s"];
    let job = run(&nodes, &options)
        .args(["--node-timeout", "200ms"])
        .hold("echo ready; read line; true");
    for away in &nodes[..2] {
        away.cli(&["CLIENT", "PAUSE", "1500", "ALL"]);
    }
    job.finish().code(0).never_said("not confirmed");
    stays_for(&nodes, 60);
}

#[test]
fn a_killed_rlock_parks_nothing() {
    let nodes = Nodes::start(1);
    let job = run(&nodes, &["--hold-at-least", "1m"]).hold("echo ready; exec sleep 60");
    job.signal(Signal::SIGKILL);
    nodes.become_clean();
}

#[test]
fn a_clean_end_knows_no_lock_delay() {
    for kind in KINDS {
        let nodes = Nodes::start(3);
        let job = run(&nodes, kind)
            .args(["--lock-delay", "1m"])
            .hold("echo ready; read line; exit 3");
        stays_for(&nodes, 90);
        job.finish().code(3).silent();
        nodes.become_clean();
    }
}

#[test]
fn a_lock_that_was_broken_stays_for_the_delay() {
    for kind in KINDS {
        for count in [1, 3] {
            let nodes = Nodes::start(count);
            let options = [kind, &["--lock-delay", "1m", "--ttl", "3s"]].concat();
            let mut job = run(&nodes, &options)
                .args(["--", "sh", "-c", "echo work $$; exec sleep 60"])
                .spawn();
            let work = job.wait_for_pid("work");
            let broken = verb(&nodes, &["break", "job", "-y"]).finish().code(0);
            broken.mentions(&[
                "its holder released it after",
                "it stays parked for another",
                "(--lock-delay)",
            ]);
            assert!(!alive(work));
            job.finish().code(79);
            stays_for(&nodes, 60);
            run(&nodes, &["-n"]).sh("true").code(75).said(&["parked"]);
            verb(&nodes, &["break", "job", "-y"]).finish().code(0);
            run(&nodes, &["-n"]).sh("true").code(0);
        }
    }
}

/// One node of three still has the key when the lock is lost.
#[test]
fn a_lock_that_was_lost_stays_where_it_still_is() {
    let nodes = Nodes::start(3);
    let options = ["--lock-delay", "1m", "--ttl", "3s"];
    let job = run(&nodes, &options).hold("echo ready; exec sleep 60");
    nodes[0].cli(&["DEL", "job"]);
    nodes[1].cli(&["DEL", "job"]);
    job.finish().code(79);
    eventually("the shield is parked", || {
        nodes
            .iter()
            .all(|node| node.cli(&["GET", "job"]).starts_with("parked "))
    });
    stays_for(&nodes, 60);
}

#[test]
fn the_lock_of_a_killed_rlock_stays_for_ttl_and_delay() {
    let nodes = Nodes::start(1);
    let options = ["--lock-delay", "1m", "--ttl", "3s"];
    let mut job = run(&nodes, &options)
        .args(["--", "sh", "-c", "echo work $$; exec sleep 60"])
        .spawn();
    let work = job.wait_for_pid("work");
    job.signal(Signal::SIGKILL);
    eventually("the guard kills the command", || !alive(work));
    assert!(left(&nodes)[0] > 55_000, "{:?}", left(&nodes));
}

#[test]
fn a_lock_of_acquire_is_renewed_with_its_delay() {
    let nodes = Nodes::start(3);
    let acquire = [
        "acquire",
        "-k",
        "job",
        "--lock-delay",
        "1m",
        "--ttl",
        "30s",
        "--restart-guard",
        "off",
    ];
    let token = verb(&nodes, &acquire).finish().code(0).stdout.remove(0);
    stays_for(&nodes, 90);
    let of_token = |words: &[&str]| {
        verb(&nodes, &[words, &["-k", "job", "--token", &token]].concat()).finish()
    };
    // The delay is no part of the lease.
    of_token(&["check", "--for", "20s"]).code(0);
    of_token(&["check", "--for", "31s"])
        .code(1)
        .said(&["certainly left"]);
    nodes.cli(&["PEXPIRE", "job", "70000"]);
    of_token(&["renew"]).code(0).silent();
    stays_for(&nodes, 90);
    of_token(&["renew", "--ttl", "31s"])
        .code(64)
        .said(&["longer than the 30s"]);
    of_token(&["renew", "--ttl", "10s"]).code(0);
    stays_for(&nodes, 70);
    of_token(&["release"]).code(0);
    nodes.become_clean();
}

#[test]
fn times_that_make_no_sense_are_refused_before_a_server_is_asked() {
    let refused = |words: &[&str], why: &str| {
        let told = rlock("job")
            .node("redis://127.0.0.1:1")
            .args(words)
            .command(["true"])
            .code(64)
            .said(&[why]);
        assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);
    };
    refused(&["--hold-at-least", "9000h"], "at most");
    refused(&["--lock-delay", "9000h"], "with --ttl");
    refused(&["--hold-at-least", "1"], "--hold-at-least");
    for option in ["--hold-at-least", "--lock-delay"] {
        rlock("job")
            .node("local")
            .args([option, "1s"])
            .command(["true"])
            .code(64)
            .said(&[option, "needs a server"]);
        rlock("job")
            .node("local")
            .args([option, "0s"])
            .command(["true"])
            .code(0)
            .silent();
    }
}

/// A node that lost a parked lock grants nothing for as long as the lock would have stayed.
#[test]
fn a_node_that_restarted_may_have_forgotten_a_parked_lock() {
    let mut nodes = Nodes::start(3);
    run(&nodes, &["--hold-at-least", "5m"]).sh("true").code(0);
    nodes[0].crash();
    nodes[0].come_back();
    nodes[1].crash();
    nodes[1].come_back();
    nodes[2].cli(&["DEL", "job"]);
    let told = rlock("job")
        .node(&nodes.url())
        .args(["-n", "--hold-at-least", "5m"])
        .command(["true"]);
    told.code(69).said(&["restart guard", "counts again in 5m"]);
}
