//! `--log`: JSON for programs, and entries of systemd's journal.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use testkit::namespaces::unshare;

use crate::support::{Finished, RLOCK, Server, rlock, rlock_words};

fn lines(finished: &Finished) -> Vec<Value> {
    finished.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn the_last_line_of_a_run_has_its_code_and_every_line_its_key() {
    let server = Server::start();
    for (script, code, exit_code, signal) in
        [("exit 3", 3, json!(3), Value::Null), ("kill -9 $$", 137, Value::Null, json!("SIGKILL"))]
    {
        let lines = lines(&rlock("job").on(&server).args(["--log", "json"]).sh(script).code(code));
        let last = lines.last().expect("a line");
        assert_eq!((&last["event"], &last["code"]), (&json!("exit"), &json!(code)), "{lines:?}");
        let ended = lines.iter().find(|line| line["event"] == "ended").expect("the end");
        assert_eq!((&ended["exit_code"], &ended["signal"]), (&exit_code, &signal), "{ended}");
        assert!(ended["run_ms"].is_u64(), "{ended}");
        for line in &lines {
            assert!(line["ts"].is_u64() && line["level"].is_string() && line["key"] == "job", "{line}");
        }
    }
}

#[test]
fn a_failure_has_its_key_and_code_and_null_without_a_lock() {
    let server = Server::start();
    let _holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let busy = lines(&rlock("job").on(&server).args(["--log", "json", "-n"]).command(["true"]).code(75));
    let busy = busy.last().expect("a line");
    assert_eq!((&busy["key"], &busy["code"], &busy["holder"]["cmd"]), (&json!("job"), &json!(75), &json!("echo")));
    assert!(busy["holder"]["since"].is_u64() && busy["holder"]["user"] == "tester", "{busy}");
    let usage = lines(&rlock_words(["run", "--log", "json"]).finish().code(64));
    assert_eq!((usage[0]["key"].clone(), usage[0]["code"].clone()), (Value::Null, json!(64)));
    assert!(usage[0].as_object().expect("an object").contains_key("key"));
}

/// Runs `rlock run WORDS -k job -- true` where the journal's folder is `folder`, and returns its stderr. None if that is not possible
/// here.
fn with_journal(folder: &Path, words: &str) -> Option<String> {
    let lock = tempfile::tempdir().expect("a directory");
    let (folder, lock) = (folder.display(), lock.path().display());
    let script = format!(
        "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind {folder} /run/systemd/journal && \
         export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) && exec {RLOCK} run {words} -k job --node local:{lock} -- true"
    );
    let mut inside = unshare(&["-rm"])?;
    let output = inside.args(["sh", "-c", &script]).env("RLOCK_CONFIG", "none").output().expect("unshare");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{stderr}");
    Some(stderr)
}

#[test]
fn under_systemd_each_step_is_an_entry_with_fields() {
    let folder = tempfile::tempdir().expect("a directory");
    let journal = UnixDatagram::bind(folder.path().join("socket")).expect("a socket");
    let Some(stderr) = with_journal(folder.path(), "-v") else { return };
    assert_eq!(stderr, "");
    journal.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
    let mut entries = Vec::new();
    let mut buffer = [0; 4096];
    while entries.last().is_none_or(|last: &String| !last.contains("RLOCK_EVENT=exit\n")) {
        let length = journal.recv(&mut buffer).expect("an entry");
        entries.push(String::from_utf8(buffer[..length].to_vec()).expect("text"));
    }
    let acquired = &entries[0];
    assert!(acquired.starts_with("MESSAGE=job: acquired, fence "), "{acquired}");
    for field in ["PRIORITY=6", "SYSLOG_IDENTIFIER=rlock", "RLOCK_EVENT=acquired", "RLOCK_KEY=job"] {
        assert!(acquired.lines().any(|line| line == field), "{field}: {acquired}");
    }
    assert!(acquired.contains("\nMESSAGE_ID=") && acquired.contains("\nRLOCK_FENCE="), "{acquired}");
    assert!(entries.last().is_some_and(|last| last.contains("\nRLOCK_CODE=0\n")), "{entries:?}");
}

#[test]
fn without_a_journal_and_with_log_text_the_lines_are_on_stderr() {
    let folder = tempfile::tempdir().expect("a directory");
    for words in ["-v", "-v --log journal", "-v --log text"] {
        let Some(stderr) = with_journal(folder.path(), words) else { return };
        assert!(stderr.contains("rlock: job: acquired") && stderr.contains("rlock: job: released"), "{stderr}");
    }
}

#[test]
fn a_stderr_that_was_redirected_gets_text() {
    let server = Server::start();
    let run = rlock("job").on(&server).env("JOURNAL_STREAM", "8:1234").args(["-v"]).command(["true"]).code(0);
    run.mentions(&["rlock: job: released"]);
}
