//! `--on-lost reclaim`: a lock whose key is gone is set again at once, unless another client may have had it.

use nix::sys::signal::Signal;

use crate::support::{Nodes, Running, Server, eventually, rlock, rlock_words};

/// Words of the warning.
const AGAIN: &str = "set again, since no other rlock had the lock meanwhile";

/// A command that ends with 3 when its input ends.
const WORK: &str = "echo ready; read x; exit 3";

/// A command that ends on TERM only.
const OBEDIENT: &str = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";

fn held(server: &Server, ttl: &str, options: &[&str], script: &str) -> Running {
    rlock("job").on(server).args(["--ttl", ttl, "--on-lost", "reclaim"]).args(options).hold(script)
}

/// Checks that the lock is held: another client does not get it.
fn is_held(server: &Server) {
    rlock("job").on(server).args(["-n"]).sh("echo ran").code(75).printed(&[]);
}

#[test]
fn a_server_that_came_back_empty_does_not_end_the_job() {
    for kind in [&[][..], &["-s"], &["--slots", "2"]] {
        let mut server = Server::start();
        let mut job = held(&server, "6s", kind, WORK);
        server.crash();
        server.come_back();
        job.wait_until_told(AGAIN);
        is_held(&server);
        job.finish().code(3).said(&["rlock: job: redis+unix://", "the key is gone", AGAIN]);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn a_key_that_was_deleted_by_hand_is_set_again_each_time() {
    let server = Server::start();
    let mut job = held(&server, "900ms", &[], WORK);
    let token = server.token();
    for _ in 0..2 {
        server.cli(&["DEL", "job"]);
        job.wait_until_told(AGAIN);
        assert_eq!(server.token(), token);
    }
    job.finish().code(3);
}

#[test]
fn a_lock_that_another_rlock_had_meanwhile_is_lost() {
    let server = Server::start();
    let job = held(&server, "6s", &[], OBEDIENT);
    job.signal(Signal::SIGSTOP);
    server.cli(&["DEL", "job"]);
    rlock("job").on(&server).args(["-n"]).sh("echo ran").code(0);
    job.signal(Signal::SIGCONT);
    job.finish().code(79).mentions(&["lost the lock", "the key is gone"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_lock_that_another_client_has_is_lost() {
    let server = Server::start();
    let job = held(&server, "3s", &[], OBEDIENT);
    server.cli(&["SET", "job", "another's"]);
    job.finish().code(79).mentions(&["another client has the key"]);
    assert_eq!(server.cli(&["GET", "job"]), "another's");
}

#[test]
fn a_lock_that_was_broken_is_lost() {
    for now in [&[][..], &["--now"]] {
        let server = Server::start();
        let job = held(&server, "3s", &[], OBEDIENT);
        rlock_words(["break", "job", "--yes"]).on(&server).args(now).finish().code(0);
        job.finish().code(79).mentions(&["lost the lock"]);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn a_majority_that_lost_the_key_is_reclaimed_and_one_that_another_had_is_not() {
    let nodes = Nodes::start(3);
    let options = ["--ttl", "6s", "--on-lost", "reclaim"];
    let mut job = rlock("job").on_all(&nodes).args(options).hold(OBEDIENT);
    let token = nodes[2].token();
    job.signal(Signal::SIGSTOP);
    for node in &nodes[..2] {
        node.cli(&["FLUSHALL"]);
    }
    job.signal(Signal::SIGCONT);
    job.wait_until_told(AGAIN);
    eventually("all have the key", || nodes.iter().all(|node| node.token() == token));

    job.signal(Signal::SIGSTOP);
    for node in &nodes[..2] {
        node.cli(&["DEL", "job"]);
    }
    rlock("job").on_all(&nodes).args(["-n"]).sh("echo ran").code(0);
    job.signal(Signal::SIGCONT);
    job.finish().code(79).mentions(&["lost the lock"]);
    nodes.become_clean();
}

#[test]
fn each_lock_of_a_run_is_reclaimed_by_itself() {
    let mut server = Server::start();
    let options = ["-k", "other", "--ttl", "6s", "--on-lost", "reclaim"];
    let mut job = rlock("job").on(&server).args(options).hold(WORK);
    server.crash();
    server.come_back();
    job.wait_until_told("rlock: job: ");
    job.wait_until_told("rlock: other: ");
    assert_eq!(server.cli(&["EXISTS", "job", "other"]), "2");
    job.finish().code(3).mentions(&[AGAIN]);
    assert_eq!(server.cli(&["EXISTS", "job", "other"]), "0");
}
