//! Tables that would lie are refused, and those of other habits are not.

use crate::sql::{Clock, HOLD, ShedLocked as _, job};
use crate::support::{Database, MariaDb, rlock};

#[test]
fn a_table_that_would_lie_is_refused() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let alter = |what: &str| server.sql(&format!("ALTER TABLE shedlock {what}"));
    for (lies, why, mends) in [
        (
            "MODIFY lock_until TIMESTAMP NOT NULL",
            "the column lock_until is of type timestamp, which keeps no milliseconds; give it the type DATETIME(3) (ALTER TABLE",
            "MODIFY lock_until DATETIME(3) NOT NULL",
        ),
        (
            "MODIFY locked_by VARCHAR(100) NOT NULL",
            "the column locked_by has room for 100 characters",
            "MODIFY locked_by VARCHAR(255) NOT NULL",
        ),
        (
            "MODIFY locked_at TIMESTAMP(3) NOT NULL ON UPDATE CURRENT_TIMESTAMP(3)",
            "the column locked_at changes with each update",
            "MODIFY locked_at DATETIME(3) NOT NULL",
        ),
        (
            "ENGINE=MyISAM",
            "shedlock is of the engine MyISAM: a crash of the server may lose locks; give it InnoDB",
            "ENGINE=InnoDB",
        ),
        (
            "DROP PRIMARY KEY",
            "two rows may be one lock",
            "ADD UNIQUE KEY (name)",
        ),
        (
            "RENAME COLUMN locked_by TO holder",
            "has no column locked_by",
            "RENAME COLUMN holder TO locked_by",
        ),
    ] {
        alter(lies);
        job(&server).sh("true").code(78).said(&[why]);
        alter(mends);
        job(&server).sh("true").code(0).silent();
    }
    let columns = format!("{}?columns=name,lock_until,locked_at,holder", server.url());
    alter("RENAME COLUMN locked_by TO holder");
    rlock("job").node(&columns).sh("true").code(0).silent();
}

#[test]
fn a_log_of_statements_is_refused() {
    let Some(server) = MariaDb::start_with(&["log-bin", "binlog-format=STATEMENT"]) else {
        return;
    };
    let refused = job(&server).sh("true").code(78);
    refused.said(&["binlog_format is STATEMENT", "ROW or MIXED"]);
    server.sql("SET GLOBAL binlog_format = 'MIXED'");
    job(&server).sh("true").code(0).silent();
}

/// Older servers set the first TIMESTAMP of a table with each update that does not.
#[test]
fn an_end_that_each_update_sets_is_set_by_each_of_rlocks() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    server.sql("ALTER TABLE shedlock MODIFY lock_until TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)");
    let held = job(&server)
        .args(["--ttl", "5m"])
        .hold("echo ready; sleep 60");
    let broken = crate::support::rlock_words(["break", "--yes", "job"]);
    broken.node(&server.url()).finish().code(0);
    held.finish().code(79);
}

#[test]
fn names_that_the_collation_takes_for_one_are_one_lock() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let run = |key: &str| rlock(key).node(&server.url());
    let mut held = run("job").hold(HOLD);
    for other in ["Job", "JOB"] {
        run(other).args(["-n"]).sh("true").code(75);
    }
    drop(held.stdin.take());
    held.finish().code(0).silent();
    run("JOB").args(["-n"]).sh("true").code(0).silent();
    // One run would wait for itself.
    let both = run("Job").args(["-k", "job"]).sh("true").code(78);
    both.said(&["the database takes the two names for one"]);
    server.sql("ALTER TABLE shedlock MODIFY name VARCHAR(64) COLLATE utf8mb4_bin NOT NULL");
    run("Job").args(["-k", "job"]).sh("true").code(0).silent();
}

#[test]
fn a_record_and_a_lock_of_one_name_leave_each_other_alone() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let run = |key: &str| rlock(key).node(&server.url());
    run("job")
        .args(["--once=1h"])
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
    for record in ["Rlock last job", "RLÓCK once job"] {
        let refused = run(record).sh("true").code(78);
        refused.said(&["its row is the record of another lock"]);
    }
    run("job")
        .args(["--once=1h"])
        .sh("echo ran")
        .code(0)
        .printed(&[]);
    // The lock came first.
    let held = run("Rlock last new").hold("echo ready; sleep 60");
    run("new").sh("true").code(0);
    run("rLOCK last new").args(["-n"]).sh("true").code(75);
    drop(held);
}

#[test]
fn a_table_in_latin1_takes_the_names_that_it_can_write() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    server.sql("ALTER TABLE shedlock CONVERT TO CHARACTER SET latin1");
    let run = |key: &str| rlock(key).node(&server.url()).args(["--note", "🔒"]);
    let _held = run("jüb").hold(HOLD);
    run("jüb").args(["-n"]).sh("true").code(75);
    run("jöb").args(["-n"]).sh("true").code(0);
    let refused = run("замок").sh("true").code(78);
    let error = if MariaDb::is_mysql() { "3854" } else { "1267" };
    refused.said(&[error, "CHARACTER SET utf8mb4"]);
    assert!(server.locks(Clock::Database));
}

#[test]
fn a_table_may_be_in_another_schema() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    server.sql("CREATE DATABASE app; RENAME TABLE shedlock TO app.locks; GRANT SELECT, INSERT, UPDATE ON app.locks TO rlock@'%'");
    let schema = format!("{}?table=app.locks", server.url());
    // A user needs a right in the database of its address.
    server.sql("GRANT SELECT ON rlock.* TO rlock@'%'");
    let run = || rlock("job").node(&schema).args(["--once", "1h"]);
    run().sh("echo ran").code(0).printed(&["ran"]);
    run().sh("echo ran").code(0).printed(&[]);
}
