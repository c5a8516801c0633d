//! Shared locks and slots on this machine alone: who holds beside whom, who waits for whom, and
//! what is left.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::nesting::each_kind_covers_its_own;
use super::{SHARED, SLOTS, all_end};
use crate::local::Place;
use crate::support::{
    RLOCK, Rlock, Running, alive, eventually, guard_of, median_is_below, rlock, rlock_words,
    signal, state,
};

/// Returns `rlock run` for the lock `job`, to be completed.
fn job(place: &Place, options: &[&str]) -> Rlock {
    rlock("job").node(&place.url()).args(options)
}

fn hold(place: &Place, options: &[&str]) -> Running {
    job(place, options).hold("echo ready; read line; true")
}

/// Starts a waiter, and waits until it waits.
fn waits(place: &Place, options: &[&str], name: &str) -> Running {
    let mut waiter = job(place, options).args(["-v", "--", "echo", name]).spawn();
    waiter.wait_until_told("waiting");
    waiter
}

/// Whether a waiter keeps newcomers out: it has the gate's file locked. The file alone is there a
/// moment before.
fn closes_the_gate(place: &Place) -> bool {
    let Ok(gate) = std::fs::metadata(place.dir.path().join("job.gate")) else {
        return false;
    };
    let of_gate = format!(":{} ", gate.ino());
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
    locks
        .lines()
        .any(|lock| lock.contains("OFDLCK") && lock.contains(&of_gate))
}

/// Checks that clients that give one of these find the lock busy.
#[track_caller]
fn is_busy_for(place: &Place, kinds: &[&[&str]]) {
    for options in kinds {
        job(place, options)
            .args(["-n"])
            .sh("echo ran")
            .code(75)
            .printed(&[]);
    }
}

#[track_caller]
fn nothing_is_left(place: &Place) {
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn readers_hold_together_and_keep_all_others_out() {
    let place = Place::new();
    let readers = [hold(&place, SHARED), hold(&place, SHARED)];
    is_busy_for(&place, &[&[], SLOTS]);
    all_end(readers, 0);
    nothing_is_left(&place);
    let writer = hold(&place, &[]);
    is_busy_for(&place, &[SHARED, SLOTS, &[]]);
    writer.finish().code(0).silent();
    nothing_is_left(&place);
}

#[test]
fn slots_are_given_to_as_many_as_there_are_and_each_has_its_own_number() {
    let (place, options) = (Place::new(), ["--slots", "3"]);
    let mut holders: Vec<Running> = (0..3)
        .map(|_| job(&place, &options).hold("echo ready; echo slot $RLOCK_SLOT; read line; true"))
        .collect();
    is_busy_for(&place, &[&options, SLOTS, SHARED, &[]]);
    let mut slots: Vec<String> = holders
        .iter_mut()
        .map(|holder| holder.wait_for("slot"))
        .collect();
    slots.sort();
    assert_eq!(slots, ["1", "2", "3"]);
    holders.remove(0).finish().code(0).silent();
    job(&place, &options)
        .args(["-n"])
        .sh("true")
        .code(0)
        .silent();
    all_end(holders, 0);
    nothing_is_left(&place);
    let one =
        job(&place, &["--slots", "1"]).sh("echo ${RLOCK_SLOT-none}; ls \"${RLOCK_NODE#local:}\"");
    one.code(0).printed(&["none", "job.lock"]);
}

#[test]
fn members_are_shown_and_checked_each() {
    let place = Place::new();
    let inspect = || rlock_words(["inspect", "job", "--node", &place.url()]).finish();
    let check = format!(
        "echo ready; {RLOCK} check && echo still $RLOCK_SLOT; read line; {RLOCK} check; echo $?"
    );
    for (options, shown) in [(SHARED, "shared 2"), (SLOTS, "slots 2/2")] {
        let mut members = [
            job(&place, options).hold(&check),
            job(&place, options).hold(&check),
        ];
        for member in &mut members {
            member.wait_for("still");
        }
        let table = inspect().code(0).stdout.join("\n");
        assert!(
            table.contains(shown) && table.matches("tester@").count() == 2,
            "{table}"
        );
        let busy = job(&place, &["-n"]).sh("true").code(75);
        let words = if options == SHARED {
            "busy: held shared by tester@"
        } else {
            "busy: held in 2 of 2 slots by"
        };
        busy.said(&[words, " and 1 more"]);
        let lines = members.map(|member| member.finish().code(0).stdout.pop());
        assert_eq!(lines, [Some("0".to_owned()), Some("0".to_owned())]);
        inspect().code(1);
    }
}

#[test]
fn the_guard_keeps_a_members_place_until_the_command_is_dead() {
    for options in [SHARED, SLOTS] {
        let place = Place::new();
        let mut member = job(&place, options).hold("echo work $$; echo ready; read line; true");
        let [work] = member.seen_pids(&["work"])[..] else {
            panic!("a pid")
        };
        let guard = guard_of(member.pid());
        signal(guard, Signal::SIGSTOP);
        // The stopped guard is replaced, and the next one has both files.
        eventually("another guard stands in", || {
            guard_of(member.pid()) != guard
        });
        member.signal(Signal::SIGKILL);
        let dead = format!(
            "case $(cut -d' ' -f3 /proc/{work}/stat 2>/dev/null) in Z|X|'') echo dead;; esac"
        );
        job(&place, &[])
            .args(["-c", &dead])
            .finish()
            .code(0)
            .printed(&["dead"]);
        drop(member.stdin.take());
        nothing_is_left(&place);
    }
}

#[test]
fn a_member_that_was_killed_leaves_the_others_alone_and_its_slot_free() {
    let place = Place::new();
    let [stays, killed] = [hold(&place, SLOTS), hold(&place, SLOTS)];
    let waiter = waits(&place, SLOTS, "mine");
    killed.signal(Signal::SIGKILL);
    waiter.finish().code(0).printed(&["mine"]);
    is_busy_for(&place, &[&[]]);
    stays.finish().code(0).silent();
    nothing_is_left(&place);
    let last = hold(&place, SHARED);
    last.signal(Signal::SIGKILL);
    waits_out(&place);
    assert_ne!(place.files(), [""; 0]);
    job(&place, &["-n"]).sh("true").code(0).silent();
    nothing_is_left(&place);
}

/// Waits until no member is left.
fn waits_out(place: &Place) {
    let inspect = || rlock_words(["inspect", "job", "--node", &place.url()]).finish();
    eventually("the members are gone", || inspect().exited_with(1));
}

#[test]
fn a_waiter_is_woken_by_the_last_reader_and_by_any_slot() {
    for (options, other) in [
        (SHARED, &[][..]),
        (SLOTS, SLOTS),
        (&[], SHARED),
        (SHARED, SLOTS),
    ] {
        let place = Place::new();
        // A waiter that polled every 100 to 250 ms would find it after some 90 ms.
        let usual = || job(&place, options).command(["echo", "mine"]).code(0).took;
        median_is_below(Duration::from_millis(60), 15, usual, || {
            let mut members = vec![hold(&place, options)];
            if !options.is_empty() {
                members.push(hold(&place, options));
            }
            let mut waiter = waits(&place, other, "mine");
            if options == SHARED {
                members.remove(0).finish().code(0);
            }
            drop(members[0].stdin.take());
            let begin = Instant::now();
            waiter.wait_for("mine");
            let gap = begin.elapsed();
            all_end(members, 0);
            waiter.finish().code(0);
            gap
        });
        nothing_is_left(&place);
    }
}

#[test]
fn readers_that_come_later_wait_behind_a_writer() {
    let place = Place::new();
    let reader = hold(&place, SHARED);
    let writer = job(&place, &["-v"]).args(["--", "sh", "-c", "echo ready; read line; true"]);
    let mut writer = writer.stdin(Stdio::piped()).spawn();
    writer.wait_until_told("waiting");
    eventually("the gate is closed", || closes_the_gate(&place));
    is_busy_for(&place, &[SHARED]);
    let later = waits(&place, SHARED, "later");
    reader.finish().code(0).silent();
    writer.wait_for("ready");
    assert!(!closes_the_gate(&place));
    writer.finish().code(0);
    later.finish().code(0).printed(&["later"]);
    nothing_is_left(&place);
}

#[test]
fn a_writer_that_gives_up_or_dies_lets_the_readers_go_on() {
    for dies in [false, true] {
        let place = Place::new();
        let reader = hold(&place, SHARED);
        let writer = waits(&place, if dies { &[] } else { &["-w", "1"] }, "ran");
        eventually("the gate is closed", || closes_the_gate(&place));
        let later = waits(&place, SHARED, "later");
        if dies {
            writer.signal(Signal::SIGKILL);
        } else {
            writer.finish().code(75);
        }
        later.finish().code(0).printed(&["later"]);
        reader.finish().code(0).silent();
        nothing_is_left(&place);
    }
}

#[test]
fn a_run_that_waits_for_another_of_its_locks_again_lets_the_readers_go_on() {
    let place = Place::new();
    let reader = hold(&place, SHARED);
    let mut writer = rlock("first")
        .node(&place.url())
        .args(["-k", "job", "-v", "--", "echo", "writer"])
        .spawn();
    writer.wait_until_told("waiting");
    eventually("the gate is closed", || closes_the_gate(&place));
    writer.signal(Signal::SIGSTOP);
    eventually("it is stopped", || state(writer.pid()) == Some('T'));
    std::fs::remove_file(place.dir.path().join("first.lock")).expect("a file");
    let other = rlock("first")
        .node(&place.url())
        .hold("echo ready; read line; true");
    writer.signal(Signal::SIGCONT);
    eventually("the gate is open", || !closes_the_gate(&place));
    job(&place, SHARED)
        .args(["-n"])
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
    other.finish().code(0);
    reader.finish().code(0);
    writer.finish().code(0).printed(&["writer"]);
    nothing_is_left(&place);
}

#[test]
fn a_writer_that_is_stopped_is_passed_over_after_a_second() {
    let place = Place::new();
    // On a busy machine the reader with -n may come after that second.
    let was_in_time = (0..20).any(|_| {
        let reader = hold(&place, SHARED);
        let writer = waits(&place, &[], "writer");
        eventually("the gate is closed", || closes_the_gate(&place));
        writer.signal(Signal::SIGSTOP);
        eventually("it is stopped", || state(writer.pid()) == Some('T'));
        let begun = Instant::now();
        reader.finish().code(0).silent();
        let asked = job(&place, SHARED).args(["-n"]).sh("true");
        let is_in_time = begun.elapsed() < Duration::from_secs(1);
        if is_in_time {
            asked.code(75).said(&["free, but next in line is"]);
        }
        job(&place, SHARED)
            .args(["-w", "20"])
            .sh("echo ran")
            .code(0)
            .printed(&["ran"]);
        writer.signal(Signal::SIGCONT);
        writer.finish().code(0).printed(&["writer"]);
        nothing_is_left(&place);
        is_in_time
    });
    assert!(was_in_time);
}

#[test]
fn a_members_file_that_is_deleted_is_a_lost_lock() {
    for options in [SHARED, SLOTS] {
        let place = Place::new();
        let mut member = job(&place, options)
            .args(["--", "sh", "-c", "echo self $$; exec sleep 60"])
            .spawn();
        let command = member.wait_for_pid("self");
        std::fs::remove_file(place.dir.path().join("job.lock")).expect("a file");
        member.finish().code(79).mentions(&["job", "lost the lock"]);
        assert!(!alive(command));
    }
}

#[test]
fn an_exclusive_lock_covers_every_kind_and_others_their_own() {
    let place = Place::new();
    each_kind_covers_its_own(|options| job(&place, options));
    nothing_is_left(&place);
}

#[test]
fn a_reader_inside_a_reader_does_not_wait_for_a_writer_between_them() {
    let place = Place::new();
    let outer = job(&place, SHARED).hold(&format!(
        "echo ready; read line; {RLOCK} run -k job -n -s -- echo inner"
    ));
    let writer = waits(&place, &[], "writer");
    eventually("the gate is closed", || closes_the_gate(&place));
    outer.finish().code(0).silent().printed(&["ready", "inner"]);
    writer.finish().code(0).printed(&["writer"]);
    nothing_is_left(&place);
}

#[test]
fn several_locks_are_taken_in_one_kind_and_opposite_orders_all_finish() {
    let (place, dir) = (Place::new(), tempfile::tempdir().expect("a directory"));
    let runs: Vec<Running> = (0..24)
        .map(|number| {
            let keys = if number % 2 == 0 {
                ["a", "b"]
            } else {
                ["b", "a"]
            };
            let (options, script) = match number % 3 {
                0 => (&[][..], witness(dir.path(), "x")),
                1 => (SHARED, witness(dir.path(), "s")),
                _ => (SLOTS, witness(dir.path(), "k")),
            };
            let keys = keys.iter().flat_map(|key| ["-k", key]);
            rlock_words(["run"])
                .args(keys)
                .node(&place.url())
                .args(options)
                .args(["-c", &script])
                .spawn()
        })
        .collect();
    all_end(runs, 0);
    nothing_is_left(&place);
}

/// Returns a script that fails with 9 if a holder of another kind, or of the same slot, runs at the
/// same time.
fn witness(dir: &Path, kind: &str) -> String {
    let dir = dir.display();
    let own = match kind {
        "x" => format!("{dir}/x.alone"),
        "s" => format!("{dir}/s.$$"),
        _ => format!("{dir}/k.$RLOCK_SLOT"),
    };
    let others = format!(
        "for there in {dir}/*; do case $there in {dir}/{kind}.*|\"{dir}/*\");; *) exit 9;; esac; done"
    );
    format!("mkdir {own} || exit 9; {others}; sleep 0.00$(($$ % 8)); {others}; rmdir {own}")
}

#[test]
fn many_processes_of_every_kind_never_overlap_and_no_kind_starves() {
    let (place, dir) = (Place::new(), tempfile::tempdir().expect("a directory"));
    let log = tempfile::tempdir().expect("a directory");
    let client = |number: usize| {
        let (name, options) = [("x", ""), ("s", "-s"), ("s", "-s"), ("k", "--slots 2")][number % 4];
        let count = log.path().join(format!("{name}.{number}"));
        let run = format!(
            "{RLOCK} run -k job {options} -c '{} && echo >> {}'",
            witness(dir.path(), name),
            count.display()
        );
        format!("while [ $(date +%s) -lt $END ]; do {run} || exit 9; done")
    };
    let ends = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a time")
        .as_secs()
        + 6;
    let clients: Vec<std::process::Child> = (0..12)
        .map(|number| {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", &client(number)])
                .env("RLOCK_NODE", place.url())
                .env("END", ends.to_string());
            shell.spawn().expect("a shell")
        })
        .collect();
    for mut client in clients {
        assert!(client.wait().expect("its end").success());
    }
    let grants = |kind: &str| -> usize {
        let files = std::fs::read_dir(log.path()).expect("the log").flatten();
        let of_kind = files.filter(|file| file.file_name().to_string_lossy().starts_with(kind));
        of_kind
            .map(|file| std::fs::read_to_string(file.path()).expect("a log").len())
            .sum()
    };
    let grants = ["x", "s", "k"].map(grants);
    assert!(grants.iter().all(|grants| *grants > 5), "{grants:?}");
    nothing_is_left(&place);
}

#[test]
fn a_writer_is_not_starved_by_readers_that_overlap() {
    let place = Place::new();
    let over = place.dir.path().join("over");
    let loop_of = format!(
        "until [ -e {} ]; do {RLOCK} run -k job -s -- sleep 0.2 || exit 9; done",
        over.display()
    );
    let mut readers: Vec<_> = (0..6)
        .map(|_| {
            Command::new("sh")
                .args(["-c", &loop_of])
                .env("RLOCK_NODE", place.url())
                .spawn()
        })
        .map(|reader| reader.expect("a shell"))
        .collect();
    eventually("readers hold the lock", || {
        place.files().iter().any(|file| file == "job.lock")
    });
    for _ in 0..3 {
        job(&place, &["-w", "20"]).sh("true").code(0);
    }
    std::fs::write(&over, "").expect("a file");
    for reader in &mut readers {
        assert!(reader.wait().expect("its end").success());
    }
    std::fs::remove_file(&over).expect("a file");
    nothing_is_left(&place);
}
