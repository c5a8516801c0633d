//! The keeper of one lock's place: it enters the line, waits, proves the place, holds, and leaves.
//! A task of its own, which takes commands in their order.
//!
//! 1. The place is known by the entries that its session created, and not by the token alone: an
//!    attempt whose answer was lost may have left entries too. They are deleted, or end with their
//!    session.
//! 2. **A proof** attaches the session anew and commits a multi that checks the entries. The leader
//!    touches a session that is attached, and still led when it committed. So the lease counts from
//!    the moment before the connect request.
//! 3. A waiter watches the last entry that keeps it out, and a holder its own (`wait`).
//! 4. **A turn takes no proof of its own** while the last one is young ([`Place::stands_until`]). The
//!    lease counts from that one. Until its end the session cannot be over, so the entries stand. A
//!    list in which they are first is enough, also of a server that lags or is cut off. Later entries
//!    come behind them, so they are first as long as they stand.
//! 5. An entry that is deleted by hand behind such a list is a holder's. Its watch tells of it, or the
//!    first renewal. That is due as if the waiter had held the lock since its proof.
//! 6. A release interrupts what is under way, and is written behind it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join_all, pending, select_all};
use tokio::sync::mpsc;

use super::ensemble::{Attached, Attachment, CLOSED, Closing, Ensemble, lease_end};
use super::inbox::{Command, Inbox};
use super::jute::{ANY_VERSION, Operation, Request, Session, error};
use super::path::LockPath;
use super::supersede::Superseding;
use super::view::{LEASES, MUTEX, View};
use super::visit;
use super::wire::Wire;
use super::{Shared, refused};
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::mode::Mode;
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::{Answer, Claim, Fault, Hint, Renewal, Vote};

/// Number of times that a line is read which changes meanwhile, and that containers are made which
/// the server deletes.
pub(super) const TRIES: usize = 20;

/// Pause before a waiter's session is attached again after no server did.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// Most sessions whose ends are awaited. A server that hangs carries out later what was written to
/// it, also if the connection has ended.
const MOST_CLOSING: usize = 4;

/// How far a place has come.
pub(super) enum Stage {
    /// Other waiters may be before it.
    Waits,
    /// It was the first waiter when it last looked.
    IsNext,
    /// Nothing is before it, and the waiter was told so. It has the line that was seen, once.
    IsTold(Option<View>),
    /// The run was told that it is the lock.
    IsHeld,
}

/// A place in the line.
pub(super) struct Place {
    pub(super) token: Token,
    pub(super) mode: Mode,
    pub(super) session: Session,
    /// The names of its entries. That of a lease is the last one.
    pub(super) own: Vec<String>,
    /// The index of its slot; 0 without one.
    pub(super) index: u16,
    pub(super) fence: Fence,
    pub(super) term: Term,
    /// The end of the lease by the last proof.
    pub(super) until: Instant,
    pub(super) stage: Stage,
    pub(super) superseding: Superseding,
    /// Whether a tombstone stands in it.
    pub(super) is_broken: bool,
}

impl Place {
    /// Reads the names of the lock's entries.
    pub(super) fn view(&self, names: &[String]) -> View {
        View::seen_by(self.token, &self.own, names)
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::IsHeld)
    }

    /// Notes what a waiter sees that is kept out.
    pub(super) fn note_rank(&mut self, view: &View) {
        self.stage = match view.rank(self.token) {
            0 => Stage::IsNext,
            _ => Stage::Waits,
        };
    }

    /// Returns the end of the lease if the last proof is young, so that a holder would not renew it yet.
    fn stands_until(&self, now: Instant) -> Option<Instant> {
        self.term.is_young(self.until, now).then_some(self.until)
    }

    /// Returns when a waiter is to be heard of. The next one proves its place, a node timeout before
    /// its last proof is young no more.
    pub(super) fn due(&self, now: Instant, limit: Duration) -> Instant {
        if matches!(self.stage, Stage::IsNext) {
            self.term
                .renew_at(self.until)
                .before(limit)
                .max(now + PAUSE)
        } else {
            now + self.session.timeout / 3
        }
    }

    /// Returns the request that lets its first entry tell since when it is held, unless another client
    /// has changed that.
    fn telling(&self, path: &LockPath, value: Vec<u8>) -> Operation {
        Operation::Set(path.child(&self.own[0]), value, 0)
    }

    /// Returns the requests that watch its entries. Each is all that a client of one kind sees.
    pub(super) fn watches(&self, path: &LockPath) -> impl Iterator<Item = Request> {
        let watch = |name: &String| Request::Data(path.child(name), true);
        self.own.iter().map(watch)
    }
}

/// See the module.
pub(super) struct Keeper {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) path: LockPath,
    pub(super) shared: Arc<Shared>,
    pub(super) place: Option<Place>,
    /// The transaction that made the waiter's first place, by which others tell when it came.
    pub(super) came: Option<u64>,
    /// The place that was lost or left last, and how it is not ours.
    pub(super) gone: Option<(Token, Revoked)>,
    /// The connection of the place's session.
    pub(super) wire: Option<Wire>,
    /// The connection that is being made.
    pub(super) open: Option<Wire>,
    /// The token of entries that may be made, and are not known to be.
    pub(super) entering: Option<Token>,
    /// Sessions that are being ended.
    pub(super) closing: Vec<Closing>,
    /// When a waiter's session is to be heard of, or attached.
    pub(super) due: Instant,
}

/// The outcome of a proof.
pub(super) enum Proof {
    /// The place stands, and sees this, until then. `data`: of its entries.
    Stands {
        until: Instant,
        view: View,
        data: Vec<Vec<u8>>,
    },
    /// It is gone.
    Lost(Revoked),
    /// Another client has changed the first entry.
    Changed,
}

impl Keeper {
    pub(super) fn new(ensemble: Arc<Ensemble>, path: LockPath, shared: Arc<Shared>) -> Self {
        Self {
            ensemble,
            path,
            shared,
            place: None,
            came: None,
            gone: None,
            wire: None,
            open: None,
            entering: None,
            closing: Vec::new(),
            due: Instant::NEVER,
        }
    }

    /// Carries out commands until the node is dropped. A waiter then leaves; a lock that is held
    /// stays as long as its session does.
    pub(super) async fn run(mut self, commands: mpsc::UnboundedReceiver<Command>) {
        let mut inbox = Inbox::of(commands);
        let mut next = None;
        loop {
            let command = if let Some(command) = next.take() {
                command
            } else {
                tokio::select! {
                    biased;
                    command = inbox.next() => match command {
                        Some(command) => command,
                        None => break,
                    },
                    command = self.idle() => command,
                }
            };
            next = self.carry_out(command, &mut inbox).await;
        }
        let end = clock::now() + self.ensemble.limit();
        let unwritten = self.shared.writes.begin();
        self.leave(unwritten, end).await;
        let ended = join_all(self.closing.iter_mut().map(Closing::done));
        clock::until(end, ended).await;
    }

    /// Carries out one command. Returns the one that interrupted it.
    async fn carry_out(&mut self, command: Command, inbox: &mut Inbox) -> Option<Command> {
        let end = clock::now() + self.ensemble.limit();
        // A release is not interrupted: its caller may have stopped waiting.
        let command = match command {
            Command::Release(release, unwritten, reply) => {
                let _ = reply.send(self.release(&release, unwritten, end).await);
                return None;
            }
            Command::Leave(unwritten, reply) => {
                self.leave(unwritten, end).await;
                let _ = reply.send(());
                return None;
            }
            command => command,
        };
        let is_of_waiter = matches!(command, Command::Walk | Command::Attach | Command::Prove);
        let interrupted = tokio::select! {
            biased;
            obeyed = clock::until(end, self.obey(command)) => {
                if obeyed.is_none() {
                    self.ensemble.turn();
                }
                if obeyed.is_none() && is_of_waiter {
                    self.break_off();
                    self.due = clock::now() + PAUSE;
                }
                None
            }
            urgent = inbox.urgent() => Some(urgent),
        };
        let open = self.open.take();
        if self.entering.is_some() {
            // Its requests may be carried out yet: the end of the session is behind them.
            self.closing.extend(open.map(Closing::of));
        }
        leave_oldest(&mut self.closing);
        interrupted
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Acquire(claim, reply) => {
                let answer = self.acquire(&claim).await;
                let _ = reply.send(answer.unwrap_or_else(|fault| Vote::Failed(fault).into()));
            }
            Command::Keep(token, term, reply) => {
                let renewal = self.keep(token, term).await;
                let _ = reply.send(renewal.unwrap_or_else(Renewal::Failed));
            }
            Command::Listen(token, reply) => {
                self.listen(token).await;
                let _ = reply.send(());
            }
            Command::Walk => self.walk().await,
            Command::Attach => {
                self.break_off();
                self.prove_again().await;
            }
            Command::Prove => self.prove_again().await,
            Command::Ping => self.ping(),
            Command::Release(..) | Command::Leave(..) => {}
        }
    }

    /// Waits for what concerns the place while nothing is asked. May be dropped and called again.
    async fn idle(&mut self) -> Command {
        let waiter = self.place.as_ref().filter(|place| !place.is_held());
        let due = waiter.map_or(Instant::NEVER, |_| self.due);
        let when_due = match waiter {
            Some(place) if matches!(place.stage, Stage::IsNext) => Command::Prove,
            _ if self.wire.is_some() => Command::Ping,
            _ => Command::Attach,
        };
        let (wire, closing) = (&mut self.wire, &mut self.closing);
        let changed = async {
            let Some(wire) = wire else {
                return pending().await;
            };
            match wire.changed().await {
                Ok(()) => Command::Walk,
                Err(_) => Command::Attach,
            }
        };
        let closed = async {
            while !closing.is_empty() {
                let all = closing.iter_mut().map(|closing| Box::pin(closing.done()));
                let (_, index, _) = select_all(all).await;
                closing.remove(index);
            }
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            command = changed => command,
            () = closed => Command::Ping,
            _ = clock::until(due, pending::<()>()) => when_due,
        }
    }

    pub(super) fn tell(&self, hint: Hint) {
        self.shared.hints.tell(hint);
    }

    pub(super) fn set_wakes(&self, wakes: bool) {
        self.shared.wakes.store(wakes, Ordering::Relaxed);
    }

    /// Forgets the place, whose entries are gone or are to go, and ends its session.
    pub(super) fn forget(&mut self, how: Revoked) {
        self.gone = self.place.take().map(|place| (place.token, how));
        self.closing.extend(self.wire.take().map(Closing::of));
        self.set_wakes(false);
    }

    async fn acquire(&mut self, claim: &Claim) -> Result<Answer, Fault> {
        let place = match &mut self.place {
            Some(place) if place.token == claim.token => place,
            other => {
                if other.as_ref().is_some_and(|place| !place.is_held()) {
                    self.forget(Revoked::Missing);
                }
                return self.enter(claim).await;
            }
        };
        // At its turn the entry tells since when it is held.
        let (value, seen) = match &mut place.stage {
            Stage::IsTold(seen) => (Some(claim.details.value(claim.token)), seen.take()),
            Stage::Waits | Stage::IsNext | Stage::IsHeld => (None, None),
        };
        let value = value.map(String::into_bytes);
        let seen = seen.filter(|_| self.wire.is_some());
        if let Some((view, until)) = seen.zip(place.stands_until(clock::now())) {
            let answer = self.judge(claim, view, until).await?;
            if let (Vote::Granted { .. }, Some(place), Some(wire), Some(value)) =
                (&answer.vote, &self.place, &mut self.wire, value)
            {
                // The command does not wait for it.
                wire.queue(&Request::Multi(vec![place.telling(&self.path, value)]));
            }
            return Ok(answer);
        }
        let mut proof = self.prove(claim.term, value).await?;
        if let Proof::Changed = proof {
            proof = self.prove(claim.term, None).await?;
        }
        match proof {
            Proof::Stands { until, view, .. } => self.judge(claim, view, until).await,
            Proof::Changed => Err(refused(error::BAD_VERSION)),
            // It lost its place, and enters again at the end.
            Proof::Lost(how) => {
                self.forget(how);
                self.enter(claim).await
            }
        }
    }

    /// Attaches the session anew, and checks the entries. With `value`, the first one gets it.
    pub(super) async fn prove(
        &mut self,
        term: Term,
        value: Option<Vec<u8>>,
    ) -> Result<Proof, Fault> {
        let Some(place) = &self.place else {
            return Ok(Proof::Lost(Revoked::Missing));
        };
        let check = |name: &String| Operation::Check(self.path.child(name), ANY_VERSION);
        let mut parts: Vec<Operation> = place.own.iter().map(check).collect();
        parts.extend(value.map(|value| place.telling(&self.path, value)));
        let lists = lists(&self.path, place.mode);
        let first_watch = 1 + lists.len();
        let mut requests = vec![Request::Multi(parts)];
        requests.extend(lists);
        requests.extend(place.watches(&self.path));
        let attachment = Attachment {
            session: Some(&place.session),
            timeout: term.ttl(),
            requests: &requests,
        };
        let (open, closing) = (&mut self.open, &mut self.closing);
        let mut attached = self.ensemble.attach(&attachment, open, closing).await;
        if attached
            .as_ref()
            .is_err_and(|fault| fault.remedy == Some(CLOSED))
        {
            // The servers may take no second connection of ours.
            self.wire = None;
            attached = self.ensemble.attach(&attachment, open, closing).await;
        }
        let Attached { session, xids, .. } = attached?;
        let (Some(session), Some(wire), Some(place)) = (session, open, &mut self.place) else {
            return Ok(Proof::Lost(Revoked::Missing));
        };
        let until = lease_end(term, wire.begun, session.timeout);
        let checked = wire.reply(xids[0]).await?.multi()?;
        let names = listed(wire, &xids[1..first_watch]).await?;
        let view = place.view(names.as_deref().unwrap_or_default());
        let data = watched(wire, &xids[first_watch..]).await?;
        self.wire = self.open.take();
        Ok(match (checked, data) {
            (Ok(_), Ok(data)) => {
                names.map_err(refused)?;
                place.until = until;
                Proof::Stands { until, view, data }
            }
            (Err(error::BAD_VERSION), _) => Proof::Changed,
            (Err(error::NO_NODE | error::SESSION_EXPIRED), _) | (Ok(_), Err(error::NO_NODE)) => {
                Proof::Lost(visit::standing(&view))
            }
            (Err(code), _) | (_, Err(code)) => return Err(refused(code)),
        })
    }

    async fn keep(&mut self, token: Token, term: Term) -> Result<Renewal, Fault> {
        if let Some((_, how)) = self.gone.filter(|(gone, _)| *gone == token) {
            return Ok(Renewal::NotOurs(how, None, None));
        }
        if self.place.as_ref().is_none_or(|place| place.token != token)
            && let Err(how) = self.adopt(token, term).await?
        {
            return Ok(Renewal::NotOurs(how, None, None));
        }
        if let Some(place) = &self.place
            && place.session.timeout < term.ttl()
        {
            return Err(Fault::unfit(
                "a session cannot be made longer than it was when it began",
                "give no longer --ttl than the lock was taken with",
            ));
        }
        match self.prove(term, None).await? {
            Proof::Stands { until, view, data } => {
                let place = view.line.place(token);
                if place.is_none_or(|place| view.before(place).is_some()) {
                    self.forget(Revoked::TakenOver);
                    return Ok(Renewal::NotOurs(Revoked::TakenOver, None, None));
                }
                self.set_wakes(true);
                let by = data.iter().find_map(|data| visit::breaker(data));
                if let Some(place) = &mut self.place {
                    place.is_broken = by.is_some();
                }
                Ok(match by {
                    Some(by) => Renewal::Broken(Some(until), by),
                    None => Renewal::Renewed(until, None),
                })
            }
            Proof::Lost(how) => {
                self.forget(how);
                Ok(Renewal::NotOurs(how, None, None))
            }
            Proof::Changed => Err(refused(error::BAD_VERSION)),
        }
    }

    /// Takes over the session of a lock that no process keeps.
    async fn adopt(&mut self, token: Token, term: Term) -> Result<Result<(), Revoked>, Fault> {
        let adopted = visit::session_of(&self.ensemble, &self.path, token).await?;
        Ok(adopted.map(
            |visit::Kept {
                 session,
                 own,
                 fence,
                 mode,
             }| {
                self.place = Some(Place {
                    token,
                    mode,
                    session,
                    own,
                    index: 0,
                    fence,
                    term,
                    until: Instant::from_nanos(0),
                    stage: Stage::IsHeld,
                    superseding: Superseding::Never,
                    is_broken: false,
                });
            },
        ))
    }
}

/// Returns the data of the entries that are watched, or the error of one of them.
pub(super) async fn watched(
    wire: &mut Wire,
    xids: &[i32],
) -> Result<Result<Vec<Vec<u8>>, i32>, Fault> {
    let mut all = Vec::with_capacity(xids.len());
    for xid in xids {
        match wire.reply(*xid).await?.data()? {
            Ok((data, _)) => all.push(data),
            Err(code) => return Ok(Err(code)),
        }
    }
    Ok(Ok(all))
}

/// Returns the requests that list the entries of a lock, as far as they concern a claim.
pub(super) fn lists(path: &LockPath, mode: Mode) -> Vec<Request> {
    let list = |znode| Request::Children(znode, false);
    path.znodes(mode).into_iter().map(list).collect()
}

/// Returns the names of the entries that were listed, or the error of the lock's own znode.
pub(super) async fn listed(
    wire: &mut Wire,
    xids: &[i32],
) -> Result<Result<Vec<String>, i32>, Fault> {
    let mut names = Ok(Vec::new());
    for (xid, below) in xids.iter().zip(["", MUTEX, LEASES]) {
        let children = wire.reply(*xid).await?.children()?;
        match (children, &mut names) {
            (Ok(children), Ok(names)) if below.is_empty() => names.extend(children),
            (Ok(children), Ok(names)) => {
                names.extend(children.iter().map(|name| format!("{below}/{name}")));
            }
            // One of the semaphore's has come to be with its first entry.
            (Err(error::NO_NODE), Ok(_)) if !below.is_empty() => {}
            (Err(code), Ok(_)) => names = Err(code),
            (_, Err(_)) => {}
        }
    }
    Ok(names)
}

/// Lists the entries of a lock, as far as they concern a claim.
pub(super) async fn list(
    wire: &mut Wire,
    path: &LockPath,
    mode: Mode,
) -> Result<Vec<String>, Fault> {
    let lists = lists(path, mode);
    let xids: Vec<i32> = lists.iter().map(|request| wire.queue(request)).collect();
    listed(wire, &xids).await?.map_err(refused)
}

/// Leaves the sessions whose ends are not awaited any more: all but the newest ones.
fn leave_oldest<T>(closing: &mut Vec<T>) {
    let surplus = closing.len().saturating_sub(MOST_CLOSING);
    closing.drain(..surplus);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lock::schedule::{Schedule, ScheduleOptions};

    const TTL: Duration = Duration::from_secs(30);

    /// A waiter's place that was proved at `proved`.
    pub(in crate::store::zookeeper) fn place(proved: Instant, stage: Stage) -> Place {
        let schedule = Schedule::new(ScheduleOptions::new(TTL)).unwrap();
        let term = schedule.term();
        Place {
            token: Token::fresh(),
            mode: Mode::Exclusive,
            session: Session {
                id: 1,
                password: Vec::new(),
                timeout: TTL,
            },
            own: Vec::new(),
            index: 0,
            fence: Fence::FIRST,
            term,
            until: lease_end(term, proved, TTL),
            stage,
            superseding: Superseding::Never,
            is_broken: false,
        }
    }

    #[test]
    fn a_proof_serves_a_turn_until_a_holder_would_renew_and_the_lease_is_that_of_the_proof() {
        let proved = Instant::from_nanos(1_000_000_000);
        let place = place(proved, Stage::Waits);
        let until = place.term.end(proved);
        let just_before = (proved + TTL / 3).before(Duration::from_nanos(1));
        assert_eq!(place.stands_until(just_before), Some(until));
        assert_eq!(place.stands_until(proved + TTL / 3), None);
        // Nor does it after a suspend that outlasted the session.
        assert_eq!(place.stands_until(proved + TTL * 2), None);
    }

    #[test]
    fn the_next_waiter_proves_its_place_before_its_last_proof_is_too_old() {
        let (proved, limit) = (Instant::from_nanos(0), Duration::from_secs(1));
        let next = place(proved, Stage::IsNext);
        let due = next.due(proved + limit, limit);
        assert!(next.stands_until(due + limit / 2).is_some());
        // One that learns of it late does so at once, but not over and over.
        let late = proved + TTL;
        assert_eq!(next.due(late, limit), late + PAUSE);
        let other = place(proved, Stage::Waits);
        assert_eq!(other.due(late, limit), late + TTL / 3);
    }

    #[test]
    fn the_ends_of_the_newest_sessions_are_awaited() {
        let mut closing: Vec<usize> = (0..MOST_CLOSING + 2).collect();
        leave_oldest(&mut closing);
        assert!(closing.iter().copied().eq(2..MOST_CLOSING + 2));
        leave_oldest(&mut closing);
        assert_eq!(closing.len(), MOST_CLOSING);
    }
}
