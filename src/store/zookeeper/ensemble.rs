//! The servers of an ensemble, and how a session attaches to one of them.
//!
//! 1. The server that answered last comes first, then the others in the order of the address. The
//!    first of all is a random one.
//! 2. A server has a third of the limit to attach the session. One that is cut off from its leader
//!    does not, although it answers pings.
//! 3. What is to be asked follows the connect request in the same write. A server reads it once
//!    the session stands (`ZooKeeperServer.java`, disableRecv).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::jute::{Request, Session, error};
use super::wire::Wire;
use super::{refused, unfit_session};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::schedule::Term;
use crate::store::net::dial::{Stream, boxed, connect};
use crate::store::net::hosts::Endpoint;
use crate::store::net::quorum::{QuorumAccess, QuorumDial};
use crate::store::net::tls::Trust;
use crate::store::{Fault, FaultKind};

/// Timeout of a session that only looks, or changes another client's entries.
const VISIT: Duration = Duration::from_secs(10);

/// The remedy for a server that closes a connection before it is attached.
pub(super) const CLOSED: &str = "see whether its ensemble has a quorum, and its maxClientCnxns";

/// The servers. Connections are made by locks, each with a session of its own.
pub(super) struct Ensemble {
    access: QuorumAccess,
    dial: QuorumDial,
    /// Limit of each exchange.
    limit: Duration,
    next: AtomicUsize,
}

/// A session that is to be attached, and what is asked behind it.
pub(super) struct Attachment<'a> {
    /// `None`: a new one.
    pub(super) session: Option<&'a Session>,
    pub(super) timeout: Duration,
    /// The last transaction that is known. A server that is behind it refuses.
    pub(super) zxid: i64,
    pub(super) requests: &'a [Request],
}

/// A session that is attached, and the xids of what was asked.
pub(super) struct Attached {
    pub(super) session: Session,
    pub(super) xids: Vec<i32>,
}

/// A connection with a session that is not ours any more: its end is written behind all else.
pub(super) struct Closing {
    wire: Wire,
    xid: i32,
}

impl Closing {
    /// Ends the session of `wire`.
    pub(super) fn of(mut wire: Wire) -> Self {
        let xid = wire.queue(&Request::Close);
        Self { wire, xid }
    }

    /// Returns once the kernel has it. May be dropped and called again.
    pub(super) async fn flush(&mut self) -> Result<(), Fault> {
        self.wire.flush().await
    }

    /// Returns the reply to a multi that is before it. May be dropped and called again.
    pub(super) async fn reply_before(
        &mut self,
        xid: i32,
    ) -> Result<Result<Result<Vec<String>, i32>, Fault>, Fault> {
        Ok(self.wire.reply(xid).await?.multi())
    }

    /// Returns whether the session has ended. May be dropped and called again.
    pub(super) async fn done(&mut self) -> bool {
        // A greeting that has not come yet has another xid.
        self.wire.reply(self.xid).await.is_ok()
    }
}

/// Opens a stream to a server, with TLS if there is something to trust.
pub fn dial(trust: Option<&Trust>) -> QuorumDial {
    let trust = trust.cloned();
    Arc::new(move |endpoint, limit| {
        let trust = trust.clone();
        Box::pin(async move {
            let Endpoint::Tcp { host, port, .. } = &endpoint else {
                return Err(Fault::new(FaultKind::Unfit, "a server has no unix socket"));
            };
            let stream = connect(host, *port, limit).await?;
            match trust {
                Some(trust) => {
                    let plain = "write zookeeper:// if that is meant";
                    boxed(Ok(trust.handshake(host, stream, plain).await?))
                }
                None => boxed(Ok(stream)),
            }
        })
    })
}

impl Ensemble {
    pub(super) fn new(access: QuorumAccess, dial: QuorumDial, limit: Duration) -> Self {
        let next = AtomicUsize::new(fastrand::usize(..access.hosts.len().max(1)));
        Self {
            access,
            dial,
            limit,
            next,
        }
    }

    /// Returns the limit of each exchange.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns each server by itself, with its name.
    pub(super) fn each(&self) -> Vec<(String, Self)> {
        let alone = |host: &Endpoint| {
            let access = QuorumAccess {
                hosts: vec![host.clone()],
                ..self.access.clone()
            };
            (
                host.to_string(),
                Self::new(access, Arc::clone(&self.dial), self.limit),
            )
        };
        self.access.hosts.iter().map(alone).collect()
    }

    /// Opens a stream to the first server.
    pub(super) async fn dial_first(&self) -> Result<Box<dyn Stream>, Fault> {
        (self.dial)(self.access.hosts[0].clone(), self.limit).await
    }

    /// Attaches a session to the first server that does so, over the connection that is then in
    /// `open`. `None`: the session is over. The ends of new sessions that may have begun elsewhere
    /// go to `closing`. May be dropped: then `open` has the connection that was being made.
    pub(super) async fn attach(
        &self,
        attachment: &Attachment<'_>,
        open: &mut Option<Wire>,
        closing: &mut Vec<Closing>,
    ) -> Result<Option<Attached>, Fault> {
        let count = self.access.hosts.len();
        let share = if count == 1 {
            self.limit
        } else {
            self.limit / 3
        };
        let first = self.next.load(Ordering::Relaxed);
        let mut last = None;
        let mut was_asked = false;
        for index in (0..count).map(|index| (first + index) % count) {
            let end = clock::now() + share;
            let made = clock::until(end, self.attach_to(index, share, attachment, open)).await;
            match made.unwrap_or_else(|| Err(Fault::timeout(share))) {
                Ok(attached) => {
                    self.next.store(index, Ordering::Relaxed);
                    return Ok(attached);
                }
                Err(fault) => {
                    was_asked |= open.is_some();
                    let is_refused = fault.kind == FaultKind::Refused;
                    last = Some(fault);
                    let wire = open.take();
                    if attachment.session.is_none() {
                        closing.extend(wire.map(Closing::of));
                    }
                    if is_refused {
                        break;
                    }
                }
            }
        }
        let fault = last.unwrap_or_else(|| Fault::timeout(self.limit));
        // It may have been carried out where it was asked.
        let kind = match fault.kind {
            FaultKind::Unavailable if was_asked => FaultKind::Unknown,
            kind => kind,
        };
        Err(Fault { kind, ..fault })
    }

    /// Attaches a session to server number `index`.
    async fn attach_to(
        &self,
        index: usize,
        limit: Duration,
        attachment: &Attachment<'_>,
        open: &mut Option<Wire>,
    ) -> Result<Option<Attached>, Fault> {
        let Attachment {
            session,
            timeout,
            zxid,
            requests,
        } = *attachment;
        let stream = (self.dial)(self.access.hosts[index].clone(), limit).await?;
        let wire = open.insert(Wire::new(stream, session, timeout, zxid));
        wire.queue_login(self.login().as_deref());
        let xids = requests.iter().map(|request| wire.queue(request)).collect();
        let greeted = wire.greeted().await.map_err(before_greeting)?;
        Ok(greeted.map(|greeted| Attached {
            session: Session {
                // That of its beginning counts where a leader begins anew.
                timeout: session
                    .map_or(greeted.timeout, |known| known.timeout.min(greeted.timeout)),
                ..greeted
            },
            xids,
        }))
    }

    /// Returns `user:password`.
    fn login(&self) -> Option<String> {
        let (user, password) = self.access.user.as_ref()?;
        Some(format!("{user}:{}", password.reveal()))
    }

    /// Begins a session for a visit, which must be ended by [`Visit::end`].
    pub(super) async fn visit(&self, requests: &[Request]) -> Result<(Visit, Vec<i32>), Fault> {
        let attachment = Attachment {
            session: None,
            timeout: VISIT,
            zxid: 0,
            requests,
        };
        let (mut open, mut closing) = (None, Vec::new());
        let attached = self.attach(&attachment, &mut open, &mut closing).await;
        for mut left in closing {
            // It has asked for nothing that stays, and ends by itself.
            let _ = left.flush().await;
        }
        match (attached?, open) {
            (Some(attached), Some(wire)) => Ok((Visit(wire), attached.xids)),
            _ => Err(refused(error::SESSION_EXPIRED)),
        }
    }
}

/// A session of its own for a few requests.
pub(super) struct Visit(pub(super) Wire);

impl Visit {
    /// Ends the session, without waiting for the answer.
    pub(super) async fn end(mut self) {
        self.0.queue(&Request::Close);
        let _ = self.0.flush().await;
    }
}

/// Returns the end of a lease that a server was told of at `sent`, and keeps for `timeout`.
pub(super) fn lease_end(term: Term, sent: Instant, timeout: Duration) -> Instant {
    term.end(sent.before(term.ttl().saturating_sub(timeout)))
}

/// Refuses a session that is shorter than the lease.
pub(super) fn must_last(session: &Session, term: Term) -> Result<(), Fault> {
    if session.timeout < term.ttl() {
        return Err(unfit_session(session.timeout, term));
    }
    Ok(())
}

/// The fault of a server that does not attach a session.
fn before_greeting(fault: Fault) -> Fault {
    if fault.kind == FaultKind::Unfit {
        return fault;
    }
    let why = format!("{} before it began a session", fault.why);
    Fault::new(FaultKind::Unavailable, why).with_remedy(CLOSED)
}
