//! A lock that stays when its command has ended, and a success.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::ZooKeeper;

use crate::support::{alive, eventually, rlock_words};

use super::{HOLD, about, curator, kazoo, run, until_waiting, waiter, with_server};

/// A command that holds the lock until its stdin ends, and tells its token.
const TELLS_TOKEN: &str = "echo $RLOCK_TOKEN";

#[test]
fn a_lock_stays_when_its_command_has_ended_and_keeps_its_place() {
    with_server(|server| {
        for (kind, mut other, theirs) in [
            (&[][..], kazoo(server), "Lock"),
            (&["-s"], curator(server), "Write"),
        ] {
            let begun = Instant::now();
            let mut holder = run(server, "stays")
                .args(kind.iter().chain(&["--hold-at-least", "12s"]))
                .hold(HOLD);
            // Waiters of each client see the place once more, and go on waiting.
            if let Some(other) = &mut other {
                other.ask(&format!("lock mine {theirs} /stays"));
            }
            let others = usize::from(other.is_some());
            eventually("it waits", || waits(server, "stays") == others);
            let mut next = waiter(server, "stays", others + 1, "echo next");
            drop(holder.stdin.take());
            holder.finish().code(0);
            let busy = run(server, "stays").args(["-n"]).sh("true").code(75);
            busy.mentions(&["parked"]);
            assert!(next.is_running());
            if let Some(other) = &mut other {
                assert!(!other.has("mine"));
                other.holds("mine");
                assert!(begun.elapsed() >= Duration::from_secs(12));
                other.ask("unlock mine");
            }
            next.wait_for("next");
            assert!(begun.elapsed() >= Duration::from_secs(12));
            next.finish().code(0);
        }
    });
}

#[test]
fn a_lock_that_stays_is_broken_on_request_and_given_back_by_no_token() {
    with_server(|server| {
        let ended = run(server, "parked")
            .args(["--hold-at-least", "5m"])
            .sh(TELLS_TOKEN)
            .code(0);
        for word in ["release", "renew", "check"] {
            about(server, word, "parked")
                .args(["--token", &ended.stdout[0]])
                .finish()
                .code(1);
        }
        run(server, "parked").args(["-n"]).sh("true").code(75);
        about(server, "break", "parked")
            .args(["--yes"])
            .finish()
            .code(0)
            .mentions(&["parked"]);
        run(server, "parked").args(["-n"]).sh("true").code(0);
    });
}

#[test]
fn a_time_that_no_session_has_is_refused_before_the_command_runs() {
    with_server(|server| {
        let long = run(server, "too-long")
            .args(["--hold-at-least", "1h"])
            .sh("echo ran")
            .code(78)
            .printed(&[]);
        long.said(&["its longest session is 16m40s, and the lock is to stay for 1h"]);
        let long = run(server, "too-long")
            .args(["--lock-delay", "1h"])
            .sh("echo ran")
            .code(78)
            .printed(&[]);
        long.said(&["its longest session is 16m40s"]);
        run(server, "too-long").args(["-n"]).sh("true").code(0);
    });
}

#[test]
fn a_lock_that_is_lost_stays_for_its_delay() {
    with_server(|server| {
        let delayed = || run(server, "delay").args(["--lock-delay", "10s"]);
        let holder = delayed().hold(HOLD);
        let begun = Instant::now();
        about(server, "break", "delay")
            .args(["--yes"])
            .finish()
            .code(0)
            .mentions(&["it stays parked for another 10s (--lock-delay)"]);
        holder.finish().code(79);
        let busy = run(server, "delay").args(["-n"]).sh("true").code(75);
        busy.mentions(&["parked by"]);
        run(server, "delay").sh("true").code(0);
        assert!(begun.elapsed() > Duration::from_secs(10));
        // One whose rlock is killed ends with its session.
        let holder = delayed().hold(HOLD);
        let pid = holder.seen_pids(&["pid"])[0];
        holder.signal(Signal::SIGKILL);
        let begun = Instant::now();
        eventually("the command is dead", || !alive(pid));
        run(server, "delay").args(["-n"]).sh("true").code(75);
        run(server, "delay").sh("true").code(0);
        assert!(begun.elapsed() > Duration::from_secs(10));
        // One that is given back is free at once.
        delayed().sh("true").code(0);
        run(server, "delay").args(["-n"]).sh("true").code(0);
    });
}

/// Returns the number of waiters that `inspect` shows.
fn waits(server: &ZooKeeper, name: &str) -> usize {
    let told = told(server, name);
    let word = told.split(": ").find(|rest| rest.contains(" wait"));
    let number = word.and_then(|rest| rest.split(' ').next()?.parse().ok());
    number.unwrap_or_default()
}

/// Returns what `inspect` tells of a lock.
fn told(server: &ZooKeeper, name: &str) -> String {
    let seen = rlock_words(["inspect", name]).node(&server.url()).finish();
    format!("{}\n{}", seen.stdout.join("\n"), seen.stderr)
}

#[test]
fn a_success_keeps_the_next_run_from_running_until_it_is_forgotten() {
    with_server(|server| {
        for name in ["once", "once/below"] {
            let once = |script| run(server, name).args(["--once", "1h"]).sh(script);
            once("echo ran; false").code(1).printed(&["ran"]);
            once("echo ran").code(0).printed(&["ran"]);
            once("echo ran").code(0).printed(&[]);
            assert!(
                told(server, name).contains("ran sh with success"),
                "{}",
                told(server, name)
            );
            // A shorter time has passed.
            std::thread::sleep(Duration::from_millis(1100));
            let short = run(server, name).args(["--once", "1s"]);
            short.sh("echo ran").code(0).printed(&["ran"]);
            about(server, "break", name)
                .args(["--yes"])
                .finish()
                .code(0);
            once("echo ran").code(0).printed(&["ran"]);
        }
    });
}

#[test]
fn a_waiter_learns_of_the_success_that_it_waited_for() {
    with_server(|server| {
        let mut holder = run(server, "waited")
            .args(["--once", "1h", "--hold-at-least", "3s"])
            .hold(HOLD);
        let waits = run(server, "waited").args(["--once", "1h", "--", "echo", "ran"]);
        let waits = waits.spawn();
        until_waiting(server, "waited", 1);
        drop(holder.stdin.take());
        holder.finish().code(0);
        waits.finish().code(0).printed(&[]);
    });
}

#[test]
fn a_success_that_cannot_be_kept_is_told_and_keeps_no_lock() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        kazoo.ask("protect /rlock:once:denied");
        let holder = run(server, "denied").args(["--once", "1h"]);
        holder
            .sh("echo ran")
            .code(0)
            .printed(&["ran"])
            .mentions(&["the lock is gone, and nothing could be left: NoAuth"]);
        run(server, "denied").args(["-n"]).sh("true").code(0);
    });
}
