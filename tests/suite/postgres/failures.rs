//! A server that dies, hangs, fails over or is slow: the command is dead before the lock can pass on.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::sql::{HOLD, TTL, forget_the_row, job, wait_for_waiters};
use crate::support::{Database, Postgres, eventually, rlock};

/// A release writes two rows, that of its record and the lock's, always in this order.
#[test]
fn a_transaction_that_wants_the_rows_in_another_order_keeps_no_lock() {
    let Some(server) = Postgres::start_with(&["deadlock_timeout=100ms"]) else {
        return;
    };
    job(&server).sh("true").code(0);
    let patient = ["--ttl", "5m", "--node-timeout", "20s"];
    let mut held = job(&server).args(patient).hold(HOLD);
    // Either of the two may be the one that the server picks.
    let mut psql = server
        .client()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql");
    let mut input = psql.stdin.take().expect("its input");
    let mut say = |words: &str| input.write_all(words.as_bytes()).expect("a statement");
    say("BEGIN; SELECT 1 FROM shedlock WHERE name = 'job' FOR UPDATE;\n");
    eventually("the row is locked", || {
        server.sql("SELECT count(*) FROM (SELECT 1 FROM shedlock WHERE name = 'job' FOR UPDATE SKIP LOCKED) free") == "0"
    });
    drop(held.stdin.take());
    eventually("the release waits for the row", || {
        server.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'rlock' AND wait_event_type = 'Lock'") != "0"
    });
    say("SELECT 1 FROM shedlock WHERE name = 'rlock last job' FOR UPDATE; COMMIT;\n");
    held.finish().code(0);
    drop(input);
    psql.wait().expect("its end");
    assert_eq!(server.holder("job"), None);
    job(&server).args(["-n"]).sh("true").code(0).silent();
}

#[test]
fn no_limit_of_the_server_on_statements_and_idle_transactions_costs_a_lock_or_a_place() {
    let Some(server) = Postgres::start() else {
        return;
    };
    for limit in ["statement_timeout", "lock_timeout"] {
        server.sql(&format!("ALTER ROLE rlock SET {limit} = '2s'"));
    }
    server.sql("ALTER ROLE rlock SET idle_in_transaction_session_timeout = '1ms'");
    let mut held = job(&server).args(TTL).hold(HOLD);
    let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
    wait_for_waiters(&server, 1);
    let row = "SELECT lock_until FROM shedlock WHERE name = 'job'";
    let before = server.sql(row);
    eventually("it is renewed", || server.sql(row) > before);
    let stands = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND now() - query_start > interval '3 seconds'";
    eventually("it stands in line", || server.sql(stands) == "1");
    drop(held.stdin.take());
    held.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
}

#[test]
fn a_server_without_a_connection_to_spare_has_no_vote() {
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql("ALTER ROLE rlock CONNECTION LIMIT 0");
    let refused = job(&server).args(["-n"]).sh("true").code(69);
    refused.mentions(&["53300"]);
    let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
    server.sql("ALTER ROLE rlock CONNECTION LIMIT -1");
    waiter.finish().code(0).printed(&["ran"]);
}

#[test]
fn a_lock_that_cannot_be_parked_costs_no_more_than_its_lease() {
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no parking'; END$$; \
         CREATE TRIGGER parks BEFORE UPDATE ON shedlock FOR EACH ROW WHEN (NEW.locked_by LIKE 'rlock park %') EXECUTE FUNCTION refuse()",
    );
    let run = job(&server).args(["--ttl", "10m", "--hold-at-least", "1h"]);
    let ended = run.sh("true").code(0).within(Duration::from_secs(30));
    ended.said(&["release not confirmed", "no parking"]);
    assert!(server.holder("job").is_some(), "until the lease is over");
}

#[test]
fn a_signal_ends_a_release_that_is_repeated() {
    let Some(mut server) = Postgres::start() else {
        return;
    };
    let run = job(&server).args(["-v", "--ttl", "10m", "--hold-at-least", "1h"]);
    let mut held = run.hold(HOLD);
    server.kill();
    drop(held.stdin.take());
    held.wait_until_told("giving the lock back");
    held.signal(Signal::SIGTERM);
    let ended = held.finish().code(0).within(Duration::from_secs(30));
    ended.mentions(&["release not confirmed"]);
}

/// The standby that confirms commits is away. The row stays locked, so that no other commit begins.
#[test]
fn commits_that_hang_do_not_use_up_the_connections() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let confirmed_by = |standby: &str| {
        server.sql(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{standby}'"
        ));
        server.sql("SELECT pg_reload_conf()");
    };
    job(&server).sh("true").code(0);
    confirmed_by("missing");
    let run = job(&server).args(TTL).args(["-v", "--", "echo", "ran"]);
    let mut waiter = run.spawn();
    for _ in 0..3 {
        waiter.wait_until_told("canceling statement due to lock timeout (55P03)");
        let sessions = server.sql(Postgres::SESSIONS);
        assert!(matches!(&*sessions, "1" | "2" | "3"), "{sessions}");
    }
    confirmed_by("");
    waiter.finish().code(0).printed(&["ran"]);
}

#[test]
fn a_session_that_the_server_ends_is_begun_anew() {
    let Some(server) = Postgres::start_with(&["idle_session_timeout=700ms"]) else {
        return;
    };
    let mut held = job(&server).args(TTL).hold(HOLD);
    let before = server.sql("SELECT lock_until FROM shedlock WHERE name = 'job'");
    eventually("it is renewed", || {
        let sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rlock' AND random() < 0.2";
        server.sql(sessions);
        server.sql("SELECT lock_until FROM shedlock WHERE name = 'job'") > before
    });
    drop(held.stdin.take());
    held.finish().code(0);
}

#[test]
fn a_failover_costs_a_command_nothing_if_the_standby_has_the_row() {
    let Some(mut primary) = Postgres::start() else {
        return;
    };
    let standby = Postgres::standby(&primary, &[]);
    primary.wait_for_standby();
    let both = format!(
        "postgresql://rlock@{},{}/rlock",
        standby.host(),
        primary.host()
    );
    // The standby is passed over.
    let run = || rlock("job").node(&both).args(["--ttl", "30s"]);
    let mut held = run().hold(HOLD);
    let row = "SELECT lock_until FROM shedlock WHERE name = 'job'";
    let before = primary.sql(row);
    primary.kill();
    standby.promote();
    eventually("it is renewed", || standby.sql(row) > before);
    drop(held.stdin.take());
    held.finish().code(0);
    assert_eq!(standby.holder("job"), None);
}

#[test]
fn a_failover_that_forgets_the_row_ends_the_command() {
    let Some(mut primary) = Postgres::start() else {
        return;
    };
    let standby = Postgres::standby(&primary, &["primary_conninfo=host=127.0.0.1 port=1"]);
    let both = format!(
        "postgresql://rlock@{},{}/rlock",
        primary.host(),
        standby.host()
    );
    let held = rlock("job")
        .node(&both)
        .args(["--ttl", "30s"])
        .hold("echo ready; sleep 60");
    primary.kill();
    standby.promote();
    held.finish().code(79).within(Duration::from_secs(40));
    rlock("job")
        .node(&both)
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
}

#[test]
fn a_failover_that_forgets_the_row_ends_the_command_although_another_has_the_lock() {
    for fail in [Postgres::kill, |server: &mut Postgres| server.freeze()] {
        let Some(primary) = Postgres::start() else {
            return;
        };
        let standby = Postgres::standby(&primary, &["primary_conninfo=host=127.0.0.1 port=1"]);
        forget_the_row(primary, &standby, fail, Postgres::promote);
    }
}

#[test]
fn a_server_that_takes_no_writes_is_none() {
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql("ALTER ROLE rlock SET default_transaction_read_only = on");
    let refused = job(&server).args(["-n"]).sh("true").code(69);
    refused.said(&["it takes no writes"]);
}

#[test]
fn columns_with_a_time_zone_are_read_in_the_zone_of_the_other_clients() {
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql("ALTER TABLE shedlock ALTER COLUMN lock_until TYPE timestamptz, ALTER COLUMN locked_at TYPE timestamptz");
    job(&server).sh("true").code(78).said(&["time_zone="]);
    // A JVM in Berlin: its sessions have the JVM's zone.
    server.sql(
        "SET TimeZone = 'Europe/Berlin'; INSERT INTO shedlock VALUES('job', timezone('utc', now()) + interval '1 minute', timezone('utc', now()), 'host1')",
    );
    let zone = format!("{}?time_zone=Europe/Berlin", server.url());
    let run = || rlock("job").node(&zone).args(["-n"]);
    run().sh("true").code(75).said(&["host1 (ShedLock"]);
    server.sql(
        "SET TimeZone = 'Europe/Berlin'; UPDATE shedlock SET lock_until = timezone('utc', now())",
    );
    let mut held = run().hold(HOLD);
    let free = "SET TimeZone = 'Europe/Berlin'; SELECT count(*) FROM shedlock WHERE name = 'job' AND lock_until <= timezone('utc', now())";
    assert_eq!(server.sql(free), "0");
    drop(held.stdin.take());
    held.finish().code(0).silent();
    assert_eq!(server.sql(free), "1");
}
