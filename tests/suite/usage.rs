//! Bad input: one line that names the flag, the right code, and nothing sent to anybody.

use std::net::TcpListener;

use crate::support::{rlock, rlock_words};

#[test]
fn bad_input_is_64_or_78_with_one_line_and_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener that does not wait");
    let node = format!("redis://{}", listener.local_addr().expect("its address"));
    let long = "k".repeat(1025);
    let ten = (1..=10).map(|port| format!("redis://h:{port}")).collect::<Vec<_>>().join(",");
    let remark = "n".repeat(513);
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
        (64, "--ttl", &["-k", "job", "--node-timeout", "500000000000y", "true"]),
        (64, "--kill-after", &["-k", "job", "--kill-after", "1h", "true"]),
        (64, "--wait", &["-k", "job", "--wait=-1", "true"]),
        (64, "--no-wait", &["-k", "job", "--wait", "3", "--no-wait", "true"]),
        (64, "--busy-code", &["-k", "job", "-E", "256", "true"]),
        (64, "--drift", &["-k", "job", "--drift", "nan", "true"]),
        (64, "--signal", &["-k", "job", "--signal", "FOO", "true"]),
        (64, "--on-lost", &["-k", "job", "--on-lost", "cry", "true"]),
        (64, "--note", &["-k", "job", "--note", &remark, "true"]),
        (64, "--shared", &["-k", "job", "--shared", "true"]),
        (64, "--node", &["-k", "job", "--node", "redis://a,local", "true"]),
        (64, "--node", &["-k", "job", "--node", &ten, "true"]),
        (64, "--restart-guard", &["-k", "job", "--restart-guard", "30", "true"]),
        (78, "--node", &["-k", "job", "--node", "redis://a", "--node", "redis://b,redis://a", "true"]),
        (78, "--node", &["-k", "job", "--node", "redis://a,,redis://b", "true"]),
        (78, "--node", &["-k", "job", "--node", "redis://h:port", "true"]),
        (78, "--node", &["-k", "job", "--node", "http://h", "true"]),
    ] {
        rlock_words(["run"]).env("RLOCK_NODE", &node).args(words).finish().code(code).said(&[flag]);
    }
    assert!(listener.accept().is_err(), "nobody was to be asked");
}

#[test]
fn a_schedule_that_does_not_fit_says_what_would() {
    let error = rlock("job").args(["--ttl", "100ms"]).command(["true"]).code(64).stderr;
    let suggestion =
        error.split("give --ttl ").nth(1).and_then(|rest| rest.split(' ').next()).expect(&error).to_owned();
    rlock("job").node("local:/tmp/rlock-suite-usage").args(["--ttl", &suggestion]).command(["true"]).code(0).silent();
}

#[test]
fn a_flag_beats_its_variable_and_the_variable_of_its_opposite() {
    let dir = tempfile::tempdir().expect("a directory");
    let local = format!("local:{}", dir.path().display());
    let base = || rlock("job").env("RLOCK_NODE", "redis://127.0.0.1:1").node(&local);
    base().env("RLOCK_TTL", "1ms").args(["--ttl", "10s"]).sh("echo $RLOCK_TTL").code(0).printed(&["10s"]);
    base().env("RLOCK_TTL", "").sh("echo $RLOCK_TTL").code(0).printed(&["30s"]);
    base().env("RLOCK_TTL", "1ms").command(["true"]).code(64).said(&["--ttl"]);
    base().env("RLOCK_KEY", "other").sh("echo $RLOCK_KEY").code(0).printed(&["job"]);

    let _holder = rlock("job").node(&local).stdin(std::process::Stdio::piped()).hold("echo ready; read line; true");
    for yes in ["1", "true", "yes"] {
        base().env("RLOCK_NO_WAIT", yes).command(["true"]).code(75);
    }
    base().env("RLOCK_WAIT", "1h").args(["-n"]).command(["true"]).code(75);
    let waited = base().env("RLOCK_NO_WAIT", "yes").args(["--wait", "0.4"]).command(["true"]).code(75);
    assert!(waited.took.as_millis() >= 400);
    base().env("RLOCK_NO_WAIT", "no").env("RLOCK_WAIT", "0").env("RLOCK_BUSY_CODE", "3").command(["true"]).code(3);
    base().env("RLOCK_NO_WAIT", "maybe").command(["true"]).code(64);
}

#[test]
fn help_names_every_flag_variable_and_exit_code_and_shows_no_value() {
    let help = rlock_words(["run", "--help"]).env("RLOCK_NOTE", "a secret note").finish().code(0).silent();
    let text = help.stdout.join("\n");
    for word in [
        "--key",
        "--password-file",
        "RLOCK_TTL",
        "RLOCK_PASSWORD",
        "REDISCLI_AUTH",
        "RLOCK_FENCE",
        "79",
        "128+n",
        "stands in ps",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(!text.contains("a secret note"));
    rlock_words(["--version"]).finish().code(0).printed(&[concat!("rlock ", env!("CARGO_PKG_VERSION"))]);
}

#[test]
fn without_proc_nothing_is_run() {
    let script = format!(
        "mount -t tmpfs none /proc && {} run --key job --node local:/tmp/rlock-suite-proc -- echo ran",
        env!("CARGO_BIN_EXE_rlock")
    );
    let output = std::process::Command::new("unshare").args(["-rm", "sh", "-c", &script]).output().expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(output.stdout.is_empty() && said.contains("/proc"), "{said}");
}
