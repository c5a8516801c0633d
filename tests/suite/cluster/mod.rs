//! Nodes that are a cluster: `redis-cluster://`. What a failover does is in `cluster/failovers.rs`,
//! what a slot that moves does in `cluster/moves.rs`, and what members announce in
//! `cluster/announced.rs`.

mod announced;
mod failovers;
mod moves;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::doctor::granted;
use crate::support::{
    Certificates, Cluster, Finished, NODE_TIMEOUT, Running, STEADY, Server, Shared, eventually,
    rlock, rlock_words,
};

/// Time after which the members of the shared cluster take a silent one for dead. A machine that is busy
/// lets one stand still for some seconds, and a failover amid a slot's move loses the slot's keys.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lets `test` have a cluster of three primaries with a replica each, without keys, for itself.
fn with_cluster(test: impl FnOnce(&mut Cluster)) {
    static SHARED: Shared<Cluster> = Shared::new();
    SHARED.with(
        || Cluster::start(3, true),
        |cluster| {
            cluster.empty();
            cluster.takes_for_dead_after(PATIENCE);
            test(cluster);
            cluster.takes_for_dead_after(NODE_TIMEOUT);
            cluster.settled();
        },
    );
}

/// Acquires the lock `key`, and returns the token.
fn acquired(url: &str, key: &str) -> String {
    rlock_words(["acquire", "--key", key, "--ttl", "1m"])
        .node(url)
        .finish()
        .code(0)
        .silent()
        .stdout
        .remove(0)
}

fn with_token(verb: &str, url: &str, key: &str, token: &str) -> Finished {
    rlock_words([verb, "--key", key, "--token", token, "--node-timeout", "1s"])
        .node(url)
        .finish()
}

/// Waits until a lock is extended at `server`.
#[track_caller]
fn renewed(server: &Server) {
    let before = server.calls("pexpire");
    eventually("it is renewed there", || server.calls("pexpire") > before);
}

#[test]
fn every_command_works_in_a_cluster_and_names_the_primary() {
    with_cluster(|cluster| {
        // Any member tells the way to any slot. These three have a primary each.
        for member in 0..cluster.servers.len() {
            let url = cluster.url_of(&[member]);
            let told = rlock_words(["run", "-k", "a,b,c"])
                .node(&url)
                .command(["echo", "ran"])
                .code(0)
                .silent();
            told.printed(&["ran"]);
        }
        let url = cluster.url_of(&[0]);
        let owner = &cluster.servers[cluster.owner("job")];
        let holder = rlock("job")
            .node(&url)
            .args(STEADY)
            .hold("echo ready; read line; true");
        assert_eq!(owner.token().len(), 36);
        let named = format!("{url}: primary 127.0.0.1:{}", owner.port());
        let shown = rlock_words(["inspect", "job"])
            .node(&url)
            .finish()
            .code(0)
            .stdout
            .join("\n");
        assert!(shown.contains(&named), "{shown}");
        let others = ["a", "b", "c"].map(|key| (key, acquired(&url, key)));
        let shown = rlock_words(["inspect"])
            .node(&url)
            .finish()
            .code(0)
            .silent()
            .stdout
            .join("\n");
        assert!(
            ["a", "b", "c", "job"].iter().all(|key| shown
                .lines()
                .any(|line| line.starts_with(&format!("{key} ")))),
            "{shown}"
        );
        let shown = rlock_words(["inspect", "job", "--json"])
            .node(&url)
            .finish()
            .code(0)
            .stdout
            .join("\n");
        assert!(
            shown.contains(&format!("\"primary\":\"127.0.0.1:{}\"", owner.port())),
            "{shown}"
        );
        rlock_words(["break", "job", "--yes"])
            .node(&url)
            .finish()
            .code(0);
        holder.finish().code(79);
        for (key, token) in others {
            for verb in ["check", "renew", "release"] {
                with_token(verb, &url, key, &token).code(0).silent();
            }
        }
        cluster.takes_for_dead_after(NODE_TIMEOUT);
        let told = rlock_words(["doctor", "--key", "job"])
            .node(&url)
            .finish()
            .stdout
            .join("\n");
        assert!(
            told.contains(&named) && !told.contains("failover takes"),
            "{told}"
        );
        let told = rlock_words(["doctor", "--ttl", "3s"])
            .node(&url)
            .finish()
            .code(1)
            .stdout
            .join("\n");
        assert!(
            told.contains("a failover takes 2s 200ms (cluster-node-timeout 1000)"),
            "{told}"
        );
    });
}

#[test]
fn a_user_with_the_rights_of_doctors_line_follows_a_slot() {
    with_cluster(|cluster| {
        let line = granted(&cluster.url());
        for server in &cluster.servers {
            assert_eq!(
                server.cli(&line.iter().map(String::as_str).collect::<Vec<_>>()),
                "OK"
            );
            server.cli(&["ACL", "LOG", "RESET"]);
        }
        let url = cluster.url().replace("://", "://rlock@");
        let job = rlock("job")
            .node(&url)
            .env("RLOCK_PASSWORD", "pw")
            .args(STEADY);
        let holder = job.hold("echo ready; read line; true");
        let moved = cluster.move_slot("job", cluster.other_than(cluster.owner("job")));
        moved.key("job");
        renewed(moved.target());
        moved.rest();
        moved.end();
        holder.finish().code(0).silent();
        rlock_words(["inspect"])
            .node(&url)
            .env("RLOCK_PASSWORD", "pw")
            .finish()
            .code(0)
            .silent();
        for server in &cluster.servers {
            let log = server.cli(&["ACL", "LOG"]);
            assert!(
                log.is_empty(),
                "every right that rlock uses is granted: {log}"
            );
            server.cli(&["ACL", "DELUSER", "rlock"]);
        }
    });
}

#[test]
fn tls_reaches_the_members() {
    if !Server::start().knows("tls-port") {
        return;
    }
    let certificates = Certificates::for_name("127.0.0.1");
    let server = Cluster::single(|port| {
        [
            certificates.options(port),
            vec!["--tls-cluster".into(), "yes".into()],
        ]
        .concat()
    });
    let url = format!("rediss-cluster://127.0.0.1:{}", server.port());
    let ca = certificates.file("ca.pem");
    let ca = ca.to_str().expect("a name");
    let run = || rlock("job").node(&url).args(["-n"]);
    run()
        .args(["--ca", ca])
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
    run()
        .command(["echo", "ran"])
        .printed(&[])
        .code(77)
        .said(&["certificate", "--ca"]);
}

#[test]
fn what_is_wrong_with_an_address_is_said_in_one_line_and_nothing_is_changed() {
    let (server, cluster) = (Server::tcp(&[]), Cluster::start(2, false));
    let refused = |url: &str, code: i32, words: &[&str]| {
        rlock("job")
            .node(url)
            .args(["-n"])
            .command(["echo", "ran"])
            .code(code)
            .printed(&[])
            .said(words);
    };
    let wrong = server.tcp_url().replace("redis://", "redis-cluster://");
    refused(&wrong, 78, &["it is in no cluster; write redis://"]);
    refused(&(cluster.url() + "/3"), 78, &["database 0 only"]);
    let twice = format!("{},{}", cluster.url_of(&[0]), cluster.url_of(&[1]));
    refused(&twice, 78, &["is the same server as"]);
    refused(&format!("{0},{0}", cluster.url()), 78, &["twice"]);
    let elsewhere = &cluster.servers[1 - cluster.owner("job")];
    refused(
        &elsewhere.tcp_url(),
        78,
        &["it is part of a cluster; write redis-cluster://"],
    );
    rlock_words(["inspect", "job"])
        .node(&elsewhere.tcp_url())
        .finish()
        .code(78)
        .said(&["write redis-cluster://"]);
    let told = rlock_words(["doctor", "--key", "job"])
        .node(&elsewhere.tcp_url())
        .finish()
        .code(78)
        .stdout
        .join("\n");
    assert!(told.contains("write redis-cluster://"), "{told}");
    for server in cluster.servers.iter().chain([&server]) {
        assert_eq!(server.cli(&["DBSIZE"]), "0");
    }
    // A slot that no server serves is a missing vote.
    let slot = cluster.slot("job");
    let mut holder = rlock("job")
        .node(&cluster.url())
        .args(["--ttl", "2s"])
        .hold("echo ready; exec sleep 30");
    for server in &cluster.servers {
        server.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        server.cli(&["CLUSTER", "DELSLOTS", &slot]);
    }
    holder.wait_until_told("slot");
    holder.finish().code(79);
    let told = rlock("job")
        .node(&cluster.url())
        .args(["--wait", "1"])
        .command(["true"])
        .code(69);
    told.said(&["slot"]);
}

/// Starts a waiter that prints its number, and waits until it stands in line.
fn waiter(url: &str, owner: &Server, number: usize) -> Running {
    let waiter = rlock("job")
        .node(url)
        .args(["--ttl", "10s", "--", "echo", &number.to_string()])
        .spawn();
    eventually("it stands in line", || {
        owner.cli(&["ZCARD", "rlock:queue:{job}:job"]) == number.to_string()
    });
    waiter
}

/// Starts a server that tells a map in which it has all slots, and sends each request on to
/// `stranger`.
fn liar(stranger: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a stream");
                let mut words = Vec::new();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    words.push(line);
                    let told = match words.last().map_or("", String::as_str) {
                        "SLOTS" => format!(
                            "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"
                        ),
                        "EVALSHA" => format!("-MOVED 1 127.0.0.1:{stranger}\r\n"),
                        "HELLO" => "-ERR unknown command 'HELLO'\r\n".to_owned(),
                        "NODES" => "$0\r\n\r\n".to_owned(),
                        _ => continue,
                    };
                    if writer.write_all(told.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn a_member_cannot_lead_out_of_the_cluster() {
    let stranger = Server::tcp(&[]);
    let url = format!("redis-cluster://127.0.0.1:{}", liar(stranger.port()));
    let told = rlock("job")
        .node(&url)
        .args(["--wait", "1"])
        .command(["true"])
        .code(69);
    told.said(&["the cluster is moving the lock's slot"]);
    assert_eq!(
        (stranger.asked(), stranger.cli(&["DBSIZE"]).as_str()),
        (0, "0")
    );
}
