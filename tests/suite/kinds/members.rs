//! Members as they are stored, and the rules by which they begin and end.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{
    HOLDERS, LEASES, SHARED, SLOTS, all_end, every_key_ends, hold, is_busy_for, job,
    nothing_is_left, queued,
};
use crate::support::{Nodes, STEADY, Server, eventually, guard_of, side_by_side};

fn number(nodes: &Nodes, command: &[&str]) -> i64 {
    nodes[0]
        .cli(command)
        .parse()
        .unwrap_or_else(|_| panic!("{command:?}"))
}

#[test]
fn a_marker_stands_at_the_key_and_each_member_has_a_lease_and_an_entry() {
    let nodes = Nodes::start(1);
    let readers = [hold(&nodes, SHARED), hold(&nodes, &["-s", "--ttl", "50s"])];
    assert_eq!(nodes[0].cli(&["GET", "job"]), "rlock s n=1 ttl=50000");
    assert_eq!(
        (
            number(&nodes, &["ZCARD", LEASES]),
            number(&nodes, &["HLEN", HOLDERS])
        ),
        (2, 2)
    );
    every_key_ends(&nodes[0]);
    all_end(readers, 0);
    let slot = hold(&nodes, SLOTS);
    assert_eq!(nodes[0].cli(&["GET", "job"]), "rlock k2 n=1 ttl=30000");
    assert_eq!(
        (
            number(&nodes, &["ZCARD", LEASES]),
            number(&nodes, &["HLEN", HOLDERS])
        ),
        (1, 2)
    );
    slot.finish().code(0);
    nothing_is_left(&nodes);
}

#[test]
fn the_key_ends_with_its_last_member_whichever_that_is() {
    let nodes = Nodes::start(1);
    let short = hold(&nodes, &["-s", "--ttl", "5s"]);
    let long = hold(&nodes, &["-s", "--ttl", "1m"]);
    assert!(number(&nodes, &["PTTL", "job"]) > 30_000);
    long.finish().code(0).silent();
    let left = number(&nodes, &["PTTL", "job"]);
    assert!((1..=5000).contains(&left), "{left}");
    short.finish().code(0).silent();
    nothing_is_left(&nodes);
}

#[test]
fn a_member_that_is_killed_is_over_with_its_lease_and_shortens_no_others() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let killed = hold(&nodes, &["--slots", "2", "--ttl", "3s"]);
        let other = hold(&nodes, &["--slots", "2", "--ttl", "1m"]);
        let waiter = queued(&nodes, SLOTS, "waiter");
        // Without the guard nothing gives the slot back.
        crate::support::signal(guard_of(killed.pid()), Signal::SIGKILL);
        killed.signal(Signal::SIGKILL);
        let begin = Instant::now();
        waiter.finish().code(0).silent();
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        other.finish().code(0).silent();
        nothing_is_left(&nodes);
    }
}

#[test]
fn a_killed_rlocks_guard_gives_its_place_back() {
    for options in [SHARED, SLOTS] {
        for count in [1, 3] {
            let nodes = Nodes::start(count);
            let other = hold(&nodes, options);
            let killed = hold(&nodes, options);
            killed.signal(Signal::SIGKILL);
            for node in nodes.iter() {
                eventually("its place is given back", || {
                    node.cli(&["ZCARD", LEASES]) == "1"
                });
            }
            other.finish().code(0).silent();
            nothing_is_left(&nodes);
        }
    }
}

#[test]
fn members_of_before_a_deletion_are_void_when_others_come() {
    let nodes = Nodes::start(1);
    let lost = hold(&nodes, &["-s", "--ttl", "3s"]);
    nodes[0].cli(&["DEL", "job"]);
    let next = hold(&nodes, SHARED);
    assert_eq!(number(&nodes, &["ZCARD", LEASES]), 1);
    lost.finish().code(79);
    assert_eq!(
        number(&nodes, &["ZCARD", LEASES]),
        1,
        "a release of the first changes nothing"
    );
    next.finish().code(0).silent();
    nothing_is_left(&nodes);
}

#[test]
fn a_reader_whose_key_is_deleted_is_stopped() {
    let nodes = Nodes::start(1);
    let reader = job(&nodes, &["-s", "--ttl", "2s"]).hold("echo ready; exec sleep 60");
    nodes[0].cli(&["DEL", "job"]);
    reader.finish().code(79).said(&["lost the lock"]);
}

#[test]
fn none_joins_members_of_whom_a_part_was_evicted() {
    for (options, evicted) in [
        (SHARED, LEASES),
        (SHARED, HOLDERS),
        (SLOTS, LEASES),
        (SLOTS, HOLDERS),
    ] {
        let nodes = Nodes::start(1);
        let holder = hold(&nodes, options);
        nodes[0].cli(&["DEL", evicted]);
        for other in [SHARED, SLOTS, &[]] {
            is_busy_for(&nodes, other);
        }
        assert_eq!(nodes[0].cli(&["EXISTS", "job"]), "1");
        every_key_ends(&nodes[0]);
        holder.finish();
    }
}

#[test]
fn a_derived_key_of_another_type_is_an_unfit_node() {
    for (key, command) in [(LEASES, "HSET"), (HOLDERS, "RPUSH")] {
        let nodes = Nodes::start(1);
        let words = if command == "HSET" {
            vec![command, key, "a", "b"]
        } else {
            vec![command, key, "a"]
        };
        let _holder = hold(&nodes, SHARED);
        nodes[0].cli(&["DEL", key]);
        nodes[0].cli(&words);
        job(&nodes, SHARED)
            .args(["-n"])
            .sh("echo ran")
            .code(78)
            .printed(&[]);
    }
}

#[test]
fn members_of_another_number_of_nodes_are_met_with_78() {
    let nodes = Nodes::start(3);
    let _reader = hold(&nodes, SHARED);
    crate::support::rlock("job")
        .node(&nodes[0].url())
        .args(["-s", "-n"])
        .command(["true"])
        .code(78)
        .said(&["nodes"]);
}

#[test]
fn members_are_renewed() {
    side_by_side([SHARED, SLOTS], |options| {
        let nodes = Nodes::start(3);
        let options = [options, &STEADY].concat();
        let holder = hold(&nodes, &options);
        let ends = |node: &Server| node.cli(&["ZRANGE", LEASES, "0", "0", "WITHSCORES"]);
        let before: Vec<String> = nodes.iter().map(ends).collect();
        for (node, before) in nodes.iter().zip(before) {
            eventually("its lease is extended", || ends(node) != before);
        }
        holder.finish().code(0).silent();
        nothing_is_left(&nodes);
    });
}

#[test]
fn a_server_without_memory_renews_members_and_lets_none_in() {
    for options in [SHARED, SLOTS] {
        let nodes = Nodes::start(1);
        let holder = hold(&nodes, &[options, &STEADY].concat());
        nodes[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let end = || nodes[0].cli(&["ZRANGE", LEASES, "0", "0", "WITHSCORES"]);
        for _ in 0..2 {
            let before = end();
            eventually("its lease is extended", || end() != before);
        }
        job(&nodes, options)
            .args(["-n"])
            .sh("echo ran")
            .code(69)
            .printed(&[]);
        holder.finish().code(0).silent();
        nodes[0].cli(&["CONFIG", "SET", "maxmemory", "0"]);
        nothing_is_left(&nodes);
    }
}

#[test]
fn the_rights_that_doctor_prints_are_enough_for_members() {
    let server = crate::support::Server::tcp(&[]);
    let shown = crate::support::rlock_words(["doctor", "-k", "job", "--json"])
        .on(&server)
        .finish()
        .stdout
        .concat();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let line = shown["acl"]
        .as_str()
        .expect("a line")
        .replace("{>PASSWORD}", ">secret");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(server.cli(&words), "OK");
    let url = format!("redis://{}:secret@127.0.0.1:{}", words[2], server.port());
    let run = |options: &[&str]| crate::support::rlock("job").node(&url).args(options);
    for options in [SHARED, SLOTS] {
        let holder = run(options).hold("echo ready; read line; true");
        run(options).args(["-n"]).sh("true").code(0).silent();
        run(&["-n"]).sh("true").code(75);
        crate::support::rlock_words(["inspect", "job", "--node", &url])
            .finish()
            .code(0);
        crate::support::rlock_words(["break", "job", "-y", "-q", "--now", "--node", &url])
            .finish()
            .code(0);
        holder.finish();
    }
}

/// Each node forgets all, and has other readers before the long one is healed there.
#[test]
fn a_long_reader_and_a_long_slot_outlive_a_rolling_restart_among_others() {
    for options in [SHARED, &["--slots", "4"]] {
        let mut nodes = Nodes::start(3);
        let url = nodes.url();
        let long = job(&nodes, &[options, &STEADY].concat()).hold("echo ready; read line; true");
        let token = nodes[0].cli(&["ZRANGE", LEASES, "0", "0"]);
        for index in 0..3 {
            nodes[index].crash();
            nodes[index].come_back();
            for _ in 0..3 {
                crate::support::rlock("job")
                    .node(&url)
                    .args(["--restart-guard", "off", "-q"])
                    .args(options)
                    .command(["true"])
                    .code(0);
            }
            let end = |node: &Server| {
                node.cli(&["ZSCORE", LEASES, &token])
                    .parse::<u64>()
                    .unwrap_or_default()
            };
            eventually("it is healed", || end(&nodes[index]) > 0);
            // The other nodes vouch for it by a renewal.
            let before: Vec<u64> = nodes.iter().map(end).collect();
            for (node, before) in nodes.iter().zip(before) {
                eventually("it is renewed", || end(node) > before);
            }
        }
        is_busy_for(&nodes, &[]);
        long.finish().code(0);
        nothing_is_left(&nodes);
    }
}

/// Nodes that disagree about which slot is free still give one and the same.
#[test]
fn no_more_than_k_hold_though_nodes_have_different_slots_taken() {
    let nodes = Nodes::start(3);
    // Each node has one slot taken by an attempt that has died.
    for (number, node) in nodes.iter().enumerate() {
        let slots = ["--slots", "3", "--ttl", "1m", "--restart-guard", "off"];
        let left = crate::support::rlock_words(["acquire", "-k", "job"])
            .node(&node.url())
            .args(slots)
            .finish()
            .code(0);
        let token = left.stdout[0].clone();
        // As if it had been asked for on three nodes, and at an index of its own.
        node.cli(&["SET", "job", "rlock k3 n=3 ttl=60000", "KEEPTTL"]);
        let entry = node.cli(&["HGET", HOLDERS, &token]);
        let (was, rest) = entry.split_once(' ').expect("an index");
        let index = (number + 1).to_string();
        node.cli(&["HDEL", HOLDERS, was]);
        node.cli(&[
            "HSET",
            HOLDERS,
            &token,
            &format!("{index} {rest}"),
            &index,
            &token,
        ]);
    }
    let script = "echo ready; echo slot $RLOCK_SLOT; read line; true";
    let mut holders: Vec<_> = (0..2)
        .map(|_| job(&nodes, &["--slots", "3", "-w", "20s"]).hold(script))
        .collect();
    let mut slots: Vec<String> = holders
        .iter_mut()
        .map(|holder| holder.wait_for("slot"))
        .collect();
    slots.dedup();
    assert_eq!(slots.len(), 2, "{slots:?}");
    for node in nodes.iter() {
        assert!(
            node.cli(&["ZCARD", LEASES])
                .parse::<u32>()
                .expect("a number")
                <= 3
        );
    }
    all_end(holders, 0);
}
