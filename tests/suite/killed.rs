//! rlock killed with SIGKILL: its guard releases the lock once the command is dead, long before the lease ends.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{
    Nodes, Rlock, Running, Server, alive, children, eventually, guard_of, rlock, rlock_words, signal,
};

/// Far less than the lease, and enough on a machine whose cores are all busy with other tests.
const SOON: Duration = Duration::from_secs(10);

/// A script that prints its own pid and its child's, and then sleeps in both. TERM ends neither.
const STUBBORN: &str = "trap '' TERM; sleep 60 & echo child $!; echo self $$; echo ready; wait; sleep 60";

/// Starts a holder with a long lease, and returns it with the processes of its command.
fn holder(job: Rlock) -> (Running, [i32; 2]) {
    let job = job.args(["--ttl", "5m"]).hold(STUBBORN);
    let pids = job.seen_pids(&["child", "self"]);
    (job, [pids[0], pids[1]])
}

/// Kills rlock, and waits until `is_free`; by then the command must be dead.
fn is_given_back(job: &Running, command: &[i32], mut is_free: impl FnMut() -> bool) {
    let begin = Instant::now();
    job.signal(Signal::SIGKILL);
    eventually("the lock is free", || {
        let free = is_free();
        assert!(!free || !command.iter().any(|pid| alive(*pid)), "the command outlived the lock");
        free
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn the_lock_is_free_once_the_command_is_dead_on_one_server_and_on_three() {
    let server = Server::start();
    for options in [&[][..], &["--contain"]] {
        let (job, command) = holder(rlock("job").on(&server).args(options));
        is_given_back(&job, &command, || server.cli(&["EXISTS", "job"]) == "0");
    }
    let nodes = Nodes::start(3);
    let (job, command) = holder(rlock("job").on_all(&nodes));
    is_given_back(&job, &command, || nodes.job().iter().all(String::is_empty));
}

#[test]
fn a_guard_that_was_replaced_gives_the_lock_back_too() {
    let server = Server::start();
    let (job, command) = holder(rlock("job").on(&server));
    let old = guard_of(job.pid());
    signal(old, Signal::SIGKILL);
    eventually("there is another guard", || children(job.pid()).len() == 2 && guard_of(job.pid()) != old);
    is_given_back(&job, &command, || server.cli(&["EXISTS", "job"]) == "0");
}

#[test]
fn the_next_waiter_has_the_lock_when_the_command_is_dead() {
    let server = Server::start();
    let (job, command) = holder(rlock("job").on(&server));
    let script = "for pid; do case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in Z|X|'') echo alone;; esac; done";
    let pids = command.map(|pid| pid.to_string());
    let next = rlock("job").on(&server).args(["--", "sh", "-c", script, "sh"]).args(&pids).spawn();
    eventually("it waits", || server.cli(&["EXISTS", "rlock:queue:{job}:job"]) == "1");
    let begin = Instant::now();
    job.signal(Signal::SIGKILL);
    next.finish().code(0).printed(&["alone", "alone"]);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn the_lock_of_a_successor_is_not_touched() {
    let server = Server::start();
    let (job, command) = holder(rlock("job").on(&server));
    let guard = guard_of(job.pid());
    server.cli(&["SET", "job", "a successor's"]);
    let asked = server.asked();
    job.signal(Signal::SIGKILL);
    eventually("the guard has asked, and ended", || server.asked() > asked && !alive(guard));
    assert!(!command.iter().any(|pid| alive(*pid)));
    assert_eq!(server.cli(&["GET", "job"]), "a successor's");
}

#[test]
fn the_release_is_told_by_its_environment_and_only_what_it_needs() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let url = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    let keys = || rlock_words(["inspect", "--key", "p:job"]).node(&url).finish();
    // Neither a variable of the user nor the lock around this one may keep the guard from its work.
    let held = "other=5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f";
    let job =
        rlock("job").args(["--prefix", "p:"]).env("RLOCK_NODE", &url).env("RLOCK_QUIET", "1").env("RLOCK_HELD", held);
    let (job, _) = holder(job.env("RLOCK_LOG", "json").env("RLOCK_TTL", "1s").env("RLOCK_PASSWORD", "another"));
    let guard = guard_of(job.pid());
    server.freeze();
    job.signal(Signal::SIGKILL);
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{guard}/{what}")).unwrap_or_default();
    eventually("the guard has become a release", || read("cmdline") == "rlock\0release\0");
    let told = read("environ");
    server.thaw();
    let names = told.split('\0').filter_map(|entry| entry.split('=').next()).filter(|name| name.starts_with("RLOCK_"));
    let wanted = ["RLOCK_CONFIG", "RLOCK_KEY", "RLOCK_PREFIX", "RLOCK_NODE", "RLOCK_NODE_TIMEOUT", "RLOCK_TOKEN"];
    assert_eq!(names.collect::<Vec<_>>(), wanted);
    eventually("the lock is free", || keys().exited_with(1));
}

#[test]
fn a_password_in_an_address_stands_in_no_arguments() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let url = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    let (job, _) = holder(rlock("job").env("RLOCK_NODE", &url));
    let guard = guard_of(job.pid());
    server.freeze();
    job.signal(Signal::SIGKILL);
    let arguments = || std::fs::read_to_string(format!("/proc/{guard}/cmdline")).unwrap_or_default();
    eventually("the guard has become a release", || {
        assert!(!arguments().contains("hunter2"));
        arguments() == "rlock\0release\0"
    });
    server.thaw();
    eventually("the guard has ended", || !alive(guard));
}

#[test]
fn a_server_that_is_gone_is_tried_once() {
    let mut server = Server::start();
    let (job, _) = holder(rlock("job").on(&server).stdin(Stdio::null()));
    let guard = guard_of(job.pid());
    // rlock itself must not notice.
    job.signal(Signal::SIGSTOP);
    server.crash();
    job.signal(Signal::SIGKILL);
    eventually("the guard has ended", || !alive(guard));
}
