//! `break`: it takes a lock from its holder, and no command overlaps with the next.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::ZooKeeper;
use testkit::namespaces::unshare;
use testkit::zookeeper::has_zookeeper;

use crate::support::{
    Database, Etcd, MariaDb, Nodes, Postgres, RLOCK, Rlock, Running, Server, Session, alive,
    eventually, guard_of, rlock, rlock_words,
};

/// Returns `rlock break job`, to be completed.
fn breaking(node: &str) -> Rlock {
    rlock_words(["break", "job", "--yes"]).node(node)
}

fn acquired(node: &str) -> String {
    rlock_words(["acquire", "-k", "job", "--restart-guard", "off"])
        .node(node)
        .finish()
        .code(0)
        .stdout
        .remove(0)
}

fn three() -> (Vec<Server>, String) {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let nodes = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    (servers, nodes)
}

/// A script that ends on TERM, and prints that.
const OBEDIENT: &str =
    "trap 'echo terminated; exit 7' TERM; echo ready; while :; do sleep 0.1; done";

#[test]
fn the_holder_stops_its_command_and_releases_and_no_client_comes_between() {
    let server = Server::start();
    let job = rlock("job").on(&server).args(["--ttl", "18s"]).hold(
        "trap 'redis-cli -s ${RLOCK_NODE#redis+unix://} get job; exit 7' TERM; echo ready; while :; do sleep 0.1; done",
    );
    let fence: u64 = server
        .cli(&["GET", "rlock:fence:{job}:job"])
        .parse()
        .expect("a number");
    let waiter = rlock("job")
        .on(&server)
        .args(["--", "sh", "-c", "echo next $RLOCK_FENCE"])
        .spawn();
    let broken = breaking(&server.url())
        .finish()
        .code(0)
        .within(Duration::from_secs(10));
    broken.mentions(&[
        "job: held by tester@",
        "running sh",
        "broken: its holder released it",
    ]);
    let lost = job.finish().code(79).mentions(&[
        "job: lost the lock",
        "tester@",
        "broke the lock",
        "being stopped",
    ]);
    let tombstone = lost
        .stdout
        .iter()
        .find(|line| line.starts_with("broken "))
        .expect("a tombstone in its time");
    assert!(
        tombstone.contains("\"broken\":{\"name\":\"tester@"),
        "{tombstone}"
    );
    let next = waiter.finish().code(0).stdout.remove(0);
    assert!(
        next.split(' ')
            .nth(1)
            .and_then(|number| number.parse().ok())
            > Some(fence),
        "{next}"
    );
}

#[test]
fn a_live_holder_hears_of_it_at_once_whatever_its_ttl() {
    for (count, options) in [(1, &[][..]), (1, &["-s"]), (3, &[]), (3, &["--slots", "2"])] {
        let nodes = Nodes::start(count);
        let job = rlock("job")
            .on_all(&nodes)
            .args(options)
            .args(["--ttl", "10m"])
            .hold("echo ready; exec sleep 60");
        for node in nodes.iter() {
            eventually("it listens", || {
                !node
                    .cli(&["PUBSUB", "CHANNELS", "rlock:wake:{job}:*"])
                    .is_empty()
            });
        }
        breaking(&nodes.url())
            .finish()
            .code(0)
            .within(Duration::from_secs(20))
            .mentions(&["its holder released it"]);
        job.finish().code(79);
    }
}

#[test]
fn the_holder_of_a_lock_that_is_deleted_hears_of_it_at_once() {
    let nodes = Nodes::start(1);
    let job = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "10m"])
        .hold("echo ready; exec sleep 60");
    eventually("it listens", || {
        !nodes[0]
            .cli(&["PUBSUB", "CHANNELS", "rlock:wake:{job}:*"])
            .is_empty()
    });
    let begin = Instant::now();
    breaking(&nodes.url()).args(["--now"]).finish().code(0);
    job.finish().code(79);
    // The next renewal is due after 200 s.
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_command_that_ignores_term_is_killed_before_the_tombstone_goes() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "3s", "--kill-after", "300ms", "--", "sh", "-c"])
        .args(["trap '' TERM; echo self $$; while :; do sleep 0.1; done"])
        .spawn();
    let pid = job.wait_for_pid("self");
    breaking(&server.url()).finish().code(0);
    assert!(!alive(pid), "break was done before the command was dead");
    job.finish().code(79);
}

#[test]
fn several_nodes_are_entombed_and_freed() {
    let (servers, nodes) = three();
    let job = rlock("job")
        .node(&nodes)
        .args(["--ttl", "3s", "--restart-guard", "off"])
        .hold(OBEDIENT);
    servers[2].freeze();
    breaking(&nodes)
        .finish()
        .code(0)
        .mentions(&["its holder released it"]);
    servers[2].thaw();
    job.finish().code(79).mentions(&["broke the lock"]);
    eventually("all are free", || {
        servers
            .iter()
            .all(|server| server.cli(&["EXISTS", "job"]) == "0")
    });
}

#[test]
fn a_lock_without_a_live_run_is_deleted_at_once_and_the_next_fence_is_higher() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    let counter = |server: &Server| {
        server
            .cli(&["GET", "rlock:fence:{job}:job"])
            .parse::<u64>()
            .expect("a number")
    };
    let before = servers.iter().map(counter).max();
    breaking(&nodes)
        .finish()
        .code(0)
        .mentions(&["taken with acquire", "broken: the key was deleted"]);
    assert!(
        servers
            .iter()
            .all(|server| server.cli(&["EXISTS", "job"]) == "0" && Some(counter(server)) > before)
    );
    for verb in ["check", "renew", "release"] {
        rlock_words([verb, "-k", "job", "--token", &token])
            .node(&nodes)
            .finish()
            .code(1)
            .said(&["the lock is free"]);
    }
    breaking(&nodes)
        .finish()
        .code(1)
        .said(&["job: nothing to break: the lock is free"]);
    rlock_words(["break", "j*", "--yes"])
        .node(&nodes)
        .finish()
        .code(1)
        .said(&["nothing to break: no lock that matches is held"]);
}

#[test]
fn several_locks_are_broken_after_one_question_and_one_that_is_free_does_not_keep_the_others() {
    let server = Server::start();
    let names = ["deploy-a", "deploy-b", "other"];
    let [a, b, other] = names.map(|name| rlock(name).on(&server).hold(OBEDIENT));
    let breaking = |words: &[&str]| rlock_words(["break"]).on(&server).args(words);
    breaking(&[
        "deploy-*",
        "--yes",
        "--token",
        "2e21bcac-3b25-4678-9f07-0d7696bb22a5",
    ])
    .finish()
    .code(64)
    .said(&["--token and --slot are for one lock"]);
    breaking(&["deploy-*"])
        .finish()
        .code(64)
        .said(&["give --yes"]);

    let mut session = Session::of(
        RLOCK,
        &[RLOCK, "break", "--node", &server.url(), "deploy-*"],
    );
    session.sees("deploy-a: held by");
    session.sees("deploy-b: held by");
    session.sees("Break all of these? [y/N] ");
    session.press("y\n");
    for job in [a, b] {
        job.finish().code(79).mentions(&["broke the lock"]);
    }
    assert_eq!(server.cli(&["EXISTS", "other"]), "1");

    let told = breaking(&["free-a", "other", "free-b", "--yes"])
        .finish()
        .code(1);
    told.mentions(&[
        "free-a: nothing to break: the lock is free",
        "free-b: nothing to break: the lock is free",
        "its holder released it",
    ]);
    other.finish().code(79);
}

#[test]
fn names_that_inspect_prints_break_these_locks_and_no_others() {
    let server = Server::start();
    let meant = rlock("job-*").on(&server).hold(OBEDIENT);
    let mut others = ["job-1", "x\ny"].map(|name| rlock(name).on(&server).hold(OBEDIENT));
    let names = format!("{RLOCK} inspect -o name --node {}", server.url());
    let breaking = format!("{RLOCK} break --yes --node {} --key={{}}", server.url());
    let script = format!("{names} | grep -v 1 | xargs -r -d '\\n' -I{{}} {breaking}");
    let told = Command::new("sh").args(["-c", &script]).output();
    assert!(told.is_ok_and(|told| told.status.success()), "{script}");
    meant.finish().code(79);
    assert!(others.iter_mut().all(Running::is_running));
}

/// Returns `rlock run` on a host called away7.
fn away(key: &str) -> Rlock {
    let script = r#"hostname away7; exec "$0" run --key "$@""#;
    Rlock::of("unshare", ["-u", "sh", "-c", script, RLOCK, key])
}

/// Breaks what one host holds, and no other host's slot of the same lock, where there are slots.
fn the_locks_of_one_host_are_broken(node: &str, slots: Option<&[&str]>) {
    if unshare(&["-u"]).is_none() {
        return;
    }
    let hold = |run: Rlock, options: &[&str]| run.node(node).args(options).hold(OBEDIENT);
    let pool = |run: Rlock| slots.map(|slots| hold(run, slots));
    let kept = [Some(hold(rlock("kept"), &[])), pool(rlock("pool"))];
    let broken = [Some(hold(away("gone"), &[])), pool(away("pool"))];
    let breaking = |words: &[&str]| {
        let words = ["break", "--host", "away7"].iter().chain(words);
        rlock_words(words).node(node).finish()
    };
    breaking(&[]).code(64).said(&["@away7", "give --yes"]);
    breaking(&["--yes", "kept"])
        .code(1)
        .said(&["nothing to break: no lock that matches is held"]);
    breaking(&["--yes"]).code(0);
    for run in broken.into_iter().flatten() {
        run.finish().code(79).mentions(&["broke the lock"]);
    }
    assert!(kept.into_iter().flatten().all(|mut run| run.is_running()));
    breaking(&["--yes"]).code(1);
}

#[test]
fn the_locks_of_one_host_are_broken_on_redis() {
    let server = Server::start();
    // A success is no lock of a host.
    rlock("once")
        .on(&server)
        .args(["--once", "1h"])
        .sh("true")
        .code(0);
    the_locks_of_one_host_are_broken(&server.url(), Some(&["--slots", "2"]));
    let again = rlock("once").on(&server).args(["--once", "1h"]);
    again.sh("echo ran").code(0).printed(&[]);
}

#[test]
fn the_locks_of_one_host_are_broken_on_etcd() {
    if let Some(server) = Etcd::start(1) {
        the_locks_of_one_host_are_broken(&server.url(), None);
    }
}

#[test]
fn the_locks_of_one_host_are_broken_on_zookeeper() {
    if has_zookeeper() {
        the_locks_of_one_host_are_broken(&ZooKeeper::start(&[]).url(), Some(&["--slots", "2"]));
    }
}

#[test]
fn the_locks_of_one_host_are_broken_in_databases() {
    if let Some(server) = Postgres::start() {
        the_locks_of_one_host_are_broken(&server.url(), None);
    }
    if let Some(server) = MariaDb::start() {
        the_locks_of_one_host_are_broken(&server.url(), None);
    }
}

#[test]
fn a_lock_that_is_named_twice_is_broken_once() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold(OBEDIENT);
    let twice = rlock_words(["break", "--yes", "--now", "-k", "job", "job"]);
    let told = twice.on(&server).finish().code(0);
    assert_eq!(told.stderr.matches("the key was deleted").count(), 1);
    holder.finish().code(79);
}

#[test]
fn a_lock_of_another_number_of_nodes_is_78_and_is_broken_by_the_holders_list() {
    let (servers, nodes) = three();
    let mut job = rlock("job")
        .node(&nodes)
        .args(["--ttl", "3s", "--restart-guard", "off"])
        .hold(OBEDIENT);
    let one = servers[0].url();
    for words in [&[][..], &["--now"], &["--foreign"]] {
        let told = [
            "held by tester@",
            "with 3 nodes; we have 1:",
            "same list everywhere",
        ];
        breaking(&one).args(words).finish().code(78).said(&told);
    }
    assert!(servers[0].cli(&["GET", "job"]).contains("\"n\":3") && job.is_running());
    let shown = rlock_words(["inspect", "job"])
        .node(&one)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(shown.contains("with 3 nodes; we have 1:"), "{shown}");
    breaking(&nodes).finish().code(0);
    job.finish().code(79).mentions(&["broke the lock"]);
    acquired(&one);
    breaking(&nodes)
        .args(["--now"])
        .finish()
        .code(78)
        .said(&["with 1 node; we have 3:"]);
    breaking(&one).finish().code(0);
}

#[test]
fn now_deletes_and_the_holder_does_not_set_it_again() {
    let (servers, nodes) = three();
    let mut job = rlock("job")
        .node(&nodes)
        .args([
            "--ttl",
            "3s",
            "--restart-guard",
            "off",
            "--",
            "sh",
            "-c",
            "echo self $$; sleep 60",
        ])
        .spawn();
    let pid = job.wait_for_pid("self");
    breaking(&nodes)
        .args(["--now"])
        .finish()
        .code(0)
        .within(Duration::from_secs(2));
    job.finish().code(79).mentions(&["the key is gone"]);
    assert!(!alive(pid));
    assert!(
        servers
            .iter()
            .all(|server| server.cli(&["EXISTS", "job"]) == "0")
    );
}

#[test]
fn a_server_out_of_memory_still_lets_a_lock_be_deleted() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args([
            "--ttl",
            "3s",
            "--",
            "sh",
            "-c",
            "echo self $$; exec sleep 60",
        ])
        .spawn();
    let pid = job.wait_for_pid("self");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    breaking(&server.url()).finish().code(69).mentions(&["OOM"]);
    breaking(&server.url()).args(["--now"]).finish().code(0);
    job.finish().code(79);
    assert!(!alive(pid));
}

#[test]
fn a_foreign_value_is_deleted_only_by_that_name() {
    let server = Server::start();
    let node = server.url();
    server.cli(&["SET", "job", "f00dfeed"]);
    breaking(&node)
        .finish()
        .code(64)
        .said(&["not rlock", "f00dfeed", "--foreign"]);
    breaking(&node)
        .args(["--now"])
        .finish()
        .code(64)
        .said(&["--foreign"]);
    assert_eq!(server.cli(&["GET", "job"]), "f00dfeed");
    breaking(&node)
        .args(["--foreign"])
        .finish()
        .code(0)
        .mentions(&["f00dfeed", "deleted"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    server.cli(&["HSET", "job", "a", "b"]);
    breaking(&node)
        .args(["--foreign", "-q"])
        .finish()
        .code(0)
        .silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_command_that_ends_under_a_tombstone_was_never_without_its_lock() {
    let server = Server::start();
    let job = rlock("job")
        .on(&server)
        .stdin(std::process::Stdio::piped())
        .hold("echo ready; read line; exit 3");
    let waiting = breaking(&server.url()).spawn();
    eventually("the tombstone", || {
        server.cli(&["GET", "job"]).starts_with("broken ")
    });
    assert!(
        server
            .cli(&["PTTL", "job"])
            .parse::<u64>()
            .is_ok_and(|left| left > 20_000)
    );
    job.finish().code(3).silent();
    waiting.finish().code(0);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_tombstone_keeps_others_out_and_is_shown() {
    let server = Server::start();
    let job = rlock("job")
        .on(&server)
        .stdin(std::process::Stdio::piped())
        .hold("echo ready; read line");
    let waiting = breaking(&server.url()).spawn();
    eventually("the tombstone", || {
        server.cli(&["GET", "job"]).starts_with("broken ")
    });
    rlock("job")
        .on(&server)
        .args(["-n"])
        .command(["true"])
        .code(75)
        .said(&["held by tester@", "broke the lock"]);
    let shown = rlock_words(["inspect", "job"])
        .node(&server.url())
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(
        shown.contains("tester@") && shown.contains("broke the lock"),
        "{shown}"
    );
    drop(job);
    drop(waiting);
}

#[test]
fn a_crashed_holders_tombstone_ends_with_its_ttl() {
    let server = Server::start();
    let job = rlock("job")
        .on(&server)
        .args(["--ttl", "1500ms"])
        .hold("echo ready; read line");
    let (value, guard) = (server.cli(&["GET", "job"]), guard_of(job.pid()));
    drop(job);
    // It releases the lock twice: a request of the dead rlock may come late.
    eventually("the guard has ended", || !alive(guard));
    // The holder's host is gone with its guard.
    server.cli(&["SET", "job", &value, "PX", "1500"]);
    breaking(&server.url())
        .finish()
        .code(0)
        .within(Duration::from_secs(10));
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_user_at_a_terminal_is_asked() {
    let server = Server::start();
    let token = acquired(&server.url());
    rlock_words(["break", "job"])
        .on(&server)
        .finish()
        .code(64)
        .said(&["held by", "--yes"]);
    let mut shell = Session::bash_on(RLOCK, &server);
    for (answer, code) in [("n", 1), ("", 1)] {
        shell.line("rlock break -k job");
        shell.sees("taken with acquire");
        shell.sees("[y/N]");
        shell.line(answer);
        shell.prompt();
        assert_eq!(shell.code(), code);
    }
    assert!(server.cli(&["GET", "job"]).starts_with(&token));
    // A client that takes the lock during the question is not the holder that was shown.
    shell.line("rlock break job");
    shell.sees("[y/N]");
    rlock_words(["release", "-k", "job", "--token", &token])
        .on(&server)
        .finish()
        .code(0);
    let next = acquired(&server.url());
    shell.line("y");
    shell.sees("changed");
    shell.prompt();
    assert_eq!(shell.code(), 1);
    assert!(server.cli(&["GET", "job"]).starts_with(&next));
    shell.line("rlock break job");
    shell.sees("[y/N]");
    shell.line("yes");
    shell.sees("deleted");
    shell.prompt();
    assert_eq!(shell.code(), 0);
}

#[test]
fn bad_input_and_no_majority() {
    let (servers, nodes) = three();
    rlock_words(["break", "--yes"])
        .node(&nodes)
        .finish()
        .code(64)
        .said(&["KEY"]);
    for slot in ["0", "1001", "x"] {
        rlock_words(["break", "a", "--yes", "--slot", slot])
            .node(&nodes)
            .finish()
            .code(64)
            .said(&["from 1 to 1000"]);
    }
    breaking("local:/tmp/rlock-suite-break")
        .finish()
        .code(64)
        .said(&["needs a server"]);
    servers[0].freeze();
    servers[1].freeze();
    breaking(&nodes).finish().code(69).said(&["no majority"]);
}
