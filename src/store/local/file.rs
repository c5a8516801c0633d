//! A lock's file: opened inside its directory, checked before it is believed, written or deleted.
//!
//! The same open file carries two kernel locks, which end together. flock(2) decides who holds the
//! lock. An open file description lock (fcntl(2)) shows that the holder's value is written: of all
//! bytes for an exclusive holder, of its seat for a [member](super::members). It can be queried
//! without being taken, so that an observation keeps no process out. The two kinds do not interact.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, openat};
use nix::sys::stat::{Mode, fchmod, fstatat, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::directory::Directory;
use super::members::LARGEST_FILE;
use super::{shown, unfit};
use crate::lock::details::LARGEST_VALUE;
use crate::lock::occupant::{Marker, Occupant, OccupantKind};
use crate::lock::token::Token;
use crate::store::Fault;

/// The beginning of each value of ours: a token, a blank and a brace; `x` stands for a hexadecimal
/// digit.
const SHAPE: &[u8] = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx {";

/// Length of the shortest beginning of [`SHAPE`] that is accepted: up to the first dash, so that a
/// pid file is not.
const BELIEVED: usize = 9;

/// Age below which a file is left as it is.
const YOUNG: Duration = Duration::from_secs(60);

/// Number of tries to open a file of a shared directory, which another user may have made this very
/// moment.
const NEW_FILE_TRIES: u32 = 200;

/// The message for a file that cannot be a lock's.
const IRREGULAR: &str = "is not a regular file";

/// All bytes of a file, as their first one and their number.
pub(super) const ALL: Bytes = (0, 0);

/// How a file is opened: to look at it, to lock and delete it, or that and to make it if it is
/// missing.
pub(super) const LOOK: OFlag = OFlag::O_RDONLY;
pub(super) const LOCK: OFlag = OFlag::O_RDWR;
pub(super) const MAKE: OFlag = OFlag::O_RDWR.union(OFlag::O_CREAT);

/// A range of bytes in fcntl(2)'s terms: the first one and their number; 0 is without an end.
pub(super) type Bytes = (i64, i64);

/// A lock's file, open.
pub(super) struct LockFile {
    dir: Rc<Directory>,
    name: String,
    file: File,
}

impl LockFile {
    /// Opens the file `name` of `dir`. `None` if there is none, or if it has just been deleted.
    pub(super) fn open(
        dir: &Rc<Directory>,
        name: String,
        access: OFlag,
    ) -> Result<Option<Self>, Fault> {
        // Opening a FIFO or a device must not block.
        let flags =
            access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let failed = |error: io::Error| told(dir, &name, &error);
        let file = match open_at(dir, &name, flags) {
            Ok(file) => file,
            Err(nix::Error::ENOENT) if !access.contains(OFlag::O_CREAT) => return Ok(None),
            // The directory itself has been deleted since it was opened.
            Err(nix::Error::ENOENT) if !dir.stands().map_err(failed)? => return Ok(None),
            // A symlink, a directory, a socket.
            Err(nix::Error::ELOOP | nix::Error::EISDIR | nix::Error::ENXIO) => {
                return Err(refused(dir, &name, IRREGULAR));
            }
            Err(nix::Error::EACCES) if dir.is_shared() => {
                let path = shown(&dir.path().join(&name));
                let need = "this user needs write access to the shared directory and its files, by its group";
                return Err(unfit(format!("{path}: permission denied; {need}")));
            }
            Err(error) => return Err(failed(error.into())),
        };
        let there = file.metadata().map_err(failed)?;
        if there.nlink() == 0 {
            return Ok(None);
        }
        if let Some(why) = misconfiguration(&there, dir.files_owner()) {
            return Err(refused(dir, &name, &why));
        }
        let opened = Self {
            dir: Rc::clone(dir),
            name,
            file,
        };
        if there.len() == 0 && access != LOOK {
            // A new file lacks what the umask took away.
            opened.set_mode(&there);
        }
        Ok(Some(opened))
    }

    /// Gives it the mode of its directory's files. That of another user gets it from its owner.
    fn set_mode(&self, there: &Metadata) {
        let mode = self.dir.file_mode();
        if there.mode() & 0o777 != mode {
            let _ = fchmod(&self.file, Mode::from_bits_truncate(mode));
        }
    }

    /// Takes the kernel's lock if it stands at its path and may be written to. `None` if another
    /// process has it, or if it is gone.
    pub(super) fn seized(file: Option<Self>) -> Result<Option<Self>, Fault> {
        let Some(file) = file else { return Ok(None) };
        if !file.lock()? || !file.stands().unwrap_or(false) {
            return Ok(None);
        }
        file.must_be_ours()?;
        Ok(Some(file))
    }

    /// Takes the kernel's lock; returns false if another process has it. It lasts until the last
    /// descriptor of this open file is closed. The guard has one too, so this lock is never given
    /// back before, and the file only closed.
    pub(super) fn lock(&self) -> Result<bool, Fault> {
        self.locked(self.file.try_lock())
    }

    /// Takes the kernel's lock together with others that do so; returns false if a process has it
    /// alone.
    pub(super) fn lock_shared(&self) -> Result<bool, Fault> {
        self.locked(self.file.try_lock_shared())
    }

    /// Gives back the kernel's lock that was shared, whichever processes have a descriptor of this
    /// open file.
    pub(super) fn unlock(&self) {
        let _ = self.file.unlock();
    }

    fn locked(&self, tried: Result<(), TryLockError>) -> Result<bool, Fault> {
        match tried {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(self.told(&error)),
        }
    }

    /// Whether it is the file at its path. A lock on another file excludes no other rlock.
    pub(super) fn stands(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        // The kernel decrements the link count, and notifies watchers, before it removes the name.
        if ours.nlink() == 0 {
            return Ok(false);
        }
        let there = match fstatat(&self.dir, self.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(there) => there,
            Err(nix::Error::ENOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        Ok((there.st_dev, there.st_ino) == (ours.dev(), ours.ino()) && self.dir.stands()?)
    }

    /// Refuses a file whose content no rlock wrote, and closes one of ours to others: who may read
    /// it can lock it. To be called with the lock taken, before the file is written to.
    pub(super) fn must_be_ours(&self) -> Result<(), Fault> {
        let read = |most| self.read(0, most).map_err(|error| self.told(&error));
        let mut begin = read(LARGEST_VALUE + 1)?;
        if begin.len() > LARGEST_VALUE && begin.iter().all(|byte| *byte == 0) {
            // Of members a power loss takes all entries.
            begin = read(LARGEST_FILE)?;
        }
        if !is_ours(&begin) {
            let why = "holds something else than a lock";
            return Err(refused(&self.dir, &self.name, why));
        }
        let there = self.file.metadata().map_err(|error| self.told(&error))?;
        self.set_mode(&there);
        Ok(())
    }

    /// Writes the holder's value, and shows that it is written.
    pub(super) fn publish(&self, value: &str) -> Result<(), Fault> {
        self.write(value)?;
        self.take_bytes(ALL).map_err(|error| self.told(&error))
    }

    /// Returns the exclusive holder, if its value is written: a file may be left over from a crash.
    pub(super) fn holder(&self) -> io::Result<Option<Occupant>> {
        if self.conflict(ALL)? != Some(ALL) {
            return Ok(None);
        }
        let (length, head) = (self.file.metadata()?.len(), self.read(0, LARGEST_VALUE)?);
        let is_whole = length == head.len() as u64;
        let told = is_whole.then(|| Occupant::read(&head, None)).flatten();
        // The lock ends with its process, so its holder is on this machine, whatever the file says.
        Ok(Some(
            told.filter(|told| told.holder().is_some())
                .unwrap_or_else(unnamed),
        ))
    }

    /// Deletes it while it is locked: a process that has it open and gets the lock then sees that
    /// it has no name. A file that cannot be deleted is left over, unlocked, as after a crash.
    pub(super) fn delete(&self) {
        let _ = unlinkat(&self.dir, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
    }

    /// Keeps it young: cleaners of temporary directories go by age (systemd-tmpfiles: 10 days).
    /// Many members may share it, and each change wakes all that watch it.
    pub(super) fn touch(&self) {
        let now = SystemTime::now();
        let age = self
            .file
            .metadata()
            .and_then(|there| there.modified())
            .map(|then| now.duration_since(then));
        if !matches!(age, Ok(Ok(age)) if age < YOUNG) {
            // Another user's file: only this very moment can be set, by all that may write to it.
            let _ = futimens(&self.file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW);
        }
    }

    /// Its path.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    /// The directory it is in.
    pub(super) fn dir(&self) -> &Directory {
        &self.dir
    }

    /// Returns `most` bytes of its content from `start` on, or fewer if it ends before.
    pub(super) fn read(&self, start: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; most];
        let mut length = 0;
        while length < most {
            match self
                .file
                .read_at(&mut bytes[length..], start + length as u64)?
            {
                0 => break,
                read => length += read,
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Writes `bytes` over its content from `start` on.
    pub(super) fn write_at(&self, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, start)
    }

    /// Replaces its content by `text`.
    pub(super) fn write(&self, text: &str) -> Result<(), Fault> {
        write_whole(&self.file, text).map_err(|error| self.told(&error))
    }

    /// Returns the fault for `error`, with the path and a remedy.
    pub(super) fn told(&self, error: &io::Error) -> Fault {
        told(&self.dir, &self.name, error)
    }

    /// Locks `bytes` for this open file; returns false if another one has any of them.
    pub(super) fn lock_bytes(&self, bytes: Bytes) -> io::Result<bool> {
        match fcntl(
            &self.file,
            FcntlArg::F_OFD_SETLK(&lock_of(bytes, libc::F_WRLCK)),
        ) {
            Ok(_) => Ok(true),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks `bytes`, which are free: it is an error if another open file has any of them.
    pub(super) fn take_bytes(&self, bytes: Bytes) -> io::Result<()> {
        if self.lock_bytes(bytes)? {
            Ok(())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Unlocks `bytes`, whichever processes have a descriptor of this open file.
    pub(super) fn unlock_bytes(&self, bytes: Bytes) {
        let _ = fcntl(
            &self.file,
            FcntlArg::F_OFD_SETLK(&lock_of(bytes, libc::F_UNLCK)),
        );
    }

    /// Returns the bytes of a lock that another open file has in `bytes`.
    pub(super) fn conflict(&self, bytes: Bytes) -> io::Result<Option<Bytes>> {
        let mut lock = lock_of(bytes, libc::F_WRLCK);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some((lock.l_start, lock.l_len)))
    }

    /// Returns the exclusive holder; else the members as one occupant, or the first that is in
    /// `outer`.
    pub(super) fn occupant(&self, outer: &[Token]) -> Result<Option<Occupant>, Fault> {
        let holder = self.holder().and_then(|holder| {
            if holder.is_some() {
                Ok(holder)
            } else {
                self.crowd(outer)
            }
        });
        holder.map_err(|error| self.told(&error))
    }
}

impl AsFd for LockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for LockFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A process of this machine that has the lock and has not written its value, or not yet.
pub(super) fn unnamed() -> Occupant {
    Occupant::new(OccupantKind::Unnamed, None)
}

/// Opens the file `name` of `dir`. For a moment another user's new file has only the mode that the
/// umask left of it.
fn open_at(dir: &Directory, name: &str, flags: OFlag) -> nix::Result<File> {
    let mode = Mode::from_bits_truncate(dir.file_mode());
    let mut tries = if dir.is_shared() { NEW_FILE_TRIES } else { 1 };
    loop {
        tries -= 1;
        match openat(dir, name, flags, mode) {
            Err(nix::Error::EACCES) if tries > 0 => std::thread::yield_now(),
            result => return result.map(File::from),
        }
    }
}

/// Returns why no rlock of the user `owner` can have made a file with this metadata, if so. `None`:
/// of any user.
fn misconfiguration(there: &Metadata, owner: Option<u32>) -> Option<String> {
    if !there.is_file() {
        return Some(IRREGULAR.to_owned());
    }
    if let Some(owner) = owner.filter(|owner| there.uid() != *owner) {
        return Some(format!(
            "belongs to uid {}, not to uid {owner}",
            there.uid()
        ));
    }
    if there.nlink() > 1 {
        return Some(format!("has {} names (hard links)", there.nlink()));
    }
    (owner.is_some() && there.mode() & 0o022 != 0).then(|| {
        format!(
            "can be written to by other users (mode {:04o})",
            there.mode() & 0o7777
        )
    })
}

/// Whether an rlock may have left a file that begins with `begin`: nothing, or zeros after a power
/// loss, a marker, or a value. A zero or the file's end ends the last two. A value that was partly
/// written over an older one mixes the two, and has the same shape at each position.
fn is_ours(begin: &[u8]) -> bool {
    let head = begin.split(|byte| *byte == 0).next().unwrap_or_default();
    let fits = |(byte, shape): (&u8, &u8)| {
        if *shape == b'x' {
            byte.is_ascii_hexdigit()
        } else {
            byte == shape
        }
    };
    let is_value =
        (BELIEVED..=LARGEST_VALUE).contains(&head.len()) && head.iter().zip(SHAPE).all(fits);
    let is_marker = || std::str::from_utf8(head).is_ok_and(|text| Marker::read(text).is_some());
    is_value || is_marker() || begin.iter().all(|byte| *byte == 0)
}

/// Writes `value`, and truncates only after a longer one: ext4 flushes a file on close that was
/// truncated first.
fn write_whole(file: &File, value: &str) -> io::Result<()> {
    let old = file.metadata()?.len();
    file.write_all_at(value.as_bytes(), 0)?;
    if old > value.len() as u64 {
        file.set_len(value.len() as u64)
    } else {
        Ok(())
    }
}

/// A lock of `bytes` in fcntl(2)'s terms.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the kernel's structure has a smaller type for the kind"
)]
fn lock_of((start, length): Bytes, kind: libc::c_int) -> libc::flock {
    // SAFETY: all its fields are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_start = start;
    lock.l_len = length;
    lock
}

fn told(dir: &Directory, name: &str, error: &io::Error) -> Fault {
    let path = shown(&dir.path().join(name));
    let remedy = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "make room there, or name another directory with local:/dir"
        }
        _ => "mend that, or name another directory with local:/dir",
    };
    super::failed(error, format!("{path}: {error}; {remedy}"))
}

fn refused(dir: &Directory, name: &str, why: &str) -> Fault {
    let path = shown(&dir.path().join(name));
    unfit(format!(
        "{path} {why}; it was left alone: move it away, or name another directory with local:/dir"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::store::local::LocalDir;

    fn directory(path: &Path) -> Rc<Directory> {
        let chosen = LocalDir {
            path: path.to_path_buf(),
            is_shared: false,
        };
        Rc::new(Directory::open(Some(&chosen)).unwrap())
    }

    fn opened(dir: &Rc<Directory>) -> LockFile {
        LockFile::open(dir, "job.lock".to_owned(), MAKE)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_look_keeps_no_taker_out_however_long_it_takes() {
        let place = tempfile::tempdir().unwrap();
        let dir = directory(place.path());
        let leftover = opened(&dir);
        leftover
            .publish("8c7d6f1e-1111-4222-8333-123456789abc {}")
            .unwrap();
        let look = LockFile::open(&dir, "job.lock".to_owned(), LOOK)
            .unwrap()
            .unwrap();
        assert!(look.holder().unwrap().is_some());
        drop(leftover);
        assert!(look.holder().unwrap().is_none());
        let taker = opened(&dir);
        assert!(taker.lock().unwrap());
        assert!(
            look.holder().unwrap().is_none(),
            "its name is not written yet"
        );
        taker
            .publish("8c7d6f1e-1111-4222-8333-123456789abc {}")
            .unwrap();
        assert!(
            look.holder()
                .unwrap()
                .is_some_and(|occupant| occupant.holder().is_some())
        );
    }

    #[test]
    fn a_file_in_a_directory_that_was_moved_stands_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("locks");
        let dir = directory(&path);
        let file = opened(&dir);
        assert!(file.stands().unwrap());
        std::fs::rename(&path, place.path().join("moved")).unwrap();
        assert!(!file.stands().unwrap());
        // Another directory of the same name, with a file of the same name, is not ours.
        let another = opened(&directory(&path));
        assert!(another.stands().unwrap() && !file.stands().unwrap());
        std::fs::remove_file(another.path()).unwrap();
        assert!(!another.stands().unwrap());
    }

    #[test]
    fn a_file_that_no_rlock_of_the_user_has_made_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let dir = directory(place.path());
        let (path, other) = (opened(&dir).path(), place.path().join("other"));
        let refusal = || {
            let refused = LockFile::open(&dir, "job.lock".to_owned(), MAKE).err();
            refused.map(|fault| fault.why).unwrap_or_default()
        };
        let set_mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode));
        set_mode(0o622).unwrap();
        assert!(refusal().contains("can be written to by other users"));
        set_mode(0o600).unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        assert!(refusal().contains("has 2 names"));
        std::fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert!(refusal().contains(IRREGULAR));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(refusal(), "");
    }

    #[test]
    fn a_file_that_was_moved_is_not_the_one_at_its_path() {
        let place = tempfile::tempdir().unwrap();
        let dir = directory(place.path());
        let file = opened(&dir);
        std::fs::rename(file.path(), place.path().join("moved")).unwrap();
        assert!(!file.stands().unwrap());
        let another = opened(&dir);
        assert!(another.stands().unwrap() && !file.stands().unwrap());
    }

    #[test]
    fn what_an_rlock_may_have_left_is_its_own_and_nothing_else_is() {
        let value = b"8c7d6f1e-1111-4222-8333-123456789abc {\"host\":\"web1\"}";
        let older = b"ffffffff-2222-4333-8444-cba987654321 {\"host\":\"web11111\"}";
        for written in 0..=value.len() {
            let over_an_older_one = [&value[..written], &older[written..]].concat();
            assert!(is_ours(&over_an_older_one), "{written}");
            assert_eq!(
                is_ours(&value[..written]),
                written == 0 || written >= BELIEVED,
                "{written}"
            );
        }
        for own in [
            "rlock s n=1 ttl=30000",
            "rlock k3 n=1 ttl=30000\0 behind it",
            "\0\0\0\0",
        ] {
            assert!(is_ours(own.as_bytes()), "{own:?}");
        }
        for foreign in [
            "4711\n",
            "47114711",
            "20261122",
            "# Cargo\n",
            "8c7d6f1e-1111-4222-8333-123456789abc\n",
            "deadbeef\n",
            "rlock is a lock\n",
            "\0\0\0\u{1}",
        ] {
            assert!(!is_ours(foreign.as_bytes()), "{foreign:?}");
        }
    }
}
