//! `--log`: JSON for programs, and levels for systemd's journal.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Finished, RLOCK, Server, rlock, rlock_words};

fn lines(finished: &Finished) -> Vec<Value> {
    finished
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

#[test]
fn the_last_line_of_a_run_has_its_code_and_every_line_its_key() {
    let server = Server::start();
    for (script, code, exit_code, signal) in [
        ("exit 3", 3, json!(3), Value::Null),
        ("kill -9 $$", 137, Value::Null, json!("SIGKILL")),
    ] {
        let lines = lines(
            &rlock("job")
                .on(&server)
                .args(["--log", "json"])
                .sh(script)
                .code(code),
        );
        let last = lines.last().expect("a line");
        assert_eq!(
            (&last["event"], &last["code"]),
            (&json!("exit"), &json!(code)),
            "{lines:?}"
        );
        let ended = lines
            .iter()
            .find(|line| line["event"] == "ended")
            .expect("the end");
        assert_eq!(
            (&ended["exit_code"], &ended["signal"]),
            (&exit_code, &signal),
            "{ended}"
        );
        assert!(ended["run_ms"].is_u64(), "{ended}");
        assert!(lines[0]["rlock"]["host"].is_string(), "{lines:?}");
        for line in &lines {
            assert_eq!(line["rlock"], lines[0]["rlock"]);
            assert!(
                line["ts"].is_u64() && line["level"].is_string() && line["key"] == "job",
                "{line}"
            );
        }
    }
}

#[test]
fn a_failure_has_its_key_and_code_and_null_without_a_lock() {
    let server = Server::start();
    let _holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let busy = lines(
        &rlock("job")
            .on(&server)
            .args(["--log", "json", "-n"])
            .command(["true"])
            .code(75),
    );
    let busy = busy.last().expect("a line");
    assert_eq!(
        (&busy["key"], &busy["code"], &busy["holder"]["cmd"]),
        (&json!("job"), &json!(75), &json!("sh"))
    );
    assert!(
        busy["holder"]["since"].is_u64() && busy["holder"]["user"] == "tester",
        "{busy}"
    );
    let usage = lines(&rlock_words(["run", "--log", "json"]).finish().code(64));
    assert_eq!(
        (usage[0]["key"].clone(), usage[0]["code"].clone()),
        (Value::Null, json!(64))
    );
    assert!(usage[0].as_object().expect("an object").contains_key("key"));
}

/// Returns the lines of `rlock run WORDS -k job -- true` where `JOURNAL_STREAM` names its stderr,
/// as under systemd.
fn in_a_service(server: &Server, words: &str) -> String {
    let script = format!(
        "export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) && exec {RLOCK} run {words} -k job --node {} -- true",
        server.url()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("RLOCK_CONFIG", "none")
        .output()
        .expect("a shell");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{stderr}");
    stderr
}

#[test]
fn under_systemd_each_line_has_its_level() {
    let server = Server::start();
    let told = in_a_service(&server, "-v");
    assert!(told.starts_with("<6>rlock: job: acquired"), "{told}");
    assert!(
        told.lines().all(|line| line.starts_with("<6>rlock: ")),
        "{told}"
    );
    let told = in_a_service(&server, &format!("--note {}", "x".repeat(600)));
    assert!(
        told.starts_with("<4>rlock: job: --note is cut to the 512"),
        "{told}"
    );
    let note = "x".repeat(500);
    let told = in_a_service(&server, &format!("--lock-delay 1s --note {note}"));
    assert!(
        told.starts_with("<4>rlock: job: --note is cut to the 480"),
        "{told}"
    );
    let told = in_a_service(&server, "-v --log text");
    assert!(told.starts_with("rlock: job: acquired"), "{told}");
}

#[test]
fn a_stderr_that_was_redirected_gets_text() {
    let server = Server::start();
    let run = rlock("job")
        .on(&server)
        .env("JOURNAL_STREAM", "8:1234")
        .args(["-v"])
        .command(["true"])
        .code(0);
    run.mentions(&["rlock: job: released"]);
}
