//! A lock that this process has: the open file that is the lock, how it is published, and how it is
//! left.

use std::io;

use super::fence;
use super::file::{ALL, LockFile, unnamed};
use super::files::Files;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::store::{Claim, Fault};

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
