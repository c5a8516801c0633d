//! How a server is connected to: the address with its secrets, the byte stream to it, what opens
//! connections over that, and a connection for plain commands. The stream is a unix socket, TCP, or
//! TLS over TCP.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::connection::{Connection, Hearing};
use super::state::{ConnectionState, Effect};
use super::stranger::{self, Silence};
use crate::clock;
use crate::lock::instant::Instant;
use crate::secret::{self, Secret};
use crate::store::net::dial::{Dialing, boxed, connect, first_byte};
use crate::store::net::hosts::Endpoint;
use crate::store::net::tls::{Trust, no_tls};
use crate::store::{Fault, FaultKind};

/// The remedy for a server without TLS.
const PLAIN: &str = "write redis:// if that is meant";

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
    /// When the secrets were read.
    pub read: Instant,
    /// Makes it again, where files may have changed.
    pub renew: Option<Renew>,
}

/// Makes an access again of what the files of its secrets say now; nothing if they cannot be read.
pub type Renew = Arc<dyn Fn() -> Option<Access> + Send + Sync>;

impl From<Endpoint> for Access {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            user: None,
            password: None,
            db: 0,
            trust: None,
            read: clock::now(),
            renew: None,
        }
    }
}

/// Opens a stream to the server that is named. The caller limits the time to the one that is given.
/// A simulated server takes the place of [`dial`] here, and of nothing else.
pub type Dial = Arc<dyn Fn(Access, Duration) -> Dialing + Send + Sync>;

/// Opens a stream to the server that `access` names. The caller limits the time to `limit`.
pub fn dial(access: Access, limit: Duration) -> Dialing {
    Box::pin(async move {
        match &access.endpoint {
            Endpoint::Unix(path) => boxed(UnixStream::connect(path).await),
            Endpoint::Tcp { host, port, tls } => {
                let stream = connect(host, *port, limit).await?;
                match (&access.trust, tls) {
                    (Some(trust), true) => {
                        let mut handshake = Box::pin(trust.handshake(host, stream, PLAIN));
                        let shaken = clock::until(clock::now() + limit / 2, &mut handshake).await;
                        if shaken.is_none() && speaks_plainly(host, *port, limit / 4).await {
                            return Err(no_tls(PLAIN));
                        }
                        boxed(Ok(match shaken {
                            Some(shaken) => shaken?,
                            None => handshake.await?,
                        }))
                    }
                    (None, true) => {
                        Err(Fault::new(FaultKind::Unfit, "no issuer is trusted for TLS"))
                    }
                    (_, false) => boxed(Ok(stream)),
                }
            }
        }
    })
}

/// Whether a Redis server without TLS listens there. It waits for the end of the line that a TLS
/// handshake is to it. It answers, or with an error: a password is missing, or the server is in
/// protected mode.
async fn speaks_plainly(host: &str, port: u16, limit: Duration) -> bool {
    let first = first_byte(host, port, b"PING\r\n", limit).await;
    matches!(first, Some(b'+' | b'-'))
}

/// Time for which files of secrets are not read again.
const JUST_READ: Duration = Duration::from_secs(1);

/// Opens connections to one server.
#[derive(Clone)]
pub struct Connector {
    access: Arc<Mutex<KnownAccess>>,
    dial: Dial,
    /// Whether a server that says nothing is looked at more closely.
    is_real: bool,
    silence: Arc<Silence>,
}

/// The access that the next connection uses.
struct KnownAccess {
    access: Access,
    /// The state of the connection that was opened last.
    last: watch::Receiver<ConnectionState>,
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
        let known = KnownAccess {
            access,
            last: watch::channel(ConnectionState::default()).1,
        };
        Self {
            access: Arc::new(Mutex::new(known)),
            dial,
            is_real: false,
            silence: Arc::default(),
        }
    }

    /// Opens a connection, within `time` by the caller's care. For the rest see
    /// [`Connection::over`]. Where the server refuses what rlock shows to it, or refused it on the
    /// connection before, the files are read again: a password or certificate may have been
    /// replaced since.
    pub(in crate::store) async fn open(
        &self,
        time: Duration,
        limit: usize,
        hearing: Option<Hearing>,
    ) -> Result<Connection, Fault> {
        // With TLS 1.3 a client learns only from the first reply that its certificate is refused.
        let was_refused = |known: &KnownAccess| {
            let last = known.last.borrow();
            last.shut_out.as_ref().is_some_and(Fault::is_about_login)
        };
        if was_refused(&self.known()) {
            self.read_again().await;
        }
        match self.reach(time, limit, hearing.clone()).await {
            Err(fault) if fault.is_about_login() && self.read_again().await => {
                self.reach(time, limit, hearing).await
            }
            opened => opened,
        }
    }

    /// Opens a connection.
    ///
    /// A server that closed the last connection without a word must first say one on a connection
    /// of the plainest kind. So one that goes on closing them costs each caller one connection, and
    /// no request is sent to it that would have to be undone.
    async fn reach(
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
        let access = self.access();
        let stream = (self.dial)(access.clone(), time).await?;
        let state = Arc::default();
        let opened = Connection::set_up(&access, stream, limit, hearing, &state).await;
        self.known().last = state.subscribe();
        if opened.is_err() && state.borrow().is_dumb() && self.leads_to_tls(time).await {
            return Err(stranger::tls());
        }
        opened
    }

    /// Returns what connects without what rlock shows to the server; nothing where only programs of
    /// this machine reach it, or the server asks for a certificate.
    pub(super) fn as_stranger(&self) -> Option<Self> {
        let Access {
            endpoint, trust, ..
        } = self.access();
        let Endpoint::Tcp { host, .. } = &endpoint else {
            return None;
        };
        let is_local = host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback());
        let shows = trust.as_ref().is_some_and(Trust::shows_certificate);
        let access = Access {
            trust,
            ..endpoint.into()
        };
        (!is_local && !shows).then(|| Self {
            is_real: self.is_real,
            ..Self::over(access, Arc::clone(&self.dial))
        })
    }

    /// Returns what connects to the replica that the server names there, as the same user.
    pub(super) fn as_replica(&self, host: &str, port: u16) -> Self {
        let access = self.access();
        let tls = matches!(access.endpoint, Endpoint::Tcp { tls: true, .. });
        let endpoint = Endpoint::Tcp {
            host: host.to_owned(),
            port,
            tls,
        };
        // Made again, it would lead to the server itself.
        let access = Access {
            endpoint,
            renew: None,
            ..access
        };
        Self {
            is_real: self.is_real,
            ..Self::over(access, Arc::clone(&self.dial))
        }
    }

    /// Returns [`Trust::days_left`] of the server's certificate and of ours, where there are any.
    pub(super) async fn days_left(&self, limit: Duration) -> [Option<u64>; 2] {
        let access = self.access();
        let (Some(trust), Endpoint::Tcp { host, port, .. }) = (&access.trust, &access.endpoint)
        else {
            return [None, None];
        };
        let days = async {
            let stream = connect(host, *port, limit).await.ok()?;
            let stream = trust.handshake(host, stream, PLAIN).await.ok()?;
            Some(trust.days_left(&stream))
        };
        let days = clock::until(clock::now() + limit, Box::pin(days)).await;
        days.flatten().unwrap_or_default()
    }

    /// Returns what the server said of itself, for people.
    pub(super) fn told(&self, words: &str) -> String {
        secret::told(words, self.known().access.password.as_ref())
    }

    /// Reads the files of the secrets again, unless they were just read. Returns whether it did.
    async fn read_again(&self) -> bool {
        let renew = {
            let known = self.known();
            let is_due = clock::now().since(known.access.read) > JUST_READ;
            known.access.renew.clone().filter(|_| is_due)
        };
        let Some(renew) = renew else {
            return false;
        };
        let again = Arc::clone(&renew);
        // A file of a network may hang.
        let Ok(Some(access)) = tokio::task::spawn_blocking(move || again()).await else {
            return false;
        };
        self.known().access = Access {
            renew: Some(renew),
            ..access
        };
        true
    }

    fn access(&self) -> Access {
        self.known().access.clone()
    }

    fn known(&self) -> MutexGuard<'_, KnownAccess> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server, which closed a connection without a word, speaks TLS where none was
    /// asked for. The answer takes a part of `time` at most, and is remembered until the server
    /// speaks.
    pub(super) async fn leads_to_tls(&self, time: Duration) -> bool {
        let access = self.access();
        let is_plain = matches!(access.endpoint, Endpoint::Tcp { tls: false, .. });
        let looks = || stranger::speaks_tls((self.dial)(access.clone(), time), time);
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
