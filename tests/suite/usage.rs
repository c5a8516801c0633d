//! Bad input: rlock prints one line that names the flag, exits with the right code, and asks no
//! node.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use testkit::program::install_script;

use crate::support::{Finished, RLOCK, Rlock, Server, rlock, rlock_words};

#[test]
fn bad_input_is_64_or_78_with_one_line_and_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener
        .set_nonblocking(true)
        .expect("a listener that does not wait");
    let node = format!("redis://{}", listener.local_addr().expect("its address"));
    let long = "k".repeat(1025);
    let ten = (1..=10)
        .map(|port| format!("redis://h:{port}"))
        .collect::<Vec<_>>()
        .join(",");
    for (code, flag, words) in [
        (64, "--key", &["--key", "", "true"][..]),
        (64, "--key", &["--key", &long, "true"]),
        (64, "--key", &["--key", "rlock:fence:{x}:x", "true"]),
        (64, "--key", &["true"]),
        (64, "CMD", &["-k", "job"]),
        (64, "name is empty", &["-k", "job", "--", ""]),
        (64, "--ttl", &["-k", "job", "--ttl", "30", "true"]),
        (64, "--ttl", &["-k", "job", "--ttl", "5M", "true"]),
        (64, "--ttl", &["-k", "job", "--ttl", "100ms", "true"]),
        (64, "--ttl", &["-k", "job", "--ttl", "0s", "true"]),
        (64, "--ttl", &["-k", "job", "--ttl", "10y", "true"]),
        (
            64,
            "--ttl",
            &["-k", "job", "--node-timeout", "500000000000y", "true"],
        ),
        (
            64,
            "--kill-after",
            &["-k", "job", "--kill-after", "5M", "true"],
        ),
        (
            64,
            "--ttl",
            &["-k", "job", "--ttl", "100ms", "--kill-after", "0", "true"],
        ),
        (64, "--wait", &["-k", "job", "--wait=-1", "true"]),
        (
            64,
            "--no-wait",
            &["-k", "job", "--wait", "3", "--no-wait", "true"],
        ),
        (64, "--quiet", &["-k", "job", "-q", "-v", "true"]),
        (64, "--busy-code", &["-k", "job", "-E", "256", "true"]),
        (64, "--drift", &["-k", "job", "--drift", "nan", "true"]),
        (64, "--signal", &["-k", "job", "--signal", "FOO", "true"]),
        (64, "--on-lost", &["-k", "job", "--on-lost", "cry", "true"]),
        (
            64,
            "--shared",
            &["-k", "job", "--shared", "--slots", "2", "true"],
        ),
        (
            64,
            "--node",
            &["-k", "job", "--node", "redis://a,local", "true"],
        ),
        (64, "--node", &["-k", "job", "--node", &ten, "true"]),
        (
            64,
            "--restart-guard",
            &["-k", "job", "--restart-guard", "30", "true"],
        ),
        (
            78,
            "--node",
            &[
                "-k",
                "job",
                "--node",
                "redis://a",
                "--node",
                "redis://b,redis://a",
                "true",
            ],
        ),
        (
            78,
            "--node",
            &["-k", "job", "--node", "redis://a,,redis://b", "true"],
        ),
        (
            78,
            "--node",
            &["-k", "job", "--node", "redis://h:port", "true"],
        ),
        (78, "--node", &["-k", "job", "--node", "http://h", "true"]),
    ] {
        rlock_words(["run"])
            .env("RLOCK_NODE", &node)
            .args(words)
            .finish()
            .code(code)
            .said(&[flag]);
    }
    assert!(listener.accept().is_err(), "a node was asked");
}

#[test]
fn a_note_that_is_too_long_is_cut_and_fails_nothing() {
    let server = Server::start();
    let look = "redis-cli -s ${RLOCK_NODE#redis+unix://} get job";
    let stored = |note: &OsStr| {
        let finished = rlock("job")
            .on(&server)
            .args([OsStr::new("--note"), note])
            .sh(look)
            .code(0);
        let value = finished.stdout[0]
            .split_once(' ')
            .expect("details")
            .1
            .to_owned();
        let details: serde_json::Value = serde_json::from_str(&value).expect(&value);
        (
            details["note"].as_str().expect("a note").to_owned(),
            finished,
        )
    };
    let (note, finished) = stored(OsStr::new("as it is"));
    assert_eq!(note, "as it is");
    finished.silent();
    let (note, finished) = stored(OsStr::new(&"größe\n".repeat(500)));
    assert!(
        note.starts_with("größe\ngröße") && note.ends_with('…'),
        "{note}"
    );
    assert!(
        serde_json::to_string(&note).expect("text").len() <= 514,
        "{note}"
    );
    finished.said(&["job", "--note", "512 bytes"]);
    let (note, finished) = stored(OsStr::from_bytes(b"gr\xf6\xdfe"));
    assert_eq!(note, "gr\u{fffd}\u{fffd}e");
    finished.silent();
    rlock("job")
        .on(&server)
        .args(["-q", "--note", &"n".repeat(513)])
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_password_in_the_wrong_place_is_not_shown() {
    let server = Server::start();
    let url = "redis://user:hunter2@127.0.0.1:1";
    let hides = |finished: Finished, code: i32, words: &[&str]| {
        let finished = finished.code(code).said(words);
        for secret in ["hunter2", "12345", "678", "sesame"] {
            assert!(!finished.stderr.contains(secret), "{}", finished.stderr);
        }
    };
    hides(
        rlock_words(["doctor", url]).finish(),
        64,
        &["redis://***@127.0.0.1:1"],
    );
    hides(
        rlock_words(["run", "-k", "job", "--tll", "redis://:hun'ter2 sesame@h"]).finish(),
        64,
        &["--tll"],
    );
    hides(
        rlock_words(["acquire", "-k", "job", url]).finish(),
        64,
        &["redis://***@"],
    );
    hides(
        rlock_words(["run", "-k", "job", "--ttl", url, "true"]).finish(),
        64,
        &["--ttl", "redis://***@"],
    );
    hides(
        rlock_words(["inspect", url]).finish(),
        64,
        &["redis://***@", "--node"],
    );
    hides(
        rlock_words(["break", url]).finish(),
        64,
        &["redis://***@", "--node"],
    );
    hides(
        rlock("job").on(&server).args(["-n", url, "true"]).finish(),
        127,
        &["redis://***@127.0.0.1:1", "not found"],
    );
    for node in [
        "redis://user:12345678",
        "redis://:12345,678@h",
        "redis://user:12345,sesame,678@h",
        "redis://user:12345,sesame@h,redis://i",
    ] {
        hides(rlock("job").node(node).command(["true"]), 78, &["--node"]);
    }
}

#[test]
fn an_address_that_was_taken_for_the_command_is_stored_without_its_password() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let command = dir.path().join("redis:/user:hunter2@h");
    std::fs::create_dir(dir.path().join("redis:")).expect("a directory");
    let script = "#!/bin/sh\nredis-cli -s ${RLOCK_NODE#redis+unix://} get job\n";
    install_script(script, &command).expect("a script");
    let job = rlock("job").on(&server).with(|command| {
        command.current_dir(dir.path());
    });
    let finished = job.command(["redis://user:hunter2@h"]).code(0).silent();
    assert!(
        finished.stdout[0].contains("\"cmd\":\"***@h\""),
        "{:?}",
        finished.stdout
    );
}

#[test]
fn a_schedule_that_does_not_fit_says_what_would() {
    let error = rlock("job")
        .args(["--ttl", "100ms"])
        .command(["true"])
        .code(64)
        .stderr;
    let suggestion = error
        .split("give --ttl ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect(&error)
        .to_owned();
    rlock("job")
        .node("local:/tmp/rlock-suite-usage")
        .args(["--ttl", &suggestion])
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_flag_beats_its_variable_and_the_variable_of_its_opposite() {
    let dir = tempfile::tempdir().expect("a directory");
    let local = format!("local:{}", dir.path().display());
    let base = || {
        rlock("job")
            .env("RLOCK_NODE", "redis://127.0.0.1:1")
            .node(&local)
    };
    base()
        .env("RLOCK_TTL", "1ms")
        .args(["--ttl", "10s"])
        .sh("echo $RLOCK_TTL")
        .code(0)
        .printed(&["10s"]);
    base()
        .env("RLOCK_TTL", "")
        .sh("echo $RLOCK_TTL")
        .code(0)
        .printed(&[""]);
    base()
        .env("RLOCK_TTL", "1ms")
        .command(["true"])
        .code(64)
        .said(&["--ttl"]);
    base()
        .env("RLOCK_KEY", "other")
        .sh("echo $RLOCK_KEY")
        .code(0)
        .printed(&["job"]);

    let _holder = rlock("job")
        .node(&local)
        .stdin(std::process::Stdio::piped())
        .hold("echo ready; read line; true");
    for yes in ["1", "true", "yes"] {
        base().env("RLOCK_NO_WAIT", yes).command(["true"]).code(75);
    }
    base()
        .env("RLOCK_WAIT", "1h")
        .args(["-n"])
        .command(["true"])
        .code(75);
    let waited = base()
        .env("RLOCK_NO_WAIT", "yes")
        .args(["--wait", "0.4"])
        .command(["true"])
        .code(75);
    assert!(waited.took.as_millis() >= 400);
    base()
        .env("RLOCK_NO_WAIT", "no")
        .env("RLOCK_WAIT", "0")
        .env("RLOCK_BUSY_CODE", "3")
        .command(["true"])
        .code(3);
    base()
        .env("RLOCK_NO_WAIT", "maybe")
        .command(["true"])
        .code(64);
}

#[test]
fn help_names_every_flag_variable_and_exit_code_and_shows_no_value() {
    let help = rlock_words(["run", "--help"])
        .env("RLOCK_NOTE", "a secret note")
        .finish()
        .code(0)
        .silent();
    // Where a line ends depends on the words before.
    let text = help.stdout.join(" ");
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    for word in [
        "--key",
        "--password-file",
        "RLOCK_TTL",
        "RLOCK_PASSWORD",
        "REDISCLI_AUTH",
        "RLOCK_FENCE",
        "79",
        "128+n",
        "ps shows",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(!text.contains("a secret note"));
    let told = rlock_words(["--version"]).finish().code(0).stdout;
    let version = concat!("rlock ", env!("CARGO_PKG_VERSION"));
    // A release adds the commit and its date.
    let commit = told[0].strip_prefix(version).expect("the version");
    assert!(
        commit.is_empty() || commit.starts_with(" (") && commit.ends_with(')'),
        "{told:?}"
    );
}

#[test]
fn without_proc_nothing_is_run() {
    let script = format!(
        "mount -t tmpfs none /proc && {RLOCK} run --key job --node local:/tmp/rlock-suite-proc -- echo ran"
    );
    let output = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", &script])
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(output.stdout.is_empty() && said.contains("/proc"), "{said}");
}

/// A variable that sudo, cron or ssh drops is missed at once, and not after two hosts have had
/// separate locks for a year.
#[test]
fn output_that_cannot_be_written_is_74_and_a_lack_of_descriptors_71() {
    let sh = |script: &str| Rlock::of("sh", ["-c", &script.replace("rlock", RLOCK)]).finish();
    for words in [
        "config",
        "man",
        "completions bash",
        "doctor --node local",
        "inspect --node local j",
        "--help",
    ] {
        sh(&format!("rlock {words} >/dev/full"))
            .code(74)
            .said(&["cannot print"]);
    }
    sh("rlock config >&-").code(74).said(&["cannot print"]);
    // The guard, /proc, and rlock's own calls need descriptors, in this order.
    for limit in [5, 6, 8] {
        let run = sh(&format!(
            "ulimit -n {limit}; rlock run -k job --node redis://127.0.0.1:1 echo ran"
        ));
        run.code(71)
            .printed(&[])
            .said(&["os error 24", "ulimit -a"]);
    }
    // On `local` the directory, each of a lock's files, and the command's start.
    let dir = tempfile::tempdir().expect("a directory");
    let (path, mut refused) = (dir.path().display(), 0);
    for limit in 9.. {
        let run = sh(&format!(
            "ulimit -n {limit}; rlock run -s -k job --node local:{path} -- true"
        ));
        if run.exited_with(0) {
            break;
        }
        run.code(71).said(&["os error 24"]);
        refused += 1;
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn a_variable_that_rlock_does_not_know_is_told_by_doctor() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    let told = "unknown variable RLOCK_TLL: did you mean RLOCK_TTL?";
    rlock("job")
        .node(&node)
        .env("RLOCK_TLL", "5s")
        .command(["true"])
        .code(0)
        .silent();
    // What rlock sets for a command is known.
    let inside = rlock("job")
        .node(&node)
        .env("RLOCK_TTL", "5s")
        .sh(&format!("{RLOCK} doctor"))
        .code(0)
        .stdout;
    assert!(
        !inside.iter().any(|line| line.contains("unknown variable")),
        "{inside:?}"
    );
    let doctor = || rlock_words(["doctor"]).node(&node);
    let finished = doctor().env("RLOCK_TLL", "5s").finish().code(0);
    assert!(
        finished
            .stdout
            .iter()
            .any(|line| line.starts_with("note: ") && line.contains(told)),
        "{:?}",
        finished.stdout
    );
    assert!(
        !doctor()
            .finish()
            .code(0)
            .stdout
            .iter()
            .any(|line| line.contains("unknown variable"))
    );
}

#[test]
fn where_no_node_is_named_nothing_is_asked_and_the_line_names_what_to_give() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |words: &str, named: &[(&str, &str)]| {
        let mut command = std::process::Command::new(RLOCK);
        command.args(words.split(' ')).current_dir(dir.path());
        for name in [
            "RLOCK_NODE",
            "RLOCK_QUIET",
            "RLOCK_LOG",
            "RLOCK_PASSWORD",
            "REDISCLI_AUTH",
        ] {
            command.env_remove(name);
        }
        let output = command
            .env("RLOCK_CONFIG", "none")
            .envs(named.iter().copied())
            .output()
            .expect("rlock");
        assert!(output.stdout.is_empty(), "{words}: {output:?}");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let line = "rlock: no node is configured; name a server with --node, RLOCK_NODE or node in /etc/rlock/config.toml, \
                or local for a lock on this machine alone";
    let token = "--token 5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f";
    let of_token = ["renew", "release", "check"].map(|verb| format!("{verb} -k job {token}"));
    let others = [
        "run -nk job touch ran",
        "run -E 0 -nk job touch ran",
        "acquire -nk job",
        "break job -y",
        "inspect job",
    ];
    for words in others
        .into_iter()
        .chain(["inspect", "doctor"])
        .map(str::to_owned)
        .chain(of_token)
    {
        for named in [&[][..], &[("RLOCK_NODE", "")]] {
            assert_eq!(
                run(&words, named),
                (Some(78), format!("{line}\n")),
                "{words}"
            );
        }
        assert_eq!(
            run(&words, &[("RLOCK_QUIET", "1")]),
            (Some(78), format!("{line}\n")),
            "{words}"
        );
    }
    let (code, told) = run(
        "run -q -nk job touch ran",
        &[("RLOCK_NODES", "redis://redis1")],
    );
    let meant = format!("{line}; unknown variable RLOCK_NODES: did you mean RLOCK_NODE?\n");
    assert_eq!((code, told), (Some(78), meant));
    let (_, told) = run("run --log json -nk job touch ran", &[]);
    let told: serde_json::Value = serde_json::from_str(told.trim_end()).expect("one object");
    assert_eq!(told["code"], 78);
    assert!(!dir.path().join("ran").exists());
    // The command, and an rlock in it, get the node by its name.
    let nested = format!(
        "run -k job --node local:{} -- {RLOCK} run -k other true",
        dir.path().display()
    );
    assert_eq!(run(&nested, &[]), (Some(0), String::new()));
}
