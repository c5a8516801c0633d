//! `--max-run` and the end of commands that resist: stopped ones, and those in another group.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{ALONE, MOMENT, Witness};
use crate::support::{Server, alive, eventually, renewed, rlock};

#[test]
fn a_command_that_runs_too_long_is_stopped_with_124() {
    let server = Server::start();
    let jobs = [
        ("plain", &["--max-run", "2"][..], "echo ready; sleep 60"),
        (
            "stubborn",
            &["--max-run", "2s", "--kill-after", "0.2"],
            "trap '' TERM; echo ready; sleep 60; sleep 60",
        ),
        (
            "obedient",
            &["--max-run", "2000ms"],
            "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done",
        ),
    ];
    let jobs = jobs.map(|(key, words, script)| {
        let job = rlock(key).on(&server).args(words).hold(script);
        (key, job)
    });
    // The grace of five seconds that is given by default would come on top.
    let late = Duration::from_millis(6500);
    for (key, job) in jobs {
        let finished = job.finish().code(124);
        assert!(finished.took >= Duration::from_secs(2));
        finished
            .mentions(&[&format!("{key}: --max-run is over")])
            .within(late);
        assert_eq!(server.cli(&["EXISTS", key]), "0");
    }
    rlock("job")
        .on(&server)
        .args(["--max-run", "5s"])
        .sh("exit 3")
        .code(3)
        .silent();
    rlock("job")
        .on(&server)
        .args(["--max-run", "0"])
        .sh("exit 3")
        .code(3)
        .silent();
}

#[test]
fn a_grace_longer_than_the_lease_is_given_in_full_when_the_time_is_up_and_cut_for_a_loss() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "3s", "--node-timeout", "700ms"])
        .args(["--max-run", "2s", "--kill-after", "2m"])
        .stdin(std::process::Stdio::piped())
        .hold("trap 'echo asked' TERM; echo ready; read interrupted; read line; exit 5");
    job.wait_for("asked");
    // There are three renewals to a lease: the grace is longer than one lease.
    for _ in 0..4 {
        renewed([&server]);
    }
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
    let mut job = rlock("job")
        .on(&server)
        .args(["--max-run", "2s", "--kill-after", "100ms"])
        .args(["-c", "trap '' TERM; echo leader $$; sleep 60; sleep 60"])
        .spawn();
    let leader = job.wait_for_pid("leader");
    let next = rlock("job").on(&server).args(["--", "sh", "-c", ALONE]);
    next.args([leader.to_string()])
        .finish()
        .code(0)
        .printed(&["alone"]);
    job.finish().code(124);
}

#[test]
fn a_command_that_was_stopped_can_still_be_ended() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["-c", "echo leader $$; kill -STOP $$; sleep 60"])
        .spawn();
    let leader = job.wait_for_pid("leader");
    let stopped = || {
        std::fs::read_to_string(format!("/proc/{leader}/stat"))
            .is_ok_and(|stat| stat.contains(") T "))
    };
    eventually("it is stopped", stopped);
    job.signal(Signal::SIGTERM);
    job.finish().code(143).silent();
}

#[test]
fn a_leader_that_joins_another_group_dies_all_the_same() {
    let server = Server::start();
    let script = "$SIG{TERM} = 'IGNORE'; setpgrp(0, getpgrp(getppid())); $| = 1; print \"leader $$\\n\"; sleep 60 while 1";
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "3s", "--node-timeout", "600ms"])
        .args(["--", "perl", "-e", script])
        .spawn();
    let leader = job.wait_for_pid("leader");
    server.cli(&["SET", "job", "another's"]);
    job.finish().code(79);
    assert!(!alive(leader));
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
    let state = |wanted: &str| {
        std::fs::read_to_string(format!("/proc/{leader}/stat"))
            .is_ok_and(|stat| stat.contains(wanted))
    };
    job.signal(Signal::SIGTSTP);
    eventually("it is stopped", || state(") T "));
    job.signal(Signal::SIGCONT);
    eventually("it goes on", || state(") S "));
    job.signal(Signal::SIGTERM);
    job.finish().code(143);
}
