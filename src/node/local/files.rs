//! The files of one lock in an open directory, and their names.
//!
//! | name | file |
//! |---|---|
//! | `KEY.lock` | the lock's own: flock(2) on it decides who holds the lock, one alone or members together |
//! | `KEY.members` | the [`Table`] of the members, if it has any |
//! | `KEY.gate` | the [`Gate`], closed by a waiter for whom members of another kind must leave |

use std::rc::Rc;

use super::directory::Directory;
use super::file::LockFile;
use super::gate::Gate;
use super::table::Table;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::text::file_name::stem;

/// The files of one lock.
#[derive(Clone)]
pub(super) struct Files {
    dir: Rc<Directory>,
    stem: String,
}

impl Files {
    /// The files of the lock `key` in `dir`.
    pub(super) fn new(dir: Directory, key: &str) -> Self {
        Self { dir: Rc::new(dir), stem: stem(key) }
    }

    /// Their directory.
    pub(super) fn dir(&self) -> &Rc<Directory> {
        &self.dir
    }

    /// Opens the lock's own file, and makes it if it is missing. `None` if it has just been deleted.
    pub(super) fn lock(&self) -> Result<Option<LockFile>, String> {
        LockFile::open(Rc::clone(&self.dir), self.lock_name())
    }

    /// Opens the table of the members, and makes it if it is missing. `None` if it has just been deleted.
    pub(super) fn table(&self) -> Result<Option<Table>, String> {
        Table::open(Rc::clone(&self.dir), self.table_name())
    }

    /// Opens the table of the members to observe it. `None` if there is none.
    pub(super) fn existing_table(&self) -> Result<Option<Table>, String> {
        Table::existing(Rc::clone(&self.dir), self.table_name())
    }

    /// Closes the gate for the waiter with this value. `None` if it is closed, or cannot be.
    pub(super) fn close_gate(&self, value: &str) -> Option<Gate> {
        Gate::close(&self.dir, self.gate_name(), value).ok().flatten()
    }

    /// Returns the gate's file, and the waiter that has closed it. `None` if it is open.
    pub(super) fn closed_gate(&self) -> Result<Option<(LockFile, Occupant)>, String> {
        let Some(file) = LockFile::existing(Rc::clone(&self.dir), self.gate_name())? else { return Ok(None) };
        Ok(file.holder()?.map(|waiter| (file, waiter)))
    }

    /// Returns the exclusive holder, if its value is written.
    pub(super) fn holder(&self) -> Result<Option<Occupant>, String> {
        let file = LockFile::existing(Rc::clone(&self.dir), self.lock_name())?;
        Ok(file.map(|file| file.holder()).transpose()?.flatten())
    }

    /// Returns the members as one occupant, or the first that is in `outer`. `None` if there is no member.
    pub(super) fn crowd(&self, outer: &[Token]) -> Result<Option<Occupant>, String> {
        let Some(table) = self.existing_table()? else { return Ok(None) };
        table.crowd(outer).map_err(|error| table.file().told(&error))
    }

    /// Deletes what a killed process left beside the lock's own file, unless it is in use.
    pub(super) fn clear_leftovers(&self) {
        Table::clear(Rc::clone(&self.dir), self.table_name());
        self.clear_gate();
    }

    /// Deletes a gate that a killed process left.
    pub(super) fn clear_gate(&self) {
        Gate::clear(Rc::clone(&self.dir), self.gate_name());
    }

    fn lock_name(&self) -> String {
        format!("{}.lock", self.stem)
    }

    fn table_name(&self) -> String {
        format!("{}.members", self.stem)
    }

    fn gate_name(&self) -> String {
        format!("{}.gate", self.stem)
    }
}
