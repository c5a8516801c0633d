//! Several locks on this machine alone.

use nix::sys::signal::Signal;

use super::{alone, end, run};
use crate::support::{alive, eventually, guard_of};

fn place() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    (dir, node)
}

#[test]
fn clients_that_name_their_locks_in_opposite_orders_all_finish() {
    let ((locks, node), dir) = (place(), tempfile::tempdir().expect("a directory"));
    let start = |number: usize| {
        let keys = if number.is_multiple_of(2) {
            ["a", "b"]
        } else {
            ["b", "a"]
        };
        run(&keys)
            .node(&node)
            .args(["-c", &alone(dir.path(), &["a", "b"])])
            .spawn()
    };
    end((0..12).map(start).collect());
    let left = std::fs::read_dir(locks.path())
        .expect("the locks")
        .flatten();
    assert_eq!(
        left.map(|entry| entry.file_name()).collect::<Vec<_>>(),
        [".fence"]
    );
}

#[test]
fn the_busy_one_is_named_and_the_others_are_released() {
    let (_locks, node) = place();
    let holder = run(&["b"]).node(&node).hold("echo ready; read x; true");
    run(&["a", "b", "c"])
        .node(&node)
        .args(["-n", "true"])
        .finish()
        .code(75)
        .said(&["rlock: b: busy: held by"]);
    run(&["a", "c"])
        .node(&node)
        .args(["-n", "true"])
        .finish()
        .code(0);
    holder.finish().code(0);
}

#[test]
fn the_loss_of_one_lock_kills_the_command() {
    let (locks, node) = place();
    let mut job = run(&["a", "b"])
        .node(&node)
        .args(["-c", "echo work $$; while :; do sleep 1; done"])
        .spawn();
    let work = job.wait_for_pid("work");
    std::fs::remove_file(locks.path().join("b.lock")).expect("a lock");
    job.finish().code(79).mentions(&["rlock: b: lost the lock"]);
    assert!(!alive(work));
}

#[test]
fn the_guard_keeps_all_locks_until_the_command_is_dead() {
    let (_locks, node) = place();
    let mut job = run(&["a", "b"])
        .node(&node)
        .hold("echo work $$; echo ready; read x; true");
    let [work] = job.seen_pids(&["work"])[..] else {
        panic!("a pid")
    };
    let guard = guard_of(job.pid());
    crate::support::signal(guard, Signal::SIGSTOP);
    // The stopped guard is replaced, and the next one has all descriptors.
    eventually("another guard stands in", || guard_of(job.pid()) != guard);
    job.signal(Signal::SIGKILL);
    for key in ["a", "b"] {
        let dead = format!(
            "case $(cut -d' ' -f3 /proc/{work}/stat 2>/dev/null) in Z|X|'') echo dead;; esac"
        );
        run(&[key])
            .node(&node)
            .args(["-c", &dead])
            .finish()
            .code(0)
            .printed(&["dead"]);
    }
    drop(job.stdin.take());
}
