//! Waits that begin without a leader, those whose member hangs, and those that are given up.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::{HOLD, LONG, calls, wait_for_entries};
use crate::support::{Delay, Etcd, Proxy, eventually, rlock};

#[test]
fn a_run_that_begins_without_a_quorum_gets_its_lock_when_that_is_back() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let leader = etcd.leader();
    let other = (leader + 1) % 3;
    etcd.kill(leader);
    etcd.kill(other);
    rlock("job")
        .node(&etcd.url())
        .args(["-n"])
        .sh("true")
        .code(69);
    let waits = ["--wait", "1m", "--", "echo", "ran"];
    let mut job = rlock("job").node(&etcd.url()).args(waits).spawn();
    job.wait_until_told("trying again");
    etcd.come_back(other);
    job.finish().code(0).printed(&["ran"]);
}

#[test]
fn a_waiter_whose_member_hangs_gets_its_turn_from_another() {
    let Some(etcd) = Etcd::start(3) else { return };
    let leader = etcd.leader();
    let followers = [(leader + 1) % 3, (leader + 2) % 3];
    let holder = rlock("job")
        .node(&etcd.url_of(leader))
        .args(LONG)
        .hold(HOLD);
    let url = format!(
        "{},{}",
        etcd.url_of(followers[0]),
        etcd.endpoint(followers[1])
    );
    let mut waiter = rlock("job").node(&url).args(LONG);
    waiter = waiter.args(["--", "echo", "ran"]);
    let mut waiter = waiter.spawn();
    wait_for_entries(&etcd, 2);
    let watched = || {
        followers
            .into_iter()
            .find(|member| calls(&etcd, *member, "Watch") > 0)
    };
    eventually("it watches", || watched().is_some());
    let member = watched().expect("a member");
    etcd.freeze(member);
    let begin = Instant::now();
    drop(holder);
    waiter.wait_for("ran");
    // By itself it would look ten seconds later.
    let took = begin.elapsed();
    etcd.thaw(member);
    assert!(took < Duration::from_secs(6), "{took:?}");
    waiter.finish().code(0);
}

/// etcd drops a request whose client has gone before it is carried out, so that what was written is
/// not enough.
#[test]
fn a_waiter_that_ends_has_left_the_line_over_a_slow_one() {
    let Some(etcd) = Etcd::start(1) else { return };
    let job = rlock("job").node(&etcd.url()).args(LONG).hold(HOLD);
    let delay = Duration::from_millis(150);
    let delays = move |_| [delay, Duration::ZERO].map(|delay| Box::new(move || delay) as Delay);
    let port = etcd.endpoint(0).rsplit(':').next().unwrap().parse();
    let proxy = Proxy::open(Ipv4Addr::LOCALHOST, port.unwrap(), delays).expect("a proxy");
    let waiter = rlock("job").node(&format!("etcd://127.0.0.1:{}", proxy.port()));
    let words = ["--ttl", "5m", "--node-timeout", "5s", "--wait", "3s"];
    waiter.args(words).sh("true").code(75);
    let keys = etcd.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    drop(job);
}
