//! A session at a server of a database, and what it is asked. The pool begins it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixStream;

use super::dialect::Working;
use super::statements::Message;
use crate::clock;
use crate::lock::instant::Instant;
use crate::secret::{self, Secret};
use crate::store::net::dial::{HostDial, boxed, connect};
use crate::store::net::hosts::Endpoint;
use crate::store::net::tls::Trust;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Fault, FaultKind};
use crate::text::escape;

/// The way to a missing table and to a missing right.
pub(super) const CREATE: &str = "create it: rlock doctor --acl prints how";
pub(super) const GRANT: &str = "grant the rights of the line that rlock doctor --acl prints";

/// The way from a server that is none of the product's.
pub(super) const LISTENS: &str = "see what listens there";

/// The way from a server that takes no writes.
pub(super) const NO_WRITER: &str = "name the primary, or all servers of the database";

/// How the servers are reached, and as whom.
#[derive(Clone)]
pub struct SqlAccess {
    /// The servers in the order in which they are tried, each with the password for it.
    pub hosts: Vec<(Endpoint, Option<Secret>)>,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// Needed for TLS only.
    pub trust: Option<Trust>,
    /// Reads the files of passwords and certificates again.
    pub renew: Option<RenewAccess>,
}

/// Returns the access with what files say now, if they can be read.
pub type RenewAccess = Arc<dyn Fn() -> Option<SqlAccess> + Send + Sync>;

/// Opens a stream to a server. TLS begins inside the database's protocol.
pub fn dial() -> HostDial {
    Arc::new(|endpoint, limit| {
        Box::pin(async move {
            match endpoint {
                Endpoint::Unix(path) => boxed(UnixStream::connect(path).await),
                Endpoint::Tcp { host, port, .. } => boxed(Ok(connect(&host, port, limit).await?)),
            }
        })
    })
}

/// A connection. Requests are written behind each other, and answered in their order.
pub(in crate::store) trait Connection: Send + Sync {
    /// Whether it has come to its end.
    fn is_closed(&self) -> bool;

    /// Asks, and returns the answers to all statements. The request goes out when this is first
    /// polled, and the server runs it though it is dropped. `unwritten` is dropped when the kernel
    /// has it.
    fn ask<'a>(
        &'a self,
        text: &'a str,
        unwritten: Option<Unwritten>,
    ) -> Working<'a, Result<Reply, Fault>>;
}

/// Why no session was begun at a server.
pub(in crate::store) struct NotBegun {
    pub(super) fault: Fault,
    /// Whether the server cannot be reached, or takes no writes: a lock is taken at the next one. One
    /// that refuses for another reason takes writes of others, and so may the next one.
    pub(super) is_away: bool,
}

impl NotBegun {
    /// Reads a fault that is no error which the server told: one that is unavailable is away.
    pub(super) fn by_kind(fault: Fault) -> Self {
        let is_away = fault.kind == FaultKind::Unavailable;
        Self { fault, is_away }
    }

    /// Reads the fault of the first request: a server that takes no writes is away.
    pub(super) fn of_greeting(fault: Fault) -> Self {
        let is_away = fault.remedy == Some(NO_WRITER);
        Self { fault, is_away }
    }
}

impl From<Fault> for NotBegun {
    fn from(fault: Fault) -> Self {
        let is_away = false;
        Self { fault, is_away }
    }
}

/// A connection that has logged in.
pub(in crate::store) struct Begun {
    pub(super) connection: Box<dyn Connection>,
    /// Version of the server.
    pub(super) version: String,
    /// Number of the server's session, as the login told it.
    pub(super) process: u64,
}

/// Facts of a session's first answer.
pub(in crate::store) struct Greeting {
    /// The server's unix time in µs.
    pub(super) now: u64,
    /// Number of the server's session, as a statement tells it.
    pub(super) process: u64,
}

/// A session.
pub(super) struct Session {
    connection: Box<dyn Connection>,
    /// The password that its server was shown.
    password: Option<Secret>,
    /// Unix time in µs that the server told, and when it was heard.
    now: Mutex<(u64, Instant)>,
    /// Whether the server's session is ours alone, and no pooler stands between.
    pub(super) is_direct: bool,
    /// Version of the server.
    pub(super) version: String,
    is_given_up: AtomicBool,
}

/// An answer.
#[derive(Debug, Default)]
pub(in crate::store) struct Reply {
    /// Of each statement its rows, and the number of rows that it was about.
    pub(super) statements: Vec<Statement>,
    /// Time from the request to the answer; the session measures it.
    pub(super) took: Duration,
}

impl Reply {
    /// An answer as a connection reads it.
    pub(super) fn of(statements: Vec<Statement>) -> Self {
        let took = Duration::ZERO;
        Self { statements, took }
    }

    /// Returns the first row of the statement `number`; an empty one if there is none.
    pub(super) fn first_row(&self, number: usize) -> Result<&[Option<String>], Fault> {
        let statement = self.statements.get(number).ok_or_else(strange)?;
        Ok(statement
            .rows
            .first()
            .map(Vec::as_slice)
            .unwrap_or_default())
    }
}

/// The answer to one statement.
#[derive(Debug, Default)]
pub(in crate::store) struct Statement {
    pub(super) rows: Vec<Vec<Option<String>>>,
    pub(super) count: u64,
}

impl Session {
    /// A session over a connection that has logged in, whose first answer is `greeting`.
    pub(super) fn new(begun: Begun, greeting: &Greeting, password: Option<&Secret>) -> Self {
        Self {
            connection: begun.connection,
            password: password.cloned(),
            now: Mutex::new((greeting.now, clock::now())),
            is_direct: greeting.process == begun.process,
            version: secret::told(&begun.version, password),
            is_given_up: AtomicBool::new(false),
        }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, (u64, Instant)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests have a chance.
    pub(super) fn is_alive(&self) -> bool {
        self.is_connected() && !self.is_given_up.load(Ordering::Relaxed)
    }

    /// Whether it is still connected.
    pub(super) fn is_connected(&self) -> bool {
        !self.connection.is_closed()
    }

    /// Asks it nothing any more but a release.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Returns the server's unix time in µs at which `limit` from now is over. It is early by the
    /// time for which the last answer was on its way.
    pub(super) fn deadline(&self, limit: Duration) -> u64 {
        let (told, heard) = *self.now();
        let since = clock::now().since(heard) + limit;
        told.saturating_add(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// Notes the server's time; 0: it told none.
    pub(super) fn heard(&self, now: u64) {
        if now > 0 {
            *self.now() = (now, clock::now());
        }
    }

    /// Asks, and returns the answers to the statements of the request itself. The request goes out
    /// when this is first polled. `unwritten` is dropped when the kernel has it.
    pub(super) async fn request(
        &self,
        message: &Message,
        unwritten: Option<Unwritten>,
    ) -> Result<Reply, Fault> {
        let mut reply = self.answered(&message.text, unwritten).await?;
        if reply.statements.len() < message.before {
            return Err(strange());
        }
        reply.statements.drain(..message.before);
        Ok(reply)
    }

    /// Asks, and returns the answers to all statements.
    pub(super) async fn ask(&self, text: &str) -> Result<Reply, Fault> {
        self.answered(text, None).await
    }

    async fn answered(&self, text: &str, unwritten: Option<Unwritten>) -> Result<Reply, Fault> {
        let asked = clock::now();
        let answer = self.connection.ask(text, unwritten).await;
        let mut reply = answer.map_err(|fault| without(self.password.as_ref(), fault))?;
        reply.took = clock::now().since(asked);
        Ok(reply)
    }
}

/// Returns the fault of a server that was shown `password`, without that. What a server said stands
/// in a fault escaped, and so is the password there.
pub(super) fn without(password: Option<&Secret>, fault: Fault) -> Fault {
    let Some(password) = password else {
        return fault;
    };
    let why = secret::without(&fault.why, &escape::text(password.reveal()));
    Fault { why, ..fault }
}

/// Reads a number that the server told.
pub(super) fn number<T: std::str::FromStr>(text: Option<&str>) -> Result<T, Fault> {
    text.and_then(|text| text.parse().ok()).ok_or_else(strange)
}

/// The fault of an answer that the database does not give.
pub(super) fn strange() -> Fault {
    Fault::unfit("its answer is none of the database's", LISTENS)
}

/// The fault of a server that takes no writes.
pub(super) fn is_no_writer() -> NotBegun {
    let why = "it takes no writes: it is a standby, or read-only";
    NotBegun::by_kind(Fault::new(FaultKind::Unavailable, why).with_remedy(NO_WRITER))
}
