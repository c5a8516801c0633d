//! A lock that is held on several nodes. A loss on a minority of them is healed without an effect
//! on the command, and a loss on a majority ends it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{
    Nodes, RLOCK, Running, STEADY, Server, eventually, far_at_first, lasts, renewed, rlock, runs,
    slow,
};

/// Holds `job` on all of `nodes` until its stdin is closed.
fn held(nodes: &Nodes, options: &[&str]) -> Running {
    let command = rlock("job")
        .on_all(nodes)
        .args(options)
        .stdin(Stdio::piped());
    let holder = command.hold("echo ready; read line; echo done");
    eventually("all have it", || !nodes.job().iter().any(String::is_empty));
    holder
}

/// Ends the holder, and checks that the command noticed nothing and that no key is left.
fn undisturbed(holder: Running, nodes: &Nodes) {
    holder.finish().code(0).silent().printed(&["ready", "done"]);
    nodes.are_clean();
}

/// rslock: an extend that fails on some nodes deletes the lock on all of them.
#[test]
fn a_minority_that_fails_to_renew_changes_nothing() {
    let mut nodes = Nodes::start(5);
    let holder = held(&nodes, &STEADY);
    let value = nodes[0].cli(&["GET", "job"]);
    nodes[3].freeze();
    nodes[4].crash();
    renewed(&nodes[..3]);
    renewed(&nodes[..3]);
    for server in &nodes[..3] {
        assert_eq!(server.cli(&["GET", "job"]), value);
    }
    holder.finish().code(0).silent().printed(&["ready", "done"]);
    nodes[3].thaw();
    nodes[4].come_back();
    nodes.become_clean();
}

/// Rounds of the next two tests, enough to meet a winner with a bare majority, as in one start of
/// ten. `TEST_ROUNDS` sets another number.
const ROUNDS: u32 = 10;

/// Four rlocks that start at once spread their votes over the nodes: the winner often begins with
/// two of three.
fn a_winner_of_four_is_on_all_nodes_within_a_renewal(options: &[&str]) {
    let nodes = Nodes::start(3);
    let dir = tempfile::tempdir().expect("a directory");
    let lease = Duration::from_secs(9);
    // A renewal is due after a third of the lease; the second one would be too late.
    let limit = lease / 3 + Duration::from_millis(2900);
    let rounds =
        std::env::var("TEST_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let mut bare = Vec::new();
    for round in 0..rounds {
        let won = dir.path().join(round.to_string());
        let script = format!("echo $RLOCK_TOKEN >>{}; read line; true", won.display());
        let start = |_| {
            let run = rlock("job")
                .on_all(&nodes)
                .args(["--ttl", "9s", "--node-timeout", "1500ms"])
                .args(options);
            run.stdin(Stdio::piped())
                .args(["--", "sh", "-c", &script])
                .spawn()
        };
        let mut all: Vec<Running> = (0..4).map(start).collect();
        let token = || std::fs::read_to_string(&won).unwrap_or_default();
        eventually("a command runs", || token().ends_with('\n'));
        let (begin, token) = (Instant::now(), token());
        let is_on_all = || {
            nodes
                .job()
                .iter()
                .all(|value| value.starts_with(token.trim_end()))
        };
        while !is_on_all() {
            if begin.elapsed() > limit {
                bare.push(nodes.job());
                break;
            }
        }
        // The other clients come next, or have given up.
        for running in &mut all {
            drop(running.stdin.take());
        }
        for running in all {
            let finished = running.finish();
            assert!(
                finished.exited_with(0) || finished.exited_with(75),
                "{}",
                finished.stderr
            );
        }
        nodes.become_clean();
    }
    assert!(
        bare.is_empty(),
        "{} of {rounds} winners had a bare majority: {bare:#?}",
        bare.len()
    );
}

#[test]
fn the_winner_of_four_that_do_not_wait_is_soon_on_all_nodes() {
    a_winner_of_four_is_on_all_nodes_within_a_renewal(&["-n"]);
}

#[test]
fn the_winner_of_four_that_wait_is_soon_on_all_nodes() {
    a_winner_of_four_is_on_all_nodes_within_a_renewal(&[]);
}

/// Each exchange without an answer takes a connection of its own, and a stopped server accepts all
/// of them.
#[test]
fn a_node_that_hangs_for_long_does_not_use_up_descriptors() {
    let nodes = Nodes::start(3);
    // The short lease makes exchanges with that node frequent.
    let options = "-v --ttl 3s --node-timeout 500ms --kill-after 0";
    let mut holder = held(&nodes, &options.split(' ').collect::<Vec<_>>());
    let pid = holder.pid();
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("a directory")
            .count()
    };
    let before = descriptors();
    nodes[2].freeze();
    for _ in 0..8 {
        holder.wait_until_told("no answer within");
    }
    let more = descriptors().saturating_sub(before);
    nodes[2].thaw();
    assert!(more <= 6, "{more} more than {before}");
    holder.finish().code(0).printed(&["ready", "done"]);
    nodes.become_clean();
}

/// The same for a majority that fails once and is back before the time is up.
#[test]
fn a_majority_that_fails_to_renew_for_a_moment_changes_nothing() {
    let nodes = Nodes::start(3);
    let mut holder = held(&nodes, &["--ttl", "3s", "-v"]);
    let value = nodes[0].cli(&["GET", "job"]);
    nodes[1..].iter().for_each(Server::freeze);
    holder.wait_until_told("no answer within 150ms; trying again");
    assert_eq!(nodes[0].cli(&["GET", "job"]), value);
    nodes[1..].iter().for_each(Server::thaw);
    nodes[1].wait_until_asked(2);
    assert_eq!(nodes.job(), [value.as_str(); 3]);
    holder.finish().code(0).printed(&["ready", "done"]);
    nodes.are_clean();
}

#[test]
fn scripts_that_were_flushed_are_not_missed() {
    let nodes = Nodes::start(3);
    let holder = held(&nodes, &STEADY);
    nodes.cli(&["SCRIPT", "FLUSH"]);
    renewed(nodes.iter());
    undisturbed(holder, &nodes);
}

#[test]
fn a_node_that_lost_the_key_has_it_back_at_the_next_renewal() {
    let nodes = Nodes::start(3);
    let holder = held(&nodes, &STEADY);
    let own = nodes[0].token();
    for command in [["FLUSHALL", "SYNC"], ["DEL", "job"]] {
        nodes[2].cli(&command);
        eventually("it is back", || nodes[2].token() == own);
    }
    undisturbed(holder, &nodes);
}

#[test]
fn a_node_that_crashed_and_came_back_empty_has_the_key_again_at_once() {
    let mut nodes = Nodes::start(3);
    let holder = held(&nodes, &["--ttl", "60s"]);
    let own = nodes[0].token();
    nodes[2].crash();
    nodes[2].come_back();
    // Long before the next renewal, which is due after twenty seconds.
    let begin = Instant::now();
    eventually("it is back", || nodes[2].token() == own);
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    undisturbed(holder, &nodes);
}

#[test]
fn a_node_that_was_away_at_first_joins() {
    let mut nodes = Nodes::start(3);
    nodes[2].crash();
    let holder = rlock("job")
        .on_all(&nodes)
        .args(STEADY)
        .args(["-v"])
        .stdin(Stdio::piped());
    let mut holder = holder.hold("echo ready; read line; echo done");
    nodes[2].come_back();
    eventually("it has it", || !nodes[2].cli(&["GET", "job"]).is_empty());
    // The node counts: without it there would be no majority now.
    nodes[0].crash();
    holder.wait_until_told(&format!("{}: ", nodes[0].url()));
    holder.wait_until_told("renewed for");
    holder.wait_until_told("renewed for");
    holder.finish().code(0).printed(&["ready", "done"]);
    assert_eq!(
        (
            nodes[1].cli(&["EXISTS", "job"]),
            nodes[2].cli(&["EXISTS", "job"])
        ),
        ("0".into(), "0".into())
    );
}

/// A request that a release on a newer connection overtook would set the key for good.
#[test]
fn every_connection_on_which_a_node_was_asked_gets_the_release() {
    let nodes = Nodes::tcp(3);
    let late = far_at_first(&nodes[2], Duration::from_millis(700));
    let urls = [nodes[0].url(), nodes[1].url(), late].join(",");
    let schedule = [
        "--restart-guard",
        "off",
        "--ttl",
        "60s",
        "--node-timeout",
        "200ms",
    ];
    let holder = rlock("job")
        .node(&urls)
        .args(schedule)
        .stdin(Stdio::piped());
    let holder = holder.hold("echo ready; read line; echo done");
    eventually("it has the key by the second connection", || {
        !nodes[2].cli(&["GET", "job"]).is_empty()
    });
    holder.finish().code(0).silent();
    // The requests on the second connection and on the first: each time the key and the release.
    eventually("all has arrived", || nodes[2].asked() >= 4);
    nodes.become_clean();
}

#[test]
fn a_node_without_memory_for_more_still_renews() {
    let nodes = Nodes::start(3);
    let holder = held(&nodes, &STEADY);
    nodes[1].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    nodes[2].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    renewed(nodes.iter());
    renewed(nodes.iter());
    undisturbed(holder, &nodes);
}

/// redsync's `SetNXOnExtend`: a late extend takes the lock again that another client has had
/// meanwhile.
#[test]
fn an_expired_lease_is_not_revived_after_another_had_it() {
    let nodes = Nodes::start(3);
    // With `warn` the command and the renewals go on after the loss.
    let mut first = held(&nodes, &["--ttl", "900ms", "--on-lost", "warn"]);
    first.signal(Signal::SIGSTOP);
    nodes.become_clean();
    rlock("job")
        .on_all(&nodes)
        .command(["true"])
        .code(0)
        .silent();
    let asked = nodes[0].asked();
    first.signal(Signal::SIGCONT);
    first.wait_until_told("lost the lock");
    eventually("it asked", || nodes[0].asked() > asked + 1);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(900) {
        nodes.are_clean();
    }
    first.finish().code(79).printed(&["ready", "done"]);
    nodes.are_clean();
}

const COUNTER: &str = "rlock:fence:{job}:job";

/// Holds `job` on the first two of three nodes, while the third one is away.
fn held_at_two(nodes: &mut Nodes, options: &[&str]) -> Running {
    nodes[2].crash();
    let command = rlock("job")
        .on_all(nodes)
        .args(options)
        .stdin(Stdio::piped());
    command.hold("echo ready; read line; echo done")
}

#[test]
fn a_node_whose_counter_failed_attempts_have_raised_is_mended_and_counts() {
    let mut nodes = Nodes::start(3);
    let holder = held_at_two(&mut nodes, &["--ttl", "9s"]);
    // The holder notices nothing while other clients fail there.
    holder.signal(Signal::SIGSTOP);
    nodes[2].come_back();
    for _ in 0..3 {
        rlock("job")
            .on_all(&nodes)
            .args(["-n"])
            .command(["true"])
            .code(75);
    }
    let [ours, raised] = [0, 2].map(|node| {
        nodes[node]
            .cli(&["GET", COUNTER])
            .parse::<u64>()
            .expect("a counter")
    });
    assert!(raised > ours, "{raised} is to be above {ours}");
    holder.signal(Signal::SIGCONT);
    eventually("it has the key", || {
        !nodes[2].cli(&["GET", "job"]).is_empty()
    });
    assert_eq!(nodes[2].cli(&["GET", COUNTER]), raised.to_string());
    // It counts once it has answered a renewal.
    nodes[2].wait_until_asked(2);
    // One more node is away, for longer than a lease of the other two.
    nodes[0].freeze();
    nodes[1].wait_until_asked(4);
    holder.finish().code(0).silent().printed(&["ready", "done"]);
    nodes[0].thaw();
    nodes.become_clean();
}

/// Without proof the healed node would replace the vote of the node that let another holder in.
#[test]
fn a_complete_grant_in_between_costs_the_lock_though_the_third_node_is_mended() {
    let mut nodes = Nodes::start(3);
    let mut holder = held_at_two(&mut nodes, &["--ttl", "60s", "-v"]);
    holder.signal(Signal::SIGSTOP);
    nodes[2].come_back();
    nodes[0].cli(&["DEL", "job"]);
    rlock("job")
        .on_all(&nodes)
        .args(["-n"])
        .command(["true"])
        .code(0);
    let begin = Instant::now();
    holder.signal(Signal::SIGCONT);
    holder.wait_until_told("lost the lock");
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "before the next renewal, which is due after twenty seconds"
    );
    holder.finish().code(79).printed(&["ready"]);
}

/// A healed node has more details of the holder than the others.
#[test]
fn a_healed_node_and_another_one_name_the_same_holder() {
    let mut nodes = Nodes::start(3);
    let holder = held_at_two(&mut nodes, &["--ttl", "9s"]);
    nodes[2].come_back();
    eventually("it is healed", || nodes[2].token() == nodes[0].token());
    nodes[1].freeze();
    let busy = rlock("job")
        .on_all(&nodes)
        .args(["-n"])
        .command(["echo", "ran"])
        .code(75)
        .printed(&[]);
    busy.said(&["busy: held by tester@"]);
    nodes[1].thaw();
    undisturbed(holder, &nodes);
}

#[test]
fn a_holder_that_checks_its_fence_is_told_its_own_after_a_mending() {
    let mut nodes = Nodes::start(3);
    nodes[2].crash();
    let script = format!("echo ready; read line; {RLOCK} check && echo mine");
    let holder = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "3s"])
        .hold(&script);
    nodes[2].come_back();
    // The holder knows it too, from its next renewal on.
    let all_have_it = || {
        eventually("all have it", || !nodes.job().iter().any(String::is_empty));
        nodes[0].wait_until_asked(1);
    };
    for server in [2, 1] {
        all_have_it();
        nodes[server].cli(&["INCRBY", COUNTER, "1000"]);
        nodes[server].cli(&["DEL", "job"]);
    }
    all_have_it();
    holder.finish().code(0).printed(&["ready", "mine"]);
}

/// Runs `command` on all of `nodes` before the holder can look at any of them again.
fn at_once(holder: &Running, nodes: &[Server], command: &[&str]) {
    holder.signal(Signal::SIGSTOP);
    for server in nodes {
        server.cli(command);
    }
    holder.signal(Signal::SIGCONT);
}

/// A script that prints that it got TERM, and runs on whatever the signal.
const STUBBORN: &str = "trap 'echo terminated' TERM; echo ready; while :; do sleep 0.1; done";

#[test]
fn a_majority_in_other_hands_leaves_no_grace_and_their_keys_alone() {
    let nodes = Nodes::start(3);
    let holder = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "12s", "--node-timeout", "1s"])
        .hold(STUBBORN);
    eventually("all have it", || !nodes.job().iter().any(String::is_empty));
    let begin = Instant::now();
    at_once(
        &holder,
        &nodes[1..],
        &["SET", "job", "theirs", "PX", "60000"],
    );
    let names: Vec<String> = nodes[1..].iter().map(Server::url).collect();
    let finished = holder.finish().code(79).printed(&["ready"]);
    finished.said(&[
        "lost the lock",
        &names[0],
        &names[1],
        "another client has the key",
        "killed",
    ]);
    // Without a renewal that succeeds, its first signal would come after nine seconds.
    assert!(
        begin.elapsed() < Duration::from_secs(9),
        "at the next renewal, after four seconds: {:?}",
        begin.elapsed()
    );
    assert_eq!(nodes.job(), ["", "theirs", "theirs"]);
}

#[test]
fn a_majority_without_the_key_is_shielded_until_the_command_has_ended() {
    let nodes = Nodes::tcp(3);
    // Both nodes answer before one of them is healed, which would be in time to keep the lock.
    let [second, third] = [&nodes[1], &nodes[2]].map(|node| slow(node, Duration::from_millis(500)));
    let urls = [nodes[0].url(), second.clone(), third.clone()].join(",");
    let schedule = [
        "--restart-guard",
        "off",
        "--ttl",
        "12s",
        "--node-timeout",
        "2s",
        "--kill-after",
        "3s",
    ];
    let has_key =
        |server: &Server| format!("redis-cli -p {} exists job | grep -q 1", server.port());
    let script = format!(
        "trap 'until {} && {}; do :; done; echo shielded; exit 7' TERM; echo ready; while :; do sleep 0.1; done",
        has_key(&nodes[1]),
        has_key(&nodes[2])
    );
    let holder = rlock("job").node(&urls).args(schedule).hold(&script);
    eventually("all have it", || !nodes.job().iter().any(String::is_empty));
    at_once(&holder, &nodes[1..], &["DEL", "job"]);
    let finished = holder.finish().code(79).printed(&["ready", "shielded"]);
    finished.mentions(&[
        "lost the lock",
        &second,
        &third,
        "the key is gone",
        "being stopped",
    ]);
    nodes.become_clean();
}

#[test]
fn a_majority_that_hangs_costs_the_command_its_life_within_the_lease() {
    let nodes = Nodes::start(3);
    let holder = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "3s", "--kill-after", "200ms"])
        .hold(&format!("echo self $$; {STUBBORN}"));
    eventually("all have it", || !nodes.job().iter().any(String::is_empty));
    nodes[1..].iter().for_each(Server::freeze);
    let command = holder.seen_pids(&["self"])[0];
    let ran = lasts(|| runs(command));
    assert!(ran < Duration::from_secs(3), "{ran:?}");
    let finished = holder.finish().code(79);
    finished.mentions(&["could not be renewed in time", "no answer within 150ms"]);
    assert_eq!(nodes[0].cli(&["EXISTS", "job"]), "0");
    nodes[1..].iter().for_each(Server::thaw);
    nodes.become_clean();
}

/// A holder asks a node that hangs for the key again and again, each time on another connection
/// while more are allowed. Whatever the node executes when it wakes, the release behind it undoes.
#[test]
fn a_node_that_hung_through_many_mendings_is_clean_when_it_wakes() {
    let nodes = Nodes::start(3);
    nodes[2].freeze();
    let options = ["-v", "--ttl", "60s", "--node-timeout", "50ms"];
    let mut holder = rlock("job")
        .on_all(&nodes)
        .args(options)
        .hold("echo ready; read line; true");
    for _ in 0..5 {
        holder.wait_until_told("no answer within");
    }
    holder.finish().code(0);
    nodes[2].thaw();
    // This is before the keys would expire.
    nodes.become_clean();
}
