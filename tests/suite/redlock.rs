//! A lock on a majority of several nodes: acquire and release, whatever the other nodes do. Where
//! another library is known to get a case wrong, its test names the library.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use testkit::held_while;

use crate::support::{
    Delay, LOADS_SLOWLY, Nodes, Proxy, RLOCK, Running, STEADY, Server, eventually, far, renewed,
    rlock, slow, state,
};

/// Returns the addresses for two groups of clients: the half of the nodes that is near to one group
/// is far from the other.
fn both_views(nodes: &Nodes) -> [String; 2] {
    let (first, second) = nodes.split_at(nodes.len() / 2);
    [(first, second), (second, first)].map(|(near, away)| {
        let away = away.iter().map(|node| far(node, Duration::from_millis(10)));
        near.iter()
            .map(Server::tcp_url)
            .chain(away)
            .collect::<Vec<_>>()
            .join(",")
    })
}

/// node-redlock: if two clients get half of the votes each, neither gives way.
#[test]
fn clients_that_tie_on_an_even_number_of_nodes_all_get_their_turn() {
    for count in [2, 4] {
        let nodes = Nodes::tcp(count);
        let views = both_views(&nodes);
        let dir = tempfile::tempdir().expect("a directory");
        let witness = dir.path().join("witness");
        let words = [
            "flock",
            "-n",
            witness.to_str().expect("a name"),
            "sh",
            "-c",
            "echo begun; sleep 0.02",
        ];
        let start = |view: &String| {
            rlock("job")
                .node(view)
                .args(["--restart-guard", "off", "--"])
                .args(words)
                .spawn()
        };
        let all: Vec<Running> = views.iter().cycle().take(6).map(start).collect();
        for running in all {
            running.finish().code(0).silent().printed(&["begun"]);
        }
        nodes.become_clean();
    }
}

#[test]
fn one_of_several_clients_that_do_not_wait_wins() {
    for count in [2, 3, 4] {
        let nodes = Nodes::tcp(count);
        let views = both_views(&nodes);
        let words = ["--restart-guard", "off", "-n", "-c", "echo won; read line"];
        // After a tie clients retry for one node timeout, which may be too short for all of them on
        // a busy machine.
        let time = ["--ttl", "2m", "--node-timeout", "10s"];
        let start = |view: &String| {
            rlock("job")
                .node(view)
                .args(time)
                .args(words)
                .stdin(Stdio::piped())
                .spawn()
        };
        let mut all: Vec<Running> = views.iter().cycle().take(8).map(start).collect();
        // A winner runs until `finish` closes its stdin.
        eventually("all others have ended", || {
            all.iter_mut()
                .map(Running::is_running)
                .filter(|is| *is)
                .count()
                <= 1
        });
        let won = all
            .into_iter()
            .map(Running::finish)
            .filter(|end| end.stdout == ["won"])
            .count();
        assert_eq!(won, 1, "of {count} nodes");
        nodes.become_clean();
    }
}

/// Half of an even number of nodes is no majority: a client with half of the votes is no holder,
/// however late the others answer.
#[test]
fn half_of_the_nodes_is_not_taken_for_a_majority_before_the_rest_has_answered() {
    let nodes = Nodes::tcp(4);
    nodes[0].cli(&["SET", "job", "theirs", "PX", "300"]);
    nodes[1].cli(&["SET", "job", "theirs", "PX", "300"]);
    let [third, fourth] = [&nodes[2], &nodes[3]].map(|node| slow(node, Duration::from_millis(100)));
    let urls = [nodes[0].url(), nodes[1].url(), third, fourth].join(",");
    let time = [
        "--restart-guard",
        "off",
        "--ttl",
        "2m",
        "--node-timeout",
        "10s",
        "-n",
    ];
    rlock("job")
        .node(&urls)
        .args(time)
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
}

#[test]
fn nodes_that_were_not_waited_for_are_not_called_unreachable() {
    let nodes = Nodes::tcp(4);
    nodes[0].cli(&["SET", "job", "theirs"]);
    nodes[1].cli(&["SET", "job", "another's"]);
    let [third, fourth] = [&nodes[2], &nodes[3]].map(|node| slow(node, Duration::from_millis(100)));
    let urls = [nodes[0].url(), nodes[1].url(), third, fourth].join(",");
    let run = rlock("job")
        .node(&urls)
        .args(["--restart-guard", "off", "-n"])
        .command(["echo", "ran"])
        .code(75);
    run.printed(&[])
        .said(&["busy: no majority is free: held by a client that is not rlock"]);
}

/// Returns masks of five nodes, each with a key that a foreign client has set on the nodes of the
/// mask.
#[test]
fn whatever_nodes_others_hold_the_majority_decides() {
    let nodes = Nodes::start(5);
    let keys: Vec<String> = (0..32).map(|mask| format!("job-{mask}")).collect();
    let is_held = |mask: usize, node: usize| mask & (1 << node) != 0;
    for (node, server) in nodes.iter().enumerate() {
        let mut command = vec!["MSET"];
        (0..32)
            .filter(|&mask| is_held(mask, node))
            .for_each(|mask| command.extend([keys[mask].as_str(), "theirs"]));
        assert_eq!(server.cli(&command), "OK");
    }
    for (mask, key) in keys.iter().enumerate() {
        let run = rlock(key)
            .on_all(&nodes)
            .args(["-n"])
            .command(["echo", "ran"]);
        if mask.count_ones() < 3 {
            run.code(0).silent().printed(&["ran"]);
        } else {
            run.code(75).printed(&[]).said(&[
                key,
                "busy: held by a client that is not rlock: the value theirs",
            ]);
        }
    }
    for (node, server) in nodes.iter().enumerate() {
        let found = server.cli(
            &[
                &["MGET"],
                keys.iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .as_slice(),
            ]
            .concat(),
        );
        let found: Vec<&str> = found.split('\n').collect();
        let left: Vec<&str> = (0..32)
            .map(|mask| if is_held(mask, node) { "theirs" } else { "" })
            .collect();
        assert_eq!(found, left, "on node {node}");
    }
}

/// rslock, node-redlock, Redisson: late grants are counted, or their keys stay.
#[test]
fn grants_that_come_too_late_are_no_grants_and_leave_nothing() {
    let nodes = Nodes::tcp(3);
    let late = Duration::from_millis(600);
    let urls = [nodes[0].url(), slow(&nodes[1], late), slow(&nodes[2], late)].join(",");
    for wait in ["0", "1"] {
        let run = rlock("job").node(&urls).args([
            "--restart-guard",
            "off",
            "--ttl",
            "60s",
            "--node-timeout",
            "200ms",
        ]);
        let run = run
            .args(["--wait", wait])
            .command(["echo", "ran"])
            .code(69)
            .printed(&[]);
        run.said(&["no majority of the 3 nodes", "no answer within 200ms"])
            .within(Duration::from_secs(6));
        nodes.become_clean();
    }
}

/// The same for a client that was itself stopped until the lease was over.
#[test]
fn a_lease_that_ended_while_rlock_stood_still_is_not_taken() {
    let nodes = Nodes::tcp(3);
    // The replies to the greeting pass, those to the request are held back.
    let are_held = Arc::new(AtomicBool::new(true));
    let proxies: Vec<Proxy> = nodes
        .iter()
        .map(|node| {
            let are_held = Arc::clone(&are_held);
            let delays = move |_| {
                let are_held = Arc::clone(&are_held);
                let [_, held] = held_while(move || are_held.load(Ordering::Relaxed));
                let is_first = AtomicBool::new(true);
                let replies = move || {
                    if is_first.swap(false, Ordering::Relaxed) {
                        Duration::ZERO
                    } else {
                        held()
                    }
                };
                [Box::new(|| Duration::ZERO) as Delay, Box::new(replies)]
            };
            Proxy::open(Ipv4Addr::LOCALHOST, node.port(), delays).expect("a proxy")
        })
        .collect();
    let urls: Vec<String> = proxies
        .iter()
        .map(|proxy| format!("redis://127.0.0.1:{}", proxy.port()))
        .collect();
    let run = rlock("job").node(&urls.join(",")).args([
        "--restart-guard",
        "off",
        "-n",
        "--ttl",
        "5500ms",
    ]);
    let run = run
        .args([
            "--node-timeout",
            "1500ms",
            "--kill-after",
            "0",
            "--",
            "echo",
            "ran",
        ])
        .spawn();
    eventually("all have granted", || {
        !nodes.job().iter().any(String::is_empty)
    });
    run.signal(Signal::SIGSTOP);
    eventually("it is stopped", || state(run.pid()) == Some('T'));
    are_held.store(false, Ordering::Relaxed);
    nodes.become_clean();
    run.signal(Signal::SIGCONT);
    run.finish().code(69).printed(&[]);
    nodes.are_clean();
}

#[test]
fn every_attempt_has_a_token_of_its_own() {
    let nodes = Nodes::start(3);
    for server in &nodes[..2] {
        server.cli(&["SET", "job", "theirs"]);
    }
    let seen = nodes[2].monitored(|| {
        rlock("job")
            .on_all(&nodes)
            .args(["--wait", "2", "-q"])
            .command(["true"])
            .code(75);
    });
    // What comes by EVAL is the same once more, for a server without the script, or what a release
    // carries.
    let seen: Vec<&String> = seen
        .iter()
        .filter(|line| line.contains("\"EVALSHA\""))
        .collect();
    // The value has details behind its token.
    let tokens: Vec<&str> = seen
        .iter()
        .filter_map(|line| Some(&line[line.find(" {\\\"mode")? - 36..][..36]))
        .collect();
    let distinct: HashSet<&str> = tokens.iter().copied().collect();
    assert!(
        tokens.len() > 3 && distinct.len() == tokens.len(),
        "{tokens:?}"
    );
    // Each attempt sends two requests, since its keys are released before the next one. The last
    // release leaves the queue.
    for token in &distinct {
        let count = seen.iter().filter(|line| line.contains(token)).count();
        let leaves = usize::from(count == 3 && tokens.last() == Some(token));
        assert_eq!(count - leaves, 2, "{token} in {seen:#?}");
    }
    assert_eq!(nodes.job(), ["theirs", "theirs", ""]);
}

#[test]
fn a_majority_that_hangs_is_69_in_time_and_clean_when_it_wakes() {
    let nodes = Nodes::start(3);
    // From then on they have the script.
    rlock("job").on_all(&nodes).command(["true"]).code(0);
    let before = [1, 2].map(|node: usize| nodes[node].asked());
    nodes[1..].iter().for_each(Server::freeze);
    let run = rlock("job")
        .on_all(&nodes)
        .args(["-n", "--ttl", "60s"])
        .command(["echo", "ran"])
        .code(69)
        .printed(&[]);
    run.said(&["no majority of the 3 nodes", "no answer within 1s"])
        .within(Duration::from_secs(6));
    assert_eq!(nodes[0].cli(&["EXISTS", "job"]), "0");
    let waited = rlock("job")
        .on_all(&nodes)
        .args(["--wait", "4", "--ttl", "60s", "--node-timeout", "3s"])
        .command(["true"])
        .code(69);
    // The second attempt would be over after six seconds.
    assert!(
        waited.took >= Duration::from_millis(3990) && waited.took < Duration::from_secs(6),
        "{:?}",
        waited.took
    );
    nodes[1..].iter().for_each(Server::thaw);
    // The release that was written behind the SET undoes it.
    for (server, before) in nodes[1..].iter().zip(before) {
        eventually("both have run", || server.asked() >= before + 2);
    }
    nodes.become_clean();
}

#[test]
fn one_that_hangs_is_one_vote_missing_and_clean_when_it_wakes() {
    let nodes = Nodes::start(3);
    rlock("job").on_all(&nodes).command(["true"]).code(0);
    let before = nodes[2].asked();
    nodes[2].freeze();
    rlock("job")
        .on_all(&nodes)
        .args(["-n", "--ttl", "60s"])
        .command(["echo", "ran"])
        .code(0)
        .silent();
    assert_eq!(
        (
            nodes[0].cli(&["EXISTS", "job"]),
            nodes[1].cli(&["EXISTS", "job"])
        ),
        ("0".into(), "0".into())
    );
    nodes[2].thaw();
    eventually("both have run", || nodes[2].asked() == before + 2);
    nodes.are_clean();
}

#[test]
fn half_of_an_even_number_is_no_majority() {
    let mut nodes = Nodes::start(4);
    nodes[3].crash();
    rlock("job")
        .on_all(&nodes)
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    nodes[2].crash();
    let run = rlock("job")
        .on_all(&nodes)
        .args(["-n"])
        .command(["echo", "ran"])
        .code(69)
        .printed(&[]);
    run.said(&["no majority of the 4 nodes", "cannot connect"]);
    for server in &nodes[..2] {
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn a_node_that_cannot_grant_for_the_moment_is_one_vote_missing() {
    let mut nodes = Nodes::tcp(3);
    let mut holder = rlock("job")
        .on_all(&nodes)
        .args(STEADY)
        .stdin(Stdio::piped())
        .hold("echo ready; read line; true");
    let runs = |nodes: &Nodes, what: &str| {
        let run = rlock("other")
            .on_all(nodes)
            .args(["-n"])
            .command(["echo", "ran"])
            .code(0)
            .silent();
        assert_eq!(run.stdout, ["ran"], "{what}");
    };
    nodes[2].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    runs(&nodes, "OOM");
    nodes[2].cli(&["CONFIG", "SET", "maxmemory", "0"]);
    nodes[2].cli(&["REPLICAOF", "127.0.0.1", "1"]);
    runs(&nodes, "READONLY");
    nodes[2].cli(&["REPLICAOF", "NO", "ONE"]);
    if nodes[2].knows(LOADS_SLOWLY) {
        nodes[2].cli(&["CONFIG", "SET", "rdbcompression", "no"]);
        nodes[2].cli(&[
            "EVAL",
            "for i = 1, 1500 do redis.call('SET', 'fill' .. i, string.rep('x', 2000)) end",
            "0",
        ]);
        assert_eq!(nodes[2].cli(&["SAVE"]), "OK");
        nodes[2].crash();
        nodes[2].come_back_loading();
        runs(&nodes, "LOADING");
        assert!(nodes[2].cli(&["PING"]).starts_with("LOADING"), "still");
    }
    // Two more renewals for the holder meanwhile.
    renewed(&nodes[..2]);
    renewed(&nodes[..2]);
    drop(holder.stdin.take());
    holder.finish().code(0).silent();
}

#[test]
fn a_hung_node_costs_the_end_less_than_a_tenth_of_a_second() {
    let nodes = Nodes::start(5);
    // The best of many, so that the load of this machine is not what is measured.
    let took = || {
        let holder = rlock("job")
            .on_all(&nodes)
            .args(["--ttl", "60s"])
            .stdin(Stdio::piped())
            .hold("echo ready; read line; true");
        eventually("all five have it", || {
            !nodes.job().iter().any(String::is_empty)
        });
        nodes[4].freeze();
        let begin = Instant::now();
        holder.finish().code(0).silent();
        let took = begin.elapsed();
        for server in &nodes[..4] {
            assert_eq!(server.cli(&["EXISTS", "job"]), "0");
        }
        nodes[4].thaw();
        nodes.become_clean();
        took
    };
    assert!((0..15).any(|_| took() < Duration::from_millis(100)));
}

/// Returns the addresses of three nodes, of which the first `count` refuse the password. The last
/// answers so late that every refusal arrives before there is a majority.
fn refusing(nodes: &Nodes, count: usize) -> String {
    let url = |(index, node): (usize, &Server)| {
        let refuses = index < count;
        node.cli(&[
            "CONFIG",
            "SET",
            "requirepass",
            if refuses { "hunter2" } else { "" },
        ]);
        if refuses {
            node.tcp_url().replace("://", "://:hunter3@")
        } else {
            slow(node, Duration::from_millis(150))
        }
    };
    nodes
        .iter()
        .enumerate()
        .map(url)
        .collect::<Vec<_>>()
        .join(",")
}

#[test]
fn a_minority_that_refuses_us_is_a_missing_vote_and_one_warning() {
    let nodes = Nodes::tcp(3);
    let urls = refusing(&nodes, 1);
    let run = || rlock("job").node(&urls).args(["--restart-guard", "off"]);
    let told = [
        "job: ",
        &nodes[0].tcp_url(),
        "the user or the password is wrong",
        "its vote is missing",
        "password",
    ];
    run()
        .command(["echo", "ran"])
        .code(0)
        .printed(&["ran"])
        .said(&told)
        .never_said("hunter");
    run()
        .args(["-q"])
        .command(["echo", "ran"])
        .code(0)
        .printed(&["ran"])
        .silent();
    eventually("all is given back", || {
        nodes[1..]
            .iter()
            .all(|node| node.cli(&["EXISTS", "job"]) == "0")
    });
    // A waiter is told once, however often it asks.
    nodes[1..]
        .iter()
        .for_each(|node| drop(node.cli(&["SET", "job", "theirs"])));
    let busy = run()
        .args(["--wait", "1"])
        .command(["echo", "ran"])
        .code(75)
        .printed(&[]);
    assert_eq!(
        busy.stderr.matches("its vote is missing").count(),
        1,
        "{}",
        busy.stderr
    );
}

#[test]
fn a_waiter_is_told_once_of_a_refusal_though_the_other_nodes_answer_far_apart() {
    let nodes = Nodes::tcp(3);
    nodes[0].cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    nodes[1..]
        .iter()
        .for_each(|node| drop(node.cli(&["SET", "job", "theirs"])));
    // That the lock is not ours is certain before the last one answers.
    let urls = [
        nodes[0].tcp_url(),
        nodes[1].url(),
        slow(&nodes[2], Duration::from_millis(150)),
    ]
    .join(",");
    let run = rlock("job")
        .node(&urls)
        .args(["--restart-guard", "off", "--wait", "2"]);
    let busy = run.command(["echo", "ran"]).code(75).printed(&[]);
    assert_eq!(
        busy.stderr.matches("its vote is missing").count(),
        1,
        "{}",
        busy.stderr
    );
}

/// That the lock is not ours is certain once one node is away and the next one is taken. Who has
/// the majority is not.
#[test]
fn a_holder_is_known_though_one_node_is_away_and_the_others_answer_far_apart() {
    let mut nodes = Nodes::tcp(3);
    let urls = [
        nodes[0].tcp_url(),
        nodes[1].url(),
        slow(&nodes[2], Duration::from_millis(100)),
    ]
    .join(",");
    nodes[0].crash();
    let run = || {
        rlock("job")
            .node(&urls)
            .args(["--restart-guard", "off", "-n"])
    };
    let inner = format!("{RLOCK} run -k job -n -- echo nested");
    run()
        .args(["-c", &inner])
        .finish()
        .code(0)
        .printed(&["nested"]);
    nodes[1..]
        .iter()
        .for_each(|node| drop(node.cli(&["SET", "job", "theirs"])));
    run()
        .command(["echo", "ran"])
        .code(75)
        .printed(&[])
        .said(&["busy: held by"])
        .never_said("no majority");
}

#[test]
fn a_node_that_refuses_us_and_one_that_is_away_are_no_majority_and_both_are_named() {
    let mut nodes = Nodes::tcp(3);
    let urls = refusing(&nodes, 1);
    nodes[1].crash();
    let run = rlock("job")
        .node(&urls)
        .args(["--restart-guard", "off", "-n"])
        .command(["echo", "ran"])
        .code(69);
    run.printed(&[]).said(&[
        "no majority of the 3 nodes",
        "the password is wrong",
        &nodes[0].tcp_url(),
    ]);
}

#[test]
fn a_majority_that_refuses_us_is_77_before_anything_runs() {
    let nodes = Nodes::tcp(3);
    let urls = refusing(&nodes, 2);
    for wait in [&["-n"][..], &[]] {
        let run = rlock("job")
            .node(&urls)
            .args(["--restart-guard", "off"])
            .args(wait)
            .command(["echo", "ran"]);
        let run = run
            .code(77)
            .printed(&[])
            .said(&["job: no majority of the 3 nodes", "the password is wrong"]);
        run.mentions(&[&nodes[0].tcp_url(), &nodes[1].tcp_url()]);
    }
    eventually("what was granted is given back", || {
        nodes[2].cli(&["EXISTS", "job"]) == "0"
    });
}

/// A password can be changed node by node while a command runs.
#[test]
fn a_node_that_begins_to_refuse_us_while_the_lock_is_held_is_one_warning() {
    let nodes = Nodes::tcp(3);
    let urls = nodes
        .iter()
        .map(Server::tcp_url)
        .collect::<Vec<_>>()
        .join(",");
    let run = rlock("job").node(&urls).args(["--restart-guard", "off"]);
    let run = run.args(["--ttl", "3s", "--node-timeout", "500ms"]);
    let mut holder = run
        .stdin(Stdio::piped())
        .hold("echo ready; read line; echo done");
    eventually("all have it", || !nodes.job().iter().any(String::is_empty));
    nodes[1].cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let others = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    nodes[1].cli_as(&["hunter2"], &others);
    holder.wait_until_told("its vote is missing");
    // The holder renews on the others.
    nodes[0].wait_until_asked(3);
    drop(holder.stdin.take());
    let ended = holder.finish().code(0).printed(&["ready", "done"]);
    ended.said(&[
        "job: ",
        &nodes[1].tcp_url(),
        "NOAUTH",
        "give the password that the server knows",
    ]);
}

#[test]
fn the_command_inherits_all_nodes_without_their_passwords_and_an_rlock_in_it_needs_no_flags() {
    let nodes = Nodes::tcp(3);
    let with_password = |server: &Server| server.tcp_url().replace("://", "://:hunter2@");
    nodes.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let urls = nodes
        .iter()
        .map(with_password)
        .collect::<Vec<_>>()
        .join(",");
    let plain = nodes
        .iter()
        .map(Server::tcp_url)
        .collect::<Vec<_>>()
        .join(",");
    let script = format!(
        "echo $RLOCK_NODE; env | grep -c hunter2; RLOCK_PASSWORD=hunter2 {RLOCK} run -k job -n -- sh -c 'echo inner $RLOCK_FENCE'; echo outer $RLOCK_FENCE"
    );
    let run = rlock("job")
        .node(&urls)
        .args(["--restart-guard", "off"])
        .sh(&script)
        .code(0)
        .silent();
    let [node, leaks, inner, outer] = run.stdout.as_slice() else {
        panic!("{:?}", run.stdout)
    };
    assert_eq!((node, leaks.as_str()), (&plain, "0"));
    assert_eq!(inner.strip_prefix("inner "), outer.strip_prefix("outer "));
}
