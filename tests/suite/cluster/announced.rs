//! Members that announce another address than that they listen on: a host name, or an address
//! before them that is translated.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{renewed, waiter};
use crate::support::{Cluster, Delay, Proxy, Server, eventually, rlock, rlock_words, skipped};

/// Waits until every member names `servers` by these addresses, replicas included.
fn announced(cluster: &Cluster, host: &str, ports: &[u16]) {
    for server in &cluster.servers {
        eventually("a member knows the announced addresses", || {
            let told = server.cli(&["CLUSTER", "SLOTS"]);
            let lines: Vec<&str> = told.lines().collect();
            let is_named = |port: &u16| {
                lines
                    .windows(2)
                    .any(|pair| pair[0] == host && pair[1] == port.to_string())
            };
            ports.iter().all(is_named)
        });
    }
}

/// Holds a lock and waits for it while its slot moves and its primary fails over. Each member is
/// named by `host` and its port.
fn is_followed(cluster: &Cluster, host: &str, ports: &[u16]) {
    let url = format!("redis-cluster://{host}:{}", ports[0]);
    let held = rlock("job")
        .node(&url)
        .args(["--ttl", "10s"])
        .hold("echo ready; read line; true");
    let owner = cluster.owner("job");
    let shown = rlock_words(["inspect", "job"])
        .node(&url)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(
        shown.contains(&format!("primary {host}:{}", ports[owner])),
        "{shown}"
    );
    let waiting = waiter(&url, &cluster.servers[owner], 1);
    let to = cluster.other_than(owner);
    let moved = cluster.move_slot("job", to);
    moved.rest();
    moved.end();
    renewed(&cluster.servers[to]);
    let heir = cluster.fail_over(to);
    renewed(&cluster.servers[heir]);
    held.finish().code(0).silent();
    waiting.finish().code(0).printed(&["1"]);
    let told = rlock_words(["doctor", "--key", "job", "--ttl", "30s"])
        .node(&url)
        .finish()
        .stdout
        .join("\n");
    assert!(
        told.contains(&format!("primary {host}:{}", ports[heir])),
        "{told}"
    );
    assert!(
        cluster
            .servers
            .iter()
            .all(|server| !server.cli(&["KEYS", "*"]).lines().any(|key| key == "job"))
    );
}

#[test]
fn members_are_reached_by_the_host_names_that_they_prefer() {
    let cluster = Cluster::start(2, true);
    if !cluster.servers[0].knows("cluster-announce-hostname") {
        return;
    }
    for server in &cluster.servers {
        assert_eq!(
            server.cli(&["CONFIG", "SET", "cluster-announce-hostname", "localhost"]),
            "OK"
        );
        assert_eq!(
            server.cli(&[
                "CONFIG",
                "SET",
                "cluster-preferred-endpoint-type",
                "hostname"
            ]),
            "OK"
        );
    }
    let ports: Vec<u16> = cluster.servers.iter().map(Server::port).collect();
    announced(&cluster, "localhost", &ports);
    is_followed(&cluster, "localhost", &ports);
}

#[test]
fn members_are_reached_by_the_address_before_them_that_they_announce() {
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    let cluster = Cluster::start(2, true);
    if cluster.servers[0]
        .cli(&["INFO", "server"])
        .contains("redis_version:6.")
    {
        return skipped("a member of Redis 6 does not announce a port that CONFIG SET changed");
    }
    let at_once = |_| [(); 2].map(|()| Box::new(|| Duration::ZERO) as Delay);
    let translated =
        |server: &Server| Proxy::open(OUTSIDE, server.port(), at_once).expect("a proxy");
    let ports: Vec<u16> = cluster
        .servers
        .iter()
        .map(|server| translated(server).port())
        .collect();
    for (server, port) in cluster.servers.iter().zip(&ports) {
        assert_eq!(
            server.cli(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]),
            "OK"
        );
        assert_eq!(
            server.cli(&["CONFIG", "SET", "cluster-announce-ip", &OUTSIDE.to_string()]),
            "OK"
        );
    }
    announced(&cluster, &OUTSIDE.to_string(), &ports);
    cluster.settled();
    is_followed(&cluster, &OUTSIDE.to_string(), &ports);
}
