//! The set of nodes: they must be independent, and the same for all clients.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Nodes, Server, eventually, rlock, slow};

/// Options with a node timeout that is long enough on a busy machine.
const PATIENT: [&str; 4] = ["--ttl", "2m", "--node-timeout", "10s"];

/// Runs on these addresses. The last of them answers so late that the replies of the others are in
/// before it decides.
fn refused(addresses: &[&str], words: &[&str]) {
    let urls = addresses.join(",");
    let run = rlock("job")
        .node(&urls)
        .args(PATIENT)
        .args(["--restart-guard", "off", "-n"])
        .command(["echo", "ran"]);
    run.code(78)
        .printed(&[])
        .said(&["job", "nodes must be independent"])
        .mentions(words);
}

fn late(server: &Server) -> String {
    slow(server, Duration::from_millis(150))
}

#[test]
fn a_server_under_two_names_is_no_two_nodes() {
    let nodes = Nodes::tcp(2);
    let (socket, port) = (nodes[0].url(), nodes[0].tcp_url());
    refused(
        &[&socket, &port, &late(&nodes[1])],
        &[&socket, &port, "is the same server as"],
    );
    refused(
        &[&socket, &port],
        &[&socket, &port, "is the same server as"],
    );
    nodes.become_clean();
    // The same address twice is found without a request.
    rlock("job")
        .node(&[port.as_str(); 2].join(","))
        .command(["true"])
        .code(78)
        .said(&[&port, "twice"]);
}

#[test]
fn a_server_that_does_not_say_what_it_is_gives_itself_away_by_the_token() {
    let nodes = Nodes::tcp(1);
    // In about half of the runs the refusal arrives before the grant that caused it.
    let names = [1, 60].map(|delay| slow(&nodes[0], Duration::from_millis(delay)));
    (0..6).for_each(|_| refused(&[&names[0], &names[1]], &[&names[0]]));
    nodes.cli(&[
        "ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "-info",
    ]);
    let names = [nodes[0].tcp_url(), names[0].clone()].map(|url| url.replace("://", "://mute@"));
    let run = rlock("job")
        .node(&names.join(","))
        .args(PATIENT)
        .args(["-n"])
        .command(["echo", "ran"]);
    let run = run.code(78).printed(&[]);
    run.mentions(&["it has the token", "nodes must be independent"]);
}

/// Makes `replica` a replica of `primary`, and waits until it is.
fn follow(replica: &Server, primary: &Server) {
    primary.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("it follows", || {
        replica
            .cli(&["INFO", "replication"])
            .contains("master_link_status:up")
    });
}

#[test]
fn a_replica_of_another_node_is_no_node_of_its_own() {
    let nodes = Nodes::tcp(3);
    follow(&nodes[1], &nodes[0]);
    refused(
        &[&nodes[0].url(), &nodes[1].url(), &late(&nodes[2])],
        &[&nodes[0].url(), &nodes[1].url(), "replica"],
    );
    eventually("what was granted is given back", || {
        nodes[0].cli(&["EXISTS", "job"]) == "0"
    });
    // With these two alone the replica's vote decides before the other server has said what it is.
    // On a busy machine the 5 ms may be more than rlock waits.
    let pair = [slow(&nodes[0], Duration::from_millis(5)), nodes[1].url()].join(",");
    let run = || {
        rlock("job")
            .node(&pair)
            .args(["--restart-guard", "off", "-n"])
            .command(["echo", "ran"])
            .printed(&[])
    };
    assert!((0..10).any(|_| run().exited_with(78)));
}

#[test]
fn a_replica_of_a_stranger_is_a_missing_vote() {
    let (nodes, stranger) = (Nodes::tcp(3), Server::tcp(&[]));
    follow(&nodes[1], &stranger);
    rlock("job")
        .on_all(&nodes)
        .args(["-n"])
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
    nodes.are_clean();
}

#[test]
fn a_holder_with_another_number_of_nodes_is_a_mistake_in_the_configuration() {
    let nodes = Nodes::start(5);
    let urls: Vec<String> = nodes.iter().map(Server::url).collect();
    let on = |nodes: &[String]| {
        rlock("job")
            .node(&nodes.join(","))
            .args(["--restart-guard", "off"])
    };
    let three = on(&urls[..3])
        .stdin(Stdio::piped())
        .hold("echo ready; read line; true");
    eventually("all three have it", || {
        !nodes[..3]
            .iter()
            .any(|node| node.cli(&["GET", "job"]).is_empty())
    });
    for (set, ours) in [(&urls[..1], "we have 1:"), (&urls[..], "we have 5:")] {
        for wait in [&["-n"][..], &[]] {
            let run = on(set)
                .args(wait)
                .command(["echo", "ran"])
                .code(78)
                .printed(&[]);
            run.said(&[
                "held by tester@",
                "with 3 nodes",
                ours,
                "same list everywhere",
            ]);
        }
    }
    three.finish().code(0).silent();
    let one = on(&urls[..1])
        .stdin(Stdio::piped())
        .hold("echo ready; read line; true");
    on(&urls[..2])
        .command(["echo", "ran"])
        .code(78)
        .printed(&[])
        .said(&["with 1 node; we have 2:"]);
    one.finish().code(0).silent();
    nodes.become_clean();
}
