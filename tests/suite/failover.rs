//! Failover: a primary is demoted, and its address then leads to the promoted server. No connection
//! is closed.

use std::time::{Duration, Instant};

use crate::support::{Alias, Rlock, STEADY, Server, eventually, rlock};

const QUEUE: &str = "rlock:queue:{job}:job";

/// A primary with a replica that has caught up, and an address that leads to the primary.
struct Pair {
    old: Server,
    new: Server,
    alias: Alias,
}

impl Pair {
    fn start() -> Self {
        let (old, new) = (
            Server::tcp(&["--repl-diskless-sync-delay", "0"]),
            Server::tcp(&[]),
        );
        new.cli(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        eventually("it replicates", || {
            new.cli(&["INFO", "replication"])
                .contains("master_link_status:up")
        });
        let alias = Alias::of(&old);
        Self { old, new, alias }
    }

    fn job(&self) -> Rlock {
        rlock("job").node(&self.alias.url)
    }

    /// Waits until the replica has all data of the primary.
    fn catch_up(&self) {
        let offset = |server: &Server| {
            let told = server.cli(&["INFO", "replication"]);
            told.lines()
                .find_map(|line| line.strip_prefix("master_repl_offset:").map(str::to_owned))
                .expect("an offset")
        };
        eventually("it has caught up", || {
            offset(&self.new) == offset(&self.old)
        });
    }

    /// Swaps the roles of the two servers, and moves the address to the new primary.
    fn fail_over(&self) {
        self.catch_up();
        self.new.cli(&["REPLICAOF", "NO", "ONE"]);
        self.old
            .cli(&["REPLICAOF", "127.0.0.1", &self.new.port().to_string()]);
        self.alias.move_to(&self.new);
    }
}

#[test]
fn a_waiter_whose_primary_is_demoted_gets_the_lock_on_the_new_one() {
    let pair = Pair::start();
    pair.old.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let mut waiter = pair.job().args(["-v", "--", "echo", "ran"]).spawn();
    waiter.wait_until_told("READONLY");
    pair.new.cli(&["REPLICAOF", "NO", "ONE"]);
    pair.alias.move_to(&pair.new);
    let begin = Instant::now();
    waiter.finish().code(0).printed(&["ran"]);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    assert!(pair.new.asked() >= 2 && pair.new.cli(&["EXISTS", "job"]) == "0");
}

/// The demoted server still shows the holder, which renews on the new primary.
#[test]
fn a_waiter_in_line_stands_in_line_on_the_new_primary_before_the_lock_is_free() {
    let pair = Pair::start();
    let holder = pair.job().args(STEADY).hold("echo ready; read line; true");
    let waiter = pair.job().args(STEADY).args(["--", "echo", "ran"]).spawn();
    eventually("it stands in line", || {
        pair.old.cli(&["ZCARD", QUEUE]) == "1"
    });
    pair.fail_over();
    eventually("it listens there", || {
        pair.new
            .cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"])
            .lines()
            .count()
            == 1
    });
    assert_eq!(pair.new.cli(&["ZCARD", QUEUE]), "1");
    holder.finish().code(0);
    let begin = Instant::now();
    waiter
        .finish()
        .code(0)
        .printed(&["ran"])
        .never_said("place in the queue");
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(pair.new.cli(&["EXISTS", "job", QUEUE]), "0");
}

#[test]
fn a_holder_renews_on_the_new_primary_and_its_command_is_not_disturbed() {
    let pair = Pair::start();
    let holder = pair
        .job()
        .args(STEADY)
        .hold("echo ready; read line; echo done");
    pair.fail_over();
    // With one renewal in two seconds, the last of these comes after the end of the lease that the old
    // primary granted.
    pair.new.wait_until_asked(4);
    holder.finish().code(0).silent().printed(&["ready", "done"]);
    assert_eq!(pair.new.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_lock_is_released_on_the_new_primary_though_it_was_never_renewed_there() {
    let pair = Pair::start();
    let holder = pair
        .job()
        .args(["--ttl", "60s"])
        .hold("echo ready; read line; true");
    pair.fail_over();
    holder.finish().code(0).silent();
    assert_eq!(pair.new.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_server_that_stays_a_replica_costs_one_connection_for_each_try() {
    let server = Server::tcp(&[]);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let alias = Alias::of(&server);
    rlock("job")
        .node(&alias.url)
        .args(["--wait", "2", "-q"])
        .command(["true"])
        .code(69)
        .said(&["READONLY", "name the primary"]);
    let (opened, asked) = (alias.opened(), server.asked());
    // The end of the wait may cut the last try short.
    assert!(
        u64::try_from(opened).expect("a number") <= asked + 1,
        "{opened} connections for {asked} tries"
    );
    // The shortest pause is an eighth of a second, and each is twice as long as the one before it.
    assert!((3..=8).contains(&opened), "{opened} connections");
}
