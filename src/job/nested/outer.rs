//! The nested rlock's end: the outer rlock, under whose lock our command runs.

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

/// An outer rlock that has welcomed us.
pub struct OuterRun {
    connection: AsyncFd<Socket>,
    token: Token,
    last: Message,
    /// The outer rlock has ended, and that has been told.
    ended: bool,
}

/// Why the command cannot run under the outer lock, yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwelcome {
    /// No rlock that we may reach listens for us: it gives the lock back, or runs elsewhere.
    Refused,
    /// The outer rlock takes no more connections just now.
    Busy,
}

/// What the outer rlock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// When the command must be signalled and killed.
    Terms(Terms),
    /// Kill it now: the outer rlock has ended, or gives up the lock.
    End,
}

impl OuterRun {
    /// Asks the rlock that holds the lock of `token` whether we may run under it. Returns when it has said so.
    pub async fn join(token: Token) -> Result<Self, Unwelcome> {
        let connection = match connected(token) {
            Ok(connection) => connection,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Unwelcome::Busy),
            Err(_) => return Err(Unwelcome::Refused),
        };
        match read(&connection).await {
            Some(last) => Ok(Self { connection, token, last, ended: false }),
            None => Err(Unwelcome::Refused),
        }
    }

    /// The outer lock's token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The outer lock's fence.
    pub fn fence(&self) -> Fence {
        self.last.fence
    }

    /// Length of the outer lock's leases.
    pub fn ttl(&self) -> Duration {
        self.last.ttl
    }

    /// The terms that were heard last.
    pub fn terms(&self) -> Terms {
        self.last.terms
    }

    /// The connection, which the guard keeps open until the command is dead.
    pub fn descriptor(&self) -> RawFd {
        self.connection.as_raw_fd()
    }

    /// The next word of the outer rlock. May be dropped and called again.
    pub async fn next(&mut self) -> Word {
        if self.ended {
            return std::future::pending().await;
        }
        if let Some(message) = read(&self.connection).await {
            self.last = message;
            return Word::Terms(message.terms);
        }
        self.ended = true;
        Word::End
    }
}

fn connected(token: Token) -> io::Result<AsyncFd<Socket>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let ours = Socket(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(error)?);
    let token = token.as_uuid();
    // By this name the guard of an outer rlock that was killed sees that we are left.
    let own = nested_names(token) + &Uuid::new_v4().simple().to_string();
    bind(ours.as_raw_fd(), &address(&own).map_err(error)?).map_err(error)?;
    connect(ours.as_raw_fd(), &address(&name(token)).map_err(error)?).map_err(error)?;
    if !ours.is_trusted() && !nix::unistd::Uid::effective().is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: the socket owns its descriptor, always names the same one, and closes it only when dropped.
    Ok(unsafe { AsyncFd::register_with_interest(ours, Interest::READABLE) }?)
}

/// The next message; `None` at the end.
async fn read(connection: &AsyncFd<Socket>) -> Option<Message> {
    loop {
        match connection.get_ref().read() {
            Read::Message(bytes) => return Message::decode(bytes),
            Read::End => return None,
            Read::Nothing => connection.readable().await.ok()?.clear_ready(),
        }
    }
}
