//! `--wait-replicas` and `--fsync`: writes that count only once replicas, or disks, have them.

use nix::sys::signal::Signal;

use crate::support::{Rlock, Server, eventually, rlock, rlock_words, skipped};

/// Starts a server with one replica that is in step.
pub(crate) fn replicated(options: &[&str]) -> (Server, Server) {
    let primary = Server::tcp(&[&["--repl-diskless-sync-delay", "0"], options].concat());
    let port = primary.port().to_string();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &port]);
    eventually("the replica is online", || {
        primary
            .cli(&["INFO", "replication"])
            .contains("state=online")
    });
    // A replica that is online may still load its data. It then acknowledges nothing.
    primary.cli(&["PUBLISH", "any", ""]);
    eventually("it acknowledges", || is_in_step(&primary));
    (primary, replica)
}

/// Whether the replica has acknowledged all that the primary has written, which must be something.
fn is_in_step(primary: &Server) -> bool {
    let info = primary.cli(&["INFO", "replication"]);
    let written = info
        .lines()
        .find_map(|line| line.trim().strip_prefix("master_repl_offset:"))
        .unwrap_or_default();
    written != "0" && info.contains(&format!("state=online,offset={written},"))
}

fn run(server: &Server, replicas: &str) -> Rlock {
    rlock("job").on(server).args(["--wait-replicas", replicas])
}

#[test]
fn a_lock_is_held_once_as_many_replicas_have_it_as_were_asked_for() {
    let (primary, _replica) = replicated(&[]);
    run(&primary, "1")
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    assert!(primary.calls("wait") >= 1);
    let token = rlock_words(["acquire", "-k", "job", "--wait-replicas", "1"])
        .on(&primary)
        .finish()
        .code(0)
        .stdout
        .remove(0);
    let renew = |replicas| {
        rlock_words([
            "renew",
            "-k",
            "job",
            "--token",
            &token,
            "--wait-replicas",
            replicas,
        ])
        .on(&primary)
        .finish()
    };
    renew("1").code(0).silent();
    renew("2")
        .code(69)
        .said(&["only 1 of 2 replicas have the write"]);
    rlock_words(["release", "-k", "job", "--token", &token])
        .on(&primary)
        .finish()
        .code(0)
        .silent();
    let told = run(&primary, "2")
        .args(["-n"])
        .command(["echo", "ran"])
        .code(69)
        .printed(&[]);
    told.said(&["only 1 of 2 replicas have the write (--wait-replicas)"]);
    assert_eq!(
        primary.cli(&["EXISTS", "job"]),
        "0",
        "a grant that does not count is given back"
    );
    let before = primary.calls("wait");
    run(&primary, "0")
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    assert_eq!(primary.calls("wait"), before, "0 asks for nothing");
}

/// A replica that takes over ends leases by its own clock, and WAIT tells nothing of clocks.
#[test]
fn doctor_compares_the_clocks_of_a_primary_and_its_replicas() {
    let primary = Server::tcp(&["--repl-diskless-sync-delay", "0"]);
    let port = primary.port().to_string();
    let replica = Server::tcp_with_clock(&["--replicaof", "127.0.0.1", &port]);
    eventually("the replica is online", || {
        primary
            .cli(&["INFO", "replication"])
            .contains("state=online")
    });
    let doctor = || {
        rlock_words(["doctor", "--ttl", "1m"])
            .on(&primary)
            .finish()
            .code(1)
            .stdout
            .join("\n")
    };
    let told = doctor();
    assert!(!told.contains("the clock of its replica"), "{told}");
    let of = format!("the clock of its replica 127.0.0.1:{} is", replica.port());
    for (seconds, side, end) in [
        (3, "ahead of", "before their holders are stopped"),
        (-3, "behind", "that much later"),
    ] {
        replica.set_clock(seconds);
        let told = doctor();
        assert!(told.contains(&of), "{told}");
        assert!(
            told.contains(&format!(
                "{side} its own: after a failover leases end {end}"
            )),
            "{told}"
        );
    }
}

#[test]
fn a_renewal_that_no_replica_has_does_not_count() {
    let (primary, replica) = replicated(&[]);
    let holder = run(&primary, "1")
        .args(["--ttl", "4s", "--node-timeout", "500ms"])
        .hold("echo ready; exec sleep 60");
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    holder
        .finish()
        .code(79)
        .mentions(&["could not be renewed in time", "only 0 of 1 replicas"]);
    assert_eq!(primary.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_waiter_gets_the_lock_when_the_replica_is_back() {
    let (primary, replica) = replicated(&[]);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    eventually("the replica is gone", || {
        primary
            .cli(&["INFO", "replication"])
            .contains("connected_slaves:0")
    });
    let mut waiter = run(&primary, "1")
        .args(["--ttl", "3s", "--", "echo", "ran"])
        .spawn();
    eventually("a grant was given back", || primary.calls("wait") >= 2);
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    waiter.wait_for("ran");
    waiter.finish().code(0);
}

#[test]
fn an_rlock_that_ends_while_the_server_waits_leaves_no_key() {
    let server = Server::start();
    let waiting = run(&server, "1")
        .args(["--ttl", "2m", "--node-timeout", "20s", "--", "true"])
        .spawn();
    eventually("the server waits for replicas", || {
        server.cli(&["CLIENT", "LIST"]).contains("cmd=wait")
    });
    assert_eq!(server.cli(&["EXISTS", "job"]), "1");
    waiting.signal(Signal::SIGTERM);
    waiting.finish().code(143);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn what_a_server_or_a_user_cannot_do_is_said_and_no_key_is_left() {
    let server = Server::tcp(&["--appendonly", "no"]);
    let knows = server
        .cli(&["COMMAND", "INFO", "waitaof"])
        .contains("waitaof");
    let words = if knows {
        "--fsync needs an append-only file"
    } else {
        "WAITAOF, which --fsync needs"
    };
    let told = rlock("job")
        .on(&server)
        .args(["--fsync"])
        .command(["echo", "ran"])
        .code(78)
        .printed(&[]);
    told.said(&[words]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    server.cli(&[
        "ACL",
        "SETUSER",
        "job",
        "on",
        "nopass",
        "allkeys",
        "allchannels",
        "+@all",
        "-wait",
    ]);
    let url = server.tcp_url().replace("://", "://job@");
    let run = rlock("job").node(&url).args(["--wait-replicas", "1"]);
    run.command(["echo", "ran"])
        .code(77)
        .printed(&[])
        .said(&["NOPERM", "grant +wait"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_write_counts_once_it_is_on_disk() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    if !server
        .cli(&["COMMAND", "INFO", "waitaof"])
        .contains("waitaof")
    {
        return skipped("this server has no WAITAOF");
    }
    rlock("job")
        .on(&server)
        .args(["--fsync"])
        .command(["true"])
        .code(0)
        .silent();
    assert!(server.calls("waitaof") >= 1);
}

#[test]
fn options_that_make_no_sense_are_64_before_a_server_is_asked() {
    let refused = |words: &[&str], said: &[&str]| {
        rlock("job")
            .args(words)
            .command(["echo", "ran"])
            .code(64)
            .printed(&[])
            .said(said);
    };
    refused(
        &["--node", "local", "--wait-replicas", "1"],
        &["--wait-replicas needs a server"],
    );
    refused(&["--node", "local", "--fsync"], &["--fsync needs a server"]);
    refused(
        &["--node", "redis://127.0.0.1:1", "--wait-replicas", "-1"],
        &["--wait-replicas"],
    );
    refused(
        &["--node", "redis://127.0.0.1:1", "--fsync", "--ttl", "7s"],
        &["--ttl 7s", "2s500ms", "give --ttl 8s829ms"],
    );
}
