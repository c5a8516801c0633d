//! One line for all kinds: who waits for whom, and how many go at a time.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rlock::store::redis::script::LOCK;

use super::{SHARED, SLOTS, all_end, hold, job, nothing_is_left, queued, ran};
use crate::support::{Nodes, Running, eventually};

/// Shortest time until a waiter that was not told looks by itself.
const LATE: Duration = Duration::from_secs(4);

fn all_run(waiters: impl IntoIterator<Item = Running>) {
    let begin = Instant::now();
    for waiter in waiters {
        waiter.finish().code(0).silent();
    }
    assert!(
        begin.elapsed() < LATE,
        "a waiter was not told: {:?}",
        begin.elapsed()
    );
}

#[test]
fn a_reader_does_not_overtake_a_writer_that_waits() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let reader = hold(&nodes, SHARED);
        let writer = queued(&nodes, &[], "writer");
        let told = [
            "busy: held shared by",
            "; there is room beside them, but a waiter that came earlier goes first",
        ];
        job(&nodes, SHARED)
            .args(["-n"])
            .sh("echo ran")
            .code(75)
            .printed(&[])
            .said(&told);
        let later = queued(&nodes, SHARED, "later");
        reader.finish().code(0).silent();
        all_run([writer, later]);
        assert_eq!(ran(&nodes), ["writer", "later"]);
        nothing_is_left(&nodes);
    }
}

#[test]
fn readers_behind_a_writer_go_together_when_it_leaves() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let writer = hold(&nodes, &[]);
        // Each ends only when all have the lock.
        let gate = "echo in; read line; true";
        let mut readers: Vec<Running> = Vec::new();
        for number in 1..=6 {
            let mut reader = job(&nodes, SHARED);
            reader = reader.with(|command| {
                command.stdin(std::process::Stdio::piped());
            });
            readers.push(reader.args(["--", "sh", "-c", gate]).spawn());
            for node in nodes.iter() {
                eventually("it stands in the queue", || {
                    node.cli(&["ZCARD", super::QUEUE]) == number.to_string()
                });
            }
        }
        let begin = Instant::now();
        writer.finish().code(0).silent();
        for reader in &mut readers {
            reader.wait_for("in");
        }
        assert!(
            begin.elapsed() < LATE,
            "a reader was not told: {:?}",
            begin.elapsed()
        );
        for reader in readers {
            reader.finish().code(0).silent();
        }
        nothing_is_left(&nodes);
    }
}

#[test]
fn a_slot_that_is_given_back_goes_to_the_first_waiter() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let holders = [hold(&nodes, SLOTS), hold(&nodes, SLOTS)];
        let waiters = ["a", "b", "c"].map(|name| queued(&nodes, SLOTS, name));
        let [first, second] = holders;
        first.finish().code(0).silent();
        all_run(waiters);
        assert_eq!(ran(&nodes), ["a", "b", "c"]);
        second.finish().code(0).silent();
        nothing_is_left(&nodes);
    }
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let reader = hold(&nodes, SHARED);
        let writer = queued(&nodes, &[], "writer");
        let later = queued(&nodes, SHARED, "later");
        writer.signal(Signal::SIGTERM);
        writer.finish().code(143);
        all_run([later]);
        reader.finish().code(0).silent();
        nothing_is_left(&nodes);
    }
}

#[test]
fn other_numbers_of_slots_wait_until_all_of_the_first_have_ended() {
    let nodes = Nodes::start(1);
    let holder = hold(&nodes, SLOTS);
    let more = queued(&nodes, &["--slots", "5"], "more");
    job(&nodes, SLOTS)
        .args(["-n"])
        .sh("echo ran")
        .code(75)
        .printed(&[]);
    holder.finish().code(0).silent();
    all_run([more]);
    nothing_is_left(&nodes);
}

#[test]
fn a_reader_that_stopped_at_the_head_is_passed_over() {
    let nodes = Nodes::start(1);
    let writer = hold(&nodes, &[]);
    let stopped = queued(&nodes, SHARED, "stopped");
    let next = queued(&nodes, &[], "next");
    stopped.signal(Signal::SIGSTOP);
    let begin = Instant::now();
    writer.finish().code(0).silent();
    next.finish().code(0).silent();
    assert!(begin.elapsed() < LATE, "{:?}", begin.elapsed());
    stopped.signal(Signal::SIGCONT);
    stopped.finish().code(0);
    nothing_is_left(&nodes);
}

/// Counts the requests of a hand-over: the release, the waiter's attempt, and its release.
#[test]
fn a_hand_over_costs_three_requests_in_every_kind() {
    for (options, held, waiting) in [(&[][..], 1, 20), (SHARED, 1, 20), (SLOTS, 2, 20)] {
        let nodes = Nodes::start(1);
        // Readers wait for a writer; all others for their own kind.
        let first = if options == SHARED { &[][..] } else { options };
        let holders: Vec<Running> = (0..held).map(|_| hold(&nodes, first)).collect();
        let waiters: Vec<Running> = (0..waiting)
            .map(|number| queued(&nodes, options, &number.to_string()))
            .collect();
        let before = nodes[0].asked();
        all_end(holders, 0);
        all_run(waiters);
        let each = (nodes[0].asked() - before) / (waiting + 1);
        assert!(each <= 3, "{options:?}: {each} requests");
    }
}

#[test]
fn a_place_that_moves_gets_a_number_above_the_last_holder_of_its_index() {
    let nodes = Nodes::start(1);
    let node = &nodes[0];
    let derived = ["fence", "leases", "holders", "queue", "turns"]
        .map(|kind| format!("rlock:{kind}:{{job}}:job"));
    let ask = |args: &[&str]| {
        let keys: Vec<&str> = ["job"]
            .into_iter()
            .chain(derived.iter().map(String::as_str))
            .collect();
        let words = ["EVAL", &LOCK.text, "6"];
        let reply = node.cli(
            &words
                .iter()
                .chain(&keys)
                .chain(args)
                .copied()
                .collect::<Vec<&str>>(),
        );
        reply.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let join = |token: &str, index: &str, is_exact: &str| {
        let value = format!("{token} {{}}");
        let place = [
            "", "", "0", "600000", "", "", token, "k2", "3", index, is_exact, "",
        ];
        let reply = ask(&[&["take", &value, "60000", "0", "600000"], &place[..]].concat());
        assert_eq!(
            (reply[0].as_str(), reply[2].as_str()),
            ("granted", index),
            "{reply:?}"
        );
        reply[1].parse::<u64>().expect("a number")
    };
    join("first", "1", "");
    let stray = join("second", "2", "");
    // Another node gave the first one as large a number, which is then its fence.
    ask(&["renew", "first", "60000", &stray.to_string(), "600000", "1"]);
    ask(&["release", "first", "", "", "600000", ""]);
    assert!(join("second", "1", "1") > stray);
}
