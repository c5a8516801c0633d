//! The keeper of one lock's place: it enters the line, waits, proves the place, holds, and leaves.
//! A task of its own, which takes commands in their order.
//!
//! 1. The place is known by the entries that its session created, and not by the token alone: an
//!    attempt whose answer was lost may have left entries too. They are deleted, or end with their
//!    session.
//! 2. **A proof** attaches the session anew and commits a multi that checks the entries. The leader
//!    touches a session that is attached, and still led when it committed. So the lease counts from
//!    the moment before the connect request.
//! 3. A waiter watches the last entry that keeps it out, and a holder its own.
//! 4. A release interrupts what is under way, and is written behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join_all, pending, select_all};
use tokio::sync::{mpsc, oneshot};

use super::ensemble::{Attached, Attachment, CLOSED, Closing, Ensemble, lease_end, must_last};
use super::jute::{ANY_VERSION, Kind, Operation, Request, Session, error};
use super::line::{self, Line};
use super::path::{LockPath, name_of};
use super::visit;
use super::wire::Wire;
use super::{Shared, refused};
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::messages::ServerInfo;
use crate::lock::queue::{QueuePosition, Wake};
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Answer, Claim, Fault, FaultKind, Hint, ReleaseReply, Renewal, Vote};

/// Number of times that a line is read which changes meanwhile, and that containers are made which
/// the server deletes.
const TRIES: usize = 20;

/// Pause before a waiter's session is attached again after no server did.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// A command to the keeper.
pub(super) enum Command {
    Acquire(Box<Claim>, oneshot::Sender<Answer>),
    Keep(Token, Term, oneshot::Sender<Renewal>),
    Release(Token, Unwritten, oneshot::Sender<ReleaseReply>),
    /// A waiter gives its place up.
    Leave(Unwritten, oneshot::Sender<()>),
    /// A holder wants to be told when its entry changes.
    Listen(Token, oneshot::Sender<()>),
    /// A znode that was watched has changed.
    Walk,
    /// The connection broke.
    Attach,
    /// The server is to hear of a waiter's session.
    Ping,
}

impl Command {
    /// Whether it interrupts what is under way.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Release(..) | Self::Leave(..))
    }
}

/// The commands that came.
struct Inbox {
    commands: mpsc::UnboundedReceiver<Command>,
    /// Those that came while another one was carried out.
    later: VecDeque<Command>,
}

impl Inbox {
    /// Returns the next command; `None` if there will be none. May be dropped and called again.
    async fn next(&mut self) -> Option<Command> {
        match self.later.pop_front() {
            Some(command) => Some(command),
            None => self.commands.recv().await,
        }
    }

    /// Returns a command that interrupts. What came before it is of no use any more. May be dropped
    /// and called again.
    async fn urgent(&mut self) -> Command {
        while let Some(command) = self.commands.recv().await {
            if command.is_urgent() {
                self.later.clear();
                return command;
            }
            self.later.push_back(command);
        }
        pending().await
    }
}

/// A place in the line.
pub(super) struct Place {
    pub(super) token: Token,
    pub(super) session: Session,
    /// The names of its entries.
    pub(super) own: Vec<String>,
    pub(super) fence: Fence,
    /// Whether it was told to be the lock.
    pub(super) is_held: bool,
    /// Whether the waiter knows that it is first.
    pub(super) is_told: bool,
}

/// See the module.
pub(super) struct Keeper {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) path: LockPath,
    pub(super) shared: Arc<Shared>,
    pub(super) place: Option<Place>,
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
    /// The last transaction that the waiter has seen. A server that is behind it may not know its
    /// entries yet.
    pub(super) zxid: i64,
    /// When a waiter's session is to be heard of, or attached.
    pub(super) due: Instant,
}

/// The outcome of a proof.
enum Proof {
    /// The place stands, in this line, until then. `data`: of its first entry, if it is held.
    Stands {
        until: Instant,
        line: Line,
        data: Option<Vec<u8>>,
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
            gone: None,
            wire: None,
            open: None,
            entering: None,
            closing: Vec::new(),
            zxid: 0,
            due: Instant::NEVER,
        }
    }

    /// Carries out commands until the node is dropped. A waiter then leaves; a lock that is held
    /// stays as long as its session does.
    pub(super) async fn run(mut self, commands: mpsc::UnboundedReceiver<Command>) {
        let mut inbox = Inbox {
            commands,
            later: VecDeque::new(),
        };
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
        self.leave(end).await;
        let ended = join_all(self.closing.iter_mut().map(Closing::done));
        clock::until(end, ended).await;
    }

    /// Carries out one command. Returns the one that interrupted it.
    async fn carry_out(&mut self, command: Command, inbox: &mut Inbox) -> Option<Command> {
        let end = clock::now() + self.ensemble.limit();
        // A release is not interrupted: its caller may have stopped waiting.
        let command = match command {
            Command::Release(token, unwritten, reply) => {
                let _ = reply.send(self.release(token, unwritten, end).await);
                return None;
            }
            Command::Leave(unwritten, reply) => {
                self.leave(end).await;
                drop(unwritten);
                let _ = reply.send(());
                return None;
            }
            command => command,
        };
        let is_of_waiter = matches!(command, Command::Walk | Command::Attach);
        let interrupted = tokio::select! {
            biased;
            obeyed = clock::until(end, self.obey(command)) => {
                if obeyed.is_none() && is_of_waiter {
                    self.wire = None;
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
            Command::Attach => self.attach_again().await,
            Command::Ping => self.ping(),
            Command::Release(..) | Command::Leave(..) => {}
        }
    }

    /// Waits for what concerns the place while nothing is asked. May be dropped and called again.
    async fn idle(&mut self) -> Command {
        let is_waiting = self.place.as_ref().is_some_and(|place| !place.is_held);
        let due = if is_waiting { self.due } else { Instant::NEVER };
        let when_due = if self.wire.is_some() {
            Command::Ping
        } else {
            Command::Attach
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

    fn tell(&self, hint: Hint) {
        self.shared.tell(hint);
    }

    pub(super) fn set_wakes(&self, wakes: bool) {
        self.shared.wakes.store(wakes, Ordering::Relaxed);
    }

    /// Forgets the place, whose entries are gone or are to go, and ends its session.
    fn forget(&mut self, how: Revoked) {
        self.gone = self.place.take().map(|place| (place.token, how));
        self.closing.extend(self.wire.take().map(Closing::of));
        self.set_wakes(false);
    }

    async fn acquire(&mut self, claim: &Claim) -> Result<Answer, Fault> {
        let place = self.place.as_ref();
        if place.is_none_or(|place| place.token != claim.token) {
            if place.is_some_and(|place| !place.is_held) {
                self.forget(Revoked::Missing);
            }
            return self.enter(claim).await;
        }
        // At its turn the entry tells since when it is held.
        let is_turn = place.is_some_and(|place| place.is_told && !place.is_held);
        let value = is_turn.then(|| claim.details.value(claim.token).into_bytes());
        let mut proof = self.prove(claim.term, value).await?;
        if let Proof::Changed = proof {
            proof = self.prove(claim.term, None).await?;
        }
        match proof {
            Proof::Stands { until, line, .. } => self.judge(claim, line, until).await,
            Proof::Changed => Err(refused(error::BAD_VERSION)),
            // It lost its place, and enters again at the end.
            Proof::Lost(how) => {
                self.forget(how);
                self.enter(claim).await
            }
        }
    }

    /// Enters the line with a new session.
    async fn enter(&mut self, claim: &Claim) -> Result<Answer, Fault> {
        self.entering = Some(claim.token);
        let all = Request::Children(self.path.as_str().to_owned());
        // Another process attaches to the session of a lock that no process keeps. It must know the
        // password, which the server tells first.
        let is_kept = claim.details.kept;
        let requests = [creation(&self.path, claim, &[]), all.clone()];
        let attachment = Attachment {
            session: None,
            timeout: claim.term.ttl(),
            zxid: 0,
            requests: if is_kept { &requests } else { &[] },
        };
        let attached = self
            .ensemble
            .attach(&attachment, &mut self.open, &mut self.closing);
        let (Some(Attached { session, mut xids }), Some(wire)) = (attached.await?, &mut self.open)
        else {
            return Err(refused(error::SESSION_EXPIRED));
        };
        must_last(&session, claim.term)?;
        let requests = if is_kept {
            requests
        } else {
            let creation = creation(&self.path, claim, &session.password);
            let requests = [creation, all.clone()];
            xids = requests.iter().map(|request| wire.queue(request)).collect();
            requests
        };
        let mut tries = 0..TRIES;
        let (created, zxid) = loop {
            let reply = wire.reply(xids[0]).await?;
            match reply.multi()? {
                Ok(created) => break (created, reply.header.zxid),
                Err(error::NO_NODE) if tries.next().is_some() => {}
                Err(code) => return Err(refused(code)),
            }
            make_containers(wire, &self.path).await?;
            xids = requests.iter().map(|request| wire.queue(request)).collect();
        };
        let own: Vec<String> = created.iter().map(|path| name_of(path)).collect();
        let mut children = list(wire, xids[1]).await?;
        let is_left_over = |name: &String| {
            Line::of(std::slice::from_ref(name))
                .place(claim.token)
                .is_some()
                && !own.contains(name)
        };
        let left: Vec<String> = children
            .iter()
            .filter(|name| is_left_over(name))
            .cloned()
            .collect();
        if !left.is_empty() {
            let delete = |name: &String| Operation::Delete(self.path.child(name), ANY_VERSION);
            wire.queue(&Request::Multi(left.iter().map(delete).collect()));
            let xid = wire.queue(&all);
            children = list(wire, xid).await?;
        }
        let fence = u64::try_from(zxid).ok().and_then(Fence::new);
        let until = lease_end(claim.term, wire.begun, session.timeout);
        self.place = Some(Place {
            token: claim.token,
            session,
            own,
            fence: fence.ok_or_else(|| {
                Fault::new(
                    FaultKind::Unfit,
                    "its transactions have no numbers that a fence could have",
                )
            })?,
            is_held: false,
            is_told: false,
        });
        self.wire = self.open.take();
        (self.entering, self.gone) = (None, None);
        self.judge(claim, Line::of(&children), until).await
    }

    /// Returns the answer to `claim`, whose place stands in `line` until then.
    async fn judge(
        &mut self,
        claim: &Claim,
        mut line: Line,
        until: Instant,
    ) -> Result<Answer, Fault> {
        for _ in 0..TRIES {
            let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
                break;
            };
            let Some(at) = line.place(claim.token) else {
                self.forget(Revoked::Missing);
                break;
            };
            let position = claim.ticket.as_ref().map(|_| QueuePosition {
                rank: u32::try_from(at.saturating_sub(line.holders())).ok(),
                now: 0,
                refused: None,
            });
            let Some(before) = line.before(at) else {
                (place.is_held, place.is_told) = (true, true);
                let vote = Vote::Granted {
                    until,
                    fence: place.fence,
                    index: 0,
                };
                return Ok(Answer {
                    vote,
                    server: ServerInfo::None,
                    position,
                });
            };
            let watched = Request::Data(self.path.child(before.last()), claim.ticket.is_some());
            let watched = wire.queue(&watched);
            let is_there = wire.reply(watched).await?.header.error == 0;
            let blocker = visit::blocker(wire, &self.path, &line, &claim.outer).await?;
            let Some(blocker) = blocker.filter(|_| is_there) else {
                let xid = wire.queue(&Request::Children(self.path.as_str().to_owned()));
                line = Line::of(&list(wire, xid).await?);
                continue;
            };
            self.due = clock::now() + place.session.timeout / 3;
            place.is_told = false;
            if claim.ticket.is_none() {
                self.forget(Revoked::Missing);
                self.gone = None;
            } else {
                self.set_wakes(true);
            }
            return Ok(Answer {
                vote: Vote::Blocked(blocker),
                server: ServerInfo::None,
                position,
            });
        }
        Err(refused(error::NO_NODE))
    }

    /// Attaches the session anew, and checks the entries. With `value`, the first one gets it.
    async fn prove(&mut self, term: Term, value: Option<Vec<u8>>) -> Result<Proof, Fault> {
        let Some(place) = &self.place else {
            return Ok(Proof::Lost(Revoked::Missing));
        };
        let first = self.path.child(&place.own[0]);
        let check = |name: &String| Operation::Check(self.path.child(name), ANY_VERSION);
        let mut parts: Vec<Operation> = place.own.iter().map(check).collect();
        parts.extend(value.map(|value| Operation::Set(first.clone(), value, 0)));
        let requests = [
            Request::Multi(parts),
            Request::Children(self.path.as_str().to_owned()),
            Request::Data(first, true),
        ];
        let attachment = Attachment {
            session: Some(&place.session),
            timeout: term.ttl(),
            // Servers that have forgotten all are to say so, and not to refuse.
            zxid: 0,
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
        let (Some(Attached { session, xids }), Some(wire)) = (attached?, open) else {
            return Ok(Proof::Lost(Revoked::Missing));
        };
        let until = lease_end(term, wire.begun, session.timeout);
        let checked = wire.reply(xids[0]).await?.multi()?;
        let line = wire.reply(xids[1]).await?.children()?;
        let line = Line::of(&line.unwrap_or_default());
        let data = wire.reply(xids[2]).await?.data()?;
        self.wire = self.open.take();
        Ok(match (checked, data) {
            (Ok(_), Ok((data, _))) => Proof::Stands {
                until,
                line,
                data: Some(data),
            },
            (Err(error::BAD_VERSION), _) => Proof::Changed,
            (Err(error::NO_NODE | error::SESSION_EXPIRED), _) | (Ok(_), Err(error::NO_NODE)) => {
                let how = if line.0.is_empty() {
                    Revoked::Missing
                } else {
                    Revoked::TakenOver
                };
                Proof::Lost(how)
            }
            (Err(code), _) | (_, Err(code)) => return Err(refused(code)),
        })
    }

    async fn keep(&mut self, token: Token, term: Term) -> Result<Renewal, Fault> {
        if let Some((_, how)) = self.gone.filter(|(gone, _)| *gone == token) {
            return Ok(Renewal::NotOurs(how, None, None));
        }
        if self.place.as_ref().is_none_or(|place| place.token != token)
            && let Err(how) = self.adopt(token).await?
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
            Proof::Stands { until, line, data } => {
                let place = line.place(token);
                if place.is_none_or(|place| line.before(place).is_some()) {
                    self.forget(Revoked::TakenOver);
                    return Ok(Renewal::NotOurs(Revoked::TakenOver, None, None));
                }
                self.set_wakes(true);
                Ok(match data.and_then(|data| visit::breaker(&data)) {
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
    async fn adopt(&mut self, token: Token) -> Result<Result<(), Revoked>, Fault> {
        let adopted = visit::session_of(&self.ensemble, &self.path, token).await?;
        Ok(adopted.map(|(session, own, fence)| {
            self.place = Some(Place {
                token,
                session,
                own,
                fence,
                is_held: true,
                is_told: true,
            });
        }))
    }

    async fn listen(&mut self, token: Token) {
        let (Some(place), Some(wire)) = (&self.place, &mut self.wire) else {
            return;
        };
        if place.token != token || !place.is_held {
            return;
        }
        let xid = wire.queue(&Request::Data(self.path.child(&place.own[0]), true));
        let data = match wire.reply(xid).await {
            Ok(reply) => reply.data(),
            Err(fault) => Err(fault),
        };
        match data {
            Ok(Ok((data, _))) if visit::breaker(&data).is_none() => self.set_wakes(true),
            Ok(_) => self.tell(Hint::Woken(Wake::Recheck)),
            Err(_) => {
                self.wire = None;
                self.tell(Hint::Changed);
            }
        }
    }

    /// Looks at the line again, since a znode that was watched has changed.
    async fn walk(&mut self) {
        let (Some(place), Some(wire)) = (&self.place, &mut self.wire) else {
            return;
        };
        if place.is_held {
            self.set_wakes(false);
            return self.tell(Hint::Woken(Wake::Recheck));
        }
        let xid = wire.queue(&Request::Children(self.path.as_str().to_owned()));
        match list(wire, xid).await {
            Ok(children) => self.watch(Line::of(&children)).await,
            Err(_) => self.break_off(),
        }
    }

    /// Watches the entry that keeps the waiter out, or tells it that none does.
    async fn watch(&mut self, mut line: Line) {
        for _ in 0..TRIES {
            let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
                return;
            };
            self.due = clock::now() + place.session.timeout / 3;
            let Some(at) = line.place(place.token) else {
                self.forget(Revoked::Missing);
                return self.tell(Hint::Changed);
            };
            let Some(before) = line.before(at) else {
                if !std::mem::replace(&mut place.is_told, true) {
                    self.tell(Hint::Woken(Wake::YourTurn));
                }
                return;
            };
            let watched = wire.queue(&Request::Data(self.path.child(before.last()), true));
            match wire.reply(watched).await {
                Ok(reply) if reply.header.error == 0 => return self.set_wakes(true),
                Ok(_) => {}
                Err(_) => return self.break_off(),
            }
            let xid = wire.queue(&Request::Children(self.path.as_str().to_owned()));
            match list(wire, xid).await {
                Ok(children) => line = Line::of(&children),
                Err(_) => return self.break_off(),
            }
        }
    }

    /// Drops a connection that is of no use, to attach the session again.
    fn break_off(&mut self) {
        self.zxid = self.wire.take().map_or(self.zxid, |wire| wire.zxid);
        self.due = clock::now();
        self.set_wakes(false);
    }

    /// Attaches a waiter's session again. A holder is told, and proves its place.
    async fn attach_again(&mut self) {
        self.break_off();
        let Some(place) = &self.place else { return };
        if place.is_held {
            return self.tell(Hint::Changed);
        }
        self.due = clock::now() + PAUSE;
        let requests = [
            Request::Children(self.path.as_str().to_owned()),
            Request::Data(self.path.child(&place.own[0]), true),
        ];
        let attachment = Attachment {
            session: Some(&place.session),
            timeout: place.session.timeout,
            zxid: self.zxid,
            requests: &requests,
        };
        let attached = self
            .ensemble
            .attach(&attachment, &mut self.open, &mut self.closing);
        match attached.await {
            Ok(Some(Attached { xids, .. })) => {
                let Some(wire) = &mut self.open else { return };
                let children = list(wire, xids[0]).await;
                self.wire = self.open.take();
                match children {
                    Ok(children) => self.watch(Line::of(&children)).await,
                    Err(_) => self.wire = None,
                }
            }
            Ok(None) => {
                self.forget(Revoked::Missing);
                self.tell(Hint::Changed);
            }
            Err(_) => {}
        }
    }

    /// Lets the server hear of a waiter's session. A server that did not answer the last time is
    /// left.
    fn ping(&mut self) {
        let (Some(place), Some(wire)) = (&self.place, &mut self.wire) else {
            return;
        };
        if clock::now().since(wire.heard) > place.session.timeout * 2 / 3 {
            return self.break_off();
        }
        wire.queue(&Request::Ping);
        self.due = clock::now() + place.session.timeout / 3;
    }
}

/// Returns the request that makes the entries of `claim`. The first has what others are told of the
/// holder, and the second what they are told of the waiter, and the session's password.
fn creation(path: &LockPath, claim: &Claim, password: &[u8]) -> Request {
    let names = line::names(claim.token, claim.details.mode);
    let waiter = claim
        .ticket
        .as_ref()
        .map(|ticket| ticket.waiter.to_string());
    let mut data = vec![
        claim.details.value(claim.token),
        visit::second(waiter.as_deref(), password),
    ];
    data.resize(names.len(), String::new());
    let create = |(name, data): (&String, String)| {
        Operation::Create(
            path.child(name),
            data.into_bytes(),
            Kind::EphemeralSequential,
        )
    };
    Request::Multi(names.iter().zip(data).map(create).collect())
}

/// Makes the lock's znode and all above it.
async fn make_containers(wire: &mut Wire, path: &LockPath) -> Result<(), Fault> {
    let container = |prefix: &str| Request::Container(prefix.to_owned());
    let xids: Vec<i32> = path
        .prefixes()
        .map(|prefix| wire.queue(&container(prefix)))
        .collect();
    for xid in xids {
        match wire.reply(xid).await?.header.error {
            0 | error::NODE_EXISTS | error::NO_NODE => {}
            code => return Err(refused(code)),
        }
    }
    Ok(())
}

/// Returns the names of the children that were asked for.
async fn list(wire: &mut Wire, xid: i32) -> Result<Vec<String>, Fault> {
    let children = wire.reply(xid).await?.children()?;
    children.map_err(refused)
}
