//! Names of users, commands and waiters, as other clients see them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Server, eventually, rlock, rlock_words};

const QUEUE: &str = "rlock:queue:{job}:job";

/// Returns the lock as `inspect --json` shows it.
fn lock(server: &Server) -> Value {
    let seen = rlock_words(["inspect", "--json", "job"])
        .on(server)
        .finish()
        .code(0);
    serde_json::from_str::<Vec<Value>>(&seen.stdout.join("\n"))
        .expect("an array")
        .remove(0)
}

#[test]
fn a_command_is_shown_by_its_file_name_or_by_the_name_that_was_given() {
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("nightly.sh");
    std::fs::write(&script, "#!/bin/sh\necho ready; read line; true").expect("a script");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("an executable");
    let script = script.to_str().expect("a path");
    let name_of = |words: &[&str]| {
        let mut job = rlock_words(["run", "-k", "job"])
            .on(&server)
            .args(words)
            .with(|command| {
                command.stdin(std::process::Stdio::piped());
            });
        job = job.env("TOKEN", "hunter2");
        let mut running = job.spawn();
        running.wait_for("ready");
        let cmd = lock(&server)["holder"]["cmd"]
            .as_str()
            .expect("a name")
            .to_owned();
        running.finish().code(0);
        cmd
    };
    assert_eq!(name_of(&["--", script, "hunter2"]), "nightly.sh");
    assert_eq!(name_of(&["--", "sh", script]), "sh");
    assert_eq!(name_of(&["-c", "echo ready; read line; true"]), "echo");
    assert_eq!(
        name_of(&["-c", "A=hunter2 echo ready; read line; true"]),
        "A=…"
    );
    assert_eq!(
        name_of(&["--name", "billing run", "--", "sh", script]),
        "billing run"
    );
}

#[test]
fn a_user_without_variables_has_the_name_in_the_file_of_users() {
    let server = Server::start();
    let uid = nix::unistd::Uid::effective().to_string();
    let users = std::fs::read_to_string("/etc/passwd").expect("the file of users");
    let line = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid.as_str()));
    let name = line.expect("a user of this number")[0];
    let _job = rlock("job")
        .on(&server)
        .env("LOGNAME", "")
        .env("USER", "")
        .hold("echo ready; read line; true");
    assert_eq!(lock(&server)["holder"]["user"], name);
}

#[test]
fn a_waiter_is_shown_with_its_user_and_note() {
    let server = Server::start();
    let _holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let note = format!("https://ci/job/7\tline {}", "x".repeat(90));
    let waiter = rlock("job")
        .on(&server)
        .args(["--note", &note, "--", "true"])
        .spawn();
    eventually("it stands in line", || server.cli(&["ZCARD", QUEUE]) == "1");
    let told = &lock(&server)["waiters"][0];
    assert_eq!(told["user"], "tester");
    let cut = told["note"].as_str().expect("a note");
    assert!(
        cut.starts_with("https://ci/job/7 line xxx") && cut.ends_with('…') && cut.len() <= 64,
        "{cut}"
    );
    let table = rlock_words(["inspect", "job"])
        .on(&server)
        .finish()
        .code(0)
        .stdout;
    let line = table.last().expect("a line");
    assert!(
        line.starts_with("  1. tester@") && line.contains(&format!("pid {}, for ", waiter.pid())),
        "{line}"
    );
    assert!(line.ends_with(&format!("({cut})")), "{line}");
}

#[test]
fn an_entry_without_user_and_note_is_still_a_waiter() {
    let server = Server::start();
    let _holder = rlock("job").on(&server).hold("echo ready; read line; true");
    server.cli(&[
        "ZADD",
        QUEUE,
        "5",
        "6c0f4a5e-9d0f-4c5b-8e86-1f0c7a4f3c2d web7 11 1795270471061",
    ]);
    let told = &lock(&server)["waiters"][0];
    assert_eq!(
        (&told["host"], &told["user"], &told["note"]),
        (&"web7".into(), &Value::Null, &Value::Null)
    );
}
