//! Locks in PostgreSQL: rows of ShedLock's table, with all that rlock does with a lock.

mod clocks;
mod failures;
mod logins;
mod pooler;
mod tables;

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use crate::sql::{Clock, HOLD, ShedLocked, job};
use crate::support::{Postgres, eventually, rlock, rlock_words};

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
fn a_lock_is_broken_within_seconds_and_its_record_says_by_whom() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut held = job(&server)
        .args(["--ttl", "5m"])
        .hold("echo ready; sleep 60");
    // From its first second on it looks.
    eventually("it looks at its row", || {
        let looks = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'rlock' AND query LIKE 'SELECT E''job'', %'";
        server.sql(looks) != "0"
    });
    assert!(held.is_running());
    let broken = rlock_words(["break", "--yes", "--reason", "it hung", "job"]);
    broken.node(&server.url()).finish().code(0);
    let lost = held.finish().code(79).within(Duration::from_secs(40));
    lost.mentions(&["broke the lock: it hung"]);
    let seen = rlock_words(["inspect", "job"])
        .node(&server.url())
        .finish()
        .code(1);
    assert!(
        seen.stdout.join("\n").contains("broken by tester@"),
        "{:?}",
        seen.stdout
    );
}

#[test]
fn inspect_lists_the_locks_and_tells_of_the_last_run() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let run = |key: &str| rlock(key).node(&server.url());
    let _held = run("app/it's \\ 100%").hold(HOLD);
    run("app/done").sh("exit 3").code(3);
    assert!(server.sql("SELECT count(*) FROM shedlock WHERE name LIKE 'rlock last %'") == "1");
    let listed = rlock_words(["inspect", "--prefix", "app/"]).node(&server.url());
    let listed = listed.finish().code(0).stdout.join("\n");
    assert!(
        listed.contains("it's \\ 100%") && !listed.contains("rlock last"),
        "{listed}"
    );
    let seen = rlock_words(["inspect", "app/done"]).node(&server.url());
    let seen = seen.finish().code(1).stdout.join("\n");
    assert!(seen.contains("exit 3"), "{seen}");
}

#[test]
fn what_a_table_cannot_do_is_refused_before_the_server_is_asked() {
    let nowhere = "postgresql://rlock@127.0.0.1:1/rlock";
    for (words, why) in [
        (
            &["--shared"][..],
            "--shared is not for databases: a row of ShedLock's table has one holder",
        ),
        (&["--slots", "2"], "--slots is not for databases: a row"),
        (
            &["--supersede"],
            "--supersede is not for databases: their lines only tell who is first",
        ),
        (
            &["--wait-replicas", "1"],
            "replication is the database's own setting",
        ),
        (&["--fsync"], "replication is the database's own setting"),
        (
            &["--restart-guard", "1m"],
            "a database keeps its locks over a restart",
        ),
        (&["--as", "redisson"], "--as redisson is for Redis"),
        (&["--node", "redis://127.0.0.1:1"], "is one node"),
    ] {
        let refused = rlock("job").node(nowhere).args(words).sh("true").code(64);
        refused.said(&[why]);
    }
    let long = "x".repeat(65);
    let refused = rlock(&long).node(nowhere).sh("true").code(64);
    refused.said(&["has 65 characters with its prefix; in a database it has at most 64"]);
    let refused = rlock(&long[..54])
        .node(nowhere)
        .args(["--once", "1h"])
        .sh("true")
        .code(64);
    refused.said(&["with --once it has at most 53"]);
    rlock("rlock once job").node(nowhere).sh("true").code(64);
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
    let line = told
        .lines()
        .find_map(|line| line.split_once("CREATE TABLE"))
        .map(|(_, rest)| format!("CREATE TABLE{rest}"));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    let mut psql = server.client().stdin(Stdio::piped()).spawn().expect("psql");
    let mut input = psql.stdin.take().expect("its input");
    input.write_all(line.as_bytes()).expect("a line");
    drop(input);
    assert!(psql.wait().expect("its end").success());
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
