//! Slots that are moved by hand, step by step, and locks that are held, waited for and released
//! meanwhile.

use std::time::{Duration, Instant};

use super::{renewed, waiter, with_cluster};
use crate::contest::Contest;
use crate::support::{Rlock, Running, STEADY, Server, eventually, rlock, rlock_words};

/// The script of a holder that ends when its stdin does.
const UNTIL_TOLD: &str = "echo ready; read line; true";

#[test]
fn a_lock_is_renewed_released_and_handed_over_in_each_state_of_a_slot_that_is_moved() {
    with_cluster(|cluster| {
        let (url, from) = (cluster.url(), cluster.owner("{job}"));
        let fence = |key: &str| format!("rlock:fence:{{job}}:{key}");
        let job = |key: &str| rlock(key).node(&url).args(STEADY);
        let keys = ["{job}1", "{job}2", "{job}3", "{job}4", "{job}5"];
        let mut holders = keys.map(|key| job(key).hold(UNTIL_TOLD)).into_iter();
        let waiters = keys.map(|key| (key, job(key).args(["--", "echo", "got it"]).spawn()));
        for key in keys {
            let queue = format!("rlock:queue:{{job}}:{key}");
            eventually("the waiter stands in line", || {
                cluster.servers[from].cli(&["ZCARD", &queue]) == "1"
            });
        }
        let mut ends = || holders.next().expect("a holder").finish().code(0);
        let moved = cluster.move_slot("{job}", cluster.other_than(from));
        let exists = |key: &str| {
            moved
                .source()
                .cli(&["EVAL", "return redis.call('EXISTS', KEYS[1])", "1", key])
        };
        // 1. Nothing has moved. Keys that are missing are asked for at the target, which has none
        //    of the others.
        renewed(moved.source());
        ends();
        assert!(exists(keys[0]) != "1" && exists(keys[1]) == "1");
        let told = rlock("{job}new")
            .node(&url)
            .args(["--wait", "1", "-q"])
            .command(["true"])
            .code(69);
        told.said(&["the cluster is moving the lock's slot"]);
        rlock_words(["inspect", keys[1]])
            .node(&url)
            .finish()
            .code(69)
            .said(&["the cluster is moving the lock's slot"]);
        // 2. The locks have moved, their counters have not.
        keys[1..].iter().for_each(|key| moved.key(key));
        renewed(moved.target());
        ends();
        // 3. The counters have moved too.
        keys[2..].iter().for_each(|key| moved.key(&fence(key)));
        renewed(moved.target());
        ends();
        // 4. All has moved, and only the move's end is missing.
        moved.rest();
        renewed(moved.target());
        ends();
        let target = moved.target();
        moved.end();
        renewed(target);
        ends();
        for (key, waiter) in waiters {
            waiter.finish().code(0).printed(&["got it"]);
            assert_eq!(target.cli(&["EXISTS", key]), "0", "{key}");
        }
        rlock("{job}new")
            .node(&url)
            .args(["-n"])
            .command(["true"])
            .code(0)
            .silent();
    });
}

/// Number of requests that were refused because their keys are at two servers.
fn times_refused(server: &Server) -> u64 {
    let told = server.cli(&["INFO", "errorstats"]);
    let count = told
        .lines()
        .find_map(|line| line.trim_end().strip_prefix("errorstat_TRYAGAIN:count="));
    count.map_or(0, |count| count.parse().expect("a number"))
}

#[test]
fn readers_and_slots_are_held_through_a_move() {
    with_cluster(|cluster| {
        let (url, from) = (cluster.url(), cluster.owner("{job}"));
        // While a move lasts no longer than some seconds, no renewal is late enough to be told of.
        let time = ["--ttl", "12s", "--node-timeout", "2s"];
        let hold = |job: Rlock| job.node(&url).args(time).hold(UNTIL_TOLD);
        let reader = || hold(rlock("{job}readers").args(["--shared"]));
        let slot = || hold(rlock("{job}slots").args(["--slots", "2"]));
        let holders: [Running; 4] = [reader(), reader(), slot(), slot()];
        let moved = cluster.move_slot("{job}", cluster.other_than(from));
        // The markers are at the target, the members are not: neither server has all that a renewal
        // needs.
        for key in ["{job}readers", "{job}slots"] {
            moved.key(key);
        }
        let refused = || {
            [moved.source(), moved.target()]
                .map(times_refused)
                .iter()
                .sum::<u64>()
        };
        let before = refused();
        eventually("each member's renewal is refused", || {
            refused() >= before + 4
        });
        moved.rest();
        let target = moved.target();
        moved.end();
        // Each of the two locks has two members, and each member's renewal extends both of the keys
        // beside the lock's.
        let before = target.calls("zadd");
        eventually("each member is renewed there", || {
            target.calls("zadd") >= before + 4
        });
        for holder in holders {
            holder.finish().code(0).silent();
        }
        assert_eq!(target.cli(&["EXISTS", "{job}readers", "{job}slots"]), "0");
    });
}

#[test]
fn a_holder_outlives_a_move_that_takes_longer_than_its_lease_and_is_released_during_it() {
    with_cluster(|cluster| {
        let (url, from) = (cluster.url(), cluster.owner("{job}"));
        let kinds: [(&str, &[&str]); 3] = [
            ("{job}exclusive", &[]),
            ("{job}readers", &["--shared"]),
            ("{job}slots", &["--slots", "2"]),
        ];
        let hold = |(key, kind)| {
            rlock(key)
                .node(&url)
                .args(STEADY)
                .args(kind)
                .hold(UNTIL_TOLD)
        };
        let holders = kinds.map(hold);
        let moved = cluster.move_slot("{job}", cluster.other_than(from));
        let stays = |server: &Server| {
            let begin = Instant::now();
            // That is longer than a lease.
            while begin.elapsed() < Duration::from_secs(8) {
                renewed(server);
            }
        };
        // Nothing has moved, and the keys of the queue are nowhere.
        stays(moved.source());
        moved.rest();
        // All has moved but for the end of the move.
        stays(moved.target());
        for holder in holders {
            holder.finish().code(0).silent();
        }
        let target = moved.target();
        moved.end();
        for (key, _) in kinds {
            assert_eq!(target.cli(&["EXISTS", key]), "0", "{key}");
        }
    });
}

#[test]
fn waiters_follow_a_slot_that_was_moved() {
    with_cluster(|cluster| {
        let (url, from) = (cluster.url(), cluster.owner("job"));
        let holder = rlock("job")
            .node(&url)
            .args(["--ttl", "10s"])
            .hold(UNTIL_TOLD);
        let waiters = [1, 2].map(|number| waiter(&url, &cluster.servers[from], number));
        let moved = cluster.move_slot("job", cluster.other_than(from));
        let target = moved.target();
        moved.rest();
        moved.end();
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
        assert_eq!(target.cli(&["EXISTS", "job", "rlock:queue:{job}:job"]), "0");
    });
}

#[test]
fn while_a_slot_goes_to_and_fro_no_two_hold_its_lock() {
    with_cluster(|cluster| {
        let contest = Contest::new(cluster.url());
        contest.run(|| {
            for _ in 0..4 {
                let moved = cluster.move_slot("job", cluster.other_than(cluster.owner("job")));
                moved.rest();
                moved.end();
                contest.goes_on();
            }
        });
        contest.is_fair();
    });
}
