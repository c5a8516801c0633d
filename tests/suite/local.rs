//! The embedded `local` node: flock(2) in a directory of this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::support::{Running, alive, eventually, median_is_below, rlock, rlock_words};

/// A directory with locks.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("local:{}", self.dir.path().display())
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path())
            .expect("a directory")
            .flatten();
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != ".fence")
            .collect()
    }

    pub(crate) fn hold(&self, script: &str) -> Running {
        rlock("job")
            .node(&self.url())
            .stdin(Stdio::piped())
            .hold(script)
    }
}

#[test]
fn the_lock_excludes_and_names_its_holder_and_leaves_no_file() {
    let place = Place::new();
    let mut holder = place.hold("echo ready; read line; true");
    let pid = holder.pid().to_string();
    let busy = rlock("job")
        .node(&place.url())
        .args(["-n"])
        .sh("echo ran")
        .code(75)
        .printed(&[]);
    busy.said(&["busy", "tester@", &pid, "running sh"]);
    let words = ["break", "job", "other", "--yes"];
    let unbroken = rlock_words(words).node(&place.url()).finish().code(64);
    unbroken.mentions(&[
        "break needs a server",
        "it is held by tester@",
        &format!("pid {pid}, running sh"),
    ]);
    assert!(holder.is_running());
    rlock("other")
        .node(&place.url())
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    drop(holder.stdin.take());
    holder.finish().code(0).silent();
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_waiter_gets_it_next() {
    let place = Place::new();
    let mut holder = place.hold("echo ready; read line; true");
    let mut waiter = rlock("job")
        .node(&place.url())
        .args(["--", "echo", "mine"])
        .spawn();
    assert!(waiter.is_running());
    drop(holder.stdin.take());
    holder.finish().code(0);
    waiter.finish().code(0).printed(&["mine"]);
}

#[test]
fn a_waiter_is_woken_by_the_release_and_does_not_poll() {
    let place = Place::new();
    // A waiter that polled every 100 to 250 ms would find it after some 90 ms.
    let usual = || {
        let run = rlock("job").node(&place.url());
        run.command(["echo", "mine"]).code(0).took
    };
    median_is_below(Duration::from_millis(45), 20, usual, || {
        let mut holder = place.hold("echo ready; read line; true");
        let mut waiter = rlock("job")
            .node(&place.url())
            .args(["-v", "--", "echo", "mine"])
            .spawn();
        waiter.wait_until_told("waiting");
        drop(holder.stdin.take());
        let begin = Instant::now();
        waiter.wait_for("mine");
        let gap = begin.elapsed();
        waiter.finish().code(0);
        holder.finish().code(0);
        gap
    });
}

#[test]
fn a_lock_whose_file_was_not_deleted_passes_on_too() {
    let place = Place::new();
    let holder = place.hold("echo ready; read line; true");
    let mut waiter = rlock("job")
        .node(&place.url())
        .args(["-v", "--", "echo", "mine"])
        .spawn();
    waiter.wait_until_told("waiting");
    holder.signal(Signal::SIGKILL);
    waiter.wait_for("mine");
    waiter.finish().code(0);
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn each_of_many_waiters_gets_the_lock_once() {
    let place = Place::new();
    let log = place.dir.path().join("log");
    let script = format!(
        "echo begin >> {0}; sleep 0.01; echo end >> {0}",
        log.display()
    );
    let mut holder = place.hold("echo ready; read line; true");
    let waiters: Vec<Running> = (0..20)
        .map(|_| {
            rlock("job")
                .node(&place.url())
                .args(["-v", "-c", &script])
                .spawn()
        })
        .collect();
    let waiters: Vec<Running> = waiters
        .into_iter()
        .map(|mut waiter| {
            waiter.wait_until_told("waiting");
            waiter
        })
        .collect();
    drop(holder.stdin.take());
    holder.finish().code(0);
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert_eq!(
        std::fs::read_to_string(&log).expect("a log"),
        "begin\nend\n".repeat(20)
    );
}

#[test]
fn any_key_is_a_safe_name() {
    let place = Place::new();
    let long = "k".repeat(1024);
    for key in [
        "../../etc/passwd",
        "..",
        "/",
        "a\nb",
        ".fence",
        "größe 漢字",
        long.as_str(),
    ] {
        rlock(key)
            .node(&place.url())
            .args(["-n"])
            .sh("echo $(ls \"${RLOCK_NODE#local:}\" | wc -l)")
            .code(0)
            .printed(&["1"]);
    }
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn the_lock_ends_with_rlock_however_that_ends() {
    let place = Place::new();
    let mut holder = rlock("job")
        .node(&place.url())
        .args(["--", "sh", "-c", "echo self $$; exec sleep 60"])
        .spawn();
    let command = holder.wait_for_pid("self");
    holder.signal(Signal::SIGKILL);
    eventually("the lock is free", || {
        rlock("job")
            .node(&place.url())
            .args(["-n", "-q", "-E", "9"])
            .command(["true"])
            .stdout
            .is_empty()
            && place.files().is_empty()
    });
    if alive(command) {
        crate::support::signal(command, Signal::SIGKILL);
    }
}

#[test]
fn a_file_that_was_deleted_or_replaced_is_a_lost_lock() {
    for replace in [false, true] {
        let place = Place::new();
        let mut job = rlock("job")
            .node(&place.url())
            .args([
                "--ttl",
                "900ms",
                "--",
                "sh",
                "-c",
                "echo self $$; exec sleep 60",
            ])
            .spawn();
        let command = job.wait_for_pid("self");
        let file = place.dir.path().join("job.lock");
        std::fs::remove_file(&file).expect("the lock's file");
        if replace {
            std::fs::write(&file, "another's").expect("a file");
        }
        job.finish().code(79).mentions(&["job", "lost the lock"]);
        assert!(!alive(command));
        assert_eq!(file.exists(), replace, "another's file is left alone");
    }
}

#[test]
fn a_lock_that_is_taken_away_is_noticed_long_before_the_next_renewal() {
    let deleted = |place: &Path| std::fs::remove_file(place.join("job.lock"));
    let moved = |place: &Path| std::fs::rename(place.join("job.lock"), place.join("elsewhere"));
    let without_its_directory =
        |place: &Path| std::fs::rename(place, place.with_extension("moved"));
    for take_away in [deleted, moved, without_its_directory] {
        let place = Place::new();
        let locks = place.dir.path().join("locks");
        let url = format!("local:{}", locks.display());
        // The lease is renewed every 10 s.
        let mut job = rlock("job")
            .node(&url)
            .args(["--", "sh", "-c", "echo self $$; exec sleep 60"])
            .spawn();
        let command = job.wait_for_pid("self");
        take_away(&locks).expect("a file that can be taken away");
        let begin = Instant::now();
        job.finish().code(79).mentions(&["job", "lost the lock"]);
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        assert!(!alive(command));
    }
}

#[test]
fn a_waiter_finds_the_lock_in_the_directory_that_took_the_place_of_the_first() {
    let place = Place::new();
    let locks = place.dir.path().join("locks");
    let url = format!("local:{}", locks.display());
    let holder = rlock("job").node(&url).hold("echo ready; read line; true");
    let mut waiter = rlock("job")
        .node(&url)
        .args(["-v", "--", "echo", "mine"])
        .spawn();
    waiter.wait_until_told("waiting");
    std::fs::rename(&locks, place.dir.path().join("moved")).expect("a directory");
    waiter.finish().code(0).printed(&["mine"]);
    holder.finish().code(79);
}

#[test]
fn a_look_tells_a_holder_from_a_leftover_and_keeps_no_taker_out() {
    let place = Place::new();
    let holder = place.hold("echo ready; read line; true");
    rlock_words(["inspect", "job", "--node", &place.url()])
        .finish()
        .code(0);
    holder.signal(Signal::SIGKILL);
    eventually("the lock is free", || {
        rlock_words(["inspect", "job", "--node", &place.url()])
            .finish()
            .exited_with(1)
    });
    let file = place.dir.path().join("job.lock");
    let leftover = std::fs::read(&file).expect("what a killed holder leaves");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            while !over.load(Ordering::Relaxed) {
                rlock_words(["inspect", "job", "--node", &place.url()]).finish();
            }
        };
        scope.spawn(look);
        scope.spawn(look);
        for _ in 0..40 {
            rlock("job")
                .node(&place.url())
                .args(["-n"])
                .command(["true"])
                .code(0)
                .silent();
            std::fs::write(&file, &leftover).expect("a leftover");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its mode");
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_that_is_held_is_kept_young() {
    let place = Place::new();
    let file = place.dir.path().join("job.lock");
    let holder = rlock("job")
        .node(&place.url())
        .args(["--ttl", "900ms"])
        .hold("echo ready; read line; true");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let opened = std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .expect("the lock's file");
    opened.set_modified(old).expect("its age");
    eventually("it is touched", || {
        opened
            .metadata()
            .and_then(|it| it.modified())
            .expect("its age")
            > old
    });
    holder.finish().code(0).silent();
}

#[test]
fn locks_of_one_directory_share_a_fence_that_only_increases() {
    let place = Place::new();
    let fence = |key: &str| -> u64 {
        rlock(key)
            .node(&place.url())
            .sh("echo $RLOCK_FENCE")
            .code(0)
            .stdout[0]
            .parse()
            .expect("a number")
    };
    let mut last = 0;
    for key in ["a", "b", "a", "a"] {
        let next = fence(key);
        assert!(next > last);
        last = next;
    }
    let ahead = (1u64 << 51).to_string();
    std::fs::write(place.dir.path().join(".fence"), &ahead).expect("the counter");
    assert_eq!(fence("a"), (1 << 51) + 1);
    assert_eq!(
        std::fs::metadata(place.dir.path().join(".fence"))
            .expect("it")
            .permissions()
            .mode()
            & 0o077,
        0
    );
}
