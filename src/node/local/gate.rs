//! The gate of a lock with members: closed by one waiter for whom they must leave, so that no others join them meanwhile.
//!
//! It only makes the order fair, and decides nothing. It is closed while a process has the file locked, so a waiter that was
//! killed leaves it open. A gate that does not open in time may be deleted by any process: see [`TURN`].

use std::rc::Rc;
use std::time::Duration;

use super::directory::Directory;
use super::file::LockFile;

/// Time for which the lock may be free while the gate is closed: the waiter is stopped then, and is passed over.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// A gate that this process has closed. It opens when this is dropped.
pub(super) struct Gate {
    file: LockFile,
}

impl Gate {
    /// Closes the gate `name` of `dir` for the waiter with this value. `None` if another waiter has.
    pub(super) fn close(dir: &Rc<Directory>, name: String, value: &str) -> Result<Option<Self>, String> {
        let Some(file) = LockFile::open(Rc::clone(dir), name)? else { return Ok(None) };
        if !file.lock()? || !file.stands().unwrap_or(false) {
            return Ok(None);
        }
        file.must_be_ours()?;
        file.publish(value).inspect_err(|_| file.delete())?;
        Ok(Some(Self { file }))
    }

    /// Deletes a gate that was left over.
    pub(super) fn clear(dir: Rc<Directory>, name: String) {
        if let Ok(Some(file)) = LockFile::leftover(dir, name)
            && matches!(file.lock(), Ok(true))
            && file.stands().unwrap_or(false)
            && file.must_be_ours().is_ok()
        {
            file.delete();
        }
    }

    /// Whether it keeps others out: it has not been deleted.
    pub(super) fn stands(&self) -> bool {
        self.file.stands().unwrap_or(false)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.stands() {
            self.file.delete();
        }
    }
}
