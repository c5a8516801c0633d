//! The restart guard: a node that restarted may have forgotten locks, and grants none until their
//! leases would be over.
//!
//! All servers here have just been started.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{Finished, Nodes, Server, eventually, rlock, slow};

/// Returns the number of lines about restarted nodes.
fn told_of_restarts(finished: &Finished) -> usize {
    finished
        .stderr
        .lines()
        .filter(|line| line.contains("restarted"))
        .count()
}

#[test]
fn fresh_nodes_grant_nothing_and_say_when_they_will() {
    let nodes = Nodes::start(3);
    let run = rlock("job")
        .node(&nodes.url())
        .args(["-n"])
        .command(["echo", "ran"])
        .code(69)
        .printed(&[]);
    let told = run
        .said(&[
            "no majority of the 3 nodes",
            &nodes[0].url(),
            "it restarted ",
            "restart guard",
        ])
        .stderr;
    let left = told
        .split_once("counts again in ")
        .and_then(|(_, left)| left.split_once('s')?.0.parse::<u32>().ok());
    assert!(
        left.is_some_and(|seconds| (20..=31).contains(&seconds)),
        "{told}"
    );
    nodes.are_clean();
    rlock("job")
        .node(&nodes.url())
        .args(["-n", "--restart-guard", "off"])
        .command(["true"])
        .code(0)
        .silent();
    rlock("job")
        .node(&nodes.url())
        .args(["-n"])
        .env("RLOCK_RESTART_GUARD", "off")
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_waiter_is_told_once_and_gets_the_lock_when_the_nodes_count() {
    let nodes = Nodes::start(3);
    let run = rlock("job")
        .node(&nodes.url())
        .args(["--restart-guard", "5s"])
        .command(["echo", "ran"])
        .code(0);
    assert!(run.took > Duration::from_millis(2500), "{:?}", run.took);
    assert_eq!(
        (told_of_restarts(&run), run.stdout),
        (1, vec!["ran".to_owned()])
    );
}

/// No node can grant the lock for a while, so no waiter's place is what blocks the others.
#[test]
fn waiters_for_nodes_to_count_keep_their_places_and_do_not_storm() {
    let mut nodes = Nodes::start(3);
    // Once this has run, the third node has been up for long enough.
    rlock("job")
        .on(&nodes[2])
        .args(["--restart-guard", "5s", "-q"])
        .command(["true"])
        .code(0);
    // Only the third node counts: there the first waiter has its turn.
    for node in &mut nodes[..2] {
        node.crash();
        node.come_back();
    }
    let queue =
        |node: &Server| node.cli(&["ZRANGE", "rlock:queue:{job}:job", "0", "-1", "WITHSCORES"]);
    let mut waiters = Vec::new();
    for count in 1..=6 {
        let run =
            rlock("job")
                .node(&nodes.url())
                .args(["--restart-guard", "5s", "-q", "--", "true"]);
        waiters.push(run.spawn());
        eventually("it waits", || queue(&nodes[2]).lines().count() == 2 * count);
    }
    let (before, asked) = (queue(&nodes[2]), nodes[2].asked());
    // A span without an event: the rate of requests is what is measured.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(queue(&nodes[2]), before);
    let asked = nodes[2].asked() - asked;
    assert!(asked < 40, "{asked} commands");
    for waiter in waiters {
        waiter.finish().code(0);
    }
    nodes.become_clean();
}

#[test]
fn a_single_node_is_asked_only_if_a_duration_is_given() {
    let server = Server::start();
    rlock("job")
        .on(&server)
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    let run = rlock("job")
        .on(&server)
        .args(["-n", "--restart-guard", "1h"])
        .command(["echo", "ran"])
        .code(69);
    run.printed(&[])
        .said(&[&server.url(), "it restarted ", "counts again in 1h"]);
    let run = rlock("job")
        .on(&server)
        .args(["--restart-guard", "5s"])
        .command(["echo", "ran"])
        .code(0);
    assert_eq!(told_of_restarts(&run), 1);
}

#[test]
fn a_holder_with_a_longer_lease_makes_the_guard_longer() {
    let nodes = Nodes::tcp(3);
    let value = r#"5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f {"host":"web1","pid":7,"user":"u","cmd":"c","ttl":600000,"n":3,"v":1}"#;
    nodes[0].cli(&["SET", "job", value, "PX", "60000"]);
    // The reply about the holder arrives before the other two nodes decide.
    let [second, third] = [&nodes[1], &nodes[2]].map(|node| slow(node, Duration::from_millis(50)));
    let urls = [nodes[0].url(), second, third].join(",");
    let run = rlock("job")
        .node(&urls)
        .args(["--wait", "1"])
        .command(["echo", "ran"])
        .printed(&[]);
    // A busy machine may have started them some seconds ago.
    let ten_minutes = ["counts again in 10m", "counts again in 9m5"];
    assert!(
        ten_minutes.iter().any(|told| run.stderr.contains(told)),
        "{}",
        run.stderr
    );
    assert_eq!(nodes[0].cli(&["GET", "job"]), value);
}

/// Of three nodes, one with the key came back empty, and one was away at the acquisition. Without
/// the guard these two would grant the lock to another client while it is held.
#[test]
fn a_node_that_forgot_a_lock_does_not_vote_for_a_second_holder() {
    let mut nodes = Nodes::start(3);
    nodes[2].crash();
    let holder = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "20s"])
        .stdin(Stdio::piped());
    let holder = holder.hold("echo ready; read line; echo done");
    let value = nodes[0].cli(&["GET", "job"]);
    eventually("both have it", || nodes[1].cli(&["GET", "job"]) == value);
    // The holder cannot heal a node meanwhile.
    holder.signal(Signal::SIGSTOP);
    nodes[1].crash();
    nodes[1].come_back();
    nodes[2].come_back();
    let second = || rlock("job").node(&nodes.url()).args(["--ttl", "20s"]);
    for wait in ["0", "1"] {
        let run = second()
            .args(["--wait", wait])
            .command(["echo", "ran"])
            .printed(&[])
            .mentions(&["restarted"]);
        assert!(run.exited_with(75) || run.exited_with(69), "{}", run.stderr);
    }
    assert_eq!(nodes.job(), [value.as_str(), "", ""]);
    // The lock is healed, or lost if the node that forgot it answers first. No other client had it
    // in either case.
    holder.signal(Signal::SIGCONT);
    let finished = holder.finish();
    assert!(
        finished.exited_with(0) || finished.exited_with(79),
        "{}",
        finished.stderr
    );
    nodes.are_clean();
}

#[test]
fn a_holder_is_named_though_the_nodes_that_restarted_answer_first() {
    let nodes = Nodes::tcp(3);
    nodes[0].cli(&["SET", "job", "theirs"]);
    let urls = [
        slow(&nodes[0], Duration::from_millis(5)),
        nodes[1].url(),
        nodes[2].url(),
    ]
    .join(",");
    let is_named = || {
        let run = rlock("job")
            .node(&urls)
            .args(["-n"])
            .command(["echo", "ran"])
            .printed(&[]);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        run.exited_with(75) && run.stderr.contains("the value theirs")
    };
    // On a busy machine the 5 ms may be more than rlock waits.
    assert!((0..10).any(|_| is_named()));
}

#[test]
fn a_node_that_forgot_a_lock_is_reminded_though_another_is_away() {
    let mut nodes = Nodes::start(3);
    let holder = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "20s"])
        .stdin(Stdio::piped());
    let holder = holder.hold("echo ready; read line; echo done");
    eventually("all have it", || !nodes.job().iter().any(String::is_empty));
    let own = nodes[0].token();
    nodes[1].freeze();
    nodes[2].crash();
    nodes[2].come_back();
    let waiter = rlock("job")
        .node(&nodes.url())
        .args(["--ttl", "20s", "--wait", "2"])
        .args(["--", "echo", "ran"])
        .spawn();
    eventually("it is back", || nodes[2].token() == own);
    waiter.finish().code(75).printed(&[]);
    holder.finish().code(0).silent().printed(&["ready", "done"]);
    nodes[1].thaw();
    nodes.become_clean();
}

#[test]
fn a_restarted_minority_is_a_missing_vote_only() {
    let mut nodes = Nodes::start(3);
    // Once this has run, all three have been up for long enough, and not only two.
    for node in nodes.iter() {
        rlock("job")
            .on(node)
            .args(["--restart-guard", "5s", "-q"])
            .command(["true"])
            .code(0);
    }
    nodes[2].crash();
    nodes[2].come_back();
    let asked = nodes[2].asked();
    rlock("job")
        .node(&nodes.url())
        .args(["--restart-guard", "5s", "-n"])
        .command(["true"])
        .code(0)
        .silent();
    assert!(nodes[2].asked() > asked);
    assert!(
        nodes[2].cli(&["GET", "rlock:fence:{job}:job"]).is_empty(),
        "it granted nothing"
    );
}

#[test]
fn a_node_that_may_not_say_is_told_of_once_and_refused_if_a_duration_was_given() {
    let nodes = Nodes::tcp(3);
    nodes.cli(&[
        "ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "-info",
    ]);
    let urls = nodes
        .iter()
        .map(|node| node.tcp_url().replace("://", "://mute@"))
        .collect::<Vec<_>>()
        .join(",");
    let run = |guard: &str| {
        rlock("job")
            .node(&urls)
            .env("RLOCK_PASSWORD", "pw")
            .args(["--restart-guard", guard])
    };
    run("auto")
        .command(["echo", "ran"])
        .code(0)
        .printed(&["ran"])
        .said(&["does not tell when it started", "INFO: ", "restart"]);
    nodes[0].cli(&["SET", "job", "theirs"]);
    nodes[1].cli(&["SET", "job", "theirs"]);
    run("auto")
        .args(["--wait", "3"])
        .command(["true"])
        .code(75)
        .mentions(&["does not tell when it started", "INFO: ", "busy"]);
    nodes.cli(&["DEL", "job"]);
    run("off")
        .command(["echo", "ran"])
        .code(0)
        .printed(&["ran"])
        .silent();
    run("1s")
        .command(["echo", "ran"])
        .code(77)
        .printed(&[])
        .said(&["--restart-guard cannot see", "INFO"]);
    nodes.become_clean();
    // The young node is a missing vote: with one more node away there is no majority.
    let [second, third] = [&nodes[1], &nodes[2]].map(|node| slow(node, Duration::from_millis(150)));
    let some = [urls.split(',').next().expect("an address"), &second, &third].join(",");
    let run = || {
        rlock("job")
            .node(&some)
            .env("RLOCK_PASSWORD", "")
            .args(["--restart-guard", "1s"])
    };
    nodes.cli(&["ACL", "SETUSER", "mute", "nopass"]);
    let ran = run().command(["echo", "ran"]).code(0).printed(&["ran"]);
    assert_eq!(
        ran.stderr.matches("its vote is missing").count(),
        1,
        "{}",
        ran.stderr
    );
    nodes[1].cli(&["SET", "job", "theirs"]);
    let refused = run()
        .args(["-n"])
        .command(["echo", "ran"])
        .code(75)
        .printed(&[]);
    refused.mentions(&["no majority is free", "--restart-guard cannot see"]);
    assert_eq!(nodes.job(), ["", "theirs", ""]);
}
