//! Subcommands other than `run` inside a command of rlock.

use super::go;
use crate::support::{Nodes, RLOCK, Server, eventually, rlock, rlock_words};

#[test]
fn release_and_renew_inside_a_live_run_are_64_and_change_nothing() {
    let server = Server::start();
    let script = format!(
        "echo ready; read x; {RLOCK} release; echo release $?; {RLOCK} renew --ttl 1h; echo renew $?
         {RLOCK} check; echo check $?; read y; true"
    );
    let mut job = rlock("job").on(&server).hold(&script);
    let (value, pid) = (
        server.cli(&["GET", "job"]),
        format!("rlock run (pid {})", job.pid()),
    );
    go(&mut job);
    assert_eq!(
        ["release", "renew", "check"].map(|verb| job.wait_for(verb)),
        ["64", "64", "0"]
    );
    assert_eq!(server.cli(&["GET", "job"]), value);
    assert!(
        server
            .cli(&["PTTL", "job"])
            .parse::<u64>()
            .expect("a number")
            <= 30_000
    );
    job.finish()
        .code(0)
        .mentions(&["job: ", &pid, "releases it itself", "nothing was changed"]);

    // Nor may an operator outside the run release it.
    let job = rlock("job").on(&server).hold("echo ready; read x; true");
    let value = server.cli(&["GET", "job"]);
    let token = value.split(' ').next().expect("a token");
    rlock_words(["release", "-k", "job"])
        .on(&server)
        .env("RLOCK_TOKEN", token)
        .finish()
        .code(64)
        .said(&["nothing was changed; rlock break ends it"]);
    assert_eq!(server.cli(&["GET", "job"]), value);
    job.finish().code(0).silent();
    // A process that outlives its run learns that it no longer holds the lock.
    let held = format!("{token}:7");
    let late = rlock_words(["release", "-k", "job", "--token", token])
        .on(&server)
        .env("RLOCK_HELD", &held);
    late.finish().code(1).said(&["not the holder's token"]);
}

#[test]
fn release_inside_a_live_run_changes_nothing_while_no_majority_answers() {
    let nodes = Nodes::start(3);
    let job = rlock("job").on_all(&nodes).hold("echo ready; read x");
    let token = nodes.job()[0]
        .split(' ')
        .next()
        .expect("a token")
        .to_owned();
    nodes[0].freeze();
    nodes[1].freeze();
    let release = rlock_words(["release", "-k", "job", "--token", &token]).node(&nodes.url());
    release
        .env("RLOCK_HELD", &format!("{token}:7"))
        .finish()
        .code(69);
    nodes[0].thaw();
    nodes[1].thaw();
    assert!(nodes.job().iter().all(|value| value.starts_with(&token)));
    job.finish().code(1);
}

#[test]
fn a_release_that_no_node_answers_frees_no_live_run_when_they_wake() {
    let server = Server::start();
    let job = rlock("job")
        .on(&server)
        .args(["--ttl", "10s"])
        .hold("echo ready; read x; true");
    let value = server.cli(&["GET", "job"]);
    let token = value.split(' ').next().expect("a token");
    server.freeze();
    rlock_words(["release", "-k", "job", "--token", token])
        .on(&server)
        .finish()
        .code(69);
    server.thaw();
    eventually("it is renewed", || {
        let left = server.cli(&["PTTL", "job"]).parse::<i64>();
        left.is_ok_and(|left| left > 8_000)
    });
    assert_eq!(server.cli(&["GET", "job"]), value);
    job.finish().code(0);
}

#[test]
fn acquire_inside_a_live_run_does_not_wait_for_itself() {
    let server = Server::start();
    let script = format!("{RLOCK} acquire -k job; echo $?");
    let finished = rlock("job")
        .on(&server)
        .sh(&script)
        .code(0)
        .printed(&["64"]);
    finished.said(&["job: held by", "wait for itself"]);
}
