//! The gate of a lock with members: closed by one waiter for whom they must leave, so that no
//! others join them meanwhile.
//!
//! It only makes the order fair, and decides nothing. It is closed while a process has the file
//! locked, so a waiter that was killed leaves it open. A gate that does not open in time may be
//! deleted by any process: see [`GATE_TURN`](crate::lock::backoff::GATE_TURN).

use super::file::{LockFile, MAKE};
use super::files::Files;

/// A gate that this process has closed. It opens when this is dropped.
pub(super) struct Gate(LockFile);

impl Gate {
    /// Closes the gate of the lock with these files for the waiter with this value. `None` if
    /// another waiter has, or if it cannot be.
    pub(super) fn close(files: &Files, value: &str) -> Option<Self> {
        let file = files.gate(MAKE).and_then(LockFile::seized).ok().flatten()?;
        let closed = file.publish(value);
        let gate = Self(file);
        closed.is_ok().then_some(gate)
    }

    /// Whether it keeps others out: it has not been deleted.
    pub(super) fn stands(&self) -> bool {
        self.0.stands().unwrap_or(false)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.stands() {
            self.0.delete();
        }
    }
}
