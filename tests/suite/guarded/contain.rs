//! `--contain`: daemons of the command end before the lock passes on.

use std::path::Path;

use nix::sys::signal::Signal;

use super::ALONE;
use crate::support::{RLOCK, Server, alive, eventually, rlock, signal};

#[test]
fn contained_daemons_end_before_the_lock_passes_on_and_others_go_on() {
    let server = Server::start();
    let daemon = "setsid sh -c 'trap \"echo asked >> $0\" TERM; echo daemon $$; exec >/dev/null 2>&1; : > $0.ready; while :; do sleep 0.1; done' \"$0\" &
        until [ -e \"$0.ready\" ]; do sleep 0.01; done";
    let start = |options: &[&str], asked: &Path| {
        let job = rlock("job")
            .on(&server)
            .args(["--kill-after", "3s"])
            .args(options);
        job.args(["--", "sh", "-c", daemon]).args([asked]).spawn()
    };
    let dir = tempfile::tempdir().expect("a directory");
    let [never, asked] = ["never", "asked"].map(|name| dir.path().join(name));

    let mut job = start(&[], &never);
    let free = job.wait_for_pid("daemon");
    job.finish().code(0).silent();
    assert!(alive(free), "without --contain a daemon goes on");
    signal(free, Signal::SIGKILL);
    assert!(!never.exists());

    let mut job = start(&["--contain"], &asked);
    let contained = job.wait_for_pid("daemon");
    let next = rlock("job").on(&server).args(["--", "sh", "-c", ALONE]);
    let next = next.args([contained.to_string()]).spawn();
    job.finish().code(0).silent();
    assert!(!alive(contained));
    next.finish().code(0).printed(&["alone"]);
    assert_eq!(
        std::fs::read_to_string(&asked).expect("it was asked first"),
        "asked\n"
    );
}

#[test]
fn contained_daemons_end_when_rlock_is_killed() {
    let server = Server::start();
    let daemon = "setsid sh -c 'echo daemon $$; while :; do sleep 0.1; done' & wait";
    let mut job = rlock("job")
        .on(&server)
        .args(["--contain", "-c", daemon])
        .spawn();
    let contained = job.wait_for_pid("daemon");
    job.signal(Signal::SIGKILL);
    eventually("the daemon is dead", || !alive(contained));
}

/// The guard finds daemons by their environment. redis-server writes its title over that.
#[test]
fn a_daemon_that_sets_its_title_outlives_a_killed_rlock() {
    let (server, dir) = (Server::start(), tempfile::tempdir().expect("a directory"));
    let socket = dir.path().join("daemon.sock");
    let daemon = "setsid redis-server --port 0 --save '' --unixsocket $0 >/dev/null 2>&1 & echo daemon $!; wait";
    let mut job = rlock("job")
        .on(&server)
        .args(["--contain", "--", "sh", "-c", daemon])
        .args([&socket])
        .spawn();
    let daemon = job.wait_for_pid("daemon");
    eventually("the daemon has set its title", || {
        let title = std::fs::read_to_string(format!("/proc/{daemon}/cmdline"));
        title.is_ok_and(|title| title.contains("unixsocket:"))
    });
    job.signal(Signal::SIGKILL);
    eventually("the guard gives the lock back", || {
        server.cli(&["EXISTS", "job"]) == "0"
    });
    assert!(alive(daemon));
    signal(daemon, Signal::SIGKILL);
}

#[test]
fn the_exit_code_of_a_contained_command_is_its_own() {
    let server = Server::start();
    rlock("job")
        .on(&server)
        .args(["--contain"])
        .sh("exit 7")
        .code(7)
        .silent();
    rlock("job")
        .on(&server)
        .args(["--contain"])
        .sh("(setsid sleep 60 >/dev/null 2>&1 &) ; exit 3")
        .code(3)
        .silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn contain_leaves_children_alone_that_were_there_before() {
    let server = Server::start();
    let script = format!(
        "sleep 60 >/dev/null 2>&1 & echo $!; exec {} run --key job --node {} --contain -- true",
        RLOCK,
        server.url()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let before: i32 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a pid");
    assert!(alive(before));
    signal(before, Signal::SIGKILL);
}

#[test]
fn a_signal_comes_once_to_a_contained_command_of_a_nested_rlock() {
    let server = Server::start();
    let script = format!(
        "exec {RLOCK} run --key inner -- sh -c 'trap \"echo got\" USR1; trap \"echo end; exit 0\" USR2; echo ready; while :; do sleep 0.1; done'"
    );
    let mut job = rlock("job")
        .on(&server)
        .args(["--contain", "-c", &script])
        .spawn();
    job.wait_for("ready");
    for _ in 0..5 {
        job.signal(Signal::SIGUSR1);
        job.wait_for("got");
    }
    job.signal(Signal::SIGUSR2);
    let finished = job.finish().code(0);
    assert_eq!(
        finished.stdout.iter().filter(|line| *line == "got").count(),
        5
    );
}
