//! The directory of a machine's locks: its path, and whether other users have access to it.
//!
//! Two rlocks of a user exclude each other only in the same directory. So the choice depends on the
//! host's directories, never on an error that may pass: a full disk today must not lead to another
//! directory than tomorrow.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::Uid;

use super::{failed, shown, unfit};
use crate::store::Fault;
use crate::store::local::LocalDir;

/// Mode bits of a directory that lets other users in.
const ANY_ACCESS: u32 = 0o077;

/// Mode bits of a directory in which other users can make, rename and delete files. A sticky bit
/// does not help: it protects the files that exist, not the names that do not.
const WRITE_ACCESS: u32 = GROUP_WRITES | OTHERS_WRITE;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Mode bits of a directory: others' files cannot be deleted in it, and new files get its group.
const STICKY: u32 = 0o1000;
const SETGID: u32 = 0o2000;

/// Mode of a lock's file that only its owner may open, and of one that its group may open, too.
const PRIVATE: u32 = 0o600;
const OF_GROUP: u32 = 0o660;

/// The remedy for a directory that cannot be used.
const REMEDY: &str =
    "name a directory of your own with local:/dir, the same wherever the lock is taken";

/// The remedy for a given directory that others own or may write to.
const OTHERS: &str =
    "name a directory of your own; users who trust each other share one with local:/dir?shared";

/// An open directory. It stays the same one if its path is replaced.
pub(in crate::store) struct Directory {
    file: File,
    path: PathBuf,
    /// User id of this process, when it was opened.
    user: u32,
    /// Mode of the files in it that users share; `None` if each must be the user's own.
    shared: Option<u32>,
}

impl Directory {
    /// Opens `chosen`, or the user's own directory, and makes it if it is missing. Errors say what
    /// to do.
    pub(in crate::store) fn open(chosen: Option<&LocalDir>) -> Result<Self, Fault> {
        let user = Uid::effective().as_raw();
        match chosen {
            Some(dir) if dir.is_shared => shared(&dir.path, user),
            Some(dir) => given(&dir.path, user),
            None => own(user),
        }
    }

    /// User id that owns each file in it that is trusted. `None`: any user.
    pub(super) fn files_owner(&self) -> Option<u32> {
        if self.is_shared() {
            None
        } else {
            Some(self.user)
        }
    }

    /// Whether lock files of other users are trusted.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Mode of the files that are made in it, whatever the umask.
    pub(super) fn file_mode(&self) -> u32 {
        self.shared.unwrap_or(PRIVATE)
    }

    /// The path by which it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// User id of its owner, and its permissions.
    pub(super) fn owner_and_mode(&self) -> io::Result<(u32, u32)> {
        self.file
            .metadata()
            .map(|there| (there.uid(), there.mode() & 0o7777))
    }

    /// Whether its path still leads to it.
    pub(super) fn stands(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match self.path.metadata() {
            Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the directories where a user's locks may be, best first. `TMPDIR` and `XDG_RUNTIME_DIR`
/// differ between cron and a login, so neither is used. In /run only root can make a directory, so
/// no other user can take the name or fill it.
fn places(user: u32) -> [PathBuf; 2] {
    let tmp = PathBuf::from(format!("/tmp/rlock-{user}"));
    if user == 0 {
        ["/run/rlock".into(), tmp]
    } else {
        [format!("/run/lock/rlock-{user}").into(), tmp]
    }
}

fn own(user: u32) -> Result<Directory, Fault> {
    for path in places(user) {
        let failed = |error: io::Error| {
            let path = shown(&path);
            failed(
                &error,
                format!("cannot use {path}: {error}; mend that, or {REMEDY}"),
            )
        };
        if let Some(file) = opened(&path, OFlag::O_NOFOLLOW).map_err(failed)? {
            let there = file.metadata().map_err(failed)?;
            if let Some(why) = misconfiguration(there.uid(), there.mode(), user, ANY_ACCESS) {
                return Err(unfit(format!("{} {why}, or {REMEDY}", shown(&path))));
            }
            return Ok(Directory {
                file,
                path,
                user,
                shared: None,
            });
        }
    }
    Err(unfit(format!(
        "this host has neither {}; {REMEDY}",
        if user == 0 {
            "/run nor /tmp"
        } else {
            "/run/lock nor /tmp"
        }
    )))
}

fn given(path: &Path, user: u32) -> Result<Directory, Fault> {
    let failed = |error: io::Error| {
        failed(
            &error,
            format!("cannot open or make the directory: {error}"),
        )
    };
    let file = opened(path, OFlag::empty())
        .and_then(|found| found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)));
    let file = file.map_err(failed)?;
    let there = file.metadata().map_err(failed)?;
    match misconfiguration(there.uid(), there.mode(), user, WRITE_ACCESS) {
        Some(why) => Err(unfit(format!("the directory {why}, or {OTHERS}"))),
        None => Ok(Directory {
            file,
            path: path.to_path_buf(),
            user,
            shared: None,
        }),
    }
}

/// Opens a directory that users share. It is never made: rlock cannot know its group.
fn shared(path: &Path, user: u32) -> Result<Directory, Fault> {
    let open = || -> io::Result<(File, u32)> {
        let file = existing(path, OFlag::empty())?;
        let mode = file.metadata()?.mode();
        Ok((file, mode))
    };
    let (file, mode) = open().map_err(|error| {
        let remedy = "make it for the users' group: install -d -m 2770 -g GROUP DIR";
        let remedy = if is_missing(&error) { remedy } else { REMEDY };
        failed(
            &error,
            format!("cannot open the directory: {error}; {remedy}"),
        )
    })?;
    let mode = shared_mode(mode).map_err(|why| unfit(format!("the directory {why}")))?;
    Ok(Directory {
        file,
        path: path.to_path_buf(),
        user,
        shared: Some(mode),
    })
}

/// Returns the mode of files in a shared directory of this mode: its group may write to them if it
/// may write to the directory. Other users get no access, as flock(2) takes no more than a right to
/// read. Else why its users could not open or delete each other's files, or who else could, and what
/// to do.
fn shared_mode(mode: u32) -> Result<u32, String> {
    let shown = format!("(mode {:04o})", mode & 0o7777);
    if mode & STICKY != 0 {
        return Err(format!(
            "has the sticky bit {shown}, so users cannot delete each other's lock files: run chmod -t"
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(format!(
            "can be written to by all users {shown}, not just by its group: run chmod o-w"
        ));
    }
    if mode & GROUP_WRITES != 0 && mode & SETGID == 0 {
        return Err(format!(
            "does not give new files its group {shown}: run chmod g+s"
        ));
    }
    Ok(if mode & GROUP_WRITES == 0 {
        PRIVATE
    } else {
        OF_GROUP
    })
}

fn existing(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, path, flags, Mode::empty())
        .map(File::from)
        .map_err(io::Error::from)
}

/// Opens the directory `path`, and makes it if it is missing. `None` if its parent does not exist
/// on this host.
fn opened(path: &Path, flags: OFlag) -> io::Result<Option<File>> {
    let open = || existing(path, flags).map(Some);
    match open() {
        Err(error) if is_missing(&error) => {}
        result => return result,
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // Made by us, or by another rlock; or something stands there that is no directory, which
        // the second open says.
        Ok(()) | Err(_) => open(),
    }
}

/// Whether `error` says that a path, or a directory on the way to it, does not exist.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Why `user` must not trust a directory of this owner and mode, if so, and what to do.
fn misconfiguration(owner: u32, mode: u32, user: u32, forbidden: u32) -> Option<String> {
    if owner != user {
        return Some(format!(
            "belongs to uid {owner}, not to uid {user}: have it removed"
        ));
    }
    let change = if forbidden == ANY_ACCESS {
        "chmod 700"
    } else {
        "chmod go-w"
    };
    let what = if forbidden == ANY_ACCESS {
        "is open to other users"
    } else {
        "can be written to by other users"
    };
    (mode & forbidden != 0).then(|| format!("{what} (mode {:04o}): run {change}", mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_the_users_own_that_others_cannot_write_to_is_trusted() {
        assert_eq!(misconfiguration(7, 0o040_700, 7, ANY_ACCESS), None);
        assert_eq!(misconfiguration(7, 0o042_755, 7, WRITE_ACCESS), None);
        for mode in [0o040_770, 0o040_702, 0o041_777, 0o042_775] {
            assert!(
                misconfiguration(7, mode, 7, WRITE_ACCESS)
                    .is_some_and(|why| why.contains("chmod go-w"))
            );
        }
        for mode in [0o040_750, 0o040_701, 0o040_755] {
            assert!(
                misconfiguration(7, mode, 7, ANY_ACCESS)
                    .is_some_and(|why| why.contains("chmod 700"))
            );
        }
        // Not even root trusts another user's directory.
        for forbidden in [ANY_ACCESS, WRITE_ACCESS] {
            assert!(
                misconfiguration(8, 0o040_700, 0, forbidden)
                    .is_some_and(|why| why.contains("uid 8"))
            );
        }
    }

    #[test]
    fn files_that_users_share_are_closed_to_all_but_the_directorys_group() {
        for (directory, files) in [
            (0o042_770, 0o660),
            (0o042_775, 0o660),
            (0o042_755, 0o600),
            (0o040_700, 0o600),
        ] {
            assert_eq!(shared_mode(directory), Ok(files), "{directory:o}");
        }
        // Any of its users may delete any file in it, and write to it.
        for (directory, remedy) in [
            (0o041_777, "chmod -t"),
            (0o043_770, "chmod -t"),
            (0o040_770, "chmod g+s"),
            (0o040_775, "chmod g+s"),
            (0o040_777, "chmod o-w"),
            (0o042_777, "chmod o-w"),
        ] {
            assert!(
                shared_mode(directory).is_err_and(|why| why.contains(remedy)),
                "{directory:o}"
            );
        }
    }

    #[test]
    fn only_a_parent_that_does_not_exist_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| opened(&dir.path().join(name), OFlag::O_NOFOLLOW);
        assert!(at("locks").unwrap().is_some());
        assert!(at("locks").unwrap().is_some());
        assert!(at("missing/locks").unwrap().is_none());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(at("file/locks").unwrap().is_none());
        // What stands at the name itself is an error, never a reason to go elsewhere.
        assert!(at("file").is_err());
        std::os::unix::fs::symlink("locks", dir.path().join("link")).unwrap();
        assert!(at("link").is_err());
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
        assert!(at("dangling").is_err());
    }

    #[test]
    fn roots_locks_are_where_no_other_user_can_make_a_directory() {
        assert_eq!(places(0), ["/run/rlock", "/tmp/rlock-0"].map(PathBuf::from));
        assert_eq!(
            places(1000),
            ["/run/lock/rlock-1000", "/tmp/rlock-1000"].map(PathBuf::from)
        );
    }
}
