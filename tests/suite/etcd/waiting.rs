//! Waits that begin without a leader, those whose member hangs, and those that are given up.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{HOLD, LONG, calls, wait_for_entries};
use crate::support::{Delay, Etcd, Proxy, eventually, rlock, rlock_words};

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

/// Its entry is older than its tenure.
#[test]
fn a_holder_that_has_waited_tells_since_when_it_holds() {
    let Some(etcd) = Etcd::start(1) else { return };
    let now = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(now.expect("a clock").as_millis()).expect("a time")
    };
    let run = || {
        rlock("job")
            .node(&etcd.url())
            .args(LONG)
            .stdin(Stdio::piped())
    };
    let hold = "echo ready; read line; true";
    let mut holder = run().hold(hold);
    let mut next = run().args(["--", "sh", "-c", hold]).spawn();
    wait_for_entries(&etcd, 2);
    let waited = now();
    eventually("a moment later", || now() > waited);
    drop(holder.stdin.take());
    next.wait_for("ready");
    eventually("its entry tells of its tenure", || {
        let seen = rlock_words(["inspect", "job", "--json"]).node(&etcd.url());
        let seen = seen.finish().code(0);
        let told: serde_json::Value = serde_json::from_str(&seen.stdout[0]).expect("JSON");
        told[0]["holder"]["since"].as_u64() > Some(waited)
    });
    holder.finish().code(0);
    // What it has written itself is no break.
    drop(next.stdin.take());
    next.finish().code(0);
    wait_for_entries(&etcd, 0);
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
