//! The database's clock is set, or means another zone: no two commands run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sql::{Clock, HOLD, ShedLocked as _, job};
use crate::support::{Database, MariaDb, eventually, rlock, rlock_words};

#[test]
fn a_clock_that_is_set_back_or_a_little_ahead_costs_no_command() {
    let Some(server) = MariaDb::start_with_clock() else {
        return;
    };
    let mut held = job(&server).args(["--ttl", "30s"]).hold(HOLD);
    let holds = || {
        server
            .holder("job")
            .is_some_and(|told| told.starts_with("rlock held "))
    };
    for seconds in [-3600, 0, 5] {
        server.set_clock(seconds);
        assert!(holds(), "{seconds}");
        job(&server).args(["-n"]).sh("true").code(75);
    }
    drop(held.stdin.take());
    held.finish().code(0);
    job(&server).args(["-n"]).sh("true").code(0);
}

#[test]
fn a_lock_delay_covers_a_clock_that_is_set_ahead() {
    let Some(server) = MariaDb::start_with_clock() else {
        return;
    };
    let held = job(&server)
        .args(["--ttl", "12s", "--lock-delay", "5m"])
        .hold("echo ready; sleep 60");
    server.set_clock(60);
    assert!(!server.locks(Clock::Database), "rlock has it");
    drop(held);
}

#[test]
fn a_lock_that_another_client_takes_after_a_step_ends_its_command_within_seconds() {
    let Some(server) = MariaDb::start_with_clock() else {
        return;
    };
    let held = job(&server)
        .args(["--ttl", "30s"])
        .hold("echo ready; sleep 60");
    server.set_clock(60);
    eventually("ShedLock takes it, or rlock has renewed it", || {
        server.locks(Clock::Database)
            || server.sql("SELECT COUNT(*) FROM shedlock WHERE lock_until > UTC_TIMESTAMP(3)")
                == "1"
    });
    let begin = Instant::now();
    let told = server.holder("job").unwrap_or_default();
    if told == "host1" {
        held.finish().code(79);
        assert!(begin.elapsed() < Duration::from_secs(20));
    } else {
        assert!(told.starts_with("rlock held "), "{told}");
    }
}

/// Seconds from now until the spring night of 2027 in which 02:10 is no time in Berlin.
fn until_the_gap() -> i64 {
    // 2027-03-28 02:10:00, in UTC.
    let gap = 1_806_199_800;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time");
    gap - now.as_secs().cast_signed()
}

#[test]
fn a_time_of_day_that_spring_leaves_out_makes_a_lock_no_shorter() {
    let Some(server) = MariaDb::start_with_clock() else {
        return;
    };
    load_zone(&server);
    server.sql("ALTER TABLE shedlock MODIFY lock_until TIMESTAMP(3) NOT NULL, MODIFY locked_at TIMESTAMP(3) NOT NULL");
    server.sql("SET GLOBAL time_zone = 'Europe/Berlin'");
    server.set_clock(until_the_gap());
    let mut held = job(&server).hold(HOLD);
    job(&server).args(["-n"]).sh("true").code(75);
    drop(held.stdin.take());
    held.finish().code(0).silent();
    // What was to be its end is stored as 03:00.
    let runs = || {
        let run = job(&server).args(["-n"]).sh("echo ran");
        run.code(0).printed(&["ran"]);
    };
    runs();
    let held = job(&server).hold("echo ready; sleep 60");
    let broken = rlock_words(["break", "--yes", "--now", "job"]).node(&server.url());
    broken.finish().code(0);
    held.finish().code(79);
    runs();
    server.sql("UPDATE shedlock SET locked_by = 'host1', lock_until = '2030-01-01'");
    let broken = rlock_words(["break", "--yes", "--foreign", "job"]).node(&server.url());
    broken.finish().code(0);
    runs();
}

/// Loads the zone of Berlin into the server.
fn load_zone(server: &MariaDb) {
    let output = std::process::Command::new("mariadb-tzinfo-to-sql")
        .args(["/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"])
        .output()
        .expect("mariadb-tzinfo-to-sql");
    let statements = String::from_utf8(output.stdout).expect("statements");
    // Beside them it prints settings, which are MariaDB's own.
    let begin = statements.find("INSERT INTO time_zone ").expect("a zone");
    let end = statements.find("UNLOCK TABLES").expect("an end");
    server.sql(&format!("USE mysql; {}", &statements[begin..end]));
}

#[test]
fn timestamps_are_read_in_the_zone_of_the_other_clients() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    server.sql("ALTER TABLE shedlock MODIFY lock_until TIMESTAMP(3) NOT NULL, MODIFY locked_at TIMESTAMP(3) NOT NULL");
    // The zone of the server is that of its clients.
    let mut held = job(&server).hold(HOLD);
    assert!(!server.locks(Clock::Database), "rlock has it");
    drop(held.stdin.take());
    held.finish().code(0).silent();
    // Java hosts whose sessions have a zone of their own.
    let in_zone = |statements: &str| server.sql(&format!("SET time_zone = '+02:00'; {statements}"));
    let zone = format!("{}?time_zone=%2B02:00", server.url());
    let run = || rlock("job").node(&zone).args(["-n"]);
    in_zone(
        "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) + INTERVAL 1 MINUTE, locked_by = 'host1' WHERE name = 'job'",
    );
    run().sh("true").code(75).said(&["host1 (ShedLock"]);
    in_zone("UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = 'job'");
    let mut held = run().hold(HOLD);
    let free =
        "SELECT COUNT(*) FROM shedlock WHERE name = 'job' AND lock_until <= UTC_TIMESTAMP(3)";
    assert_eq!(in_zone(free), "0");
    drop(held.stdin.take());
    held.finish().code(0).silent();
    assert_eq!(in_zone(free), "1");
    let unknown = format!("{}?time_zone=Mars/Base", server.url());
    let refused = rlock("job").node(&unknown).sh("true").code(78);
    refused.said(&["1298", "mysql_tzinfo_to_sql"]);
}
