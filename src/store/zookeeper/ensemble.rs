//! The servers of an ensemble, and how a session attaches to one of them.
//!
//! 1. The server that answered last comes first, then the others in the order of the address. The
//!    first of all is a random one.
//! 2. If a server does not attach the session within a third of the limit, the next one is asked
//!    too, and the first answer counts. One that is cut off from its leader does not answer,
//!    although it answers pings. A slow one is not left: in a slow ensemble no other is faster.
//! 3. One that attaches the session and does not answer what follows is not the first to be asked
//!    the next time.
//! 4. What is to be asked follows the connect request in the same write. A server reads it once
//!    the session stands (`ZooKeeperServer.java`, disableRecv).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::jute::{Request, Session, connect as connect_request, error};
use super::wire::Wire;
use super::{refused, unfit_session};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::schedule::Term;
use crate::store::net::dial::{HostDial, Stream, speaks_tls};
use crate::store::net::hosts::Endpoint;
use crate::store::net::quorum::{self, QuorumAccess};
use crate::store::net::tls::Trust;
use crate::store::{Fault, FaultKind};

/// Timeout of a session that only looks, or changes another client's entries.
const VISIT: Duration = Duration::from_secs(10);

/// The remedy for a server that closes a connection before it is attached.
pub(super) const CLOSED: &str = "see whether its ensemble has a quorum, and its maxClientCnxns";

/// The servers. Connections are made by locks, each with a session of its own.
pub(super) struct Ensemble {
    access: QuorumAccess,
    dial: HostDial,
    /// Limit of each exchange.
    limit: Duration,
    next: AtomicUsize,
    /// Whether a server has begun or attached a session, or said that one is over.
    has_spoken: AtomicBool,
}

/// A session that is to be attached, and what is asked behind it.
pub(super) struct Attachment<'a> {
    /// `None`: a new one.
    pub(super) session: Option<&'a Session>,
    pub(super) timeout: Duration,
    pub(super) requests: &'a [Request],
}

/// A session that is attached, and the xids of what was asked.
pub(super) struct Attached {
    /// `None`: it is over.
    pub(super) session: Option<Session>,
    pub(super) xids: Vec<i32>,
    /// Whether another server may have carried out what was asked, too.
    pub(super) is_repeated: bool,
}

/// The connections of one attachment, in the order in which their servers were asked. New sessions
/// that are not taken are ended.
struct Tries<'a> {
    wires: Vec<Option<Wire>>,
    is_new: bool,
    closing: &'a mut Vec<Closing>,
}

impl Drop for Tries<'_> {
    fn drop(&mut self) {
        if self.is_new {
            let left = self.wires.drain(..).flatten();
            self.closing.extend(left.map(Closing::of));
        }
    }
}

/// A connection with a session that is not ours any more: its end is written behind all else.
pub(super) struct Closing {
    wire: Wire,
    xid: i32,
}

impl Closing {
    /// Ends the session of `wire`. What the kernel takes at once is written.
    pub(super) fn of(mut wire: Wire) -> Self {
        let xid = wire.queue_end();
        let _ = wire.flush().now_or_never();
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
pub fn dial(trust: Option<&Trust>) -> HostDial {
    // A server without TLS answers for a session that it does not know.
    let unknown = Session {
        id: 1,
        password: vec![0; 16],
        timeout: VISIT,
    };
    let greeting = connect_request(Some(&unknown), VISIT);
    quorum::dial(
        trust.cloned(),
        "write zookeeper:// if that is meant",
        &greeting,
    )
}

impl Ensemble {
    pub(super) fn new(access: QuorumAccess, dial: HostDial, limit: Duration) -> Self {
        let next = AtomicUsize::new(fastrand::usize(..access.hosts.len().max(1)));
        Self {
            access,
            dial,
            limit,
            next,
            has_spoken: AtomicBool::new(false),
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

    /// Begins with the next server from now on, since an exchange was not over in time.
    pub(super) fn turn(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// Attaches a session, over the connection that is then in `open`, to the server that answers
    /// first. The ends of new sessions that may have begun elsewhere go to `closing`, also if this
    /// is dropped.
    pub(super) async fn attach(
        &self,
        attachment: &Attachment<'_>,
        open: &mut Option<Wire>,
        closing: &mut Vec<Closing>,
    ) -> Result<Attached, Fault> {
        let count = self.access.hosts.len();
        let first = self.next.load(Ordering::Relaxed) % count;
        let mut made = Tries {
            wires: (0..count).map(|_| None).collect(),
            is_new: attachment.session.is_none(),
            closing,
        };
        let mut wires = made.wires.iter_mut().enumerate();
        let mut tries = FuturesUnordered::new();
        let mut fault = Fault::timeout(self.limit);
        let answered = loop {
            match wires.next() {
                Some((number, wire)) => {
                    let index = (first + number) % count;
                    tries.push(async move {
                        let made = self.attach_to(index, attachment, wire).await;
                        (number, made)
                    });
                }
                None if tries.is_empty() => break None,
                None => {}
            }
            let patience = match wires.len() {
                0 => Instant::NEVER,
                _ => clock::now() + self.limit / 3,
            };
            match clock::until(patience, tries.next()).await {
                None | Some(None) => {}
                Some(Some((number, Ok(attached)))) => break Some((number, attached)),
                Some(Some((_, Err(other)))) => {
                    fault = other;
                    if fault.kind == FaultKind::Refused {
                        break None;
                    }
                }
            }
        };
        drop(tries);
        let Some((number, attached)) = answered else {
            // It may have been carried out where it was asked.
            let was_asked = made.wires.iter().any(Option::is_some);
            if fault.kind == FaultKind::Unavailable && was_asked {
                fault.kind = FaultKind::Unknown;
            }
            return Err(fault);
        };
        self.next.store((first + number) % count, Ordering::Relaxed);
        *open = made.wires[number].take();
        Ok(Attached {
            is_repeated: made.wires.iter().any(Option::is_some),
            ..attached
        })
    }

    /// Attaches a session to server number `index`.
    async fn attach_to(
        &self,
        index: usize,
        attachment: &Attachment<'_>,
        open: &mut Option<Wire>,
    ) -> Result<Attached, Fault> {
        let Attachment {
            session,
            timeout,
            requests,
        } = *attachment;
        let dialed = (self.dial)(self.access.hosts[index].clone(), self.limit).await;
        // One that is closed at once may be so before it is known to stand.
        let stream = dialed.map_err(|fault| match fault.remedy {
            None if fault.kind == FaultKind::Unavailable => fault.with_remedy(CLOSED),
            _ => fault,
        })?;
        let wire = open.insert(Wire::new(stream, session, timeout));
        wire.queue_login(self.login().as_deref());
        let xids = requests.iter().map(|request| wire.queue(request)).collect();
        let greeted = match wire.greeted().await {
            Ok(greeted) => greeted,
            Err(fault) => return Err(self.before_greeting(index, fault).await),
        };
        self.has_spoken.store(true, Ordering::Relaxed);
        Ok(Attached {
            session: greeted.map(|greeted| Session {
                // That of its beginning counts where a leader begins anew.
                timeout: session
                    .map_or(greeted.timeout, |known| known.timeout.min(greeted.timeout)),
                ..greeted
            }),
            xids,
            is_repeated: false,
        })
    }

    /// Returns the fault of a server that does not attach a session.
    async fn before_greeting(&self, index: usize, fault: Fault) -> Fault {
        if matches!(fault.kind, FaultKind::Unfit | FaultKind::Refused) {
            return fault;
        }
        if !self.has_spoken.load(Ordering::Relaxed) && self.access.trust.is_none() {
            let dialing = (self.dial)(self.access.hosts[index].clone(), self.limit);
            if speaks_tls(dialing, self.limit / 3).await {
                return Fault::unfit("it speaks TLS", "write zookeepers in place of zookeeper");
            }
        }
        let why = format!("{} before it began a session", fault.why);
        Fault::new(FaultKind::Unavailable, why).with_remedy(CLOSED)
    }

    /// Returns what a server said of itself, for people.
    pub(super) fn told(&self, words: &str) -> String {
        self.access.told(words)
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
            requests,
        };
        let (mut open, mut closing) = (None, Vec::new());
        let attached = self.attach(&attachment, &mut open, &mut closing).await;
        for mut left in closing {
            // It has asked for nothing that stays, and ends by itself.
            let _ = left.flush().await;
        }
        let attached = attached?;
        match (attached.session, open) {
            (Some(_), Some(wire)) => Ok((Visit(wire), attached.xids)),
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
