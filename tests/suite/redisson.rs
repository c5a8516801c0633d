//! rlock and Redisson on the same servers, which Redisson's own scripts stand for: no JVM is
//! needed.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{
    Cluster, Finished, Nodes, Rlock, Running, STEADY, Server, eventually, guard_of, rlock,
    rlock_words,
};

const CHANNEL: &str = "redisson_lock__channel:{job}";

/// A thread of Redisson's, as it names itself.
const THREAD: &str = "2d1e8a0c-6a51-4f6b-9a3e-0c7f6d1b2a34:57";

/// `tryLockInnerAsync` of `RedissonLock`, 3.45: nil, or the ms that the lock has left.
const LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
    return redis.call('pttl', KEYS[1]);";

/// `unlockInnerAsync` up to 3.24.
const UNLOCK: &str = "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end; \
    local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
    if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; \
    else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;";

/// The same of later versions, which note their reply at a latch.
const UNLOCK_WITH_LATCH: &str = "local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; \
    if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; \
    local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
    if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; \
    else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
    return 1; end;";

/// `renewExpirationAsync`, 3.45.
const RENEW: &str = "if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('pexpire', KEYS[1], ARGV[1]); \
    return 1; end; return 0;";

/// `tryLockInnerAsync` of `RedissonWriteLock`, 3.45.
const WRITE_LOCK: &str = "local mode = redis.call('hget', KEYS[1], 'mode'); if (mode == false) then \
    redis.call('hset', KEYS[1], 'mode', 'write'); redis.call('hset', KEYS[1], ARGV[2], 1); \
    redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
    if (mode == 'write') then if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); return nil; end; end; return redis.call('pttl', KEYS[1]);";

/// Whether a client of Redisson takes the lock with `script`.
fn takes(server: &Server, script: &str) -> bool {
    let told = server.cli(&["EVAL", script, "1", "job", "30000", THREAD]);
    assert!(
        told.is_empty() || told.parse::<u64>().is_ok_and(|left| left > 0),
        "{told}"
    );
    told.is_empty()
}

fn releases(server: &Server, script: &str) -> bool {
    let words = [
        "EVAL",
        script,
        "3",
        "job",
        CHANNEL,
        "redisson_unlock_latch:{job}:1",
        "0",
        "30000",
        THREAD,
        "publish",
        "9000",
    ];
    server.cli(&words) == "1"
}

fn ours(server: &Server) -> Rlock {
    rlock("job").on(server).args(["--as", "redisson"])
}

fn holder(server: &Server) -> Running {
    ours(server)
        .args(STEADY)
        .hold("echo ready; read line; true")
}

/// Listens as a client of Redisson does that waits, and returns what it hears first.
fn heard(server: &Server, during: impl FnOnce()) -> String {
    let mut connection = server.connect();
    let mut channel = connection.as_pubsub();
    channel.subscribe(CHANNEL).expect("a subscription");
    during();
    channel
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    channel
        .get_message()
        .expect("a word")
        .get_payload()
        .expect("a text")
}

#[test]
fn the_first_waiter_listens_for_the_unlock_of_either_version() {
    for unlock in [UNLOCK, UNLOCK_WITH_LATCH] {
        let server = Server::start();
        assert!(takes(&server, LOCK));
        let mut waiter = rlock("job")
            .on(&server)
            .args(["-v", "--", "echo", "mine"])
            .spawn();
        waiter.wait_until_told("held by a client that is not rlock: a hash");
        eventually("it listens", || {
            server.cli(&["PUBSUB", "NUMSUB", CHANNEL]).ends_with('1')
        });
        assert_eq!(
            server.cli(&["EVAL", RENEW, "1", "job", "30000", THREAD]),
            "1"
        );
        assert!(waiter.is_running() && releases(&server, unlock));
        waiter.finish().code(0).printed(&["mine"]);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn its_clients_respect_our_lock_and_are_told_of_its_end() {
    let server = Server::start();
    let holder = holder(&server);
    assert!(!takes(&server, LOCK) && !takes(&server, WRITE_LOCK) && !releases(&server, UNLOCK));
    assert!(!releases(&server, UNLOCK_WITH_LATCH));
    assert_eq!(
        server.cli(&["EVAL", RENEW, "1", "job", "30000", THREAD]),
        "0"
    );
    let shown = rlock_words(["inspect", "job"])
        .on(&server)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(shown.contains("sh") && shown.contains("1/1"), "{shown}");
    let asked = server.asked();
    eventually("it is renewed twice", || server.asked() > asked + 1);
    let word = heard(&server, || drop(holder.finish().code(0).silent()));
    assert_eq!(
        (word.as_str(), server.cli(&["EXISTS", "job"]).as_str()),
        ("0", "0")
    );
    assert!(takes(&server, LOCK));
    ours(&server)
        .args(["-n"])
        .command(["true"])
        .code(75)
        .said(&["busy", "a hash"]);
    assert!(releases(&server, UNLOCK));
}

#[test]
fn rlocks_wait_for_it_in_line_and_nested_runs_start_at_once() {
    let server = Server::start();
    let holder = holder(&server);
    let waiter = ours(&server).args(["--", "echo", "mine"]).spawn();
    eventually("it stands in line", || {
        server.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
    });
    assert_eq!(
        server.cli(&["PUBSUB", "NUMSUB", CHANNEL]).lines().last(),
        Some("0"),
        "an rlock tells it"
    );
    holder.finish().code(0);
    waiter.finish().code(0).printed(&["mine"]);
    let inner = format!("{} run -s -k job -- echo inner", crate::support::RLOCK);
    ours(&server).sh(&inner).code(0).printed(&["inner"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn the_guard_and_an_operator_end_it_as_any_lock_and_tell_its_clients() {
    let server = Server::start();
    let killed = holder(&server);
    let _guard = guard_of(killed.pid());
    assert_eq!(heard(&server, || killed.signal(Signal::SIGKILL)), "0");
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    for now in [false, true] {
        let broken = holder(&server);
        let options: &[&str] = if now { &["--yes", "--now"] } else { &["--yes"] };
        let breaks = || {
            drop(
                rlock_words(["break", "job"])
                    .args(options)
                    .on(&server)
                    .finish()
                    .code(0),
            );
        };
        assert_eq!(heard(&server, breaks), "0");
        broken.finish().code(79);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn the_steps_of_a_script_take_and_give_back_the_same_lock() {
    let server = Server::start();
    let acquire = || {
        rlock_words(["acquire", "--key", "job", "--as", "redisson"])
            .on(&server)
            .finish()
            .code(0)
    };
    let token = acquire().stdout.remove(0);
    for verb in ["check", "renew"] {
        rlock_words([verb, "--key", "job", "--token", &token])
            .on(&server)
            .finish()
            .code(0)
            .silent();
    }
    assert!(!takes(&server, LOCK));
    let release = || {
        drop(
            rlock_words(["release", "--key", "job", "--token", &token])
                .on(&server)
                .finish()
                .code(0),
        );
    };
    assert_eq!(heard(&server, release), "0");
    rlock_words(["release", "--key", "job", "--token", &token])
        .on(&server)
        .finish()
        .code(1);
    assert!(takes(&server, LOCK));
    rlock_words(["check", "--key", "job", "--token", &token])
        .on(&server)
        .finish()
        .code(1);
}

#[test]
fn a_lock_that_redisson_took_meanwhile_is_lost_and_not_touched() {
    let server = Server::start();
    let holder = holder(&server);
    server.cli(&["DEL", "job"]);
    assert!(takes(&server, LOCK));
    holder.finish().code(79).mentions(&["lost the lock"]);
    assert_eq!(server.cli(&["HGETALL", "job"]), format!("{THREAD}\n1"));
}

#[test]
fn in_a_cluster_its_end_is_told_on_the_channel_of_the_shard_too() {
    let server = Cluster::single(|port| vec!["--port".to_owned(), port.to_string()]);
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let run = || {
        rlock("job")
            .node(&url)
            .args(["--as", "redisson"])
            .command(["true"])
            .code(0)
            .silent()
    };
    run();
    let knows_shards = !server.cli(&["COMMAND", "INFO", "SPUBLISH"]).is_empty();
    let told = server.cli(&["INFO", "commandstats"]);
    let stats = told
        .lines()
        .find(|line| line.starts_with("cmdstat_spublish:calls=1,"));
    assert_eq!(
        stats.is_some_and(|line| line.contains("failed_calls=0")),
        knows_shards,
        "{told}"
    );
}

#[test]
fn a_node_that_forgot_it_is_healed_in_the_same_form() {
    let nodes = Nodes::start(3);
    let holder = rlock("job")
        .on_all(&nodes)
        .args(["--as", "redisson", "--ttl", "2s"])
        .hold("echo ready; read line; true");
    nodes[0].cli(&["DEL", "job"]);
    eventually("it is healed", || {
        nodes[0].cli(&["HGET", "job", "mode"]) == "rlock"
    });
    assert!(nodes.iter().all(|node| !takes(node, LOCK)));
    holder.finish().code(0);
    assert!(nodes.iter().all(|node| takes(node, LOCK)));
}

#[test]
fn what_it_cannot_be_combined_with_is_refused_before_a_server_is_asked() {
    let refused = |options: &[&str], word: &str| -> Finished {
        let run = rlock("job")
            .node("redis://127.0.0.1:1")
            .args(["--as", "redisson"])
            .args(options);
        run.command(["echo", "ran"])
            .code(64)
            .printed(&[])
            .said(&["--as redisson", word])
    };
    for options in [&["--shared"][..], &["--slots", "3"]] {
        refused(options, "exclusive");
    }
    for options in [
        &["--supersede"][..],
        &["--hold-at-least", "1m"],
        &["--lock-delay", "1m"],
        &["--once", "1h"],
    ] {
        refused(options, options[0]);
    }
    rlock("job")
        .node("local")
        .args(["--as", "redisson"])
        .command(["true"])
        .code(64)
        .said(&["--as redisson", "server"]);
}

#[test]
fn renew_sets_a_lock_again_in_the_form_that_it_had() {
    let nodes = Nodes::start(3);
    let token = rlock_words(["acquire", "-k", "job", "--as", "redisson"])
        .args(["--ttl", "1m", "--restart-guard", "off"])
        .node(&nodes.url())
        .finish()
        .code(0)
        .stdout
        .remove(0);
    let renew = || {
        let words = ["renew", "-k", "job", "--token", &token];
        drop(rlock_words(words).node(&nodes.url()).finish().code(0));
    };
    // Where the grant came late, it is set now.
    renew();
    nodes[1].cli(&["DEL", "job"]);
    renew();
    assert!(!takes(&nodes[1], LOCK));
    assert_eq!(nodes[1].cli(&["TYPE", "job"]), "hash");
}
