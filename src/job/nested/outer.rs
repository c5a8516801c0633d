//! The nested rlock's end of the connection: the outer rlock, under whose locks our command runs.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    socket,
};
use nix::unistd::{Pid, Uid};
use tokio::io::unix::AsyncFd;

use super::{LONGEST, Message, address, is_trusted, peer, register};
use crate::clock;
use crate::job::process_tree;
use crate::lock::fence::Fence;
use crate::lock::schedule::Terms;
use crate::lock::token::Token;

/// The connection to an outer rlock that has welcomed us.
#[derive(Debug)]
pub struct OuterRun {
    connection: AsyncFd<OwnedFd>,
    /// The write end of the pipe at whose hang-up the outer rlock's guard gives the lock back.
    pipe: OwnedFd,
    /// The locks under which our command runs.
    locks: Vec<(Token, Fence)>,
    last: Message,
    /// Its end was returned.
    ended: bool,
}

/// Why the command cannot run under the outer locks yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// No rlock that we can reach and trust listens: it gives the lock back, or runs elsewhere.
    Refused,
    /// The outer rlock's queue of connections is full.
    Busy,
    /// No outer run holds all of the locks.
    Partly,
}

impl OuterRun {
    /// Asks the run that holds the locks of `tokens`, at least one, to let us run under them, and
    /// waits for its welcome. One of `claims` is the token of its first lock.
    pub async fn join(tokens: &[Token], claims: &[Token]) -> Result<Self, JoinError> {
        let mut why = JoinError::Refused;
        let first = tokens.iter().take(1);
        for token in first.chain(claims.iter().filter(|claim| tokens.first() != Some(claim))) {
            match Self::join_run(*token, tokens).await {
                Err(JoinError::Refused) => {}
                Err(JoinError::Partly) => why = JoinError::Partly,
                joined => return joined,
            }
        }
        Err(why)
    }

    async fn join_run(listener: Token, tokens: &[Token]) -> Result<Self, JoinError> {
        let begun = clock::now();
        let connection = match connected(listener) {
            Ok(connection) => connection,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(JoinError::Busy),
            Err(_) => return Err(JoinError::Refused),
        };
        let Some((last, Some(pipe))) = receive(&connection).await else {
            return Err(JoinError::Refused);
        };
        // In another time namespace its terms would mean other moments. A listener without the
        // token is no outer rlock.
        if !(begun..=clock::now()).contains(&last.now) || !last.locks.is_run(listener) {
            return Err(JoinError::Refused);
        }
        let held = tokens
            .iter()
            .filter_map(|token| Some((*token, last.locks.fence(*token)?)));
        let locks: Vec<_> = held.collect();
        match locks.len() {
            0 => Err(JoinError::Refused),
            some if some < tokens.len() => Err(JoinError::Partly),
            _ => Ok(Self {
                connection,
                pipe,
                locks,
                last,
                ended: false,
            }),
        }
    }

    /// Returns the token and the fence of each lock.
    pub fn grants(&self) -> &[(Token, Fence)] {
        &self.locks
    }

    /// Lease length of the outer locks.
    pub fn ttl(&self) -> Duration {
        self.last.ttl
    }

    /// The terms received last.
    pub fn terms(&self) -> Terms {
        self.last.terms
    }

    /// The connection and the pipe, which the guard keeps open until the command is dead.
    pub fn descriptors(&self) -> Vec<RawFd> {
        vec![self.connection.as_raw_fd(), self.pipe.as_raw_fd()]
    }

    /// Returns the next terms: when the command must be signalled and killed. `None`, once: the
    /// outer rlock has ended or gives up a lock, and the command must be killed now. Cancel safe.
    pub async fn next(&mut self) -> Option<Terms> {
        if self.ended {
            return std::future::pending().await;
        }
        let received = receive(&self.connection).await;
        self.ended = received.is_none();
        self.last = received?.0;
        Some(self.last.terms)
    }
}

fn connected(listener: Token) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let ours = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(ours.as_raw_fd(), &address(listener)?)?;
    let peer = peer(&ours)?;
    // Root may run below another user's rlock (`sudo`), and then only below that one.
    let started_us =
        || Uid::effective().is_root() && process_tree::is_below(Pid::from_raw(peer.pid()));
    if !is_trusted(Uid::from_raw(peer.uid())) && !started_us() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    register(ours)
}

/// Returns the next message and the descriptor that came with it; `None` at the end.
async fn receive(connection: &AsyncFd<OwnedFd>) -> Option<(Message, Option<OwnedFd>)> {
    let mut bytes = [0; LONGEST];
    loop {
        let mut ready = connection.readable().await.ok()?;
        let (mut parts, mut space) = ([IoSliceMut::new(&mut bytes)], nix::cmsg_space!(RawFd));
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<UnixAddr>(connection.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Ok(received) => {
                let sent = received.cmsgs().ok()?.find_map(|control| match control {
                    ControlMessageOwned::ScmRights(sent) => sent.first().copied(),
                    _ => None,
                });
                // SAFETY: the kernel made this descriptor for us in this call; nothing else owns
                // it.
                let descriptor = sent.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
                let length = received.bytes;
                return Some((Message::decode(&bytes[..length])?, descriptor));
            }
            Err(nix::Error::EAGAIN) => ready.clear_ready(),
            Err(nix::Error::EINTR) => {}
            Err(_) => return None,
        }
    }
}
