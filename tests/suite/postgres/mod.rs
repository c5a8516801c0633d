//! Locks in PostgreSQL: rows of ShedLock's table, with all that rlock does with a lock.

mod clocks;
mod failures;
mod logins;
mod pooler;
mod tables;

use crate::sql::{Clock, ShedLocked, Transaction, job, make_table};
use crate::support::{Database, Postgres, eventually, rlock, rlock_words};

crate::sql::database_suite!(Postgres);

/// Returns the time of a clock as statements have it.
fn now(clock: Clock) -> String {
    match clock {
        Clock::Database => "timezone('utc', CURRENT_TIMESTAMP)".to_owned(),
        Clock::Own => {
            let millis = Clock::own_millis();
            format!("timestamp 'epoch' + interval '{millis} milliseconds'")
        }
    }
}

/// The statements of ShedLock 7 (`PostgresSqlServerTimeStatementsSource`, `SqlStatementsSource`).
impl ShedLocked for Postgres {
    const LOCKED: &'static str = "55P03";
    const PORTS: &'static str = "SELECT client_port FROM pg_stat_activity WHERE usename = 'rlock'";
    const NO_SESSION: &'static str = "(53300)";

    fn waiting(&self) -> u64 {
        let told = self.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'rlock' AND wait_event_type = 'Lock'");
        told.parse().expect("a number")
    }

    fn locks(&self, clock: Clock) -> bool {
        let now = now(clock);
        let taken = self.sql(&format!(
            "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('job', {now} + make_interval(secs => 60), {now}, 'host1') \
             ON CONFLICT (name) DO UPDATE SET lock_until = {now} + make_interval(secs => 60), locked_at = {now}, locked_by = 'host1' \
             WHERE shedlock.name = 'job' AND shedlock.lock_until <= {now} RETURNING 'taken'"
        ));
        taken == "taken"
    }

    fn unlocks(&self, clock: Clock) {
        let now = now(clock);
        self.sql(&format!(
            "UPDATE shedlock SET lock_until = {now} WHERE name = 'job' AND locked_by = 'host1'"
        ));
    }
}

#[test]
fn a_holder_looks_at_its_row_from_its_first_second_on() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut held = job(&server)
        .args(["--ttl", "5m"])
        .hold("echo ready; sleep 60");
    eventually("it looks at its row", || {
        let looks = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'rlock' AND query LIKE 'SELECT E''job'', %'";
        server.sql(looks) != "0"
    });
    assert!(held.is_running());
}

/// The release ends the lock at a time that is later than the begin of the look.
#[test]
fn a_look_that_waited_for_a_release_finds_the_lock_free() {
    let Some(server) = Postgres::start() else {
        return;
    };
    for words in [["inspect", "job"].as_slice(), &["break", "job", "--yes"]] {
        job(&server).sh("true").code(0);
        let mut blocking = Transaction::begin(&server);
        blocking.run("LOCK TABLE shedlock");
        eventually("the table is locked", || {
            let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'shedlock'::regclass AND mode = 'AccessExclusiveLock' AND granted";
            server.sql(locks) == "1"
        });
        let look = rlock_words(words)
            .node(&server.url())
            .args(["--node-timeout", "10s"])
            .spawn();
        eventually("it waits", || server.waiting() == 1);
        let later = server.sql(&format!("SELECT {}", Postgres::NOW));
        blocking.commit(&format!("UPDATE shedlock SET lock_until = '{later}'"));
        look.finish().code(1);
    }
}

#[test]
fn doctor_prints_the_table_and_the_rights_and_a_run_names_the_way_to_them() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let doctor = |words: &[&str]| {
        let words: Vec<&str> = ["doctor"].iter().chain(words).copied().collect();
        rlock_words(words).node(&server.url())
    };
    let fit = doctor(&["--try"]).finish().code(0).stdout.join("\n");
    assert!(fit.contains("direct") && fit.contains("no TLS"), "{fit}");
    server.sql("ALTER TABLE shedlock ALTER COLUMN lock_until TYPE timestamp(0)");
    job(&server)
        .sh("true")
        .code(78)
        .said(&["keeps no milliseconds"]);
    doctor(&[]).finish().code(78);
    server.sql("DROP TABLE shedlock");
    let missing =
        "relation \"shedlock\" does not exist (42P01); create it: rlock doctor --acl prints how";
    job(&server).sh("true").code(78).said(&[missing]);
    let told = doctor(&["--acl"]).finish().code(78).stdout.join("\n");
    make_table(&server, &told);
    job(&server).sh("true").code(0).silent();
    doctor(&[]).finish().code(0);
    server.sql("REVOKE INSERT ON shedlock FROM rlock");
    job(&server).sh("true").code(0).silent();
    let refused = rlock("other").node(&server.url()).sh("true").code(77);
    refused.said(&["42501", "rlock doctor --acl"]);
    let told = doctor(&[]).finish().code(77).stdout.join("\n");
    assert!(told.contains("no right to INSERT"), "{told}");
    server.sql("GRANT INSERT ON shedlock TO rlock; ALTER TABLE shedlock SET UNLOGGED");
    job(&server).sh("true").code(78).said(&["unlogged"]);
    doctor(&[]).finish().code(78);
    server.sql("ALTER TABLE shedlock SET LOGGED, DROP CONSTRAINT shedlock_pkey");
    job(&server)
        .sh("true")
        .code(78)
        .said(&["two rows may be one lock"]);
    server.sql("CREATE UNIQUE INDEX ON shedlock(name)");
    server.sql("INSERT INTO shedlock VALUES('job', '2000-01-01', 'infinity', 'host1') ON CONFLICT (name) DO UPDATE SET locked_at = 'infinity'");
    job(&server)
        .sh("true")
        .code(78)
        .said(&["begins after the year 2112"]);
    rlock_words(["inspect", "job"])
        .node(&server.url())
        .finish()
        .code(1);
}
