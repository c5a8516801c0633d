//! The command: its words, its environment, its exit code.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use testkit::program::install_script;

use crate::support::{RLOCK, Server, alive, eventually, rlock, rlock_words};

#[test]
fn words_reach_the_command_as_they_were_typed() {
    let server = Server::start();
    let words = [
        "printf",
        "[%s]\\n",
        "two words",
        "it's \"quoted\"",
        "",
        "$HOME `id` *",
        "-n",
        "--",
        "größe",
    ];
    let wanted = [
        "[two words]",
        "[it's \"quoted\"]",
        "[]",
        "[$HOME `id` *]",
        "[-n]",
        "[--]",
        "[größe]",
    ];
    rlock("job")
        .on(&server)
        .command(words)
        .code(0)
        .silent()
        .printed(&wanted);
    rlock("job")
        .on(&server)
        .command(["printf", "%s", "a\nb"])
        .code(0)
        .printed(&["a", "b"]);
}

#[test]
fn the_command_may_follow_the_options_without_dashes() {
    let server = Server::start();
    rlock("job")
        .on(&server)
        .args(["echo", "-n", "--key"])
        .finish()
        .code(0)
        .printed(&["--key"]);
}

#[test]
fn a_string_is_run_by_sh() {
    let server = Server::start();
    rlock("job")
        .on(&server)
        .args(["-c", "echo $((6 * 7)); exit 4"])
        .finish()
        .code(4)
        .printed(&["42"]);
}

#[test]
fn every_exit_code_is_the_commands() {
    let server = Server::start();
    for code in [0, 1, 2, 64, 75, 79, 126, 127, 128, 255] {
        rlock("job")
            .on(&server)
            .sh(&format!("exit {code}"))
            .code(code)
            .silent();
    }
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_command_that_a_signal_ended_gives_128_and_its_number() {
    let server = Server::start();
    for signal in [1, 2, 9, 15] {
        rlock("job")
            .on(&server)
            .sh(&format!("kill -{signal} $$"))
            .code(128 + signal)
            .silent();
    }
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_lock() {
    let server = Server::start();
    rlock("job")
        .on(&server)
        .command(["/no/such/command"])
        .code(127)
        .said(&["job", "/no/such/command", "not found"]);
    rlock("job")
        .on(&server)
        .command(["no-such-command"])
        .code(127)
        .said(&["no-such-command"]);
    rlock("job")
        .on(&server)
        .command(["cd", "/tmp"])
        .code(127)
        .said(&["cd: not found; a line or a word for a shell", "-c"]);
    let quoted = rlock("job")
        .on(&server)
        .command(["mysqldump -phunter2 shop"])
        .code(127);
    quoted
        .said(&["mysqldump …: not found; a line or a word for a shell", "-c"])
        .never_said("hunter2");
    let assigned = rlock("job")
        .on(&server)
        .command(["FOO=hunter2", "env"])
        .code(127);
    assigned
        .said(&["FOO=…: not found; a line or a word for a shell"])
        .never_said("hunter2");
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    install_script("#!/bin/nosuch\n", &script).expect("a script");
    let told = rlock("job").on(&server).command([&script]).code(127);
    told.said(&[
        "script: it is there, but the interpreter that its first line names (#!)",
        "the lock is released",
    ]);
    rlock("job").on(&server).command(["/"]).code(126).said(&[
        "job",
        "Permission denied",
        "released",
    ]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn stdin_and_a_hundred_megabytes_of_stdout_pass_through() {
    let server = Server::start();
    let mut running = rlock("job")
        .on(&server)
        .stdin(Stdio::piped())
        .args(["--", "cat"])
        .spawn();
    let mut stdin = running.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        std::io::copy(&mut "line\n".repeat(10_000).as_bytes(), &mut stdin)
    });
    let finished = running.finish().code(0);
    writer.join().expect("the writer").expect("all written");
    assert_eq!(finished.stdout.len(), 10_000);

    let count = rlock("job").on(&server).with(|c| {
        c.stdout(Stdio::piped());
    });
    let counted = count
        .sh("head -c 100000000 /dev/zero | tr '\\0' 'x' | fold -w 1000000 | wc -l; echo")
        .code(0);
    assert_eq!(counted.stdout[0].trim(), "99");
    let raw = rlock("job")
        .on(&server)
        .sh("yes 123456789012345678901234567890123456789 | head -c 100000000")
        .code(0);
    assert_eq!(
        raw.stdout.iter().map(|line| line.len() + 1).sum::<usize>(),
        100_000_000
    );
}

#[test]
fn the_command_learns_what_it_holds() {
    let server = Server::start();
    let finished = rlock("job")
        .on(&server)
        .args(["--prefix", "p:", "--ttl", "90s"])
        .sh("redis-cli -s ${RLOCK_NODE#redis+unix://} get p:job; env | grep ^RLOCK_ | sort")
        .code(0);
    let [value, config, fence, held, key, node, prefix, token, ttl] = finished.stdout.as_slice()
    else {
        panic!("{:?}", finished.stdout)
    };
    assert_eq!(config, "RLOCK_CONFIG=none");
    assert_eq!(key, "RLOCK_KEY=job");
    assert_eq!(prefix, "RLOCK_PREFIX=p:");
    assert_eq!(ttl, "RLOCK_TTL=1m30s");
    assert_eq!(node, &format!("RLOCK_NODE={}", server.url()));
    assert!(
        fence
            .strip_prefix("RLOCK_FENCE=")
            .expect("a fence")
            .parse::<u64>()
            .is_ok()
    );
    let token = token.strip_prefix("RLOCK_TOKEN=").expect("a token");
    assert_eq!(
        held,
        &format!(
            "RLOCK_HELD={token}:{}",
            fence.trim_start_matches("RLOCK_FENCE=")
        )
    );
    let details = value
        .strip_prefix(&format!("{token} "))
        .expect("the value begins with the token");
    for part in [
        "\"user\":\"tester\"",
        "\"cmd\":\"sh\"",
        "\"ttl\":90000",
        "\"n\":1",
        "\"v\":1",
        "\"pid\":",
        "\"since\":",
    ] {
        assert!(details.contains(part), "{part} is missing in {details}");
    }
}

#[test]
fn a_commands_arguments_and_passwords_are_not_stored() {
    let server = Server::start();
    let finished = rlock("job")
        .on(&server)
        .env("RLOCK_PASSWORD_UNUSED", "x")
        .command([
            "sh",
            "-c",
            "redis-cli -s ${RLOCK_NODE#redis+unix://} get job",
            "mysqldump",
            "-psecret",
        ])
        .code(0);
    assert!(
        finished.stdout[0].contains("\"cmd\":\"sh\"") && !finished.stdout[0].contains("secret"),
        "{:?}",
        finished.stdout
    );
}

#[test]
fn a_password_on_the_command_line_is_not_passed_on() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let node = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    let finished = rlock("job")
        .node(&node)
        .sh("env; tr '\\0' ' ' < /proc/self/cmdline")
        .code(0);
    assert!(
        finished
            .stdout
            .contains(&format!("RLOCK_NODE={}", server.tcp_url()))
    );
    assert!(!finished.stdout.iter().any(|line| line.contains("hunter2")));
}

/// Returns what `sh -c SCRIPT` prints under rlock, and without.
fn with_and_without(node: &str, script: &str, redirection: &str) -> [String; 2] {
    let rlock = format!("{RLOCK} run --key job --node {node} --");
    [rlock.as_str(), ""].map(|before| {
        let line = format!("exec {before} sh -c '{script}' {redirection}");
        let output = Command::new("sh")
            .args(["-c", &line])
            .env_remove("RLOCK_NODE")
            .output()
            .expect("sh");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

#[test]
fn the_command_finds_the_descriptors_that_rlock_was_given_and_no_others() {
    let server = Server::start();
    for node in [
        server.url(),
        "local:/tmp/rlock-suite-descriptors".to_owned(),
    ] {
        for redirection in ["", "<&-", "2>&-", "<&- 2>&-", "7</dev/null"] {
            let [with, without] = with_and_without(&node, "ls /proc/self/fd", redirection);
            assert_eq!(with, without, "{node} {redirection}");
        }
    }
}

#[test]
fn signal_dispositions_and_the_mask_are_those_that_rlock_found() {
    let server = Server::start();
    let look = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let plain = Command::new(look[0])
        .args(&look[1..])
        .output()
        .expect("grep")
        .stdout;
    let plain = String::from_utf8_lossy(&plain).into_owned();
    rlock("job")
        .on(&server)
        .command(look)
        .code(0)
        .printed(&plain.lines().collect::<Vec<_>>());

    // HUP (1), PIPE (13) and CHLD (17) ignored, USR1 (10) blocked.
    let changed = rlock("job").on(&server).with(|command| {
        // SAFETY: async-signal-safe calls only.
        unsafe {
            command.pre_exec(|| {
                for signal in [Signal::SIGHUP, Signal::SIGPIPE, Signal::SIGCHLD] {
                    nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigIgn)?;
                }
                let mut mask = nix::sys::signal::SigSet::empty();
                mask.add(Signal::SIGUSR1);
                mask.thread_block()?;
                Ok(())
            })
        };
    });
    let finished = changed.command(look).code(0);
    let set = |line: &str| {
        u64::from_str_radix(line.rsplit('\t').next().expect("a set"), 16).expect("hexadecimal")
    };
    assert_eq!(set(&finished.stdout[0]), 1 << 9);
    assert_eq!(
        set(&finished.stdout[1]) & 0x7fff_ffff,
        1 | 1 << 12 | 1 << 16
    );
}

#[test]
fn what_a_command_left_in_the_background_goes_on_and_holds_no_lock() {
    for node in [None, Some("local:/tmp/rlock-suite-background")] {
        let server = Server::start();
        let url = node.map_or_else(|| server.url(), str::to_owned);
        let finished = rlock("job")
            .node(&url)
            .sh("sleep 60 >/dev/null 2>&1 & echo $!")
            .code(0);
        let pid: i32 = finished.stdout[0].parse().expect("a pid");
        assert!(alive(pid));
        rlock("job")
            .node(&url)
            .args(["-n"])
            .sh("echo mine")
            .code(0)
            .printed(&["mine"]);
        crate::support::signal(pid, Signal::SIGKILL);
    }
}

#[test]
fn an_uncontended_run_is_two_calls_for_the_server_and_what_frees_the_lock_in_any_case() {
    let server = Server::start();
    let run = || rlock("job").on(&server).command(["true"]).code(0).silent();
    run();
    let before = server.received();
    let seen = server.monitored(|| drop(run()));
    let calls: Vec<&str> = seen
        .iter()
        .map(|line| line.split('"').nth(1).unwrap_or_default())
        .collect();
    assert_eq!(calls, ["EVALSHA", "EVALSHA", "EVAL"], "{seen:#?}");
    // Of which MONITOR, ECHO and INFO are some hundred.
    let bytes = server.received() - before;
    assert!(bytes < 2048, "{bytes} bytes");
}

#[test]
fn a_counter_and_a_record_that_expire_are_left_behind() {
    let server = Server::start();
    rlock("job").on(&server).command(["true"]).code(0);
    for (key, life) in [
        ("rlock:fence:{job}:job", 604_800),
        ("rlock:last:{job}:job", 86_400),
    ] {
        let ttl: i64 = server.cli(&["TTL", key]).parse().expect("a number");
        assert!((life - 800..=life).contains(&ttl), "{key}: {ttl}");
    }
    assert_eq!(server.cli(&["DBSIZE"]), "2", "nothing else");
}

#[test]
fn the_fence_increases_from_holder_to_holder_whatever_the_counter_and_the_clock_say() {
    let server = Server::start();
    let fence = || -> u64 {
        rlock("job")
            .on(&server)
            .sh("echo $RLOCK_FENCE")
            .code(0)
            .stdout[0]
            .parse()
            .expect("a number")
    };
    let (first, second) = (fence(), fence());
    assert!(second > first);
    let ahead = (1u64 << 51) + 7;
    server.cli(&["SET", "rlock:fence:{job}:job", &ahead.to_string()]);
    assert_eq!(fence(), ahead + 1);
    assert_eq!(fence(), ahead + 2);
    server.cli(&[
        "SET",
        "rlock:fence:{job}:job",
        &((1u64 << 52) - 1).to_string(),
    ]);
    rlock("job")
        .on(&server)
        .command(["true"])
        .code(78)
        .said(&["job", "2^52"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    server.cli(&["DEL", "rlock:fence:{job}:job"]);
    assert!(
        fence() > second,
        "a counter that was lost starts above what it gave out"
    );
}

#[test]
fn verbose_tells_each_step_and_json_the_same_for_programs() {
    let server = Server::start();
    rlock("job")
        .on(&server)
        .args(["-v"])
        .command(["true"])
        .code(0)
        .mentions(&["job: acquired", "running", "released"]);
    let finished = rlock("job")
        .on(&server)
        .args(["--log", "json"])
        .command(["true"])
        .code(0);
    let events: Vec<String> = finished
        .stderr
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect(line)["event"]
                .as_str()
                .expect(line)
                .to_owned()
        })
        .collect();
    assert_eq!(events, ["acquired", "running", "ended", "released", "exit"]);
    let error = rlock_words(["run", "--log", "json"])
        .finish()
        .code(64)
        .stderr;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&error).expect("one object")["event"],
        "usage"
    );
}

#[test]
fn a_full_disk_and_a_closed_stderr_change_nothing_for_the_command() {
    let server = Server::start();
    for redirection in ["2>/dev/full", "2>&-", ">&- 2>&-"] {
        let script = format!(
            "exec {} run -v --key job --node {} -- sh -c 'exit 5' {redirection}",
            RLOCK,
            server.url()
        );
        let status = Command::new("sh")
            .args(["-c", &script])
            .status()
            .expect("sh");
        assert_eq!(status.code(), Some(5), "{redirection}");
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error_for_rlock_and_what_it_was_for_the_command() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let run = |node: &str| {
        let script = format!(
            "ulimit -f 0; {} run -v --key job --node {node} -- sh -c 'grep SigIgn /proc/self/status; exit 5' 2>{}",
            RLOCK,
            log.display()
        );
        Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("sh")
    };
    let output = run(&server.url());
    assert_eq!(output.status.code(), Some(5));
    // XFSZ is 25.
    let ignored = String::from_utf8_lossy(&output.stdout).into_owned();
    let set = ignored
        .rsplit('\t')
        .next()
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    assert!(set.is_some_and(|set| set & 1 << 24 == 0), "{ignored}");
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    // A lock on this machine cannot be stored.
    assert_eq!(
        run(&format!("local:{}", dir.path().display()))
            .status
            .code(),
        Some(78)
    );
}

/// Both have passwords in memory.
#[test]
fn rlock_and_its_guard_leave_no_core_dump_and_the_command_may() {
    let server = Server::start();
    let script = format!(
        "ulimit -c 1000; {RLOCK} run --key job --node {} -- sh -c 'for p in $PPID $(pgrep -P $PPID) $$; do cat /proc/$p/limits; done'",
        server.url()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh");
    let told = String::from_utf8_lossy(&output.stdout);
    let limits: Vec<&str> = told
        .lines()
        .filter_map(|line| {
            line.strip_prefix("Max core file size")?
                .split_whitespace()
                .next()
        })
        .collect();
    // rlock's, then those of its children, the guard and the command, and the command's again.
    let (ours, theirs) = limits.split_first().expect("rlock's");
    assert!(*ours == "0" && theirs.contains(&"0"), "{limits:?}");
    assert!(
        theirs.last().is_some_and(|limit| *limit != "0"),
        "{limits:?}"
    );
}

#[test]
fn a_stack_that_is_too_small_is_an_error() {
    for (limit, code) in [(256, 71), (512, 0)] {
        let script = format!("ulimit -s {limit}; exec {RLOCK} --version");
        let output = Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("sh");
        assert_eq!(output.status.code(), Some(code), "{limit}: {output:?}");
    }
}

#[test]
fn memory_that_is_short_for_the_command_leaves_no_lock() {
    let server = Server::start();
    // The limit rises until rlock can start, and further: at some limit it gets the lock and has no
    // room for more.
    for limit in (4000..24_000).step_by(100) {
        let script = format!(
            "ulimit -v {limit}; exec {} run --ttl 1m --key job --node {} -- true",
            RLOCK,
            server.url()
        );
        let status = Command::new("sh")
            .args(["-c", &script])
            .stderr(Stdio::null())
            .status()
            .expect("sh");
        // Where rlock dies of it, the guard releases the lock.
        eventually(
            &format!("{limit} KiB: {status:?}: the lock is free"),
            || server.cli(&["EXISTS", "job"]) == "0",
        );
    }
}

#[test]
fn a_nested_run_of_the_same_lock_runs_at_once_under_the_outer_one() {
    let server = Server::start();
    for node in [server.url(), "local:/tmp/rlock-suite-nested".to_owned()] {
        let inner = format!("{RLOCK} run --key job -- sh -c 'echo $RLOCK_TOKEN; exit 3'");
        let script = format!("echo $RLOCK_TOKEN; {inner}; echo $?; {inner}");
        let finished = rlock("job")
            .node(&node)
            .args(["-c", &script])
            .finish()
            .code(3)
            .silent();
        let [outer, first, code, second] = finished.stdout.as_slice() else {
            panic!("{:?}", finished.stdout)
        };
        assert!(
            outer == first && outer == second && code == "3",
            "{:?}",
            finished.stdout
        );

        // With another key, another prefix or wrong variables it is a run like any other.
        let tried = format!(
            "R='{RLOCK} run -n -q'
             $R -k other -- echo other; $R -k job --prefix p: -- echo prefix
             RLOCK_TOKEN=5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f; RLOCK_HELD=$RLOCK_TOKEN:7; $R -k job -- echo lie; echo $?"
        );
        rlock("job")
            .node(&node)
            .args(["-c", &tried])
            .finish()
            .code(0)
            .printed(&["other", "prefix", "75"]);
    }
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}
