//! `local:/dir?shared`: the locks of users who trust each other, in one directory.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use tempfile::TempDir;
use testkit::program::install;

use crate::support::{RLOCK, Rlock, eventually, skipped};

/// The group of the users who share the directory.
const GROUP: u32 = 60_000;

/// Two of them, as user and group.
const ALICE: (u32, u32) = (60_001, GROUP);
const BOB: (u32, u32) = (60_002, GROUP);

/// A user who is not in the group.
const EVE: (u32, u32) = (60_003, 60_003);

/// A directory of the group, and a copy of the binary that all users may execute.
struct Shared {
    dir: TempDir,
}

impl Shared {
    /// `None` if there cannot be other users.
    fn new(mode: u32) -> Option<Self> {
        if !Uid::effective().is_root() {
            skipped("only root can be two users");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("its mode");
        install(Path::new(RLOCK), &dir.path().join("rlock"), 0o755).expect("a copy");
        let shared = Self { dir };
        std::fs::create_dir(shared.path()).expect("a directory");
        chown(shared.path(), None, Some(GROUP)).expect("its group");
        shared.set_mode(mode);
        Some(shared)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("locks")
    }

    fn set_mode(&self, mode: u32) {
        std::fs::set_permissions(self.path(), Permissions::from_mode(mode)).expect("its mode");
    }

    fn url(&self) -> String {
        format!("local:{}?shared", self.path().display())
    }

    /// `rlock WORDS…` of a user with a umask that leaves others nothing.
    fn rlock(&self, (uid, gid): (u32, u32), words: &[&str]) -> Rlock {
        let script = ["-c", "umask 077; exec \"$@\"", "sh"];
        Rlock::of("sh", script)
            .args([self.dir.path().join("rlock")])
            .args(words)
            .node(&self.url())
            .env("LOGNAME", &format!("u{uid}"))
            .stdin(Stdio::piped())
            .with(|command| {
                command.uid(uid).gid(gid).current_dir("/");
            })
    }

    fn run(&self, user: (u32, u32), kind: &[&str]) -> Rlock {
        self.rlock(user, &["run", "--key", "job"]).args(kind)
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.path()).expect("it").flatten();
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != ".fence")
            .collect()
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").mode() & 0o7777
}

#[test]
fn users_of_a_group_exclude_each_other_and_pass_the_lock_on() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    for (first, second) in [(ALICE, BOB), (BOB, ALICE)] {
        for (kind, others) in [
            (&[][..], &["-s"][..]),
            (&["-s"], &[]),
            (&["--slots", "2"], &["-s"]),
        ] {
            let mut holder = place.run(first, kind).hold("echo ready; read line; true");
            let name = format!("u{}@", first.0);
            place
                .run(second, others)
                .args(["-n"])
                .sh("echo ran")
                .code(75)
                .printed(&[])
                .said(&[&name]);
            let mut waiter = place
                .run(second, others)
                .args(["-v"])
                .args(["--", "echo", "mine"])
                .spawn();
            waiter.wait_until_told("waiting");
            assert_eq!(mode(&place.path().join("job.lock")), 0o660);
            drop(holder.stdin.take());
            holder.finish().code(0).silent();
            waiter.finish().code(0).printed(&["mine"]);
            assert_eq!(place.files(), [""; 0]);
        }
    }
    assert_eq!(mode(&place.path().join(".fence")), 0o660);
}

#[test]
fn users_of_a_group_hold_a_shared_lock_together() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    for kind in [&["-s"][..], &["--slots", "2"]] {
        let holder = place.run(ALICE, kind).hold("echo ready; read line; true");
        place
            .run(BOB, kind)
            .args(["-n"])
            .sh("echo ran")
            .code(0)
            .printed(&["ran"]);
        let killed = place.run(BOB, kind).hold("echo ready; read line; true");
        killed.signal(Signal::SIGKILL);
        drop(killed);
        holder.finish().code(0).silent();
    }
    eventually("what a killed member left is taken over", || {
        place.run(ALICE, &["-n", "-q"]).sh("true").exited_with(0) && place.files().is_empty()
    });
}

#[test]
fn the_lock_of_a_killed_user_passes_on_with_its_file() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    place
        .run(ALICE, &[])
        .hold("echo ready; read line; true")
        .signal(Signal::SIGKILL);
    let file = place.path().join("job.lock");
    let mut next = place.run(BOB, &[]).hold("echo ready; read line; true");
    assert_eq!(
        file.metadata().expect("the file").uid(),
        ALICE.0,
        "the leftover is taken over"
    );
    drop(next.stdin.take());
    next.finish().code(0).silent();
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_lock_in_another_users_file_is_kept_young() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    place
        .run(ALICE, &[])
        .hold("echo ready; read line; true")
        .signal(Signal::SIGKILL);
    let holder = place
        .run(BOB, &["--ttl", "900ms"])
        .hold("echo ready; read line; true");
    let file = std::fs::File::options()
        .write(true)
        .open(place.path().join("job.lock"))
        .expect("the lock's file");
    assert_eq!(file.metadata().expect("it").uid(), ALICE.0);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_modified(old).expect("its age");
    eventually("it is touched", || {
        file.metadata()
            .and_then(|it| it.modified())
            .expect("its age")
            > old
    });
    holder.finish().code(0).silent();
}

#[test]
fn a_command_under_the_lock_finds_the_same_directory() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    let rlock = place.dir.path().join("rlock");
    let script = format!(
        "{0} check --key job && {0} run --key job -- echo nested",
        rlock.display()
    );
    place
        .run(BOB, &[])
        .sh(&script)
        .code(0)
        .printed(&["nested"])
        .silent();
}

/// flock(2) needs a descriptor, and one that was opened for reading will do.
#[test]
fn a_user_outside_of_the_group_can_open_no_file_and_so_deny_no_lock() {
    let Some(place) = Shared::new(0o2775) else {
        return;
    };
    let opens = |name: &str| {
        let (uid, gid) = EVE;
        let mut command = std::process::Command::new("flock");
        let command = command.arg("-n").arg(place.path().join(name)).arg("true");
        let ended = command.uid(uid).gid(gid).current_dir("/").output();
        let ended = ended.expect("flock");
        assert!(
            String::from_utf8_lossy(&ended.stderr).contains("Permission denied"),
            "{name}: {ended:?}"
        );
    };
    for kind in [&[][..], &["-s"], &["--slots", "2"]] {
        let holder = place.run(ALICE, kind).hold("echo ready; read line; true");
        let writer = place.run(BOB, &["-v"]).args(["--", "true"]).spawn();
        eventually("the files are there", || {
            place.path().join("job.lock").exists()
                && (kind.is_empty() || place.path().join("job.gate").exists())
        });
        place.files().iter().for_each(|name| opens(name));
        opens(".fence");
        place
            .run(EVE, &["-n"])
            .sh("echo ran")
            .code(78)
            .printed(&[])
            .said(&["write access"]);
        place.rlock(EVE, &["inspect", "job"]).finish().code(78);
        holder.finish().code(0).silent();
        writer.finish().code(0);
    }
    // A leftover, which an earlier version left open to all.
    place
        .run(ALICE, &[])
        .hold("echo ready; read line; true")
        .signal(Signal::SIGKILL);
    let left = place.path().join("job.lock");
    std::fs::set_permissions(&left, Permissions::from_mode(0o664)).expect("its mode");
    let holder = place.run(ALICE, &[]).hold("echo ready; read line; true");
    opens("job.lock");
    holder.finish().code(0).silent();
}

#[test]
fn a_directory_whose_users_cannot_share_files_is_refused() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    for (mode, remedy) in [
        (0o3770, "chmod -t"),
        (0o1777, "chmod -t"),
        (0o770, "chmod g+s"),
        (0o2777, "chmod o-w"),
    ] {
        place.set_mode(mode);
        place
            .run(ALICE, &["-n"])
            .sh("echo ran")
            .code(78)
            .printed(&[])
            .said(&[remedy, "?shared"]);
    }
    std::fs::remove_dir(place.path()).expect("the directory");
    place
        .run(ALICE, &["-n"])
        .sh("echo ran")
        .code(78)
        .printed(&[])
        .said(&["install -d -m 2770"]);
}

#[test]
fn a_file_that_is_not_a_locks_is_left_alone_with_its_mode() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    let file = place.path().join("job.lock");
    let foreign = "# This file is automatically @generated by Cargo.\n";
    std::fs::write(&file, foreign).expect("a file");
    std::fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("its mode");
    place
        .run(ALICE, &["-n"])
        .sh("echo ran")
        .code(78)
        .printed(&[])
        .said(&["something else than a lock"]);
    std::fs::hard_link(&file, place.path().join("shadow")).expect("a hard link");
    place
        .run(ALICE, &["-n"])
        .sh("echo ran")
        .code(78)
        .said(&["2 names"]);
    assert_eq!(
        (
            std::fs::read_to_string(&file).expect("it").as_str(),
            mode(&file)
        ),
        (foreign, 0o666)
    );
}

#[test]
fn without_the_option_another_users_files_are_refused() {
    let Some(place) = Shared::new(0o2770) else {
        return;
    };
    let plain = place.url().replace("?shared", "");
    let run = |(uid, gid): (u32, u32)| {
        Rlock::of(
            place.dir.path().join("rlock"),
            ["run", "--key", "job", "-n", "--node", &plain],
        )
        .with(|command| {
            command.uid(uid).gid(gid).current_dir("/");
        })
    };
    run(ALICE)
        .sh("echo ran")
        .code(78)
        .printed(&[])
        .said(&["uid 0"]);
    let holder = place.run(ALICE, &[]).hold("echo ready; read line; true");
    // Root's own directory, with a file of another user in it.
    place.set_mode(0o755);
    run((0, 0))
        .sh("echo ran")
        .code(78)
        .printed(&[])
        .said(&["belongs to uid 60001"]);
    place.set_mode(0o2770);
    holder.finish().code(0).silent();
}
