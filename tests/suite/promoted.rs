//! A server that was promoted without a word of sentinels, under `--restart-guard`: it may lack the last writes.

use std::time::{Duration, Instant};

use crate::support::{Finished, Rlock, Server, eventually, rlock};

/// Starts a primary and a replica with its data, and promotes the replica.
fn promoted() -> (Server, Server) {
    let primary = Server::tcp(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::with(&["--appendonly", "yes", "--replicaof", "127.0.0.1", &primary.port().to_string()]);
    eventually("it has the data", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    (primary, replica)
}

fn run(server: &Server, key: &str) -> Rlock {
    rlock(key).on(server).args(["--ttl", "2s", "--restart-guard", "2s"])
}

fn refused(run: Rlock) -> Finished {
    run.args(["-n"]).command(["echo", "ran"]).code(69).printed(&[])
}

#[test]
fn a_promoted_server_grants_a_lock_only_when_a_lost_lease_of_it_would_be_over() {
    let (mut primary, new) = promoted();
    // The old primary still lets a holder renew, and the new one has lost the lock.
    let holder = rlock("job").on(&primary).args(["--ttl", "2s"]).hold("echo ready; exec sleep 60");
    let begin = Instant::now();
    refused(run(&new, "job")).said(&["it became the primary", "or earlier", "restart guard"]);
    assert_eq!(new.cli(&["EXISTS", "job"]), "0");
    primary.crash();
    holder.finish().code(79);
    run(&new, "job").command(["echo", "ran"]).code(0).printed(&["ran"]);
    assert!(begin.elapsed() >= Duration::from_secs(3), "{:?}", begin.elapsed());
    run(&new, "job").args(["-n"]).command(["echo", "ran"]).code(0).silent().printed(&["ran"]);
    // The server is old enough by now, but another lock is new to it.
    refused(run(&new, "other")).said(&["it became the primary"]);
    rlock("other").on(&new).args(["-n"]).command(["echo", "ran"]).code(0).printed(&["ran"]);
}

#[test]
fn a_user_that_may_not_use_the_marker_is_refused_where_it_is_needed() {
    let (_primary, new) = promoted();
    let keys: Vec<String> = ["fence", "leases", "holders", "queue", "turns", "standby", "newest", "once"]
        .map(|kind| format!("~rlock:{kind}:{{job}}:job"))
        .into();
    let mut words = vec!["ACL", "SETUSER", "ci", "on", "nopass", "~job", "allchannels", "+@all"];
    words.extend(keys.iter().map(String::as_str));
    new.cli(&words);
    let node = format!("redis+unix://ci@{}", new.socket().display());
    let run = |guard: &str| rlock("job").node(&node).args(["-n", "--restart-guard", guard]).command(["echo", "ran"]);
    run("2s").code(77).printed(&[]).said(&["grant the line of rlock doctor --acl"]);
    run("off").code(0).silent().printed(&["ran"]);
}
