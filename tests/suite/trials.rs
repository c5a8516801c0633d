//! `doctor --try`: a lock of its own, which is taken at each node and given back.

use crate::support::{Rlock, Server, rlock, rlock_words};

/// The fence counter of the lock.
const FENCE: &str = "rlock:fence:{rlock-doctor}:rlock-doctor";

fn trial(node: &str) -> Rlock {
    rlock_words(["doctor", "--try", "--restart-guard", "off"]).node(node)
}

fn good() -> Server {
    Server::tcp(&["--appendonly", "yes"])
}

fn tells(trial: Rlock, code: i32, words: &[&str]) {
    let told = trial.finish().code(code).silent().stdout.join("\n");
    for words in words {
        assert!(told.contains(words), "{words:?} is missing in {told}");
    }
}

#[test]
fn each_node_gives_a_lock_and_gets_it_back() {
    let servers = [good(), good(), good()];
    let nodes = servers.each_ref().map(Server::url).join(",");
    tells(trial(&nodes), 0, &["verdict: fit"]);
    for server in &servers {
        assert_eq!(server.cli(&["KEYS", "*"]), FENCE, "nothing else is left");
    }
    tells(
        trial(&servers[0].url()).args(["--prefix", "p:"]),
        0,
        &["verdict: fit"],
    );
    assert_eq!(
        servers[0].cli(&["EXISTS", "rlock:fence:{p:rlock-doctor}:p:rlock-doctor"]),
        "1"
    );
}

#[test]
fn a_trial_finds_what_no_question_shows() {
    let server = good();
    server.cli(&["HSET", FENCE, "a", "b"]);
    rlock_words(["doctor"]).on(&server).finish().code(0);
    tells(
        trial(&server.url()),
        78,
        &[
            "unfit: ",
            "a lock could not be taken and given back: ",
            "WRONGTYPE",
            "not fit",
        ],
    );
    assert_eq!(server.cli(&["EXISTS", "rlock-doctor"]), "0");
    // One of three costs a vote, and no more, if time mends it; this one is not mended.
    let servers = [good(), good()];
    let nodes = [server.url(), servers[0].url(), servers[1].url()].join(",");
    tells(trial(&nodes), 78, &["WRONGTYPE"]);
}

#[test]
fn another_clients_lock_of_that_name_is_respected() {
    let server = good();
    server.cli(&["SET", "rlock-doctor", "mine"]);
    tells(
        trial(&server.url()),
        1,
        &["no lock could be tried: rlock-doctor is held by another client"],
    );
    assert_eq!(server.cli(&["GET", "rlock-doctor"]), "mine");
}

#[test]
fn a_user_of_other_locks_is_told_that_none_could_be_tried() {
    let server = good();
    let line = rlock_words(["doctor", "-k", "job", "--acl"])
        .on(&server)
        .finish()
        .stdout
        .pop()
        .expect("a line");
    let line = line
        .split_once(": ")
        .expect("the ACL line")
        .1
        .replace("{>PASSWORD}", "nopass");
    server.cli(&line.split(' ').collect::<Vec<_>>());
    let node = server.tcp_url().replace("://", "://rlock@");
    tells(
        trial(&node).args(["-k", "job"]),
        1,
        &["no lock could be tried: the user may not use rlock-doctor"],
    );
}

#[test]
fn a_local_lock_is_tried_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    tells(trial(&node), 0, &["verdict: fit"]);
    rlock("rlock-doctor")
        .node(&node)
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
}
