//! Rights of a waiter on a server, and what happens without them.

use std::time::{Duration, Instant};

use super::{QUEUE, job, listening};
use crate::support::{Server, eventually, rlock, skipped};

#[test]
fn an_acl_without_the_queue_costs_the_order_and_not_the_lock() {
    let server = Server::tcp(&[]);
    let rights =
        "on >pw ~job ~rlock:* +eval +type +strlen +getrange +pttl +time +get +set +pexpire +del";
    let mut words = vec!["ACL", "SETUSER", "narrow"];
    words.extend(rights.split(' '));
    server.cli(&words);
    let url = format!("redis://narrow@127.0.0.1:{}", server.port());
    let narrow = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
    narrow().command(["true"]).code(0).silent();
    let holder = narrow().hold("echo ready; read line; true");
    let mut waiter = narrow().args(["-v", "--", "true"]).spawn();
    waiter.wait_until_told("cannot join the queue, waiting without a place");
    let mut told = rlock("job").on(&server).args(["-v", "--", "true"]).spawn();
    eventually("one waits in the queue", || {
        server.cli(&["ZCARD", QUEUE]) == "1"
    });
    assert!(told.is_running());
    holder.finish().code(0).silent();
    waiter.finish().code(0);
    told.finish().code(0);
}

#[test]
fn a_waiter_that_may_not_listen_says_so_once_and_looks_for_itself() {
    let server = Server::tcp(&[]);
    server.cli(&[
        "ACL",
        "SETUSER",
        "deaf",
        "on",
        ">pw",
        "~*",
        "+@all",
        "resetchannels",
    ]);
    let url = format!("redis://deaf@127.0.0.1:{}", server.port());
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let mut waiter = rlock("job")
        .node(&url)
        .env("RLOCK_PASSWORD", "pw")
        .args(["--", "echo", "ran"])
        .spawn();
    waiter.wait_until_told("SUBSCRIBE to rlock:wake:* is not allowed");
    let begin = Instant::now();
    holder.finish().code(0).silent();
    waiter
        .finish()
        .code(0)
        .said(&["job", "redis://127.0.0.1", "rlock:wake:*"])
        .printed(&["ran"]);
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
}

/// A release by such a user wakes no waiter.
#[test]
fn a_waiter_whose_user_may_not_publish_says_so_once_and_looks_for_itself() {
    let server = Server::tcp(&[]);
    server.cli(&[
        "ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish",
    ]);
    if server.cli(&["EVAL", "return redis.acl_check_cmd and 1 or 0", "0"]) != "1" {
        return skipped("this server's scripts cannot ask what a user may do");
    }
    let url = format!("redis://mute@127.0.0.1:{}", server.port());
    let mute = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
    let holder = mute().hold("echo ready; read line; true");
    let mut waiter = mute().args(["--", "echo", "ran"]).spawn();
    waiter.wait_until_told("may not PUBLISH");
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
    let begin = Instant::now();
    holder.finish().code(0).silent();
    waiter
        .finish()
        .code(0)
        .said(&["job", "redis://127.0.0.1", "rlock:wake:*"])
        .printed(&["ran"]);
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_stranger_in_the_queue_is_cut_to_what_a_reply_has_room_for() {
    let server = Server::start();
    let member = format!(
        "{} {}",
        "6b29fc40-ca47-4067-b31d-00dd010662da",
        "y".repeat(100_000)
    );
    server.cli(&["ZADD", QUEUE, "1", &member]);
    // It counts as a waiter as long as a client is subscribed to its channel.
    let mut listener = std::process::Command::new("redis-cli")
        .arg("-s")
        .arg(server.socket())
        .args([
            "SUBSCRIBE",
            "rlock:wake:{job}:6b29fc40-ca47-4067-b31d-00dd010662da",
        ])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("redis-cli");
    eventually("it listens", || listening(&server) == 1);
    let finished = job(std::slice::from_ref(&server))
        .args(["-n"])
        .sh("echo ran");
    let _ = listener.kill();
    let _ = listener.wait();
    finished
        .code(75)
        .printed(&[])
        .said(&["busy", "an entry that is not rlock's is next in its queue"]);
}

#[test]
fn the_rights_that_the_documentation_names_are_enough_to_wait_in_line() {
    let server = Server::tcp(&[]);
    let page = include_str!("../../../docs/redis.md");
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER rlock "))
        .expect("the line");
    let words: Vec<String> = line
        .split(' ')
        .map(|word| word.replace("{>PASSWORD}", ">pw").replace("backup", "job"))
        .collect();
    assert_eq!(
        server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>()),
        "OK"
    );
    let url = format!("redis://rlock@127.0.0.1:{}", server.port());
    let user = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
    let holder = user().hold("echo ready; read line; true");
    let mut first = user().args(["--", "echo", "first"]).spawn();
    eventually("it stands in line", || server.cli(&["ZCARD", QUEUE]) == "1");
    assert!(first.is_running());
    holder.finish().code(0).silent();
    first.finish().code(0).silent().printed(&["first"]);
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}
