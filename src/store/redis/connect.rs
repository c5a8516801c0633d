//! How a server is connected to: the address with its secrets, what opens connections there, and a
//! connection for plain commands.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;

use super::connection::{Connection, Hearing};
use super::dial::{Dial, dial};
use super::state::{ConnectionState, Effect};
use super::stranger::{self, Silence};
use crate::clock;
use crate::secret::Secret;
use crate::store::net::tls::Trust;
use crate::store::redis::address::Endpoint;
use crate::store::{Fault, FaultKind};

/// How to connect to one server and as whom.
#[derive(Clone)]
pub struct Access {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The user.
    pub user: Option<String>,
    /// The password, from whichever source.
    pub password: Option<Secret>,
    /// Database number.
    pub db: u32,
    /// Needed for TLS only.
    pub trust: Option<Trust>,
}

impl From<Endpoint> for Access {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            user: None,
            password: None,
            db: 0,
            trust: None,
        }
    }
}

/// Opens connections to one server.
#[derive(Clone)]
pub struct Connector {
    access: Access,
    dial: Dial,
    /// Whether a server that says nothing is looked at more closely.
    is_real: bool,
    silence: Arc<Silence>,
}

impl Connector {
    /// Connects to the server that `access` names.
    pub fn new(access: Access) -> Self {
        Self {
            is_real: true,
            ..Self::over(access, Arc::new(dial))
        }
    }

    /// The same, over streams that `dial` opens.
    pub fn over(access: Access, dial: Dial) -> Self {
        Self {
            access,
            dial,
            is_real: false,
            silence: Arc::default(),
        }
    }

    /// Opens a connection, within `time` by the caller's care. For the rest see
    /// [`Connection::over`].
    ///
    /// A server that closed the last connection without a word must first say one on a connection
    /// of the plainest kind. So one that goes on closing them costs each caller one connection, and
    /// no request is sent to it that would have to be undone.
    pub(in crate::store) async fn open(
        &self,
        time: Duration,
        limit: usize,
        hearing: Option<Hearing>,
    ) -> Result<Connection, Fault> {
        if !self.silence.is_known() {
            return self.set_up(time, limit, hearing).await;
        }
        let plain = self.set_up(time, limit, None).await?;
        let reply = plain.send(&redis::cmd("PING"), Effect::None).await;
        let is_silent = plain.state().first.is_none();
        if let Err(fault) = reply
            && is_silent
        {
            return Err(if self.leads_to_tls(time).await {
                stranger::tls()
            } else {
                let kind = FaultKind::Unavailable;
                Fault { kind, ..fault }
            });
        }
        self.silence.end();
        match hearing {
            None => Ok(plain),
            Some(_) => self.set_up(time, limit, hearing).await,
        }
    }

    async fn set_up(
        &self,
        time: Duration,
        limit: usize,
        hearing: Option<Hearing>,
    ) -> Result<Connection, Fault> {
        let stream = (self.dial)(self.access.clone(), time).await?;
        let state = Arc::default();
        let opened = Connection::set_up(&self.access, stream, limit, hearing, &state).await;
        if opened.is_err() && state.borrow().is_dumb() && self.leads_to_tls(time).await {
            return Err(stranger::tls());
        }
        opened
    }

    /// Whether the server, which closed a connection without a word, speaks TLS where none was
    /// asked for. The answer takes a part of `time` at most, and is remembered until the server
    /// speaks.
    pub(super) async fn leads_to_tls(&self, time: Duration) -> bool {
        let is_plain = matches!(self.access.endpoint, Endpoint::Tcp { tls: false, .. });
        let looks = || stranger::speaks_tls((self.dial)(self.access.clone(), time), time);
        self.silence
            .is_of_tls(async { is_plain && self.is_real && looks().await })
            .await
    }
}

/// A connection for plain commands, one after the other. No lock depends on their replies.
pub struct Client {
    connection: Connection,
    limit: Duration,
}

impl Client {
    /// Connects. `limit` bounds this, and each exchange; a reply has at most `size` bytes.
    pub async fn open(connector: &Connector, limit: Duration, size: usize) -> Result<Self, Fault> {
        let opened = clock::until(
            clock::now() + limit,
            Box::pin(connector.open(limit, size, None)),
        )
        .await;
        Ok(Self {
            connection: opened.unwrap_or_else(|| Err(Fault::timeout(limit)))?,
            limit,
        })
    }

    /// Sends a command and waits for its reply.
    pub async fn ask(&self, command: &Cmd) -> Result<Value, Fault> {
        let reply = self.connection.send(command, Effect::None);
        clock::until(clock::now() + self.limit, reply)
            .await
            .unwrap_or_else(|| Err(Fault::timeout(self.limit)))
    }

    /// The same for a command of plain words.
    pub async fn command(&self, words: &[&str]) -> Result<Value, Fault> {
        let mut command = Cmd::new();
        command.arg(words);
        self.ask(&command).await
    }

    /// Returns what is known of the connection now.
    pub(in crate::store) fn state(&self) -> watch::Ref<'_, ConnectionState> {
        self.connection.state()
    }
}
