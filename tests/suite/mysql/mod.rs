//! Locks in MariaDB: rows of ShedLock's table, with all that rlock does with a lock.

mod clocks;
mod failures;
mod logins;
mod tables;

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use crate::sql::{Clock, HOLD, ShedLocked, job};
use crate::support::{MariaDb, rlock, rlock_words};

crate::sql::database_suite!(MariaDb);

/// Returns the time of a clock after so many seconds, as statements have it.
fn after(clock: Clock, seconds: u64) -> String {
    match clock {
        Clock::Database => {
            format!("TIMESTAMPADD(MICROSECOND, {seconds}000000, UTC_TIMESTAMP(3))")
        }
        Clock::Own => {
            let millis = Clock::own_millis() + u128::from(seconds * 1000);
            format!("TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {millis}000 MICROSECOND")
        }
    }
}

/// The statements of ShedLock 7 (`MySqlServerTimeStatementsSource`, `SqlStatementsSource`).
impl ShedLocked for MariaDb {
    fn locks(&self, clock: Clock) -> bool {
        let (now, until) = (after(clock, 0), after(clock, 60));
        let inserted = self.sql(&format!(
            "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('job', {until}, {now}, 'host1'); SELECT ROW_COUNT()"
        ));
        // Where there is a row, the other half of it.
        let updated = || {
            self.sql(&format!(
                "UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = 'host1' \
                 WHERE name = 'job' AND lock_until <= {now}; SELECT ROW_COUNT()"
            ))
        };
        inserted == "1" || updated() == "1"
    }

    fn unlocks(&self, clock: Clock) {
        let now = after(clock, 0);
        let least = "TIMESTAMPADD(MICROSECOND, 0, locked_at)";
        self.sql(&format!(
            "UPDATE shedlock SET lock_until = IF ({least} > {now}, {least}, {now}) WHERE name = 'job' AND locked_by = 'host1'"
        ));
    }
}

#[test]
fn a_lock_is_broken_within_seconds_and_its_record_says_by_whom() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let held = job(&server)
        .args(["--ttl", "5m"])
        .hold("echo ready; sleep 60");
    let broken = rlock_words(["break", "--yes", "--reason", "it hung", "job"]);
    broken.node(&server.url()).finish().code(0);
    // It looks each second, and renews once in 100 s.
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
fn hostile_names_are_names_and_inspect_lists_them() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let run = |key: &str| rlock(key).node(&server.url());
    let names = [
        "app/it's \\ 100%",
        "app/`\"; DROP TABLE shedlock; -- ",
        "app/🔒\u{301}",
    ];
    let _held: Vec<_> = names.iter().map(|name| run(name).hold(HOLD)).collect();
    for name in names {
        run(name).args(["-n"]).sh("true").code(75);
    }
    run("app/done").sh("exit 3").code(3);
    assert!(server.sql("SELECT COUNT(*) FROM shedlock WHERE name LIKE 'rlock last %'") == "1");
    let listed = rlock_words(["inspect", "--prefix", "app/"]).node(&server.url());
    let listed = listed.finish().code(0).stdout.join("\n");
    assert!(
        listed.contains("it's \\ 100%")
            && listed.contains("DROP TABLE")
            && !listed.contains("rlock last"),
        "{listed}"
    );
    let seen = rlock_words(["inspect", "app/done"]).node(&server.url());
    let seen = seen.finish().code(1).stdout.join("\n");
    assert!(seen.contains("exit 3"), "{seen}");
}

#[test]
fn what_a_table_cannot_do_is_refused_before_the_server_is_asked() {
    let nowhere = "mysql://rlock@127.0.0.1:1/rlock";
    for (words, why) in [
        (
            &["--shared"][..],
            "--shared is not for databases: a row of ShedLock's table has one holder",
        ),
        (&["--slots", "2"], "--slots is not for databases: a row"),
        (&["--supersede"], "--supersede is not for databases"),
        (&["--fsync"], "replication is the database's own setting"),
        (&["--as", "redisson"], "--as redisson is for Redis"),
        (&["--node", "redis://127.0.0.1:1"], "is one node"),
    ] {
        let refused = rlock("job").node(nowhere).args(words).sh("true").code(64);
        refused.said(&[why]);
    }
    let long = "x".repeat(65);
    let refused = rlock(&long).node(nowhere).sh("true").code(64);
    refused.said(&["has 65 characters with its prefix; in a database it has at most 64"]);
    let bare = rlock("job").node("mysql://rlock@127.0.0.1").sh("true");
    bare.code(78)
        .said(&["the database is missing: write mysql://HOST/DATABASE"]);
}

#[test]
fn doctor_prints_the_table_and_the_rights_and_a_run_names_the_way_to_them() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let doctor = |words: &[&str]| {
        let words: Vec<&str> = ["doctor"].iter().chain(words).copied().collect();
        rlock_words(words).node(&server.url())
    };
    let fit = doctor(&["--try"]).finish().code(0).stdout.join("\n");
    assert!(fit.contains("direct") && fit.contains("no TLS"), "{fit}");
    assert!(fit.contains("differ in the case of a letter"), "{fit}");
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    server.sql("INSERT INTO shedlock VALUES('java', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, 'host1')");
    let told = doctor(&[]).finish().code(1).stdout.join("\n");
    assert!(
        told.contains("innodb_flush_log_at_trx_commit is 2") && told.contains("usingDbTime()"),
        "{told}"
    );
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1; DROP TABLE shedlock");
    let missing = job(&server).sh("true").code(78);
    missing.said(&["(1146); create it: rlock doctor --acl prints how"]);
    let told = doctor(&["--acl"]).finish().stdout.join("\n");
    let line = told
        .lines()
        .find_map(|line| line.split_once("CREATE TABLE"))
        .map(|(_, rest)| format!("CREATE TABLE{rest}"));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    let mut client = server
        .client()
        .stdin(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut input = client.stdin.take().expect("its input");
    input.write_all(line.as_bytes()).expect("a line");
    drop(input);
    assert!(client.wait().expect("its end").success());
    job(&server).sh("true").code(0).silent();
    let fit = doctor(&[]).finish().code(0).stdout.join("\n");
    assert!(!fit.contains("differ in the case of a letter"), "{fit}");
    server.sql("REVOKE INSERT ON shedlock FROM rlock@'%'");
    let refused = rlock("other").node(&server.url()).sh("true").code(77);
    refused.said(&["1142", "rlock doctor --acl"]);
    let told = doctor(&[]).finish().code(77).stdout.join("\n");
    assert!(told.contains("no right to INSERT"), "{told}");
}
