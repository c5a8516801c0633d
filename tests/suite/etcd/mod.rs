//! Locks in etcd: in one line with `etcdctl lock`, with all that rlock does with a lock.

mod examined;
pub(crate) mod failures;
mod hostile;
mod logins;
mod nested;
mod superseding;
mod waiting;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::eventually_within;

use crate::support::{Etcd, Rlock, eventually, rlock, rlock_words};

/// A command that holds the lock until its stdin ends.
const HOLD: &str = "echo ready; read line";

/// A command that ends at once if another one runs that has `$WITNESS` locked, and else appends its
/// name and its fence to `$ORDER`.
const ALONE: &str = r#"exec flock -n "$WITNESS" sh -c 'echo "$0 ${RLOCK_FENCE:-$ETCD_LOCK_REV}" >>"$ORDER"; sleep 0.05' "$0""#;

/// `etcdctl lock NAME`, whose command runs `script` with `name` as its `$0`.
fn etcdctl_lock(etcd: &Etcd, dir: &Path, lock: &str, script: &str, name: &str) -> Child {
    let mut command = etcd.client();
    command
        .args(["lock", lock, "--", "sh", "-c", script, name])
        .env("WITNESS", dir.join("witness"))
        .env("ORDER", dir.join("order"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("etcdctl")
}

/// Returns rlock for `job` at `node`, which tells the witness of `dir`.
fn witnessed(node: &str, dir: &Path) -> Rlock {
    let path = |name| dir.join(name).to_str().expect("a name").to_owned();
    rlock("job")
        .node(node)
        .env("WITNESS", &path("witness"))
        .env("ORDER", &path("order"))
}

/// Waits until the lock has so many entries.
fn wait_for_entries(etcd: &Etcd, number: usize) {
    eventually("the line has its entries", || {
        let keys = etcd.keys();
        keys.iter().filter(|key| key.starts_with("job/")).count() == number
    });
}

/// Longest time until the lease of a run with a TTL of 40 s or less is over.
///
/// 1. A run writes the request that ends its lease, and exits without the answer.
/// 2. etcd drops a request whose client has gone before it is carried out. On a busy machine this
///    was seen in one of a hundred runs.
/// 3. Such a lease ends by its TTL.
const LEASE_ENDS: Duration = Duration::from_secs(60);

/// Returns the number of leases that there are.
fn leases(etcd: &Etcd) -> usize {
    let listed = etcd.ctl(&["lease", "list"]);
    let number = listed.split(' ').nth(1).expect("a number");
    number.parse().expect("a number")
}

/// Waits until there are so many leases.
fn wait_for_leases(etcd: &Etcd, number: usize) {
    eventually_within(LEASE_ENDS, "the leases are over", || leases(etcd) == number);
}

/// Waits until `etcd` has no entry of the lock, and no lease.
fn leaves_nothing(etcd: &Etcd) {
    let has_entries = || etcd.keys().iter().any(|key| key.starts_with("job/"));
    eventually_within(LEASE_ENDS, "nothing is left", || {
        !has_entries() && leases(etcd) == 0
    });
}

#[test]
fn a_command_runs_under_a_lock_and_nothing_is_left() {
    let Some(etcd) = Etcd::start(1) else { return };
    let entry = "etcdctl get --prefix job/ --endpoints $0";
    let endpoint = etcd.endpoint(0);
    let run = rlock("job")
        .node(&etcd.url())
        .args(["--", "sh", "-c", entry, &endpoint])
        .finish()
        .code(0)
        .silent();
    assert!(run.stdout[0].starts_with("job/"), "{:?}", run.stdout);
    assert!(run.stdout[1].contains("\"cmd\":\"sh\""), "{:?}", run.stdout);
    leaves_nothing(&etcd);
}

#[test]
fn rlock_and_etcdctl_stand_in_one_line_and_their_fences_rise() {
    let Some(etcd) = Etcd::start(3) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let holder = rlock("job").node(&etcd.url()).hold(HOLD);
    let mut waiting = Vec::new();
    let mut others = Vec::new();
    for place in 0..6 {
        let name = format!("w{place}");
        if place % 2 == 0 {
            others.push(etcdctl_lock(&etcd, dir.path(), "job", ALONE, &name));
        } else {
            let words = ["--", "sh", "-c", ALONE, &name];
            waiting.push(witnessed(&etcd.url(), dir.path()).args(words).spawn());
        }
        wait_for_entries(&etcd, place + 2);
    }
    drop(holder);
    for waiter in waiting {
        waiter.finish().code(0);
    }
    for mut other in others {
        assert!(other.wait().expect("its end").success());
    }
    let order = std::fs::read_to_string(dir.path().join("order")).expect("the order");
    let told: Vec<(&str, u64)> = order
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, fence)| (name, fence.parse().expect("a fence")))
        .collect();
    let names: Vec<&str> = told.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["w0", "w1", "w2", "w3", "w4", "w5"]);
    assert!(told.is_sorted_by(|a, b| a.1 < b.1), "{told:?}");
    leaves_nothing(&etcd);
}

#[test]
fn each_keeps_the_other_out() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    // It does not pass its stdin on.
    let held = r#"while [ ! -e "$ORDER" ]; do sleep 0.01; done"#;
    let mut other = etcdctl_lock(&etcd, dir.path(), "locks/job", held, "other");
    eventually("it holds", || {
        etcd.keys().iter().any(|key| key.starts_with("locks/job/"))
    });
    let node = format!("{}/locks", etcd.url());
    let busy = rlock("job").node(&node).args(["-n"]).sh("true").code(75);
    busy.said(&[
        "held by a client that is not rlock: the key locks/job/",
        "lease ",
    ]);
    let seen = rlock_words(["inspect", "job"]).node(&node).finish().code(0);
    assert!(seen.stdout[1].contains("(not rlock)"), "{:?}", seen.stdout);
    // No polling: it is woken.
    let next = rlock("job")
        .node(&node)
        .args(["--", "echo", "mine"])
        .spawn();
    eventually("it waits", || etcd.keys().len() == 2);
    std::fs::write(dir.path().join("order"), "").expect("a file");
    next.finish().code(0).printed(&["mine"]);
    other.wait().expect("its end");
    let forced = ["break", "--yes", "--foreign", "job"];
    etcd.ctl(&["put", "locks/job/mine", "x"]);
    rlock("job").node(&node).args(["-n"]).sh("true").code(75);
    rlock_words(forced).node(&node).finish().code(0);
    rlock("job").node(&node).args(["-n"]).sh("true").code(0);
}

#[test]
fn readers_share_the_lock_and_keep_writers_out() {
    let Some(etcd) = Etcd::start(1) else { return };
    let reader = |words: &str| rlock("job").node(&etcd.url()).args(["-s"]).hold(words);
    let (one, two) = (reader(HOLD), reader(HOLD));
    let writer = rlock("job")
        .node(&etcd.url())
        .args(["-n"])
        .sh("true")
        .code(75);
    writer.said(&["held shared by"]);
    let writer = rlock("job").node(&etcd.url()).args(["--", "true"]).spawn();
    wait_for_entries(&etcd, 3);
    // The writer keeps later readers out.
    rlock("job")
        .node(&etcd.url())
        .args(["-s", "-n"])
        .sh("true")
        .code(75);
    drop((one, two));
    writer.finish().code(0);
}

#[test]
fn large_values_of_other_clients_cost_no_reader_its_lock() {
    let Some(etcd) = Etcd::start(1) else { return };
    let put = |key: &str| {
        let mut put = etcd.client();
        let mut put = put
            .args(["put", key])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("etcdctl");
        let mut stdin = put.stdin.take().expect("stdin");
        std::io::Write::write_all(&mut stdin, &vec![b'x'; 1_400_000]).expect("a value");
        drop(stdin);
        assert!(put.wait().expect("its end").success());
    };
    // In an unoptimized build such a reply takes a while.
    let patient = ["--ttl", "1m", "--node-timeout", "9s"];
    let run = || rlock("job").node(&etcd.url());
    let hold = "echo ready; read line; echo ran";
    let renewed = ["-s", "--ttl", "9s", "--node-timeout", "1500ms"];
    let reader = run().args(renewed).hold(hold);
    ["job/a", "job/z", "job/zz"].into_iter().for_each(put);
    let later = run().args(["-s", "-n"]).args(patient).sh("true").code(75);
    later.said(&["held by a client that is not rlock: the key job/"]);
    wait_for_keepalives(&etcd, 2);
    reader.finish().code(0).printed(&["ready", "ran"]);
    let look = || {
        let seen = rlock_words(["inspect", "job"]).args(&patient[2..]);
        seen.node(&etcd.url()).finish().code(0).stdout.join("\n")
    };
    assert!(look().contains("the key job/a"), "{}", look());
    for _ in 0..3 {
        let forced = ["break", "--yes", "--foreign", "job"];
        let broken = rlock_words(forced).args(&patient[2..]);
        broken.node(&etcd.url()).finish().code(0);
    }
    run().args(["-n"]).args(patient).sh("true").code(0);
}

#[test]
fn scripts_take_renew_check_and_release_a_lock() {
    let Some(etcd) = Etcd::start(1) else { return };
    let words = |words: &[&str]| {
        rlock_words(words.iter().copied())
            .node(&etcd.url())
            .finish()
    };
    let token = words(&["acquire", "-k", "job", "--ttl", "10s"])
        .code(0)
        .stdout
        .remove(0);
    let held = ["-k", "job", "--token", &token];
    let of = |command: &'static str, more: &[&str]| words(&[&[command], &held[..], more].concat());
    of("check", &["--for", "5s"]).code(0);
    of("check", &["--for", "11s"]).code(1);
    of("renew", &[]).code(0);
    of("renew", &["--ttl", "1m"])
        .code(78)
        .said(&["cannot be made longer"]);
    let busy = rlock("job")
        .node(&etcd.url())
        .args(["-n"])
        .sh("true")
        .code(75);
    busy.said(&["taken with acquire"]);
    let listed = words(&["inspect"]).code(0);
    assert!(listed.stdout[1].starts_with("job"), "{:?}", listed.stdout);
    of("release", &[]).code(0);
    of("release", &[]).code(1);
    of("check", &[]).code(1);
}

#[test]
fn a_success_keeps_the_next_run_from_running_until_it_is_broken() {
    let Some(etcd) = Etcd::start(1) else { return };
    let run = || {
        rlock("job")
            .node(&etcd.url())
            .args(["--once", "1h"])
            .sh("echo ran")
            .code(0)
    };
    run().printed(&["ran"]);
    run().printed(&[]);
    let other = rlock("job/").node(&etcd.url()).args(["--once", "1h"]);
    other.sh("echo other").code(0).printed(&["other"]);
    let forget = |name| {
        let forgotten = ["break", "--yes", name];
        rlock_words(forgotten).node(&etcd.url()).finish().code(0);
    };
    forget("job");
    run().printed(&["ran"]);
    // Each success has a lease, also one that replaces another.
    std::thread::sleep(Duration::from_millis(2100));
    let anew = rlock("job").node(&etcd.url()).args(["--once", "1s"]);
    anew.sh("echo ran").code(0).printed(&["ran"]);
    wait_for_leases(&etcd, 2);
    ["job", "job/"].into_iter().for_each(forget);
    leaves_nothing(&etcd);
}

/// A leader that begins gives each lease its whole time again. Before that no clock of a host counts.
#[test]
fn a_success_grows_older_under_the_next_leader() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let url = etcd.url();
    let ran = |within: &str| {
        let run = rlock("job").node(&url).args(["--once", within]);
        run.sh("echo ran").code(0).stdout == ["ran"]
    };
    assert!(ran("1h"));
    let mark = etcd.ctl(&["get", "--print-value-only", "rlock:once:job"]);
    let parts: Vec<&str> = mark.trim().splitn(5, ' ').collect();
    let at: u64 = parts[3].parse().expect("a time in ms");
    let two_hours_ago = (at - 7_200_000).to_string();
    let value = [&parts[..3], &[&two_hours_ago, parts[4]]].concat();
    etcd.ctl(&["put", "--ignore-lease", "rlock:once:job", &value.join(" ")]);
    assert!(!ran("1h"), "by the leader's clock it is a moment ago");
    etcd.kill(0);
    etcd.come_back(0);
    assert!(!ran("3h"));
    assert!(ran("1h"), "by the hosts' clocks it is two hours ago");
}

/// All but those whose request is lost ([`LEASE_ENDS`]).
#[test]
fn most_runs_end_their_lease() {
    let Some(etcd) = Etcd::start(1) else { return };
    for _ in 0..10 {
        rlock("job").node(&etcd.url()).args(LONG).sh("true").code(0);
    }
    eventually("most leases are ended", || leases(&etcd) < 5);
}

#[test]
fn what_is_broken_leaves_no_lease() {
    let Some(etcd) = Etcd::start(1) else { return };
    let acquired = ["acquire", "-k", "job", "--ttl", "5m"];
    rlock_words(acquired).node(&etcd.url()).finish().code(0);
    let broken = || {
        let words = ["break", "--yes", "job"];
        rlock_words(words).node(&etcd.url()).finish().code(0);
        leaves_nothing(&etcd);
    };
    broken();
    let parked = ["--hold-at-least", "5m", "--", "true"];
    rlock("job").node(&etcd.url()).args(parked).finish().code(0);
    broken();
    // Nor does a release that comes too late.
    let mut job = rlock("job").node(&etcd.url()).args(parked[..2].iter());
    job = job.args(["--once", "1h"]);
    let taken = "etcdctl del --prefix job/ --endpoints $0 >&2; exit 0";
    let endpoint = etcd.endpoint(0);
    let late = job.args(["--", "sh", "-c", taken, &endpoint]).finish();
    assert!(!late.exited_with(0), "{}", late.stderr);
    leaves_nothing(&etcd);
}

#[test]
fn a_lock_stays_when_its_command_has_ended() {
    let Some(etcd) = Etcd::start(1) else { return };
    let parked = ["--hold-at-least", "8s", "--", "true"];
    rlock("job").node(&etcd.url()).args(parked).finish().code(0);
    let busy = rlock("job")
        .node(&etcd.url())
        .args(["-n"])
        .sh("true")
        .code(75);
    busy.said(&["parked by"]);
    rlock("job").node(&etcd.url()).sh("true").code(0);
}

#[test]
fn a_lock_that_is_broken_is_given_back_once_its_command_is_dead() {
    let Some(etcd) = Etcd::start(1) else { return };
    for command in [
        &["break", "--yes", "job"][..],
        &["break", "--yes", "--now", "job"],
    ] {
        let mut job = rlock("job").node(&etcd.url()).hold("echo ready; sleep 60");
        rlock_words(command).node(&etcd.url()).finish().code(0);
        job.wait_until_told("job");
        job.finish().code(79);
        leaves_nothing(&etcd);
    }
}

#[test]
fn what_etcd_lacks_is_refused_before_it_is_asked() {
    for (words, why) in [
        (&["--slots", "2"][..], "--slots is not for etcd"),
        (&["--wait-replicas", "1"], "--wait-replicas is for Redis"),
        (&["--fsync"], "--fsync is for Redis"),
        (&["--as", "redisson"], "--as redisson is for Redis"),
        (&["--restart-guard", "5s"], "forget nothing"),
        (&["--node", "redis://h"], "has a quorum of its own"),
    ] {
        let run = rlock("job").node("etcd://127.0.0.1:1").args(words);
        run.sh("true").code(64).said(&[why]);
    }
    for own in ["rlock:once:job", "rlock:newest:job"] {
        let run = rlock(own).node("etcd://127.0.0.1:1");
        run.sh("true")
            .code(64)
            .said(&["the name begins with rlock:once: or rlock:newest:"]);
    }
}

#[test]
fn doctor_tells_of_the_members() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let doctor = |node: String| rlock_words(["doctor"]).node(&node).finish();
    // On a busy machine the members elect another leader at any time.
    eventually("all members are told, and the one that leads", || {
        let told = doctor(etcd.url()).stdout.join("\n");
        [
            told.matches("member ").count(),
            told.matches(", leads").count(),
        ] == [3, 1]
    });
    doctor(etcd.url()).code(1);
    let one = doctor(etcd.url_of(0)).stdout.join("\n");
    assert!(one.contains("names one of 3 members"), "{one}");
    etcd.kill(1);
    eventually("the others tell of the one that is away", || {
        let two = doctor(etcd.url()).stdout.join("\n");
        two.contains("cannot connect")
    });
}

/// A lease that ends in no test.
const LONG: [&str; 2] = ["--ttl", "5m"];

#[test]
fn the_guard_gives_the_lock_back_when_rlock_is_killed() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let job = witnessed(&etcd.url(), dir.path()).args(["--ttl", "40s"]);
    let job = job.hold(failures::STAYS);
    let mut next = etcdctl_lock(&etcd, dir.path(), "job", ALONE, "next");
    wait_for_entries(&etcd, 2);
    let begin = Instant::now();
    job.signal(Signal::SIGKILL);
    assert!(next.wait().expect("its end").success(), "both ran");
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "with its lease: {took:?}");
    leaves_nothing(&etcd);
    drop(job);
    // So it is with a waiter, whose place would keep others out.
    let job = rlock("job").node(&etcd.url()).args(LONG).hold(HOLD);
    let waiter = rlock("job")
        .node(&etcd.url())
        .args(LONG)
        .args(["--", "true"])
        .spawn();
    wait_for_entries(&etcd, 2);
    waiter.signal(Signal::SIGKILL);
    wait_for_entries(&etcd, 1);
    drop(job);
}

/// Returns how many calls of this name the member has begun.
fn calls(etcd: &Etcd, member: usize, name: &str) -> u64 {
    let mut page = String::new();
    let mut stream = TcpStream::connect(etcd.endpoint(member)).expect("etcd");
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    stream.read_to_string(&mut page).expect("a page");
    let name = format!("grpc_method=\"{name}\"");
    let is_wanted =
        |line: &&str| line.starts_with("grpc_server_started_total") && line.contains(&name);
    let lines = page.lines().filter(is_wanted);
    let number = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    lines.filter_map(number).sum()
}

/// Waits for so many more keepalives.
fn wait_for_keepalives(etcd: &Etcd, number: u64) {
    let keepalives = || calls(etcd, 0, "LeaseKeepAlive");
    let before = keepalives();
    eventually("leases are kept alive", || keepalives() >= before + number);
}

#[test]
fn a_waiter_has_one_watch_and_a_keepalive_each_third_of_its_ttl() {
    let Some(etcd) = Etcd::start(1) else { return };
    let job = rlock("job").node(&etcd.url()).args(LONG).hold(HOLD);
    eventually("the holder listens", || calls(&etcd, 0, "Watch") > 0);
    let seen = || ["Watch", "LeaseKeepAlive"].map(|name| calls(&etcd, 0, name));
    let before = seen();
    // The watch ends with its connection, which an answer that is late costs.
    let waits = ["--ttl", "6s", "--node-timeout", "1s", "--wait", "12s"];
    let waiter = rlock("job").node(&etcd.url()).args(waits).sh("true");
    waiter.code(75);
    let after = seen();
    assert_eq!(after[0] - before[0], 1);
    let keepalives = after[1] - before[1];
    assert!((4..=8).contains(&keepalives), "{keepalives}");
    drop(job);
}

#[test]
fn a_waiter_that_gives_up_leaves_no_place() {
    let Some(etcd) = Etcd::start(1) else { return };
    let job = rlock("job").node(&etcd.url()).hold(HOLD);
    rlock("job")
        .node(&etcd.url())
        .args(["--wait", "5s"])
        .sh("true")
        .code(75);
    wait_for_entries(&etcd, 1);
    let waiter = rlock("job").node(&etcd.url()).args(["--", "true"]).spawn();
    wait_for_entries(&etcd, 2);
    waiter.signal(Signal::SIGTERM);
    assert!(!waiter.finish().exited_with(0));
    wait_for_entries(&etcd, 1);
    drop(job);
    // The holder's lease lasts longer.
    let soon = Duration::from_secs(15);
    rlock("job")
        .node(&etcd.url())
        .sh("true")
        .code(0)
        .within(soon);
}

#[test]
fn a_lock_that_is_broken_stays_for_its_delay() {
    let Some(etcd) = Etcd::start(1) else { return };
    let delayed = ["--ttl", "9s", "--node-timeout", "1s", "--lock-delay", "8s"];
    let mut job = rlock("job").node(&etcd.url()).args(delayed);
    job = job.args(["-v"]);
    let job = job.hold("echo ready; sleep 60");
    let broken = ["break", "--yes", "job"];
    rlock_words(broken)
        .node(&etcd.url())
        .finish()
        .code(0)
        .mentions(&["it stays parked"]);
    job.finish().code(79).mentions(&["parked: the lock stays"]);
    let busy = rlock("job").node(&etcd.url()).args(["-n"]).sh("true");
    busy.code(75).said(&["parked by"]);
    rlock("job").node(&etcd.url()).sh("true").code(0);
    leaves_nothing(&etcd);
}

#[test]
fn a_lock_is_broken_for_its_own_token_only() {
    let Some(etcd) = Etcd::start(1) else { return };
    let words = |words: &[&str]| {
        let words = rlock_words(words.iter().copied());
        words.node(&etcd.url()).finish()
    };
    let acquired = words(&["acquire", "-k", "job", "--ttl", "5m"]).code(0);
    let token = acquired.stdout[0].clone();
    let other = "11111111-2222-4333-8444-555555555555";
    words(&["break", "--yes", "--token", other, "job"]).code(1);
    words(&["check", "-k", "job", "--token", &token]).code(0);
    words(&["break", "--yes", "--token", &token, "job"]).code(0);
    words(&["check", "-k", "job", "--token", &token]).code(1);
    leaves_nothing(&etcd);
}

#[test]
fn metrics_tell_of_holders_waiters_and_ends() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["--metrics-dir", dir.path().to_str().expect("a name")];
    let job = rlock("job").node(&etcd.url()).args(words).hold(HOLD);
    let waiter = rlock("job").node(&etcd.url()).args(["--", "true"]).spawn();
    wait_for_entries(&etcd, 2);
    let gauges = rlock_words(["inspect", "--format", "openmetrics"]);
    let gauges = gauges.node(&etcd.url()).finish().code(0).stdout;
    for gauge in [
        "rlock_lock_held{key=\"job\"} 1",
        "rlock_lock_waiters{key=\"job\"} 1",
    ] {
        assert!(gauges.iter().any(|line| line == gauge), "{gauges:?}");
    }
    job.finish().code(1);
    waiter.finish().code(0);
    let page = std::fs::read_to_string(dir.path().join("rlock-job.prom")).expect("metrics");
    assert!(
        page.contains("rlock_last_exit_code{key=\"job\"} 1"),
        "{page}"
    );
}
