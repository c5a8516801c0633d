//! PID namespaces: rlock as the first process, /proc of another namespace, and pids that are
//! reused.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::namespaces::unshare;

use crate::support::{
    NOBODY, RLOCK, Rooted, Server, alive, children, eventually, guard_of, parent, rlock, signal,
    skipped,
};

/// Returns the words of `rlock run --key job --node NODE`.
fn run(server: &Server) -> Vec<String> {
    let url = server.url();
    [RLOCK, "run", "--key", "job", "--node", &url]
        .map(str::to_owned)
        .to_vec()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn with_the_proc_of_another_namespace_nothing_is_run() {
    let Some(mut outside) = unshare(&["-rpf"]) else {
        return;
    };
    let server = Server::start();
    let Output {
        status,
        stdout,
        stderr,
    } = outside
        .args(run(&server))
        .args(["--", "echo", "ran"])
        .output()
        .expect("unshare");
    assert_eq!(status.code(), Some(78), "{}", text(&stderr));
    let said = text(&stderr);
    assert!(
        said.contains("another PID namespace")
            && said.contains("--mount-proc")
            && stdout.is_empty(),
        "{said}"
    );
    assert_eq!(server.asked(), 0, "no node was asked");
}

#[test]
fn rlock_as_the_first_process_reaps_the_orphans_of_its_command() {
    let Some(mut inside) = unshare(&["-rpf", "--kill-child", "--mount-proc"]) else {
        return;
    };
    let server = Server::start();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 &); done
        while grep -qs '^[0-9]* (sleep)' /proc/[0-9]*/stat; do :; done; echo none is left";
    let output = inside
        .args(run(&server))
        .args(["--max-run", "20", "--", "sh", "-c", script])
        .output()
        .expect("unshare");
    assert_eq!(
        (output.status.code(), text(&output.stdout).trim()),
        (Some(0), "none is left")
    );
}

#[test]
fn rlock_as_the_first_process_reaps_orphans_while_it_waits() {
    let Some(mut inside) = unshare(&["-rpf", "--kill-child", "--mount-proc"]) else {
        return;
    };
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line");
    let dir = tempfile::tempdir().expect("a directory");
    let gate = dir.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let script = "(for i in 1 2 3 4 5 6 7 8 9 10; do (read line < \"$0\" &); done) & exec \"$@\"";
    let waiting = inside
        .args(["sh", "-c", script])
        .arg(&gate)
        .args(run(&server))
        .args(["--", "echo", "ran"]);
    let waiting = waiting.stdout(Stdio::piped()).spawn().expect("unshare");
    let first = || {
        children(*children(waiting.id().cast_signed()).first()?)
            .first()
            .copied()
    };
    // The shell that started the orphans has ended and is reaped too.
    eventually("it waits, with its guard and its orphans", || {
        first().is_some_and(|rlock| children(rlock).len() == 11)
    });
    let rlock = first().expect("rlock");
    // One line for each. Those that open it last read the end of file.
    let mut gate = std::fs::OpenOptions::new()
        .write(true)
        .open(&gate)
        .expect("the FIFO");
    gate.write_all(&[b'\n'; 10]).expect("room for ten lines");
    eventually("the orphans are reaped", || children(rlock).len() == 1);
    assert_eq!(server.cli(&["EXISTS", "job"]), "1");
    drop(holder);
    let output = waiting.wait_with_output().expect("its end");
    assert_eq!(
        (output.status.code(), text(&output.stdout).trim()),
        (Some(0), "ran")
    );
}

#[test]
fn a_guard_that_cannot_see_processes_any_more_ends_with_the_group_and_gives_nothing_back() {
    let Some(mut inside) = unshare(&["-rm"]) else {
        return;
    };
    let server = Server::start();
    let script = "\"$@\" & rlock=$!; read line; mount -t tmpfs none /proc; kill -9 $rlock; wait";
    let running = inside.args(["sh", "-c", script, "sh"]).args(run(&server));
    let running = running.args(["--ttl", "5m", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let mut running = running
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare");
    let mut line = String::new();
    BufReader::new(running.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("a line");
    let command: i32 = line.trim().parse().expect("a pid");
    let guard = guard_of(parent(command));
    drop(running.stdin.take());
    eventually("the guard has ended", || !alive(guard));
    assert_eq!(
        (alive(command), server.cli(&["EXISTS", "job"]).as_str()),
        (false, "1")
    );
    running.wait().expect("its end");
}

/// A script that root runs as the first process of a namespace. The outer rlock, of another user,
/// is killed while a nested command runs that its guard may not kill. Then the pid of the dead
/// leader goes to a process that the guard may kill.
const REUSE: &str = r#"
    rlock=$1 rooted=$2 dir=$3
    as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
    as_nobody "$rlock" run -k outer --node local:"$dir" -- sh -c 'echo $$ > "$3/leader"
        "$1" run -k inner --node local:"$3" -- "$2" sh -c "echo \$\$ > $3/nested.new; mv $3/nested.new $3/nested; exec sleep 300"
        true' sh "$rlock" "$rooted" "$dir" &
    until [ -e "$dir/nested" ]; do :; done
    leader=$(cat "$dir/leader") nested=$(cat "$dir/nested")
    outer=$(cut -d' ' -f4 /proc/$leader/stat)
    for guard in $(cat /proc/$outer/task/$outer/children); do
        [ "$(cat /proc/$guard/comm)" = rlock-guard ] && break
    done
    kill -9 $outer
    wait
    # As the first process the shell reaps them.
    while kill -s 0 -- -$leader; do sleep 0.01; done 2>/dev/null
    echo $((leader - 1)) > /proc/sys/kernel/ns_last_pid
    as_nobody sleep 300 &
    [ $! = $leader ] || { echo "no luck: $! is not $leader"; kill -9 $! $nested; exit 3; }
    # Several looks of the guard: each reads a line for each process.
    reads() { sed -n 's/^syscr: //p' /proc/$guard/io; }
    before=$(reads)
    until [ $(reads) -gt $((before + 300)) ]; do sleep 0.01; done
    echo guard: $(cat /proc/$guard/comm) stranger: $(cut -d' ' -f3 /proc/$leader/stat) nested: $(cut -d' ' -f3 /proc/$nested/stat)
    kill -9 $nested
    while [ -e /proc/$guard ] && [ $(cut -d' ' -f3 /proc/$guard/stat) != Z ]; do sleep 0.01; done
    echo guard: gone stranger: $(cut -d' ' -f3 /proc/$leader/stat)
    kill -9 $leader
"#;

#[test]
fn an_orphaned_guard_leaves_a_process_alone_that_got_a_number_of_its_command() {
    let Some(rooted) = Rooted::make(RLOCK) else {
        return;
    };
    let Some(mut inside) = unshare(&["-pf", "--kill-child", "--mount-proc"]) else {
        return;
    };
    if !std::path::Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        return skipped("the next number of a process cannot be chosen here");
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("nobody's directory");
    let output = inside
        .args(["sh", "-c", REUSE, "sh"])
        .args([rooted.rlock(), rooted.program()])
        .arg(dir.path())
        .output()
        .expect("unshare");
    let wanted = "guard: rlock-guard stranger: S nested: S\nguard: gone stranger: S\n";
    assert_eq!(text(&output.stdout), wanted, "{}", text(&output.stderr));
}

/// Waits until a guard has looked at all processes several times, and reads at least twice for
/// each, or has ended.
fn has_looked(guard: i32) {
    let reads = || {
        let io = std::fs::read_to_string(format!("/proc/{guard}/io")).unwrap_or_default();
        io.lines()
            .find_map(|line| line.strip_prefix("syscr: ")?.parse::<u64>().ok())
    };
    let before = reads();
    let processes = std::fs::read_dir("/proc").expect("/proc").count() as u64;
    eventually("it has looked", || {
        reads().is_none_or(|now| before.is_some_and(|before| now > before + 30 * processes))
    });
}

/// The witness is a process that only root can kill: the lock must not pass on while it runs.
#[test]
fn the_lock_is_kept_while_a_nested_command_lives_whose_rlock_died_with_ours() {
    let Some(rooted) = Rooted::make(RLOCK) else {
        return;
    };
    let server = Server::tcp(&[]);
    let inner = "echo nested $$; exec sleep 300";
    let words = [
        rooted.rlock().display().to_string(),
        "run".to_owned(),
        "--key".to_owned(),
        "inner".to_owned(),
    ];
    let outer = rooted
        .run("outer", &server)
        .args(["--ttl", "5m", "--"])
        .args(words)
        .args(["--"])
        .args([rooted.program()]);
    let mut outer = outer.args(["sh", "-c", inner]).spawn();
    let nested = outer.wait_for_pid("nested");
    let leader = parent(nested);
    let guard = guard_of(outer.pid());
    outer.signal(Signal::SIGKILL);
    eventually("the nested rlock is dead", || !alive(leader));
    has_looked(guard);
    assert_eq!(
        (alive(nested), server.cli(&["EXISTS", "outer"]).as_str()),
        (true, "1")
    );
    signal(nested, Signal::SIGKILL);
    eventually("the lock is given back", || {
        server.cli(&["EXISTS", "outer"]) == "0"
    });
}

/// The nested rlock is another user's, in another network, and is killed together with ours. Its
/// guard may not kill the witness.
#[test]
fn the_lock_is_kept_for_a_moment_while_a_nested_guard_of_another_user_is_at_work() {
    let Some(rooted) = Rooted::make(RLOCK) else {
        return;
    };
    if unshare(&["-n"]).is_none() {
        return;
    }
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("nobody's directory");
    let (program, run) = (
        rooted.program().display().to_string(),
        rooted.rlock().display().to_string(),
    );
    let nobody = [
        "unshare",
        "-n",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let inner = [
        &run,
        "run",
        "--key",
        "inner",
        "--node",
        &format!("local:{}", dir.path().display()),
        "--",
        &program,
    ];
    let outer = rlock("outer")
        .on(&server)
        .args(["--ttl", "5m", "--"])
        .args(nobody)
        .args(inner);
    let mut outer = outer
        .args(["sh", "-c", "echo nested $$; exec sleep 300"])
        .spawn();
    let nested = outer.wait_for_pid("nested");
    let leader = parent(nested);
    // rlock is stopped first, so that it does not notice the death of its command.
    outer.signal(Signal::SIGSTOP);
    signal(leader, Signal::SIGKILL);
    eventually("the nested rlock is dead", || !alive(leader));
    outer.signal(Signal::SIGKILL);
    let begin = Instant::now();
    // Such a process may be made to keep the lock.
    eventually("the lock is given back", || {
        server.cli(&["EXISTS", "outer"]) == "0"
    });
    assert!(begin.elapsed() > Duration::from_millis(1500));
    assert!(alive(nested));
    signal(nested, Signal::SIGKILL);
}

#[test]
fn a_lease_is_renewed_while_an_unkillable_command_is_waited_for_without_a_guard() {
    let Some(rooted) = Rooted::make(RLOCK) else {
        return;
    };
    let server = Server::tcp(&[]);
    let job = rooted
        .run("job", &server)
        .args(["--ttl", "1500ms", "--"])
        .args([rooted.program()]);
    let mut job = job
        .args(["sh", "-c", "echo self $$; exec sleep 300"])
        .spawn();
    let command = job.wait_for_pid("self");
    let mut limits = Command::new("prlimit");
    let limits = limits
        .arg(format!("--pid={}", job.pid()))
        .arg("--nproc=1:1")
        .uid(NOBODY)
        .gid(NOBODY)
        .status();
    assert!(limits.expect("prlimit").success());
    signal(guard_of(job.pid()), Signal::SIGKILL);
    job.wait_until_told("is still there");
    // More than one lease.
    server.wait_until_asked(4);
    assert_eq!(
        (alive(command), server.cli(&["EXISTS", "job"]).as_str()),
        (true, "1")
    );
    signal(command, Signal::SIGKILL);
    job.finish()
        .code(79)
        .mentions(&["the guard has ended and another cannot be started"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}
