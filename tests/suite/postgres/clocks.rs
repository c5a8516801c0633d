//! The database's clock, which alone counts: set forward, set back, and in zones whose clocks change.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::sql::{Clock, HOLD, ShedLocked as _, job};
use crate::support::{Database, Postgres, eventually, rlock};

/// Number of seconds by which the clock is set.
const STEP: i64 = 60;

/// A lease that is shorter than that.
const TTL: [&str; 2] = ["--ttl", "12s"];

const UNTIL: &str = "SELECT lock_until FROM shedlock WHERE name = 'job'";

#[test]
fn a_clock_that_is_set_forward_ends_leases_for_others_and_the_command_is_stopped() {
    let Some(server) = Postgres::start_with_clock() else {
        return;
    };
    let held = job(&server).args(TTL).hold("echo ready; sleep 60");
    // The holder looks each second, and would come first.
    held.signal(Signal::SIGSTOP);
    let mut steps = (1..).map(|number| number * STEP);
    eventually("another client has the lock", || {
        server.set_clock(steps.next().expect("a step"));
        server.locks(Clock::Database)
    });
    held.signal(Signal::SIGCONT);
    let begin = Instant::now();
    held.finish().code(79);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(server.holder("job").as_deref(), Some("host1"));
}

#[test]
fn a_lock_delay_covers_a_clock_that_is_set_forward() {
    let Some(server) = Postgres::start_with_clock() else {
        return;
    };
    let delay = ["--lock-delay", "60s"];
    let mut held = job(&server).args(TTL).args(delay).hold(HOLD);
    let before = server.sql(UNTIL);
    server.set_clock(STEP);
    assert!(!server.locks(Clock::Database), "rlock has it");
    eventually("it is renewed", || server.sql(UNTIL) > before);
    drop(held.stdin.take());
    held.finish().code(0).silent();
    job(&server).args(["-n"]).sh("true").code(0);
}

#[test]
fn a_clock_that_is_set_back_prolongs_leases_and_fences_still_rise() {
    let Some(server) = Postgres::start_with_clock() else {
        return;
    };
    let print = "echo ready $RLOCK_FENCE; read line; true";
    let mut held = job(&server).args(TTL).hold(print);
    let waiter = job(&server).args(["--", "sh", "-c", "echo $RLOCK_FENCE"]);
    let waiter = waiter.spawn();
    let fence = || {
        server.sql("SELECT (extract(epoch FROM locked_at) * 1000000)::bigint FROM shedlock WHERE name = 'job'")
    };
    let first: u64 = fence().parse().expect("a fence");
    server.set_clock(-STEP);
    assert!(!server.locks(Clock::Database), "rlock has it");
    let before = server.sql(UNTIL);
    eventually("it is renewed", || server.sql(UNTIL) != before);
    drop(held.stdin.take());
    held.finish().code(0).silent();
    let ran = waiter.finish().code(0);
    let next: u64 = ran.stdout[0].parse().expect("a fence");
    assert!(next > first, "{next} {first}");
}

#[test]
fn a_waiter_gets_its_lock_whatever_the_clock_did_meanwhile() {
    let Some(server) = Postgres::start_with_clock() else {
        return;
    };
    for step in [7200, 0] {
        let mut held = job(&server).args(["--ttl", "3h"]).hold(HOLD);
        let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
        crate::sql::wait_for_waiters(&server, 1);
        server.set_clock(step);
        drop(held.stdin.take());
        held.finish().code(0);
        waiter.finish().code(0).printed(&["ran"]);
    }
}

/// Returns the number of seconds from now to a time of UTC.
fn seconds_to(server: &Postgres, time: &str) -> i64 {
    let then = server.sql(&format!(
        "SELECT extract(epoch FROM timestamptz '{time} UTC')::bigint"
    ));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time");
    then.parse::<i64>().expect("a time") - now.as_secs().cast_signed()
}

/// In Berlin clocks go from 02:00 to 03:00 that night, and rlock's times are those of UTC.
#[test]
fn the_hour_that_a_zone_leaves_out_gives_no_lock_to_two_clients() {
    let Some(server) = Postgres::start_with_clock() else {
        return;
    };
    let set = |time: &str| server.set_clock(seconds_to(&server, &format!("2027-03-28 {time}")));
    set("02:10");
    let mut held = job(&server).hold(HOLD);
    assert!(!server.locks(Clock::Database), "rlock has it");
    drop(held.stdin.take());
    held.finish().code(0).silent();
    server.sql("DELETE FROM shedlock; ALTER TABLE shedlock ALTER COLUMN lock_until TYPE timestamptz, ALTER COLUMN locked_at TYPE timestamptz");
    let zone = format!("{}?time_zone=Europe/Berlin", server.url());
    let run = || rlock("job").node(&zone).args(["-n"]);
    let mut held = rlock("job").node(&zone).hold(HOLD);
    run().sh("true").code(75);
    drop(held.stdin.take());
    held.finish().code(0).silent();
    // What ended in that hour reads as a time of the next.
    set("03:00:30");
    run().sh("echo ran").code(75).printed(&[]);
    set("04:00:30");
    run().sh("echo ran").code(0).printed(&["ran"]);
    // A lease that passes the end of the hour reads as one that is over.
    server.sql("DELETE FROM shedlock");
    set("02:59:45");
    run().sh("echo ran").code(69).printed(&[]);
}

#[test]
fn in_the_hour_that_a_zone_has_twice_a_lock_has_one_holder() {
    let Some(server) = Postgres::start_with_clock() else {
        return;
    };
    server.sql("ALTER TABLE shedlock ALTER COLUMN lock_until TYPE timestamptz, ALTER COLUMN locked_at TYPE timestamptz");
    let zone = format!("{}?time_zone=Europe/Berlin", server.url());
    let run = || rlock("job").node(&zone);
    for time in ["01:59:55", "02:59:55"] {
        server.set_clock(seconds_to(&server, &format!("2027-10-31 {time}")));
        let mut held = run().args(["--ttl", "20s"]).hold(HOLD);
        let before = server.sql(UNTIL);
        eventually("it is renewed", || server.sql(UNTIL) != before);
        run().args(["-n"]).sh("true").code(75);
        drop(held.stdin.take());
        held.finish().code(0).silent();
    }
}
