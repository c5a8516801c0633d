//! Behind a pooler that lends a session for one transaction: no session is a client's own.

use std::time::Duration;

use crate::sql::{HOLD, contend, wait_for_waiters};
use crate::support::{Database, PgBouncer, Postgres, Rlock, eventually, rlock, rlock_words};

/// A server, and a pooler that has two of its sessions.
fn pooled(settings: &[&str]) -> Option<(Postgres, PgBouncer)> {
    let server = Postgres::start_with(settings)?;
    let pooler = PgBouncer::before(&server, 2)?;
    Some((server, pooler))
}

fn job(pooler: &PgBouncer) -> Rlock {
    rlock("job").node(&pooler.url())
}

#[test]
fn of_many_clients_behind_a_pooler_one_runs_at_a_time_and_fences_rise() {
    let Some((server, pooler)) = pooled(&[]) else {
        return;
    };
    contend(|| job(&pooler));
    assert_eq!(server.holder("job"), None);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'rlock'";
    assert_eq!(server.sql(deadlocks), "0");
}

#[test]
fn a_lock_behind_a_pooler_is_renewed_waited_for_broken_and_given_back() {
    let Some((server, pooler)) = pooled(&[]) else {
        return;
    };
    let patient = ["--ttl", "9s", "--node-timeout", "1500ms"];
    let mut held = job(&pooler).args(patient).hold(HOLD);
    job(&pooler).args(["-n"]).sh("true").code(75);
    let waiter = job(&pooler).args(["--", "echo", "ran"]).spawn();
    let until = "SELECT lock_until FROM shedlock WHERE name = 'job'";
    let before = server.sql(until);
    eventually("it is renewed", || server.sql(until) > before);
    // A lock of a session would be that of another client.
    wait_for_waiters(&server, 0);
    let advisory = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(server.sql(advisory), "0");
    drop(held.stdin.take());
    held.finish().code(0).silent();
    waiter.finish().code(0).printed(&["ran"]);
    let held = job(&pooler)
        .args(["--ttl", "5m"])
        .hold("echo ready; sleep 60");
    let broken = rlock_words(["break", "--yes", "job"]).node(&pooler.url());
    broken.finish().code(0);
    held.finish().code(79).within(Duration::from_secs(40));
    let seen = rlock_words(["doctor", "--try"]).node(&pooler.url());
    let seen = seen.finish().code(0).stdout.join("\n");
    assert!(seen.contains("behind a pooler"), "{seen}");
    assert!(!pooler.log().contains("ERROR"), "{}", pooler.log());
}

#[test]
fn a_waiter_that_polls_costs_one_statement_a_look() {
    let Some((server, pooler)) = pooled(&["shared_preload_libraries=pg_stat_statements"]) else {
        return;
    };
    server.sql("CREATE EXTENSION pg_stat_statements");
    let calls = |words: &str| -> u64 {
        let calls = server.sql(&format!(
            "SELECT COALESCE(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '{words}'"
        ));
        calls.parse().expect("a number")
    };
    let mut held = job(&pooler).args(["--ttl", "5m"]).hold(HOLD);
    let waiter = job(&pooler).args(["--", "echo", "ran"]).spawn();
    eventually("the waiter has looked often", || {
        calls("SELECT $1, locked_by, %FROM shedlock WHERE name = %") > 20
    });
    // The first attempt, and the one in which it learns that there is no line.
    let asked = calls("UPDATE shedlock SET locked_at = GREATEST(%");
    assert!(asked <= 4, "{asked}");
    drop(held.stdin.take());
    held.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
}
