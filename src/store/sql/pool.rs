//! The session that is asked, and how it is begun. All locks of a store share one, and a request that
//! is not answered in time costs it: the next request goes over another one.

use std::sync::{Arc, Mutex as Shared, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::session::{NotBegun, Reply, Session, SqlAccess, without};
use super::statements::{Message, Table};
use crate::clock;
use crate::lock::token::Token;
use crate::secret::Secret;
use crate::store::net::dial::HostDial;
use crate::store::net::hosts::Endpoint;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Denied, Fault, FaultKind};

/// The way from a server that answers no requests.
const SILENT: &str = "see what they wait for: a replica that confirms commits, a full disk";

/// Most sessions that are waited for and asked nothing more. A server whose commits hang, because a
/// replica is away, would otherwise lend a further one for each attempt.
const MOST_SILENT: usize = 8;

/// A client of a database.
pub(super) struct Pool {
    database: String,
    /// Whether connections are encrypted.
    pub(super) is_tls: bool,
    /// How sessions are begun, and whether one was.
    access: Mutex<(SqlAccess, bool)>,
    dial: HostDial,
    pub(super) table: Table,
    /// Limit of a connection, and of each exchange.
    pub(super) limit: Duration,
    sessions: Mutex<Sessions>,
    /// Changes when a session breaks.
    breaks: watch::Sender<()>,
    /// The locks that this client holds: their tokens and their names.
    held: Shared<Vec<(Token, String)>>,
}

/// The sessions of a client, but for those of the line.
#[derive(Default)]
struct Sessions {
    /// The one that is asked.
    current: Option<Arc<Session>>,
    /// Those that were given up. A request that is not answered keeps its session.
    silent: Vec<Weak<Session>>,
}

impl Pool {
    pub(super) fn new(access: SqlAccess, dial: HostDial, table: Table, limit: Duration) -> Self {
        Self {
            database: access.database.clone(),
            is_tls: access.trust.is_some(),
            access: Mutex::new((access, false)),
            dial,
            table,
            limit,
            sessions: Mutex::default(),
            breaks: watch::Sender::default(),
            held: Shared::default(),
        }
    }

    /// Returns the name of the database.
    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// Notes that this client holds the lock `name`.
    pub(super) fn holds(&self, token: Token, name: &str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push((token, name.to_owned()));
    }

    /// Forgets what was held under the token.
    pub(super) fn gives_up(&self, token: Token) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(other, _)| *other != token);
    }

    /// Returns the name of the lock that this client holds under the token.
    pub(super) fn held(&self, token: Token) -> Option<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = held.iter().filter(|(other, _)| *other == token);
        found.next().map(|(_, name)| name.clone())
    }

    /// Returns what changes when a session breaks.
    pub(super) fn breaks(&self) -> watch::Receiver<()> {
        self.breaks.subscribe()
    }

    /// Returns the session that is asked next. It is begun if there is none.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Fault> {
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.current.take_if(|session| !session.is_alive()) {
            sessions.silent.push(Arc::downgrade(&session));
        }
        if let Some(session) = &sessions.current {
            return Ok(Arc::clone(session));
        }
        let is_silent = |session: Arc<Session>| session.is_connected();
        sessions
            .silent
            .retain(|session| session.upgrade().is_some_and(is_silent));
        if sessions.silent.len() >= MOST_SILENT {
            let why = format!("{MOST_SILENT} requests to it are not answered yet");
            return Err(Fault::new(FaultKind::Unavailable, why).with_remedy(SILENT));
        }
        let session = Arc::new(self.begin(&self.breaks).await?);
        sessions.current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Begins a session that no other request uses.
    pub(super) async fn own_session(&self) -> Result<Arc<Session>, Fault> {
        self.begin(&watch::Sender::default()).await.map(Arc::new)
    }

    /// Begins a session at the first of the servers that can be reached and takes writes, within the
    /// limit in all. `broken` hears when one has come to an end that no caller wanted.
    async fn begin(&self, broken: &watch::Sender<()>) -> Result<Session, Fault> {
        let access = self.access().await;
        let end = clock::now() + self.limit;
        let mut first = None;
        for (index, (host, password)) in access.hosts.iter().enumerate() {
            let left = end.since(clock::now());
            let shares = u32::try_from(access.hosts.len() - index).unwrap_or(u32::MAX);
            let share = left / shares;
            let begun = self.begin_at(host, password.as_ref(), &access, share, broken);
            let begun = clock::until(clock::now() + share, Box::pin(begun)).await;
            let NotBegun { fault, is_away } =
                match begun.unwrap_or_else(|| Err(NotBegun::by_kind(no_answer(share)))) {
                    Ok(session) => return Ok(session),
                    Err(why) => why,
                };
            let mut fault = refused_with(password.as_ref(), fault);
            if access.hosts.len() > 1 {
                fault.why = format!("{host}: {fault}");
            }
            if !is_away {
                return Err(fault);
            }
            first.get_or_insert(fault);
        }
        Err(first.unwrap_or_else(|| no_answer(self.limit)))
    }

    async fn begin_at(
        &self,
        host: &Endpoint,
        password: Option<&Secret>,
        access: &SqlAccess,
        limit: Duration,
        broken: &watch::Sender<()>,
    ) -> Result<Session, NotBegun> {
        let dialect = self.table.dialect;
        let stream = (self.dial)(host.clone(), limit).await;
        let stream = stream.map_err(NotBegun::by_kind)?;
        let begun = dialect
            .begin(stream, host, password, access, broken)
            .await?;
        let greeting = dialect.greeting(&self.table);
        let reply = begun.connection.ask(&greeting, None).await;
        let reply = reply.map_err(NotBegun::of_greeting)?;
        let greeting = dialect.greeted(&self.table, &reply)?;
        Ok(Session::new(begun, &greeting, password))
    }

    /// Returns how a session is begun now: a password or a certificate may have been replaced.
    async fn access(&self) -> SqlAccess {
        let mut known = self.access.lock().await;
        let (access, is_used) = &mut *known;
        let is_used = std::mem::replace(is_used, true);
        if let Some(renew) = access.renew.clone().filter(|_| is_used) {
            let again = Arc::clone(&renew);
            // A file of a network may hang.
            if let Ok(Some(read)) = tokio::task::spawn_blocking(move || again()).await {
                let renew = Some(renew);
                *access = SqlAccess { renew, ..read };
            }
        }
        access.clone()
    }

    /// Asks `session`. An answer may come late, when the session is asked no more.
    pub(super) async fn ask_at(
        &self,
        session: &Session,
        message: &Message,
        unwritten: Option<Unwritten>,
    ) -> Result<Reply, Fault> {
        let (unwritten, unheard) = if self.table.dialect.runs_all_that_is_written() {
            (unwritten, None)
        } else {
            (None, unwritten)
        };
        let mut answer = Box::pin(session.request(message, unwritten));
        let in_time = self.in_time(session, &mut answer).await;
        drop(unheard);
        match in_time {
            Some(answer) => answer,
            None => answer.await,
        }
    }

    /// Returns the answer of `session` if it comes in time. Otherwise that is asked no more.
    pub(super) async fn in_time<T>(
        &self,
        session: &Session,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let answer = clock::until(clock::now() + self.limit, answer).await;
        if answer.is_none() {
            session.give_up();
        }
        answer
    }

    /// Asks what may be asked twice: again, if the session was broken.
    pub(super) async fn ask(&self, message: &Message) -> Result<Reply, Fault> {
        self.asked(message).await.map(|(_, reply)| reply)
    }

    /// The same, with the session that answered.
    pub(super) async fn asked(&self, message: &Message) -> Result<(Arc<Session>, Reply), Fault> {
        let session = self.session().await?;
        match self.ask_at(&session, message, None).await {
            Err(fault) if fault.kind == FaultKind::Unknown && !session.is_connected() => {
                let session = self.session().await?;
                let reply = self.ask_at(&session, message, None).await?;
                Ok((session, reply))
            }
            answer => answer.map(|reply| (session, reply)),
        }
    }
}

/// Returns the fault of a server that refused a session, without the password that it was shown.
fn refused_with(password: Option<&Secret>, fault: Fault) -> Fault {
    let mut fault = without(password, fault);
    if let (Some(password), Some(Denied::Login)) = (password, fault.denied) {
        fault.why = format!("{}; password from {}", fault.why, password.source());
    }
    fault
}

/// Nothing was asked of it yet.
fn no_answer(limit: Duration) -> Fault {
    Fault {
        kind: FaultKind::Unavailable,
        ..Fault::timeout(limit)
    }
}
