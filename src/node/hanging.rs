//! Nodes that hang, as this user's runs on this host remember them: for a minute none waits again for a report that decides nothing.
//!
//! A file in the user's directory of locks is named like the node; the time of its last change is when a run waited in vain. Only the
//! length of a wait depends on it, so it may be missing, stale or wrong.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::Uid;

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
}

fn is_known_in(dir: &Directory, name: &str, now: SystemTime) -> bool {
    let there = open(dir, name, OFlag::O_RDONLY).ok().and_then(|file| file.metadata().ok());
    let ours = there.filter(|there| there.uid() == Uid::effective().as_raw());
    let age = ours.and_then(|there| now.duration_since(there.modified().ok()?).ok());
    age.is_some_and(|age| age < REMEMBERED)
}

fn remember_in(dir: &Directory, name: &str) -> nix::Result<()> {
    let file = open(dir, name, OFlag::O_WRONLY | OFlag::O_CREAT)?;
    futimens(&file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)
}

fn open(dir: &Directory, name: &str, access: OFlag) -> nix::Result<File> {
    let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let name = format!("{}.hangs", file_name::stem(name));
    openat(dir, name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)
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
    }

    #[test]
    fn a_link_in_its_place_is_left_alone() {
        let there = tempfile::tempdir().unwrap();
        let chosen = LocalDir { path: there.path().to_owned(), is_shared: false };
        let dir = Directory::open(Some(&chosen)).unwrap();
        std::os::unix::fs::symlink("other", there.path().join("node.hangs")).unwrap();
        assert!(remember_in(&dir, "node").is_err());
        assert!(!is_known_in(&dir, "node", SystemTime::now()));
        assert!(!there.path().join("other").exists());
    }
}
