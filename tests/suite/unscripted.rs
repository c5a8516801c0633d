//! Servers that have lost their scripts, or let a user call none by its digest.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::contest::Contest;
use crate::support::{STEADY, Server, eventually, renewed, rlock, rlock_words, side_by_side};

/// The script of a holder that ends when its stdin does.
const UNTIL_TOLD: &str = "echo ready; read line; true";

const KINDS: [&[&str]; 3] = [&[], &["--shared"], &["--slots", "2"]];

fn flush(server: &Server) {
    server.cli(&["SCRIPT", "FLUSH"]);
}

#[test]
fn while_scripts_are_flushed_again_and_again_the_lock_is_handed_over_and_no_two_hold_it() {
    let server = Server::start();
    let contest = Contest::new(server.url());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = server.connect();
            while !is_over.load(Ordering::Relaxed) {
                let _: () = redis::cmd("SCRIPT")
                    .arg("FLUSH")
                    .query(&mut connection)
                    .expect("a flush");
            }
        });
        contest.run(|| contest.goes_on());
        is_over.store(true, Ordering::Relaxed);
    });
    contest.is_fair();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_server_that_was_flushed_and_left_with_a_release_unread_keeps_no_lock() {
    for kind in KINDS {
        for _ in 0..4 {
            let server = Server::start();
            let holder = rlock("job")
                .on(&server)
                .args(["--ttl", "60s"])
                .args(kind)
                .hold(UNTIL_TOLD);
            flush(&server);
            server.freeze();
            // It waits in vain for the answer to its release.
            holder.finish();
            server.wake();
            eventually("it is free", || server.cli(&["EXISTS", "job"]) == "0");
        }
    }
}

#[test]
fn a_holder_renews_at_a_server_that_has_no_script_and_sends_it_none() {
    side_by_side(KINDS, |kind| {
        let server = Server::start();
        let holder = rlock("job")
            .on(&server)
            .args(STEADY)
            .args(kind)
            .hold(UNTIL_TOLD);
        flush(&server);
        renewed([&server]);
        renewed([&server]);
        let sent = server.monitored(|| renewed([&server]));
        let longest = sent.iter().map(String::len).max().unwrap_or_default();
        assert!(longest < 4096, "a renewal of {longest} bytes");
        holder.finish().code(0).silent();
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    });
}

#[test]
fn a_waiter_gets_the_lock_at_once_from_a_release_that_a_server_without_scripts_got() {
    let server = Server::start();
    let holder = rlock("job")
        .on(&server)
        .args(["--ttl", "5m"])
        .hold(UNTIL_TOLD);
    let waiter = rlock("job").on(&server).args(["--", "echo", "ran"]).spawn();
    eventually("it stands in line", || {
        server.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
    });
    flush(&server);
    holder.finish().code(0).silent();
    waiter
        .finish()
        .code(0)
        .printed(&["ran"])
        .within(std::time::Duration::from_secs(8));
}

#[test]
fn a_lock_is_parked_by_a_server_without_scripts() {
    let server = Server::start();
    let holder = rlock("job")
        .on(&server)
        .args(["--hold-at-least", "1h"])
        .hold(UNTIL_TOLD);
    flush(&server);
    holder.finish().code(0).silent();
    assert!(server.cli(&["GET", "job"]).starts_with("parked "));
}

#[test]
fn a_promoted_replica_renews_and_releases_what_it_has() {
    let primary = Server::tcp(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    eventually("the replica is online", || {
        primary
            .cli(&["INFO", "replication"])
            .contains("state=online")
    });
    let token = rlock_words(["acquire", "-k", "job", "--ttl", "5m"])
        .on(&primary)
        .finish()
        .code(0)
        .stdout
        .remove(0);
    eventually("the replica has it", || replica.token() == token);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    for command in ["renew", "release"] {
        rlock_words([command, "-k", "job", "--token", &token])
            .on(&replica)
            .finish()
            .code(0);
        flush(&replica);
    }
    assert_eq!(replica.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_user_that_may_call_no_script_by_its_digest_holds_and_waits_all_the_same() {
    let server = Server::tcp(&[]);
    for (user, right) in [("whole", "-evalsha"), ("short", "+evalsha")] {
        server.cli(&[
            "ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", right,
        ]);
        let url = format!("redis://{user}@127.0.0.1:{}", server.port());
        let job = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
        let holder = job().args(STEADY).hold(UNTIL_TOLD);
        let waiter = job().args(["--", "echo", "ran"]).spawn();
        eventually("it stands in line", || {
            server.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
        });
        renewed([&server]);
        holder.finish().code(0).silent();
        waiter.finish().code(0).silent().printed(&["ran"]);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0", "{user}");
    }
}
