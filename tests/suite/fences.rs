//! The fence on several nodes: it increases strictly from holder to holder, whatever the counters
//! of the nodes.

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{Nodes, Running, STEADY, Server, eventually, rlock};

const COUNTER: &str = "rlock:fence:{job}:job";

/// Holds the lock for a moment, and returns the fence.
fn next_fence(nodes: &Nodes) -> u64 {
    let run = rlock("job")
        .on_all(nodes)
        .sh("echo $RLOCK_FENCE")
        .code(0)
        .silent();
    run.stdout[0].parse().expect("a fence")
}

/// A counter that is an hour ahead of every clock, and well below the limit.
fn an_hour_ahead() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_micros();
    u64::try_from(now).expect("this century") + 3_600_000_000
}

/// Without the confirm round, the two nodes of the second holder would not know the fence of the
/// first holder.
#[test]
fn fences_increase_though_one_node_is_far_ahead_and_each_holder_lacks_another() {
    let nodes = Nodes::start(3);
    let ahead = an_hour_ahead();
    nodes[2].cli(&["SET", COUNTER, &ahead.to_string()]);
    let mut last = ahead;
    for without in [0, 2, 1, 0, 1, 2] {
        nodes[without].cli(&["SET", "job", "theirs"]);
        let fence = next_fence(&nodes);
        assert!(fence > last, "{fence} after {last}, without node {without}");
        last = fence;
        nodes[without].cli(&["DEL", "job"]);
    }
    assert!(last < ahead + 100, "{last}");
}

#[test]
fn fences_increase_though_a_minority_forgets_its_counter_between_holders() {
    let mut nodes = Nodes::start(3);
    nodes[0].cli(&["SET", COUNTER, &an_hour_ahead().to_string()]);
    let mut last = next_fence(&nodes);
    for restarted in [0, 1, 2, 0] {
        nodes[restarted].crash();
        nodes[restarted].come_back();
        let fence = next_fence(&nodes);
        assert!(
            fence > last,
            "{fence} after {last}, node {restarted} restarted"
        );
        last = fence;
    }
}

#[test]
fn a_majority_knows_the_fence_while_the_lock_is_held_and_in_time_all_do() {
    let nodes = Nodes::start(5);
    nodes[3].cli(&["SET", COUNTER, &an_hour_ahead().to_string()]);
    // Two more nodes lack the key: the fence has to reach the others.
    nodes[0].cli(&["SET", "job", "theirs", "PX", "60000"]);
    let dir = tempfile::tempdir().expect("a directory");
    let told = dir.path().join("fence");
    let held = || {
        let script = format!(
            "echo $RLOCK_FENCE >{}; echo ready; read line; true",
            told.display()
        );
        let holder = rlock("job")
            .on_all(&nodes)
            .args(STEADY)
            .stdin(Stdio::piped())
            .hold(&script);
        (
            holder,
            std::fs::read_to_string(&told)
                .expect("a fence")
                .trim()
                .to_owned(),
        )
    };
    let mut holding = held();
    // On a busy machine the node ahead may answer too late to have a vote.
    eventually("the node ahead is heard", || {
        let is_heard = nodes[3].cli(&["GET", COUNTER]) == holding.1;
        if !is_heard {
            std::mem::replace(&mut holding, held()).0.finish().code(0);
        }
        is_heard
    });
    let (holder, fence) = holding;
    let knowing = || {
        nodes
            .cli(&["GET", COUNTER])
            .iter()
            .filter(|counter| **counter == fence)
            .count()
    };
    assert!(knowing() >= 3, "{:?}", nodes.cli(&["GET", COUNTER]));
    nodes[0].cli(&["DEL", "job"]);
    eventually("all know it", || knowing() == 5);
    holder.finish().code(0).silent().printed(&["ready"]);
}

#[test]
fn twenty_waiters_all_get_their_turn_and_a_higher_fence_each() {
    let nodes = Nodes::start(3);
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let script = format!(
        "echo $RLOCK_FENCE >>{0}; sleep 0.01; echo $RLOCK_FENCE >>{0}",
        log.display()
    );
    let all: Vec<Running> = (0..20)
        .map(|_| rlock("job").on_all(&nodes).args(["-c", &script]).spawn())
        .collect();
    for running in all {
        running.finish().code(0).silent();
    }
    let log = std::fs::read_to_string(log).expect("a log");
    let fences: Vec<u64> = log
        .lines()
        .map(|line| line.parse().expect("a fence"))
        .collect();
    assert_eq!(fences.len(), 40);
    for pair in fences.chunks(2) {
        assert_eq!(pair[0], pair[1], "an overlap: {fences:?}");
    }
    assert!(
        fences
            .chunks(2)
            .map(|pair| pair[0])
            .is_sorted_by(|a, b| a < b),
        "{fences:?}"
    );
    nodes.are_clean();
}

/// A lone server goes by its own clock, whatever number a client names.
#[test]
fn a_counter_that_one_server_lost_starts_above_every_number_that_it_gave() {
    let server = Server::ahead(10);
    for _ in 0..2 {
        let now: u64 = server
            .cli(&["TIME"])
            .lines()
            .next()
            .and_then(|time| time.parse().ok())
            .expect("a time");
        let run = rlock("job")
            .on(&server)
            .sh("echo $RLOCK_FENCE")
            .code(0)
            .silent();
        let fence: u64 = run.stdout[0].parse().expect("a fence");
        assert!(fence >= now * 1_000_000, "{fence} at {now}");
        server.cli(&["FLUSHALL"]);
    }
}

/// A restart from a snapshot takes the counter back.
#[test]
fn a_server_that_came_back_with_an_older_counter_gives_a_higher_fence() {
    let server = Server::start();
    let next = || {
        let run = rlock("job")
            .on(&server)
            .sh("echo $RLOCK_FENCE")
            .code(0)
            .silent();
        run.stdout[0].parse::<u64>().expect("a fence")
    };
    let saved = next();
    let last = (0..20).map(|_| next()).max().expect("some");
    server.cli(&["SET", COUNTER, &saved.to_string()]);
    let fence = next();
    assert!(fence > last, "{fence} after {last}");
}
