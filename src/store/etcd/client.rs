//! A client of the cluster: one connection, to the member that answered last.
//!
//! 1. The first member is a random one, and the next are tried in the order of the address.
//! 2. If a member does not answer within a third of the limit, the next one is asked too, and the
//!    first answer counts. The slow one is not left: in a slow cluster no other is faster. All that
//!    rlock asks may be asked twice, because each request names its lease or what it compares.
//! 3. With a user, a connection begins with a login. Its token goes along with each call, and a
//!    token that is over is replaced.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use prost::Message;
use tokio::sync::{Mutex, watch};

use super::link::{Answers, Failed, Link};
use super::rpc::{AuthenticateRequest, Call, WatchCreateRequest, WatchRequest, malformed, read};
use super::status::Status;
use crate::clock;
use crate::secret::Secret;
use crate::store::net::dial::HostDial;
use crate::store::net::hosts::{Endpoint, host_and_port};
use crate::store::net::quorum::{self, QuorumAccess};
use crate::store::net::tls::Trust;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Fault, FaultKind};

/// How a client begins, with no settings (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A client of a cluster. Its clones share one connection.
#[derive(Clone)]
pub(super) struct Client(Arc<Shared>);

struct Shared {
    access: QuorumAccess,
    dial: HostDial,
    /// Limit of a connection, and of each exchange.
    limit: Duration,
    /// Largest reply, in bytes.
    room: usize,
    /// The connection to each member.
    open: Vec<Mutex<Option<Session>>>,
    /// The member that is asked first.
    current: AtomicUsize,
    /// Changes when a connection breaks that has been of use.
    breaks: watch::Sender<()>,
}

/// A connection, with the token of its login.
#[derive(Clone)]
struct Session {
    link: Link,
    token: Option<String>,
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
    /// Reads the answer.
    fn and_then<S>(self, read: impl FnOnce(R) -> Result<S, Fault>) -> Outcome<S> {
        match self {
            Self::Answered { reply, is_repeated } => match read(reply) {
                Ok(reply) => Outcome::Answered { reply, is_repeated },
                Err(fault) => Outcome::Failed(fault),
            },
            Self::Refused(status) => Outcome::Refused(status),
            Self::Failed(fault) => Outcome::Failed(fault),
        }
    }

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
pub fn dial(trust: Option<&Trust>) -> HostDial {
    let trust = trust.map(|trust| trust.speaking("h2"));
    // A member without TLS answers the beginning of HTTP/2 with a frame.
    quorum::dial(trust, "write etcd:// if that is meant", PREFACE)
}

impl Client {
    /// A client that has asked nothing yet.
    pub(super) fn new(access: QuorumAccess, dial: HostDial, limit: Duration, room: usize) -> Self {
        let current = AtomicUsize::new(fastrand::usize(..access.hosts.len().max(1)));
        let open = access.hosts.iter().map(|_| Mutex::default()).collect();
        Self(Arc::new(Shared {
            access,
            dial,
            limit,
            room,
            open,
            current,
            breaks: watch::Sender::default(),
        }))
    }

    /// Returns what changes when a connection breaks that has been of use.
    pub(super) fn breaks(&self) -> watch::Receiver<()> {
        self.0.breaks.subscribe()
    }

    /// Returns the limit of each exchange.
    pub(super) fn limit(&self) -> Duration {
        self.0.limit
    }

    /// Returns a client for each member by itself, with its address.
    pub(super) fn each(&self) -> Vec<(Endpoint, Self)> {
        let alone = |host: &Endpoint| {
            let access = QuorumAccess {
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

    /// Returns what a member said of itself, for people.
    pub(super) fn told(&self, words: &str) -> String {
        self.0.access.told(words)
    }

    /// Asks `request`, and returns the answer.
    pub(super) async fn ask<C: Call>(&self, request: C) -> Result<C::Reply, Fault> {
        self.call(request, None).await.result()
    }

    /// Asks `request`. `unwritten` is dropped when the kernel has it.
    pub(super) async fn call<C: Call>(
        &self,
        request: C,
        unwritten: Option<Unwritten>,
    ) -> Outcome<C::Reply> {
        let exchange = Exchange {
            path: request.path(),
            message: request.encode_to_vec(),
            unwritten: std::sync::Mutex::new(unwritten),
            sent: AtomicUsize::new(0),
        };
        // Boxed, so that the binary has it once, and not in each future that asks.
        let outcome = Box::pin(self.exchanged(exchange)).await;
        outcome.and_then(|answer| match read(&answer)? {
            reply if request.is_answered_by(&reply) => Ok(reply),
            _ => Err(malformed()),
        })
    }

    /// Sends a request to one member after another until one answers.
    async fn exchanged(&self, exchange: Exchange) -> Outcome<Vec<u8>> {
        let limit = self.0.limit;
        // A connection that is opened has a limit of its own.
        let end = clock::now() + limit * 2;
        let (hosts, first) = (self.0.access.hosts.len(), self.current());
        // An idle connection may be found broken, so the first member may be tried once more.
        let mut numbers = 0..hosts + 1;
        let mut tries = FuturesUnordered::new();
        let mut known = None;
        loop {
            match numbers.next() {
                Some(number) => tries.push(self.tried((first + number) % hosts, &exchange)),
                None if tries.is_empty() => break,
                None => {}
            }
            // Silence leads to another member only.
            let is_another_left = numbers.start < hosts;
            let silence = if is_another_left {
                limit / 3
            } else {
                limit * 2
            };
            let patience = end.min(clock::now() + silence);
            let (host, failed) = match clock::until(patience, tries.next()).await {
                None if clock::now() >= end => break,
                None | Some(None) => continue,
                Some(Some((host, Ok(answer)))) => {
                    drop(tries);
                    self.turn_to(host);
                    let is_repeated = exchange.sent.load(Ordering::Relaxed) > 1;
                    return Outcome::Answered {
                        reply: answer,
                        is_repeated,
                    };
                }
                Some(Some((host, Err(failed)))) => (host, failed),
            };
            let fault = match failed {
                Failed::Refused(status) if status.is_token_over() => {
                    self.forget(host).await;
                    status.fault()
                }
                Failed::Refused(status) if status.is_of_member() => {
                    self.skip(host);
                    status.fault()
                }
                Failed::Refused(status) => return Outcome::Refused(status),
                Failed::Broken(fault) => {
                    self.skip(host);
                    // Each member would refuse the login. A login that is over is none of these.
                    let is_asked = exchange.sent.load(Ordering::Relaxed) > 0;
                    if fault.kind == FaultKind::Refused && !is_asked {
                        return Outcome::Failed(fault);
                    }
                    fault
                }
            };
            // What an earlier try may have done is what counts.
            known = known
                .filter(|known: &Fault| known.kind == FaultKind::Unknown)
                .or(Some(fault));
        }
        if tries.is_empty()
            && let Some(fault) = known
        {
            return Outcome::Failed(fault);
        }
        // A connection that leads nowhere is of no more use.
        drop(tries);
        self.turn_to((first + 1) % hosts);
        self.give_up(self.current());
        Outcome::Failed(Fault::timeout(limit))
    }

    /// Asks the member, and returns which one it was, too.
    async fn tried(&self, host: usize, exchange: &Exchange) -> (usize, Result<Vec<u8>, Failed>) {
        let session = match self.session(host).await {
            Ok(session) => session,
            Err(fault) => return (host, Err(Failed::Broken(fault))),
        };
        exchange.sent.fetch_add(1, Ordering::Relaxed);
        let written = || {
            let mut unwritten = exchange
                .unwritten
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *unwritten = None;
        };
        let (token, message) = (session.token.as_deref(), exchange.message.clone());
        let result = session
            .link
            .call(exchange.path, token, message, &written)
            .await;
        let (is_undone, is_broken) = match &result {
            Ok(_) => (false, false),
            Err(Failed::Refused(status)) => (status.is_undone(), status.is_of_member()),
            // Who refuses our certificate, or is no etcd, carries nothing out.
            Err(Failed::Broken(fault)) => (fault.kind != FaultKind::Unknown, true),
        };
        if is_undone {
            exchange.sent.fetch_sub(1, Ordering::Relaxed);
        }
        if is_broken {
            session.link.abandon();
        }
        (host, result)
    }

    /// Watches `key` from the revision `from` on. The connection's end ends the watch.
    pub(super) async fn watch(&self, key: &[u8], from: i64) -> Result<Answers, Fault> {
        let request = WatchRequest {
            create: Some(WatchCreateRequest {
                key: key.to_vec(),
                start_revision: from,
            }),
        };
        let host = self.current();
        let begun = async {
            let session = self.session(host).await?;
            let (token, message) = (session.token.as_deref(), request.encode_to_vec());
            let path = "/etcdserverpb.Watch/Watch";
            let begun = session.link.begin(path, token, message, &|| {}, false);
            begun.await.map_err(|failed| match failed {
                Failed::Refused(status) => status.fault(),
                Failed::Broken(fault) => fault,
            })
        };
        let begun = clock::until(clock::now() + self.0.limit, begun).await;
        let begun = begun.unwrap_or_else(|| Err(Fault::timeout(self.0.limit)));
        if begun.is_err() {
            self.skip(host);
        }
        begun
    }

    /// Returns the member that is asked first.
    fn current(&self) -> usize {
        self.0.current.load(Ordering::Relaxed) % self.0.access.hosts.len()
    }

    /// Returns the connection to a member, which is opened if there is none.
    async fn session(&self, host: usize) -> Result<Session, Fault> {
        let mut open = self.0.open[host].lock().await;
        if let Some(session) = open.as_ref().filter(|known| !known.link.state().is_broken) {
            return Ok(session.clone());
        }
        *open = None;
        let limit = self.0.limit;
        let opened = clock::until(clock::now() + limit, Box::pin(self.opened(host))).await;
        let session = opened.unwrap_or_else(|| Err(Fault::timeout(limit)));
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
                shared.breaks.send_replace(());
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
        let stream = (self.0.dial)(endpoint, self.0.limit).await?;
        let password = access.user.as_ref().map(|(_, password)| password.clone());
        let (is_tls, room) = (access.trust.is_some(), self.0.room);
        let link = Link::over(stream, &authority, is_tls, room, password).await?;
        let mut session = Session { link, token: None };
        if let Some((name, password)) = &access.user {
            session.token = login(&session.link, name, password).await?;
        }
        Ok(session)
    }

    /// Asks `host` first from now on, and gives up the connections to others: what else waits for an
    /// answer there turns to it too.
    fn turn_to(&self, host: usize) {
        self.0.current.store(host, Ordering::Relaxed);
        let others = (0..self.0.open.len()).filter(|other| *other != host);
        others.for_each(|other| self.give_up(other));
    }

    /// Gives the connection to `host` up. One that is being opened has its own use.
    fn give_up(&self, host: usize) {
        let session = self.0.open[host]
            .try_lock()
            .ok()
            .and_then(|mut open| open.take());
        if let Some(session) = session {
            session.link.abandon();
        }
    }

    /// Asks the next member first from now on, unless that is done already.
    fn skip(&self, host: usize) {
        if self.current() == host {
            self.0.current.store(host + 1, Ordering::Relaxed);
        }
    }

    /// Drops a login that is over: the next call begins with another one.
    async fn forget(&self, host: usize) {
        *self.0.open[host].lock().await = None;
    }
}

/// A request that several members may be asked.
struct Exchange {
    path: &'static str,
    message: Vec<u8>,
    /// Dropped when the kernel has it.
    unwritten: std::sync::Mutex<Option<Unwritten>>,
    /// Number of members that may carry it out.
    sent: AtomicUsize,
}

/// Returns the token by which the member knows the user from now on; `None` where no users are
/// known.
async fn login(link: &Link, name: &str, password: &Secret) -> Result<Option<String>, Fault> {
    let request = AuthenticateRequest {
        name: name.to_owned(),
        password: password.reveal().to_owned(),
    };
    let (path, message) = (request.path(), request.encode_to_vec());
    match link.call(path, None, message, &|| {}).await {
        Ok(answer) => {
            let reply: super::rpc::AuthenticateResponse = read(&answer)?;
            Ok(Some(reply.token))
        }
        Err(Failed::Refused(status)) if status.is_without_users() => Ok(None),
        Err(Failed::Refused(status)) => Err(status.fault_of_login()),
        Err(Failed::Broken(fault)) => Err(fault),
    }
}
