//! The files of one lock in an open directory, and their names.
//!
//! | name | file |
//! |---|---|
//! | `KEY.lock` | the lock's own: flock(2) on it decides who holds the lock, one alone or members together |
//! | `KEY.members` | the [`Table`] of the members, if it has any |
//! | `KEY.gate` | the [`Gate`], closed by a waiter for whom members of another kind must leave |

use std::rc::Rc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use super::directory::Directory;
use super::file::LockFile;
use super::gate::Gate;
use super::table::Table;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;

/// Characters that must be encoded in a file name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Encoded names longer than this are cut and given a hash. `NAME_MAX` is 255.
const LONGEST_NAME: usize = 180;

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
        let Some(mut file) = LockFile::existing(Rc::clone(&self.dir), self.gate_name())? else { return Ok(None) };
        Ok(file.holder()?.map(|waiter| (file, waiter)))
    }

    /// Returns the exclusive holder, if its value is written.
    pub(super) fn holder(&self) -> Result<Option<Occupant>, String> {
        let file = LockFile::existing(Rc::clone(&self.dir), self.lock_name())?;
        Ok(file.map(|mut file| file.holder()).transpose()?.flatten())
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

/// Returns the file name of `key`, less its end. Two keys share a name only if the hashes of over-long ones collide, which
/// merely makes two locks exclude each other.
fn stem(key: &str) -> String {
    let mut name = utf8_percent_encode(key, ENCODED).to_string();
    if let Some(rest) = name.strip_prefix('.') {
        name = format!("%2E{rest}");
    }
    if name.len() > LONGEST_NAME {
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).simple();
        name = format!("{}~{hash}", &name[..LONGEST_NAME]);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_key_is_a_safe_file_name_and_no_other_keys(a in ".{1,300}", b in ".{1,300}") {
            let name = stem(&a) + ".members";
            prop_assert!(name.len() <= 255 && !name.contains('/') && !name.starts_with('.'));
            prop_assert_eq!(stem(&a) == stem(&b), a == b);
        }
    }

    #[test]
    fn dots_and_slashes_do_not_leave_the_directory() {
        assert_eq!(stem(".."), "%2E.");
        assert_eq!(stem("../x"), "%2E.%2Fx");
        assert_eq!(stem(".fence"), "%2Efence");
    }
}
