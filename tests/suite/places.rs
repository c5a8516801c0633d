//! Directories of `local` locks: where they are, and which directories and files are trusted.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};

use crate::local::Place;
use crate::support::{Finished, RLOCK, rlock, skipped};

/// A user that is not root.
const NOBODY: u32 = 65534;

/// Less than the ten seconds for which rlock retries a node that it cannot reach.
const AT_ONCE: Duration = Duration::from_secs(8);

fn try_lock(place: &Path) -> Finished {
    rlock("job")
        .node(&format!("local:{}", place.display()))
        .args(["-n"])
        .sh("echo ran")
}

/// Runs `script` as root with mounts of its own. `$RLOCK` is the binary, even if something is
/// mounted over its directory.
fn with_own_mounts(script: &str) -> Output {
    let script = &format!("exec 9<\"$RLOCK\"; RLOCK=/proc/self/fd/9; {script}");
    let which = if Uid::effective().is_root() {
        "-m"
    } else {
        "-rm"
    };
    Command::new("unshare")
        .args([which, "sh", "-c", script])
        .env("RLOCK", RLOCK)
        .env_remove("RLOCK_NODE")
        .output()
        .expect("unshare")
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in {said:?}");
    }
}

#[test]
fn the_default_directory_is_the_users_own_and_the_same_for_cron() {
    let script =
        "ls -ld /run/rlock /run/lock/rlock-$(id -u) /tmp/rlock-$(id -u) 2>/dev/null | cut -c1-10";
    let finished = rlock("job")
        .node("local")
        .env("TMPDIR", "/nowhere")
        .env("XDG_RUNTIME_DIR", "/nowhere")
        .sh(script)
        .code(0);
    assert!(
        finished.stdout.iter().any(|line| line == "drwx------"),
        "{:?}",
        finished.stdout
    );
}

#[test]
fn roots_locks_are_in_run_where_no_other_user_can_make_a_directory() {
    let output = with_own_mounts(
        "mount -t tmpfs -o mode=755 none /run && \
         $RLOCK run --key job --node local -- sh -c 'stat -c %a:%n /run/rlock /run/rlock/job.lock'",
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "700:/run/rlock\n600:/run/rlock/job.lock\n",
        "{output:?}"
    );
}

#[test]
fn an_error_that_may_pass_never_leads_to_another_directory() {
    let run = "rm -rf /tmp/rlock-0; $RLOCK run --key job --node local -- echo ran; code=$?; \
               test ! -e /tmp/rlock-0 && exit $code";
    let on_tmp = |script: &str| {
        with_own_mounts(&format!(
            "mount -t tmpfs none /tmp && {script} && {{ {run}; }}"
        ))
    };
    let full = on_tmp("mount -t tmpfs -o nr_inodes=1 none /run");
    refused(&full, &["/run/rlock", "No space left", "local:/dir"]);
    refused(
        &on_tmp("mount -t tmpfs -o ro none /run"),
        &["/run/rlock", "Read-only", "local:/dir"],
    );
    refused(
        &on_tmp("mount -t tmpfs none /run && echo > /run/rlock"),
        &["/run/rlock", "Not a directory"],
    );
    refused(
        &on_tmp("mount -t tmpfs none /run && ln -s /nowhere /run/rlock"),
        &["/run/rlock"],
    );
    refused(
        &on_tmp("mount -t tmpfs none /run && mkdir -m 755 /run/rlock"),
        &["/run/rlock", "chmod 700"],
    );
}

#[test]
fn another_users_locks_are_apart_and_a_name_that_was_taken_is_refused() {
    if !Uid::effective().is_root() {
        return skipped("only root can be two users");
    }
    let as_nobody = |before: &str| {
        let script = "mount -t tmpfs -o mode=755 none /run && mkdir /run/bin && cp $RLOCK /run/bin/rlock && \
                      mount -t tmpfs -o mode=1777 none /tmp";
        let run = "/run/bin/rlock run --key job --node local -- \
                   sh -c 'stat -c %a:%n /run/lock/rlock-* /tmp/rlock-* 2>/dev/null; true'";
        let user = format!("exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
        with_own_mounts(&format!("{script} && {before} && {user} {run}"))
    };
    let lock = "mkdir -m 1777 /run/lock";
    let own = as_nobody(lock);
    assert_eq!(
        String::from_utf8_lossy(&own.stdout),
        "700:/run/lock/rlock-65534\n",
        "{own:?}"
    );
    // Some hosts have no /run/lock.
    let own = as_nobody("true");
    assert_eq!(
        String::from_utf8_lossy(&own.stdout),
        "700:/tmp/rlock-65534\n",
        "{own:?}"
    );
    refused(
        &as_nobody(&format!("{lock} && mkdir -m 777 /run/lock/rlock-65534")),
        &["uid 0", "local:/dir"],
    );
    refused(
        &as_nobody("mkdir -m 755 /run/lock"),
        &["/run/lock/rlock-65534", "Permission denied", "local:/dir"],
    );
}

#[test]
fn a_directory_that_cannot_be_used_is_78() {
    rlock("job")
        .node("local:/proc/nowhere")
        .command(["true"])
        .code(78)
        .said(&["local:/proc/nowhere"]);
    rlock("job")
        .node("local:/etc/passwd")
        .command(["true"])
        .code(78)
        .said(&["local:/etc/passwd"]);
    rlock("job")
        .node("local:relative")
        .command(["true"])
        .code(78)
        .said(&["absolute"]);
    rlock("job")
        .node("local:/no/such/locks")
        .command(["true"])
        .code(78)
        .said(&["local:/no/such/locks"]);
}

#[test]
fn a_directory_that_others_own_or_may_write_is_refused() {
    let place = Place::new();
    let locks = place.dir.path().join("locks");
    std::fs::create_dir(&locks).expect("a directory");
    let link = place.dir.path().join("link");
    symlink(&locks, &link).expect("a symlink");
    for mode in [0o777, 0o1777, 0o770, 0o702] {
        std::fs::set_permissions(&locks, Permissions::from_mode(mode)).expect("a mode");
        for way in [&locks, &link] {
            try_lock(way)
                .code(78)
                .printed(&[])
                .said(&["chmod go-w", &format!("{mode:04o}")]);
        }
    }
    std::fs::set_permissions(&locks, Permissions::from_mode(0o755)).expect("a mode");
    for way in [&locks, &link] {
        try_lock(way).code(0).printed(&["ran"]).silent();
    }
    if Uid::effective().is_root() {
        chown(&locks, Some(NOBODY), None).expect("another owner");
        try_lock(&locks)
            .code(78)
            .printed(&[])
            .said(&["belongs to uid 65534"]);
    }
}

#[test]
fn a_file_that_is_not_a_locks_is_neither_written_nor_deleted() {
    let place = Place::new();
    let file = place.dir.path().join("job.lock");
    let left_alone = |words: &[&str]| {
        try_lock(place.dir.path())
            .code(78)
            .printed(&[])
            .said(&[&["job", "job.lock"], words].concat());
    };
    let token = "8c7d6f1e-1111-4222-8333-123456789abc";
    for content in [
        "# This file is automatically @generated by Cargo.\n".to_owned(),
        "4711\n".to_owned(),
        "47114711".to_owned(),
        format!("{token}\n"),
        format!("{token} {{{}", "x".repeat(1024)),
        format!("{}data", "\0".repeat(2000)),
    ] {
        std::fs::write(&file, &content).expect("a file");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode");
        left_alone(&["something else than a lock", "move it away"]);
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), content);
    }
    std::fs::write(&file, "").expect("a file");
    for mode in [0o666, 0o620, 0o602] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
        left_alone(&["other users"]);
    }
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode");
    std::fs::hard_link(&file, place.dir.path().join("shadow")).expect("a hard link");
    left_alone(&["2 names"]);
    std::fs::remove_file(place.dir.path().join("shadow")).expect("the hard link");
    if Uid::effective().is_root() {
        chown(&file, Some(NOBODY), None).expect("another owner");
        left_alone(&["belongs to uid 65534"]);
    }
    std::fs::remove_file(&file).expect("the file");

    let target = place.dir.path().join("precious");
    std::fs::write(&target, "").expect("a file");
    symlink(&target, &file).expect("a symlink");
    left_alone(&["not a regular file", "move it away"]);
    std::fs::remove_file(&file).expect("the symlink");
    mkfifo(&file, Mode::S_IRWXU).expect("a fifo");
    left_alone(&["not a regular file"]);
    std::fs::remove_file(&file).expect("the fifo");
    std::fs::create_dir(&file).expect("a directory");
    left_alone(&["not a regular file", "move it away"]);
    assert!(file.is_dir() && target.exists());
}

#[test]
fn whatever_a_crash_leaves_of_a_lock_is_taken_over() {
    let place = Place::new();
    let file = place.dir.path().join("job.lock");
    let mut holder = place.hold("echo ready; read line; true");
    let value = std::fs::read(&file).expect("a value");
    drop(holder.stdin.take());
    holder.finish().code(0);
    let longer = [&value[..], b" and the end of a longer one"].concat();
    for leftover in [
        &b""[..],
        &[0; 300],
        &value[..9],
        &value[..30],
        &value[..100],
        &value,
        &longer,
    ] {
        std::fs::write(&file, leftover).expect("a leftover");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode");
        try_lock(place.dir.path())
            .code(0)
            .printed(&["ran"])
            .silent();
        assert_eq!(place.files(), [""; 0]);
    }
}

#[test]
fn a_fence_counter_that_cannot_be_one_is_named_and_left_alone() {
    let place = Place::new();
    let counter = place.dir.path().join(".fence");
    for content in [
        "a fence around the garden\n",
        "-1\n",
        "9223372036854775807\n",
        "99999999999999999999999\n",
    ] {
        std::fs::write(&counter, content).expect("the counter");
        std::fs::set_permissions(&counter, Permissions::from_mode(0o600)).expect("its mode");
        try_lock(place.dir.path())
            .code(78)
            .printed(&[])
            .said(&["job", ".fence", "delete it"]);
        assert_eq!(
            std::fs::read_to_string(&counter).expect("the counter"),
            content
        );
        assert_eq!(place.files(), [""; 0]);
    }
    // A large file is not read.
    std::fs::File::create(&counter)
        .and_then(|file| file.set_len(1 << 40))
        .expect("a sparse file");
    try_lock(place.dir.path())
        .code(78)
        .said(&[".fence"])
        .within(AT_ONCE);
    std::fs::write(&counter, "\0\0\0\0").expect("what a crash leaves");
    try_lock(place.dir.path()).code(0).silent();
}

#[test]
fn a_counter_that_a_stopped_process_keeps_stops_a_client_only_if_a_fence_could_fall() {
    let place = Place::new();
    let fence = || {
        rlock("job")
            .node(&place.url())
            .args(["-n"])
            .sh("echo $RLOCK_FENCE")
    };
    let first: u64 = fence().code(0).stdout[0].parse().expect("a number");
    let mut counter = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.dir.path().join(".fence"))
        .expect("the counter");
    counter.lock().expect("its lock");
    let second: u64 = fence().code(0).stdout[0].parse().expect("a number");
    assert!(second > first);
    // From a host whose clock was ahead.
    counter
        .write_all(format!("{}\n", 1u64 << 51).as_bytes())
        .expect("the counter");
    fence()
        .code(69)
        .printed(&[])
        .said(&[".fence", "the clock is behind it"]);
    counter.unlock().expect("its lock");
    fence().code(0).printed(&[&((1u64 << 51) + 1).to_string()]);
}

#[test]
fn a_full_disk_is_78_at_once_and_leaves_nothing() {
    let run = "$RLOCK run --key job --node local:/mnt -- echo ran";
    let no_inodes =
        format!("mount -t tmpfs -o nr_inodes=2,mode=700 none /mnt && touch /mnt/x && {run}");
    let begin = Instant::now();
    refused(
        &with_own_mounts(&no_inodes),
        &["job", "/mnt/job.lock", "No space left", "make room"],
    );
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    // First there is no room for the counter; once that is stored, there is none for the holder's
    // name.
    let fill = "dd if=/dev/zero of=/mnt/x bs=4k count=99 2>/dev/null";
    let on_small = "mount -t tmpfs -o size=16k,mode=700 none /mnt";
    let no_room = with_own_mounts(&format!(
        "{on_small}; {fill}; {run}; code=$?; test ! -e /mnt/job.lock && exit $code"
    ));
    refused(&no_room, &["/mnt/.fence", "No space left"]);
    let no_room = format!(
        "{on_small}; {run} >/dev/null; {fill}; {run}; code=$?; test ! -e /mnt/job.lock && exit $code"
    );
    refused(
        &with_own_mounts(&no_room),
        &["/mnt/job.lock", "No space left"],
    );
}
