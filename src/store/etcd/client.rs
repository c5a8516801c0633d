//! A client of the cluster: one connection at a time, to whichever member answers.
//!
//! 1. The first member is a random one, and the next are tried in the order of the address.
//! 2. A member that does not answer within its share of the limit, or knows no leader, is followed
//!    by the next. All that rlock asks may be asked twice: each request names its lease or what it
//!    compares.
//! 3. With a user, a connection begins with a login. Its token goes along with each call, and a
//!    token that is over is replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, watch};

use super::link::{Answers, Failed, Link, read};
use super::rpc::{AuthenticateRequest, Call, WatchCreateRequest, WatchRequest};
use super::status::Status;
use crate::clock;
use crate::secret::Secret;
use crate::store::net::dial::{Stream, boxed, connect};
use crate::store::net::tls::{Trust, no_tls};
use crate::store::redis::address::{Endpoint, host_and_port};
use crate::store::{Fault, FaultKind, Pending};

/// Opens the stream to a member, within a time.
pub type Dial = Arc<dyn Fn(Endpoint, Duration) -> Dialing + Send + Sync>;

/// A stream that is being opened.
pub type Dialing = std::pin::Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, Fault>> + Send>>;

/// How a client begins, with no settings (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// How to reach the members and as whom.
#[derive(Clone, Default)]
pub struct Access {
    /// The members.
    pub hosts: Vec<Endpoint>,
    /// The user, if users are known there.
    pub user: Option<(String, Secret)>,
    /// Needed for TLS only.
    pub trust: Option<Trust>,
}

/// A client of a cluster. Its clones share one connection.
#[derive(Clone)]
pub(super) struct Client(Arc<Shared>);

struct Shared {
    access: Access,
    dial: Dial,
    /// Limit of each exchange.
    limit: Duration,
    /// Largest reply, in bytes.
    room: usize,
    open: Mutex<Option<Session>>,
    /// The member that is asked.
    current: AtomicUsize,
    /// Number of connections that broke after they had been of use.
    breaks: watch::Sender<u64>,
}

/// A connection, with the token of its login.
#[derive(Clone)]
struct Session {
    link: Link,
    token: Option<String>,
    host: usize,
}

/// Outcome of a call.
pub(super) enum Outcome<R> {
    /// The answer. `is_repeated`: an earlier try may have been carried out too.
    Answered { reply: R, is_repeated: bool },
    /// The member says no.
    Refused(Status),
    /// No answer.
    Failed(Fault),
}

impl<R> Outcome<R> {
    /// Returns the answer, or the fault.
    pub(super) fn result(self) -> Result<R, Fault> {
        match self {
            Self::Answered { reply, .. } => Ok(reply),
            Self::Refused(status) => Err(status.fault()),
            Self::Failed(fault) => Err(fault),
        }
    }
}

/// Opens a stream to a member, with TLS if there is something to trust.
pub fn dial(trust: Option<&Trust>) -> Dial {
    let trust = trust.map(|trust| trust.speaking("h2"));
    Arc::new(move |endpoint, limit| {
        let trust = trust.clone();
        Box::pin(async move {
            let Endpoint::Tcp { host, port, .. } = &endpoint else {
                return Err(Fault::new(FaultKind::Unfit, "unix socket"));
            };
            let stream = connect(host, *port, limit).await?;
            match trust {
                Some(trust) => {
                    let plain = "write etcd:// if that is meant";
                    match trust.handshake(host, stream, plain).await {
                        // It closes a connection whose beginning it does not understand.
                        Err(fault)
                            if fault.kind == FaultKind::Unavailable
                                && speaks_plainly(host, *port, limit / 4).await =>
                        {
                            Err(no_tls(plain))
                        }
                        shaken => boxed(Ok(shaken?)),
                    }
                }
                None => boxed(Ok(stream)),
            }
        })
    })
}

/// Whether a member without TLS listens there: it answers the beginning of HTTP/2 with a frame.
async fn speaks_plainly(host: &str, port: u16, limit: Duration) -> bool {
    let first = async {
        let mut stream = connect(host, port, limit).await.ok()?;
        stream.write_all(PREFACE).await.ok()?;
        stream.read_u8().await.ok()
    };
    clock::until(clock::now() + limit, Box::pin(first)).await == Some(Some(0))
}

impl Client {
    /// A client that has asked nothing yet.
    pub(super) fn new(access: Access, dial: Dial, limit: Duration, room: usize) -> Self {
        let current = AtomicUsize::new(fastrand::usize(..access.hosts.len().max(1)));
        Self(Arc::new(Shared {
            access,
            dial,
            limit,
            room,
            open: Mutex::default(),
            current,
            breaks: watch::Sender::default(),
        }))
    }

    /// Returns the number of connections that broke after they had been of use.
    pub(super) fn breaks(&self) -> watch::Receiver<u64> {
        self.0.breaks.subscribe()
    }

    /// Returns the limit of each exchange.
    pub(super) fn limit(&self) -> Duration {
        self.0.limit
    }

    /// Returns a client for each member by itself, with its address.
    pub(super) fn each(&self) -> Vec<(Endpoint, Self)> {
        let alone = |host: &Endpoint| {
            let access = Access {
                hosts: vec![host.clone()],
                ..self.0.access.clone()
            };
            let dial = Arc::clone(&self.0.dial);
            (
                host.clone(),
                Self::new(access, dial, self.0.limit, self.0.room),
            )
        };
        self.0.access.hosts.iter().map(alone).collect()
    }

    /// Asks `request`, and returns the answer.
    pub(super) async fn ask<C: Call>(&self, request: C) -> Result<C::Reply, Fault> {
        self.call(request, || {}).await.result()
    }

    /// Asks `request`. `written` hears when the kernel has it.
    pub(super) async fn call<C: Call>(
        &self,
        request: C,
        written: impl FnOnce(),
    ) -> Outcome<C::Reply> {
        let message = request.encode_to_vec();
        let mut written = Some(written);
        let mut is_repeated = false;
        let mut fault = Fault::timeout(self.0.limit);
        // A connection that has been idle may be found broken.
        for _ in 0..=self.0.access.hosts.len() {
            let session = match self.session().await {
                Ok(session) => session,
                Err(why) if why.kind == FaultKind::Refused => return Outcome::Failed(why),
                Err(why) => {
                    // What an earlier try may have done is what counts.
                    if !is_repeated {
                        fault = why;
                    }
                    self.skip(None).await;
                    continue;
                }
            };
            let written = || {
                if let Some(written) = written.take() {
                    written();
                }
            };
            let call = session.link.call(
                request.path(),
                session.token.as_deref(),
                message.clone(),
                written,
            );
            match self.within_share(call).await {
                Some(Ok(answer)) => {
                    return match read(&answer) {
                        Ok(reply) => Outcome::Answered { reply, is_repeated },
                        Err(fault) => Outcome::Failed(fault),
                    };
                }
                Some(Err(Failed::Refused(status))) if status.is_token_over() => {
                    self.forget(&session).await;
                    fault = status.fault();
                }
                Some(Err(Failed::Refused(status))) if status.is_of_member() => {
                    fault = status.fault();
                    is_repeated |= fault.kind == FaultKind::Unknown;
                    self.skip(Some(&session)).await;
                }
                Some(Err(Failed::Refused(status))) => return Outcome::Refused(status),
                Some(Err(Failed::Broken(why))) => {
                    is_repeated |= why.kind == FaultKind::Unknown;
                    fault = why;
                    self.skip(Some(&session)).await;
                }
                None => {
                    is_repeated = true;
                    fault = Fault::timeout(self.share());
                    self.skip(Some(&session)).await;
                }
            }
        }
        Outcome::Failed(fault)
    }

    /// Watches `key` from the revision `from` on. The connection's end ends the watch.
    pub(super) async fn watch(&self, key: &[u8], from: i64) -> Result<Answers, Fault> {
        let request = WatchRequest {
            create: Some(WatchCreateRequest {
                key: key.to_vec(),
                start_revision: from,
            }),
        };
        let session = self.session().await?;
        let (token, message) = (session.token.as_deref(), request.encode_to_vec());
        let begun = session
            .link
            .begin("/etcdserverpb.Watch/Watch", token, message, || {}, false);
        match self.within_share(begun).await {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(Failed::Refused(status))) => Err(status.fault()),
            Some(Err(Failed::Broken(fault))) => Err(fault),
            None => {
                self.skip(Some(&session)).await;
                Err(Fault::timeout(self.0.limit))
            }
        }
    }

    /// Time that a member has to answer.
    fn share(&self) -> Duration {
        match self.0.access.hosts.len() {
            1 => self.0.limit,
            _ => self.0.limit / 3,
        }
    }

    async fn within_share<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        clock::until(clock::now() + self.share(), work).await
    }

    /// Returns the connection, which is opened if there is none.
    async fn session(&self) -> Result<Session, Fault> {
        let mut open = self.0.open.lock().await;
        if let Some(session) = open.as_ref().filter(|known| !known.link.state().is_broken) {
            return Ok(session.clone());
        }
        *open = None;
        let host = self.0.current.load(Ordering::Relaxed) % self.0.access.hosts.len();
        let opened = clock::until(clock::now() + self.share(), Box::pin(self.opened(host)));
        let session = opened
            .await
            .unwrap_or_else(|| Err(Fault::timeout(self.share())));
        let session = session.map_err(|fault| Fault {
            // Nothing was asked.
            kind: match fault.kind {
                FaultKind::Unknown => FaultKind::Unavailable,
                kind => kind,
            },
            ..fault
        })?;
        let (link, shared) = (session.link.clone(), Arc::downgrade(&self.0));
        tokio::spawn(async move {
            link.ended().await;
            if let Some(shared) = shared.upgrade().filter(|_| link.state().has_answered) {
                shared.breaks.send_modify(|breaks| *breaks += 1);
            }
        });
        *open = Some(session.clone());
        Ok(session)
    }

    async fn opened(&self, host: usize) -> Result<Session, Fault> {
        let access = &self.0.access;
        let endpoint = access.hosts[host].clone();
        let authority = match &endpoint {
            Endpoint::Tcp { host, port, .. } => host_and_port(host, *port),
            Endpoint::Unix(_) => "localhost".to_owned(),
        };
        let stream = (self.0.dial)(endpoint, self.share()).await?;
        let link = Link::over(stream, &authority, access.trust.is_some(), self.0.room).await?;
        let mut session = Session {
            link,
            token: None,
            host,
        };
        if let Some((name, password)) = &access.user {
            session.token = login(&session.link, name, password).await?;
        }
        Ok(session)
    }

    /// Gives the connection up, and turns to the next member, unless that is done already.
    async fn skip(&self, session: Option<&Session>) {
        let mut open = self.0.open.lock().await;
        let current = self.0.current.load(Ordering::Relaxed);
        if session.is_none_or(|session| session.host == current % self.0.access.hosts.len()) {
            self.0
                .current
                .store((current + 1) % self.0.access.hosts.len(), Ordering::Relaxed);
        }
        if let Some(session) = session {
            // What else waits for an answer on it turns to the next one too.
            session.link.abandon();
        }
        if let Some(session) = session
            && open
                .as_ref()
                .is_some_and(|known| known.host == session.host)
        {
            *open = None;
        }
    }

    /// Drops a login that is over: the next call begins with another one.
    async fn forget(&self, session: &Session) {
        let mut open = self.0.open.lock().await;
        if open
            .as_ref()
            .is_some_and(|known| known.token == session.token)
        {
            *open = None;
        }
    }
}

/// Returns the token by which the member knows the user from now on; `None` where no users are
/// known.
async fn login(link: &Link, name: &str, password: &Secret) -> Result<Option<String>, Fault> {
    let request = AuthenticateRequest {
        name: name.to_owned(),
        password: password.reveal().to_owned(),
    };
    let (path, message) = (request.path(), request.encode_to_vec());
    match link.call(path, None, message, || {}).await {
        Ok(answer) => {
            let reply: super::rpc::AuthenticateResponse = read(&answer)?;
            Ok(Some(reply.token))
        }
        Err(Failed::Refused(status)) if status.is_without_users() => Ok(None),
        Err(Failed::Refused(status)) => Err(status.fault()),
        Err(Failed::Broken(fault)) => Err(fault),
    }
}

/// A value that is there already.
pub(super) fn ready<T: 'static>(value: T) -> Pending<T> {
    Box::pin(std::future::ready(value))
}
