//! Locks in MariaDB: rows of ShedLock's table, with all that rlock does with a lock.

mod clocks;
mod failures;
mod logins;
mod tables;

use crate::sql::{Clock, ShedLocked, job, make_table};
use crate::support::{Database, MariaDb, rlock, rlock_words};

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
    const LOCKED: &'static str = "1205";
    const PORTS: &'static str = "SELECT SUBSTRING_INDEX(host, ':', -1) FROM information_schema.processlist WHERE user = 'rlock'";
    const NO_SESSION: &'static str = "(1226)";

    // `innodb_trx` is a copy, which is not renewed while a client reads it more often than each 0.1 s.
    fn waiting(&self) -> u64 {
        self.status("Innodb_row_lock_current_waits")
    }

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
fn an_address_names_the_database() {
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
        told.contains("innodb_flush_log_at_trx_commit is not 1") && told.contains("usingDbTime()"),
        "{told}"
    );
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1; DROP TABLE shedlock");
    let missing = job(&server).sh("true").code(78);
    missing.said(&["(1146); create it: rlock doctor --acl prints how"]);
    let told = doctor(&["--acl"]).finish().stdout.join("\n");
    make_table(&server, &told);
    job(&server).sh("true").code(0).silent();
    let fit = doctor(&[]).finish().code(0).stdout.join("\n");
    assert!(!fit.contains("differ in the case of a letter"), "{fit}");
    server.sql("REVOKE INSERT ON shedlock FROM rlock@'%'");
    let refused = rlock("other").node(&server.url()).sh("true").code(77);
    refused.said(&["1142", "rlock doctor --acl"]);
    let told = doctor(&[]).finish().code(77).stdout.join("\n");
    assert!(told.contains("no right to INSERT"), "{told}");
}
