//! Locks in PostgreSQL: rows of ShedLock's table, with all that rlock does with a lock.

mod clocks;
mod failures;
mod logins;
mod pooler;
mod tables;

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::support::{Postgres, Rlock, eventually, rlock, rlock_words, signal};

/// A command that holds the lock until its stdin ends.
const HOLD: &str = "echo ready; read line; true";

/// A command that ends at once if another one runs that has `$WITNESS` locked, and else appends its
/// name and its fence to `$ORDER`.
const ALONE: &str =
    r#"exec flock -n "$WITNESS" sh -c 'echo "$0 $RLOCK_FENCE" >>"$ORDER"; sleep 0.05' "$0""#;

/// The clock that a ShedLock goes by.
#[derive(Clone, Copy)]
enum Clock {
    /// The database's: `usingDbTime()`.
    Database,
    /// The JVM's, in UTC.
    Own,
}

impl Clock {
    /// Returns the time as statements have it.
    fn now(self) -> String {
        match self {
            Self::Database => "timezone('utc', CURRENT_TIMESTAMP)".to_owned(),
            Self::Own => {
                let since = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .expect("a time");
                format!(
                    "timestamp 'epoch' + interval '{} microseconds'",
                    since.as_micros()
                )
            }
        }
    }

    /// Takes the lock `job` as ShedLock does, for a minute. Returns whether it has it
    /// (`PostgresSqlServerTimeStatementsSource`, `SqlStatementsSource` of ShedLock 7).
    fn locks(self, server: &Postgres) -> bool {
        let now = self.now();
        let taken = server.sql(&format!(
            "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('job', {now} + make_interval(secs => 60), {now}, 'host1') \
             ON CONFLICT (name) DO UPDATE SET lock_until = {now} + make_interval(secs => 60), locked_at = {now}, locked_by = 'host1' \
             WHERE shedlock.name = 'job' AND shedlock.lock_until <= {now} RETURNING 'taken'"
        ));
        taken == "taken"
    }

    /// Gives it back as ShedLock does.
    fn unlocks(self, server: &Postgres) {
        let now = self.now();
        server.sql(&format!(
            "UPDATE shedlock SET lock_until = {now} WHERE name = 'job' AND locked_by = 'host1'"
        ));
    }
}

/// Returns rlock for `job` at `server`.
fn job(server: &Postgres) -> Rlock {
    rlock("job").node(&server.url())
}

/// Returns rlock for `job` at `server`, which tells the witness of `dir`.
fn witnessed(server: &Postgres, dir: &Path) -> Rlock {
    let path = |name| dir.join(name).to_str().expect("a name").to_owned();
    job(server)
        .env("WITNESS", &path("witness"))
        .env("ORDER", &path("order"))
}

/// Waits until so many waiters stand in the line.
fn wait_for_waiters(server: &Postgres, number: usize) {
    eventually("the line has its waiters", || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        server.sql(waiting) == number.to_string()
    });
}

/// Returns the names and the fences that commands have written.
fn order(dir: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(dir.join("order")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, fence)| (name.to_owned(), fence.parse().expect("a fence")))
        .collect()
}

#[test]
fn the_row_tells_who_has_the_lock_and_stays() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut held = job(&server)
        .args(["--note", "nightly", "--name", "backup.sh"])
        .hold(HOLD);
    let told = server.holder("job").expect("a holder");
    assert!(told.starts_with("rlock held "), "{told}");
    assert!(
        told.contains(" tester@") && told.ends_with(" backup.sh nightly"),
        "{told}"
    );
    let busy = job(&server).args(["-n"]).sh("true").code(75);
    busy.said(&["held by tester@", "running backup.sh (nightly)"]);
    drop(held.stdin.take());
    held.finish().code(0).silent();
    assert_eq!(server.holder("job"), None);
    let left = server.sql("SELECT locked_by FROM shedlock WHERE name = 'job'");
    assert_eq!(left, told.replace("rlock held", "rlock free"));
}

#[test]
fn shedlock_and_rlock_exclude_each_other() {
    let Some(server) = Postgres::start() else {
        return;
    };
    for clock in [Clock::Database, Clock::Own] {
        let mut held = job(&server).hold(HOLD);
        assert!(!clock.locks(&server), "rlock has it");
        clock.unlocks(&server);
        drop(held.stdin.take());
        held.finish().code(0).silent();
        assert!(clock.locks(&server), "it is free");
        let busy = job(&server).args(["-n"]).sh("true").code(75);
        busy.said(&["held by a client that is not rlock: host1 (ShedLock or the like)"]);
        // No word of it comes to a waiter, which looks again and again.
        let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
        wait_for_waiters(&server, 0);
        clock.unlocks(&server);
        waiter.finish().code(0).printed(&["ran"]);
    }
    assert!(Clock::Database.locks(&server));
    let forced = ["break", "--yes", "--foreign", "job"];
    rlock_words(forced).node(&server.url()).finish().code(0);
    job(&server).args(["-n"]).sh("true").code(0);
}

#[test]
fn of_many_clients_one_runs_at_a_time_and_fences_rise() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let runs: Vec<_> = (0..12)
        .map(|number| {
            let name = format!("r{number}");
            let run = witnessed(&server, dir.path()).args(["--", "sh", "-c", ALONE, &name]);
            run.spawn()
        })
        .collect();
    for run in runs {
        run.finish().code(0);
    }
    let told = order(dir.path());
    assert_eq!(told.len(), 12);
    assert!(told.is_sorted_by(|a, b| a.1 < b.1), "{told:?}");
}

#[test]
fn waiters_have_their_turns_in_the_order_in_which_they_came() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut held = job(&server).hold(HOLD);
    let waiters: Vec<_> = (1..=4)
        .map(|number| {
            let name = format!("w{number}");
            let run = witnessed(&server, dir.path()).args(["--", "sh", "-c", ALONE, &name]);
            let run = run.spawn();
            wait_for_waiters(&server, number);
            run
        })
        .collect();
    drop(held.stdin.take());
    held.finish().code(0);
    for waiter in waiters {
        waiter.finish().code(0);
    }
    let names: Vec<String> = order(dir.path())
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["w1", "w2", "w3", "w4"]);
}

#[test]
fn a_waiter_that_is_killed_or_gives_up_is_passed_over() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut held = job(&server).hold(HOLD);
    let killed = job(&server).args(["--", "true"]).spawn();
    wait_for_waiters(&server, 1);
    let ended = job(&server).args(["--", "true"]).spawn();
    wait_for_waiters(&server, 2);
    let next = job(&server).args(["--", "echo", "ran"]).spawn();
    wait_for_waiters(&server, 3);
    signal(ended.pid(), Signal::SIGTERM);
    ended.finish().code(143);
    wait_for_waiters(&server, 2);
    drop(killed);
    drop(held.stdin.take());
    held.finish().code(0);
    next.finish().code(0).printed(&["ran"]);
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
fn a_lock_stays_for_its_time_and_a_success_is_not_repeated() {
    let Some(server) = Postgres::start() else {
        return;
    };
    job(&server)
        .args(["--hold-at-least", "1h"])
        .sh("true")
        .code(0)
        .silent();
    assert!(
        server
            .holder("job")
            .is_some_and(|told| told.starts_with("rlock park "))
    );
    let busy = job(&server).args(["-n"]).sh("true").code(75);
    busy.said(&["parked by tester@", "free in"]);
    let once = || rlock("daily").node(&server.url()).args(["--once", "1h"]);
    once().sh("exit 1").code(1);
    once().sh("echo ran").code(0).printed(&["ran"]);
    once().sh("echo ran").code(0).printed(&[]);
    rlock("daily")
        .node(&server.url())
        .sh("echo other")
        .code(0)
        .printed(&["other"]);
    once().sh("echo ran").code(0).printed(&[]);
    let once = rlock("daily").node(&server.url()).args(["--once", "1ms"]);
    once.sh("echo ran").code(0).printed(&["ran"]);
}

#[test]
fn a_script_keeps_a_lock_by_its_token() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let step = |words: &[&str]| rlock_words(words).node(&server.url());
    let acquired = step(&["acquire", "-k", "job", "--ttl", "1m", "--format", "json"]);
    let acquired = acquired.finish().code(0).stdout.join("");
    let token = acquired
        .split('"')
        .find(|word| word.len() == 36)
        .expect("a token");
    assert!(
        server
            .holder("job")
            .is_some_and(|told| told.contains(&format!("{token} 60000 - ")))
    );
    for verb in ["check", "renew"] {
        step(&[verb, "-k", "job", "--token", token])
            .finish()
            .code(0);
    }
    step(&["release", "-k", "job", "--token", token])
        .finish()
        .code(0);
    step(&["check", "-k", "job", "--token", token])
        .finish()
        .code(1);
    assert_eq!(server.holder("job"), None);
}

#[test]
fn what_a_table_cannot_do_is_refused_before_the_server_is_asked() {
    let nowhere = "postgresql://rlock@127.0.0.1:1/rlock";
    for (words, why) in [
        (
            &["--shared"][..],
            "--shared needs Redis or local: a row of ShedLock's table has one holder",
        ),
        (&["--slots", "2"], "--slots needs Redis or local"),
        (
            &["--supersede"],
            "--supersede needs Redis: the line of a database only tells who is first",
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
fn a_name_may_have_all_the_room_there_is() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let name = "ü".repeat(64);
    let run = || rlock(&name).node(&server.url());
    let _held = run().hold(HOLD);
    run().args(["-n"]).sh("true").code(75);
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
