//! What the contenders run: it writes down when it began and when it ended, and takes flock(2) for a second opinion.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::time::{ClockId, clock_gettime};

/// As which this program is the witness.
pub(crate) const WORD: &str = "--witness";

/// When its rlock was started, in ns since boot, for the log.
pub(crate) const STARTED: &str = "RLOCK_SOAK_STARTED";

/// `--witness DIR MS`: one line when it begins, one when it ends, each in one write.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let dir = words.next().context("a directory")?;
    let hold: u64 = words.next().context("a time")?.parse()?;
    let mut log = OpenOptions::new().create(true).append(true).open(Path::new(&dir).join("log"))?;
    let fence = std::env::var("RLOCK_FENCE")?;
    let started = std::env::var(STARTED)?;
    let mut say = |what: &str| {
        let line = format!("{what} {fence} {} {} {started}\n", now().as_nanos(), std::process::id());
        log.write_all(line.as_bytes())
    };
    let lock = OpenOptions::new().create(true).append(true).open(Path::new(&dir).join("second-opinion"))?;
    let Ok(_lock): Result<Flock<File>, _> = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else {
        say("overlap")?;
        return Ok(());
    };
    say("begin")?;
    std::thread::sleep(Duration::from_millis(hold));
    say("end")?;
    Ok(())
}

/// Time since boot.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Into::into)
}

/// Processes that have the log of `dir` in their words: witnesses, rlocks and guards.
pub(crate) fn living(dir: &Path) -> Result<Vec<String>> {
    let wanted = dir.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(&wanted) && words.contains(WORD) {
            found.push(format!("{} ({})", entry.file_name().to_string_lossy(), words.trim()));
        }
    }
    Ok(found)
}
