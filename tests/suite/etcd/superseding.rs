//! `--supersede`: of the waiters that have it, the last that came goes on.

use nix::sys::signal::Signal;

use super::{HOLD, LONG, wait_for_entries, wait_for_leases};
use crate::supersede::{has_run, is_superseded};
use crate::support::{Etcd, Rlock, Running, eventually, rlock, rlock_words};

const SUPERSEDE: &[&str] = &["--supersede"];

/// The key that names the last waiter.
const NEWEST: &str = "rlock:newest:job";

fn job(etcd: &Etcd, options: &[&str]) -> Rlock {
    rlock("job").node(&etcd.url()).args(options)
}

/// Starts a waiter that prints `ran` once it has the lock, and waits until it stands in the line.
fn queued(etcd: &Etcd, options: &[&str]) -> Running {
    let waiter = job(etcd, options).args(["--", "echo", "ran"]).spawn();
    let pid = format!("\"pid\":{},", waiter.pid());
    eventually("it stands in the line", || {
        etcd.ctl(&["get", "--prefix", "job/"]).contains(&pid)
    });
    waiter
}

#[test]
fn the_newer_run_is_named_and_has_ended_the_older_one_though_it_gives_up() {
    let Some(etcd) = Etcd::start(1) else { return };
    let holder = job(&etcd, &[]).hold(HOLD);
    let older = queued(&etcd, SUPERSEDE);
    let newer = queued(&etcd, &["--supersede", "--note", "build 77"]);
    older
        .finish()
        .code(76)
        .said(&["superseded by tester@", "(build 77), which came later"]);
    // The holder's, the waiter's and the key's, which all waiters extend.
    wait_for_leases(&etcd, 3);
    newer.signal(Signal::SIGTERM);
    newer.finish().code(143);
    let newest = queued(&etcd, SUPERSEDE);
    wait_for_leases(&etcd, 3);
    // One that is killed leaves its place to its guard, and nothing else.
    newest.signal(Signal::SIGKILL);
    let newest = queued(&etcd, SUPERSEDE);
    wait_for_leases(&etcd, 3);
    drop(holder);
    has_run(newest);
    wait_for_entries(&etcd, 0);
    // What stays is one key that ends by itself.
    assert!(etcd.keys().contains(&NEWEST.to_owned()));
    wait_for_leases(&etcd, 1);
}

#[test]
fn of_fifteen_that_come_at_once_one_stays() {
    let Some(etcd) = Etcd::start(1) else { return };
    let holder = job(&etcd, &LONG).hold(HOLD);
    let mut all: Vec<Running> = (0..15)
        .map(|_| job(&etcd, SUPERSEDE).args(["--", "echo", "ran"]).spawn())
        .collect();
    eventually("one is left", || {
        let runs = all.iter_mut().map(Running::is_running);
        runs.filter(|runs| *runs).count() == 1
    });
    drop(holder);
    let ended: Vec<_> = all.into_iter().map(Running::finish).collect();
    let ran = ended.iter().filter(|one| one.exited_with(0)).count();
    let superseded = ended.iter().filter(|one| one.exited_with(76)).count();
    assert_eq!((ran, superseded), (1, 14));
    wait_for_entries(&etcd, 0);
}

#[test]
fn holders_and_waiters_without_the_option_are_left_alone() {
    let Some(etcd) = Etcd::start(1) else { return };
    for kind in [&["--supersede"][..], &["-s", "--supersede"]] {
        let holder = job(&etcd, &["--supersede"]).hold(HOLD);
        let plain = queued(&etcd, &[]);
        let older = queued(&etcd, kind);
        let acquire = rlock_words(["acquire", "-k", "job", "--supersede"])
            .node(&etcd.url())
            .spawn();
        is_superseded(older, "job");
        let newer = queued(&etcd, kind);
        is_superseded(acquire, "job");
        // Nor does one that finds the lock busy end any.
        job(&etcd, &["-n", "--supersede"]).sh("true").code(75);
        drop(holder);
        has_run(plain);
        has_run(newer);
    }
}

#[test]
fn a_waiter_that_was_stopped_does_not_run_after_a_newer_one() {
    let Some(etcd) = Etcd::start(1) else { return };
    // The newer one stands in line, or gets the lock at once.
    for at_once in [false, true] {
        let holder = job(&etcd, &[]).hold(HOLD);
        let older = queued(&etcd, &["--supersede", "--ttl", "3s"]);
        older.signal(Signal::SIGSTOP);
        let newer = (!at_once).then(|| queued(&etcd, SUPERSEDE));
        // Its place has ended with its lease.
        wait_for_entries(&etcd, if at_once { 1 } else { 2 });
        drop(holder);
        wait_for_entries(&etcd, 0);
        let words = ["-n", "--supersede", "--", "echo", "ran"];
        has_run(newer.unwrap_or_else(|| job(&etcd, &words).spawn()));
        older.signal(Signal::SIGCONT);
        is_superseded(older, "job");
        wait_for_entries(&etcd, 0);
    }
}
