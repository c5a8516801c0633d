//! The command never outlives the lock: rlock or its guard killed or stopped, commands that will not die, and what they
//! started.
//!
//! The witness is independent of rlock: a command writes the boot time every moment while it runs, and its last tick is
//! compared with what was done to rlock, or with the next holder's first.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::support::{RLOCK, Running, Server, alive, children, eventually, guard_of, rlock, signal};

/// Milliseconds, on a machine whose cores are all busy with other tests. `benches/` measures it on an idle one.
const MOMENT: Duration = Duration::from_millis(400);

/// Nanoseconds since boot, on the clock that the witness writes.
fn boot_nanos() -> u128 {
    Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock")).as_nanos()
}

/// A command that says who it is and who its child is, and then ticks in both until it is killed; TERM does not end it.
struct Witness {
    rlock: Running,
    leader: i32,
    child: i32,
    ticks: PathBuf,
    _dir: TempDir,
}

impl Witness {
    fn start(node: &str, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ticks = dir.path().join("ticks");
        let script = "trap '' TERM
            tick() { while read up rest < /proc/uptime; do echo $up >> \"$0\"; sleep 0.005; done; }
            tick & echo child $!; echo leader $$; echo ready; tick";
        let mut rlock = rlock("job").node(node).args(options).args(["--", "sh", "-c", script]).args([&ticks]).spawn();
        let child = rlock.wait_for_pid("child");
        let leader = rlock.wait_for_pid("leader");
        rlock.wait_for("ready");
        eventually("it ticks", || std::fs::read_to_string(&ticks).is_ok_and(|text| text.ends_with('\n')));
        Self { rlock, leader, child, ticks, _dir: dir }
    }

    /// The guard: rlock's other child.
    fn guard(&self) -> i32 {
        guard_of(self.rlock.pid())
    }

    fn is_dead(&self) -> bool {
        !alive(self.leader) && !alive(self.child)
    }

    /// Waits until both processes are gone; how long that took.
    fn dies(&self) -> Duration {
        let begin = Instant::now();
        eventually("the command is dead", || self.is_dead());
        begin.elapsed()
    }

    /// Seconds since boot of the last tick, to a hundredth.
    fn last_tick(&self) -> f64 {
        last_line(&self.ticks)
    }
}

fn last_line(file: &Path) -> f64 {
    let text = std::fs::read_to_string(file).expect("ticks");
    text.lines().rev().find_map(|line| line.parse().ok()).expect("a tick")
}

fn local() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    (dir, node)
}

/// Run by the next holder with the pid of a process: says `alone` if that can run no more. A zombie cannot.
const ALONE: &str = "case $(cut -d' ' -f3 /proc/$0/stat 2>/dev/null) in Z|X|'') echo alone;; esac";

#[test]
fn rlock_killed_means_the_command_is_gone_in_milliseconds() {
    let server = Server::start();
    for _ in 0..10 {
        let witness = Witness::start(&server.url(), &[]);
        witness.rlock.signal(Signal::SIGKILL);
        let took = witness.dies();
        assert!(took < MOMENT, "{took:?}");
        // The guard has given it back or is about to.
        eventually("the lock is free", || server.cli(&["EXISTS", "job"]) == "0");
    }
}

#[test]
fn a_local_lock_outlasts_a_killed_rlock_until_the_command_is_dead() {
    let (_dir, node) = local();
    for _ in 0..10 {
        let witness = Witness::start(&node, &[]);
        let next = rlock("job").node(&node).args(["--", "cat", "/proc/uptime"]).spawn();
        witness.rlock.signal(Signal::SIGKILL);
        let next = next.finish().code(0);
        assert!(witness.is_dead());
        let first: f64 = next.stdout[0].split(' ').next().expect("a number").parse().expect("seconds");
        assert!(witness.last_tick() <= first, "{} and then {first}", witness.last_tick());
    }
}

#[test]
fn rlock_stopped_past_its_lease_means_the_command_is_gone_by_its_end_and_79_later() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &["--ttl", "900ms"]);
    let renewed = boot_nanos();
    witness.rlock.signal(Signal::SIGSTOP);
    witness.dies();
    assert!(
        Duration::from_nanos(u64::try_from(boot_nanos() - renewed).expect("a short time")) < Duration::from_millis(900)
    );
    // By now the lock is another's.
    eventually("the lease is over", || server.cli(&["EXISTS", "job"]) == "0");
    server.cli(&["SET", "job", "another's"]);
    witness.rlock.signal(Signal::SIGCONT);
    witness.rlock.finish().code(79).mentions(&["lost the lock"]);
    assert_eq!(server.cli(&["GET", "job"]), "another's");
}

#[test]
fn the_guard_knows_of_renewals_and_so_does_one_in_its_place() {
    let server = Server::start();
    for is_replaced in [false, true] {
        let witness = Witness::start(&server.url(), &["--ttl", "900ms"]);
        // The first lease would be over.
        server.wait_until_asked(4);
        if is_replaced {
            let old = witness.guard();
            signal(old, Signal::SIGKILL);
            eventually("there is another guard", || !alive(old) && guard_of(witness.rlock.pid()) != old);
        }
        assert!(!witness.is_dead());
        let begin = Instant::now();
        witness.rlock.signal(Signal::SIGSTOP);
        witness.dies();
        assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
        witness.rlock.signal(Signal::SIGCONT);
        witness.rlock.finish().code(79);
    }
}

#[test]
fn rlock_stopped_in_the_time_of_grace_does_not_lengthen_it() {
    let server = Server::start();
    let mut witness = Witness::start(&server.url(), &["--max-run", "0.3", "--kill-after", "0.5"]);
    witness.rlock.wait_until_told("--max-run is over");
    witness.rlock.signal(Signal::SIGSTOP);
    let took = witness.dies();
    assert!(took < Duration::from_millis(500) + MOMENT, "{took:?}");
    witness.rlock.signal(Signal::SIGCONT);
    witness.rlock.finish().code(124);
}

#[test]
fn a_guard_that_is_killed_or_stopped_is_replaced_and_the_new_one_does_its_work() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &[]);
    for how in [Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGKILL] {
        let old = witness.guard();
        signal(old, how);
        eventually("there is another guard", || {
            children(witness.rlock.pid()).len() == 2 && guard_of(witness.rlock.pid()) != old
        });
        assert!(!alive(old));
        assert!(!witness.is_dead());
    }
    witness.rlock.signal(Signal::SIGKILL);
    let took = witness.dies();
    assert!(took < MOMENT, "{took:?}");
}

#[test]
fn rlock_and_its_guard_killed_at_once_take_the_command_with_them() {
    let server = Server::start();
    for _ in 0..10 {
        let mut job = rlock("job").on(&server).args(["--", "sh", "-c", "echo self $$; exec sleep 60"]).spawn();
        let command = job.wait_for_pid("self");
        let guard = guard_of(job.pid());
        // rlock is stopped first, so that it does not replace its guard.
        signal(job.pid(), Signal::SIGSTOP);
        signal(guard, Signal::SIGKILL);
        signal(job.pid(), Signal::SIGKILL);
        eventually("the command is dead", || !alive(command));
        // The lock is left to its lease: no other client gets it early.
        assert_eq!(server.cli(&["EXISTS", "job"]), "1");
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn the_guard_ignores_what_it_can_and_has_a_session_and_no_descriptor_of_ours() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &[]);
    let guard = witness.guard();
    for which in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGUSR1] {
        signal(guard, which);
    }
    assert!(alive(guard));
    let stat = std::fs::read_to_string(format!("/proc/{guard}/stat")).expect("its state");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    assert_eq!((fields[2], fields[3]), (guard.to_string().as_str(), guard.to_string().as_str()));
    let open = std::fs::read_dir(format!("/proc/{guard}/fd")).expect("descriptors").flatten();
    let open: Vec<String> = open
        .map(|fd| std::fs::read_link(fd.path()).unwrap_or_default().to_string_lossy().into_owned())
        .filter(|target| !target.starts_with("socket:") && !target.contains("timerfd"))
        .collect();
    assert_eq!(open, [""; 0]);
}

#[test]
fn a_frozen_tree_that_thaws_past_its_lease_runs_for_a_moment_only() {
    let server = Server::start();
    for _ in 0..5 {
        let witness = Witness::start(&server.url(), &["--ttl", "900ms"]);
        let all = [witness.rlock.pid(), witness.guard(), witness.leader, witness.child];
        for pid in all {
            signal(pid, Signal::SIGSTOP);
        }
        eventually("the lease is over", || server.cli(&["EXISTS", "job"]) == "0");
        let thawed = boot_nanos();
        for pid in all.into_iter().rev() {
            signal(pid, Signal::SIGCONT);
        }
        witness.dies();
        let ran = Duration::from_nanos(u64::try_from(boot_nanos() - thawed).expect("a short time"));
        assert!(ran < MOMENT, "ran {ran:?} after the thaw");
        witness.rlock.finish().code(79);
    }
}

#[test]
fn a_command_under_a_nested_rlock_dies_with_the_outer_lock() {
    let server = Server::start();
    for by in ["loss", "death"] {
        let script = format!(
            "{RLOCK} run --key inner --ttl 20s -- sh -c 'trap \"\" TERM; echo inner $$; sleep 60 & wait; sleep 60' & wait; sleep 60"
        );
        let mut job = rlock("outer").on(&server).args(["--ttl", "3s", "--kill-after", "100ms", "-c", &script]).spawn();
        let inner = job.wait_for_pid("inner");
        if by == "loss" {
            server.cli(&["SET", "outer", "another's"]);
            job.finish().code(79);
            assert!(!alive(inner), "confirmed dead before rlock ended");
        } else {
            job.signal(Signal::SIGKILL);
            eventually("the inner command is dead", || !alive(inner));
        }
        server.cli(&["DEL", "outer", "inner"]);
    }
}

#[test]
fn contained_daemons_end_before_the_lock_passes_on_and_others_go_on() {
    let server = Server::start();
    let daemon = "setsid sh -c 'trap \"echo asked >> $0\" TERM; echo daemon $$; exec >/dev/null 2>&1; while :; do sleep 0.01; done' \"$0\" & sleep 0.05; true";
    let start = |options: &[&str], asked: &Path| {
        let job = rlock("job").on(&server).args(["--kill-after", "300ms"]).args(options);
        job.args(["--", "sh", "-c", daemon]).args([asked]).spawn()
    };
    let dir = tempfile::tempdir().expect("a directory");
    let asked = dir.path().join("asked");

    let mut job = start(&[], &asked);
    let free = job.wait_for_pid("daemon");
    job.finish().code(0).silent();
    assert!(alive(free), "without --contain a daemon goes on");
    signal(free, Signal::SIGKILL);
    assert!(!asked.exists());

    let mut job = start(&["--contain"], &asked);
    let contained = job.wait_for_pid("daemon");
    let next = rlock("job").on(&server).args(["--", "sh", "-c", ALONE]);
    let next = next.args([contained.to_string()]).spawn();
    job.finish().code(0).silent();
    assert!(!alive(contained));
    next.finish().code(0).printed(&["alone"]);
    assert_eq!(std::fs::read_to_string(&asked).expect("it was asked first"), "asked\n");
}

#[test]
fn contained_daemons_end_when_rlock_is_killed() {
    let server = Server::start();
    let daemon = "setsid sh -c 'echo daemon $$; while :; do sleep 0.01; done' & wait";
    let mut job = rlock("job").on(&server).args(["--contain", "-c", daemon]).spawn();
    let contained = job.wait_for_pid("daemon");
    job.signal(Signal::SIGKILL);
    eventually("the daemon is dead", || !alive(contained));
}

#[test]
fn the_exit_code_of_a_contained_command_is_its_own() {
    let server = Server::start();
    rlock("job").on(&server).args(["--contain"]).sh("exit 7").code(7).silent();
    rlock("job").on(&server).args(["--contain"]).sh("(setsid sleep 60 >/dev/null 2>&1 &) ; exit 3").code(3).silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_command_that_runs_too_long_is_stopped_with_124() {
    let server = Server::start();
    let late = Duration::from_secs(2);
    for (words, script) in [
        (&["--max-run", "0.3"][..], "echo ready; sleep 60"),
        (&["--max-run", "300ms", "--kill-after", "0.2"], "trap '' TERM; echo ready; sleep 60; sleep 60"),
        (&["--max-run", "300ms"], "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"),
    ] {
        let job = rlock("job").on(&server).args(words).hold(script);
        let finished = job.finish().code(124).mentions(&["job: --max-run is over"]);
        assert!(finished.took >= Duration::from_millis(300));
        finished.within(late);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
    rlock("job").on(&server).args(["--max-run", "5s"]).sh("exit 3").code(3).silent();
    rlock("job").on(&server).args(["--max-run", "0"]).sh("exit 3").code(3).silent();
}

#[test]
fn a_grace_longer_than_the_lease_is_given_in_full_when_the_time_is_up_and_cut_for_a_loss() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "1500ms", "--max-run", "200ms", "--kill-after", "2m"])
        .stdin(std::process::Stdio::piped())
        .hold("trap 'echo asked' TERM; echo ready; read interrupted; read line; exit 5");
    job.wait_for("asked");
    // Renewals come three to a lease: the grace is longer than one.
    server.wait_until_asked(5);
    assert!(job.is_running());
    drop(job.stdin.take());
    job.finish().code(124);

    let witness = Witness::start(&server.url(), &["--ttl", "1500ms", "--kill-after", "2m"]);
    server.freeze();
    let took = witness.dies();
    server.thaw();
    assert!(took < Duration::from_millis(1500) + MOMENT, "{took:?}");
    witness.rlock.finish().code(79);
}

#[test]
fn the_lock_is_kept_until_a_command_that_ran_too_long_is_dead() {
    let server = Server::start();
    let options = ["--ttl", "600ms", "--max-run", "300ms", "--kill-after", "0"];
    let options = ["--kill-after", "100ms"].iter().chain(&options[..4]);
    let mut job =
        rlock("job").on(&server).args(options).args(["-c", "trap '' TERM; echo leader $$; sleep 60; sleep 60"]).spawn();
    let leader = job.wait_for_pid("leader");
    let next = rlock("job").on(&server).args(["--", "sh", "-c", ALONE]);
    next.args([leader.to_string()]).finish().code(0).printed(&["alone"]);
    job.finish().code(124);
}

#[test]
fn a_command_that_somebody_stopped_can_still_be_ended() {
    let server = Server::start();
    let mut job = rlock("job").on(&server).args(["-c", "echo leader $$; kill -STOP $$; sleep 60"]).spawn();
    let leader = job.wait_for_pid("leader");
    let stopped = || std::fs::read_to_string(format!("/proc/{leader}/stat")).is_ok_and(|stat| stat.contains(") T "));
    eventually("it is stopped", stopped);
    job.signal(Signal::SIGTERM);
    job.finish().code(143).silent();
}

#[test]
fn a_leader_that_joins_another_group_dies_all_the_same() {
    let server = Server::start();
    let script =
        "$SIG{TERM} = 'IGNORE'; setpgrp(0, getpgrp(getppid())); $| = 1; print \"leader $$\\n\"; sleep 60 while 1";
    let mut job = rlock("job").on(&server).args(["--ttl", "900ms", "--", "perl", "-e", script]).spawn();
    let leader = job.wait_for_pid("leader");
    server.cli(&["SET", "job", "another's"]);
    job.finish().code(79);
    assert!(!alive(leader));
}

#[test]
fn a_stopped_guard_wakes_when_rlock_is_killed() {
    let (_dir, node) = local();
    let witness = Witness::start(&node, &[]);
    let guard = witness.guard();
    // rlock is stopped first, so that it does not replace its guard.
    witness.rlock.signal(Signal::SIGSTOP);
    signal(guard, Signal::SIGSTOP);
    witness.rlock.signal(Signal::SIGKILL);
    let took = witness.dies();
    assert!(took < MOMENT, "{took:?}");
    rlock("job").node(&node).command(["true"]).code(0).silent();
}

#[test]
fn contain_leaves_children_alone_that_were_there_before() {
    let server = Server::start();
    let script = format!(
        "sleep 60 >/dev/null 2>&1 & echo $!; exec {} run --key job --node {} --contain -- true",
        RLOCK,
        server.url()
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let before: i32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a pid");
    assert!(alive(before));
    signal(before, Signal::SIGKILL);
}

#[test]
fn a_signal_comes_once_to_a_contained_command_of_a_nested_rlock() {
    let server = Server::start();
    let script = format!(
        "exec {RLOCK} run --key inner -- sh -c 'trap \"echo got\" USR1; trap \"echo end; exit 0\" USR2; echo ready; while :; do sleep 0.01; done'"
    );
    let mut job = rlock("job").on(&server).args(["--contain", "-c", &script]).spawn();
    job.wait_for("ready");
    for _ in 0..5 {
        job.signal(Signal::SIGUSR1);
        job.wait_for("got");
    }
    job.signal(Signal::SIGUSR2);
    let finished = job.finish().code(0);
    assert_eq!(finished.stdout.iter().filter(|line| *line == "got").count(), 5);
}

#[test]
fn a_command_that_was_halted_through_rlock_goes_on_through_rlock() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["-c", "echo leader $$; read line; sleep 60"])
        .stdin(std::process::Stdio::piped())
        .spawn();
    let leader = job.wait_for_pid("leader");
    let state =
        |wanted: &str| std::fs::read_to_string(format!("/proc/{leader}/stat")).is_ok_and(|stat| stat.contains(wanted));
    job.signal(Signal::SIGTSTP);
    eventually("it is stopped", || state(") T "));
    job.signal(Signal::SIGCONT);
    eventually("it goes on", || state(") S "));
    job.signal(Signal::SIGTERM);
    job.finish().code(143);
}

#[test]
fn what_a_command_left_lives_on_though_rlock_is_killed_while_it_gives_the_lock_back() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["-v", "--node-timeout", "5s", "--ttl", "60s"])
        .hold("sleep 60 >/dev/null 2>&1 & echo left $!; echo ready; read line; true");
    let pids = job.seen_pids(&["left"]);
    let guard = guard_of(job.pid());
    server.freeze();
    drop(job.stdin.take());
    job.wait_until_told("giving the lock back");
    // rlock waits for the server's answer to its release.
    job.signal(Signal::SIGKILL);
    eventually("the guard has gone", || !alive(guard));
    assert!(alive(pids[0]), "it was killed");
    signal(pids[0], Signal::SIGKILL);
}
