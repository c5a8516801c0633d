//! One member of a lock that is shared or has slots: how it joins the others, and how it leaves.
//!
//! It shares the flock of the lock's own file, and has a seat in the [`Table`]. Two rules keep the files of a lock together:
//!
//! 1. The table is deleted only inside, while it stands and no other seat is taken; the lock's own file before it. So a
//!    process that finds both standing when it is inside has joined all other members.
//! 2. The lock's own file is deleted by the process that has it alone, or by the last member, inside.

use std::io;

use super::file::{LockFile, unnamed};
use super::files::Files;
use super::table::Table;
use super::{fence, unfit};
use crate::lock::fence::Fence;
use crate::lock::occupant::Occupant;
use crate::node::{Claim, Fault};

/// A member that has a seat.
pub(super) struct Member {
    files: Files,
    file: LockFile,
    table: Table,
    seat: u16,
}

/// The outcome of one try to join.
pub(super) enum Joined {
    /// There is a seat for us.
    Seated(Member, Fence),
    /// This party has the lock, until the file is gone.
    Held(Occupant, LockFile),
    /// The members have all seats.
    Full(Occupant, Table),
    /// The files were deleted meanwhile.
    Again,
}

/// The outcome of a look at the seats.
enum Seats {
    Free(u16),
    Full(Occupant),
    OfOthers(Occupant),
}

impl Member {
    /// Tries once to join.
    pub(super) fn join(files: Files, claim: &Claim) -> Result<Joined, Fault> {
        let Some(file) = files.lock().map_err(unfit)? else { return Ok(Joined::Again) };
        if !file.lock_shared().map_err(unfit)? {
            let holder = file.holder().map_err(unfit)?;
            return Ok(Joined::Held(holder.unwrap_or_else(unnamed), file));
        }
        if !file.stands().map_err(|error| unfit(file.told(&error)))? {
            return Ok(Joined::Again);
        }
        file.must_be_ours().map_err(unfit)?;
        let Some(table) = files.table().map_err(unfit)? else { return Ok(Joined::Again) };
        let mut member = Self { files, file, table, seat: 0 };
        if !member.table.enter().map_err(|error| member.told(&error))? {
            member.unlock();
            return Ok(Joined::Held(unnamed(), member.file));
        }
        if !member.stands().map_err(|error| member.told(&error))? {
            return Ok(Joined::Again);
        }
        let seats = member.seats(claim).map_err(|error| member.told(&error));
        let taken = seats.and_then(|seats| match seats {
            Seats::Free(seat) => Ok(Ok(member.take(seat, claim)?)),
            refused => Ok(Err(refused)),
        });
        match taken {
            Ok(Ok(fence)) => {
                member.table.go_out();
                Ok(Joined::Seated(member, fence))
            }
            Ok(Err(refused)) => {
                member.leave_inside();
                // Others share the open file with a guard that was forked meanwhile, and it is kept to be watched.
                member.unlock();
                Ok(match refused {
                    Seats::Full(crowd) => Joined::Full(crowd, member.table),
                    Seats::OfOthers(crowd) => Joined::Held(crowd, member.file),
                    Seats::Free(_) => Joined::Again,
                })
            }
            Err(fault) => {
                member.leave_inside();
                Err(fault)
            }
        }
    }

    /// Whether both files are those at their paths.
    pub(super) fn stands(&self) -> io::Result<bool> {
        Ok(self.file.stands()? && self.table.file().stands()?)
    }

    /// The files that must stay at their paths.
    pub(super) fn files(&self) -> [&LockFile; 2] {
        [&self.file, self.table.file()]
    }

    /// The index of its slot; 0 without slots.
    pub(super) fn index(&self, claim: &Claim) -> u16 {
        if claim.details.mode.number().is_some() { self.seat } else { 0 }
    }

    /// Gives its place back, and deletes the files if it was the last. They are left over, as after a crash, if another
    /// process is stopped inside.
    pub(super) fn leave(self) {
        if matches!(self.table.enter(), Ok(true)) && self.stands().unwrap_or(false) {
            self.leave_inside();
            self.table.vacate(self.seat);
        }
        self.unlock();
    }

    /// Deletes the files if there is no other member.
    fn leave_inside(&self) {
        if matches!(self.table.first_taken(), Ok(None)) {
            self.file.delete();
            self.table.delete();
            self.files.clear_gate();
        }
    }

    fn unlock(&self) {
        self.file.unlock();
        self.table.unlock();
    }

    fn seats(&self, claim: &Claim) -> io::Result<Seats> {
        let mode = claim.details.mode;
        if self.table.first_taken()?.is_some() {
            let is_ours = self.table.marker()?.is_some_and(|marker| marker.mode == mode);
            // An outer rlock's place is ours too: a second one would not end with it.
            if (!is_ours || !claim.outer.is_empty())
                && let Some(crowd) = self.table.crowd(&claim.outer)?
                && (!is_ours || crowd.holder().is_some())
            {
                return Ok(Seats::OfOthers(crowd));
            }
        }
        // Readers begin anywhere, so that many do not try each other's seats.
        let (random, _) = claim.token.as_uuid().as_u64_pair();
        let from = if mode.number().is_some() { claim.index } else { (random % 1000) as u16 };
        Ok(match self.table.free_seat(mode, from)? {
            Some(seat) => Seats::Free(seat),
            None => Seats::Full(self.table.crowd(&[])?.unwrap_or_else(unnamed)),
        })
    }

    fn take(&mut self, seat: u16, claim: &Claim) -> Result<Fence, Fault> {
        let fence = fence::next(self.files.dir())?;
        self.table.take(seat, fence, claim.token, &claim.details).map_err(|error| self.told(&error))?;
        self.seat = seat;
        Ok(fence)
    }

    fn told(&self, error: &io::Error) -> Fault {
        unfit(self.table.file().told(error))
    }
}
