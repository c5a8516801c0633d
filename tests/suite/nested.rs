//! `rlock run` inside a command that runs under the same lock: at once, and never beyond that lock.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tempfile::TempDir;

use crate::support::{Nodes, RLOCK, Running, Server, alive, eventually, parent, rlock, rlock_words, signal};

/// Milliseconds, on a machine whose cores are all busy with other tests.
const MOMENT: Duration = Duration::from_millis(400);

/// Says who it is, and goes on until it is killed, for a minute at most; TERM does not end it.
const STUBBORN: &str = "trap \"\" TERM; echo work $$; for i in $(seq 6000); do sleep 0.01; done";

fn local() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    (dir, node)
}

/// A process that is stopped, and goes on when the test is over.
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

/// Lets the command go on that reads a line.
fn go(job: &mut Running) {
    job.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("a reader");
}

/// `rlock run -k job OPTIONS -- sh -c SCRIPT` as a word of a shell script in double quotes.
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
            let finished = rlock("a").node(&node).args(["--ttl", "20s", "-c", &script]).finish().code(0).silent();
            let [outer, named, both] = finished.stdout.as_slice() else { panic!("{:?}", finished.stdout) };
            let token = outer.split(':').next().expect("a token");
            assert_eq!(named, &format!("a {token} 20s"));
            assert!(both.starts_with(&format!("{outer},")) && both.split(',').count() == 2, "{both}");

            let script = format!("{} {} {} sh -c 'echo $RLOCK_TOKEN'", run("b"), run("b"), run("a"));
            let script = format!("echo $RLOCK_TOKEN; {script}");
            let finished = rlock("a").node(&node).args(["-c", &script]).finish().code(0).silent();
            assert_eq!(finished.stdout[0], finished.stdout[1]);
        }
    }
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "0");
}

#[test]
fn a_node_that_stalls_as_the_nested_run_starts_is_waited_for() {
    let server = Server::start();
    let script = format!("redis-cli -s {} client pause 1600 all; {}", server.socket().display(), nested("", "echo hi"));
    rlock("job").on(&server).args(["-c", &script]).finish().code(0).silent().printed(&["OK", "hi"]);
}

#[test]
fn nodes_without_a_majority_for_a_moment_are_waited_for() {
    let nodes = Nodes::start(3);
    let run = nested("--restart-guard off -v", "echo hi");
    let mut job = rlock("job").on_all(&nodes).hold(&format!("echo ready; read x; {run}"));
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
    let mut job = rlock("job").on_all(&nodes).args(["--ttl", "3s"]).hold(&format!("echo ready; read x; {run}"));
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
    let mut job = rlock("job").on_all(&nodes).hold(&format!("echo ready; read x; {run}"));
    nodes[2].cli(&["DEL", "job"]);
    go(&mut job);
    job.wait_for("hi");
    job.finish().code(0);
    nodes.become_clean();
}

/// Starts `nested`, which runs `work` and is in the background, and another client that wants the lock; then the outer
/// command ends. What the two wrote in the end.
fn background(node: &str, start: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let [log, go] = ["log", "go"].map(|name| dir.path().join(name));
    let work = format!(
        "echo work $$; for i in $(seq 6000); do [ -e {} ] && break; sleep 0.01; done; echo work >> {}",
        go.display(),
        log.display()
    );
    let script = format!("{}\necho outer $$; echo ready; read x; exit 5", start.replace("RUN", &nested("", &work)));
    let mut job = rlock("job").node(node).args(["--ttl", "2s", "-v"]).hold(&script);
    let outer = job.seen_pids(&["outer"])[0];
    // The work may have started before `ready`.
    eventually("the work runs", || !descendants_named(&work).is_empty());
    let next = rlock("job").node(node).args(["--ttl", "2s", "-v", "--", "sh", "-c"]);
    let mut next = next.args([format!("echo next >> {}", log.display())]).spawn();
    next.wait_until_told("waiting: held by");
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock until the nested rlock runs have ended");
    assert!(!alive(outer));
    // The first lease would be over.
    for _ in 0..if node.starts_with("local") { 0 } else { 3 } {
        job.wait_until_told("renewed for");
    }
    assert!(!log.exists(), "{:?}", std::fs::read_to_string(&log));
    std::fs::write(&go, "").expect("a file");
    next.finish().code(0);
    job.finish().code(5);
    assert_eq!(std::fs::read_to_string(&log).expect("a log"), "work\nnext\n");
}

/// The processes that run `script`.
fn descendants_named(script: &str) -> Vec<i32> {
    let is_it = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(2) == Some(script.as_bytes())
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_it).collect()
}

#[test]
fn the_lock_passes_on_only_when_a_nested_run_in_the_background_has_ended() {
    let server = Server::start();
    background(&server.url(), "RUN &");
}

#[test]
fn the_lock_passes_on_only_when_a_nested_run_in_another_session_has_ended() {
    let server = Server::start();
    background(&server.url(), "setsid RUN &");
}

#[test]
fn the_lock_passes_on_only_when_a_nested_run_of_a_shell_with_job_control_has_ended() {
    let server = Server::start();
    background(&server.url(), "set -m; RUN & set +m");
}

#[test]
fn a_local_lock_passes_on_only_when_a_nested_run_has_ended() {
    let (_dir, node) = local();
    background(&node, "setsid RUN &");
}

/// A nested run in a session of its own, which the outer rlock can see by its connection only.
fn apart(server: &Server, options: &[&str], run: &str) -> (Running, i32) {
    let script = format!("setsid {} & echo ready; read x; exit 5", nested(run, STUBBORN));
    let mut job = rlock("job").on(server).args(options).stdin(Stdio::piped()).args(["-c", &script]).spawn();
    let work = job.wait_for_pid("work");
    (job, work)
}

#[test]
fn a_nested_rlock_that_is_killed_takes_its_command_along_and_the_outer_one_goes_on() {
    let server = Server::start();
    let mut job =
        rlock("job").on(&server).args(["-c", &format!("{}; echo code $?; exit 4", nested("", STUBBORN))]).spawn();
    let work = job.wait_for_pid("work");
    signal(parent(work), Signal::SIGKILL);
    let finished = job.finish().code(4);
    assert!(!alive(work));
    assert!(finished.stdout.contains(&"code 137".to_owned()), "{:?}", finished.stdout);
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
    for _ in 0..5 {
        let (job, work) = apart(&server, &[], "");
        let begin = Instant::now();
        job.signal(Signal::SIGKILL);
        eventually("the nested command is dead", || !alive(work));
        assert!(begin.elapsed() < MOMENT, "{:?}", begin.elapsed());
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn a_local_lock_outlasts_a_killed_outer_rlock_until_nested_commands_are_dead() {
    let (_dir, node) = local();
    let script = format!("setsid {} & read x", nested("", STUBBORN));
    let mut job = rlock("job").node(&node).stdin(Stdio::piped()).args(["-c", &script]).spawn();
    let work = job.wait_for_pid("work");
    // It learns of the death only later.
    let nested = Stopped::stop(parent(work));
    let guard = child_named(job.pid(), "rlock-guard");
    let mut next = rlock("job").node(&node).args(["-v", "-c", &alone(work)]).spawn();
    next.wait_until_told("waiting: held by");
    let leader = parent(parent(work));
    job.signal(Signal::SIGKILL);
    drop(job);
    eventually("the outer command is dead", || !alive(leader));
    // A guard that waits for the outer command only ends within milliseconds.
    for _ in 0..20 {
        rlock("job").node(&node).args(["-n"]).command(["true"]).code(75);
    }
    assert!(alive(guard) && alive(work));
    drop(nested);
    next.finish().code(0).printed(&["alone"]);
}

/// Says so if `pid` runs no more: a zombie does not.
fn alone(pid: i32) -> String {
    format!("case $(cut -d' ' -f3 /proc/{pid}/stat 2>/dev/null) in Z|X|'') echo alone;; esac")
}

/// The child of `pid` that calls itself `name`.
fn child_named(pid: i32, name: &str) -> i32 {
    let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its children");
    let has_name =
        |child: &i32| std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm.trim() == name);
    all.split_whitespace().map(|word| word.parse().expect("a pid")).find(has_name).expect("such a child")
}

#[test]
fn a_nested_command_is_dead_before_the_outer_rlock_that_lost_the_lock_has_ended() {
    let server = Server::start();
    for how in [&["SET", "job", "another's"][..], &["DEL", "job"]] {
        let (mut job, work) = apart(&server, &["--ttl", "2s"], "");
        // Not ended by the end of its stdin.
        let _stdin = job.stdin.take();
        server.cli(how);
        job.finish().code(79);
        assert!(!alive(work), "it outlived the lock: {how:?}");
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn a_nested_command_is_dead_by_the_end_of_the_lease_of_an_outer_rlock_that_is_stopped() {
    let server = Server::start();
    for ends_first in [false, true] {
        let (mut job, work) = apart(&server, &["--ttl", "2s", "-v"], "");
        if ends_first {
            drop(job.stdin.take());
            job.wait_until_told("keeping the lock");
        }
        // The first lease would be over.
        (0..3).for_each(|_| job.wait_until_told("renewed for"));
        assert!(alive(work));
        let begin = Instant::now();
        job.signal(Signal::SIGSTOP);
        eventually("the nested command is dead", || !alive(work));
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        job.signal(Signal::SIGCONT);
        // The command complained itself; what it left behind was stopped in time.
        job.finish().code(if ends_first { 5 } else { 79 });
    }
}

#[test]
fn a_nested_run_that_stands_still_with_the_outer_rlock_is_dead_by_the_end_of_the_lease() {
    let server = Server::start();
    let (mut job, work) = apart(&server, &["--ttl", "3s"], "");
    let _stdin = job.stdin.take();
    server.wait_until_asked(3);
    let (begin, nested) = (Instant::now(), parent(work));
    job.signal(Signal::SIGSTOP);
    let nested = Stopped::stop(nested);
    eventually("the guard of the nested run has killed it", || !alive(work));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    eventually("the lease is over", || server.cli(&["EXISTS", "job"]) == "0");
    drop(nested);
    job.signal(Signal::SIGCONT);
    job.finish().code(79);
}

#[test]
fn the_exit_code_and_the_signals_of_a_nested_command_are_its_own() {
    let server = Server::start();
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)] {
        rlock("job").on(&server).args(["-c", &format!("exec {}", nested("", script))]).finish().code(code).silent();
    }
    rlock("job").on(&server).args(["-c", &nested("", "exec /no/such")]).finish().code(127);
    let missing = format!("{RLOCK} run -k job -- /no/such/command");
    rlock("job").on(&server).args(["-c", &missing]).finish().code(127).said(&["job: /no/such/command: not found"]);

    let trap = "trap \"echo got\" USR1; trap \"echo end; exit 9\" TERM; echo ready; while :; do sleep 0.01; done";
    let mut job = rlock("job").on(&server).args(["-c", &format!("exec {}", nested("", trap))]).spawn();
    job.wait_for("ready");
    for _ in 0..5 {
        job.signal(Signal::SIGUSR1);
        job.wait_for("got");
    }
    job.signal(Signal::SIGTERM);
    let finished = job.finish().code(9);
    assert_eq!(finished.stdout.iter().filter(|line| *line == "got").count(), 5);
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
    let run = nested("--max-run 0.2 --kill-after 0.1", STUBBORN);
    let mut job = rlock("job").on(&server).args(["-c", &format!("{run}; echo code $?; exit 3")]).spawn();
    let work = job.wait_for_pid("work");
    let finished = job.finish().code(3).said(&["job: --max-run is over"]);
    assert!(!alive(work) && finished.stdout.contains(&"code 124".to_owned()), "{:?}", finished.stdout);

    let daemon = "setsid sh -c \"echo daemon \\$\\$; exec >/dev/null 2>&1; sleep 60\" &";
    let left = format!("{daemon} while [ ! -e $0 ]; do sleep 0.01; done");
    let (dir, script) = (tempfile::tempdir().expect("a directory"), nested("--contain", &left));
    let seen = dir.path().join("seen");
    let script = format!("{script} {}; echo nested ended; read x", seen.display());
    let mut job = rlock("job").on(&server).stdin(Stdio::piped()).args(["-c", &script]).spawn();
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
    let [contained, work] = job.seen_pids(&["daemon", "work"])[..] else { panic!("two pids") };
    signal(parent(work), Signal::SIGKILL);
    eventually("the daemon is dead", || !alive(contained) && !alive(work));
    assert!(job.finish().code(6).stdout.contains(&"code 137".to_owned()));
}

#[test]
fn a_run_nested_in_a_nested_one_covers_its_command_too() {
    let server = Server::start();
    let innermost = format!("setsid {RLOCK} run -k job -- sh -c \"$WORK\" & sleep 0.2");
    let script = format!("setsid {RLOCK} run -k job -c '{innermost}' & echo ready; read x");
    let job = rlock("job").on(&server).args(["-v"]).env("WORK", STUBBORN).stdin(Stdio::piped());
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
    for held in ["", ",,", "garbage", &format!("{token}:7,x:y"), &"x".repeat(10_000), "\u{1b}[2J"] {
        rlock("job").on(&server).env("RLOCK_HELD", held).env("RLOCK_TOKEN", token).sh("exit 3").code(3).silent();
    }
    let _holder = rlock("job").on(&server).hold("echo ready; read x");
    let run = rlock("job").on(&server).args(["-n"]).env("RLOCK_HELD", &format!("garbage,{token}:7"));
    run.sh("echo ran").code(75).printed(&[]);
}

#[test]
fn release_and_renew_inside_a_live_run_are_64_and_change_nothing() {
    let server = Server::start();
    let script = format!(
        "echo ready; read x; {RLOCK} release; echo release $?; {RLOCK} renew --ttl 1h; echo renew $?
         {RLOCK} check; echo check $?; read y; true"
    );
    let mut job = rlock("job").on(&server).hold(&script);
    let (value, pid) = (server.cli(&["GET", "job"]), format!("rlock run (pid {})", job.pid()));
    go(&mut job);
    assert_eq!(["release", "renew", "check"].map(|verb| job.wait_for(verb)), ["64", "64", "0"]);
    assert_eq!(server.cli(&["GET", "job"]), value);
    assert!(server.cli(&["PTTL", "job"]).parse::<u64>().expect("a number") <= 30_000);
    job.finish().code(0).mentions(&["job: ", &pid, "gives it back itself", "nothing was changed"]);

    // From outside an operator may.
    let job = rlock("job").on(&server).hold("echo ready; read x; sleep 60");
    let value = server.cli(&["GET", "job"]);
    let token = value.split(' ').next().expect("a token");
    rlock_words(["release", "-k", "job"]).on(&server).env("RLOCK_TOKEN", token).finish().code(0).silent();
    drop(job);
    // What a run left behind learns that the lock is not its own any more.
    let held = format!("{token}:7");
    let late = rlock_words(["release", "-k", "job", "--token", token]).on(&server).env("RLOCK_HELD", &held);
    late.finish().code(1).said(&["not the holder's token"]);
}

#[test]
fn release_inside_a_live_run_changes_nothing_while_no_majority_answers() {
    let nodes = Nodes::start(3);
    let job = rlock("job").on_all(&nodes).hold("echo ready; read x");
    let token = nodes.job()[0].split(' ').next().expect("a token").to_owned();
    nodes[0].freeze();
    nodes[1].freeze();
    let release = rlock_words(["release", "-k", "job", "--token", &token]).node(&nodes.url());
    release.env("RLOCK_HELD", &format!("{token}:7")).finish().code(69);
    nodes[0].thaw();
    nodes[1].thaw();
    assert!(nodes.job().iter().all(|value| value.starts_with(&token)));
    job.finish().code(1);
}

#[test]
fn acquire_inside_a_live_run_does_not_wait_for_itself() {
    let server = Server::start();
    let script = format!("{RLOCK} acquire -k job; echo $?");
    let finished = rlock("job").on(&server).sh(&script).code(0).printed(&["64"]);
    finished.said(&["job: held by", "wait for itself"]);
}

/// A connection to the rlock that holds `job`, as a nested run makes it.
fn connected(server: &Server) -> OwnedFd {
    let value = server.cli(&["GET", "job"]);
    let name = format!("rlock/1/{}", value.split(' ').next().expect("a token"));
    let ours = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    connect(ours.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).expect("a name")).expect("a listener");
    ours
}

#[test]
fn a_connection_that_says_nothing_stalls_nothing_and_is_waited_for() {
    let server = Server::start();
    let mut job = rlock("job").on(&server).args(["--ttl", "3s", "-v"]).hold("echo ready; read x; exit 3");
    let silent: Vec<OwnedFd> = (0..300).map(|_| connected(&server)).collect();
    (0..2).for_each(|_| job.wait_until_told("renewed for"));
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock");
    (0..2).for_each(|_| job.wait_until_told("renewed for"));
    assert_eq!(server.cli(&["EXISTS", "job"]), "1");
    drop(silent);
    job.finish().code(3);
}

#[test]
fn a_connection_that_talks_is_no_nested_run() {
    let server = Server::start();
    let job = rlock("job").on(&server).hold("echo ready; read x; exit 3");
    let loud = connected(&server);
    nix::unistd::write(&loud, b"hello").expect("a listener");
    job.finish().code(3);
    drop(loud);
}

#[test]
fn another_user_cannot_keep_the_lock() {
    if !nix::unistd::Uid::effective().is_root() {
        crate::support::skipped("only root can run as another user");
        return;
    }
    let server = Server::start();
    let mut job = rlock("job").on(&server).hold("echo ready; read x; exit 3");
    let value = server.cli(&["GET", "job"]);
    let token = value.split(' ').next().expect("a token");
    // It reads the end of the connection, and no welcome.
    let script = "use Socket; socket(S, AF_UNIX, SOCK_SEQPACKET, 0) or die $!;
        connect(S, pack_sockaddr_un(\"\\0rlock/1/$ARGV[0]\")) or die $!; $n = sysread(S, $_, 99); print defined $n ? $n : $!";
    let stranger = |user| {
        let mut perl = std::process::Command::new("perl");
        std::os::unix::process::CommandExt::uid(&mut perl, user);
        let output = perl.args(["-e", script, token]).current_dir(Path::new("/")).output().expect("perl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(stranger(65_534), "0");
    assert_eq!(stranger(0), "32");
    drop(job.stdin.take());
    job.finish().code(3);
}

#[test]
fn an_outer_rlock_that_cannot_be_reached_is_64_and_not_waited_for() {
    if !nix::unistd::Uid::effective().is_root() {
        crate::support::skipped("only root can make a network namespace");
        return;
    }
    let server = Server::start();
    let script = format!("unshare -n {}; echo $?", nested("", "echo ran"));
    let finished = rlock("job").on(&server).sh(&script).code(0).printed(&["64"]);
    finished.said(&["job: held by", "cannot be reached from here", "run the command without rlock run"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn an_outer_rlock_that_cannot_be_reached_is_busy_for_a_run_that_does_not_wait() {
    if !nix::unistd::Uid::effective().is_root() {
        crate::support::skipped("only root can make a network namespace");
        return;
    }
    let server = Server::start();
    for wait in ["-n", "-w 0.5"] {
        let script = format!("unshare -n {}; echo $?", nested(wait, "echo ran"));
        let finished = rlock("job").on(&server).sh(&script).code(0).printed(&["75"]);
        finished.said(&["job: busy: held by"]);
    }
}

#[test]
fn a_signal_that_ends_the_command_ends_a_nested_run_in_another_session() {
    let server = Server::start();
    let script = format!("setsid {} & sleep 60", nested("", "echo work $$; exec sleep 60"));
    let mut job = rlock("job").on(&server).args(["-c", &script]).spawn();
    let work = job.wait_for_pid("work");
    job.signal(Signal::SIGTERM);
    job.finish().code(143).within(Duration::from_secs(20));
    assert!(!alive(work));
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
            let script = format!("{} & echo outer $RLOCK_TOKEN", nested("", "echo inner $RLOCK_TOKEN; sleep 0.05"));
            let mut job = rlock("job").node(&node).args(["-c", &script]).spawn();
            job.wait_for_all_of(&["outer", "inner"]);
            job.finish().code(0).silent();
        }
    }
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}
