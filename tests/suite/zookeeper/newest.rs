//! `--supersede`: of the waiters that have it, the last that came goes on.

use std::process::Stdio;

use nix::sys::signal::Signal;
use testkit::ZooKeeper;

use crate::supersede::is_superseded;
use crate::support::{Running, eventually};

use super::{HOLD, about, kazoo, run, until_waiting, waiter, with_server};

/// Starts a waiter with `--supersede`, which ends those that came before.
fn newest(server: &ZooKeeper, name: &str) -> Running {
    let run = run(server, name).args(["--supersede", "--", "echo", "ran"]);
    run.spawn()
}

#[test]
fn a_later_waiter_ends_the_earlier_ones_and_no_others() {
    with_server(|server| {
        let mut holder = run(server, "newest").args(["--supersede"]).hold(HOLD);
        let mut plain = waiter(server, "newest", 1, "echo plain");
        let mut other = kazoo(server);
        let others = if let Some(kazoo) = &mut other {
            kazoo.ask("lock mine Lock /newest");
            2
        } else {
            1
        };
        until_waiting(server, "newest", others);
        let first = newest(server, "newest");
        until_waiting(server, "newest", others + 1);
        let second = newest(server, "newest");
        is_superseded(first, "newest");
        let last = newest(server, "newest");
        is_superseded(second, "newest");
        until_waiting(server, "newest", others + 1);
        assert!(holder.is_running() && plain.is_running());
        drop(holder.stdin.take());
        holder.finish().code(0);
        plain.wait_for("plain");
        plain.finish().code(0);
        if let Some(kazoo) = &mut other {
            kazoo.holds("mine");
            kazoo.ask("unlock mine");
        }
        last.finish().code(0).printed(&["ran"]);
    });
}

/// The server ends the session of the waiter, which is stopped. It enters again behind the newer one.
#[test]
fn a_waiter_that_lost_its_session_is_older_than_one_that_came_meanwhile() {
    with_server(|server| {
        for comes_before_its_end in [false, true] {
            let mut holder = run(server, "returns").hold(HOLD);
            let older = newest(server, "returns");
            until_waiting(server, "returns", 1);
            older.signal(Signal::SIGSTOP);
            let told = || {
                let seen = about(server, "inspect", "returns").finish().code(0);
                seen.stdout.join(" ")
            };
            if !comes_before_its_end {
                eventually("its session is over", || !told().contains(" wait"));
            }
            let newer = run(server, "returns").stdin(Stdio::piped());
            let newer = newer.args(["--supersede", "--", "sh", "-c", HOLD]);
            let mut newer = newer.spawn();
            let pid = format!("pid {},", newer.pid());
            eventually("the newer one waits alone", || {
                let told = told();
                told.contains(": 1 wait") && told.contains(&pid)
            });
            // It finds the newer one as a waiter, and then as the holder.
            if comes_before_its_end {
                drop(holder.stdin.take());
                newer.wait_for("ready");
            }
            older.signal(Signal::SIGCONT);
            is_superseded(older, "returns");
            assert!(newer.is_running());
            drop(holder.stdin.take());
            holder.finish().code(0);
            drop(newer.stdin.take());
            newer.finish().code(0);
        }
    });
}

#[test]
fn of_several_that_come_at_once_one_stays() {
    with_server(|server| {
        let mut holder = run(server, "storm").hold(HOLD);
        let mut all: Vec<Running> = (0..6).map(|_| newest(server, "storm")).collect();
        eventually("one is left", || {
            all.iter_mut()
                .filter_map(|one| one.is_running().then_some(()))
                .count()
                == 1
        });
        drop(holder.stdin.take());
        holder.finish().code(0);
        let ended = all.into_iter().map(Running::finish);
        let ran = ended.filter(|one| one.exited_with(0)).count();
        assert_eq!(ran, 1);
    });
}
