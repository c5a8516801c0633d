//! An ensemble of three: a leader that is killed or stopped, a follower that is cut off from it, and
//! servers that are slow or do not answer.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::zookeeper::{Peer, has_zookeeper};
use testkit::{ZooKeeper, eventually_within, held_while};

use super::{HOLD, until_waiting};
use crate::etcd::failures::Disks;
use crate::support::{Delay, Proxy, alive, eventually, rlock, rlock_words};

/// A follower keeps clients for ten seconds after it has heard its leader last.
const OPTIONS: &[&str] = &[
    "tickTime=500",
    "initLimit=20",
    "syncLimit=20",
    "maxSessionTimeout=60000",
    "4lw.commands.whitelist=*",
];

/// The option with which a follower keeps clients for longer than any lease here.
const KEEPS_CLIENTS: &str = "syncLimit=80";

/// A lease that is short, and whose servers may be slow.
const TTL: [&str; 4] = ["--ttl", "14s", "--node-timeout", "2s"];

/// Longest time of an election. On a busy machine one takes some 20 s.
const ELECTION: Duration = Duration::from_secs(90);

/// Servers, of which the first reaches the others over a line that can be cut.
struct Ensemble {
    members: Vec<ZooKeeper>,
    is_cut: Arc<AtomicBool>,
}

impl Ensemble {
    /// Starts three servers. The first one follows.
    fn start() -> Self {
        Self::start_with(OPTIONS)
    }

    fn start_with(options: &[&str]) -> Self {
        let is_cut = Arc::new(AtomicBool::new(false));
        for _ in 0..3 {
            let line = |own: usize, _: usize, port: u16| {
                if own > 0 {
                    return port;
                }
                let is_cut = Arc::clone(&is_cut);
                let delays = move |_| {
                    let is_cut = Arc::clone(&is_cut);
                    held_while(move || is_cut.load(Ordering::Relaxed))
                };
                Proxy::open(Ipv4Addr::LOCALHOST, port, delays)
                    .expect("a proxy")
                    .port()
            };
            let members = ZooKeeper::ensemble(3, options, line);
            if !members[0].leads() {
                return Self { members, is_cut };
            }
        }
        panic!("the first member leads each time");
    }

    /// Returns the number of the leader.
    fn leader(&self) -> usize {
        let leader = self.members.iter().position(ZooKeeper::leads);
        leader.expect("a leader")
    }

    /// Returns the number of a follower to which a client is attached.
    fn follower_with_a_client(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let told = member.told("cons");
            let attached = told.matches("sid=0x").count() > told.matches("sid=0x0,").count();
            attached && !member.leads()
        })
    }

    /// Returns the address of all servers but one.
    fn url_without(&self, member: usize) -> String {
        let others: Vec<usize> = (0..3).filter(|other| *other != member).collect();
        self.url(&others)
    }

    /// Returns the address of some of the servers.
    fn url(&self, members: &[usize]) -> String {
        let hosts = members
            .iter()
            .map(|member| format!("127.0.0.1:{}", self.members[*member].port()));
        format!("zookeeper://{}", hosts.collect::<Vec<_>>().join(","))
    }
}

/// The promise. A follower that is cut off from its leader goes on answering pings: kazoo reads
/// CONNECTED while another client has its lock. An rlock at the same follower kills its command
/// before.
#[test]
fn a_command_is_dead_before_the_lock_of_a_follower_that_is_cut_off_passes_on() {
    if !has_zookeeper() {
        return;
    }
    let ensemble = Ensemble::start_with(&[OPTIONS, &[KEEPS_CLIENTS]].concat());
    let port = ensemble.members[0].port();
    let Some(mut kazoo) = Peer::kazoo(&format!("127.0.0.1:{port}"), Duration::from_secs(8)) else {
        return;
    };
    kazoo.ask("lock mine Lock /kazoo");
    kazoo.holds("mine");
    let cut = |name| rlock(name).node(&ensemble.url(&[0])).args(TTL);
    let holder = cut("promise").hold(HOLD);
    // One that knows the other servers too goes on.
    let all = rlock("all").node(&ensemble.url(&[0, 1, 2])).args(TTL);
    let mut all = all.hold(HOLD);
    let pid = holder.seen_pids(&["pid"])[0];
    let after = |name: &str, script: &str| {
        let other = rlock(name).node(&ensemble.url(&[1, 2])).args(TTL);
        other.args(["--", "sh", "-c", script]).spawn()
    };
    let mut next = after(
        "promise",
        &format!("kill -0 {pid} 2>/dev/null && echo overlap; echo got it"),
    );
    let mut of_kazoo = after("kazoo", "echo got it; sleep 2");
    ensemble.is_cut.store(true, Ordering::Relaxed);
    of_kazoo.wait_for("got it");
    assert_eq!(
        kazoo.ask("state"),
        "CONNECTED True",
        "kazoo knows nothing of it"
    );
    next.wait_for("got it");
    assert!(!alive(pid));
    next.finish().code(0).printed(&["got it"]);
    holder.finish().code(79);
    assert!(all.is_running());
    drop(all.stdin.take());
    all.finish().code(0);
    ensemble.is_cut.store(false, Ordering::Relaxed);
}

/// The promise. A turn takes no proof of its own: its lease is that of the waiter's last one.
#[test]
fn a_command_is_dead_before_the_lock_that_it_waited_for_at_such_a_follower_passes_on() {
    if !has_zookeeper() {
        return;
    }
    let ensemble = Ensemble::start_with(&[OPTIONS, &[KEEPS_CLIENTS]].concat());
    let at = |members: &[usize]| rlock("turn").node(&ensemble.url(members)).args(TTL);
    let mut holder = at(&[1, 2]).hold(HOLD);
    let waits = at(&[0]).args(["--", "sh", "-c", "echo pid $$; exec sleep 60"]);
    let mut waiter = waits.spawn();
    until_waiting(&ensemble.members[1], "turn", 1);
    drop(holder.stdin.take());
    holder.finish().code(0);
    let pid = waiter.wait_for_pid("pid");
    ensemble.is_cut.store(true, Ordering::Relaxed);
    let script = format!("kill -0 {pid} 2>/dev/null && echo overlap; echo got it");
    let next = at(&[1, 2]).args(["--", "sh", "-c", &script]);
    next.finish().code(0).printed(&["got it"]);
    waiter.finish().code(79);
    ensemble.is_cut.store(false, Ordering::Relaxed);
}

/// The promise. A leader that stands still has lost its followers, and does not know it.
#[test]
fn a_command_is_dead_before_the_lock_of_a_leader_that_stands_still_passes_on() {
    if !has_zookeeper() {
        return;
    }
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
    let holder = rlock("promise").node(&ensemble.url(&[leader])).args(TTL);
    let holder = holder.hold(HOLD);
    let pid = holder.seen_pids(&["pid"])[0];
    // One that knows the other servers too goes on.
    let all = rlock("all").node(&ensemble.url(&[0, 1, 2]));
    let mut all = all.args(["--ttl", "1m"]).hold(HOLD);
    ensemble.members[leader].freeze();
    eventually_within(ELECTION, "another one leads", || {
        others
            .iter()
            .any(|member| ensemble.members[*member].leads())
    });
    let script = format!("kill -0 {pid} 2>/dev/null && echo overlap; echo got it");
    let next = rlock("promise").node(&ensemble.url(&others));
    let next = next.args(TTL).args(["--", "sh", "-c", &script]);
    next.finish().code(0).printed(&["got it"]);
    // Its session is over, which the leader of before does not know when it goes on.
    ensemble.members[leader].thaw();
    holder.finish().code(79);
    drop(all.stdin.take());
    all.finish().code(0);
}

#[test]
fn an_ensemble_that_is_slow_is_as_good_with_all_servers_named() {
    if !has_zookeeper() {
        return;
    }
    let members = ZooKeeper::ensemble(3, OPTIONS, |_, _, port| port);
    // More than a third of the node timeout.
    let (delay, timing) = (
        Duration::from_millis(2200),
        ["--ttl", "24s", "--node-timeout", "6s"],
    );
    let slow = |member: &ZooKeeper| {
        let delays = move |_| [Duration::ZERO, delay].map(|delay| Box::new(move || delay) as Delay);
        let proxy = Proxy::open(Ipv4Addr::LOCALHOST, member.port(), delays).expect("a proxy");
        format!("127.0.0.1:{}", proxy.port())
    };
    let hosts: Vec<String> = members.iter().map(slow).collect();
    let job = rlock("slow")
        .node(&format!("zookeeper://{}", hosts.join(",")))
        .args(timing);
    let mut job = job.hold(HOLD);
    // A renewal later.
    std::thread::sleep(Duration::from_secs(12));
    drop(job.stdin.take());
    job.finish().code(0).never_said("not confirmed");
    // Sessions that began at other servers are over, and so are their entries.
    let next = rlock("slow").node(&members[0].url()).args(timing);
    next.args(["-n"]).sh("true").code(0);
}

/// Options with which a follower that stands still is not waited for.
const PATIENT: [&str; 4] = ["--ttl", "40s", "--node-timeout", "4s"];

#[test]
fn a_lock_is_given_back_at_once_although_its_server_stands_still() {
    if !has_zookeeper() {
        return;
    }
    let ensemble = Ensemble::start();
    for _ in 0..20 {
        let job = rlock("release").node(&ensemble.url(&[0, 1, 2]));
        let mut job = job.args(PATIENT).hold(HOLD);
        let Some(at) = ensemble.follower_with_a_client() else {
            drop(job.stdin.take());
            job.finish().code(0);
            continue;
        };
        ensemble.members[at].freeze();
        drop(job.stdin.take());
        job.finish().code(0).never_said("not confirmed");
        let next = rlock("release").node(&ensemble.url_without(at));
        next.args(PATIENT).args(["-n"]).sh("true").code(0);
        return ensemble.members[at].thaw();
    }
    panic!("each time attached to the leader");
}

#[test]
fn a_command_does_not_notice_that_the_leader_is_killed() {
    if !has_zookeeper() {
        return;
    }
    let mut ensemble = Ensemble::start();
    let url = ensemble.url(&[0, 1, 2]);
    let mut holder = rlock("leader").node(&url).args(["--ttl", "1m"]).hold(HOLD);
    let mut waiter = rlock("leader").node(&url).args(["--ttl", "1m"]);
    waiter = waiter.args(["--wait", "2m", "--", "echo", "next"]);
    let mut waiter = waiter.spawn();
    eventually("it waits", || {
        let seen = rlock_words(["inspect", "leader"]).node(&url).finish();
        seen.stdout.join("\n").contains(": 1 waits")
    });
    let leader = ensemble.leader();
    ensemble.members[leader].crash();
    // One that begins now waits for the election.
    let words = ["--wait", "2m", "--", "echo", "ran"];
    let begins = rlock("begins").node(&url).args(words).spawn();
    eventually_within(ELECTION, "another one leads", || {
        ensemble.members.iter().any(ZooKeeper::leads)
    });
    drop(holder.stdin.take());
    holder.finish().code(0);
    waiter.wait_for("next");
    waiter.finish().code(0);
    begins.finish().code(0).printed(&["ran"]);
    // Without a quorum no lock is given, and none is kept.
    let holder = rlock("leader").node(&url).args(["--ttl", "6s"]).hold(HOLD);
    let next = ensemble.members.iter().position(ZooKeeper::leads);
    ensemble.members[next.expect("a leader")].crash();
    rlock("begins").node(&url).args(["-n"]).sh("true").code(69);
    let pid = holder.seen_pids(&["pid"])[0];
    eventually("the command is dead", || !alive(pid));
    holder.finish().code(79);
}

/// Lets disks go on, also when a test fails: a server that waits for its disk cannot be killed.
struct Thaw<'d>(&'d Disks);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

/// The promise. A leader whose disk stands still goes on: its followers' disks are the majority. With
/// one of them nothing is committed any more, and no session ends, although pings are answered.
#[test]
fn a_command_is_dead_before_its_lease_ends_if_most_disks_stand_still() {
    if !has_zookeeper() {
        return;
    }
    let Some(disks) = Disks::make(3) else { return };
    let members = ZooKeeper::ensemble_on(&disks.data(), OPTIONS);
    let leader = members.iter().position(ZooKeeper::leads).expect("a leader");
    let port = members[leader].port();
    let hosts = members
        .iter()
        .map(|member| format!("127.0.0.1:{}", member.port()));
    let url = format!("zookeeper://{}", hosts.collect::<Vec<_>>().join(","));
    let mut holder = rlock("disks").node(&url).args(TTL).hold(HOLD);
    let pid = holder.seen_pids(&["pid"])[0];
    let mut kazoo = Peer::kazoo(&format!("127.0.0.1:{port}"), Duration::from_secs(4));
    let thaw = Thaw(&disks);
    disks.freeze(leader);
    // A lease later.
    std::thread::sleep(Duration::from_secs(15));
    assert!(holder.is_running());
    disks.freeze((leader + 1) % 3);
    eventually("the command is dead", || !alive(pid));
    if let Some(kazoo) = &mut kazoo {
        assert_eq!(kazoo.ask("state"), "CONNECTED True");
    }
    rlock("disks").node(&url).args(["-n"]).sh("true").code(69);
    drop(thaw);
    holder.finish().code(79);
}

/// The session moves: the server closes the connection that it has left, once something is asked there
/// (ZOOKEEPER-710).
#[test]
fn a_session_that_is_attached_elsewhere_is_taken_back() {
    if !has_zookeeper() {
        return;
    }
    let ensemble = Ensemble::start();
    let host = |at: usize| format!("127.0.0.1:{}", ensemble.members[at].port());
    let Some(mut kazoo) = Peer::kazoo(&host(2), Duration::from_secs(10)) else {
        return;
    };
    let moved = |kazoo: &mut Peer| {
        let entries = kazoo.ask("children /moves");
        let first = entries.split(' ').find(|entry| entry.contains("-lock-"));
        kazoo.ask(&format!(
            "attach /moves/{} {}",
            first.expect("an entry"),
            host(1)
        ));
    };
    // At the release, and before renewals.
    for (ttl, time) in [(PATIENT, 0), (TTL, 16)] {
        let job = rlock("moves").node(&ensemble.url(&[0]));
        let mut job = job.args(ttl).hold(HOLD);
        moved(&mut kazoo);
        std::thread::sleep(Duration::from_secs(time));
        assert!(job.is_running());
        let next = || {
            rlock("moves")
                .node(&ensemble.url(&[2]))
                .args(PATIENT)
                .args(["-n"])
                .sh("true")
        };
        next().code(75);
        drop(job.stdin.take());
        job.finish().code(0).never_said("not confirmed");
        next().code(0);
    }
}
