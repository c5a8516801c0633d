//! One connection to a server, and what happens on it.
//!
//! The redis crate speaks the protocol over a stream of ours, which adds what it lacks: a limit on a reply's size (a
//! hostile or mistaken peer costs 64 KiB, not a gigabyte), a count of what the kernel has taken (a release must be
//! written before rlock exits), and word of a connection that broke while nobody was asking.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;

use super::dial::dial;
use super::reply;
use super::tls::Trust;
use crate::node::address::{Endpoint, Secret, Server};
use crate::node::{Fault, FaultKind, Wake};
use crate::secret;
use crate::text::escape;

/// The most that may be read between two requests, for all that a lock needs.
pub const REPLY_LIMIT: usize = 64 * 1024;

/// So many bytes is each line counted for, beside its own: there is a value in it, which takes some hundred when it is read.
/// Else a reply of nothing but empty values would cost twenty times its length.
const LINE: usize = 32;

/// How to get in: what the address says, completed with what the environment or a file says.
#[derive(Clone)]
pub struct Access {
    /// Where, as whom, which database.
    pub server: Server,
    /// The password, whatever it came from.
    pub password: Option<Secret>,
    /// Needed for `rediss://` only.
    pub trust: Option<Trust>,
}

/// A connection that is set up: authenticated, and in its database.
#[derive(Clone)]
pub struct Connection {
    connection: MultiplexedConnection,
    traffic: Arc<ConnectionState>,
}

/// What is known of a connection without asking the server.
#[derive(Default)]
struct ConnectionState {
    /// Hidden in whatever the server says.
    password: Option<Secret>,
    /// Bytes handed to the connection.
    queued: AtomicU64,
    /// Bytes taken by the stream.
    taken: AtomicU64,
    /// Bytes flushed to the kernel.
    flushed: AtomicU64,
    /// No byte will come or go any more.
    broken: AtomicBool,
    /// Nobody waits for its replies any more.
    given_up: AtomicBool,
    /// The server has said that it is a replica.
    demoted: AtomicBool,
    /// Requests that may set a key and have no reply yet.
    open_sets: AtomicUsize,
    /// Requests that free one and have no reply yet.
    open_releases: AtomicUsize,
    /// No release has been sent behind the last of them.
    unreleased: AtomicBool,
    /// Whether a channel is listened to: a [`Hearing`].
    hearing: AtomicU8,
    /// Told whenever one of those above changes.
    changed: Notify,
}

/// What a request may do to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing that must be undone, or waited for.
    None,
    /// It may set it.
    Sets,
    /// It may delete it.
    Frees,
}

/// Whether a channel is listened to.
#[repr(u8)]
enum Hearing {
    /// Nobody wanted to; what a new connection starts with.
    NotTried,
    Good,
    /// The server does not let us.
    None,
}

impl ConnectionState {
    fn break_off(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// How many requests like that have no reply yet, if they are counted.
    fn open(&self, effect: Effect) -> Option<&AtomicUsize> {
        match effect {
            Effect::None => None,
            Effect::Sets => Some(&self.open_sets),
            Effect::Frees => Some(&self.open_releases),
        }
    }

    async fn wait_for(&self, seen: impl Fn(&Self) -> bool) {
        wait_for(&self.changed, || seen(self)).await;
    }
}

/// Comes true as soon as `seen` says so; looked at again whenever `changed` is told.
pub async fn wait_for(changed: &Notify, seen: impl Fn() -> bool) {
    loop {
        let mut change = std::pin::pin!(changed.notified());
        change.as_mut().enable();
        if seen() {
            return;
        }
        change.await;
    }
}

impl Connection {
    /// Connects and authenticates. The caller limits the time to `time`; `limit` is the most that may be read between two
    /// requests. `told`: speak RESP3, and pass on the words to one who waits.
    pub async fn open(
        access: &Access,
        limit: usize,
        time: Duration,
        told: Option<Sender<Wake>>,
    ) -> Result<Self, Fault> {
        match &access.server.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| cannot_connect(&error))?;
                Self::over(access, stream, limit, told).await
            }
            Endpoint::Tcp { host, port, tls } => {
                let stream = dial(host, *port, time).await.map_err(|error| cannot_connect(&error))?;
                stream.set_nodelay(true).map_err(|error| cannot_connect(&error))?;
                match (&access.trust, tls) {
                    (Some(trust), true) => Self::over(access, trust.handshake(host, stream).await?, limit, told).await,
                    (None, true) => Err(Fault::new(FaultKind::Unfit, "no issuer is trusted for rediss://")),
                    (_, false) => Self::over(access, stream, limit, told).await,
                }
            }
        }
    }

    /// The same over `stream`, wherever that leads.
    pub async fn over<S>(access: &Access, stream: S, limit: usize, told: Option<Sender<Wake>>) -> Result<Self, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let traffic = Arc::new(ConnectionState { password: access.password.clone(), ..ConnectionState::default() });
        let metered = Metered { stream, traffic: Arc::clone(&traffic), limit, allowance: limit };
        let mut info = RedisConnectionInfo::default().set_db(i64::from(access.server.db)).set_skip_set_lib_name();
        if let Some(password) = &access.password {
            info = info.set_password(password.reveal());
        }
        if let Some(user) = &access.server.user {
            // A user that needs no password must still be named to the server, and AUTH takes two words.
            info = info.set_username(user).set_password(access.password.as_ref().map_or("", Secret::reveal));
        }
        // Its own limit would throw late replies away; ours are the callers' deadlines.
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        if let Some(told) = told {
            info = info.set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(move |push: PushInfo| {
                // Where as many are kept unread as there is room for, one more would say nothing new.
                reply::wake(&push).map_or(Ok(()), |wake| told.try_send(wake))
            });
        }
        let opened = MultiplexedConnection::new_with_config(&info, metered, config).await;
        let (connection, driver) = opened.map_err(|error| match error.kind() {
            // The crate keeps the server's own words to itself.
            ErrorKind::AuthenticationFailed => Fault::new(FaultKind::Refused, "the user or the password is wrong"),
            _ => match fault(&error, access.password.as_ref()) {
                // Nothing of ours has been sent yet.
                Fault { kind: FaultKind::Unknown, why } => Fault::new(FaultKind::Unavailable, why),
                other => other,
            },
        })?;
        tokio::spawn({
            let traffic = Arc::clone(&traffic);
            async move {
                driver.await;
                traffic.break_off();
            }
        });
        traffic.queued.store(traffic.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(Self { connection, traffic })
    }

    /// Sends one command. The request is on its way even if the future is dropped, if it was polled once.
    pub async fn send(&self, command: &redis::Cmd, effect: Effect) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        self.traffic.queued.fetch_add(command.get_packed_command().len() as u64, Ordering::Relaxed);
        self.traffic.unreleased.fetch_or(effect == Effect::Sets, Ordering::Relaxed);
        let open = self.traffic.open(effect);
        if let Some(count) = open {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let reply = connection.send_packed_command(command).await;
        if let Some(count) = open {
            count.fetch_sub(1, Ordering::Relaxed);
            self.traffic.changed.notify_waiters();
        }
        let reply = match reply {
            Ok(Value::ServerError(error)) => Err(fault(&RedisError::from(error), self.traffic.password.as_ref())),
            Ok(value) => Ok(value),
            Err(error) => Err(fault(&error, self.traffic.password.as_ref())),
        };
        if is_from_a_replica(&reply) {
            self.traffic.demoted.store(true, Ordering::Relaxed);
        }
        reply
    }

    /// Sends a SUBSCRIBE, and notes whether it went well. It is on its way when this returns, before what is sent next.
    pub async fn subscribe(&self, channel: &str) {
        self.traffic.hearing.store(Hearing::Good as u8, Ordering::Relaxed);
        let mut command = redis::cmd("SUBSCRIBE");
        command.arg(channel);
        let link = self.clone();
        let mut exchange = Box::pin(async move {
            // A connection that broke says nothing of what the server lets us do.
            if link.send(&command, Effect::None).await.is_err_and(|fault| fault.kind != FaultKind::Unknown) {
                let _ = link.deaf();
            }
        });
        if futures_util::poll!(&mut exchange).is_pending() {
            tokio::spawn(exchange);
        }
    }

    /// This link, on which nothing can be listened to.
    #[must_use]
    pub fn deaf(self) -> Self {
        self.traffic.hearing.store(Hearing::None as u8, Ordering::Relaxed);
        self
    }

    /// Whether it was opened for one who waits.
    pub fn is_for_waiting(&self) -> bool {
        self.traffic.hearing.load(Ordering::Relaxed) != Hearing::NotTried as u8
    }

    /// Whether it works, and for one who `waits` was opened for that.
    pub fn serves(&self, waits: bool) -> bool {
        self.works() && (!waits || self.is_for_waiting())
    }

    /// Whether new requests may take it: it is not broken, and the server has not said that it is a replica. A failover closes
    /// no connection, and a new one, with a new name look-up, may lead to the primary.
    pub fn works(&self) -> bool {
        !self.is_broken() && !self.traffic.demoted.load(Ordering::Relaxed)
    }

    /// Whether it listens to a channel. Until the server has answered, it is believed to.
    pub fn listens(&self) -> bool {
        self.traffic.hearing.load(Ordering::Relaxed) == Hearing::Good as u8
    }

    /// Whether the connection is beyond use.
    pub fn is_broken(&self) -> bool {
        self.traffic.broken.load(Ordering::Relaxed)
    }

    /// Whether a request that may set a key has no reply yet: a release must be sent behind it.
    pub fn may_still_set(&self) -> bool {
        !self.is_broken() && self.traffic.open_sets.load(Ordering::Relaxed) > 0
    }

    /// Comes true when no request that may set or free a key waits for its reply, or the connection is broken.
    pub async fn settled(&self) {
        let none = |count: &AtomicUsize| count.load(Ordering::Relaxed) == 0;
        let done =
            |t: &ConnectionState| none(&t.open_sets) && none(&t.open_releases) || t.broken.load(Ordering::Relaxed);
        self.traffic.wait_for(done).await;
    }

    /// A release was sent behind all that was sent.
    pub fn released(&self) {
        self.traffic.unreleased.store(false, Ordering::Relaxed);
    }

    /// Whether it may still set a key, with no release behind that: closed now, it would leave an orphan.
    pub fn owes_a_release(&self) -> bool {
        self.may_still_set() && self.traffic.unreleased.load(Ordering::Relaxed)
    }

    /// Whether a release waits for its reply, with nothing behind it that may set a key.
    pub fn is_being_released(&self) -> bool {
        self.traffic.open_releases.load(Ordering::Relaxed) > 0 && !self.traffic.unreleased.load(Ordering::Relaxed)
    }

    /// Has those who wait for a reply stop waiting, so that the connection is closed. What was written may still run.
    pub fn give_up(self) {
        self.traffic.given_up.store(true, Ordering::Relaxed);
        self.traffic.break_off();
    }

    /// Comes true when the connection is given up.
    pub fn given_up(&self) -> impl Future<Output = ()> + use<> {
        let traffic = Arc::clone(&self.traffic);
        async move { traffic.wait_for(|t| t.given_up.load(Ordering::Relaxed)).await }
    }

    /// Comes true when the connection breaks.
    pub async fn broken(self) {
        let traffic = Arc::clone(&self.traffic);
        // The connection itself must not be kept alive by the one who watches it.
        drop(self);
        traffic.wait_for(|t| t.broken.load(Ordering::Relaxed)).await;
    }

    /// Comes true when all that was sent so far is with the kernel, or the connection is broken.
    pub async fn written(self) {
        let sent = self.traffic.queued.load(Ordering::Relaxed);
        let done = |t: &ConnectionState| t.flushed.load(Ordering::Relaxed) >= sent || t.broken.load(Ordering::Relaxed);
        self.traffic.wait_for(done).await;
    }
}

fn cannot_connect(error: &io::Error) -> Fault {
    Fault::new(FaultKind::Unavailable, format!("cannot connect: {}", escape::text(&error.to_string())))
}

/// What a server's error means, told without the password that it was sent. A request that was refused with one of the
/// passing conditions changed nothing: each script's first write is the one that is refused.
fn fault(error: &RedisError, password: Option<&Secret>) -> Fault {
    let mut said = said(error);
    if said.contains("unauthenticated multibulk length") || said.contains("unauthenticated bulk length") {
        // What Redis says to one without a password whose request is longer than an AUTH.
        "NOAUTH Authentication required.".clone_into(&mut said);
    }
    // The kind is that of what was said: words that mean something may be in the password.
    let text = escape::short(&said);
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed => FaultKind::Refused,
        ErrorKind::InvalidClientConfig => FaultKind::Unfit,
        ErrorKind::Server(_) | ErrorKind::Extension => kind_of_server_error(&text),
        // TLS 1.3 tells a client only after the handshake that it wanted a certificate.
        _ if text.contains("CertificateRequired") => FaultKind::Refused,
        // Broken, closed or unintelligible after the request was written: it may have been executed.
        _ => FaultKind::Unknown,
    };
    Fault::new(kind, password.map_or(text, |password| escape::short(&secret::without(&said, password.reveal()))))
}

/// Whether the answer, or its refusal, says that the server is a replica.
pub fn is_from_a_replica(reply: &Result<Value, Fault>) -> bool {
    match reply {
        Ok(value) => reply::is_replica(value),
        Err(fault) => ["READONLY", "MASTERDOWN"].iter().any(|code| is_code(&fault.why, code)),
    }
}

/// Whether `code` is the error's code. Redis 7 passes a command's error on as its own; Redis 6 wraps it: "ERR Error running
/// script …: -READONLY You …".
fn is_code(text: &str, code: &str) -> bool {
    text.split(' ').next() == Some(code) || text.contains(&format!("-{code} "))
}

fn kind_of_server_error(text: &str) -> FaultKind {
    // Where the code is lost (a wrapped error, redis-rs' answer to SELECT), the words are not.
    const REFUSED: [&str; 7] = [
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "can't run this command",
        "can't access at least one of the keys",
        "Authentication required",
        "has no permissions",
    ];
    const PASSING: [&str; 9] =
        ["LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "TRYAGAIN"];
    let names = |known: &&str| is_code(text, known);
    if REFUSED.iter().any(|known| names(known) || (known.contains(' ') && text.contains(known))) {
        FaultKind::Refused
    } else if PASSING.iter().any(names) || text.contains("max number of clients") {
        FaultKind::Unavailable
    } else {
        FaultKind::Unfit
    }
}

/// The server's words.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) => detail.to_owned(),
        _ => error.to_string(),
    }
}

/// Has the processor say what it can do, which whoever reads the reply will ask. In a virtual machine that takes some
/// 40 µs the first time; now is when the server is at work and we have nothing else to do.
fn know_the_processor() {
    #[cfg(target_arch = "x86_64")]
    let _ = std::is_x86_feature_detected!("avx2");
}

/// A stream that counts.
struct Metered<S> {
    stream: S,
    traffic: Arc<ConnectionState>,
    limit: usize,
    /// Bytes that may still be read before the next request is written.
    allowance: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        let new = &buffer.filled()[before..];
        let count = new.len();
        let lines = new.split(|byte| *byte == b'\n').count() - 1;
        let cost = count + lines * LINE;
        let Some(left) = self.allowance.checked_sub(cost) else {
            self.traffic.break_off();
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a reply of over {} KiB, or of very many values", self.limit / 1024),
            )));
        };
        self.allowance = left;
        if result.is_err() || count == 0 {
            self.traffic.break_off();
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        match &result {
            Ok(count) => {
                self.traffic.taken.fetch_add(*count as u64, Ordering::Relaxed);
                self.allowance = self.limit;
            }
            Err(_) => self.traffic.break_off(),
        }
        Poll::Ready(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if result.is_ok() {
            let taken = self.traffic.taken.load(Ordering::Relaxed);
            if self.traffic.flushed.swap(taken, Ordering::Relaxed) != taken {
                self.traffic.changed.notify_waiters();
                know_the_processor();
            }
        } else {
            self.traffic.break_off();
        }
        Poll::Ready(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_both_redis_generations_are_told_apart() {
        for (text, kind) in [
            ("NOAUTH Authentication required.", FaultKind::Refused),
            ("NOPERM this user has no permissions to run the 'eval' command", FaultKind::Refused),
            ("ERR Error running script (call to f_1): @user_script:9: -NOPERM this user", FaultKind::Refused),
            ("ERR Authentication required.", FaultKind::Refused),
            ("ERR this user has no permissions to run the 'select' command", FaultKind::Refused),
            ("ERR The user executing the script can't run this command or subcommand", FaultKind::Refused),
            ("READONLY You can't write against a read only replica.", FaultKind::Unavailable),
            (
                "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write",
                FaultKind::Unavailable,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", FaultKind::Unavailable),
            ("BUSY Redis is busy running a script.", FaultKind::Unavailable),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", FaultKind::Unfit),
            ("ERR unknown command 'EVAL'", FaultKind::Unfit),
        ] {
            assert_eq!(kind_of_server_error(text), kind, "{text}");
        }
    }
}
