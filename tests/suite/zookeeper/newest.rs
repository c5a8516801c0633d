//! `--supersede`: of the waiters that have it, the last that came goes on.

use testkit::ZooKeeper;

use crate::supersede::is_superseded;
use crate::support::{Running, eventually};

use super::{HOLD, kazoo, run, until_waiting, waiter, with_server};

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
