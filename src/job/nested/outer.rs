//! The nested rlock's end of the connection: the outer rlock, under whose lock our command runs.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, bind, connect, socket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use uuid::Uuid;

use super::{Message, Read, Socket, address, error, name, nested_names};
use crate::lock::fence::Fence;
use crate::lock::schedule::Terms;
use crate::lock::token::Token;

/// The connection to an outer rlock that has welcomed us.
pub struct OuterRun {
    connection: AsyncFd<Socket>,
    token: Token,
    last: Message,
    /// [`Update::End`] was returned.
    ended: bool,
}

/// Why the command cannot run under the outer lock yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// No rlock that we can reach listens: it gives the lock back, or runs elsewhere.
    Refused,
    /// The outer rlock's queue of connections is full.
    Busy,
}

/// A change of the outer lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// The command must be signalled and killed at other times than before.
    Terms(Terms),
    /// The outer rlock has ended or gives up the lock: the command must be killed now.
    End,
}

impl OuterRun {
    /// Asks the rlock that holds the lock of `token` to let us run under it, and waits for its welcome.
    pub async fn join(token: Token) -> Result<Self, JoinError> {
        let connection = match connected(token) {
            Ok(connection) => connection,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(JoinError::Busy),
            Err(_) => return Err(JoinError::Refused),
        };
        match read(&connection).await {
            Some(last) => Ok(Self { connection, token, last, ended: false }),
            None => Err(JoinError::Refused),
        }
    }

    pub fn token(&self) -> Token {
        self.token
    }

    pub fn fence(&self) -> Fence {
        self.last.fence
    }

    /// Lease length of the outer lock.
    pub fn ttl(&self) -> Duration {
        self.last.ttl
    }

    /// The terms received last.
    pub fn terms(&self) -> Terms {
        self.last.terms
    }

    /// The connection, which the guard keeps open until the command is dead.
    pub fn descriptor(&self) -> RawFd {
        self.connection.as_raw_fd()
    }

    /// Returns the next update. Cancel safe.
    pub async fn next(&mut self) -> Update {
        if self.ended {
            return std::future::pending().await;
        }
        if let Some(message) = read(&self.connection).await {
            self.last = message;
            return Update::Terms(message.terms);
        }
        self.ended = true;
        Update::End
    }
}

fn connected(token: Token) -> io::Result<AsyncFd<Socket>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let ours = Socket(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(error)?);
    let token = token.as_uuid();
    // If the outer rlock is killed, its guard finds us by this name.
    let own = nested_names(token) + &Uuid::new_v4().simple().to_string();
    bind(ours.as_raw_fd(), &address(&own).map_err(error)?).map_err(error)?;
    connect(ours.as_raw_fd(), &address(&name(token)).map_err(error)?).map_err(error)?;
    if !ours.is_trusted() && !nix::unistd::Uid::effective().is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: the socket owns its descriptor, always names the same one, and closes it only when dropped.
    Ok(unsafe { AsyncFd::register_with_interest(ours, Interest::READABLE) }?)
}

/// Returns the next message; `None` at the end.
async fn read(connection: &AsyncFd<Socket>) -> Option<Message> {
    loop {
        match connection.get_ref().read() {
            Read::Message(bytes) => return Message::decode(bytes),
            Read::End => return None,
            Read::Nothing => connection.readable().await.ok()?.clear_ready(),
        }
    }
}
