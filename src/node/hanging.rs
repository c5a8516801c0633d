//! Nodes that hang, as this user's runs on this host remember them: for a minute each waits less for a report that decides nothing.
//!
//! An empty file in the user's directory of locks is named like the node; the time of its last change is when a run waited in vain. A
//! run that gets an answer deletes it. Only the length of a wait depends on it, so it may be missing, stale or wrong.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::local::directory::Directory;
use crate::text::file_name;

/// Time for which it is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The memory of one node; by default none.
#[derive(Clone, Default)]
pub(super) struct Hanging(Option<String>);

impl Hanging {
    /// The memory of the node `name`.
    pub(super) fn of(name: &str) -> Self {
        Self(Some(name.to_owned()))
    }

    /// Whether a run has waited in vain for it within the last minute.
    pub(super) fn is_known(&self) -> bool {
        let known = |name: &String| Directory::open(None).is_ok_and(|dir| is_known_in(&dir, name, SystemTime::now()));
        self.0.as_ref().is_some_and(known)
    }

    /// Remembers that a run has waited in vain for it. Where that cannot be written down, the next run waits too.
    pub(super) fn remember(&self) {
        if let Some(name) = &self.0
            && let Ok(dir) = Directory::open(None)
        {
            let _ = remember_in(&dir, name);
        }
    }

    /// Forgets it. Where that is not possible, it is given less time for up to a minute.
    pub(super) fn forget(&self) {
        if let Some(name) = &self.0
            && let Ok(dir) = Directory::open(None)
        {
            let _ = forget_in(&dir, name);
        }
    }
}

fn is_known_in(dir: &Directory, name: &str, now: SystemTime) -> bool {
    let waited = open(dir, name, OFlag::O_RDONLY).and_then(|(_, there)| there.modified());
    let age = waited.ok().and_then(|waited| now.duration_since(waited).ok());
    age.is_some_and(|age| age < REMEMBERED)
}

fn remember_in(dir: &Directory, name: &str) -> io::Result<()> {
    let (file, _) = open(dir, name, OFlag::O_WRONLY | OFlag::O_CREAT)?;
    Ok(futimens(&file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?)
}

fn forget_in(dir: &Directory, name: &str) -> io::Result<()> {
    open(dir, name, OFlag::O_RDONLY)?;
    Ok(unlinkat(dir, file_of(name).as_str(), UnlinkatFlags::NoRemoveDir)?)
}

/// Opens the file of the node `name`, and looks at it. Only an empty file of the user's own, with one name, is one.
fn open(dir: &Directory, name: &str, access: OFlag) -> io::Result<(File, Metadata)> {
    let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(dir, file_of(name).as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    let there = file.metadata()?;
    let is_ours = there.is_file() && there.len() == 0 && there.nlink() == 1 && there.uid() == Uid::effective().as_raw();
    if is_ours { Ok((file, there)) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

fn file_of(name: &str) -> String {
    format!("{}.hangs", file_name::stem(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::address::LocalDir;

    #[test]
    fn it_is_remembered_for_a_minute_node_by_node() {
        let there = tempfile::tempdir().unwrap();
        let chosen = LocalDir { path: there.path().to_owned(), is_shared: false };
        let dir = Directory::open(Some(&chosen)).unwrap();
        let (node, now) = ("redis://10.0.0.5:6379/1", SystemTime::now);
        assert!(!is_known_in(&dir, node, now()));
        remember_in(&dir, node).unwrap();
        assert!(is_known_in(&dir, node, now()));
        assert!(!is_known_in(&dir, "redis://10.0.0.6:6379/1", now()));
        // Later, and after a step of the clock back.
        assert!(!is_known_in(&dir, node, now() + REMEMBERED));
        assert!(!is_known_in(&dir, node, now() - REMEMBERED));
        let file = File::open(there.path().read_dir().unwrap().next().unwrap().unwrap().path()).unwrap();
        file.set_modified(now() - 2 * REMEMBERED).unwrap();
        assert!(!is_known_in(&dir, node, now()));
        remember_in(&dir, node).unwrap();
        assert!(is_known_in(&dir, node, now()));
        forget_in(&dir, node).unwrap();
        assert!(!is_known_in(&dir, node, now()));
        assert_eq!(there.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_stands_in_its_place_is_left_alone() {
        let there = tempfile::tempdir().unwrap();
        let chosen = LocalDir { path: there.path().to_owned(), is_shared: false };
        let dir = Directory::open(Some(&chosen)).unwrap();
        std::os::unix::fs::symlink("other", there.path().join("node.hangs")).unwrap();
        assert!(remember_in(&dir, "node").is_err());
        assert!(!is_known_in(&dir, "node", SystemTime::now()));
        assert!(!there.path().join("other").exists());
        let (precious, name) = (there.path().join("precious"), there.path().join("linked.hangs"));
        std::fs::write(&precious, "").unwrap();
        std::fs::hard_link(&precious, &name).unwrap();
        std::fs::write(there.path().join("full.hangs"), "a letter").unwrap();
        for node in ["linked", "full"] {
            assert!(remember_in(&dir, node).is_err() && forget_in(&dir, node).is_err());
            assert!(!is_known_in(&dir, node, SystemTime::now()));
        }
        assert!(name.exists() && there.path().join("full.hangs").exists());
    }
}
