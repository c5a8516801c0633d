//! rlock inside a command whose lock is in etcd.

use super::is_clean;
use crate::support::{Etcd, RLOCK, alive, eventually, rlock};

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
    eventually("nothing is left", || is_clean(&etcd));
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
    eventually("the lock inside is given back", || is_clean(&etcd));
}
