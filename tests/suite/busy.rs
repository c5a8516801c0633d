//! A lock that is held by another client: rlock names the holder, waits, and touches no foreign
//! key.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Running, Server, eventually, rlock};

/// Sets the lock of a foreign client, as redis-py, redsync and node-redlock do.
fn foreign(server: &Server, ttl: Option<&str>) {
    let mut command = vec!["SET", "job", "f00dfeed", "NX"];
    command.extend(ttl.iter().flat_map(|ttl| ["PX", ttl]));
    assert_eq!(server.cli(&command), "OK");
}

#[test]
fn a_busy_lock_is_75_and_one_line_that_names_the_holder() {
    let server = Server::start();
    let holder = rlock("job")
        .on(&server)
        .args(["--note", "https://ci/job/7"])
        .hold("echo ready; read line; true");
    let pid = holder.pid().to_string();
    let line = [
        "rlock: job: busy",
        "tester@",
        &pid,
        "running sh",
        "https://ci/job/7), for ",
    ];
    let busy = rlock("job")
        .on(&server)
        .args(["--no-wait"])
        .sh("echo ran")
        .code(75)
        .printed(&[]);
    busy.said(&line)
        .never_said("lease")
        .within(Duration::from_secs(5));
    rlock("job")
        .on(&server)
        .args(["-n", "-E", "0"])
        .sh("echo ran")
        .code(0)
        .printed(&[]);
    rlock("job")
        .on(&server)
        .args(["-n", "-q"])
        .sh("echo ran")
        .code(75)
        .silent();
}

#[test]
fn whatever_is_at_the_key_is_respected_and_described() {
    let server = Server::start();
    let content = || {
        server.cli(&[
            "EVAL",
            "return redis.sha1hex(redis.call('DUMP', KEYS[1]))",
            "1",
            "job",
        ])
    };
    let described = |words: &[&str]| {
        let before = content();
        assert_eq!(before.len(), 40, "{before}");
        let busy = rlock("job")
            .on(&server)
            .args(["-n"])
            .sh("echo ran")
            .code(75)
            .printed(&[])
            .said(words);
        assert_eq!(content(), before);
        server.cli(&["DEL", "job"]);
        busy
    };
    foreign(&server, Some("60000"));
    described(&["not rlock", "f00dfeed", "lease ends in"]);
    foreign(&server, None);
    described(&["f00dfeed", "no TTL and will never go away by itself"]);
    server.cli(&["HSET", "job", "a", "b"]);
    described(&["a hash"]);
    server.cli(&["RPUSH", "job", "a"]);
    described(&["a list"]);
    server.cli(&["SET", "job", "\x1b]0;pwned\x07\u{202e}"]);
    let shown = described(&["\\x1b]0;pwned\\x07"]);
    assert!(!shown.stderr.contains('\x1b') && !shown.stderr.contains('\u{202e}'));
    server.cli(&[
        "SET",
        "job",
        "5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f {\"host\":7}",
    ]);
    described(&["not rlock", "5ae7c1be"]);
}

#[test]
fn a_value_of_a_hundred_megabytes_costs_a_kilobyte() {
    let server = Server::start();
    server.cli(&["SETRANGE", "job", "104857600", "x"]);
    let sent = || -> u64 {
        let info = server.cli(&["INFO", "stats"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("total_net_output_bytes:"))
            .expect("a count");
        line.trim().parse().expect("a number")
    };
    let before = sent();
    let busy = rlock("job")
        .on(&server)
        .args(["-n"])
        .command(["true"])
        .code(75);
    busy.said(&["104857601 bytes"])
        .within(Duration::from_secs(2));
    assert!(sent() - before < 20_000);
    assert_eq!(server.cli(&["STRLEN", "job"]), "104857601");
}

#[test]
fn of_twenty_at_once_one_wins() {
    let server = Server::start();
    let all: Vec<Running> = (0..20)
        .map(|_| {
            rlock("job")
                .on(&server)
                .args(["-n", "--", "sh", "-c", "echo won; read line"])
                .stdin(std::process::Stdio::piped())
                .spawn()
        })
        .collect();
    let mut won = 0;
    let mut open = Vec::new();
    for mut running in all {
        eventually("it ends or wins", || {
            !running.is_running()
                || server
                    .cli(&["GET", "job"])
                    .contains(&format!("\"pid\":{},", running.pid()))
        });
        open.push(running);
    }
    // `finish` closes the winner's stdin, which ends its command.
    for running in open {
        let finished = running.finish();
        won += usize::from(finished.stdout == ["won"]);
    }
    assert_eq!(won, 1);
}

#[test]
fn a_waiter_gets_the_lock_when_the_holder_is_done() {
    let server = Server::start();
    let mut holder = rlock("job")
        .on(&server)
        .stdin(std::process::Stdio::piped())
        .hold("echo ready; read line; true");
    let mut waiter = rlock("job")
        .on(&server)
        .args(["-v", "--", "echo", "mine"])
        .spawn();
    waiter.wait_until_told("waiting: held by tester@");
    assert!(waiter.is_running());
    drop(holder.stdin.take());
    holder.finish().code(0);
    waiter.wait_for("mine");
    waiter.finish().code(0).mentions(&["acquired"]);
}

#[test]
fn a_waiter_gives_up_when_its_time_is_over() {
    let server = Server::start();
    foreign(&server, Some("60000"));
    for wait in ["0.5", "500ms"] {
        let finished = rlock("job")
            .on(&server)
            .args(["--wait", wait])
            .command(["true"])
            .code(75);
        assert!(finished.took >= Duration::from_millis(500));
        finished
            .said(&["busy", "f00dfeed"])
            .within(Duration::from_secs(5));
    }
}

#[test]
fn a_foreign_lock_that_expires_passes_on() {
    let server = Server::start();
    let begin = Instant::now();
    foreign(&server, Some("400"));
    let finished = rlock("job")
        .on(&server)
        .sh("echo mine")
        .code(0)
        .printed(&["mine"])
        .silent();
    let passed_on = begin.elapsed();
    assert!(passed_on >= Duration::from_millis(400), "{passed_on:?}");
    // Without a look at what is left of it, this would take ten seconds.
    finished.within(Duration::from_secs(8));
}

#[test]
fn a_waiter_for_a_lock_that_never_ends_is_told_so() {
    let server = Server::start();
    foreign(&server, None);
    rlock("job")
        .on(&server)
        .args(["--wait", "1"])
        .command(["true"])
        .code(75)
        .mentions(&["waiting", "never go away by itself"]);
    rlock("job")
        .on(&server)
        .args(["--wait", "3", "-q"])
        .command(["true"])
        .code(75)
        .silent();
}

#[test]
fn a_signal_ends_a_wait_and_nothing_is_left() {
    let server = Server::start();
    foreign(&server, Some("60000"));
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGUSR1, 138),
    ] {
        let waiter = rlock("job").on(&server).args(["--", "echo", "ran"]).spawn();
        eventually("it asks", || {
            server.cli(&["CLIENT", "LIST"]).contains("cmd=eval")
        });
        waiter.signal(signal);
        waiter.finish().code(code).printed(&[]);
        eventually("it has gone", || {
            !server.cli(&["CLIENT", "LIST"]).contains("cmd=eval")
        });
    }
    assert_eq!(server.cli(&["GET", "job"]), "f00dfeed");
}

#[test]
fn the_lock_excludes_set_nx_clients_and_outlasts_its_ttl_while_it_is_held() {
    let server = Server::start();
    let mut holder = rlock("job")
        .on(&server)
        .args(["--ttl", "4s", "--node-timeout", "600ms"])
        .stdin(std::process::Stdio::piped())
        .hold("echo ready; read line; true");
    let value = server.cli(&["GET", "job"]);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(4500) {
        assert_eq!(server.cli(&["SET", "job", "x", "NX", "PX", "1000"]), "");
        let ttl: i64 = server.cli(&["PTTL", "job"]).parse().expect("a number");
        assert!((1..=4000).contains(&ttl), "{ttl}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.cli(&["GET", "job"]), value);
    drop(holder.stdin.take());
    holder.finish().code(0).silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_server_that_has_too_many_clients_is_waited_for() {
    let server = Server::with(&["--maxclients", "2"]);
    let connect = || {
        let mut stream = UnixStream::connect(server.socket()).expect("a connection");
        stream.write_all(b"PING\r\n").expect("a request");
        stream.read_exact(&mut [0; 7]).expect("a reply");
        stream
    };
    let others = [connect(), connect()];
    let mut waiter = rlock("job")
        .on(&server)
        .args(["-v", "--wait", "8", "--", "echo", "ran"])
        .spawn();
    waiter.wait_until_told("max number of clients reached; trying again");
    drop(others);
    waiter.finish().code(0).printed(&["ran"]);
}

#[test]
fn the_failure_of_a_busy_lock_names_key_and_holder_in_json() {
    let server = Server::start();
    let job = rlock("job").on(&server).hold("echo ready; read line");
    let args = ["--log", "json", "-n"];
    let stderr = rlock("job")
        .on(&server)
        .args(args)
        .command(["true"])
        .code(75)
        .stderr;
    let line: serde_json::Value =
        serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (&line["key"], &line["event"], &line["code"]),
        (&"job".into(), &"busy".into(), &75.into()),
        "{stderr}"
    );
    assert_eq!(line["holder"]["pid"], job.pid(), "{stderr}");
    drop(job);
}
