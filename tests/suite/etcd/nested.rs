//! rlock inside a command whose lock is in etcd.

use super::leaves_nothing;
use crate::support::{Etcd, RLOCK, alive, eventually, rlock, rlock_words};

#[test]
fn a_run_inside_is_under_the_same_lock_and_takes_others_by_itself() {
    let Some(etcd) = Etcd::start(1) else { return };
    let inside = |key: &str| format!("{RLOCK} run -n -k {key} -- sh -c 'echo $RLOCK_TOKEN'");
    let script = format!("{}; {}; echo $RLOCK_TOKEN", inside("job"), inside("other"));
    let run = rlock("job").node(&etcd.url()).sh(&script).code(0).silent();
    let [same, other, own] = run.stdout.as_slice() else {
        panic!("{:?}", run.stdout)
    };
    assert!(same == own && other != own, "{:?}", run.stdout);
    leaves_nothing(&etcd);
}

#[test]
fn a_lock_that_is_lost_further_up_ends_the_command_inside_and_frees_its_own_lock() {
    let Some(etcd) = Etcd::start(1) else { return };
    let inside = "exec $0 run -k other -- sh -c 'echo work $$; sleep 60'";
    let mut job = rlock("job")
        .node(&etcd.url())
        .args(["--ttl", "5m", "--", "sh", "-c", inside, RLOCK])
        .spawn();
    let work = job.wait_for_pid("work");
    // From its first second on it listens.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    etcd.ctl(&["del", "--prefix", "job/"]);
    job.finish().code(79);
    assert!(!alive(work));
    eventually("the lock inside is given back", || {
        !etcd.keys().iter().any(|key| key.starts_with("other/"))
    });
}

#[test]
fn a_reader_inside_a_reader_waits_for_no_writer_and_a_writer_inside_is_refused() {
    let Some(etcd) = Etcd::start(1) else { return };
    let job = || rlock("job").node(&etcd.url()).args(["--ttl", "8s"]);
    for options in ["--ttl 8s -n", "--ttl 8s -w 5s"] {
        let inside =
            |kind: &str| format!("{RLOCK} run -k job {options} {kind} -- echo inner; echo $?");
        let script = format!("echo ready; read _; {}; {}", inside("-s"), inside("-x"));
        // The outer one is not the first reader.
        let mut other = job().args(["-s"]).hold("echo ready; read _");
        let outer = job().args(["-s"]).hold(&script);
        let writer = job().args(["--", "true"]).spawn();
        eventually("the writer waits", || {
            let seen = rlock_words(["inspect", "job"]).node(&etcd.url()).finish();
            seen.stdout.join("\n").contains(": 1 wait")
        });
        outer
            .finish()
            .code(0)
            .printed(&["ready", "inner", "0", "64"]);
        drop(other.stdin.take());
        other.finish();
        writer.finish().code(0);
        leaves_nothing(&etcd);
    }
}
