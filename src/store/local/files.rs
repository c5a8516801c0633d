//! The files of one lock in an open directory: their names, and the rule by which they are deleted.
//!
//! | name | file |
//! |---|---|
//! | `KEY.lock` | the lock's own: flock(2) on it decides who holds the lock, one alone or [members](super::members) together |
//! | `KEY.gate` | the [`Gate`](super::gate::Gate), closed by a waiter for whom members of another kind must leave |
//!
//! The first is deleted only by a process that has it alone, while it stands at its path. So no
//! file is deleted under a process that shares it.

use std::rc::Rc;

use nix::fcntl::OFlag;

use super::directory::Directory;
use super::file::{LOCK, LockFile};
use crate::store::Fault;
use crate::text::file_stem;

/// The files of one lock.
#[derive(Clone)]
pub(super) struct Files {
    dir: Rc<Directory>,
    stem: String,
}

impl Files {
    /// The files of the lock `key` in `dir`.
    pub(super) fn new(dir: Directory, key: &str) -> Self {
        Self {
            dir: Rc::new(dir),
            stem: file_stem(key),
        }
    }

    /// Their directory.
    pub(super) fn dir(&self) -> &Rc<Directory> {
        &self.dir
    }

    /// Opens the lock's own file. `None` if there is none, or if it has just been deleted.
    pub(super) fn lock(&self, access: OFlag) -> Result<Option<LockFile>, Fault> {
        self.open("lock", access)
    }

    /// Opens the gate's file. `None` if there is none, or if it has just been deleted.
    pub(super) fn gate(&self, access: OFlag) -> Result<Option<LockFile>, Fault> {
        self.open("gate", access)
    }

    /// Deletes them, for the process that has the lock's own file alone: also a gate that a killed
    /// process left. It stays if it is closed.
    pub(super) fn delete(&self, own: &LockFile) {
        own.delete();
        if let Ok(Some(gate)) = self.gate(LOCK).and_then(LockFile::seized) {
            gate.delete();
        }
    }

    fn open(&self, kind: &str, access: OFlag) -> Result<Option<LockFile>, Fault> {
        LockFile::open(&self.dir, format!("{}.{kind}", self.stem), access)
    }
}
