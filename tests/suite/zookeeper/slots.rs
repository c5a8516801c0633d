//! `--slots`: the semaphore of Curator (`InterProcessSemaphoreV2`), in one line with its clients.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::ZooKeeper;

use crate::kinds::nesting::each_kind_covers_its_own;
use crate::support::{Delay, Proxy, RLOCK, Rlock, alive, eventually, rlock, rlock_words};

use super::{
    HOLD, about, curator, kazoo, overlap_or_next, run, run_for, run_patiently, until_waiting,
    waiter, with_server,
};

/// A command that holds its slot until its stdin ends. It prints the slot, its fence and its pid.
const SLOT: &str =
    "echo slot $RLOCK_SLOT; echo fence $RLOCK_FENCE; echo pid $$; echo ready; read _; true";

fn slot(server: &ZooKeeper, name: &str) -> Rlock {
    run(server, name).args(["--slots", "2"])
}

/// Returns what `inspect` tells of a lock.
fn told(server: &ZooKeeper, words: &[&str]) -> String {
    let seen = rlock_words([&["inspect"], words].concat())
        .node(&server.url())
        .finish();
    seen.stdout.join("\n")
}

#[test]
fn each_slot_has_one_holder_and_waiters_get_the_next_one_in_their_order() {
    with_server(|server| {
        let mut first = slot(server, "slots").hold(SLOT);
        let second = slot(server, "slots").hold(SLOT);
        let (one, two) = (
            first.seen_pids(&["slot"])[0],
            second.seen_pids(&["slot"])[0],
        );
        assert_eq!(one + two, 3);
        let busy = slot(server, "slots").args(["-n"]).sh("true").code(75);
        busy.mentions(&["slots by"]);
        let seen = told(server, &["slots"]);
        for word in ["slots 2/2", "slot 1", "slot 2"] {
            assert!(seen.contains(word), "{seen}");
        }
        let say = "echo slot $RLOCK_SLOT; echo fence $RLOCK_FENCE; echo end $(date +%s%N)";
        let mut waiters: Vec<_> = (1..=3)
            .map(|count| {
                let waiter = slot(server, "slots").args(["--", "sh", "-c", say]).spawn();
                until_waiting(server, "slots", count);
                waiter
            })
            .collect();
        let mut fences = first.seen_pids(&["fence"]);
        drop(first.stdin.take());
        first.finish().code(0);
        let mut ends = Vec::new();
        for waiter in &mut waiters {
            assert_eq!(waiter.wait_for_pid("slot"), one);
            fences.push(waiter.wait_for_pid("fence"));
            ends.push(waiter.wait_for("end"));
        }
        assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
        assert!(ends.is_sorted(), "{ends:?}");
        drop(second);
    });
}

#[test]
fn runs_that_come_at_once_get_all_slots_though_they_do_not_wait() {
    with_server(|server| {
        for round in 0..4 {
            let name = format!("at-once-{round}");
            let many = || run(server, &name).args(["--slots", "4", "-n"]);
            let mut all: Vec<_> = (0..4)
                .map(|_| many().args(["--", "sh", "-c", "echo got; read _; true"]))
                .map(|run| run.stdin(Stdio::piped()).spawn())
                .collect();
            for run in &mut all {
                run.wait_for("got");
            }
            many().sh("true").code(75);
        }
    });
}

#[test]
fn no_run_is_superseded_for_which_a_slot_is_free() {
    with_server(|server| {
        for round in 0..4 {
            let name = format!("superseded-{round}");
            let runs: Vec<_> = (0..4)
                .map(|_| run(server, &name).args(["--slots", "4", "--supersede"]))
                .map(|run| run.args(["--", "sh", "-c", "echo got; read _; true"]))
                .map(|run| run.stdin(Stdio::piped()).spawn())
                .collect();
            for mut run in runs {
                run.wait_for("got");
                drop(run.stdin.take());
                run.finish().code(0);
            }
        }
    });
}

#[test]
fn kinds_and_other_numbers_of_slots_exclude_each_other() {
    with_server(|server| {
        let kinds: [&[&str]; 4] = [&[], &["-s"], &["--slots", "2"], &["--slots", "3"]];
        for held in kinds {
            let mut holder = run(server, "kinds").args(held).hold(HOLD);
            for wanted in kinds.iter().filter(|wanted| **wanted != held) {
                run(server, "kinds")
                    .args(*wanted)
                    .args(["-n"])
                    .sh("true")
                    .code(75);
            }
            // One of another kind waits for it, and later ones of its kind wait behind that.
            let other = kinds[usize::from(held.is_empty())];
            let mut next = run(server, "kinds")
                .args(other)
                .args(["--", "echo", "next"])
                .spawn();
            until_waiting(server, "kinds", 1);
            run(server, "kinds")
                .args(held)
                .args(["-n"])
                .sh("true")
                .code(75);
            drop(holder.stdin.take());
            holder.finish().code(0);
            next.wait_for("next");
            next.finish().code(0);
        }
    });
}

#[test]
fn a_run_inside_another_one_goes_with_its_slot() {
    with_server(|server| {
        each_kind_covers_its_own(|options| run(server, "job").args(options));
        let inside = slot(server, "inside").env("RLOCK", RLOCK);
        let inside = inside.hold(
            "echo ready; read _; echo $RLOCK_SLOT; \"$RLOCK\" run -k inside --slots 2 -- sh -c 'echo $RLOCK_SLOT'",
        );
        // Another slot is free, and then none is.
        let told = inside.finish().code(0).stdout;
        assert_eq!(told[1], told[2]);
        let _other = slot(server, "inside").hold(SLOT);
        let inside = slot(server, "inside").env("RLOCK", RLOCK);
        let inside = inside.sh("\"$RLOCK\" run -k inside --slots 2 -n -- echo inner");
        inside.code(0).printed(&["inner"]);
        // A reader inside a reader does not wait for a writer between them.
        let inside = run(server, "inside-shared").args(["-s"]);
        let inside = inside
            .env("RLOCK", RLOCK)
            .hold("echo ready; read _; \"$RLOCK\" run -k inside-shared -s -w 5s -- echo inner");
        let mut writer = waiter(server, "inside-shared", 1, "echo wrote");
        inside.finish().code(0).printed(&["ready", "inner"]);
        writer.wait_for("wrote");
    });
}

#[test]
fn slots_are_shared_with_curators_semaphore_and_its_clients_stand_in_the_same_line() {
    with_server(|server| {
        let Some(mut curator) = curator(server) else {
            return;
        };
        // Of two slots Curator has one, and rlock the other.
        curator.ask("lock one Slots2 /both");
        curator.holds("one");
        let mut holder = slot(server, "both").hold(SLOT);
        let busy = slot(server, "both").args(["-n"]).sh("true").code(75);
        busy.mentions(&["held by"]);
        // Curator, rlock, and Curator again wait in this order.
        curator.ask("lock two Slots2 /both");
        until_waiting(server, "both", 1);
        let next = slot(server, "both").stdin(Stdio::piped());
        let mut next = next.args(["--", "sh", "-c", SLOT]).spawn();
        until_waiting(server, "both", 2);
        curator.ask("lock three Slots2 /both");
        until_waiting(server, "both", 3);
        assert!(!curator.has("two"));
        drop(holder.stdin.take());
        holder.finish().code(0);
        curator.holds("two");
        slot(server, "both").args(["-n"]).sh("true").code(75);
        until_waiting(server, "both", 2);
        curator.ask("unlock one");
        next.wait_for("ready");
        assert!(!curator.has("three"));
        drop(next.stdin.take());
        next.finish().code(0);
        curator.holds("three");
        slot(server, "both").args(["-n"]).sh("true").code(75);
        curator.ask("unlock two");
        slot(server, "both").sh("true").code(0);
        curator.ask("unlock three");
    });
}

/// As by a client of Curator that has lost its session, and with it the mutex.
#[test]
fn a_lease_that_is_made_out_of_turn_takes_no_slot_and_gives_none() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let _holder = slot(server, "out-of-turn").hold(SLOT);
        let is_asked = Arc::new(AtomicBool::new(false));
        let is_let = Arc::new(AtomicBool::new(false));
        let (asked, let_go) = (Arc::clone(&is_asked), Arc::clone(&is_let));
        let delays = move |_| {
            let (asked, let_go) = (Arc::clone(&asked), Arc::clone(&let_go));
            let written = AtomicUsize::new(0);
            let request = move || {
                // The session with the entries, and the data of the leases: the lease comes next.
                if written.fetch_add(1, Ordering::Relaxed) == 2 {
                    asked.store(true, Ordering::Relaxed);
                    while !let_go.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                Duration::ZERO
            };
            [Box::new(request) as Delay, Box::new(|| Duration::ZERO)]
        };
        let proxy = Proxy::open(Ipv4Addr::LOCALHOST, server.port(), delays).expect("a proxy");
        let late = rlock("out-of-turn").node(&format!("zookeeper://127.0.0.1:{}", proxy.port()));
        let late = late.args(["--slots", "2", "--ttl", "60s", "--node-timeout", "10s"]);
        let mut late = late.args(["--", "echo", "ran"]).spawn();
        eventually("it asks for its lease", || is_asked.load(Ordering::Relaxed));
        let lease = kazoo.ask("lease /out-of-turn");
        is_let.store(true, Ordering::Relaxed);
        // It gives its lease up, and enters again.
        eventually("it stands at the end", || {
            let entries = kazoo.ask("children /out-of-turn");
            // The numbers 0 and 1 are those of the znodes of the semaphore.
            entries.contains("-slots-2-0000000013") && !entries.contains("-slots-2-0000000009")
        });
        assert!(late.is_running());
        kazoo.ask(&format!("delete {lease}"));
        late.wait_for("ran");
        late.finish().code(0);
    });
}

#[test]
fn leases_of_curator_are_found_shown_and_deleted_on_request() {
    with_server(|server| {
        let Some(mut curator) = curator(server) else {
            return;
        };
        curator.ask("lock one Slots2 /found/semaphore");
        curator.holds("one");
        let seen = told(server, &["found/semaphore"]);
        assert!(seen.contains("not rlock"), "{seen}");
        let seen = told(server, &[]);
        assert!(
            seen.contains("found/semaphore") && !seen.contains("semaphore/"),
            "{seen}"
        );
        let holder = slot(server, "found/semaphore").hold(SLOT);
        about(server, "break", "found/semaphore")
            .args(["--yes", "--foreign"])
            .finish()
            .code(0);
        slot(server, "found/semaphore")
            .args(["-n"])
            .sh("true")
            .code(0);
        drop(holder);
    });
}

/// Curator counts whatever is there.
#[test]
fn a_znode_that_takes_up_a_slot_is_shown_and_deleted_on_request() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        slot(server, "strange").sh("true").code(0);
        for name in ["one", "two"] {
            kazoo.ask(&format!("protect /strange/leases/{name}"));
        }
        let busy = slot(server, "strange").args(["-n"]).sh("true").code(75);
        busy.mentions(&["the entry leases/one of session"]);
        let seen = told(server, &["strange"]);
        assert!(seen.contains("not rlock"), "{seen}");
        about(server, "break", "strange")
            .args(["--yes", "--foreign"])
            .finish()
            .code(0);
        slot(server, "strange").args(["-n"]).sh("true").code(0);
    });
}

#[test]
fn a_slot_whose_lease_is_deleted_by_hand_is_lost_at_once() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let holder = run_for(server, "lease", "60s")
            .args(["--slots", "2"])
            .hold(SLOT);
        let other = run_for(server, "lease", "60s")
            .args(["--slots", "2"])
            .hold(SLOT);
        // A holder listens after a second.
        std::thread::sleep(Duration::from_millis(1500));
        let begun = Instant::now();
        let leases = kazoo.ask("children /lease/leases");
        let first = leases
            .split(' ')
            .min_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        kazoo.ask(&format!("delete /lease/leases/{}", first.expect("a lease")));
        let pid = holder.seen_pids(&["pid"])[0];
        eventually("the command is dead", || !alive(pid));
        // The first renewal is due after 20 s.
        assert!(begun.elapsed() < Duration::from_secs(15));
        holder.finish().code(79);
        let mut other = other;
        assert!(other.is_running());
    });
}

#[test]
fn one_slot_is_broken_and_the_others_go_on() {
    with_server(|server| {
        for now in [&[][..], &["--now"]] {
            let holder = slot(server, "broken-slot").hold(SLOT);
            let mut other = slot(server, "broken-slot").hold(SLOT);
            let number = holder.seen_pids(&["slot"])[0].to_string();
            about(server, "break", "broken-slot")
                .args(["--yes", "--slot", &number])
                .args(now)
                .finish()
                .code(0);
            slot(server, "broken-slot").args(["-n"]).sh("true").code(0);
            holder.finish().code(79);
            assert!(other.is_running());
            drop(other.stdin.take());
            other.finish().code(0);
        }
    });
}

#[test]
fn a_slot_of_a_run_whose_rlock_is_killed_is_free_at_once_and_so_is_a_waiters_place() {
    with_server(|server| {
        let slot = || run_for(server, "killed-slot", "60s").args(["--slots", "2"]);
        let holder = slot().hold(SLOT);
        let mut other = slot().hold(SLOT);
        let gone = slot().args(["--", "true"]).spawn();
        until_waiting(server, "killed-slot", 1);
        let mut next = slot().args(["--", "echo", "next"]).spawn();
        until_waiting(server, "killed-slot", 2);
        gone.signal(Signal::SIGKILL);
        until_waiting(server, "killed-slot", 1);
        let pid = holder.seen_pids(&["pid"])[0];
        let begun = Instant::now();
        holder.signal(Signal::SIGKILL);
        next.wait_for("next");
        assert!(!alive(pid) && begun.elapsed() < Duration::from_secs(20));
        assert!(other.is_running());
    });
}

/// The promise. The server ends the session of an rlock that is stopped, and with it the slot.
#[test]
fn a_stopped_rlock_loses_its_command_before_its_slot() {
    with_server(|server| {
        let holder = slot(server, "stopped-slot").hold(SLOT);
        let _other = slot(server, "stopped-slot").hold(SLOT);
        let pid = holder.seen_pids(&["pid"])[0];
        let script = overlap_or_next(pid);
        let mut next = slot(server, "stopped-slot")
            .args(["--", "sh", "-c", &script])
            .spawn();
        until_waiting(server, "stopped-slot", 1);
        holder.signal(Signal::SIGSTOP);
        next.wait_for("next");
        next.finish().code(0).printed(&["next"]);
        holder.signal(Signal::SIGCONT);
        holder.finish().code(79);
    });
}

#[test]
fn slots_survive_a_server_that_is_away_for_a_moment_and_end_where_it_returns_empty() {
    with_server(|server| {
        let slot = |server: &ZooKeeper| run_patiently(server, "away").args(["--slots", "2"]);
        let mut holder = slot(server).hold(SLOT);
        let other = slot(server).hold(SLOT);
        let mut next = slot(server).args(["--", "echo", "next"]).spawn();
        until_waiting(server, "away", 1);
        server.crash();
        server.come_back();
        slot(server).args(["-n"]).sh("true").code(75);
        drop(holder.stdin.take());
        holder.finish().code(0);
        next.wait_for("next");
        next.finish().code(0);
        server.crash();
        server.forget();
        server.come_back();
        other.finish().code(79);
    });
}

#[test]
fn a_slot_stays_for_a_time_and_keeps_its_number() {
    with_server(|server| {
        let stays = slot(server, "stays-slot").args(["--hold-at-least", "12s"]);
        let begun = Instant::now();
        let ended = stays.sh("echo $RLOCK_SLOT").code(0);
        let other = slot(server, "stays-slot").hold(SLOT);
        assert_ne!(other.seen_pids(&["slot"])[0].to_string(), ended.stdout[0]);
        let busy = slot(server, "stays-slot").args(["-n"]).sh("true");
        busy.code(75);
        assert!(told(server, &["stays-slot"]).contains("parked"));
        let next = slot(server, "stays-slot").sh("echo $RLOCK_SLOT").code(0);
        next.printed(&[&ended.stdout[0]]);
        assert!(begun.elapsed() >= Duration::from_secs(12));
    });
}

#[test]
fn a_slot_that_no_process_keeps_is_renewed_and_released() {
    with_server(|server| {
        let acquire = || about(server, "acquire", "kept-slot").args(["--slots", "2"]);
        let one = acquire()
            .args(["--ttl", "12s", "--node-timeout", "2s"])
            .finish()
            .code(0);
        let two = acquire().args(["--ttl", "60s"]).finish().code(0);
        let of = |word: &str, token: &str| {
            about(server, word, "kept-slot")
                .args(["--token", token, "--node-timeout", "2s"])
                .finish()
        };
        let begun = Instant::now();
        // Longer than a lease without renewals.
        while begun.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_secs(2));
            of("renew", &one.stdout[0]).code(0);
            let busy = run_patiently(server, "kept-slot").args(["--slots", "2"]);
            busy.args(["-n"]).sh("true").code(75);
        }
        of("check", &one.stdout[0]).code(0);
        of("release", &two.stdout[0]).code(0);
        slot(server, "kept-slot").args(["-n"]).sh("true").code(0);
        of("release", &one.stdout[0]).code(0);
        run(server, "kept-slot").args(["-n"]).sh("true").code(0);
    });
}
