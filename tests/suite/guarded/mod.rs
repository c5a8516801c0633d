//! The command never outlives the lock, though rlock or its guard is killed or stopped.
//!
//! The witness is independent of rlock: a command that logs the boot time every few milliseconds
//! while it runs. Its last tick is compared with the time of a fault, or with the first tick of the
//! next holder.

mod contain;
mod max_run;
mod prompt;

use std::fs::DirEntry;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;
#[cfg(target_arch = "x86_64")]
use testkit::processes::fail_epoll_wait;
use testkit::processes::stat;
use testkit::{Rlock, now};

use crate::support::{
    NOBODY, RLOCK, Rooted, Running, Server, alive, children, eventually, guard_of, rlock,
    side_by_side, signal, state,
};

/// Some milliseconds, on a machine whose cores are all busy with other tests. `tests/faults`
/// measures an idle machine.
const MOMENT: Duration = Duration::from_millis(400);

/// A command that prints its own pid and its child's, and then ticks in both until it is killed.
/// TERM does not end it.
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
        let mut rlock = rlock("job")
            .node(node)
            .args(options)
            .args(["--", "sh", "-c", script])
            .args([&ticks])
            .spawn();
        let child = rlock.wait_for_pid("child");
        let leader = rlock.wait_for_pid("leader");
        rlock.wait_for("ready");
        eventually("it ticks", || {
            std::fs::read_to_string(&ticks).is_ok_and(|text| text.ends_with('\n'))
        });
        // It hurries once it waits, and the command's start does not wait for that.
        let guard = guard_of(rlock.pid());
        eventually("the guard waits", || state(guard) == Some('S'));
        Self {
            rlock,
            leader,
            child,
            ticks,
            _dir: dir,
        }
    }

    /// Returns the guard, which is rlock's other child.
    fn guard(&self) -> i32 {
        guard_of(self.rlock.pid())
    }

    fn is_dead(&self) -> bool {
        !alive(self.leader) && !alive(self.child)
    }

    /// Waits until both processes are dead, and returns how long after the call one of them ticked.
    fn dies(&self) -> Duration {
        let begin = now();
        eventually("the command is dead", || self.is_dead());
        Duration::from_secs_f64(self.last_tick()).saturating_sub(begin)
    }

    /// Waits until rlock is dead, and then both processes. Returns how long after rlock's
    /// end one of them ticked.
    fn dies_after_rlock(&self) -> Duration {
        eventually("rlock is dead", || !alive(self.rlock.pid()));
        self.dies()
    }

    /// Returns the last tick in seconds since boot, to a hundredth.
    fn last_tick(&self) -> f64 {
        last_line(&self.ticks)
    }
}

fn last_line(file: &Path) -> f64 {
    let text = std::fs::read_to_string(file).expect("ticks");
    text.lines()
        .rev()
        .find_map(|line| line.parse().ok())
        .expect("a tick")
}

fn local() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    (dir, node)
}

/// A script for the next holder, with the pid of a process: it prints `alone` if that process
/// cannot run. A zombie cannot.
const ALONE: &str = "case $(cut -d' ' -f3 /proc/$0/stat 2>/dev/null) in Z|X|'') echo alone;; esac";

#[test]
fn rlock_killed_means_the_command_is_gone_in_milliseconds() {
    let server = Server::start();
    for _ in 0..10 {
        let witness = Witness::start(&server.url(), &[]);
        witness.rlock.signal(Signal::SIGKILL);
        let took = witness.dies_after_rlock();
        assert!(took < MOMENT, "{took:?}");
        // The guard has released it or is about to.
        eventually("the lock is free", || server.cli(&["EXISTS", "job"]) == "0");
    }
}

#[test]
fn a_local_lock_outlasts_a_killed_rlock_until_the_command_is_dead() {
    let (_dir, node) = local();
    for _ in 0..10 {
        let witness = Witness::start(&node, &[]);
        let next = rlock("job")
            .node(&node)
            .args(["--", "cat", "/proc/uptime"])
            .spawn();
        witness.rlock.signal(Signal::SIGKILL);
        let next = next.finish().code(0);
        assert!(witness.is_dead());
        let first: f64 = next.stdout[0]
            .split(' ')
            .next()
            .expect("a number")
            .parse()
            .expect("seconds");
        assert!(
            witness.last_tick() <= first,
            "{} and then {first}",
            witness.last_tick()
        );
    }
}

/// A user may have no more descriptors on their way to other processes than one process may have
/// open (unix(7), `ETOOMANYREFS`).
#[test]
fn a_guard_that_the_kernel_sends_no_descriptor_is_replaced_by_one_that_inherits_it() {
    let Some(rooted) = Rooted::make(RLOCK) else {
        return;
    };
    let (dir, node) = local();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("nobody's directory");
    let program = rooted.rlock().display().to_string();
    let start = |key: &str| {
        let run =
            Rlock::of("prlimit", ["--nofile=24:24", &program, "run", "--key", key]).node(&node);
        let run = run.with(|command| {
            command.uid(NOBODY).gid(NOBODY);
        });
        let mut run = run
            .args(["--", "sh", "-c", "echo leader $$; exec sleep 300"])
            .spawn();
        (run.wait_for_pid("leader"), run)
    };
    let mut runs: Vec<_> = (0..26)
        .map(|number| start(&format!("job{number}")))
        .collect();
    let (command, last) = runs.pop().expect("the last one");
    let mut open = std::fs::read_dir(format!("/proc/{}/fd", guard_of(last.pid())))
        .expect("its descriptors")
        .flatten();
    let inherits =
        |fd: DirEntry| std::fs::read_link(fd.path()).is_ok_and(|file| file.ends_with("job25.lock"));
    assert!(open.any(inherits), "it has the lock's file itself");
    last.signal(Signal::SIGKILL);
    start("job25");
    assert!(!alive(command));
}

#[test]
fn rlock_stopped_past_its_lease_means_the_command_is_gone_by_its_end_and_79_later() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &["--ttl", "2s"]);
    witness.rlock.signal(Signal::SIGSTOP);
    let ran = witness.dies();
    assert!(ran < Duration::from_secs(2), "{ran:?}");
    // By now another client holds the lock.
    eventually("the lease is over", || {
        server.cli(&["EXISTS", "job"]) == "0"
    });
    server.cli(&["SET", "job", "another's"]);
    witness.rlock.signal(Signal::SIGCONT);
    witness.rlock.finish().code(79).mentions(&["lost the lock"]);
    assert_eq!(server.cli(&["GET", "job"]), "another's");
}

#[test]
fn the_guard_knows_of_renewals_and_so_does_one_in_its_place() {
    side_by_side([false, true], |is_replaced| {
        let server = Server::start();
        let options = "--ttl 4s --node-timeout 600ms --kill-after 0";
        let witness = Witness::start(&server.url(), &options.split(' ').collect::<Vec<_>>());
        // By now the first lease would be over.
        server.wait_until_asked(4);
        if is_replaced {
            let old = witness.guard();
            signal(old, Signal::SIGKILL);
            eventually("there is another guard", || {
                !alive(old) && guard_of(witness.rlock.pid()) != old
            });
        }
        assert!(!witness.is_dead());
        witness.rlock.signal(Signal::SIGSTOP);
        let ran = witness.dies();
        assert!(ran < Duration::from_secs(4), "{ran:?}");
        witness.rlock.signal(Signal::SIGCONT);
        witness.rlock.finish().code(79);
    });
}

#[test]
fn rlock_stopped_in_the_time_of_grace_does_not_lengthen_it() {
    let server = Server::start();
    let mut witness = Witness::start(&server.url(), &["--max-run", "2s", "--kill-after", "0.5"]);
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
    let took = witness.dies_after_rlock();
    assert!(took < MOMENT, "{took:?}");
}

#[test]
fn rlock_and_its_guard_killed_at_once_take_the_command_with_them() {
    let server = Server::start();
    for _ in 0..10 {
        let mut job = rlock("job")
            .on(&server)
            .args(["--", "sh", "-c", "echo self $$; exec sleep 60"])
            .spawn();
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
fn the_guard_ignores_what_it_can_and_has_a_session_and_no_descriptor_of_ours_but_stderr() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &[]);
    let guard = witness.guard();
    for which in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGTSTP,
        Signal::SIGUSR1,
    ] {
        signal(guard, which);
    }
    assert!(alive(guard));
    assert_eq!(stat(guard)[2..4], [guard.to_string(), guard.to_string()]);
    let open = std::fs::read_dir(format!("/proc/{guard}/fd"))
        .expect("descriptors")
        .flatten();
    let open: Vec<String> = open
        .map(|fd| {
            std::fs::read_link(fd.path())
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|target| !target.starts_with("socket:") && !target.contains("timerfd"))
        .collect();
    let stderr =
        std::fs::read_link(format!("/proc/{}/fd/2", witness.rlock.pid())).expect("its stderr");
    // The pipe is that of nested runs.
    let (of_rlock, own): (Vec<_>, Vec<_>) = open
        .iter()
        .partition(|target| **target == stderr.to_string_lossy());
    assert!(
        of_rlock.len() == 1 && matches!(own[..], [pipe] if pipe.starts_with("pipe:")),
        "{open:?}"
    );
}

#[test]
fn a_frozen_tree_that_thaws_past_its_lease_runs_for_a_moment_only() {
    // Their leases end at the same time.
    let frozen = [(); 5].map(|()| {
        let server = Server::start();
        let witness = Witness::start(&server.url(), &["--ttl", "3s", "--node-timeout", "600ms"]);
        let all = [
            witness.rlock.pid(),
            witness.guard(),
            witness.leader,
            witness.child,
        ];
        for pid in all {
            signal(pid, Signal::SIGSTOP);
        }
        (server, witness, all)
    });
    for (server, witness, all) in frozen {
        eventually("the lease is over", || {
            server.cli(&["EXISTS", "job"]) == "0"
        });
        for pid in all.into_iter().rev() {
            signal(pid, Signal::SIGCONT);
        }
        let ran = witness.dies();
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
        let mut job = rlock("outer")
            .on(&server)
            .args(["--ttl", "3s", "--kill-after", "100ms", "-c", &script])
            .spawn();
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
#[cfg(target_arch = "x86_64")]
fn a_bug_in_rlock_ends_the_command_and_then_frees_the_lock() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &[]);
    let rlock = witness.rlock.pid();
    // tokio panics on that error.
    eventually("rlock waits", || {
        fail_epoll_wait(rlock).expect("a tracer's rights")
    });
    let took = witness.dies_after_rlock();
    assert!(took < MOMENT, "{took:?}");
    eventually("the lock is free", || server.cli(&["EXISTS", "job"]) == "0");
    let said = witness.rlock.finish().code(70).stderr;
    // The guard's line follows its own.
    assert!(
        said.lines().count() == 2 && said.starts_with("rlock: a bug in rlock "),
        "{said:?}"
    );
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
    let took = witness.dies_after_rlock();
    assert!(took < MOMENT, "{took:?}");
    rlock("job").node(&node).command(["true"]).code(0).silent();
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
