//! A server that dies, hangs or is slow: the command is dead before the lock can pass on.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::sql::{
    HOLD, ShedLocked as _, TTL, Transaction, end, forget_the_row, job, wait_for_waiters,
};
use crate::support::{Database, MariaDb, eventually, rlock, signal, skipped};

/// The server runs what is in its socket, though its clients are gone: a request for the lock, and
/// not the release behind it.
#[test]
fn a_server_that_wakes_up_grants_no_lock_to_a_client_that_is_gone() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    job(&server).sh("true").code(0);
    let waiters: Vec<_> = {
        let mut held = job(&server).hold(HOLD);
        let wait = || {
            job(&server)
                .args(["--wait", "10s"])
                .args(["--", "true"])
                .spawn()
        };
        let waiters = (0..4).map(|_| wait()).collect();
        wait_for_waiters(&server, 4);
        server.freeze();
        drop(held.stdin.take());
        let _ = held.finish();
        waiters
    };
    for waiter in waiters {
        let _ = waiter.finish();
    }
    server.thaw();
    eventually("what was sent has run", || {
        server.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'rlock'")
            == "0"
    });
    let began = Instant::now();
    job(&server).args(["--ttl", "5m"]).sh("true").code(0);
    // A lock that was left behind would stay for the rest of its 30 s.
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

/// Statements of a message run one by one, so that an operator may break the lock between the grant
/// and the look at it. A trigger does the same.
#[test]
fn a_lock_that_is_broken_as_soon_as_it_is_granted_is_given_back_and_asked_for_again() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    job(&server).sh("true").code(0);
    server.sql("CREATE TABLE broken (locked_by VARCHAR(255))");
    server.sql(
        "CREATE TRIGGER notes AFTER UPDATE ON shedlock FOR EACH ROW \
         INSERT INTO broken SELECT NEW.locked_by FROM DUAL WHERE NEW.locked_by LIKE 'rlock dead %'",
    );
    server.sql(
        "CREATE TRIGGER breaks BEFORE UPDATE ON shedlock FOR EACH ROW \
         SET NEW.locked_by = REPLACE(NEW.locked_by, 'rlock held ', 'rlock dead ')",
    );
    let breaks = || server.sql("SELECT COUNT(*) FROM broken");
    let refused = job(&server).args(["-n"]).sh("true").code(69);
    refused.said(&["the lock was broken as soon as it was granted"]);
    assert_eq!(breaks(), "1");
    let waiter = job(&server)
        .args(["--wait", "20s", "--", "echo", "ran"])
        .spawn();
    eventually("the waiter's lock is broken", || breaks() != "1");
    server.sql("DROP TRIGGER breaks");
    waiter.finish().code(0).printed(&["ran"]);
}

/// Its time is looked at when the row is there, and not when the statement began.
#[test]
fn a_request_that_waits_for_the_row_until_its_deadline_grants_nothing() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    job(&server).sh("true").code(0);
    let blocking = Transaction::begin(&server);
    let late = job(&server)
        .args(["--ttl", "1m", "--node-timeout", "300ms"])
        .args(["--", "true"])
        .spawn();
    eventually("it waits for the row", || server.waiting() > 0);
    signal(late.pid(), Signal::SIGKILL);
    let seen = Instant::now();
    eventually("its deadline is over", || {
        seen.elapsed() > Duration::from_millis(350)
    });
    let before = server.sql("SELECT locked_at FROM shedlock WHERE name = 'job'");
    blocking.end();
    eventually("nothing waits any more", || server.waiting() == 0);
    let after = server.sql("SELECT locked_at FROM shedlock WHERE name = 'job'");
    assert_eq!((server.holder("job"), after), (None, before));
    let _ = late.finish();
}

/// Ends all sessions of rlock's.
fn end_sessions(server: &MariaDb) {
    let sessions = "SELECT id FROM information_schema.processlist WHERE user = 'rlock'";
    for id in server.sql(sessions).lines() {
        // It may have ended by itself.
        let _ = server.tried("rlock", &format!("KILL {id}"));
    }
}

#[test]
fn a_session_that_the_server_ends_is_begun_anew() {
    let Some(server) = MariaDb::start_with(&["wait-timeout=1"]) else {
        return;
    };
    let mut held = job(&server).args(["--ttl", "15s"]).hold(HOLD);
    let before = end(&server);
    eventually("it is renewed", || {
        end_sessions(&server);
        // A renewal fits between two of these.
        std::thread::sleep(Duration::from_secs(1));
        end(&server) > before
    });
    drop(held.stdin.take());
    held.finish().code(0);
}

/// A thousand waiters look at a row at the same time, so a look is to cost the server little.
#[test]
fn a_waiter_whose_turn_it_is_not_looks_with_one_statement_that_changes_nothing() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let mut held = job(&server).args(["--ttl", "10m"]).hold(HOLD);
    let idle =
        "SELECT id FROM information_schema.processlist WHERE user = 'rlock' AND command = 'Sleep'";
    let holders = server.sql(idle);
    let waiter = job(&server).args(["--", "true"]).spawn();
    wait_for_waiters(&server, 1);
    // From now on the statements are the waiter's.
    signal(held.pid(), Signal::SIGSTOP);
    let session = server.sql(&format!("{idle} AND id <> {holders}"));
    let counts = || ["Com_select", "Com_set_option", "Com_update"].map(|it| server.status(it));
    let [selects, sets, updates] = counts();
    // The waiter begins a session anew: one statement sets that up, and four read.
    server.sql(&format!("KILL {session}"));
    let looked = [selects + 5, sets + 1, updates];
    eventually("the waiter has looked once", || counts() == looked);
    signal(held.pid(), Signal::SIGCONT);
    drop(held.stdin.take());
    held.finish().code(0);
    waiter.finish().code(0);
}

#[test]
fn a_server_without_a_free_connection_is_tried_again() {
    let (Some(server), Some(next)) = (
        MariaDb::start_with(&["max-connections=10"]),
        MariaDb::start(),
    ) else {
        return;
    };
    let mut clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = server
                .client()
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("a client");
            let input = client.stdin.take().expect("its input");
            (client, input)
        })
        .collect();
    let refused = || job(&server).args(["-n"]).sh("true");
    eventually("all are taken", || refused().exited_with(69));
    // The lock may be held there, so that the next server is not asked.
    let both = format!("mysql://rlock@{},{}/rlock", server.host(), next.host());
    for run in [refused(), rlock("job").node(&both).args(["-n"]).sh("true")] {
        run.code(69).mentions(&["Too many connections (1040)"]);
    }
    for (client, input) in &mut clients {
        input.write_all(b"exit\n").ok();
        client.wait().expect("its end");
    }
    job(&server).sh("true").code(0);
}

/// The replica that confirms commits is away. The row is unlocked before it is asked, so that each
/// attempt hangs.
#[test]
fn commits_that_hang_do_not_use_up_the_connections() {
    if MariaDb::is_mysql() {
        return skipped("semi-synchronous replication is a plugin of MySQL's");
    }
    let Some(server) = MariaDb::start_with(&["log-bin=binary", "binlog-format=ROW"]) else {
        return;
    };
    job(&server).sh("true").code(0);
    server.sql(
        "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_COMMIT, rpl_semi_sync_master_timeout = 3600000,          rpl_semi_sync_master_enabled = 1",
    );
    // Eight hang after some seconds.
    let waiter = job(&server).args(TTL).args(["--wait", "20s"]).sh("true");
    waiter
        .code(69)
        .mentions(&["8 requests to it are not answered yet"]);
    assert_eq!(server.sql(MariaDb::SESSIONS), "8");
    server.sql("SET GLOBAL rpl_semi_sync_master_enabled = 0");
    job(&server).sh("echo ran").code(0).printed(&["ran"]);
}

#[test]
fn a_server_that_takes_no_writes_is_passed_over() {
    let Some(standby) = MariaDb::start_with(&["read-only=1"]) else {
        return;
    };
    let refused = job(&standby).args(["-n"]).sh("true").code(69);
    refused.said(&["it takes no writes"]);
    let Some(primary) = MariaDb::start() else {
        return;
    };
    let both = format!("mysql://rlock@{},{}/rlock", standby.host(), primary.host());
    let mut held = rlock("job").node(&both).hold(HOLD);
    assert!(primary.holder("job").is_some());
    drop(held.stdin.take());
    held.finish().code(0).silent();
}

/// A switchover: the old primary becomes read-only under its clients.
#[test]
fn a_server_that_becomes_read_only_is_left_for_the_one_that_has_the_row() {
    let (Some(old), Some(new)) = (MariaDb::start(), MariaDb::start_with(&["read-only=1"])) else {
        return;
    };
    let both = format!("mysql://rlock@{},{}/rlock", old.host(), new.host());
    let mut held = rlock("job").node(&both).args(["--ttl", "15s"]).hold(HOLD);
    old.sql("SET GLOBAL read_only = 1");
    let row = old.sql("SELECT CONCAT(QUOTE(name), ',', QUOTE(lock_until), ',', QUOTE(locked_at), ',', QUOTE(locked_by)) FROM shedlock WHERE name = 'job'");
    new.sql(&format!("INSERT INTO shedlock VALUES({row})"));
    let before = end(&new);
    new.sql("SET GLOBAL read_only = 0");
    eventually("it is renewed", || end(&new) > before);
    drop(held.stdin.take());
    held.finish().code(0);
    assert_eq!(new.holder("job"), None);
}

#[test]
fn a_failover_that_forgets_the_row_ends_the_command() {
    let (Some(mut old), Some(new)) = (MariaDb::start(), MariaDb::start()) else {
        return;
    };
    let both = format!("mysql://rlock@{},{}/rlock", old.host(), new.host());
    let held = rlock("job")
        .node(&both)
        .args(["--ttl", "30s"])
        .hold("echo ready; sleep 60");
    old.kill();
    held.finish().code(79).within(Duration::from_secs(40));
    let run = || rlock("job").node(&both);
    run().sh("echo ran").code(0).printed(&["ran"]);
}

/// Returns statements about replication in the server's own words.
fn of_replication(statements: &str) -> String {
    if !MariaDb::is_mysql() {
        return statements.to_owned();
    }
    statements
        .replace("MASTER STATUS", "BINARY LOG STATUS")
        .replace("CHANGE MASTER", "CHANGE REPLICATION SOURCE")
        .replace("MASTER_", "SOURCE_")
        .replace("SLAVE", "REPLICA")
}

/// The replication is asynchronous, and stands still when the lock is taken.
#[test]
fn a_failover_that_forgets_the_row_ends_the_command_although_another_has_the_lock() {
    for fail in [MariaDb::kill, |server: &mut MariaDb| server.freeze()] {
        let (Some(old), Some(new)) = (
            MariaDb::start_with(&["log-bin=binary", "binlog-format=ROW", "server-id=1"]),
            MariaDb::start_with(&["read-only=1", "server-id=2"]),
        ) else {
            return;
        };
        old.sql("CREATE USER copier@'%'; GRANT REPLICATION SLAVE ON *.* TO copier@'%'");
        let status = old.sql(&of_replication("SHOW MASTER STATUS"));
        let [file, position, ..] = status.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{status}")
        };
        new.sql(&of_replication(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'copier', \
             MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position}; START SLAVE",
            old.instance().port(),
        )));
        rlock("copied").node(&old.url()).sh("true").code(0);
        eventually("it follows", || {
            new.sql("SELECT COUNT(*) FROM shedlock WHERE name = 'copied'") == "1"
        });
        new.sql(&of_replication("STOP SLAVE"));
        let promote = |new: &MariaDb| drop(new.sql("SET GLOBAL read_only = 0"));
        forget_the_row(old, &new, fail, promote);
    }
}

/// A transaction of another program has the row of the record, and wants that of the lock. It has
/// changed more than the release, so that the server ends the release.
#[test]
fn a_deadlock_costs_the_record_and_not_the_release() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    job(&server).sh("true").code(0);
    let mut held = job(&server)
        .args(["--ttl", "5m", "--node-timeout", "20s"])
        .hold(HOLD);
    let mut blocking = server
        .client()
        .stdin(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut input = blocking.stdin.take().expect("its input");
    let mut tell = |statements: &str| writeln!(input, "{statements}").expect("a statement");
    tell(
        "SET innodb_lock_wait_timeout = 50; BEGIN; INSERT INTO shedlock WITH RECURSIVE numbers AS (SELECT 1 AS number UNION ALL SELECT number + 1 FROM numbers WHERE number < 500) \
         SELECT CONCAT('other', number), '2000-01-01', '2000-01-01', '' FROM numbers;",
    );
    tell("UPDATE shedlock SET locked_by = locked_by WHERE name = 'rlock last job';");
    let skipped = "SELECT COUNT(*) FROM (SELECT 1 FROM shedlock WHERE name = 'rlock last job' FOR UPDATE SKIP LOCKED) AS free";
    eventually("the row is locked", || server.sql(skipped) == "0");
    drop(held.stdin.take());
    eventually("the release waits", || server.waiting() == 1);
    tell("UPDATE shedlock SET locked_by = locked_by WHERE name = 'job'; COMMIT;");
    drop(input);
    assert!(blocking.wait().expect("its end").success());
    held.finish().code(0);
    assert_eq!(server.holder("job"), None);
    let deadlocks =
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'";
    assert_eq!(server.sql(deadlocks), "1");
}
