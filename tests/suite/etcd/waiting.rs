//! Waits that begin without a leader.

use crate::support::{Etcd, rlock};

#[test]
fn a_run_that_begins_without_a_quorum_gets_its_lock_when_that_is_back() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let leader = etcd.leader();
    let other = (leader + 1) % 3;
    etcd.kill(leader);
    etcd.kill(other);
    rlock("job")
        .node(&etcd.url())
        .args(["-n"])
        .sh("true")
        .code(69);
    let waits = ["--wait", "1m", "--", "echo", "ran"];
    let mut job = rlock("job").node(&etcd.url()).args(waits).spawn();
    job.wait_until_told("trying again");
    etcd.come_back(other);
    job.finish().code(0).printed(&["ran"]);
}
