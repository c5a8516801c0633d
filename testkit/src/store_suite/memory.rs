//! A store in memory with a line of its own, as stores of consensus have one. No user can choose it:
//! it shows that the seam fits them.
//!
//! 1. Each client has an entry with a number. The first entry is the lock, and its number the fence.
//! 2. A claim without a ticket leaves no entry unless it is granted.
//! 3. An entry goes with its session, which is its node; a holder's also when its lease is over.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use rlock::clock;
use rlock::lock::blocker::Blocker;
use rlock::lock::blocker::Reservation;
use rlock::lock::details::Details;
use rlock::lock::fence::Fence;
use rlock::lock::instant::Instant;
use rlock::lock::key::Key;
use rlock::lock::lease::Revoked;
use rlock::lock::messages::Observation;
use rlock::lock::messages::ServerInfo;
use rlock::lock::mode::Mode;
use rlock::lock::occupant::{Marker, Members, Occupant, OccupantKind, Seat};
use rlock::lock::queue::{QueuePosition, Ticket, Waiter};
use rlock::lock::token::Token;
use rlock::store::examine::{Examination, Plan};
use rlock::store::{
    Answer, Claim, Fault, FaultKind, Hint, Keep, Look, Node, Pending, Queue, QueueAction, Release,
    ReleaseReply, Renewal, Store, TakeAway, Vote, Wake, Wakes, ready,
};
use tokio::sync::watch;

use super::{Ability, Wire, World};

/// Time for which a waiter that is first has to ask, as others are told.
const TURN: Duration = Duration::from_secs(1);

/// All locks of the store.
#[derive(Clone, Default)]
pub struct Memory(Rc<Lines>);

#[derive(Default)]
struct Lines {
    of: RefCell<BTreeMap<Key, Line>>,
    sessions: Cell<u64>,
    changed: watch::Sender<()>,
}

/// The entries of one lock, in their order.
#[derive(Default)]
struct Line {
    entries: Vec<Entry>,
    last: u64,
    /// Whether another program's value stands in the lock's place.
    is_foreign: bool,
}

struct Entry {
    number: u64,
    session: u64,
    token: Token,
    details: Details,
    waiter: Option<Waiter>,
    index: u16,
    /// When a holder's lease is over; `None` if it has not asked since it became first.
    ends: Option<Instant>,
    /// Whether the waiter knows that it is first.
    is_told: bool,
}

impl Line {
    fn expire(&mut self, now: Instant) {
        self.entries
            .retain(|entry| entry.ends.is_none_or(|ends| ends > now));
    }

    fn place(&self, token: Token) -> Option<usize> {
        self.entries.iter().position(|entry| entry.token == token)
    }

    /// Whether the entry at `place` is the lock, or one of those that are it together.
    fn is_first(&self, place: usize) -> bool {
        let mode = self.entries[place].details.mode;
        let ahead = &self.entries[..place];
        let are_alike = ahead.iter().all(|entry| entry.details.mode == mode);
        match mode {
            Mode::Exclusive => ahead.is_empty(),
            Mode::Shared => are_alike,
            Mode::Slots(slots) => are_alike && place < usize::from(slots),
        }
    }

    /// Returns the number of the first slot that no entry has.
    fn free_slot(&self, slots: u16) -> u16 {
        let is_free = |index: &u16| self.entries.iter().all(|entry| entry.index != *index);
        (1..=slots).find(is_free).unwrap_or_default()
    }

    fn blocker(&self, now: Instant) -> Vote {
        let Some(first) = self.entries.first() else {
            let who = OccupantKind::Foreign("another program's value".to_owned());
            return Vote::Blocked(Blocker::Occupant(Occupant::new(who, None)));
        };
        let Some(ends) = first.ends else {
            let waiter = first.waiter.clone();
            return Vote::Blocked(Blocker::Reserved(Reservation { waiter, left: TURN }));
        };
        let mode = first.details.mode;
        if !mode.has_members() {
            return Vote::Blocked(Blocker::Occupant(first.occupant(now)));
        }
        let members = Members {
            marker: Marker {
                mode,
                nodes: first.details.n,
                ttl: Duration::from_millis(first.details.ttl),
            },
            count: self.holders().count() as u64,
            shown: Some((first.token, first.details.clone())),
        };
        let who = OccupantKind::Members(Box::new(members));
        Vote::Blocked(Blocker::Occupant(Occupant::new(who, Some(ends.since(now)))))
    }

    fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.ends.is_some())
    }

    fn lost(&self) -> Revoked {
        if self.entries.is_empty() {
            Revoked::Missing
        } else {
            Revoked::TakenOver
        }
    }
}

impl Entry {
    fn occupant(&self, now: Instant) -> Occupant {
        let who = OccupantKind::Holder(self.token, self.details.clone());
        Occupant {
            seat: Seat {
                index: self.index,
                fence: Fence::new(self.number),
            },
            ..Occupant::new(who, self.ends.map(|ends| ends.since(now)))
        }
    }

    fn ticket(&self) -> Option<Ticket> {
        Some(Ticket {
            waiter: self.waiter.clone().filter(|_| self.ends.is_none())?,
            number: self.number,
            supersedes: None,
        })
    }
}

impl Lines {
    /// Changes the line of `key`, without the leases that are over, and tells all who watch it.
    fn at<T>(&self, key: &Key, change: impl FnOnce(&mut Line, Instant) -> T) -> T {
        let now = clock::now();
        let mut lines = self.of.borrow_mut();
        let line = lines.entry(key.clone()).or_default();
        line.expire(now);
        let told = change(line, now);
        drop(lines);
        self.changed.send_replace(());
        told
    }
}

impl Store for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn open(&self, key: &Key) -> Box<dyn Node> {
        let session = self.0.sessions.get() + 1;
        self.0.sessions.set(session);
        Box::new(MemoryNode {
            lines: Rc::clone(&self.0),
            key: key.clone(),
            session,
            held: Cell::default(),
        })
    }

    fn examine(&self, _plan: &Plan) -> Pending<Result<Examination, Fault>> {
        ready(Ok(Examination::default()))
    }
}

/// A lock, and the session of one client with it.
struct MemoryNode {
    lines: Rc<Lines>,
    key: Key,
    session: u64,
    /// The token of the grant whose loss is to be told.
    held: Cell<Option<Token>>,
}

impl MemoryNode {
    fn at<T>(&self, change: impl FnOnce(&mut Line, Instant) -> T) -> T {
        self.lines.at(&self.key, change)
    }

    /// Returns what is to be told of the line as it is, or when to look again at the latest.
    fn hint(
        lines: &Lines,
        key: &Key,
        session: u64,
        held: Option<Token>,
    ) -> Result<Hint, Option<Instant>> {
        let now = clock::now();
        let mut lines = lines.of.borrow_mut();
        let line = lines.entry(key.clone()).or_default();
        line.expire(now);
        if held.is_some_and(|token| line.place(token).is_none()) {
            return Ok(Hint::Changed);
        }
        let own = |entry: &Entry| entry.session == session && entry.ends.is_none();
        let waits = line.entries.iter().position(own);
        if let Some(place) = waits.filter(|place| line.is_first(*place))
            && !std::mem::replace(&mut line.entries[place].is_told, true)
        {
            return Ok(Hint::Woken(Wake::YourTurn));
        }
        Err(line.entries.iter().filter_map(|entry| entry.ends).min())
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.at(|line, _| line.entries.retain(|entry| entry.session != self.session));
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let ticket = claim.ticket.as_ref();
        let (vote, rank) = self.at(|line, now| {
            if line.is_foreign {
                return (line.blocker(now), None);
            }
            let place = line.place(claim.token).unwrap_or_else(|| {
                line.last += 1;
                line.entries.push(Entry {
                    number: line.last,
                    session: self.session,
                    token: claim.token,
                    details: claim.details.clone(),
                    waiter: ticket.map(|ticket| ticket.waiter.clone()),
                    index: 0,
                    ends: None,
                    is_told: false,
                });
                line.entries.len() - 1
            });
            if !line.is_first(place) {
                let vote = line.blocker(now);
                let waiting = line.entries[..place].iter().filter_map(Entry::ticket);
                let rank = u32::try_from(waiting.count()).ok();
                if ticket.is_none() {
                    line.entries.remove(place);
                }
                return (vote, rank);
            }
            let index = claim.details.mode.number();
            let index = index.map_or(0, |slots| line.free_slot(slots));
            let entry = &mut line.entries[place];
            if entry.ends.is_none() {
                entry.index = index;
            }
            entry.ends = Some(now + claim.term.ttl());
            self.held.set(Some(claim.token));
            let vote = Vote::Granted {
                until: claim.term.end(now),
                fence: Fence::new(entry.number).expect("a small number"),
                index: entry.index,
            };
            (vote, None)
        });
        ready(Answer {
            vote,
            server: ServerInfo::None,
            position: ticket.map(|_| QueuePosition {
                rank,
                now: 0,
                refused: None,
            }),
        })
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        ready(self.at(|line, now| match line.place(keep.token) {
            Some(place) => {
                line.entries[place].ends = Some(now + keep.term.ttl());
                Renewal::Renewed(keep.term.end(now), None)
            }
            None => Renewal::NotOurs(line.lost(), None, None),
        }))
    }

    fn look(&self, look: Look) -> Pending<Result<Observation, Fault>> {
        ready(Ok(self.at(|line, now| {
            let waiters = || line.entries.iter().filter_map(Entry::ticket);
            let holders: Vec<Occupant> = line.holders().map(|entry| entry.occupant(now)).collect();
            let has_members = line.holders().any(|entry| entry.details.mode.has_members());
            Observation {
                members: if has_members { holders.len() as u64 } else { 0 },
                holders,
                fence: Fence::new(line.last),
                queue: waiters().take(look.max_waiters).collect(),
                more: waiters().count() > look.max_waiters,
                ..Observation::of_nothing(now)
            }
        })))
    }

    fn take_away(&self, _how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        let why = "no lock is taken from its session";
        ready(Err(Fault::new(FaultKind::Unfit, why)))
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        let reply = self.at(|line, _| {
            let place = line.place(release.token);
            let was_held = place.is_some_and(|place| line.entries[place].ends.is_some());
            // The token is the place's, so an attempt that failed has left nothing else.
            if let (Some(place), false) = (place, matches!(release.queue, QueueAction::Keep(_))) {
                line.entries.remove(place);
            }
            if was_held {
                ReleaseReply::Released
            } else {
                ReleaseReply::NotOurs(line.lost())
            }
        });
        if matches!(reply, ReleaseReply::Released) {
            self.held.set(None);
        }
        ready(reply)
    }

    fn next(&self) -> Pending<Hint> {
        let (lines, key, session) = (Rc::clone(&self.lines), self.key.clone(), self.session);
        let held = self.held.get();
        Box::pin(async move {
            let mut changes = lines.changed.subscribe();
            loop {
                match Self::hint(&lines, &key, session, held) {
                    Ok(hint) => return hint,
                    Err(ends) => {
                        let left = ends.map_or(Duration::MAX, |ends| ends.since(clock::now()));
                        let _ = tokio::time::timeout(left, changes.changed()).await;
                    }
                }
            }
        })
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }
}

impl Queue for MemoryNode {
    fn leave(&self, waiter: &Waiter) -> Pending<()> {
        let is_meant = |entry: &Entry| entry.ticket().is_some_and(|own| own.waiter.id == waiter.id);
        self.at(|line, _| line.entries.retain(|entry| !is_meant(entry)));
        ready(())
    }

    fn wakes(&self) -> Wakes {
        Wakes::Yes
    }

    fn becomes_the_lock(&self) -> bool {
        true
    }
}

impl World for Memory {
    fn with(test: impl FnOnce(&Self)) {
        test(&Self::default());
    }

    fn open(&self, _wire: &Wire, _limit: Duration) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Leases
            | Ability::Line
            | Ability::Shared
            | Ability::Slots
            | Ability::LongerLeases
            | Ability::TimeLeft => None,
            Ability::Superseding => Some("memory: the order of the line is that of arrival"),
            Ability::Healing => Some("memory: a lock that is gone is not set again"),
            Ability::TakingAway => Some("memory: no lock is taken from its session"),
            Ability::Records => Some("memory: no run is recorded"),
            Ability::Servers | Ability::Uptime => Some("memory: there is no server"),
        }
    }

    fn orders_by_arrival(&self) -> bool {
        true
    }

    fn delete(&self, key: &Key) {
        self.0.at(key, |line, _| {
            line.entries.retain(|entry| entry.ends.is_none());
            line.is_foreign = false;
        });
    }

    fn occupy(&self, key: &Key) -> Box<dyn Any> {
        self.0.at(key, |line, _| line.is_foreign = true);
        Box::new(())
    }
}
