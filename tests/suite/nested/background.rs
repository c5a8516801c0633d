//! Nested runs that outlive the command: the lock passes on only when they have ended.

use super::{local, nested};
use crate::support::{STEADY, Server, alive, eventually, rlock};

/// Starts a nested run in the background, which does some work, and another client that wants the
/// lock. Then the outer command ends, and the order of what the two wrote is checked.
fn background(node: &str, start: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let [log, go] = ["log", "go"].map(|name| dir.path().join(name));
    let work = format!(
        "echo work $$; for i in $(seq 6000); do [ -e {} ] && break; sleep 0.01; done; echo work >> {}",
        go.display(),
        log.display()
    );
    let script = format!(
        "{}\necho outer $$; echo ready; read x; exit 5",
        start.replace("RUN", &nested("", &work))
    );
    let mut job = rlock("job")
        .node(node)
        .args(STEADY)
        .args(["-v"])
        .hold(&script);
    let outer = job.seen_pids(&["outer"])[0];
    // The work may have started before `ready`.
    eventually("the work runs", || !descendants_named(&work).is_empty());
    let next = rlock("job")
        .node(node)
        .args(STEADY)
        .args(["-v", "--", "sh", "-c"]);
    let mut next = next
        .args([format!("echo next >> {}", log.display())])
        .spawn();
    next.wait_until_told("waiting: held by");
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock until the nested rlock runs have ended");
    assert!(!alive(outer));
    // By now the first lease would be over.
    for _ in 0..if node.starts_with("local") { 0 } else { 3 } {
        job.wait_until_told("renewed for");
    }
    assert!(!log.exists(), "{:?}", std::fs::read_to_string(&log));
    std::fs::write(&go, "").expect("a file");
    next.finish().code(0);
    job.finish().code(5);
    assert_eq!(
        std::fs::read_to_string(&log).expect("a log"),
        "work\nnext\n"
    );
}

/// Returns the processes that run `script`.
fn descendants_named(script: &str) -> Vec<i32> {
    let is_it = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(2) == Some(script.as_bytes())
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_it)
        .collect()
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
