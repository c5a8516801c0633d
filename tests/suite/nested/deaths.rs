//! Deaths of the outer rlock, the nested one or the lock: no nested command outlives the lock.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{MOMENT, STUBBORN, Stopped, apart, local, nested};
use crate::support::{
    Server, alive, eventually, guard_of, lasts, parent, rlock, runs, side_by_side, signal, skipped,
};

#[test]
fn a_nested_rlock_that_is_killed_takes_its_command_along_and_the_outer_one_goes_on() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args([
            "-c",
            &format!("{}; echo code $?; exit 4", nested("", STUBBORN)),
        ])
        .spawn();
    let work = job.wait_for_pid("work");
    signal(parent(work), Signal::SIGKILL);
    let finished = job.finish().code(4);
    assert!(!alive(work));
    assert!(
        finished.stdout.contains(&"code 137".to_owned()),
        "{:?}",
        finished.stdout
    );
}

#[test]
fn the_outer_rlock_waits_for_the_command_of_a_nested_one_that_was_killed() {
    let server = Server::start();
    for _ in 0..5 {
        let (mut job, work) = apart(&server, &["-v"], "");
        drop(job.stdin.take());
        job.wait_until_told("keeping the lock");
        signal(parent(work), Signal::SIGKILL);
        job.finish().code(5);
        assert!(!alive(work), "it outlived the lock");
    }
}

#[test]
fn a_nested_command_dies_with_the_outer_rlock() {
    let server = Server::start();
    // The best of a few: the nested rlock has to wait for a processor like any other process.
    let best = (0..5).map(|_| {
        let (job, work) = apart(&server, &[], "");
        job.signal(Signal::SIGKILL);
        eventually("rlock is dead", || !alive(job.pid()));
        let ran = lasts(|| runs(work));
        assert!(
            ran < Duration::from_secs(10),
            "to the end of the lease: {ran:?}"
        );
        eventually("the nested command is dead", || !alive(work));
        server.cli(&["DEL", "job"]);
        ran
    });
    let best = best.min().expect("five of them");
    assert!(best < MOMENT, "{best:?}");
}

#[test]
fn a_local_lock_outlasts_a_killed_outer_rlock_until_nested_commands_are_dead() {
    let (_dir, node) = local();
    let script = format!("setsid {} & read x", nested("", STUBBORN));
    let mut job = rlock("job")
        .node(&node)
        .stdin(Stdio::piped())
        .args(["-c", &script])
        .spawn();
    let work = job.wait_for_pid("work");
    // The waiter learns of the death only later.
    let nested = Stopped::stop(parent(work));
    let guard = guard_of(job.pid());
    let mut next = rlock("job")
        .node(&node)
        .args(["-v", "-c", &alone(work)])
        .spawn();
    next.wait_until_told("waiting: held by");
    let leader = parent(parent(work));
    job.signal(Signal::SIGKILL);
    drop(job);
    eventually("the outer command is dead", || !alive(leader));
    // A guard that waited for the outer command only would end within milliseconds.
    for _ in 0..20 {
        rlock("job")
            .node(&node)
            .args(["-n"])
            .command(["true"])
            .code(75);
    }
    assert!(alive(guard) && alive(work));
    drop(nested);
    next.finish().code(0).printed(&["alone"]);
}

#[test]
fn a_nested_command_below_another_program_is_dead_before_the_lock_of_a_killed_rlock_passes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    for (below, end) in [
        ("timeout 60 sh -c", ""),
        ("setsid -w sh -c", ""),
        ("script -qec", "/dev/null"),
        ("sudo -nE sh -c", ""),
    ] {
        let program = below.split(' ').next().expect("a program");
        let tried = if program == "sudo" {
            "sudo -n true".to_owned()
        } else {
            format!("command -v {program}")
        };
        let tried = std::process::Command::new("sh")
            .args(["-c", &tried])
            .output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            skipped(&format!("{program} cannot be used here"));
            continue;
        }
        let (_locks, node) = local();
        let file = dir.path().join(program).display().to_string();
        let work = format!("trap \"\" TERM; echo $$ >{file}.new; mv {file}.new {file}; {STUBBORN}");
        let job = rlock("job").node(&node).env("NESTED", &nested("", &work));
        let job = job
            .args(["-c", &format!("{below} \"$NESTED\" {end}; true")])
            .spawn();
        eventually("the nested command runs", || {
            std::path::Path::new(&file).exists()
        });
        let work = std::fs::read_to_string(&file)
            .expect("a file")
            .trim()
            .parse()
            .expect("a pid");
        let mut next = rlock("job")
            .node(&node)
            .args(["-v", "-c", &alone(work)])
            .spawn();
        next.wait_until_told("waiting: held by");
        job.signal(Signal::SIGKILL);
        next.finish().code(0).printed(&["alone"]);
        drop(job);
    }
}

/// Returns a script that prints `alone` if `pid` cannot run. A zombie cannot.
fn alone(pid: i32) -> String {
    format!("case $(cut -d' ' -f3 /proc/{pid}/stat 2>/dev/null) in Z|X|'') echo alone;; esac")
}

#[test]
fn a_nested_command_is_dead_before_the_outer_rlock_that_lost_the_lock_has_ended() {
    let server = Server::start();
    for how in [&["SET", "job", "another's"][..], &["DEL", "job"]] {
        let (mut job, work) = apart(&server, &["--ttl", "2s"], "");
        // The end of its stdin does not end it.
        let _stdin = job.stdin.take();
        server.cli(how);
        job.finish().code(79);
        assert!(!alive(work), "it outlived the lock: {how:?}");
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn a_nested_command_is_dead_by_the_end_of_the_lease_of_an_outer_rlock_that_is_stopped() {
    side_by_side([false, true], |ends_first| {
        let server = Server::start();
        let (mut job, work) = apart(&server, &["--ttl", "6s", "-v"], "");
        if ends_first {
            drop(job.stdin.take());
            job.wait_until_told("keeping the lock");
        }
        // By now the first lease would be over.
        (0..3).for_each(|_| job.wait_until_told("renewed for"));
        assert!(alive(work));
        job.signal(Signal::SIGSTOP);
        let ran = lasts(|| runs(work));
        assert!(ran < Duration::from_secs(6), "{ran:?}");
        eventually("it is dead", || !alive(work));
        job.signal(Signal::SIGCONT);
        // The command itself complained; the process that it left behind was stopped in time.
        job.finish().code(if ends_first { 5 } else { 79 });
    });
}

#[test]
fn a_nested_run_that_stands_still_with_the_outer_rlock_is_dead_by_the_end_of_the_lease() {
    let server = Server::start();
    let (mut job, work) = apart(&server, &["--ttl", "3s"], "");
    let _stdin = job.stdin.take();
    server.wait_until_asked(3);
    let nested = parent(work);
    job.signal(Signal::SIGSTOP);
    let nested = Stopped::stop(nested);
    // The guard of the nested run kills it.
    let ran = lasts(|| runs(work));
    assert!(ran < Duration::from_secs(3), "{ran:?}");
    eventually("it is dead", || !alive(work));
    eventually("the lease is over", || {
        server.cli(&["EXISTS", "job"]) == "0"
    });
    drop(nested);
    job.signal(Signal::SIGCONT);
    job.finish().code(79);
}
