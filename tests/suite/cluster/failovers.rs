//! Failovers in a cluster: planned, after a crash, and of a primary that resumes.

use std::time::{Duration, Instant};

use super::{renewed, waiter, with_cluster};
use crate::contest::Contest;
use crate::support::{NODE_TIMEOUT, STEADY, eventually, rlock};

#[test]
fn a_planned_failover_disturbs_no_holder_and_each_waiter_keeps_its_place() {
    with_cluster(|cluster| {
        cluster.takes_for_dead_after(NODE_TIMEOUT);
        let (url, old) = (cluster.url(), cluster.owner("job"));
        let holder = rlock("job")
            .node(&url)
            .args(STEADY)
            .hold("echo ready; read line; true");
        let waiters = [1, 2].map(|number| waiter(&url, &cluster.servers[old], number));
        let new = cluster.fail_over(old);
        renewed(&cluster.servers[new]);
        let begin = Instant::now();
        holder.finish().code(0).silent();
        for (number, waiter) in waiters.into_iter().enumerate() {
            waiter
                .finish()
                .code(0)
                .printed(&[&(number + 1).to_string()]);
        }
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        assert_eq!(cluster.servers[new].cli(&["EXISTS", "job"]), "0");
    });
}

#[test]
fn a_holder_survives_the_crash_of_its_primary_and_a_waiter_follows() {
    with_cluster(|cluster| {
        cluster.takes_for_dead_after(NODE_TIMEOUT);
        let (url, old) = (cluster.url(), cluster.owner("job"));
        let holder = rlock("job")
            .node(&url)
            .args(["--ttl", "10s"])
            .hold("echo ready; read line; true");
        let waiter = waiter(&url, &cluster.servers[old], 1);
        let new = cluster.replica_of(old);
        cluster.in_step(old);
        cluster.servers[old].crash();
        cluster.taken_over(new);
        // The waiter extends keys there too, but not this one.
        let left = || {
            cluster.servers[new]
                .cli(&["PTTL", "job"])
                .parse()
                .unwrap_or(0)
        };
        let mut last: i64 = left();
        eventually("the holder renews there", || {
            let now = left();
            std::mem::replace(&mut last, now) < now
        });
        holder.finish().code(0).silent();
        waiter.finish().code(0).printed(&["1"]);
        assert_eq!(cluster.servers[new].cli(&["EXISTS", "job"]), "0");
        cluster.servers[old].come_back();
    });
}

#[test]
fn in_failovers_no_two_hold_the_lock() {
    with_cluster(|cluster| {
        cluster.takes_for_dead_after(NODE_TIMEOUT);
        let contest = Contest::new(cluster.url());
        contest.run(|| {
            let old = cluster.owner("job");
            let new = cluster.fail_over(old);
            contest.goes_on();
            cluster.settled();
            // This one resumes after it was replaced, and runs what it was sent meanwhile.
            cluster.servers[new].freeze();
            cluster.taken_over(old);
            contest.goes_on();
            cluster.servers[new].thaw();
            contest.goes_on();
            cluster.settled();
            cluster.in_step(old);
            cluster.servers[old].crash();
            cluster.taken_over(new);
            contest.goes_on();
            cluster.servers[old].come_back();
            contest.goes_on();
        });
        contest.is_fair();
    });
}
