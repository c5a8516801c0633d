//! Members that hang, are killed or lose each other: the command is dead before the lock can pass
//! on.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    ALONE, HOLD, calls, etcdctl_lock, leaves_nothing, wait_for_entries, wait_for_keepalives,
    witnessed,
};
use crate::support::{Delay, Etcd, Proxy, alive, eventually, guard_of, rlock, signal, skipped};

/// A lease that is short, and longer than an election.
const TTL: [&str; 2] = ["--ttl", "6s"];

/// A command that holds the lock until its stdin ends, and succeeds.
const HOLD_WELL: &str = "echo ready; read line; true";

/// A command that has the witness locked as long as it can run.
pub(super) const STAYS: &str = r#"exec flock "$WITNESS" sh -c 'echo ready; sleep 60'"#;

#[test]
fn a_leader_that_hangs_or_dies_costs_no_command() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    for hangs in [true, false] {
        let job = rlock("job").node(&etcd.url()).args(["--ttl", "24s"]);
        let mut job = job.hold("echo ready; read line; echo ran");
        let leader = etcd.leader();
        if hangs {
            etcd.freeze(leader);
        } else {
            etcd.kill(leader);
        }
        // Two renewals later.
        std::thread::sleep(Duration::from_secs(17));
        assert!(job.is_running());
        if hangs {
            etcd.thaw(leader);
        } else {
            etcd.come_back(leader);
        }
        drop(job.stdin.take());
        job.finish().code(0);
        etcd.settle();
    }
    leaves_nothing(&etcd);
}

#[test]
fn a_cluster_that_is_slow_is_as_good_with_all_members_named() {
    let Some(etcd) = Etcd::start(3) else {
        return;
    };
    // The proxy holds one piece after the other back: the first answer comes behind two of them, which
    // is more than a third of the node timeout.
    let (delay, timeout) = (Duration::from_millis(250), ["--node-timeout", "1200ms"]);
    let slow = |member| {
        let port = etcd.endpoint(member).rsplit(':').next().unwrap().parse();
        let delays = move |_| [Duration::ZERO, delay].map(|delay| Box::new(move || delay) as Delay);
        let proxy = Proxy::open(Ipv4Addr::LOCALHOST, port.unwrap(), delays).expect("a proxy");
        format!("127.0.0.1:{}", proxy.port())
    };
    let url = format!("etcd://{}", [0, 1, 2].map(slow).join(","));
    let job = rlock("job").node(&url).args(["--ttl", "12s"]).args(timeout);
    let mut job = job.hold("echo ready; read line; echo ran");
    // A renewal later.
    std::thread::sleep(Duration::from_secs(5));
    drop(job.stdin.take());
    job.finish().code(0);
    leaves_nothing(&etcd);
}

#[test]
fn without_a_quorum_the_command_is_dead_before_the_lock_passes_on() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let job = witnessed(&etcd.url(), dir.path()).args(TTL).hold(STAYS);
    let next = witnessed(&etcd.url(), dir.path())
        .args(["--", "sh", "-c", ALONE, "next"])
        .spawn();
    wait_for_entries(&etcd, 2);
    let leader = etcd.leader();
    let other = (leader + 1) % 3;
    let begin = Instant::now();
    etcd.kill(leader);
    etcd.kill(other);
    let lost = job.finish().code(79);
    assert!(begin.elapsed() < Duration::from_secs(20), "{}", lost.stderr);
    etcd.come_back(leader);
    etcd.come_back(other);
    next.finish().code(0);
}

/// A member goes on serving its clients when it is cut off from the others.
#[test]
fn a_member_that_is_cut_off_has_no_command_when_the_lock_passes_on() {
    let Some(etcd) = Etcd::apart(3) else { return };
    let leader = etcd.leader();
    for member in [leader, (leader + 1) % 3] {
        let dir = tempfile::tempdir().expect("a directory");
        let job = witnessed(&etcd.url_of(member), dir.path());
        let job = job.args(["--ttl", "9s"]).hold(STAYS);
        // A client of that member that knows the others too.
        let mut other = loop {
            let asked = || calls(&etcd, member, "LeaseGrant");
            let before = asked();
            let other = rlock("other").node(&etcd.url()).args(["--ttl", "15s"]);
            let other = other.hold("echo ready; read line; echo ran");
            if asked() > before {
                break other;
            }
        };
        let others = [1, 2].map(|next| etcd.endpoint((member + next) % 3));
        let next = witnessed(&format!("etcd://{}", others.join(",")), dir.path());
        let next = next.args(["--", "sh", "-c", ALONE, "next"]).spawn();
        wait_for_entries(&etcd, 2);
        etcd.cut_off(member);
        next.finish().code(0);
        job.finish().code(79);
        assert!(other.is_running());
        etcd.mend();
        drop(other.stdin.take());
        other.finish().code(0).printed(&["ready", "ran"]);
        etcd.settle();
        leaves_nothing(&etcd);
    }
}

/// etcd forgets old revisions. A watch that begins there is refused.
#[test]
fn a_log_that_is_compacted_costs_no_waiter_its_turn_and_no_holder_its_warning() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let compact = |etcd: &Etcd| {
        let put = etcd.ctl(&["put", "x", "y", "--write-out=fields"]);
        let revision = put.lines().find(|line| line.starts_with("\"Revision\""));
        let revision = revision.and_then(|line| line.rsplit(' ').next());
        etcd.ctl(&["compact", revision.expect("a revision")]);
    };
    let long = || rlock("job").node(&etcd.url()).args(["--ttl", "5m"]);
    let holder = long().hold(HOLD);
    let words = ["--", "sh", "-c", "echo ready; sleep 60"];
    let mut waiter = long().args(words).spawn();
    wait_for_entries(&etcd, 2);
    compact(&etcd);
    // It begins its watch anew.
    etcd.kill(0);
    etcd.come_back(0);
    etcd.settle();
    let watches = || calls(&etcd, 0, "Watch");
    eventually("a watch is begun anew", || watches() > 0);
    compact(&etcd);
    let before = watches();
    drop(holder);
    waiter.wait_for("ready");
    eventually("the holder listens", || watches() > before);
    etcd.ctl(&["del", "--prefix", "job/"]);
    // The first renewal is due after 100 s.
    waiter.finish().code(79);
}

#[test]
fn a_lock_that_is_taken_away_by_hand_ends_its_command_at_once() {
    let Some(etcd) = Etcd::start(1) else { return };
    for way in ["lease", "key"] {
        let watches = || calls(&etcd, 0, "Watch");
        let before = watches();
        let job = rlock("job")
            .node(&etcd.url())
            .args(["--ttl", "5m"])
            .hold("echo ready; sleep 60");
        eventually("it listens", || watches() > before);
        if way == "key" {
            etcd.ctl(&["del", "--prefix", "job/"]);
        } else {
            let listed = etcd.ctl(&["lease", "list"]);
            let lease = listed.lines().nth(1).expect("a lease").to_owned();
            etcd.ctl(&["lease", "revoke", lease.trim()]);
        }
        // The first renewal is due after 100 s.
        job.finish().code(79);
    }
}

#[test]
fn a_stopped_rlock_loses_its_command_before_its_lock() {
    let Some(etcd) = Etcd::start(1) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let job = witnessed(&etcd.url(), dir.path()).args(TTL).hold(STAYS);
    let mut next = etcdctl_lock(&etcd, dir.path(), "job", ALONE, "next");
    wait_for_entries(&etcd, 2);
    job.signal(Signal::SIGSTOP);
    assert!(next.wait().expect("its end").success(), "both ran");
    job.signal(Signal::SIGCONT);
    job.finish().code(79);
}

/// The kernel kills the command's first process with rlock. No process is left that knows of those
/// which that had started.
#[test]
fn without_rlock_and_its_guard_the_lock_ends_with_its_lease() {
    let Some(etcd) = Etcd::start(1) else { return };
    let script = "sleep 60 & echo child $!; echo self $$; echo ready; wait";
    let job = rlock("job").node(&etcd.url()).args(["--ttl", "15s"]);
    let job = job.hold(script);
    let pids = job.seen_pids(&["child", "self"]);
    let next = rlock("job").node(&etcd.url()).args(["--", "echo", "ran"]);
    let mut next = next.spawn();
    wait_for_entries(&etcd, 2);
    let guard = guard_of(job.pid());
    // It would start another guard.
    job.signal(Signal::SIGSTOP);
    signal(guard, Signal::SIGKILL);
    let begin = Instant::now();
    job.signal(Signal::SIGKILL);
    eventually("the first process is dead", || !alive(pids[1]));
    next.wait_for("ran");
    let took = begin.elapsed();
    assert!(alive(pids[0]), "what it had started goes on");
    signal(pids[0], Signal::SIGKILL);
    // A third of the lease may be over at the kill, and etcd ends it half a second late.
    let (least, most) = (Duration::from_secs(8), Duration::from_secs(25));
    assert!(least < took && took < most, "{took:?}");
    next.finish().code(0);
    leaves_nothing(&etcd);
}

#[test]
fn a_waiter_whose_lease_is_over_enters_the_line_again_at_its_end() {
    let Some(etcd) = Etcd::start(1) else { return };
    for is_stopped in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let holder = rlock("job").node(&etcd.url()).hold(HOLD);
        let waits = |name: &str| {
            let job = witnessed(&etcd.url(), dir.path()).args(TTL);
            job.args(["--", "sh", "-c", ALONE, name]).spawn()
        };
        let one = waits("one");
        wait_for_entries(&etcd, 2);
        let keys = etcd.ctl(&["get", "--prefix", "job/", "--keys-only", "--sort-by=CREATE"]);
        let lease = keys.trim().rsplit('/').next().expect("its key").to_owned();
        let two = waits("two");
        wait_for_entries(&etcd, 3);
        if is_stopped {
            one.signal(Signal::SIGSTOP);
            wait_for_entries(&etcd, 2);
            one.signal(Signal::SIGCONT);
        } else {
            etcd.ctl(&["lease", "revoke", &lease]);
        }
        wait_for_entries(&etcd, 3);
        drop(holder);
        one.finish().code(0);
        two.finish().code(0);
        let order = std::fs::read_to_string(dir.path().join("order")).expect("the order");
        let names: Vec<_> = order
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(names, ["two", "one"]);
        leaves_nothing(&etcd);
    }
}

#[test]
fn a_member_that_restarts_is_not_noticed_by_the_command() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let mut job = rlock("job")
        .node(&etcd.url())
        .args(["--ttl", "20s"])
        .hold(HOLD);
    etcd.kill(0);
    std::thread::sleep(Duration::from_secs(1));
    etcd.come_back(0);
    // A renewal later.
    std::thread::sleep(Duration::from_secs(8));
    drop(job.stdin.take());
    job.finish().code(1);
    etcd.settle();
    leaves_nothing(&etcd);
}

#[test]
fn a_store_that_is_full_gives_no_lock_and_takes_none() {
    let Some(etcd) = Etcd::start_with(1, &["--quota-backend-bytes=20000000"]) else {
        return;
    };
    let job = rlock("job")
        .node(&etcd.url())
        .args(["--ttl", "9s", "--node-timeout", "1500ms"])
        .hold("echo ready; read line; echo ran");
    let options = ["--ttl", "40s", "--once", "1h", "--hold-at-least", "1h"];
    let mut leaves = rlock("leaves")
        .node(&etcd.url())
        .args(options)
        .hold(HOLD_WELL);
    let large = "x".repeat(1_000_000);
    let is_full = |key: usize| {
        let mut put = etcd.client();
        put.args(["put", &format!("large{key}")])
            .stdin(std::process::Stdio::piped());
        let mut put = put
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("etcdctl");
        let mut stdin = put.stdin.take().expect("stdin");
        let _ = std::io::Write::write_all(&mut stdin, large.as_bytes());
        drop(stdin);
        !put.wait().expect("its end").success()
    };
    assert!((0..60).any(is_full), "never full");
    rlock("other")
        .node(&etcd.url())
        .args(["-n"])
        .sh("true")
        .code(69)
        .said(&["space exceeded"]);
    // What cannot be left is told, and keeps no lock.
    let begin = Instant::now();
    drop(leaves.stdin.take());
    eventually("it is given back", || {
        !etcd.keys().iter().any(|key| key.starts_with("leaves/"))
    });
    assert!(begin.elapsed() < Duration::from_secs(15), "with its lease");
    leaves.finish().code(0).mentions(&[
        "the lock is gone, and nothing could be left",
        "another run with --once may repeat it",
    ]);
    // Nothing is asked again that would be refused again.
    assert!(begin.elapsed() < Duration::from_secs(20), "with its lease");
    wait_for_keepalives(&etcd, 2);
    job.finish().code(0).printed(&["ready", "ran"]);
}

/// A file system of its own for each member, whose disk can be made to stand still.
pub(crate) struct Disks {
    dir: TempDir,
    mounted: Vec<PathBuf>,
}

impl Disks {
    /// Makes `count` of them; `None` where file systems cannot be mounted, which is printed.
    pub(crate) fn make(count: usize) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mut disks = Self {
            dir,
            mounted: Vec::new(),
        };
        for number in 0..count {
            let path = |name: &str| disks.dir.path().join(format!("{name}{number}"));
            let (image, mount) = (path("image"), path("mount"));
            std::fs::create_dir(&mount).expect("a directory");
            let made = std::fs::File::create(&image)
                .expect("a file")
                .set_len(300 << 20);
            made.expect("a file");
            let is_done = run("mkfs.ext4", &["-q".as_ref(), &image])
                && run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &mount]);
            if !is_done {
                skipped("no file system can be mounted here");
                return None;
            }
            disks.mounted.push(mount);
        }
        Some(disks)
    }

    pub(crate) fn data(&self) -> Vec<PathBuf> {
        self.mounted
            .iter()
            .map(|mount| mount.join("data"))
            .collect()
    }

    /// Stops the disk: what writes to it waits.
    pub(crate) fn freeze(&self, number: usize) {
        assert!(run("fsfreeze", &["-f".as_ref(), &self.mounted[number]]));
    }

    pub(crate) fn thaw(&self) {
        for mount in &self.mounted {
            run("fsfreeze", &["-u".as_ref(), mount]);
        }
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        self.thaw();
        for mount in &self.mounted {
            run("umount", &["-l".as_ref(), mount]);
        }
    }
}

fn run(program: &str, words: &[&Path]) -> bool {
    let output = Command::new(program).args(words).output();
    output.is_ok_and(|output| output.status.success())
}

/// An answered keepalive proves nothing: a leader whose disk stands still answers it, while the
/// others have another leader, which ends the lease.
#[test]
fn a_leader_whose_disk_stands_still_keeps_etcdctls_job_running_beside_the_next_and_not_ours() {
    let Some(disks) = Disks::make(3) else { return };
    let Some(etcd) = Etcd::on(&disks.data()) else {
        return;
    };
    for is_rlock in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let leader = etcd.leader();
        let others: Vec<String> = (0..3)
            .filter(|member| *member != leader)
            .map(|member| etcd.endpoint(member))
            .collect();
        let others = format!("etcd://{}", others.join(","));
        // Both ask the leader alone.
        let mut holders = (None, None);
        if is_rlock {
            let job = witnessed(&etcd.url_of(leader), dir.path()).args(TTL);
            holders.0 = Some(job.hold(STAYS));
        } else {
            let mut command = Command::new("etcdctl");
            command
                .env("ETCDCTL_API", "3")
                .arg(format!("--endpoints={}", etcd.endpoint(leader)))
                .args(["lock", "job", "--ttl=6", "--", "sh", "-c", STAYS])
                .env("WITNESS", dir.path().join("witness"))
                .stdout(std::process::Stdio::null());
            holders.1 = Some(command.spawn().expect("etcdctl"));
        }
        wait_for_entries(&etcd, 1);
        disks.freeze(leader);
        // A write lets its raft wait for the disk.
        let mut put = Command::new("etcdctl");
        put.env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", etcd.endpoint(leader)));
        let mut put = put.args(["put", "x", "y"]).spawn().expect("etcdctl");
        let next = witnessed(&others, dir.path())
            .args(["--", "sh", "-c", ALONE, "next"])
            .finish();
        if let Some(job) = holders.0 {
            assert!(next.exited_with(0), "both ran: {}", next.stderr);
            disks.thaw();
            job.finish().code(79);
        }
        if let Some(mut job) = holders.1 {
            assert!(!next.exited_with(0), "etcdctl's job was dead");
            assert!(job.try_wait().expect("a job").is_none(), "it still runs");
            disks.thaw();
            let _ = job.kill();
            let _ = job.wait();
        }
        let _ = put.wait();
        etcd.settle();
        wait_for_entries(&etcd, 0);
    }
}
