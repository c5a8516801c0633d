//! The files of one lock in an open directory: their names, and the rule by which they are deleted.
//!
//! | name | file |
//! |---|---|
//! | `KEY.lock` | the lock's own: flock(2) on it decides who holds the lock, one alone or members together |
//! | `KEY.members` | the [`Table`] of the members, if it has any |
//! | `KEY.gate` | the [`Gate`](super::gate::Gate), closed by a waiter for whom members of another kind must leave |
//!
//! The first two are deleted only by a process that has the lock's own file alone, while that stands at its path, and that file last. So
//! no file is deleted under a process that shares it.

use std::rc::Rc;

use nix::fcntl::OFlag;

use super::directory::Directory;
use super::file::{LOCK, LOOK, LockFile};
use super::table::Table;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
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
        Self { dir: Rc::new(dir), stem: file_stem(key) }
    }

    /// Their directory.
    pub(super) fn dir(&self) -> &Rc<Directory> {
        &self.dir
    }

    /// Opens the lock's own file. `None` if there is none, or if it has just been deleted.
    pub(super) fn lock(&self, access: OFlag) -> Result<Option<LockFile>, String> {
        self.open("lock", access)
    }

    /// Opens the table of the members. `None` if there is none, or if it has just been deleted.
    pub(super) fn table(&self, access: OFlag) -> Result<Option<Table>, String> {
        self.open("members", access)?.map(Table::new).transpose()
    }

    /// Opens the gate's file. `None` if there is none, or if it has just been deleted.
    pub(super) fn gate(&self, access: OFlag) -> Result<Option<LockFile>, String> {
        self.open("gate", access)
    }

    /// Returns the exclusive holder, if its value is written.
    pub(super) fn holder(&self) -> Result<Option<Occupant>, String> {
        self.lock(LOOK)?.map_or(Ok(None), |file| file.holder())
    }

    /// Returns that holder; else the members as one occupant, or the first that is in `outer`.
    pub(super) fn occupant(&self, outer: &[Token]) -> Result<Option<Occupant>, String> {
        if let Some(holder) = self.holder()? {
            return Ok(Some(holder));
        }
        let Some(table) = self.table(LOOK)? else { return Ok(None) };
        table.crowd(outer).map_err(|error| table.file().told(&error))
    }

    /// Deletes them all, for the process that has the lock's own file alone: also what a killed process left. A gate stays if it is
    /// closed.
    pub(super) fn delete(&self, own: &LockFile) {
        if let Ok(Some(table)) = self.table(LOOK) {
            table.file().delete();
        }
        own.delete();
        if let Ok(Some(gate)) = self.gate(LOCK).and_then(LockFile::seized) {
            gate.delete();
        }
    }

    fn open(&self, kind: &str, access: OFlag) -> Result<Option<LockFile>, String> {
        LockFile::open(&self.dir, format!("{}.{kind}", self.stem), access)
    }
}
