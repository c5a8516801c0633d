//! rlock killed with SIGKILL: its guard releases the lock once the command is dead, long before the
//! lease ends.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;

use crate::support::{
    Nodes, Rlock, Running, Server, alive, children, eventually, guard_of, rlock, side_by_side,
    signal,
};

/// Far less than the lease, and enough on a machine whose cores are all busy with other tests.
const SOON: Duration = Duration::from_secs(10);

/// A script that prints its own pid and its child's, and then sleeps in both. TERM ends neither.
const STUBBORN: &str =
    "trap '' TERM; sleep 60 & echo child $!; echo self $$; echo ready; wait; sleep 60";

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
        assert!(
            !free || !command.iter().any(|pid| alive(*pid)),
            "the command outlived the lock"
        );
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
    eventually("there is another guard", || {
        children(job.pid()).len() == 2 && guard_of(job.pid()) != old
    });
    is_given_back(&job, &command, || server.cli(&["EXISTS", "job"]) == "0");
}

#[test]
fn the_next_waiter_has_the_lock_when_the_command_is_dead() {
    let server = Server::start();
    let (job, command) = holder(rlock("job").on(&server));
    let script = "for pid; do case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in Z|X|'') echo alone;; esac; done";
    let pids = command.map(|pid| pid.to_string());
    let next = rlock("job")
        .on(&server)
        .args(["--", "sh", "-c", script, "sh"])
        .args(&pids)
        .spawn();
    eventually("it waits", || {
        server.cli(&["EXISTS", "rlock:queue:{job}:job"]) == "1"
    });
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
    eventually("the guard has asked, and ended", || {
        server.asked() > asked && !alive(guard)
    });
    assert!(!command.iter().any(|pid| alive(*pid)));
    assert_eq!(server.cli(&["GET", "job"]), "a successor's");
}

#[test]
fn one_line_tells_of_it_and_no_caller_waits_for_the_release() {
    let server = Server::start();
    for (options, told) in [
        (
            &[][..],
            "rlock: job: rlock was killed; the command was killed; the lock is being given back\n",
        ),
        (&["--log", "json"], "\"event\":\"killed\""),
    ] {
        let (job, _) = holder(rlock("job").on(&server).args(options));
        let guard = guard_of(job.pid());
        server.freeze();
        job.signal(Signal::SIGKILL);
        // It waits until no process has the output open.
        let finished = job.finish();
        assert!(
            finished.took < SOON && finished.stderr.contains(told),
            "{:?}",
            finished.stderr
        );
        assert!(alive(guard), "it gives the lock back");
        server.thaw();
        eventually("the lock is free, and the guard has ended", || {
            server.cli(&["EXISTS", "job"]) == "0" && !alive(guard)
        });
    }
}

#[test]
fn a_reader_of_its_line_that_has_stopped_keeps_no_lock() {
    let server = Server::start();
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_NONBLOCK).expect("a pipe");
    while nix::unistd::write(&writer, &[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe that blocks");
    let (job, command) = holder(rlock("job").on(&server).with(|command| {
        command.stderr(Stdio::from(writer));
    }));
    is_given_back(&job, &command, || server.cli(&["EXISTS", "job"]) == "0");
    drop(reader);
}

#[test]
fn a_service_manager_can_end_a_guard_that_gives_back_in_vain() {
    let server = Server::start();
    for which in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (job, _) = holder(rlock("job").on(&server));
        let guard = guard_of(job.pid());
        // As long as there is a command, it ends for none of them.
        signal(guard, which);
        server.freeze();
        job.signal(Signal::SIGKILL);
        job.finish();
        assert!(alive(guard));
        signal(guard, which);
        eventually("the guard has ended", || !alive(guard));
        server.thaw();
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn a_password_that_was_changed_is_read_again() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    let write = |password: &str| {
        std::fs::write(&file, password).expect("the file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its mode");
    };
    write("hunter2");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let path = file.to_str().expect("a path");
    let (job, _) = holder(rlock("job").node(&url).args(["--password-file", path]));
    let ask = |password: &str, words: &[&str]| {
        let url = format!("redis://:{password}@127.0.0.1:{}", server.port());
        redis::cmd(words[0])
            .arg(&words[1..])
            .query::<redis::Value>(&mut redis::Client::open(url)?.get_connection()?)
    };
    ask("hunter2", &["CONFIG", "SET", "requirepass", "hunter3"]).expect("another password");
    write("hunter3");
    job.signal(Signal::SIGKILL);
    eventually("the lock is free", || {
        ask("hunter3", &["EXISTS", "job"]) == Ok(redis::Value::Int(0))
    });
}

/// A server that pauses its clients, as for a planned failover, drops what one had sent that has
/// gone meanwhile.
#[test]
fn a_pause_of_the_servers_beyond_the_node_timeout_loses_no_release() {
    side_by_side([1, 3], |count| {
        let nodes = Nodes::start(count);
        let job = rlock("job")
            .on_all(&nodes)
            .args(["--ttl", "5m", "--node-timeout", "200ms"])
            .hold("echo ready; read line; true");
        for node in nodes.iter() {
            node.cli(&["CLIENT", "PAUSE", "5000", "ALL"]);
        }
        job.finish()
            .code(0)
            .mentions(&["release not confirmed"])
            .within(SOON);
        eventually("the lock is free", || {
            nodes.iter().all(|node| node.cli(&["EXISTS", "job"]) == "0")
        });
    });
}

#[test]
fn a_release_is_repeated_until_the_server_is_back() {
    let mut server = Server::with(&["--appendonly", "yes"]);
    for is_killed in [true, false] {
        let (job, guard) = if is_killed {
            let (job, _) = holder(rlock("job").on(&server));
            let guard = guard_of(job.pid());
            // rlock itself must not notice.
            job.signal(Signal::SIGSTOP);
            server.crash();
            job.signal(Signal::SIGKILL);
            (job, guard)
        } else {
            let job = rlock("job")
                .on(&server)
                .args(["--ttl", "5m"])
                .hold("echo ready; read line; true");
            let guard = guard_of(job.pid());
            server.crash();
            (job, guard)
        };
        // No caller waits for that.
        let finished = job.finish();
        assert!(
            finished.took < SOON && alive(guard),
            "{:?}",
            finished.stderr
        );
        if !is_killed {
            finished
                .code(0)
                .mentions(&["release not confirmed"])
                .never_said("was killed");
        }
        server.come_back();
        eventually("the lock is free, and the guard has ended", || {
            server.cli(&["EXISTS", "job"]) == "0" && !alive(guard)
        });
    }
}

#[test]
fn a_replaced_guard_finds_its_nodes_by_name() {
    let server = Server::tcp(&[]);
    let (job, command) = holder(rlock("job").node(&format!("redis://localhost:{}", server.port())));
    let old = guard_of(job.pid());
    signal(old, Signal::SIGKILL);
    eventually("there is another guard", || {
        children(job.pid()).len() == 2 && guard_of(job.pid()) != old
    });
    is_given_back(&job, &command, || server.cli(&["EXISTS", "job"]) == "0");
}
