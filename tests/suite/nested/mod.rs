//! rlock inside a command of rlock, for the same lock: when a nested run starts, and what the cases
//! of its submodules share.

mod background;
mod connection;
mod deaths;
mod signals;
mod strangers;
mod subcommands;

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::support::{Nodes, RLOCK, Running, Server, alive, eventually, rlock, signal};

/// Some milliseconds, on a machine whose cores are all busy with other tests.
const MOMENT: Duration = Duration::from_millis(400);

/// A script that prints its pid, and runs until it is killed, for a minute at most. TERM does not
/// end it.
const STUBBORN: &str = "trap \"\" TERM; echo work $$; for i in $(seq 600); do sleep 0.1; done";

fn local() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    (dir, node)
}

/// A process that is stopped, and continues on drop.
struct Stopped(i32);

impl Stopped {
    fn stop(pid: i32) -> Self {
        signal(pid, Signal::SIGSTOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0), Signal::SIGCONT);
    }
}

/// Continues a command that reads a line.
fn go(job: &mut Running) {
    job.stdin
        .as_mut()
        .expect("a pipe")
        .write_all(b"go\n")
        .expect("a reader");
}

/// Returns `rlock run -k job OPTIONS -- sh -c SCRIPT` for a shell script, with the inner script in
/// quotes.
fn nested(options: &str, script: &str) -> String {
    format!("{RLOCK} run -k job {options} -- sh -c '{script}'")
}

#[test]
fn locks_that_are_held_further_up_are_run_under_at_once() {
    let server = Server::start();
    let (_dir, local) = local();
    for node in [server.url(), local] {
        for wait in ["", "-n"] {
            let run = |key: &str| format!("{RLOCK} run {wait} -k {key} --");
            let show = "sh -c 'echo $RLOCK_KEY $RLOCK_TOKEN $RLOCK_TTL; echo $RLOCK_HELD'";
            let script = format!("echo $RLOCK_HELD; {} {} {show}", run("b"), run("a"));
            let finished = rlock("a")
                .node(&node)
                .args(["--ttl", "20s", "-c", &script])
                .finish()
                .code(0)
                .silent();
            let [outer, named, both] = finished.stdout.as_slice() else {
                panic!("{:?}", finished.stdout)
            };
            let token = outer.split(':').next().expect("a token");
            assert_eq!(named, &format!("a {token} 20s"));
            assert!(
                both.starts_with(&format!("{outer},")) && both.split(',').count() == 2,
                "{both}"
            );

            let script = format!(
                "{} {} {} sh -c 'echo $RLOCK_TOKEN'",
                run("b"),
                run("b"),
                run("a")
            );
            let script = format!("echo $RLOCK_TOKEN; {script}");
            let finished = rlock("a")
                .node(&node)
                .args(["-c", &script])
                .finish()
                .code(0)
                .silent();
            assert_eq!(finished.stdout[0], finished.stdout[1]);
        }
    }
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "0");
}

#[test]
fn a_node_that_stalls_as_the_nested_run_starts_is_waited_for() {
    let server = Server::start();
    let script = format!(
        "redis-cli -s {} client pause 1600 all; {}",
        server.socket().display(),
        nested("", "echo hi")
    );
    rlock("job")
        .on(&server)
        .args(["-c", &script])
        .finish()
        .code(0)
        .silent()
        .printed(&["OK", "hi"]);
}

#[test]
fn nodes_without_a_majority_for_a_moment_are_waited_for() {
    let nodes = Nodes::start(3);
    let run = nested("--restart-guard off -v", "echo hi");
    let mut job = rlock("job")
        .on_all(&nodes)
        .hold(&format!("echo ready; read x; {run}"));
    nodes[0].freeze();
    nodes[1].freeze();
    go(&mut job);
    job.wait_until_told("no majority of the 3 nodes");
    nodes[0].thaw();
    job.wait_for("hi");
    nodes[1].thaw();
    job.finish().code(0);
    nodes.become_clean();
}

#[test]
fn a_majority_says_that_the_lock_is_held_above_though_nodes_were_healed() {
    let nodes = Nodes::start(4);
    let run = nested("--restart-guard off", "echo hi");
    let mut job = rlock("job")
        .on_all(&nodes)
        .args(["--ttl", "3s"])
        .hold(&format!("echo ready; read x; {run}"));
    for healed in [1, 2] {
        nodes[healed].cli(&["DEL", "job"]);
        eventually("it is healed", || nodes[healed].token() == nodes[0].token());
    }
    go(&mut job);
    job.wait_for("hi");
    job.finish().code(0);
    nodes.become_clean();
}

#[test]
fn a_majority_says_that_the_lock_is_held_above_though_a_node_lacks_it() {
    let nodes = Nodes::start(3);
    let run = nested("--restart-guard off", "echo hi");
    let mut job = rlock("job")
        .on_all(&nodes)
        .hold(&format!("echo ready; read x; {run}"));
    nodes[2].cli(&["DEL", "job"]);
    go(&mut job);
    job.wait_for("hi");
    job.finish().code(0);
    nodes.become_clean();
}

/// Starts a nested run in a session of its own, which the outer rlock knows by its connection only.
fn apart(server: &Server, options: &[&str], run: &str) -> (Running, i32) {
    let script = format!(
        "setsid {} & echo ready; read x; exit 5",
        nested(run, STUBBORN)
    );
    let mut job = rlock("job")
        .on(server)
        .args(options)
        .stdin(Stdio::piped())
        .args(["-c", &script])
        .spawn();
    let work = job.wait_for_pid("work");
    (job, work)
}

#[test]
fn a_run_nested_in_a_nested_one_covers_its_command_too() {
    let server = Server::start();
    let (dir, _) = local();
    let started = dir.path().join("started").display().to_string();
    let work = format!(": > {started}; {STUBBORN}");
    // The command in between ends as soon as the innermost one has started.
    let innermost = format!(
        "setsid {RLOCK} run -k job -- sh -c \"$WORK\" & until [ -e {started} ]; do sleep 0.01; done"
    );
    let script = format!("setsid {RLOCK} run -k job -c '{innermost}' & echo ready; read x");
    let job = rlock("job")
        .on(&server)
        .args(["-v"])
        .env("WORK", &work)
        .stdin(Stdio::piped());
    let mut job = job.args(["-c", &script]).spawn();
    let work = job.wait_for_pid("work");
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock");
    assert!(alive(work));
    job.signal(Signal::SIGKILL);
    eventually("the innermost command is dead", || !alive(work));
}

#[test]
fn what_is_no_token_in_the_environment_is_ignored() {
    let server = Server::start();
    let token = "5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f";
    for held in [
        "",
        ",,",
        "garbage",
        &format!("{token}:7,x:y"),
        &"x".repeat(10_000),
        "\u{1b}[2J",
    ] {
        rlock("job")
            .on(&server)
            .env("RLOCK_HELD", held)
            .env("RLOCK_TOKEN", token)
            .sh("exit 3")
            .code(3)
            .silent();
    }
    let _holder = rlock("job").on(&server).hold("echo ready; read x");
    let run = rlock("job")
        .on(&server)
        .args(["-n"])
        .env("RLOCK_HELD", &format!("garbage,{token}:7"));
    run.sh("echo ran").code(75).printed(&[]);
}

#[test]
fn a_nested_command_starts_only_when_the_outer_rlock_says_so() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "20s"])
        .hold(&format!("echo ready; read x; {}", nested("", "echo ran")));
    job.signal(Signal::SIGSTOP);
    go(&mut job);
    job.wait_until_told("does not answer");
    job.signal(Signal::SIGCONT);
    job.wait_for("ran");
    job.finish().code(0);
}

#[test]
fn a_nested_run_that_comes_as_the_outer_lock_is_given_back_takes_the_lock_itself() {
    let server = Server::start();
    let (_dir, local) = local();
    for node in [server.url(), local] {
        for _ in 0..10 {
            let script = format!(
                "{} & echo outer $RLOCK_TOKEN",
                nested("", "echo inner $RLOCK_TOKEN; sleep 0.05")
            );
            let mut job = rlock("job").node(&node).args(["-c", &script]).spawn();
            job.wait_for_all_of(&["outer", "inner"]);
            job.finish().code(0).silent();
        }
    }
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}
