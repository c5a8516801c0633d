//! One connection to a server: setting it up, sending requests, and what is known of them
//! meanwhile.
//!
//! The redis crate speaks the protocol over a stream of ours ([`Metered`]). Nothing here decides
//! which connection a request takes; that is `pool`.

use std::sync::Arc;

use futures_util::future;
use redis::aio::MultiplexedConnection;
use redis::{
    Arg, AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError,
    Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::connect::Access;
use super::error::{
    fault, fault_before_requests, is_from_a_replica, is_subscribed_only, shuts_out,
};
use super::metered::Metered;
use super::state::{ConnectionState, Effect, LockId, Push, Subscription};
use super::stranger;
use crate::clock;
use crate::secret::Secret;
use crate::store::{Fault, FaultKind};

/// The most that may be read between two requests, for all that a lock needs.
pub const REPLY_LIMIT: usize = 64 * 1024;

/// Takes what a server says of its own accord.
pub type Hearing = Arc<dyn Fn(&PushInfo) + Send + Sync>;

/// A connection that is set up: authenticated, and in its database.
#[derive(Clone)]
pub struct Connection {
    multiplexed: MultiplexedConnection,
    state: Arc<watch::Sender<ConnectionState>>,
    /// Hidden in whatever the server says.
    password: Option<Secret>,
}

impl Connection {
    /// Sets up a connection over `stream`. `limit` is the most that may be read between two
    /// requests. With `hearing` it speaks RESP3 and passes on what the server says of its own
    /// accord.
    pub async fn over<S>(
        access: &Access,
        stream: S,
        limit: usize,
        hearing: Option<Hearing>,
    ) -> Result<Self, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::set_up(access, stream, limit, hearing, &Arc::default()).await
    }

    /// The same. What happens on the stream is noted in `state`.
    pub(super) async fn set_up<S>(
        access: &Access,
        stream: S,
        limit: usize,
        hearing: Option<Hearing>,
        state: &Arc<watch::Sender<ConnectionState>>,
    ) -> Result<Self, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let hears = hearing.is_some();
        state.send_modify(|state| state.push = if hears { Push::Works } else { Push::Untried });
        let metered = Metered::new(stream, Arc::clone(state), limit);
        let mut info = RedisConnectionInfo::default()
            .set_db(i64::from(access.db))
            .set_skip_set_lib_name();
        if let Some(password) = &access.password {
            info = info.set_password(password.reveal());
        }
        if let Some(user) = &access.user {
            // A user that needs no password must still be named to the server, and AUTH takes two
            // words.
            info = info
                .set_username(user)
                .set_password(access.password.as_ref().map_or("", Secret::reveal));
        }
        // The crate's own limit would throw late replies away; the callers have deadlines.
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        if let Some(hearing) = hearing {
            info = info.set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(
                move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                    hearing(&push);
                    Ok(())
                },
            );
        }
        let opened = MultiplexedConnection::new_with_config(&info, metered, config).await;
        let (multiplexed, driver) = opened.map_err(|error| {
            let fault = fault_before_requests(&error, access);
            let state = state.borrow();
            // A proxy may close the connection at a HELLO. The caller then does without.
            let kind = if hears && state.broken {
                FaultKind::Unfit
            } else {
                fault.kind
            };
            let known = stranger::of_first_byte(state.first).or_else(|| state.shut_out.clone());
            known.unwrap_or(Fault { kind, ..fault })
        })?;
        tokio::spawn({
            let state = Arc::clone(state);
            async move {
                driver.await;
                state.send_modify(|state| state.broken = true);
            }
        });
        state.send_modify(|state| state.queued = state.written);
        Ok(Self {
            multiplexed,
            state: Arc::clone(state),
            password: access.password.clone(),
        })
    }

    /// Sends one command. The request is on its way even if the future is dropped, if it was polled
    /// once.
    pub async fn send(&self, command: &Cmd, effect: Effect) -> Result<Value, Fault> {
        self.tracked(effect, self.exchange(command)).await
    }

    /// Sends two commands behind each other. Returns both replies. Each has its own: a server that
    /// shuts us out answers the first one only, with the reason.
    pub(super) async fn send_both(
        &self,
        first: &Cmd,
        second: &Cmd,
        effect: Effect,
    ) -> [Result<Value, Fault>; 2] {
        let mut behind = Err(Fault::new(FaultKind::Unknown, "no reply"));
        let reply = self.tracked(effect, async {
            let (reply, after) = future::join(self.exchange(first), self.exchange(second)).await;
            behind = after;
            reply
        });
        let reply = reply.await;
        [reply, behind]
    }

    /// Sends a command to the member of a cluster to which its slot is being moved. That serves
    /// only what comes directly behind ASKING.
    pub(super) async fn send_asking(&self, command: &Cmd, effect: Effect) -> Result<Value, Fault> {
        self.tracked(effect, self.exchange_behind_asking(command))
            .await
    }

    async fn tracked(
        &self,
        effect: Effect,
        exchange: impl Future<Output = Result<Value, Fault>>,
    ) -> Result<Value, Fault> {
        let mut number = 0;
        self.state.send_modify(|state| number = state.begin(effect));
        let reply = exchange.await;
        let (demoted, subscribed_only) = (is_from_a_replica(&reply), is_subscribed_only(&reply));
        self.state.send_modify(|state| {
            state.end(number, demoted);
            state.subscribed_only |= subscribed_only;
        });
        reply
    }

    async fn exchange(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut multiplexed = self.multiplexed.clone();
        let bytes = packed_len(command);
        self.state.send_modify(|state| state.queued += bytes);
        self.read(multiplexed.send_packed_command(command).await)
    }

    async fn exchange_behind_asking(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut multiplexed = self.multiplexed.clone();
        let asking = redis::cmd("ASKING");
        let bytes = packed_len(&asking) + packed_len(command);
        let mut both = redis::Pipeline::with_capacity(2);
        both.add_command(asking).add_command(command.clone());
        self.state.send_modify(|state| state.queued += bytes);
        let replies = multiplexed.send_packed_commands(&both, 0, 2).await;
        self.read(replies.map(|replies| replies.into_iter().nth(1).unwrap_or(Value::Nil)))
    }

    fn read(&self, reply: Result<Value, RedisError>) -> Result<Value, Fault> {
        match reply {
            Ok(Value::ServerError(error)) => {
                let error = RedisError::from(error);
                let fault = fault(&error, self.password.as_ref());
                if shuts_out(&error) {
                    self.state
                        .send_modify(|state| state.shut_out = Some(fault.clone()));
                }
                Err(self.state.borrow().shut_out.clone().unwrap_or(fault))
            }
            Ok(value) => Ok(value),
            Err(error) => {
                let fault = fault(&error, self.password.as_ref());
                let state = self.state.borrow();
                let shut_out = state
                    .shut_out
                    .clone()
                    .filter(|_| fault.kind == FaultKind::Unknown);
                Err(stranger::of_first_byte(state.first)
                    .or(shut_out)
                    .unwrap_or(fault))
            }
        }
    }

    /// Sends a SUBSCRIBE, unless it was sent before, and notes whether it succeeds. It is on its
    /// way when this returns, before what is sent next.
    pub async fn subscribe(&self, channel: &str) {
        let is_new = self.state.send_if_modified(|state| {
            let is_new =
                state.push == Push::Works && state.channels.iter().all(|(name, _)| name != channel);
            if is_new {
                state
                    .channels
                    .push((channel.to_owned(), Subscription::Active));
            }
            is_new
        });
        if !is_new {
            return;
        }
        let mut command = redis::cmd("SUBSCRIBE");
        command.arg(channel);
        let (connection, channel) = (self.clone(), channel.to_owned());
        let mut exchange = Box::pin(async move {
            // A connection that broke proves nothing about the user's rights.
            if connection
                .send(&command, Effect::None)
                .await
                .is_err_and(|fault| fault.kind != FaultKind::Unknown)
            {
                connection.deny(&channel);
            }
        });
        if futures_util::poll!(&mut exchange).is_pending() {
            tokio::spawn(exchange);
        }
    }

    fn deny(&self, channel: &str) {
        self.state.send_modify(|state| {
            for (_, subscription) in state
                .channels
                .iter_mut()
                .filter(|(name, _)| name == channel)
            {
                *subscription = Subscription::Denied;
            }
        });
    }

    /// Records that the server does not speak RESP3 with this user, though a waiter takes this
    /// connection.
    pub(super) fn deny_push(&self) {
        self.state.send_modify(|state| state.push = Push::Denied);
    }

    /// Whether `channel` is listened to.
    pub fn subscription(&self, channel: &str) -> Subscription {
        let state = self.state.borrow();
        match state.push {
            Push::Denied => Subscription::Denied,
            Push::Untried | Push::Works => {
                let known = state.channels.iter().find(|(name, _)| name == channel);
                known.map_or(Subscription::None, |(_, subscription)| *subscription)
            }
        }
    }

    /// Returns what is known of the connection now.
    pub(in crate::store) fn state(&self) -> watch::Ref<'_, ConnectionState> {
        self.state.borrow()
    }

    /// Whether a request that may set the key of `lock` has no reply yet: a release must be sent
    /// behind it.
    pub fn may_set(&self, lock: LockId) -> bool {
        self.state().may_set(lock)
    }

    /// Waits until no SET and no release of `lock` is unanswered, or the connection is broken.
    pub(super) async fn settled(&self, lock: LockId) {
        self.wait_for(|state| state.is_settled(lock)).await;
    }

    /// Closes the connection: the replies are waited for no longer. What was written may still run.
    pub(super) fn abandon(self) {
        self.state
            .send_modify(|state| (state.abandoned, state.broken) = (true, true));
    }

    /// Waits until the connection is abandoned.
    pub(super) fn abandoned(&self) -> impl Future<Output = ()> + use<> {
        wait_for(self.state.subscribe(), |state| state.abandoned)
    }

    /// Records that it gives way to one that can listen: its end is no news.
    pub(super) fn retire(&self) {
        self.state.send_modify(|state| state.retired = true);
    }

    /// Returns what tells the end of the connection. It does not keep it open.
    pub(super) fn end(&self) -> ConnectionEnd {
        ConnectionEnd(self.state.subscribe())
    }

    /// Whether this is the end of this connection.
    pub(super) fn is_of(&self, end: &ConnectionEnd) -> bool {
        end.0.same_channel(&self.state.subscribe())
    }

    /// Waits until all that was sent so far is with the kernel, or the connection is broken:
    /// `false`.
    pub(super) async fn flushed(&self) -> bool {
        let due = self.state.borrow().queued;
        self.wait_for(|state| state.flushed >= due || state.broken)
            .await;
        !self.state.borrow().broken
    }

    /// Waits until the server will read all that was sent though we exit, or takes too long for a
    /// reply.
    pub(super) async fn caught_up(&self) {
        let patience = self.state.borrow().patience();
        if let Some(patience) = patience {
            clock::until(patience, self.wait_for(ConnectionState::will_be_read)).await;
        }
    }

    async fn wait_for(&self, is_met: impl FnMut(&ConnectionState) -> bool) {
        wait_for(self.state.subscribe(), is_met).await;
    }
}

/// The end of a connection.
#[derive(Clone)]
pub(super) struct ConnectionEnd(watch::Receiver<ConnectionState>);

impl ConnectionEnd {
    /// Waits until the connection breaks, or is retired: `false`.
    pub(super) async fn broke(mut self) -> bool {
        let _ = self.0.wait_for(|state| state.broken || state.retired).await;
        !self.0.borrow().retired
    }
}

/// Waits until the condition is met, or the connection is gone.
async fn wait_for(
    mut state: watch::Receiver<ConnectionState>,
    is_met: impl FnMut(&ConnectionState) -> bool,
) {
    let _ = state.wait_for(is_met).await;
}

/// Returns the number of bytes that `command` is on the wire (RESP, "Sending commands to a Redis
/// server").
fn packed_len(command: &Cmd) -> u64 {
    let line = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 4;
    let bulk = |arg: Arg<&[u8]>| {
        if let Arg::Simple(bytes) = arg {
            line(bytes.len()) + bytes.len() + 2
        } else {
            0
        }
    };
    let (count, bytes) = command
        .args_iter()
        .fold((0, 0), |(count, bytes), arg| (count + 1, bytes + bulk(arg)));
    (line(count) + bytes) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_request_is_that_of_its_bytes() {
        for length in [0, 1, 9, 10, 99, 100, 5334] {
            for further in [0, 7, 8, 9, 21] {
                let mut command = redis::cmd("EVAL");
                command.arg("x".repeat(length)).arg(vec![length; further]);
                assert_eq!(
                    packed_len(&command),
                    command.get_packed_command().len() as u64,
                    "{length}, {further}"
                );
            }
        }
    }
}
