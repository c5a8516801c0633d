//! The members of a lock, in its file: a seat for each of them.
//!
//! 1. Members share the flock(2) of the file, which tells them from an exclusive holder. Their
//!    seats tell them from each other.
//! 2. A member locks its seat, one byte, with an open file description lock (fcntl(2)). The kernel
//!    frees the seat when the last descriptor is closed, so nothing of a member that was killed is
//!    counted.
//! 3. The member's entry is written before its seat is locked. So an observer, which takes no lock,
//!    reads whole entries.
//! 4. The first byte is the entrance. A process takes a seat, and writes the marker, only while it
//!    has that byte locked.
//! 5. The marker is the kind of all members, in the place of an exclusive holder's value. It counts
//!    while any seat is taken.

use std::io;
use std::time::Duration;

use super::BRIEF;
use super::file::{Bytes, LockFile, unnamed};
use crate::lock::details::{Details, LARGEST_VALUE};
use crate::lock::fence::Fence;
use crate::lock::mode::Mode;
use crate::lock::occupant::{Marker, Members, Occupant, OccupantKind};
use crate::lock::token::Token;
use crate::store::Claim;

/// Most readers of one lock.
const MOST_READERS: u16 = 10_000;

/// Size of an entry, in bytes: a value, behind an index and a fence. A zero ends it sooner.
const ENTRY: usize = LARGEST_VALUE + 64;

/// Size of the largest file of members, in bytes.
pub(super) const LARGEST_FILE: usize = (MOST_READERS as usize + 1) * ENTRY;

/// The first byte, which is locked to enter.
const ENTRANCE: Bytes = (0, 1);

/// The bytes of all seats; without an end.
const SEATS: Bytes = (1, 0);

/// Number of tries to enter. Another process needs microseconds there, unless it is stopped.
const TRIES: u32 = 300;

/// Most members that an observation lists.
const LISTED: usize = 1000;

impl LockFile {
    /// Enters, until [`LockFile::go_out`]. Returns false if another process does not go out.
    ///
    /// That is not waited for longer: a process that was stopped there must not stop all others.
    pub(super) fn enter(&self) -> io::Result<bool> {
        for _ in 0..TRIES {
            if self.lock_bytes(ENTRANCE)? {
                return Ok(true);
            }
            std::thread::sleep(BRIEF);
        }
        Ok(false)
    }

    /// Lets the next process in.
    pub(super) fn go_out(&self) {
        self.unlock_bytes(ENTRANCE);
    }

    /// Wakes the waiters for a seat, by a write behind the marker.
    pub(super) fn wake_waiters(&self) {
        let _ = self.write_at(offset(1) - 1, b"\0");
    }

    /// Returns a free seat for `claim`, or the members that have all of them, or are of another
    /// kind. To be called inside.
    pub(super) fn seat_for(&self, claim: &Claim) -> io::Result<Result<u16, Occupant>> {
        let mode = claim.details.mode;
        if self.conflict(SEATS)?.is_some() {
            let is_ours = self.marker()?.is_some_and(|marker| marker.mode == mode);
            // An outer rlock's place is ours too: a second one would not end with it.
            if (!is_ours || !claim.outer.is_empty())
                && let Some(crowd) = self.crowd(&claim.outer)?
                && (!is_ours || crowd.holder().is_some())
            {
                return Ok(Err(crowd));
            }
        }
        // Readers begin anywhere, so that many do not try each other's seats.
        let (random, _) = claim.token.as_uuid().as_u64_pair();
        let from = if mode.number().is_some() {
            claim.index
        } else {
            (random % 1000) as u16
        };
        match self.free_seat(mode, from)? {
            Some(seat) => Ok(Ok(seat)),
            None => Ok(Err(self.crowd(&[])?.unwrap_or_else(unnamed))),
        }
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

    /// Takes `seat`, which is free, for the member that `details` describe. To be called inside.
    /// The first one makes the marker. Returns the index of its slot; 0 without slots.
    pub(super) fn take_seat(
        &self,
        seat: u16,
        fence: Fence,
        token: Token,
        details: &Details,
    ) -> io::Result<u16> {
        if self.conflict(SEATS)?.is_none() {
            let ttl = Duration::from_millis(details.ttl);
            self.write_entry(
                0,
                &Marker {
                    mode: details.mode,
                    nodes: details.n,
                    ttl,
                }
                .to_string(),
            )?;
        }
        let index = if details.mode.number().is_some() {
            seat
        } else {
            0
        };
        self.write_entry(seat, &format!("{index} {fence} {}", details.value(token)))?;
        self.take_bytes((i64::from(seat), 1))?;
        Ok(index)
    }

    /// Returns the members, each with its slot, and their number. Of many, not all are listed, but
    /// `wanted` is.
    pub(super) fn members(&self, wanted: Option<Token>) -> io::Result<(Vec<Occupant>, u64)> {
        let taken = self.taken()?;
        let mut members = Vec::new();
        for seat in &taken {
            let Some(member) = self.member(*seat)? else {
                continue;
            };
            let is_wanted = wanted.is_some() && member.holder().map(|(token, _)| token) == wanted;
            if is_wanted || members.len() < LISTED {
                members.push(member);
            }
        }
        Ok((members, taken.len() as u64))
    }

    /// Returns the members as one occupant, or the first that is in `outer`. `None` if there is no
    /// member.
    pub(super) fn crowd(&self, outer: &[Token]) -> io::Result<Option<Occupant>> {
        let seats = self.taken()?;
        let mut shown = None;
        for seat in &seats {
            let member = self.member(*seat)?;
            let Some((token, details)) = member.as_ref().and_then(Occupant::holder) else {
                continue;
            };
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
        let group = |marker| {
            OccupantKind::Members(Box::new(Members {
                marker,
                count: seats.len() as u64,
                shown,
            }))
        };
        Ok(Some(Occupant::new(
            self.marker()?.map_or(OccupantKind::Unnamed, group),
            None,
        )))
    }

    /// Returns all seats that other processes have taken.
    fn taken(&self) -> io::Result<Vec<u16>> {
        let (mut taken, mut open) = (Vec::new(), vec![(1, i64::from(u16::MAX))]);
        while let Some((first, end)) = open.pop() {
            if first < end
                && let Some((start, length)) = self.conflict((first, end - first))?
            {
                // A process that is not rlock may lock any bytes. They count as one member.
                let behind = if length == 0 { end } else { start + length };
                taken.push(u16::try_from(start.max(first)).unwrap_or(u16::MAX));
                open.extend([(first, start), (behind, end)]);
            }
        }
        taken.sort_unstable();
        Ok(taken)
    }

    /// Returns the kind of the members, if there are any and it can be read.
    fn marker(&self) -> io::Result<Option<Marker>> {
        let head = self.entry(0)?;
        Ok(std::str::from_utf8(&head).ok().and_then(Marker::read))
    }

    fn member(&self, seat: u16) -> io::Result<Option<Occupant>> {
        Ok(Occupant::member(&self.entry(seat)?, None))
    }

    /// Returns the entry of `seat`; of seat 0 the marker, or an exclusive holder's value.
    pub(super) fn entry(&self, seat: u16) -> io::Result<Vec<u8>> {
        let mut entry = self.read(offset(seat), ENTRY)?;
        if let Some(end) = entry.iter().position(|byte| *byte == 0) {
            entry.truncate(end);
        }
        Ok(entry)
    }

    fn write_entry(&self, seat: u16, entry: &str) -> io::Result<()> {
        self.write_at(offset(seat), &[entry.as_bytes(), b"\0"].concat())
    }
}

/// Returns the seat that is tried after `step` others, beginning with `from`, of seats numbered
/// from 1 to `most`.
fn seat_at(from: u16, step: u16, most: u16) -> u16 {
    let sum = u32::from(from.max(1) - 1) + u32::from(step);
    u16::try_from(sum % u32::from(most) + 1).unwrap_or(1)
}

fn offset(seat: u16) -> u64 {
    u64::from(seat) * ENTRY as u64
}
