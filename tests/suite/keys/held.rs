//! A command under several locks: what it is told, and that the loss of one lock is the loss of
//! all.

use nix::sys::signal::Signal;

use super::run;
use crate::support::{Nodes, Server, alive, eventually};

#[test]
fn the_command_is_told_of_all_its_locks() {
    let server = Server::start();
    let script =
        "echo $RLOCK_KEY; echo $RLOCK_TOKEN; echo $RLOCK_FENCE; echo $RLOCK_HELD; read x; true";
    let mut job = run(&["b", "a"])
        .on(&server)
        .args(["--prefix", "p,"])
        .hold(&format!("echo ready; {script}"));
    let [keys, tokens, fences, held] = [(); 4].map(|()| job.wait_for(""));
    assert_eq!(keys, "a,b");
    let stored = ["p,a", "p,b"].map(|key| {
        server
            .cli(&["GET", key])
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    assert_eq!(tokens, stored.join(","));
    let counters =
        ["a", "b"].map(|key| server.cli(&["GET", &format!("rlock:fence:{{p,{key}}}:p,{key}")]));
    assert_eq!(fences, counters.join(","));
    assert_eq!(
        held,
        format!(
            "{}:{},{}:{}",
            stored[0], counters[0], stored[1], counters[1]
        )
    );
    job.finish().code(0).silent();
}

#[test]
fn the_loss_of_one_lock_kills_the_command_and_releases_the_others() {
    let (server, nodes) = (Server::start(), Nodes::start(3));
    for (url, servers) in [
        (server.url(), vec![&server]),
        (nodes.url(), nodes.iter().collect()),
    ] {
        for how in [&["SET", "b", "another's"][..], &["DEL", "b"]] {
            let job =
                run(&["a", "b", "c"])
                    .node(&url)
                    .args(["--restart-guard", "off", "--ttl", "3s"]);
            let mut job = job
                .args(["--", "sh", "-c", "echo work $$; while :; do sleep 1; done"])
                .spawn();
            let work = job.wait_for_pid("work");
            for server in &servers {
                server.cli(how);
            }
            job.finish()
                .code(79)
                .mentions(&["rlock: b: lost the lock: "])
                .never_said("rlock: a: lost");
            assert!(!alive(work), "{how:?}");
            for server in &servers {
                assert_eq!(server.cli(&["EXISTS", "a", "c"]), "0", "{how:?}");
                server.cli(&["DEL", "b"]);
            }
        }
    }
}

#[test]
fn a_lock_that_was_lost_unnoticed_is_named() {
    let server = Server::start();
    let script = format!("redis-cli -s {} set b another", server.socket().display());
    let job = run(&["a", "b"])
        .on(&server)
        .args(["--ttl", "1h", "-c", &script])
        .finish();
    job.code(79).said(&["rlock: b: lost the lock unnoticed"]);
    assert_eq!(server.cli(&["EXISTS", "a"]), "0");
}

#[test]
fn all_locks_are_renewed_and_the_guard_of_a_killed_run_releases_them_all() {
    let (server, nodes) = (Server::start(), Nodes::start(3));
    for (url, servers) in [
        (server.url(), vec![&server]),
        (nodes.url(), nodes.iter().collect()),
    ] {
        let job =
            run(&["a", "b", "c"])
                .node(&url)
                .args(["--restart-guard", "off", "--ttl", "3s", "-v"]);
        let mut job = job.hold("echo ready; read x; true");
        // By now the first leases would be over.
        for _ in 0..4 {
            for key in ["a", "b", "c"] {
                job.wait_until_told(&format!("{key}: renewed for"));
            }
        }
        job.signal(Signal::SIGKILL);
        eventually("all is free", || {
            servers
                .iter()
                .all(|server| server.cli(&["EXISTS", "a", "b", "c"]) == "0")
        });
    }
}

#[test]
fn a_command_that_is_not_found_leaves_no_lock() {
    let server = Server::start();
    let job = run(&["a", "b"])
        .on(&server)
        .args(["--", "/nowhere"])
        .finish()
        .code(127);
    job.said(&["rlock: a,b: /nowhere: not found; the locks are released"]);
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "0");
}
