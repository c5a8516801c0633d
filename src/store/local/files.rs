//! The files of one lock in an open directory: their names, the rule by which they are deleted, and
//! those that this process has.
//!
//! | name | file |
//! |---|---|
//! | `KEY.lock` | the lock's own: flock(2) on it decides who holds the lock, one alone or [members](super::members) together |
//! | `KEY.gate` | the [`Gate`], closed by a waiter for whom members of another kind must leave |
//!
//! The first is deleted only by a process that has it alone, while it stands at its path. So no
//! file is deleted under a process that shares it.

use std::io;
use std::rc::Rc;

use nix::fcntl::OFlag;

use super::directory::Directory;
use super::fence;
use super::file::{ALL, LOCK, LockFile, MAKE, unnamed};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::store::{Claim, Fault};
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

/// The gate of a lock with members, closed by this process for a waiter for whom they must leave, so
/// that no others join them meanwhile. It opens when this is dropped.
///
/// It only makes the order fair, and decides nothing. It is closed while a process has the file
/// locked, so a waiter that was killed leaves it open. A gate that does not open in time may be
/// deleted by any process: see [`GATE_TURN`](crate::lock::backoff::GATE_TURN).
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

/// A lock that is held: alone, or together with other members.
pub(super) struct HeldFile {
    pub(super) token: Token,
    pub(super) files: Files,
    pub(super) file: LockFile,
    pub(super) granted: Instant,
}

impl HeldFile {
    /// Publishes the holder, alone or in a seat. Returns its fence and its slot, or the members
    /// that keep it out.
    ///
    /// No grant without a value: a `check` or an `rlock run` under it could not tell whose the lock
    /// is.
    pub(super) fn publish(&self, claim: &Claim) -> Result<Result<(Fence, u16), Occupant>, Fault> {
        let file = &self.file;
        if !claim.details.mode.has_members() {
            let fence = fence::next(self.files.dir())?;
            file.publish(&claim.details.value(claim.token))?;
            return Ok(Ok((fence, 0)));
        }
        let failed = |error: io::Error| file.told(&error);
        if !file.enter().map_err(failed)? {
            return Ok(Err(unnamed()));
        }
        let seat = match file.seat_for(claim).map_err(failed)? {
            Ok(seat) => seat,
            Err(members) => return Ok(Err(members)),
        };
        let fence = fence::next(self.files.dir())?;
        let index = file
            .take_seat(seat, fence, claim.token, &claim.details)
            .map_err(failed)?;
        file.go_out();
        Ok(Ok((fence, index)))
    }

    /// Gives the lock back, and wakes waiters for a seat. The lock is still shared then, so no
    /// holder writes a value meanwhile.
    pub(super) fn release(&self) {
        self.file.unlock_bytes(ALL);
        self.file.wake_waiters();
        self.leave();
    }

    /// Gives up the place, and deletes the files unless other members hold the lock. Of two that
    /// leave at once, the second has it alone.
    pub(super) fn leave(&self) {
        self.file.unlock_bytes(ALL);
        if matches!(self.file.lock(), Ok(true)) && self.file.stands().unwrap_or(false) {
            self.files.delete(&self.file);
        }
        self.file.unlock();
    }
}
