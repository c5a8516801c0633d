//! A lock on this machine alone: flock(2) on a file. For trying rlock out, for laptops, for jobs
//! that live on one host.
//!
//! The kernel releases the lock when the last descriptor of the open file is closed, however its
//! holder ends, so a grant has no expiry. It is still lost if the file or directory is deleted,
//! moved or replaced under the holder. The holder watches for that, and each renewal checks it.

pub(super) mod address;
pub(super) mod directory;
mod examine;
mod fence;
mod file;
mod files;
mod members;
mod watch;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub use self::address::LocalDir;
use self::directory::Directory;
use self::file::{LOOK, LockFile, MAKE, unnamed};
use self::files::{Files, Gate, HeldFile};
use self::watch::{Awaited, Watch};
use super::{
    Answer, Claim, Examination, Fault, FaultKind, Feature, Hint, Keep, Lacking, Look, Node,
    Pending, Plan, Release, ReleaseReply, Renewal, Store, TakeAway, Vote, Wake, ready,
};
use crate::clock::{self, Alarm};
use crate::exit::is_shortage;
use crate::lock::backoff::GATE_TURN;
use crate::lock::blocker::Blocker;
use crate::lock::blocker::Reservation;
use crate::lock::details::Details;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::messages::Observation;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::queue::Waiter;
use crate::lock::token::Token;
use crate::text::escape;

/// Number of tries, each of which fails if the file or its directory was deleted or replaced after
/// it was opened.
const TRIES: u32 = 1000;

/// Number of these in which the lock is taken, but no holder is found, before it counts as held.
const UNSETTLED: u32 = 100;

/// Pause between two tries, in which a process that needs microseconds gets a processor also on a
/// busy machine.
const BRIEF: Duration = Duration::from_micros(100);

/// Time for which a new holder has no watch. To begin one delays the command, and the kernel takes
/// some ten milliseconds to close it.
const UNWATCHED: Duration = Duration::from_millis(500);

/// The features that a directory of locks lacks.
pub const LACKING: Lacking = &[
    (Feature::Parking, ENDS_WITH_US),
    (Feature::Remains, ENDS_WITH_US),
    (Feature::Supersede, ENDS_WITH_US),
    (Feature::Once, ENDS_WITH_US),
    (Feature::Copies, ENDS_WITH_US),
    (Feature::OtherForms, ENDS_WITH_US),
    (
        Feature::Listing,
        "needs a server: on this machine alone name the lock",
    ),
];

const ENDS_WITH_US: &str =
    "needs a server: a lock on this machine alone ends with the rlock that holds it";

/// A directory of locks.
pub struct LocalStore {
    name: String,
    dir: Option<LocalDir>,
}

impl LocalStore {
    /// Locks in `dir`, or in the user's own directory. Errors name the directory.
    pub fn at(dir: Option<&LocalDir>) -> Result<Self, Fault> {
        let name = dir.map_or_else(|| "local".to_owned(), ToString::to_string);
        Directory::open(dir).map_err(|fault| Fault {
            why: format!("--node {name}: {fault}"),
            ..fault
        })?;
        Ok(Self {
            name,
            dir: dir.cloned(),
        })
    }
}

impl Store for LocalStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &Key) -> Box<dyn Node> {
        Box::new(LocalNode {
            key: key.clone(),
            name: self.name.clone(),
            chosen: self.dir.clone(),
            held: Rc::default(),
            loss_told: Rc::default(),
            awaited: Rc::default(),
            gate: Rc::default(),
            free_since: Cell::default(),
            watch: Rc::default(),
        })
    }

    fn examine(&self, _: &Plan) -> Pending<Result<Examination, Fault>> {
        let examination = examine::examination(self.dir.as_ref());
        ready(examination)
    }
}

/// flock(2) on files of one directory.
struct LocalNode {
    name: String,
    key: Key,
    /// The directory of `local:/dir`; `None` is the user's own. It is opened again for each attempt
    /// and observation, since it may have been replaced.
    chosen: Option<LocalDir>,
    held: Rc<RefCell<Option<HeldFile>>>,
    /// Whether the holder knows that its files are gone.
    loss_told: Rc<Cell<bool>>,
    /// The change for which the waiter of the last attempt waits.
    awaited: Rc<RefCell<Option<Awaited>>>,
    /// The gate that the waiter has closed. It opens when the waiter has the lock, and when it
    /// gives up.
    gate: Rc<RefCell<Option<Gate>>>,
    /// Since when the lock was free, as far as was seen, while another waiter kept its gate closed.
    free_since: Cell<Option<Instant>>,
    watch: Rc<Watch>,
}

impl LocalNode {
    fn files(&self) -> Result<Files, Fault> {
        let dir = Directory::open(self.chosen.as_ref())?;
        Ok(Files::new(dir, self.key.stored()))
    }

    fn take(&self, claim: &Claim) -> Result<Vote, Fault> {
        let has_members = claim.details.mode.has_members();
        for attempt in 0..TRIES {
            let files = self.files()?;
            if has_members && let Some(vote) = self.at_the_gate(&files, claim)? {
                return Ok(vote);
            }
            let Some(file) = files.lock(MAKE)? else {
                continue;
            };
            let is_locked = if has_members {
                file.lock_shared()
            } else {
                file.lock()
            };
            if !is_locked? {
                let holder = file.occupant(&claim.outer);
                // A client that comes or goes has it for a moment, and may leave it free.
                if !matches!(holder, Ok(Some(_))) && attempt < UNSETTLED {
                    std::thread::sleep(BRIEF);
                    continue;
                }
                let holder = holder?.unwrap_or_else(unnamed);
                return Ok(self.held_by(holder, files, file, claim));
            }
            // The last holder may have deleted it between our open and our flock.
            if !file.stands().map_err(|error| file.told(&error))? {
                continue;
            }
            file.must_be_ours()?;
            let held = HeldFile {
                token: claim.token,
                files,
                file,
                granted: clock::now(),
            };
            let granted = held.publish(claim);
            // Its file may be deleted by hand: then another process may have the lock by a file of
            // its own.
            let stands = held.file.stands().unwrap_or(false);
            if !stands || !matches!(granted, Ok(Ok(_))) {
                held.leave();
            }
            if !stands {
                continue;
            }
            match granted? {
                Ok((fence, index)) => {
                    self.gate.replace(None);
                    *self.held.borrow_mut() = Some(held);
                    self.loss_told.set(false);
                    return Ok(Vote::Granted {
                        until: Instant::NEVER,
                        fence,
                        index,
                    });
                }
                Err(members) => return Ok(self.held_by(members, held.files, held.file, claim)),
            }
        }
        Err(Fault::new(
            FaultKind::Unavailable,
            "the lock's file is deleted or replaced all the time",
        ))
    }

    /// Returns the vote for a member while another waiter keeps the gate closed. One that does not
    /// take its turn is passed over.
    fn at_the_gate(&self, files: &Files, claim: &Claim) -> Result<Option<Vote>, Fault> {
        if self.gate.borrow().as_ref().is_some_and(Gate::stands) {
            return Ok(None);
        }
        let Some(gate) = files.gate(LOOK)? else {
            return Ok(None);
        };
        let waiter = gate.holder().map_err(|error| gate.told(&error))?;
        let Some(waiter) = waiter else {
            return Ok(None);
        };
        let holder = files
            .lock(LOOK)
            .and_then(|file| file.map_or(Ok(None), |file| file.occupant(&claim.outer)));
        if let Some(holder) = holder? {
            return Ok(Some(self.held_by(holder, files.clone(), gate, claim)));
        }
        let now = clock::now();
        let since = self.free_since.get().unwrap_or(now);
        self.free_since.set(Some(since));
        let left = GATE_TURN.saturating_sub(now.since(since));
        if left.is_zero() {
            gate.delete();
            return Ok(None);
        }
        *self.awaited.borrow_mut() = Some(Awaited {
            gone: gate,
            room: None,
            gate: None,
        });
        Ok(Some(Vote::Blocked(Blocker::Reserved(Reservation {
            waiter: waiter.holder().map(waits),
            left,
        }))))
    }

    /// Returns the vote against `claim`, and notes what it waits for if it waits: that `gone`, the
    /// lock's own file or its gate, is deleted. A gate whose waiter was killed has room for a
    /// member too.
    fn held_by(&self, holder: Occupant, files: Files, gone: LockFile, claim: &Claim) -> Vote {
        self.free_since.set(None);
        let mode = claim.details.mode;
        let shared = if let OccupantKind::Members(members) = &holder.who {
            Some(members.marker.mode)
        } else {
            None
        };
        let room = shared.filter(|shared| *shared == mode);
        let must_leave = shared.is_some_and(|shared| shared != mode);
        let gate = must_leave.then(|| (files, claim.details.value(claim.token)));
        *self.awaited.borrow_mut() = Some(Awaited { gone, room, gate });
        Vote::Blocked(Blocker::Occupant(holder))
    }

    fn standing(&self, token: Token) -> Result<Option<Revoked>, Fault> {
        let held = self.held.borrow();
        let Some(held) = held.as_ref().filter(|held| held.token == token) else {
            return Ok(Some(Revoked::Missing));
        };
        match held.file.stands() {
            Ok(true) => Ok(None),
            Ok(false) if held.file.path().symlink_metadata().is_ok() => {
                Ok(Some(Revoked::TakenOver))
            }
            Ok(false) => Ok(Some(Revoked::Missing)),
            Err(error) => Err(held.file.told(&error)),
        }
    }

    fn renewed(&self, token: Token) -> Result<Renewal, Fault> {
        if let Some(revoked) = self.standing(token)? {
            return Ok(Renewal::NotOurs(revoked, None, None));
        }
        if let Some(held) = self.held.borrow().as_ref() {
            held.file.touch();
        }
        Ok(Renewal::Renewed(Instant::NEVER, None))
    }

    fn seen(&self, look: Look) -> Result<Observation, Fault> {
        let files = self.files()?;
        // All locks share the fence counter, so it says nothing about one. There is no queue.
        let nothing = Observation::of_nothing(clock::now());
        let Some(file) = files.lock(LOOK)? else {
            return Ok(nothing);
        };
        let failed = |error: io::Error| file.told(&error);
        if let Some(holder) = file.holder().map_err(failed)? {
            return Ok(Observation {
                holders: vec![holder],
                ..nothing
            });
        }
        let (mut holders, members) = file.members(look.token).map_err(failed)?;
        if holders.is_empty() && members > 0 {
            // Their entries are damaged, and their seats are taken all the same.
            holders.push(unnamed());
        }
        Ok(Observation {
            holders,
            members,
            ..nothing
        })
    }

    fn let_go(&self, token: Token) -> Result<ReleaseReply, Fault> {
        if let Some(revoked) = self.standing(token)? {
            return Ok(ReleaseReply::NotOurs(revoked));
        }
        if let Some(held) = self.held.borrow_mut().take() {
            held.release();
        }
        Ok(ReleaseReply::Released)
    }
}

impl Node for LocalNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let vote = self.take(claim).unwrap_or_else(Vote::Failed);
        ready(vote.into())
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        // The file is gone and any process may take its name: no key could cover the time until the
        // command is dead.
        let renewal = match keep.heal {
            Some(_) => Renewal::NotOurs(Revoked::Missing, None, None),
            None => self.renewed(keep.token).unwrap_or_else(Renewal::Failed),
        };
        ready(renewal)
    }

    fn look(&self, look: Look) -> Pending<Result<Observation, Fault>> {
        ready(self.seen(look))
    }

    fn take_away(&self, _how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        let why = "a lock on this machine alone ends with the rlock that holds it: end that one";
        ready(Err(Fault::new(FaultKind::Unfit, why)))
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        ready(
            self.let_go(release.token)
                .unwrap_or_else(ReleaseReply::Failed),
        )
    }

    fn next(&self) -> Pending<Hint> {
        if self.held.borrow().is_some() {
            let (held, watch, told) = (
                Rc::clone(&self.held),
                Rc::clone(&self.watch),
                Rc::clone(&self.loss_told),
            );
            return Box::pin(async move {
                if told.get() || until_taken_away(&held, &watch).await.is_err() {
                    std::future::pending::<()>().await;
                }
                told.set(true);
                Hint::Changed
            });
        }
        let (awaited, gate, watch) = (
            Rc::clone(&self.awaited),
            Rc::clone(&self.gate),
            Rc::clone(&self.watch),
        );
        Box::pin(async move {
            // Not before it is polled: a client that does not wait closes no gate.
            let awaited = awaited.borrow_mut().take();
            if let Some(awaited) = awaited {
                if let Some((files, value)) = &awaited.gate
                    && !gate.borrow().as_ref().is_some_and(Gate::stands)
                {
                    gate.replace(Gate::close(files, value));
                }
                // After a holder that was killed, and where no file can be watched, the waiter
                // polls.
                if awaited.happened(&watch).await.is_ok() {
                    return Hint::Woken(Wake::Recheck);
                }
            }
            std::future::pending().await
        })
    }

    fn gives_up(&self) {
        self.awaited.replace(None);
        self.gate.replace(None);
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.held
            .borrow()
            .as_ref()
            .map_or_else(Vec::new, |held| vec![held.file.as_raw_fd()])
    }
}

/// Returns when a file that is held is no longer the file at its path.
async fn until_taken_away(held: &RefCell<Option<HeldFile>>, watch: &Watch) -> io::Result<()> {
    let begin = held.borrow().as_ref().map(|held| held.granted + UNWATCHED);
    if let Some(begin) = begin
        && clock::now() < begin
    {
        Alarm::new()?.reached(begin).await;
    }
    if let Some(held) = held.borrow().as_ref() {
        watch.begin(&held.file, false)?;
    }
    while held
        .borrow()
        .as_ref()
        .map_or(Ok(false), |held| held.file.stands())?
    {
        watch.stirred().await?;
    }
    Ok(())
}

/// Returns the waiter that a gate's value describes.
fn waits((token, details): (Token, &Details)) -> Waiter {
    let pid = details.pid.unwrap_or_default();
    Waiter {
        id: token.as_uuid(),
        host: details.host.clone(),
        pid,
        since: details.since,
        mode: details.mode,
        user: details.user.clone(),
        note: details.note.clone(),
    }
}

/// A fault that waiting does not mend.
fn unfit(why: String) -> Fault {
    Fault::new(FaultKind::Unfit, why)
}

/// The fault that `error` of a system call is; `why` tells it.
fn failed(error: &io::Error, why: String) -> Fault {
    let kind = if is_shortage(error) {
        FaultKind::Short
    } else {
        FaultKind::Unfit
    };
    Fault::new(kind, why)
}

fn shown(path: &Path) -> String {
    escape::text(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
