//! One lock in a table, as one client of it: its requests, and the answers to them.
//!
//! 1. The row decides, and nothing else. A grant is an update that found the row free.
//! 2. A request that may take the lock is not repeated by itself, and has a deadline.
//! 3. A release goes behind each such request that is not answered yet, on its session, and cancels
//!    those that were not sent.
//! 4. A grant counts from before its request was sent, and no longer than the row says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::line::Line;
use super::pool::Pool;
use super::row::{RecordKind, Row, State as RowState, held, record};
use super::session::{Reply, Session, number, strange};
use super::statements::{Again, GIVING_BACK, Message, RecordRow};
use crate::clock;
use crate::lock::blocker::Blocker;
use crate::lock::details::Breaker;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::last::Note;
use crate::lock::lease::Revoked;
use crate::lock::occupant::Occupant;
use crate::lock::queue::QueuePosition;
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::net::hint_queue::HintQueue;
use crate::store::net::unwritten::{Unwritten, Writes};
use crate::store::{
    Answer, Claim, Fault, FaultKind, Heal, Hint, Keep, QueueAction, Release, ReleaseReply, Renewal,
    ServerInfo, Vote, Wake,
};
use crate::text::escape;

/// Number of times that a free row is asked for in one attempt.
const TRIES: usize = 3;

/// A begin from which on the statements grant nothing, in unix µs: that of the year 2112.
const LAST_BEGIN: u64 = 4_481_049_600_000_000;

/// Pause between two looks of a holder at its row.
const WATCH: Duration = Duration::from_secs(1);

/// A lock.
pub(super) struct Lock {
    pub(super) pool: Arc<Pool>,
    /// Its name, as it is stored.
    pub(super) key: String,
    state: Mutex<State>,
    pub(super) hints: HintQueue,
    pub(super) writes: Writes,
}

/// The client's part of a lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) line: Line,
    /// Whether the row is this client's, as far as it knows.
    pub(super) holds: bool,
    /// Requests that may take the lock and are under way.
    attempts: Vec<OpenAttempt>,
    /// Number of them so far.
    begun: u64,
    /// Time from which on no request for the lock that was sent grants it.
    late: Option<Instant>,
    /// The task that looks at the row for the holder.
    watch: Option<AbortHandle>,
}

/// A request for the lock that is under way, or one to take it again.
struct OpenAttempt {
    number: u64,
    token: Token,
    /// Whether it was released, so that nothing of it is sent any more.
    is_given_up: bool,
    /// The session that has its last request, and has not answered.
    session: Option<Arc<Session>>,
}

impl State {
    fn open(&mut self, attempt: u64) -> Option<&mut OpenAttempt> {
        let mut attempts = self.attempts.iter_mut();
        attempts.find(|open| open.number == attempt)
    }
}

/// The row in an answer, and the number of rows that each statement before it was about.
pub(super) struct Seen {
    pub(super) counts: Vec<u64>,
    pub(super) row: Option<Row>,
    pub(super) now: u64,
}

/// Reads one row of an answer that took `took`.
pub(super) fn row(cells: &[Option<String>], took: Duration) -> Result<(Row, u64), Fault> {
    let [name, by, at, left, now] = cells else {
        return Err(strange());
    };
    let left: i64 = number(left.as_deref())?;
    let span = Duration::from_micros(left.unsigned_abs());
    let row = Row {
        name: name.clone().unwrap_or_default(),
        locked_by: by.clone().unwrap_or_default(),
        locked_at: number::<i64>(at.as_deref())?.try_into().unwrap_or_default(),
        left: (left > 0).then_some(span),
        over: if left > 0 { Duration::ZERO } else { span },
    };
    Ok((row.at_the_end(took), number(now.as_deref())?))
}

impl Lock {
    pub(super) fn new(pool: Arc<Pool>, key: &str) -> Arc<Self> {
        Arc::new(Self {
            hints: HintQueue::of(pool.breaks()),
            pool,
            key: key.to_owned(),
            state: Mutex::default(),
            writes: Writes::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks `session` a request of the attempt, unless that was given up.
    async fn asked_in(
        &self,
        attempt: u64,
        session: &Arc<Session>,
        message: &Message,
    ) -> Result<Reply, Fault> {
        let unwritten = self.sends(attempt, session)?;
        let reply = self.pool.ask_at(session, message, Some(unwritten)).await;
        self.answered(attempt);
        reply
    }

    /// The same with a request that shows the row.
    async fn seen_in(
        &self,
        attempt: u64,
        session: &Arc<Session>,
        message: &Message,
    ) -> Result<Seen, Fault> {
        let reply = self.asked_in(attempt, session, message).await?;
        seen_at(session, &reply, message)
    }

    /// Asks what may be asked twice.
    async fn seen(&self, message: &Message) -> Result<Seen, Fault> {
        let (session, reply) = self.pool.asked(message).await?;
        seen_at(&session, &reply, message)
    }

    /// Notes an attempt, before anything else is asked. Returns its number.
    pub(super) fn begins(&self, token: Token) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.attempts.push(OpenAttempt {
            number,
            token,
            is_given_up: false,
            session: None,
        });
        number
    }

    fn ends(&self, attempt: u64) {
        let mut state = self.state();
        state.attempts.retain(|open| open.number != attempt);
    }

    /// Asks for the lock, in this attempt.
    pub(super) async fn acquire(self: &Arc<Self>, claim: Claim, attempt: u64) -> Answer {
        let answer = self.tried(&claim, attempt).await;
        self.ends(attempt);
        answer.unwrap_or_else(|fault| Vote::Failed(fault).into())
    }

    async fn tried(self: &Arc<Self>, claim: &Claim, attempt: u64) -> Result<Answer, Fault> {
        if let Some(answer) = self.peeked(claim).await? {
            return Ok(answer);
        }
        let (token, ttl) = (claim.token, claim.term.ttl());
        let value = held(token, &claim.details);
        let mut is_created = false;
        for _ in 0..TRIES {
            let session = self.pool.session().await?;
            let asked = clock::now();
            let deadline = session.deadline(self.pool.limit);
            let message = self.pool.table.acquire(&self.key, &value, ttl, deadline);
            let seen = self.seen_in(attempt, &session, &message).await?;
            let Some(row) = seen.row else {
                if is_created {
                    return Err(Fault::unfit(
                        "the row of the lock is hidden by a policy, or deleted again and again",
                        "give rlock's user a policy for all rows (CREATE POLICY), and let nothing delete rows",
                    ));
                }
                self.asked_in(attempt, &session, &self.pool.table.create(&self.key))
                    .await?;
                is_created = true;
                continue;
            };
            if row.is(RowState::Held, token) && row.left.is_some() {
                let (until, fence) = (end(claim.term, asked, &row), fence_of(&row)?);
                self.state().holds = true;
                self.pool.holds(token, &self.key);
                if claim.ticket.is_none() {
                    self.head_line(session, ttl);
                }
                return Ok(Vote::Granted {
                    until,
                    fence,
                    index: claim.index,
                }
                .into());
            }
            if row.is(RowState::Dead, token) {
                // An operator came between the statements of the request. What is unknown is undone by a
                // release.
                let why = "the lock was broken as soon as it was granted";
                return Err(Fault::new(FaultKind::Unknown, why));
            }
            let held = row.owner().and_then(|(_, token)| self.pool.held(token));
            if let Some(other) = held.filter(|other| *other != self.key) {
                let other = escape::text(&other);
                return Err(one_name(&format!(
                    "its row is that of the lock {other}, which this run holds"
                )));
            }
            if super::is_reserved(&row.locked_by) {
                return Err(one_name("its row is the record of another lock"));
            }
            if let Some(occupant) = row.occupant() {
                if claim.ticket.is_some() {
                    self.enter_line(&session, ttl);
                }
                return Ok(self.blocked(claim, occupant, seen.now));
            }
            if row.locked_at >= LAST_BEGIN {
                return Err(Fault::unfit(
                    "the row of the lock begins after the year 2112, and no fence rises above that",
                    "set its locked_at to a time of the past (UPDATE)",
                ));
            }
            // It was freed between the two statements or while the request waited for the row, or the
            // request was late.
        }
        let why = "the lock was free, and taken by others, each time";
        Err(Fault::new(FaultKind::Unavailable, why))
    }

    /// Looks at the row before a waiter asks for it whose turn it is not: each of many then costs the
    /// database one statement at a time.
    async fn peeked(&self, claim: &Claim) -> Result<Option<Answer>, Fault> {
        let looks = claim.ticket.is_some() && self.state().line.looks_first();
        if !looks {
            return Ok(None);
        }
        let seen = self.seen(&self.pool.table.peek(&self.key)).await?;
        let occupant = seen.row.as_ref().and_then(Row::occupant);
        Ok(occupant.map(|occupant| self.blocked(claim, occupant, seen.now)))
    }

    fn blocked(&self, claim: &Claim, occupant: Occupant, now: u64) -> Answer {
        let rank = claim.ticket.as_ref().and_then(|_| self.state().line.rank());
        Answer {
            vote: Vote::Blocked(Blocker::Occupant(occupant)),
            server: ServerInfo::None,
            position: Some(QueuePosition {
                rank,
                now,
                refused: None,
            }),
        }
    }

    /// Notes that a request of the attempt is sent now; fails if that was given up.
    fn sends(&self, attempt: u64, session: &Arc<Session>) -> Result<Unwritten, Fault> {
        let mut state = self.state();
        let open = state.open(attempt);
        match open.filter(|open| !open.is_given_up) {
            Some(open) => {
                open.session = Some(Arc::clone(session));
                state.late = Some(clock::now() + self.pool.limit);
                Ok(self.writes.begin())
            }
            None => Err(Fault::new(
                FaultKind::Unavailable,
                "it was given up meanwhile",
            )),
        }
    }

    fn answered(&self, attempt: u64) {
        if let Some(open) = self.state().open(attempt) {
            open.session = None;
        }
    }

    /// Returns the time until which a request for the lock that was sent may grant it.
    pub(super) fn may_grant_for(&self) -> Duration {
        let late = self.state().late;
        late.map_or(Duration::ZERO, |late| late.since(clock::now()))
    }

    /// Renews the lock. In an attempt it takes the lock again, too.
    pub(super) async fn keep(&self, keep: Keep, attempt: Option<u64>) -> Renewal {
        let renewal = match (&keep.heal, attempt) {
            (Some(heal), Some(attempt)) => {
                let healed = self.healed(&keep, heal, attempt).await;
                self.ends(attempt);
                healed
            }
            _ => self.renewed(&keep).await,
        };
        renewal.unwrap_or_else(Renewal::Failed)
    }

    async fn renewed(&self, keep: &Keep) -> Result<Renewal, Fault> {
        let asked = clock::now();
        let message = self
            .pool
            .table
            .renew(&self.key, keep.token, keep.term.ttl());
        let seen = self.seen(&message).await?;
        Ok(self.kept(keep, asked, seen.row.as_ref(), false))
    }

    async fn healed(&self, keep: &Keep, heal: &Heal, attempt: u64) -> Result<Renewal, Fault> {
        let (token, fence) = (keep.token, keep.fence.get());
        for is_last in [false, false, true] {
            let session = self.pool.session().await?;
            let asked = clock::now();
            let again = Again {
                value: held(token, &heal.details),
                fence,
                newest: heal.told.unwrap_or_default().max(fence),
                deadline: session.deadline(self.pool.limit),
            };
            let message = self
                .pool
                .table
                .heal(&self.key, token, keep.term.ttl(), &again);
            let seen = self.seen_in(attempt, &session, &message).await?;
            if seen.row.is_none() && !is_last {
                self.asked_in(attempt, &session, &self.pool.table.create(&self.key))
                    .await?;
                continue;
            }
            let is_taken = seen.counts.get(1).is_some_and(|count| *count > 0);
            // The database's clock was set forward, so that the deadline had passed. The answer has
            // told its time.
            let is_free = |row: &Row| row.left.is_none() && row.locked_at <= again.newest;
            if !is_taken && !is_last && seen.row.as_ref().is_some_and(is_free) {
                continue;
            }
            return Ok(self.kept(keep, asked, seen.row.as_ref(), is_taken));
        }
        Ok(Renewal::NotOurs(Revoked::Missing, Some(0), None))
    }

    /// Returns what the row says to a renewal. `is_taken`: it was free, and is ours again.
    fn kept(&self, keep: &Keep, asked: Instant, row: Option<&Row>, is_taken: bool) -> Renewal {
        let Some(row) = row else {
            return self.lost(Revoked::Missing, Some(0), None);
        };
        let token = keep.token;
        let counter = Some(row.locked_at);
        if row.is(RowState::Held, token) && row.left.is_some() {
            let until = end(keep.term, asked, row);
            return if is_taken {
                Renewal::Healed(until, counter)
            } else {
                Renewal::Renewed(until, counter)
            };
        }
        match row.occupant() {
            Some(there) if row.is(RowState::Dead, token) => {
                let until = keep.heal.as_ref().map(|_| end(keep.term, asked, row));
                let broken = there.holder().and_then(|(_, told)| told.broken.clone());
                Renewal::Broken(
                    until,
                    broken.unwrap_or_else(|| Breaker::from("another user")),
                )
            }
            Some(there) if row.is(RowState::Parked, token) => {
                self.lost(Revoked::Missing, counter, there.ttl)
            }
            Some(there) => self.lost(Revoked::TakenOver, counter, there.ttl),
            None => self.lost(Revoked::Missing, counter, None),
        }
    }

    fn lost(&self, how: Revoked, counter: Option<u64>, left: Option<Duration>) -> Renewal {
        self.state().holds = false;
        Renewal::NotOurs(how, counter, left)
    }

    /// Gives up the attempt of `token`. Returns the sessions that have a request of it and have not
    /// answered.
    pub(super) fn gives_up(&self, token: Token) -> Vec<Arc<Session>> {
        self.pool.gives_up(token);
        let mut state = self.state();
        state.holds = false;
        if let Some(watch) = state.watch.take() {
            watch.abort();
        }
        let attempts = state.attempts.iter_mut();
        let own = attempts.filter(|attempt| attempt.token == token);
        own.filter_map(|attempt| {
            attempt.is_given_up = true;
            attempt.session.clone()
        })
        .filter(|session| session.is_connected())
        .collect()
    }

    /// Gives the lock back. `behind`: sessions that may grant it yet.
    pub(super) async fn release(
        &self,
        release: Release,
        behind: Vec<Arc<Session>>,
        unwritten: Unwritten,
    ) -> ReleaseReply {
        let reply = self.released(&release, behind, unwritten).await;
        if !matches!(release.queue, QueueAction::Keep(_)) {
            self.leave_line();
        }
        reply.unwrap_or_else(ReleaseReply::Failed)
    }

    async fn released(
        &self,
        release: &Release,
        behind: Vec<Arc<Session>>,
        unwritten: Unwritten,
    ) -> Result<ReleaseReply, Fault> {
        let parked = release.parked.as_ref();
        let parked = parked.map(|parked| (parked.left, parked.parks_tombstone));
        let records = release
            .note
            .as_ref()
            .map_or_else(Vec::new, |note| self.records(note));
        let token = release.token;
        let message =
            |records: &[RecordRow]| self.pool.table.release(&self.key, token, parked, records);
        let whole = message(&records);
        let mut unwritten = Some(unwritten);
        let end = clock::now() + self.pool.limit;
        let mut unheard = None;
        for session in &behind {
            let begun = clock::now();
            let asked = self.pool.ask_at(session, &whole, unwritten.take());
            match clock::until(end, Box::pin(asked)).await {
                Some(Ok(reply)) => return Ok(freed(&seen(&reply, whole.shows)?, token, unheard)),
                Some(Err(fault)) if fault.kind != FaultKind::Unknown => {}
                _ => unheard = unheard.or(Some(begun)),
            }
        }
        let answer = self.repeated(&whole, unwritten, &mut unheard).await;
        let fault = match answer {
            Ok(reply) => return Ok(freed(&seen(&reply, whole.shows)?, token, unheard)),
            Err(fault) if records.is_empty() || fault.kind == FaultKind::Unknown => {
                return Err(fault);
            }
            // The same release may write the success later.
            Err(fault) if release.is_success() && fault.may_pass() => return Err(fault),
            Err(fault) => fault,
        };
        // Without what could not be written the lock is given back all the same.
        let plain = message(&[]);
        let reply = self.repeated(&plain, None, &mut unheard).await?;
        let reply = freed(&seen(&reply, plain.shows)?, token, unheard);
        if release.is_success() && matches!(reply, ReleaseReply::Released) {
            return Ok(ReleaseReply::without(&fault));
        }
        Ok(reply)
    }

    /// Asks what may be asked twice: again, if the session was broken or silent. `unheard` becomes the
    /// time of the first request whose answer was lost.
    async fn repeated(
        &self,
        message: &Message,
        unwritten: Option<Unwritten>,
        unheard: &mut Option<Instant>,
    ) -> Result<Reply, Fault> {
        let session = self.pool.session().await?;
        let begun = clock::now();
        let asked = self.pool.ask_at(&session, message, unwritten);
        let answer = clock::until(clock::now() + self.pool.limit * 2, Box::pin(asked)).await;
        let is_unknown = |fault: &Fault| fault.kind == FaultKind::Unknown;
        match answer {
            Some(answer) if !answer.as_ref().is_err_and(is_unknown) => answer,
            _ => {
                unheard.get_or_insert(begun);
                self.pool.ask(message).await
            }
        }
    }

    /// Returns the rows that a note is written to. A name may be too long for them.
    fn records(&self, note: &Note) -> Vec<RecordRow> {
        let fits = self.key.chars().count() <= super::LONGEST_WITH_RECORD;
        let kinds = [
            (RecordKind::Last, note.is_run),
            (RecordKind::Once, note.success.is_some()),
        ];
        let written = kinds
            .into_iter()
            .filter(|(_, is_written)| *is_written && fits);
        written
            .map(|(kind, _)| RecordRow {
                kind,
                fence: note.entry.fence.get(),
                value: record(kind, &note.entry),
            })
            .collect()
    }

    /// Returns the row of a note about a lock that was taken away.
    pub(super) fn record_of_break(&self, note: &Note) -> Option<RecordRow> {
        self.records(note).into_iter().next()
    }

    /// Looks at the row for the holder. A session that does not answer in time is asked no more.
    async fn looked(&self) -> Option<Seen> {
        let session = self.pool.session().await.ok()?;
        let message = self.pool.table.peek(&self.key);
        let answer = Box::pin(session.request(&message, None));
        let reply = self.pool.in_time(&session, answer).await?.ok()?;
        seen_at(&session, &reply, &message).ok()
    }

    /// Looks at the row from now on, for the holder of `token`, which hears when it changes.
    pub(super) fn watch(self: &Arc<Self>, token: Token) {
        let lock = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut is_told = false;
            let mut next = clock::now() + WATCH;
            loop {
                let _ = clock::until(next, std::future::pending::<()>()).await;
                let Some(lock) = lock.upgrade() else { return };
                next = clock::now() + WATCH;
                let Some(seen) = lock.looked().await else {
                    continue;
                };
                // ShedLock before 7.0 may end a lock by its name alone, and leave the rest.
                let is_held = |row: &Row| row.is(RowState::Held, token) && row.left.is_some();
                let is_ours = seen.row.as_ref().is_some_and(is_held);
                if !is_ours && !is_told {
                    lock.hints.tell(Hint::Woken(Wake::Recheck));
                }
                is_told = !is_ours;
            }
        });
        if let Some(old) = self.state().watch.replace(task.abort_handle()) {
            old.abort();
        }
    }

    /// Whether the row is looked at for the holder.
    pub(super) fn is_watched(&self) -> bool {
        self.state().watch.is_some()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(watch) = self.state().watch.take() {
            watch.abort();
        }
        self.leave_line();
    }
}

/// Returns the row that `session` has shown, and notes its time.
fn seen_at(session: &Session, reply: &Reply, message: &Message) -> Result<Seen, Fault> {
    let seen = seen(reply, message.shows)?;
    session.heard(seen.now);
    Ok(seen)
}

/// Returns the row that statement number `shows` has shown.
pub(super) fn seen(reply: &Reply, shows: usize) -> Result<Seen, Fault> {
    let statement = reply.statements.get(shows).ok_or_else(strange)?;
    let first = statement.rows.first();
    let first = first.map(|cells| row(cells, reply.took)).transpose()?;
    Ok(Seen {
        counts: reply
            .statements
            .iter()
            .map(|statement| statement.count)
            .collect(),
        now: first.as_ref().map(|(_, now)| *now).unwrap_or_default(),
        row: first.map(|(row, _)| row),
    })
}

/// Returns the end of a grant or a renewal of `term` that was asked for at `asked`. A row that ends
/// sooner than it was told to, by its type or by a trigger, counts as it is.
fn end(term: Term, asked: Instant, row: &Row) -> Instant {
    let left = row.left.unwrap_or_default();
    term.end(asked).before(term.ttl().saturating_sub(left))
}

/// The fault of a name that the database takes for another one, as `row` tells.
fn one_name(row: &str) -> Fault {
    Fault::unfit(
        format!("{row}: the database takes the two names for one"),
        "give the column of the name a collation that does not (ALTER TABLE … COLLATE)",
    )
}

fn fence_of(row: &Row) -> Result<Fence, Fault> {
    row.fence().ok_or_else(strange)
}

/// Returns what a release found. `NotOurs` if the lock was not the token's any more. Another client
/// may have it before the row is shown: then the counts tell. `unheard`: the time of an earlier release,
/// whose answer was lost. It may have given back the lock that another client has taken since.
fn freed(seen: &Seen, token: Token, unheard: Option<Instant>) -> ReleaseReply {
    let shows = seen.counts.len().saturating_sub(1);
    let given_back = &seen.counts[shows.saturating_sub(GIVING_BACK)..shows];
    if given_back.iter().any(|count| *count > 0) {
        return ReleaseReply::Released;
    }
    let Some(row) = &seen.row else {
        return ReleaseReply::NotOurs(Revoked::Missing);
    };
    // One that comes again finds what the first one did.
    if row.is(RowState::Free, token) || row.is(RowState::Parked, token) {
        return ReleaseReply::Released;
    }
    let since =
        |earlier| u64::try_from(clock::now().since(earlier).as_micros()).unwrap_or(u64::MAX);
    if unheard.is_some_and(|earlier| row.locked_at >= seen.now.saturating_sub(since(earlier))) {
        return ReleaseReply::unheard();
    }
    ReleaseReply::NotOurs(how_lost(Some(row), token))
}

/// Returns how the lock came to be not the token's.
pub(super) fn how_lost(row: Option<&Row>, token: Token) -> Revoked {
    let is_other = row.is_some_and(|row| {
        row.left.is_some() && row.owner().is_none_or(|(_, owner)| owner != token)
    });
    if is_other {
        Revoked::TakenOver
    } else {
        Revoked::Missing
    }
}
