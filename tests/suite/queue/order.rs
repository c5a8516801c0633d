//! Order: waiters get the lock in the order in which they came, and keep their places.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{QUEUE, all_run, hold, job, line, listening, nothing_is_left, queued, ran, servers};
use crate::support::{Running, Server, eventually};

#[test]
fn waiters_go_in_the_order_in_which_they_came() {
    for count in [1, 3] {
        let servers = servers(count);
        let holder = hold(&servers);
        let names: Vec<String> = (0..8).map(|number| number.to_string()).collect();
        let waiters = names
            .iter()
            .map(|name| queued(&servers, &[], name))
            .collect();
        all_run(holder, waiters);
        assert_eq!(ran(&servers), names);
        nothing_is_left(&servers);
    }
}

#[test]
fn a_clock_that_is_ahead_puts_no_waiter_behind_later_ones() {
    let mut servers = vec![Server::start(), Server::start(), Server::ahead(60)];
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    // A later waiter learns nothing of that time.
    servers[2].crash();
    let second = queued(&servers, &[], "second");
    all_run(holder, vec![first, second]);
    assert_eq!(ran(&servers), ["first", "second"]);
    nothing_is_left(&servers[..2]);
}

#[test]
fn a_later_client_does_not_overtake() {
    let servers = servers(1);
    // The first waiter has half a second to take the lock that is free. On a busy machine the later
    // client may come after that.
    let was_in_time = (0..20).any(|_| {
        let holder = hold(&servers);
        let first = queued(&servers, &[], "first");
        first.signal(Signal::SIGSTOP);
        let begin = Instant::now();
        holder.finish().code(0);
        let later = job(&servers).args(["-n"]).sh("echo ran");
        let is_in_time = begin.elapsed() < Duration::from_millis(500);
        if is_in_time {
            later
                .code(75)
                .printed(&[])
                .said(&["busy: free, but next in line is", "pid"]);
        }
        first.signal(Signal::SIGCONT);
        first.finish().code(0);
        nothing_is_left(&servers);
        is_in_time
    });
    assert!(was_in_time);
}

#[test]
fn those_behind_one_that_stopped_keep_their_order() {
    for count in [1, 3] {
        let servers = servers(count);
        let holder = hold(&servers);
        let stopped = queued(&servers, &[], "stopped");
        let names = ["a", "b", "c", "d", "e"];
        let waiters: Vec<Running> = names
            .iter()
            .map(|name| queued(&servers, &[], name))
            .collect();
        stopped.signal(Signal::SIGSTOP);
        all_run(holder, waiters);
        assert_eq!(ran(&servers), names);
        stopped.signal(Signal::SIGCONT);
        stopped.finish().code(0);
        nothing_is_left(&servers);
    }
}

#[test]
fn a_waiter_that_is_taken_out_while_it_has_no_connection_comes_back_to_its_place() {
    let servers = servers(1);
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    let place = line(&servers[0]);
    first.signal(Signal::SIGSTOP);
    servers[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("its connection has ended", || listening(&servers[0]) == 0);
    let second = job(&servers).args(["--", "sh", "-c", "true"]).spawn();
    eventually("the second has taken it out", || {
        line(&servers[0]).len() == 1 && line(&servers[0]) != place
    });
    first.signal(Signal::SIGCONT);
    eventually("it is back", || {
        line(&servers[0]).len() == 2 && listening(&servers[0]) == 2
    });
    assert_eq!(line(&servers[0])[0], place[0]);
    all_run(holder, vec![first, second]);
    nothing_is_left(&servers);
}

#[test]
fn waiters_whose_connections_are_cut_keep_their_places() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = ["a", "b", "c"]
        .iter()
        .map(|name| queued(&servers, &[], name))
        .collect();
    // The holder's connections first: a waiter that reconnects is a normal client until it
    // subscribes.
    servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    servers[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("all listen again", || {
        servers[0]
            .cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"])
            .lines()
            .count()
            == 3
    });
    all_run(holder, waiters);
    assert_eq!(ran(&servers), ["a", "b", "c"]);
}

/// A waiter may be the cause of a tie, so it enqueues again behind the others; its subscription
/// must move with it.
#[test]
fn a_waiter_that_gives_its_place_up_after_ties_still_listens() {
    let servers = servers(3);
    servers[0].cli(&["SET", "job", "one"]);
    servers[1].cli(&["SET", "job", "another"]);
    let waiter = job(&servers).args(["--", "true"]).spawn();
    let member = || servers[2].cli(&["ZRANGE", QUEUE, "0", "0", "WITHSCORES"]);
    let heard = || {
        let member = member();
        let channel = format!(
            "rlock:wake:{{job}}:{}",
            member.split(' ').next().unwrap_or_default()
        );
        !member.is_empty()
            && servers[2]
                .cli(&["PUBSUB", "NUMSUB", &channel])
                .ends_with('1')
    };
    eventually("it listens", heard);
    let ticket = |member: String| member.lines().nth(1).map(str::to_owned);
    let first = ticket(member());
    eventually("it has another ticket", || {
        ticket(member()).is_some_and(|now| Some(now) != first)
    });
    eventually("it listens again", heard);
    servers[0].cli(&["DEL", "job"]);
    waiter.finish().code(0).silent();
}

#[test]
fn the_order_is_kept_with_a_node_that_hangs_and_with_one_that_is_gone() {
    let mut servers = servers(5);
    let holder = hold(&servers);
    let waiters: Vec<Running> = ["a", "b", "c"]
        .iter()
        .map(|name| queued(&servers, &[], name))
        .collect();
    servers[3].freeze();
    servers[4].crash();
    let begin = Instant::now();
    all_run(holder, waiters);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(ran(&servers), ["a", "b", "c"]);
    servers[3].thaw();
    eventually("the one that hung is clean", || {
        servers[3].cli(&["EXISTS", "job"]) == "0"
    });
    servers.truncate(3);
    nothing_is_left(&servers);
}

#[test]
fn a_waiter_that_blocks_no_node_keeps_its_place_whatever_others_do() {
    let servers = servers(3);
    for (server, value) in servers.iter().zip(["one", "another", "a third"]) {
        server.cli(&["SET", "job", value]);
    }
    let waiter = job(&servers).args(["--", "true"]).spawn();
    let ticket = || servers[2].cli(&["ZRANGE", QUEUE, "0", "0", "WITHSCORES"]);
    eventually("it has a ticket", || !ticket().is_empty());
    let first = ticket();
    servers[2].wait_until_asked(8);
    assert_eq!(ticket(), first);
    for server in &servers {
        server.cli(&["DEL", "job"]);
    }
    waiter.finish().code(0).silent();
}
