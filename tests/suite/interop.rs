//! rlock and clients of other projects on the same servers: each excludes the other, and neither
//! releases a lock of the other. The clients are in `tests/interop`.

use nix::sys::signal::Signal;

use crate::support::{Client, Nodes, Rlock, eventually, rlock};

/// pottery puts the first part before every key; the others take it as it is.
const KEY: &str = "redlock:job";

const COMMAND: &str = "echo ready; read line; true";

/// An exclusive lock, a shared one and one with slots. Of the others other clients see a marker.
const KINDS: &[&[&str]] = &[&[], &["-s"], &["--slots", "2"]];

fn ours(nodes: &Nodes) -> Rlock {
    rlock(KEY).on_all(nodes)
}

/// Waits until the values at the key are right on all nodes, and returns them. A Redlock client
/// returns once it has a majority, while its requests to the other nodes may still be on their way.
fn votes(nodes: &Nodes, what: &str, are_right: impl Fn(&str) -> bool) -> Vec<String> {
    let mut values = Vec::new();
    eventually(what, || {
        values = nodes.cli(&["GET", KEY]);
        values.iter().all(|value| are_right(value))
    });
    values
}

fn nothing_is_left(nodes: &Nodes) {
    votes(nodes, "no key is left", str::is_empty);
}

fn a_lock_of_theirs_is_busy_until_they_release_it(library: &str, count: usize) {
    let nodes = Nodes::tcp(count);
    let Some(mut client) = Client::start(library, &nodes) else {
        return;
    };
    assert!(client.acquires(KEY, 60_000));
    for options in KINDS {
        let busy = ours(&nodes)
            .args(*options)
            .args(["-n"])
            .sh("echo ran")
            .code(75);
        busy.printed(&[])
            .said(&["busy", "not rlock", "lease ends in"]);
    }
    let mut waiter = ours(&nodes).args(["-v", "--", "echo", "mine"]).spawn();
    waiter.wait_until_told("waiting: held by");
    assert!(waiter.is_running());
    client.releases();
    waiter.wait_for("mine");
    waiter.finish().code(0).mentions(&["acquired"]);
    nothing_is_left(&nodes);
}

fn a_lock_of_ours_is_refused_to_them_until_we_release_it(library: &str, count: usize) {
    let nodes = Nodes::tcp(count);
    let Some(mut client) = Client::start(library, &nodes) else {
        return;
    };
    for options in KINDS {
        let holder = ours(&nodes).args(*options).hold(COMMAND);
        let values = votes(&nodes, "all have it", |value| !value.is_empty());
        assert!(!client.acquires(KEY, 60_000), "{options:?}");
        assert_eq!(nodes.cli(&["GET", KEY]), values);
        holder.finish().code(0).silent();
        assert!(client.acquires(KEY, 60_000));
        client.releases();
        nothing_is_left(&nodes);
    }
}

fn their_late_release_leaves_our_lock_alone(library: &str, count: usize) {
    let nodes = Nodes::tcp(count);
    let Some(mut client) = Client::start(library, &nodes) else {
        return;
    };
    assert!(client.acquires(KEY, 1000));
    let holder = ours(&nodes).hold(COMMAND);
    let values = votes(&nodes, "all have it", |value| value.contains("\"pid\":"));
    client.fails_to_release();
    assert_eq!(nodes.cli(&["GET", KEY]), values);
    holder.finish().code(0).silent();
    nothing_is_left(&nodes);
}

fn a_lock_that_we_lost_to_them_is_not_touched(library: &str, count: usize) {
    let nodes = Nodes::tcp(count);
    let Some(mut client) = Client::start(library, &nodes) else {
        return;
    };
    let holder = ours(&nodes).args(["--ttl", "1s"]).hold(COMMAND);
    holder.signal(Signal::SIGSTOP);
    eventually("it passes on", || client.acquires(KEY, 60_000));
    // A majority is enough for them; the keys of rlock on the other nodes expire.
    let values = votes(&nodes, "none is ours", |value| !value.contains("\"pid\":"));
    assert!(
        values.iter().filter(|value| !value.is_empty()).count() > count / 2,
        "{values:?}"
    );
    holder.signal(Signal::SIGCONT);
    holder.finish().code(79).printed(&["ready"]);
    // Their requests to the other nodes may have come after the majority's.
    let after = nodes.cli(&["GET", KEY]);
    for (before, after) in values.iter().zip(&after) {
        let is_theirs = !after.contains("\"pid\":");
        assert!(
            is_theirs && (before.is_empty() || before == after),
            "{before} {after}"
        );
    }
    client.releases();
    nothing_is_left(&nodes);
}

macro_rules! interoperate {
    ($($client:ident is $library:literal on $($nodes:ident $count:literal),+;)*) => {$(
        mod $client {$(
            mod $nodes {
                interoperate!(fact $library $count a_lock_of_theirs_is_busy_until_they_release_it);
                interoperate!(fact $library $count a_lock_of_ours_is_refused_to_them_until_we_release_it);
                interoperate!(fact $library $count their_late_release_leaves_our_lock_alone);
                interoperate!(fact $library $count a_lock_that_we_lost_to_them_is_not_touched);
            }
        )+}
    )*};
    (fact $library:literal $count:literal $fact:ident) => {
        #[test]
        fn $fact() {
            crate::interop::$fact($library, $count);
        }
    };
}

interoperate! {
    redis_py is "redis-py" on one_node 1;
    pottery is "pottery" on one_node 1, five_nodes 5;
    redlock_py is "redlock-py" on one_node 1, five_nodes 5;
    node_redlock is "node-redlock" on one_node 1, five_nodes 5;
    rslock is "rslock" on one_node 1, five_nodes 5;
}
