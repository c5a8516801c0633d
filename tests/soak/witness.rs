//! The command of the contenders: it logs when it began and when it ended, with flock(2) as a
//! second opinion.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::share::{Held, Share};
use testkit::now;
use testkit::processes::is_killed;

/// First word of the command line of a witness, which is this program.
pub(crate) const WORD: &str = "--witness";

/// Name of rlock among the clients.
pub(crate) const OURS: &str = "rlock";

/// Variable with the start of its rlock, in ns since boot, for the log.
pub(crate) const STARTED: &str = "SOAK_STARTED";

/// Variable with the name of a client that is not rlock.
pub(crate) const CLIENT: &str = "SOAK_CLIENT";

/// Variable with the end of the time in which a witness may run, in ns since boot.
pub(crate) const UNTIL: &str = "SOAK_UNTIL";

/// Runs `--witness DIR MS KIND`: it writes one line when it begins and one when it ends, each in
/// one write. Every millisecond it writes the time into a file of its own, which is left behind if
/// the witness is killed.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let dir = words.next().context("a directory")?;
    let dir = Path::new(&dir);
    let hold = Duration::from_millis(words.next().context("a time")?.parse()?);
    let ours = Held::ours(&words.next().context("a kind")?)?;
    // Half of them end at the first signal, the others at the last.
    if fastrand::bool() {
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }?;
    }
    let locks = ours
        .iter()
        .map(Held::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let pid = std::process::id();
    let started = std::env::var(STARTED)?;
    let client = std::env::var(CLIENT).unwrap_or_else(|_| OURS.to_owned());
    let token = std::env::var("RLOCK_TOKEN").unwrap_or_else(|_| "-".to_owned());
    let until: Option<u64> = std::env::var(UNTIL)
        .ok()
        .map(|until| until.parse())
        .transpose()?;
    let until = until.map_or(Duration::MAX, Duration::from_nanos);
    if now() >= until {
        return Ok(());
    }
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("log"))?;
    let mut say = |what: &str, at: Duration| {
        let line = format!(
            "{what} {locks} {} {pid} {started} {client} {token}\n",
            at.as_nanos()
        );
        log.write_all(line.as_bytes())
    };
    let ticking = ticks(dir, pid, &locks);
    let ticks = File::create(&ticking)?;
    let tick = || ticks.write_all_at(now().as_nanos().to_string().as_bytes(), 0);
    let begin = now();
    let opinion = second_opinion(dir, &ours)?;
    tick()?;
    say(if opinion.is_some() { "begin" } else { "beside" }, begin)?;
    let ends = until.min(now() + hold);
    while now() < ends {
        tick()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    say("end", now())?;
    Ok(std::fs::remove_file(ticking)?)
}

/// Takes a file lock for each of the locks, in the same way; `None` if another witness that still
/// runs has one that excludes it.
fn second_opinion(dir: &Path, ours: &[Held]) -> Result<Option<Vec<Flock<File>>>> {
    let mut files = Vec::new();
    for Held { key, share, .. } in ours {
        match share {
            Share::Exclusive => files.push((key.clone(), FlockArg::LockExclusiveNonblock)),
            Share::Shared => files.push((key.clone(), FlockArg::LockSharedNonblock)),
            Share::Slot(_) => {
                files.push((key.clone(), FlockArg::LockSharedNonblock));
                files.push((format!("{key}-{share}"), FlockArg::LockExclusiveNonblock));
            }
        }
    }
    let mut taken = Vec::new();
    for (name, how) in files {
        let path = dir.join(format!("second-opinion-{name}"));
        let Some(lock) = taken_from_the_dead(
            OpenOptions::new().create(true).append(true).open(path)?,
            how,
        )?
        else {
            return Ok(None);
        };
        taken.push(lock);
    }
    Ok(Some(taken))
}

/// Takes the lock of `file`, when no process has it but killed ones: on a busy machine the kernel
/// needs a while to take those down. `None` if another has it.
fn taken_from_the_dead(mut file: File, how: FlockArg) -> Result<Option<Flock<File>>> {
    let inode = file.metadata()?.ino();
    // Between its kill and its exit a process looks as if it ran.
    let mut by = now() + Duration::from_millis(50);
    loop {
        file = match Flock::lock(file, how) {
            Ok(lock) => return Ok(Some(lock)),
            Err((file, _)) => file,
        };
        if holders(inode)?.into_iter().all(is_killed) {
            by = now() + Duration::from_millis(50);
        } else if now() > by {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the processes that have a flock(2) on the file, by `/proc/locks`.
fn holders(inode: u64) -> Result<Vec<i32>> {
    let is_of = |file: &str| file.rsplit(':').next() == Some(inode.to_string().as_str());
    let locks = std::fs::read_to_string("/proc/locks")?;
    let lines = locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = lines.filter(|words| {
        words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|file| is_of(file))
    });
    Ok(ours.filter_map(|words| words[4].parse().ok()).collect())
}

fn ticks(dir: &Path, pid: u32, locks: &str) -> PathBuf {
    dir.join(format!("ticks-{pid}-{locks}"))
}

/// Returns the last tick of a command that has not logged its end.
pub(crate) fn last_tick(dir: &Path, pid: u32, locks: &str) -> Option<u64> {
    std::fs::read_to_string(ticks(dir, pid, locks))
        .ok()?
        .parse()
        .ok()
}

/// Waits until all witnesses, rlocks and guards of the directory have ended. Returns those that
/// have not after `limit`.
pub(crate) fn outliving(dir: &Path, limit: Duration) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let found = living(dir)?;
        if found.is_empty() || begin.elapsed() >= limit {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the processes with the directory in their command line: witnesses, rlocks and guards.
fn living(dir: &Path) -> Result<Vec<String>> {
    let wanted = dir.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(&wanted) && words.contains(WORD) {
            found.push(format!(
                "{} ({})",
                entry.file_name().to_string_lossy(),
                words.trim()
            ));
        }
    }
    Ok(found)
}
