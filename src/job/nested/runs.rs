//! The outer rlock's end of the connections: the runs that are nested in our command.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, Shutdown, SockFlag, SockType, accept4, bind, listen, send, shutdown, socket,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Message, Read, Socket, address, error, name};
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::schedule::Terms;
use crate::lock::token::Token;

/// Nested runs at a time, so that descriptors are left for the nodes.
const MAX_RUNS: usize = 256;

/// Connections accepted in one go. Closing the listener closes the rest, unwelcomed.
const MAX_ACCEPTS: usize = 64;

/// Time that nested runs get to end, once they must kill their commands, before rlock reports them.
const PATIENCE: Duration = Duration::from_secs(1);

/// The nested runs that rely on our leases. A run that is nested under several of the locks counts once for each.
pub struct NestedRuns {
    listeners: Vec<Listener>,
    runs: Vec<Run>,
    ttl: Duration,
    /// There is no room for another run: connections wait in the listeners until the next [`NestedRuns::admit`].
    full: bool,
    /// When to report that a run is still there.
    overdue_at: Instant,
}

/// The socket to which runs that are nested under one of our locks connect.
struct Listener {
    socket: AsyncFd<Socket>,
    /// The lock's fence.
    fence: Fence,
}

/// A run that is nested under one of our locks.
struct Run {
    connection: AsyncFd<Socket>,
    /// The lock's fence.
    fence: Fence,
    /// The terms sent last; `None` once it was sent the end.
    sent: Option<Terms>,
}

impl NestedRuns {
    /// Listens for runs nested in the command that is about to start under the locks of these tokens and fences.
    pub fn listen(locks: impl IntoIterator<Item = (Token, Fence)>, ttl: Duration) -> io::Result<Self> {
        let listeners =
            locks.into_iter().map(|(token, fence)| Listener::open(token, fence)).collect::<io::Result<_>>()?;
        Ok(Self { listeners, runs: Vec::new(), ttl, full: false, overdue_at: Instant::NEVER })
    }

    /// Waits until a run may have connected or ended. Cancel safe.
    pub async fn changed(&self) {
        std::future::poll_fn(|cx| {
            let readable = self.listeners.iter().filter(|listener| !self.full && is_readable(&listener.socket, cx));
            let listens = readable.count() > 0;
            let ended = self.runs.iter().filter(|run| is_readable(&run.connection, cx)).count();
            if listens || ended > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Forgets the runs that have ended and welcomes new ones with `welcome`; `None` closes their connections. Returns
    /// whether any run is left.
    ///
    /// A welcomed run starts its command, so the policy must hear of it before the lock is given back.
    pub fn admit(&mut self, welcome: Option<Terms>) -> bool {
        // A run sends nothing: if there is something to read, it has ended or is no rlock.
        self.runs.retain(|run| matches!(run.connection.get_ref().read(), Read::Nothing));
        self.accept(welcome);
        !self.runs.is_empty()
    }

    /// Sends `terms` to all runs; `None` makes them kill their commands at once. Admits none.
    pub fn send(&mut self, terms: Option<Terms>) {
        let ttl = self.ttl;
        for run in &mut self.runs {
            let fence = run.fence;
            match terms {
                // A stopped run reads nothing, and its guard obeys the terms that it read last. If the send fails, the next
                // change is sent again.
                Some(terms) if run.sent.is_some_and(|sent| sent != terms) => {
                    let result = send_message(run.connection.get_ref(), &Message { fence, ttl, terms });
                    run.sent = result.map_or(run.sent, |_| Some(terms));
                }
                None if run.sent.is_some() => {
                    let _ = shutdown(run.connection.as_raw_fd(), Shutdown::Write);
                    run.sent = None;
                    self.overdue_at = self.overdue_at.min(clock::now() + PATIENCE);
                }
                _ => {}
            }
        }
    }

    fn accept(&mut self, welcome: Option<Terms>) {
        self.full = false;
        (0..self.listeners.len()).for_each(|listener| self.accept_at(listener, welcome));
    }

    fn accept_at(&mut self, listener: usize, welcome: Option<Terms>) {
        let Listener { socket, fence } = &self.listeners[listener];
        let fence = *fence;
        for _ in 0..MAX_ACCEPTS {
            if self.runs.len() >= MAX_RUNS {
                self.full = true;
                return;
            }
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            // SAFETY: the kernel made this descriptor for us in this call; nothing else owns it.
            let accepted = accept4(socket.as_raw_fd(), flags).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            let connection = match accepted {
                Ok(connection) => Socket(connection),
                Err(nix::Error::EAGAIN) => return,
                Err(nix::Error::EINTR | nix::Error::ECONNABORTED) => continue,
                Err(_) => {
                    self.full = true;
                    return;
                }
            };
            let Some(terms) = welcome.filter(|_| connection.is_trusted()) else { continue };
            let Ok(connection) = register(connection.0) else { continue };
            let welcome = Message { fence, ttl: self.ttl, terms };
            if send_message(connection.get_ref(), &welcome).is_ok() {
                self.runs.push(Run { connection, fence, sent: Some(terms) });
            }
        }
    }

    /// The instant at which to call [`NestedRuns::is_overdue`].
    pub fn overdue_at(&self) -> Instant {
        self.overdue_at
    }

    /// Whether a run is still there long after it was sent the end. True once.
    pub fn is_overdue(&mut self) -> bool {
        if clock::now() < self.overdue_at {
            return false;
        }
        self.overdue_at = Instant::NEVER;
        !self.runs.is_empty()
    }
}

impl Listener {
    fn open(token: Token, fence: Fence) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(error)?;
        bind(listener.as_raw_fd(), &address(&name(token.as_uuid())).map_err(error)?).map_err(error)?;
        listen(&listener, Backlog::MAXCONN).map_err(error)?;
        Ok(Self { socket: register(listener)?, fence })
    }
}

fn register(socket: OwnedFd) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: the socket owns its descriptor, always names the same one, and closes it only when dropped.
    Ok(unsafe { AsyncFd::register_with_interest(Socket(socket), Interest::READABLE) }?)
}

fn send_message(socket: &Socket, message: &Message) -> nix::Result<usize> {
    send(socket.as_raw_fd(), &message.encode(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
}

/// Whether there is a message, an end or a connection. If not, the next one wakes `cx`.
fn is_readable(socket: &AsyncFd<Socket>, cx: &mut Context<'_>) -> bool {
    loop {
        match socket.poll_read_ready(cx) {
            Poll::Ready(Ok(mut ready)) if !has_something(socket.get_ref()) => ready.clear_ready(),
            Poll::Ready(_) => return true,
            Poll::Pending => return false,
        }
    }
}

fn has_something(socket: &Socket) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(socket.0.as_fd(), PollFlags::POLLIN)];
    // A failed poll counts as readable: the read that follows reports the error.
    poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::super::outer::OuterRun;
    use super::*;
    use crate::lock::instant::Instant;

    fn terms(number: u64) -> Terms {
        let at = Instant::from_nanos(number);
        Terms { signal_at: at, kill_at: at, ends: at }
    }

    /// An admitted run starts its command. If `send` admitted one too, the caller would not hear of it.
    #[test]
    fn a_run_is_welcomed_by_admit_alone_and_is_sent_later_terms() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (token, fence) = (Token::fresh(), Fence::FIRST);
            let mut runs = NestedRuns::listen([(token, fence)], Duration::from_secs(30)).unwrap();
            let mut joining = Box::pin(OuterRun::join(token));
            assert!(futures_util::poll!(&mut joining).is_pending(), "it is connected");
            runs.send(Some(terms(1)));
            tokio::task::yield_now().await;
            assert!(futures_util::poll!(&mut joining).is_pending(), "it is not welcomed");
            assert!(runs.admit(Some(terms(2))));
            let Ok(mut run) = joining.await else { panic!("it was refused") };
            assert_eq!(run.terms(), terms(2));
            runs.send(Some(terms(3)));
            run.next().await;
            assert_eq!(run.terms(), terms(3));
            drop(run);
            assert!(!runs.admit(Some(terms(3))));
        });
    }

    #[test]
    fn each_lock_has_a_socket_of_its_own_and_its_own_fence() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let locks = [7, 8].map(|fence| (Token::fresh(), Fence::new(fence).unwrap()));
            let mut runs = NestedRuns::listen(locks, Duration::from_secs(30)).unwrap();
            let mut joined = vec![];
            for (token, fence) in locks {
                let mut joining = Box::pin(OuterRun::join(token));
                assert!(futures_util::poll!(&mut joining).is_pending());
                assert!(runs.admit(Some(terms(2))));
                let Ok(run) = joining.await else { panic!("it was refused") };
                assert_eq!((run.token(), run.fence()), (token, fence));
                joined.push(run);
            }
            joined.pop();
            assert!(runs.admit(None), "one connection is left");
            joined.pop();
            assert!(!runs.admit(None));
        });
    }

    #[test]
    fn a_run_that_comes_when_none_is_welcome_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let token = Token::fresh();
            let mut runs = NestedRuns::listen([(token, Fence::FIRST)], Duration::from_secs(30)).unwrap();
            let mut joining = Box::pin(OuterRun::join(token));
            assert!(futures_util::poll!(&mut joining).is_pending());
            assert!(!runs.admit(None));
            assert!(joining.await.is_err());
        });
    }
}
