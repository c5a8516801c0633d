//! Signals, limits and containment: they reach nested runs.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{STUBBORN, apart, nested};
use crate::support::{RLOCK, Server, alive, eventually, parent, rlock, signal};

#[test]
fn the_exit_code_and_the_signals_of_a_nested_command_are_its_own() {
    let server = Server::start();
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)] {
        rlock("job")
            .on(&server)
            .args(["-c", &format!("exec {}", nested("", script))])
            .finish()
            .code(code)
            .silent();
    }
    rlock("job")
        .on(&server)
        .args(["-c", &nested("", "exec /no/such")])
        .finish()
        .code(127);
    let missing = format!("{RLOCK} run -k job -- /no/such/command");
    rlock("job")
        .on(&server)
        .args(["-c", &missing])
        .finish()
        .code(127)
        .said(&["job: /no/such/command: not found"]);

    let trap = "trap \"echo got\" USR1; trap \"echo end; exit 9\" TERM; echo ready; while :; do sleep 0.1; done";
    let mut job = rlock("job")
        .on(&server)
        .args(["-c", &format!("exec {}", nested("", trap))])
        .spawn();
    job.wait_for("ready");
    for _ in 0..5 {
        job.signal(Signal::SIGUSR1);
        job.wait_for("got");
    }
    job.signal(Signal::SIGTERM);
    let finished = job.finish().code(9);
    assert_eq!(
        finished.stdout.iter().filter(|line| *line == "got").count(),
        5
    );
}

#[test]
fn a_signal_ends_nested_runs_that_the_command_has_left() {
    let server = Server::start();
    let (mut job, work) = apart(&server, &["-v", "--kill-after", "300ms"], "");
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock");
    job.signal(Signal::SIGTERM);
    job.finish().code(5);
    assert!(!alive(work));
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn max_run_and_contain_hold_for_a_nested_run() {
    let server = Server::start();
    let run = nested("--max-run 2 --kill-after 0.1", STUBBORN);
    let mut job = rlock("job")
        .on(&server)
        .args(["-c", &format!("{run}; echo code $?; exit 3")])
        .spawn();
    let work = job.wait_for_pid("work");
    let finished = job.finish().code(3).said(&["job: --max-run is over"]);
    assert!(
        !alive(work) && finished.stdout.contains(&"code 124".to_owned()),
        "{:?}",
        finished.stdout
    );

    let daemon = "setsid sh -c \"echo daemon \\$\\$; exec >/dev/null 2>&1; sleep 60\" &";
    let left = format!("{daemon} while [ ! -e $0 ]; do sleep 0.01; done");
    let (dir, script) = (
        tempfile::tempdir().expect("a directory"),
        nested("--contain", &left),
    );
    let seen = dir.path().join("seen");
    let script = format!("{script} {}; echo nested ended; read x", seen.display());
    let mut job = rlock("job")
        .on(&server)
        .stdin(Stdio::piped())
        .args(["-c", &script])
        .spawn();
    let contained = job.wait_for_pid("daemon");
    std::fs::write(seen, "").expect("a file");
    job.wait_for("nested ended");
    assert!(!alive(contained));
    job.finish().code(1);
}

#[test]
fn the_guard_of_a_contained_nested_run_ends_its_daemons_and_leaves_the_outer_command() {
    let server = Server::start();
    let daemon = "setsid sh -c \"echo daemon \\$\\$; sleep 60\" & echo work $$; wait";
    let script = format!("{}; echo code $?; exit 6", nested("--contain", daemon));
    let mut job = rlock("job").on(&server).args(["-c", &script]).spawn();
    job.wait_for_all_of(&["daemon", "work"]);
    let [contained, work] = job.seen_pids(&["daemon", "work"])[..] else {
        panic!("two pids")
    };
    signal(parent(work), Signal::SIGKILL);
    eventually("the daemon is dead", || !alive(contained) && !alive(work));
    assert!(job.finish().code(6).stdout.contains(&"code 137".to_owned()));
}

#[test]
fn a_signal_that_ends_the_command_ends_a_nested_run_in_another_session() {
    let server = Server::start();
    let script = format!(
        "setsid {} & sleep 60",
        nested("", "echo work $$; exec sleep 60")
    );
    let mut job = rlock("job").on(&server).args(["-c", &script]).spawn();
    let work = job.wait_for_pid("work");
    job.signal(Signal::SIGTERM);
    job.finish().code(143).within(Duration::from_secs(20));
    assert!(!alive(work));
}
