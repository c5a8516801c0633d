//! The counter that gives all fences of a directory.

use std::rc::Rc;
use std::time::SystemTime;

use super::directory::Directory;
use super::file::{LockFile, MAKE};
use super::{shown, unfit};
use crate::lock::fence::{Fence, hint};
use crate::store::{Fault, FaultKind};

/// The counter's file name. No key has it: a leading dot is encoded.
const NAME: &str = ".fence";

/// Longest content that is read, in bytes: 2⁶³ has 19 digits.
const LONGEST: usize = 32;

/// Number of tries to lock the counter. It is held for microseconds, unless by a process that is
/// stopped.
const TRIES: u32 = 1000;

/// Returns c := max(c + 1, the clock), for all locks of the directory. The caller has won its lock,
/// and the grant stands only if the number is stored.
///
/// The counter's lock is never waited for: a process that was stopped while it held it must not
/// stop all others. Without the lock the clock gives the number, provided that it is above the
/// counter. So a claim's hint, which is older, does not do: between the claim and the grant another
/// client may have got a number.
pub(super) fn next(dir: &Rc<Directory>) -> Result<Fence, Fault> {
    let clock = || hint(SystemTime::now());
    let mut last = None;
    for _ in 0..TRIES {
        let Some(file) = LockFile::open(dir, NAME.to_owned(), MAKE)? else {
            continue;
        };
        if !file.lock()? {
            last = Some(file);
            std::thread::yield_now();
            continue;
        }
        let fence = after(&file, clock())?;
        file.write(&format!("{fence}\n"))?;
        return Ok(fence);
    }
    let now = clock();
    match last.map(|file| after(&file, now)).transpose()? {
        Some(fence) if fence.get() == now => Ok(fence),
        _ => {
            let path = shown(&dir.path().join(NAME));
            let why = format!(
                "{path}: another process keeps it locked, and the clock is behind it; end that process"
            );
            Err(Fault::new(FaultKind::Unavailable, why))
        }
    }
}

fn after(file: &LockFile, now: u64) -> Result<Fence, Fault> {
    let path = shown(&file.path());
    let content = file
        .read(0, LONGEST + 1)
        .map_err(|error| file.told(&error))?;
    let remedy =
        "delete it when no lock of this directory is held, and fences go on from the clock";
    let Some(previous) = counted(&content) else {
        return Err(unfit(format!(
            "{path} holds something else than a fence counter; {remedy}"
        )));
    };
    let exhausted = || {
        unfit(format!(
            "{path} says {previous}, and fences end below 2^63; {remedy}"
        ))
    };
    Fence::after(previous, now).ok_or_else(exhausted)
}

/// The number that `content` says, as its first line. A file that is new or lost its content in a
/// crash says 0: from there the clock leads on. `None` for what no rlock writes.
fn counted(content: &[u8]) -> Option<u64> {
    if content.len() > LONGEST {
        return None;
    }
    if content.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let line = std::str::from_utf8(content.split(|byte| *byte == b'\n').next()?).ok()?;
    let digits = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    // Too large a number is a counter at its end, not something else.
    digits.then(|| line.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::local::LocalDir;

    /// The process that has the counter locked may be stopped.
    #[test]
    fn while_the_counter_is_locked_the_clock_gives_the_fence_if_it_is_above_the_counter() {
        let place = tempfile::tempdir().unwrap();
        let chosen = LocalDir {
            path: place.path().to_path_buf(),
            is_shared: false,
        };
        let dir = Rc::new(Directory::open(Some(&chosen)).unwrap());
        let counter = LockFile::open(&dir, NAME.to_owned(), MAKE).unwrap();
        let counter = counter.unwrap();
        assert!(counter.lock().unwrap());
        for (count, is_given) in [("5\n", true), ("4000000000000000\n", false)] {
            counter.write(count).unwrap();
            assert_eq!(next(&dir).is_ok(), is_given, "{count}");
        }
    }

    #[test]
    fn a_counter_is_read_from_what_a_crash_may_leave_and_from_nothing_else() {
        for (content, number) in [
            ("", Some(0)),
            ("\0\0\0\0", Some(0)),
            ("1790000000000000\n", Some(1_790_000_000_000_000)),
            ("17900", Some(17_900)),
            ("1790000000000001\n7\n", Some(1_790_000_000_000_001)),
            ("99999999999999999999999\n", Some(u64::MAX)),
            ("\n5\n", None),
            ("-5\n", None),
            ("1e9\n", None),
            ("a fence around the garden\n", None),
            ("00000000000000000000000000000000000001\n", None),
        ] {
            assert_eq!(counted(content.as_bytes()), number, "{content:?}");
        }
        assert_eq!(counted(b"\xff"), None);
    }
}
