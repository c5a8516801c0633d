//! Locks in a database, whichever it is: rows of ShedLock's table, with all that rlock does with a
//! lock. Each test stands here once, and `database_suite!` makes a `#[test]` of it for a server.

#![expect(clippy::needless_pass_by_value, reason = "a server ends with its test")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{CutOff, Database, Rlock, Server, eventually, rlock, rlock_words, signal};
use nix::sys::signal::Signal;

/// Makes a `#[test]` of each test on a server of its own.
macro_rules! database_suite {
    ($database:ty) => {
        crate::sql::database_suite!($database:
            the_row_tells_who_has_the_lock_and_stays
            shedlock_and_rlock_exclude_each_other
            of_many_clients_one_runs_at_a_time_and_fences_rise
            waiters_have_their_turns_in_the_order_in_which_they_came
            a_waiter_that_is_killed_or_gives_up_is_passed_over
            a_lock_stays_for_its_time_and_a_success_is_not_repeated
            a_script_keeps_a_lock_by_its_token
            a_lock_whose_lease_is_over_is_not_given_back
            a_renewal_that_waited_for_the_row_makes_the_lock_no_shorter
            a_request_that_waited_for_a_release_gets_the_lock
            a_renewal_that_waited_for_a_release_names_no_other_client
            a_lock_is_broken_within_seconds_and_its_record_says_by_whom
            hostile_names_are_names_and_inspect_lists_them
            a_name_may_have_all_the_room_there_is
            a_server_that_dies_and_is_back_in_time_costs_no_command
            without_a_server_the_command_is_dead_before_its_lease_ends
            a_server_that_says_nothing_costs_one_node_timeout
            a_transaction_that_locks_the_row_costs_a_waiter_69_and_a_holder_its_lock
            a_client_that_is_killed_while_it_is_cut_off_keeps_no_place_in_line
            a_waiter_without_a_second_session_asks_again_and_again
            a_server_without_a_session_to_spare_is_not_passed_over
            a_guard_kills_the_command_of_a_killed_rlock_and_gives_the_lock_back
            a_stopped_rlock_loses_its_command_before_its_lock
            a_row_that_was_taken_away_ends_its_command_at_once
            a_lock_that_is_freed_by_its_name_is_taken_again_in_a_second_if_it_is_still_free
        );
    };
    ($database:ty: $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                if let Some(server) = <$database>::start() {
                    crate::sql::$test(server);
                }
            }
        )*
    };
}
pub(crate) use database_suite;

/// A command that holds the lock until its stdin ends.
pub(crate) const HOLD: &str = "echo ready; read line; true";

/// A command that ends at once if another one runs that has `$WITNESS` locked, and else appends its
/// name and its fence to `$ORDER`.
const ALONE: &str =
    r#"exec flock -n "$WITNESS" sh -c 'echo "$0 $RLOCK_FENCE" >>"$ORDER"; sleep 0.05' "$0""#;

/// A lease that is short.
pub(crate) const TTL: [&str; 2] = ["--ttl", "6s"];

/// Time in which a lease of [`TTL`] ends, on a busy machine, and its run with it.
const SOON: Duration = Duration::from_secs(12);

/// The clock that a ShedLock goes by.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The database's: `usingDbTime()`.
    Database,
    /// The JVM's, in UTC.
    Own,
}

impl Clock {
    /// Returns the unix time of the machine in ms.
    pub(crate) fn own_millis() -> u128 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("a time").as_millis()
    }
}

/// A server that has clients of ShedLock.
pub(crate) trait ShedLocked: Database {
    /// The error of a request that has waited for a row.
    const LOCKED: &'static str;

    /// The statement that tells the ports of rlock's connections.
    const PORTS: &'static str;

    /// The error of a user who has all the sessions that it may have.
    const NO_SESSION: &'static str;

    /// Returns how many requests of rlock wait for a row.
    fn waiting(&self) -> u64;

    /// Takes the lock `job` as ShedLock does, for a minute. Returns whether it has it.
    fn locks(&self, clock: Clock) -> bool;

    /// Gives it back as ShedLock does.
    fn unlocks(&self, clock: Clock);
}

/// Returns rlock for `job` at `server`.
pub(crate) fn job<D: Database>(server: &D) -> Rlock {
    rlock("job").node(&server.url())
}

/// Returns `run`, which tells the witness of `dir`.
fn witnessed(run: Rlock, dir: &Path) -> Rlock {
    let path = |name| dir.join(name).to_str().expect("a name").to_owned();
    run.env("WITNESS", &path("witness"))
        .env("ORDER", &path("order"))
}

/// Lets twelve runs contend, of which one runs at a time, and their fences rise.
pub(crate) fn contend(job: impl Fn() -> Rlock) {
    let dir = tempfile::tempdir().expect("a directory");
    let runs: Vec<_> = (0..12)
        .map(|number| {
            let name = format!("r{number}");
            let run = witnessed(job(), dir.path());
            run.args(["--", "sh", "-c", ALONE, &name]).spawn()
        })
        .collect();
    for run in runs {
        run.finish().code(0);
    }
    let told = order(dir.path());
    assert_eq!(told.len(), 12);
    assert!(told.is_sorted_by(|a, b| a.1 < b.1), "{told:?}");
}

/// Returns the end of `job`, as the row has it.
pub(crate) fn end<D: Database>(server: &D) -> String {
    server.sql("SELECT lock_until FROM shedlock WHERE name = 'job'")
}

/// Waits until so many waiters stand in the line.
pub(crate) fn wait_for_waiters<D: Database>(server: &D, number: usize) {
    eventually("the line has its waiters", || {
        server.sql(D::WAITERS) == number.to_string()
    });
}

/// A transaction that has locked the row of `job`.
pub(crate) struct Transaction(Child, ChildStdin);

impl Transaction {
    pub(crate) fn begin<D: Database>(server: &D) -> Self {
        let mut client = server
            .client()
            .stdin(Stdio::piped())
            .spawn()
            .expect("a client");
        let mut input = client.stdin.take().expect("its input");
        input
            .write_all(b"BEGIN; SELECT 1 FROM shedlock WHERE name = 'job' FOR UPDATE;\n")
            .expect("a statement");
        let free = "SELECT COUNT(*) FROM (SELECT 1 FROM shedlock WHERE name = 'job' FOR UPDATE SKIP LOCKED) AS free";
        eventually("the row is locked", || server.sql(free) == "0");
        Self(client, input)
    }

    /// Runs a statement, and does not wait for its end.
    pub(crate) fn run(&mut self, statement: &str) {
        writeln!(self.1, "{statement};").expect("a statement");
    }

    /// Runs a last statement, and keeps what it did.
    pub(crate) fn commit(mut self, statement: &str) {
        self.run(&format!("{statement}; COMMIT"));
        self.end();
    }

    pub(crate) fn end(self) {
        let Self(mut client, input) = self;
        drop(input);
        client.wait().expect("its end");
    }
}

/// Makes the table, and grants the rights to it, as `told` by `rlock doctor --acl`.
pub(crate) fn make_table<D: Database>(server: &D, told: &str) {
    let lines = told.lines();
    let line = lines
        .filter_map(|line| line.split_once("CREATE TABLE"))
        .map(|(_, rest)| format!("CREATE TABLE{rest}"))
        .next();
    server.sql(&line.unwrap_or_else(|| panic!("{told}")));
}

/// Lets the server of a holder fail, and another client take the lock at `new`, which lacks the row,
/// before the holder has noticed anything. The next renewal would come 20 s after the last one.
pub(crate) fn forget_the_row<D: Database>(
    mut old: D,
    new: &D,
    fail: impl Fn(&mut D),
    promote: impl Fn(&D),
) {
    let both = format!("{}://rlock@{},{}/rlock", D::SCHEME, old.host(), new.host());
    let run = |node: &str| rlock("job").node(node).args(["--ttl", "60s"]);
    let first = run(&both).hold("echo ready; exec sleep 60");
    first.signal(Signal::SIGSTOP);
    fail(&mut old);
    promote(new);
    let mut second = run(&new.url()).hold(HOLD);
    let begin = Instant::now();
    first.signal(Signal::SIGCONT);
    first.finish().code(79).mentions(&["another client"]);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(second.stdin.take());
    second.finish().code(0).silent();
}

/// Returns the names and the fences that commands have written.
fn order(dir: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(dir.join("order")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, fence)| (name.to_owned(), fence.parse().expect("a fence")))
        .collect()
}

pub(crate) fn the_row_tells_who_has_the_lock_and_stays<D: ShedLocked>(server: D) {
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

pub(crate) fn shedlock_and_rlock_exclude_each_other<D: ShedLocked>(server: D) {
    for clock in [Clock::Database, Clock::Own] {
        let mut held = job(&server).hold(HOLD);
        assert!(!server.locks(clock), "rlock has it");
        server.unlocks(clock);
        drop(held.stdin.take());
        held.finish().code(0).silent();
        assert!(server.locks(clock), "it is free");
        let busy = job(&server).args(["-n"]).sh("true").code(75);
        busy.said(&["held by a client that is not rlock: host1 (ShedLock or the like)"]);
        // No word of it comes to a waiter, which looks again and again.
        let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
        wait_for_waiters(&server, 0);
        server.unlocks(clock);
        waiter.finish().code(0).printed(&["ran"]);
    }
    assert!(server.locks(Clock::Database));
    let forced = ["break", "--yes", "--foreign", "job"];
    rlock_words(forced).node(&server.url()).finish().code(0);
    job(&server).args(["-n"]).sh("true").code(0);
}

pub(crate) fn of_many_clients_one_runs_at_a_time_and_fences_rise<D: ShedLocked>(server: D) {
    contend(|| job(&server));
}

pub(crate) fn waiters_have_their_turns_in_the_order_in_which_they_came<D: ShedLocked>(server: D) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut held = job(&server).hold(HOLD);
    let waiters: Vec<_> = (1..=4)
        .map(|number| {
            let name = format!("w{number}");
            let run = witnessed(job(&server), dir.path()).args(["--", "sh", "-c", ALONE, &name]);
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

pub(crate) fn a_waiter_that_is_killed_or_gives_up_is_passed_over<D: ShedLocked>(server: D) {
    let mut held = job(&server).hold(HOLD);
    let killed = job(&server).args(["--", "true"]).spawn();
    wait_for_waiters(&server, 1);
    let ended = job(&server).args(["--", "true"]).spawn();
    wait_for_waiters(&server, 2);
    let next = job(&server).args(["--", "echo", "ran"]).spawn();
    wait_for_waiters(&server, 3);
    signal(ended.pid(), Signal::SIGTERM);
    ended.finish().code(143);
    drop(killed);
    wait_for_waiters(&server, 1);
    drop(held.stdin.take());
    held.finish().code(0);
    next.finish().code(0).printed(&["ran"]);
}

pub(crate) fn a_lock_stays_for_its_time_and_a_success_is_not_repeated<D: ShedLocked>(server: D) {
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

pub(crate) fn a_script_keeps_a_lock_by_its_token<D: ShedLocked>(server: D) {
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
    for (verb, code) in [("check", 0), ("renew", 0), ("release", 0), ("check", 1)] {
        step(&[verb, "-k", "job", "--token", token])
            .finish()
            .code(code);
    }
    assert_eq!(server.holder("job"), None);
}

pub(crate) fn a_lock_whose_lease_is_over_is_not_given_back<D: ShedLocked>(server: D) {
    let step = |words: &[&str]| rlock_words(words).node(&server.url());
    let acquired = step(&["acquire", "-k", "job", "--ttl", "1m"]).finish();
    let token = acquired.code(0).stdout.join("");
    server.sql("UPDATE shedlock SET lock_until = locked_at");
    let release = step(&["release", "-k", "job", "--token", &token]);
    release.finish().code(1);
}

/// A later renewal, over another session, may have come before it.
pub(crate) fn a_renewal_that_waited_for_the_row_makes_the_lock_no_shorter<D: ShedLocked>(
    server: D,
) {
    let step = |words: &[&str]| rlock_words(words).node(&server.url());
    let acquire = ["acquire", "-k", "job", "--ttl", "1m", "--format", "json"];
    let acquired = step(&acquire).finish().code(0).stdout.join("");
    let words = acquired.split('"');
    let token = words.into_iter().find(|word| word.len() == 36);
    let token = token.expect("a token");
    let blocking = Transaction::begin(&server);
    let patient = ["--ttl", "1m", "--node-timeout", "10s"];
    let renewal = step(&["renew", "-k", "job", "--token", token]).args(patient);
    let renewal = renewal.spawn();
    eventually("it waits", || server.waiting() == 1);
    let later = server.sql(&format!("SELECT {}", D::NOW));
    blocking.commit("UPDATE shedlock SET locked_by = locked_by, lock_until = lock_until");
    renewal.finish().code(0);
    let is_later = server.sql(&format!(
        "SELECT COUNT(*) FROM shedlock WHERE lock_until - INTERVAL '60' SECOND >= '{later}'"
    ));
    assert_eq!(is_later, "1", "{} {later}", end(&server));
}

/// The release ends the lock at a time that is later than the begin of the request.
pub(crate) fn a_request_that_waited_for_a_release_gets_the_lock<D: ShedLocked>(server: D) {
    job(&server).sh("true").code(0);
    let blocking = Transaction::begin(&server);
    let patient = ["-n", "--ttl", "1m", "--node-timeout", "10s"];
    let run = job(&server).args(patient).args(["--", "true"]).spawn();
    eventually("it waits", || server.waiting() == 1);
    let later = server.sql(&format!("SELECT {}", D::NOW));
    blocking.commit(&format!("UPDATE shedlock SET lock_until = '{later}'"));
    run.finish().code(0);
}

/// `rlock release` gives the lock back by its token.
pub(crate) fn a_renewal_that_waited_for_a_release_names_no_other_client<D: ShedLocked>(server: D) {
    let patient = ["--ttl", "18s", "--node-timeout", "4s"];
    let held = job(&server).args(patient).hold("echo ready; sleep 60");
    let blocking = Transaction::begin(&server);
    eventually("a renewal waits", || server.waiting() == 1);
    let later = server.sql(&format!("SELECT {}", D::NOW));
    blocking.commit(&format!(
        "UPDATE shedlock SET locked_by = CONCAT('rlock free ', SUBSTR(locked_by, 12)), lock_until = '{later}'"
    ));
    held.finish().code(79).said(&["the key is gone"]);
}

pub(crate) fn a_name_may_have_all_the_room_there_is<D: ShedLocked>(server: D) {
    let name = "ü".repeat(64);
    let run = || rlock(&name).node(&server.url());
    let _held = run().hold(HOLD);
    run().args(["-n"]).sh("true").code(75);
}

pub(crate) fn a_server_that_dies_and_is_back_in_time_costs_no_command<D: ShedLocked>(
    mut server: D,
) {
    let mut held = job(&server).args(["--ttl", "30s"]).hold(HOLD);
    let before = end(&server);
    server.kill();
    server.come_back();
    eventually("it is renewed", || end(&server) > before);
    drop(held.stdin.take());
    held.finish().code(0);
    assert_eq!(server.holder("job"), None);
}

pub(crate) fn without_a_server_the_command_is_dead_before_its_lease_ends<D: ShedLocked>(server: D) {
    let held = job(&server).args(TTL).hold("echo ready; sleep 60");
    let begin = Instant::now();
    server.freeze();
    held.finish().code(79);
    assert!(begin.elapsed() < SOON);
    let refused = job(&server).args(["-n"]).sh("true").code(69);
    refused.said(&["no answer within"]);
    server.thaw();
    job(&server).sh("echo ran").code(0).printed(&["ran"]);
}

/// Nothing was asked that it could grant later.
pub(crate) fn a_server_that_says_nothing_costs_one_node_timeout<D: ShedLocked>(server: D) {
    server.freeze();
    let begin = Instant::now();
    let patient = ["-n", "--ttl", "1m", "--node-timeout", "5s"];
    let refused = job(&server).args(patient).sh("true").code(69);
    refused.said(&["no answer within"]);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

pub(crate) fn a_guard_kills_the_command_of_a_killed_rlock_and_gives_the_lock_back<D: ShedLocked>(
    server: D,
) {
    let held = job(&server)
        .args(["--ttl", "5m"])
        .hold("echo ready; sleep 60");
    let next = job(&server).args(["--", "echo", "ran"]).spawn();
    wait_for_waiters(&server, 1);
    signal(held.pid(), Signal::SIGKILL);
    next.finish()
        .code(0)
        .printed(&["ran"])
        .within(Duration::from_secs(30));
}

/// The one behind it has the lock when the lease is over, and not before the command is dead.
pub(crate) fn a_stopped_rlock_loses_its_command_before_its_lock<D: ShedLocked>(server: D) {
    let dir = tempfile::tempdir().expect("a directory");
    let run = || witnessed(job(&server), dir.path());
    let stays = r#"exec flock -n "$WITNESS" sh -c 'echo ready; exec sleep 60'"#;
    let stopped = run().args(TTL).hold(stays);
    let next = run().args(["--", "sh", "-c", ALONE, "next"]).spawn();
    wait_for_waiters(&server, 1);
    stopped.signal(Signal::SIGSTOP);
    next.finish().code(0);
    stopped.signal(Signal::SIGCONT);
    stopped.finish().code(79);
}

pub(crate) fn a_row_that_was_taken_away_ends_its_command_at_once<D: ShedLocked>(server: D) {
    for taken in [
        "DELETE FROM shedlock",
        "UPDATE shedlock SET locked_by = 'host1', lock_until = '2099-01-01'",
    ] {
        let held = job(&server)
            .args(["--ttl", "5m"])
            .hold("echo ready; sleep 60");
        server.sql(taken);
        // It looks each second, and renews once in 100 s.
        held.finish().code(79).within(Duration::from_secs(60));
        server.sql("DELETE FROM shedlock");
    }
}

/// ShedLock before 7.0 may free a lock by its name alone.
pub(crate) fn a_lock_that_is_freed_by_its_name_is_taken_again_in_a_second_if_it_is_still_free<
    D: ShedLocked,
>(
    server: D,
) {
    let mut held = job(&server).args(["--ttl", "5m"]).hold(HOLD);
    server.sql("UPDATE shedlock SET lock_until = '2001-01-01' WHERE name = 'job'");
    let begin = Instant::now();
    eventually("the lock is held again", || server.holder("job").is_some());
    // The next renewal would come after 100 s.
    assert!(begin.elapsed() < Duration::from_secs(60));
    drop(held.stdin.take());
    held.finish().code(0).silent();
}

pub(crate) fn a_lock_is_broken_within_seconds_and_its_record_says_by_whom<D: ShedLocked>(
    server: D,
) {
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

pub(crate) fn hostile_names_are_names_and_inspect_lists_them<D: ShedLocked>(server: D) {
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

pub(crate) fn a_transaction_that_locks_the_row_costs_a_waiter_69_and_a_holder_its_lock<
    D: ShedLocked,
>(
    server: D,
) {
    job(&server).sh("true").code(0);
    let blocking = Transaction::begin(&server);
    let patient = ["-n", "--ttl", "1m", "--node-timeout", "10s"];
    let refused = job(&server).args(patient).sh("true").code(69);
    refused.mentions(&[D::LOCKED]);
    blocking.end();
    let held = job(&server).args(TTL).hold("echo ready; sleep 60");
    let blocking = Transaction::begin(&server);
    let begin = Instant::now();
    held.finish().code(79);
    assert!(begin.elapsed() < SOON);
    blocking.end();
    job(&server).sh("true").code(0);
}

/// The kernel of the server would keep its connection for two hours.
pub(crate) fn a_client_that_is_killed_while_it_is_cut_off_keeps_no_place_in_line<D: ShedLocked>(
    server: D,
) {
    let held = job(&server).args(TTL).hold("echo ready; sleep 60");
    let ports = server.sql(D::PORTS);
    let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
    wait_for_waiters(&server, 1);
    let Some(_cut) = CutOff::ports(&ports) else {
        return;
    };
    // The guard gives the lock back over a connection of its own.
    signal(held.pid(), Signal::SIGKILL);
    waiter.finish().code(0).printed(&["ran"]);
    eventually("its session is ended", || server.sql(D::SESSIONS) == "0");
}

pub(crate) fn a_waiter_without_a_second_session_asks_again_and_again<D: ShedLocked>(server: D) {
    server.sql(D::TWO_SESSIONS);
    let mut held = job(&server).hold(HOLD);
    let waiter = job(&server).args(["--", "echo", "ran"]).spawn();
    eventually("both have a session", || server.sql(D::SESSIONS) == "2");
    wait_for_waiters(&server, 0);
    drop(held.stdin.take());
    held.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
}

/// Both take writes, as an old primary and a new one may: the lock is held at the first.
pub(crate) fn a_server_without_a_session_to_spare_is_not_passed_over<D: ShedLocked>(server: D) {
    let Some(next) = D::start() else { return };
    server.sql(D::TWO_SESSIONS);
    let both = format!(
        "{}://rlock@{},{}/rlock",
        D::SCHEME,
        server.host(),
        next.host()
    );
    let run = || rlock("job").node(&both);
    let mut held = run().hold(HOLD);
    let waiter = run().args(["--", "echo", "ran"]).spawn();
    eventually("both have a session", || server.sql(D::SESSIONS) == "2");
    let refused = run().args(["-n"]).sh("true").code(69);
    refused.mentions(&[&server.host(), D::NO_SESSION]);
    drop(held.stdin.take());
    held.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
    assert_eq!(next.sql("SELECT COUNT(*) FROM shedlock"), "0");
}

/// An address of each kind at which no server listens.
const NOWHERE: [&str; 2] = [
    "mysql://rlock@127.0.0.1:1/rlock",
    "postgresql://rlock@127.0.0.1:1/rlock",
];

#[test]
fn what_a_table_cannot_do_is_refused_before_the_server_is_asked() {
    for nowhere in NOWHERE {
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
}

#[test]
fn another_server_at_the_address_is_no_database() {
    let server = Server::tcp(&[]);
    for scheme in ["mysql", "postgresql"] {
        let url = server.tcp_url().replace("redis", scheme);
        let url = format!("{}/x", url.replace("://", "://rlock@"));
        let refused = rlock("job").node(&url).args(["-n"]).sh("true");
        assert!(
            !refused.exited_with(0) && !refused.exited_with(75),
            "{}",
            refused.stderr
        );
        refused.said(&["rlock: job: "]);
    }
}
