//! The directory of metrics: one file a lock, changed under flock(2), written beside and renamed.
//!
//! `node_exporter` reads `*.prom` at any time, so a file is replaced whole. The directory itself is locked: a lock on the
//! file would be one on the file that was replaced.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::series::{Holder, Series};
use crate::job::process_tree;
use crate::lock::key::Key;
use crate::text::file_name::stem;

/// Size above which a file is none of ours.
const LARGEST: u64 = 1024 * 1024;

/// Mode of the files: the exporter is another user.
const READABLE: u32 = 0o644;

/// Changes the metrics of `key` in the files of `directory`.
pub(super) fn change(directory: &Path, key: &Key, change: impl FnOnce(&mut Series)) -> io::Result<()> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(directory)?;
    let _locked = Flock::lock(opened, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))?;
    let (file, beside) = names(directory, key);
    let mut series = Series::read(key.stored(), &read(&file));
    series.keep_holders(|known| holder(known.pid) == Some(*known));
    change(&mut series);
    write(&beside, &series.text())?;
    fs::rename(&beside, &file)
}

/// Returns the process of this id as a holder; `None` if there is none.
pub(super) fn holder(pid: i32) -> Option<Holder> {
    process_tree::begun(pid).map(|begun| Holder { pid, begun })
}

/// Returns the path of the lock's file, and that of the one beside it, which has no name that an exporter reads.
fn names(directory: &Path, key: &Key) -> (PathBuf, PathBuf) {
    let name = format!("rlock-{}.prom", stem(key.stored()));
    (directory.join(&name), directory.join(format!(".{name}.new")))
}

/// Returns the file's text. An unreadable one begins anew.
fn read(file: &Path) -> String {
    let mut text = String::new();
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file);
    let read = opened.and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    // A killed run may have left one, perhaps of another user.
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(file)?;
    file.write_all(text.as_bytes())?;
    // Whatever the umask is.
    file.set_permissions(Permissions::from_mode(READABLE))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn started(directory: &Path, name: &str) -> io::Result<()> {
        let holder = holder(nix::unistd::getpid().as_raw());
        change(directory, &Key::new("", name).unwrap(), |series| series.started(Duration::ZERO, holder))
    }

    #[test]
    fn runs_that_write_at_once_are_all_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| started(folder.path(), "job").unwrap());
            }
        });
        let text = fs::read_to_string(folder.path().join("rlock-job.prom")).unwrap();
        assert!(text.contains("rlock_held{key=\"job\"} 20\n"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_stays_in_the_directory_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "rlock_wait_seconds_total{key=\"../x\"} 9\n").unwrap();
        let inside = folder.path().join("metrics");
        fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("rlock-%2E.%2Fx.prom")).unwrap();
        started(&inside, "../x").unwrap();
        let file = inside.join("rlock-%2E.%2Fx.prom");
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert!(fs::read_to_string(&file).unwrap().contains("rlock_wait_seconds_total{key=\"../x\"} 0\n"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, READABLE);
    }

    #[test]
    fn a_directory_that_is_missing_or_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(started(&folder.path().join("missing"), "job").is_err());
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(started(&folder.path().join("file"), "job").is_err());
    }
}
