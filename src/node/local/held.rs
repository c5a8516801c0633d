//! A lock that this process has: the open files that are the lock, how it is published, and how it is left.

use std::io;

use super::file::{ALL, LockFile, unnamed};
use super::files::Files;
use super::table::Table;
use super::{fence, unfit};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::node::{Claim, Fault};

/// A lock that is held: alone, or together with other members.
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) files: Files,
    pub(super) file: LockFile,
    /// The table with our seat, if the lock has members.
    pub(super) table: Option<Table>,
    pub(super) granted: Instant,
}

impl Held {
    /// The files that must stay at their paths.
    pub(super) fn parts(&self) -> impl Iterator<Item = &LockFile> {
        [Some(&self.file), self.table.as_ref().map(Table::file)].into_iter().flatten()
    }

    pub(super) fn stands(&self) -> io::Result<bool> {
        self.parts().try_fold(true, |all, file| Ok(all && file.stands()?))
    }

    /// Publishes the holder, alone or in a seat. Returns its fence and its slot, or the members that keep it out.
    ///
    /// No grant without a value: a `check` or an `rlock run` under it could not tell whose the lock is.
    pub(super) fn publish(&self, claim: &Claim) -> Result<Result<(Fence, u16), Occupant>, Fault> {
        let Some(table) = &self.table else {
            let fence = fence::next(self.files.dir())?;
            self.file.publish(&claim.details.value(claim.token)).map_err(unfit)?;
            return Ok(Ok((fence, 0)));
        };
        let failed = |error: io::Error| unfit(table.file().told(&error));
        if !table.enter().map_err(failed)? {
            return Ok(Err(unnamed()));
        }
        let seat = match table.seat_for(claim).map_err(failed)? {
            Ok(seat) => seat,
            Err(members) => return Ok(Err(members)),
        };
        let fence = fence::next(self.files.dir())?;
        let index = table.take(seat, fence, claim.token, &claim.details).map_err(failed)?;
        table.go_out();
        Ok(Ok((fence, index)))
    }

    /// Gives the lock back, and deletes its files unless other members hold it. Of two that leave at once, the second has it alone.
    pub(super) fn leave(&self) {
        self.parts().for_each(|file| file.unlock_bytes(ALL));
        if matches!(self.file.lock(), Ok(true)) && self.file.stands().unwrap_or(false) {
            self.files.delete(&self.file);
        }
        self.file.unlock();
    }
}
