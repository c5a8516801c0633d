//! The table of the members of a lock: a file beside the lock's own, with a seat for each member.
//!
//! 1. A member locks its seat, one byte, with an open file description lock (fcntl(2)). The kernel frees the seat when the
//!    last descriptor is closed, so nothing of a member that was killed is counted.
//! 2. The member's entry is written before its seat is locked. So an observer, which takes no lock, reads whole entries.
//! 3. The first byte is the entrance. The process that locks it may take a seat, write the marker, and delete the table.
//! 4. The marker is the kind of all members. It counts while any seat is taken.
//!
//! The holder of a lock's own file is decided by flock(2) alone: a member shares that lock, and the table only tells members
//! from each other.

use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::directory::Directory;
use super::file::{LockFile, NO_LOCK, WRITE_LOCK};
use crate::lock::details::{Details, LARGEST_VALUE};
use crate::lock::fence::Fence;
use crate::lock::group::{Group, Marker};
use crate::lock::mode::Mode;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::token::Token;

/// Most readers of one lock.
const MOST_READERS: u16 = 10_000;

/// Size of an entry, in bytes: a value, behind an index and a fence. A zero ends it sooner.
const ENTRY: usize = LARGEST_VALUE + 64;

/// The first byte, which is locked to enter.
const ENTRANCE: (i64, i64) = (0, 1);

/// The bytes of all seats; without an end.
const SEATS: (i64, i64) = (1, 0);

/// Number of tries to enter. Another process needs microseconds there, unless it is stopped.
const TRIES: u32 = 2000;

/// Most members that an observation lists.
const LISTED: usize = 1000;

/// A table, open.
pub(super) struct Table {
    file: LockFile,
}

impl Table {
    /// Opens the table `name` of `dir`, and makes it if it is missing. `None` if it has just been deleted.
    pub(super) fn open(dir: Rc<Directory>, name: String) -> Result<Option<Self>, String> {
        Self::checked(LockFile::open(dir, name)?)
    }

    /// Opens the table `name` of `dir` to observe it. `None` if there is none.
    pub(super) fn existing(dir: Rc<Directory>, name: String) -> Result<Option<Self>, String> {
        Self::checked(LockFile::existing(dir, name)?)
    }

    /// Deletes a table that was left over, unless it is in use.
    pub(super) fn clear(dir: Rc<Directory>, name: String) {
        let table = LockFile::leftover(dir, name).and_then(Self::checked);
        if let Ok(Some(table)) = table
            && matches!(table.lock(ENTRANCE), Ok(true))
            && table.file.stands().unwrap_or(false)
            && matches!(table.first_taken(), Ok(None))
        {
            table.delete();
        }
    }

    fn checked(file: Option<LockFile>) -> Result<Option<Self>, String> {
        let Some(table) = file.map(|file| Self { file }) else { return Ok(None) };
        let head = table.read(0).map_err(|error| table.file.told(&error))?;
        // A power loss may leave an empty file. Another marker is that of a kind to come.
        if head.is_empty() || head.starts_with(b"rlock ") {
            return Ok(Some(table));
        }
        Err(table.file.refused("holds something else than the members of a lock"))
    }

    /// Its file.
    pub(super) fn file(&self) -> &LockFile {
        &self.file
    }

    /// Enters, until [`Table::unlock`] or [`Table::go_out`]. Returns false if another process does not go out.
    ///
    /// That is never waited for: a process that was stopped there must not stop all others.
    pub(super) fn enter(&self) -> io::Result<bool> {
        for _ in 0..TRIES {
            if self.lock(ENTRANCE)? {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Lets the next process in.
    pub(super) fn go_out(&self) {
        let _ = self.unlock_range(ENTRANCE);
    }

    /// Gives back the seat and the entrance, whichever processes have a descriptor of this open file.
    pub(super) fn unlock(&self) {
        let _ = self.unlock_range((0, 0));
    }

    /// Deletes it. To be called inside, and only if it stands: a table with another one's name would be deleted otherwise.
    pub(super) fn delete(&self) {
        self.file.delete();
    }

    /// Returns a seat that another process has taken.
    pub(super) fn first_taken(&self) -> io::Result<Option<u16>> {
        Ok(self.conflict(SEATS)?.map(|(seat, _)| seat))
    }

    /// Returns all seats that other processes have taken.
    pub(super) fn taken(&self) -> io::Result<Vec<u16>> {
        let (mut taken, mut open) = (Vec::new(), vec![(1, i64::from(u16::MAX))]);
        while let Some((first, end)) = open.pop() {
            if first < end
                && let Some((seat, length)) = self.conflict((first, end - first))?
            {
                taken.push(seat);
                open.extend([(first, i64::from(seat)), (i64::from(seat) + length, end)]);
            }
        }
        taken.sort_unstable();
        Ok(taken)
    }

    /// Returns a free seat for a member of kind `mode`, `from` or the next one behind it.
    pub(super) fn free_seat(&self, mode: Mode, from: u16) -> io::Result<Option<u16>> {
        let most = mode.number().unwrap_or(MOST_READERS);
        for step in 0..most {
            let seat = seat_at(from, step, most);
            if self.conflict((i64::from(seat), 1))?.is_none() {
                return Ok(Some(seat));
            }
        }
        Ok(None)
    }

    /// Takes `seat`, which is free, for the member that `details` describe. To be called inside. The first one makes the marker.
    pub(super) fn take(&self, seat: u16, fence: Fence, token: Token, details: &Details) -> io::Result<()> {
        if self.first_taken()?.is_none() {
            let ttl = Duration::from_millis(details.ttl);
            self.write(0, &Marker { mode: details.mode, nodes: details.n, ttl }.to_string())?;
        }
        let index = if details.mode.number().is_some() { seat } else { 0 };
        self.write(seat, &format!("{index} {fence} {}", details.value(token)))?;
        if self.lock((i64::from(seat), 1))? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Gives `seat` back. To be called inside. The write wakes waiters for a slot, so it comes behind the unlocking.
    pub(super) fn vacate(&self, seat: u16) {
        let _ = self.unlock_range((i64::from(seat), 1));
        let _ = self.write(seat, "");
    }

    /// Returns the kind of the members, if there are any and it can be read.
    pub(super) fn marker(&self) -> io::Result<Option<Marker>> {
        let head = self.read(0)?;
        Ok(std::str::from_utf8(&head).ok().and_then(Marker::read))
    }

    /// Returns the members, each with its slot, and their number. Of many, not all are listed, but `wanted` is.
    pub(super) fn members(&self, wanted: Option<Token>) -> io::Result<(Vec<Occupant>, u64)> {
        let taken = self.taken()?;
        let mut members = Vec::new();
        for seat in &taken {
            let Some(member) = self.member(*seat)? else { continue };
            let is_wanted = wanted.is_some() && member.holder().map(|(token, _)| token) == wanted;
            if is_wanted || members.len() < LISTED {
                members.push(member);
            }
        }
        Ok((members, taken.len() as u64))
    }

    /// Returns the members as one occupant, or the first that is in `outer`. `None` if there is no member.
    pub(super) fn crowd(&self, outer: &[Token]) -> io::Result<Option<Occupant>> {
        let seats = self.taken()?;
        let mut shown = None;
        for seat in &seats {
            let member = self.member(*seat)?;
            let Some((token, details)) = member.as_ref().and_then(Occupant::holder) else { continue };
            if outer.contains(&token) {
                return Ok(member);
            }
            shown.get_or_insert((token, details.clone()));
            if outer.is_empty() {
                break;
            }
        }
        if seats.is_empty() {
            return Ok(None);
        }
        let group = |marker| OccupantKind::Group(Box::new(Group { marker, members: seats.len() as u64, shown }));
        Ok(Some(Occupant::new(self.marker()?.map_or(OccupantKind::Unnamed, group), None)))
    }

    fn member(&self, seat: u16) -> io::Result<Option<Occupant>> {
        Ok(Occupant::member(&self.read(seat)?, None))
    }

    fn read(&self, seat: u16) -> io::Result<Vec<u8>> {
        let mut entry = vec![0; ENTRY];
        let mut length = 0;
        while length < ENTRY {
            match self.file.file().read_at(&mut entry[length..], offset(seat) + length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        entry.truncate(entry.iter().position(|byte| *byte == 0).unwrap_or(length));
        Ok(entry)
    }

    fn write(&self, seat: u16, entry: &str) -> io::Result<()> {
        self.file.file().write_all_at(&[entry.as_bytes(), b"\0"].concat(), offset(seat))
    }

    fn lock(&self, range: (i64, i64)) -> io::Result<bool> {
        match fcntl(self.file.file(), FcntlArg::F_OFD_SETLK(&lock_of(range, WRITE_LOCK))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn unlock_range(&self, range: (i64, i64)) -> io::Result<()> {
        Ok(fcntl(self.file.file(), FcntlArg::F_OFD_SETLK(&lock_of(range, NO_LOCK))).map(drop)?)
    }

    /// Returns the first byte and the length of a lock that another process has in `range`.
    fn conflict(&self, range: (i64, i64)) -> io::Result<Option<(u16, i64)>> {
        let mut lock = lock_of(range, WRITE_LOCK);
        fcntl(self.file.file(), FcntlArg::F_OFD_GETLK(&mut lock))?;
        if lock.l_type == NO_LOCK {
            return Ok(None);
        }
        // A process that is not rlock may lock any byte. It counts as one member.
        let seat = u16::try_from(lock.l_start.max(range.0)).unwrap_or(u16::MAX);
        let length = if lock.l_len == 0 { i64::from(u16::MAX) } else { lock.l_start + lock.l_len - i64::from(seat) };
        Ok(Some((seat, length.max(1))))
    }
}

/// Returns the seat that is tried after `step` others, beginning with `from`, of seats numbered from 1 to `most`.
fn seat_at(from: u16, step: u16, most: u16) -> u16 {
    let sum = u32::from(from.max(1) - 1) + u32::from(step);
    u16::try_from(sum % u32::from(most) + 1).unwrap_or(1)
}

fn offset(seat: u16) -> u64 {
    u64::from(seat) * ENTRY as u64
}

/// A lock in fcntl(2)'s terms, of the bytes from the first number on; the second one is their number, 0 for all.
fn lock_of((start, length): (i64, i64), kind: libc::c_short) -> libc::flock {
    // SAFETY: all its fields are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind;
    lock.l_start = start;
    lock.l_len = length;
    lock
}
