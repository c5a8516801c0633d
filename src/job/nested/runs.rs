//! The outer rlock's end of the connections: the runs that are nested in our command.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::task::Poll;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
    accept4, bind, listen, sendmsg, shutdown, socket,
};
use nix::unistd::Uid;
use tokio::io::unix::AsyncFd;

use super::{Message, address, is_trusted, peer, register};
use crate::clock;
use crate::lock::outer::OuterLocks;
use crate::lock::schedule::Terms;

/// Nested runs at a time, so that descriptors are left for the nodes.
const MAX_RUNS: usize = 256;

/// Connections accepted in one go: any user can make some.
const MAX_ACCEPTS: usize = 64;

/// The nested runs that rely on our leases.
pub struct NestedRuns {
    listener: AsyncFd<OwnedFd>,
    /// The write end of the pipe that each run gets with its welcome.
    pipe: OwnedFd,
    locks: OuterLocks,
    ttl: Duration,
    runs: Vec<NestedRun>,
    /// Whether there may be room for connections that still wait in the listener: it tells of each
    /// only once.
    has_more: bool,
}

/// A run that is nested under our locks.
struct NestedRun {
    connection: AsyncFd<OwnedFd>,
    /// The terms sent last; `None` once it was sent the end.
    sent: Option<Terms>,
}

impl NestedRuns {
    /// Listens for runs nested in the command that is about to start under `locks`, at least one.
    pub fn listen(locks: OuterLocks, ttl: Duration, pipe: OwnedFd) -> io::Result<Self> {
        let first = locks
            .tokens()
            .first()
            .copied()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(listener.as_raw_fd(), &address(first)?)?;
        listen(&listener, Backlog::MAXCONN)?;
        let listener = register(listener)?;
        Ok(Self {
            listener,
            pipe,
            locks,
            ttl,
            runs: Vec::new(),
            has_more: false,
        })
    }

    /// Waits until a run has connected or ended, and tells of each once: [`NestedRuns::admit`] must
    /// follow. Cancel safe.
    pub async fn changed(&self) {
        std::future::poll_fn(|cx| {
            let mut changed = if self.has_more {
                Poll::Ready(())
            } else {
                Poll::Pending
            };
            for socket in self
                .runs
                .iter()
                .map(|run| &run.connection)
                .chain([&self.listener])
            {
                if let Poll::Ready(Ok(mut ready)) = socket.poll_read_ready(cx) {
                    ready.clear_ready();
                    changed = Poll::Ready(());
                }
            }
            changed
        })
        .await;
    }

    /// Forgets the runs that have ended and welcomes new ones with `welcome`; `None` closes their
    /// connections. Returns whether any run is left.
    ///
    /// A welcomed run starts its command, so the policy must hear of it before the lock is given
    /// back.
    pub fn admit(&mut self, welcome: Option<Terms>) -> bool {
        // A run sends nothing: if there is something to read, it has ended or is no rlock.
        self.runs
            .retain(|run| !has_something(run.connection.get_ref()));
        self.accept(welcome);
        self.has_any()
    }

    /// Sends `terms` to all runs; `None` makes them kill their commands at once. Admits none.
    pub fn send(&mut self, terms: Option<Terms>) {
        let message = terms.map(|terms| self.message(terms));
        for run in self
            .runs
            .iter_mut()
            .filter(|run| run.sent.is_some() && run.sent != terms)
        {
            let connection = run.connection.get_ref();
            // A stopped run reads nothing, and its guard obeys the terms that it read last. If the
            // send fails, the next change is sent again.
            let Some(message) = &message else {
                let _ = shutdown(connection.as_raw_fd(), Shutdown::Write);
                run.sent = None;
                continue;
            };
            if send(connection, message, &[]).is_ok() {
                run.sent = terms;
            }
        }
    }

    /// Accepts connections for which there is room. Others wait in the listener until the next
    /// call, and closing it closes them.
    fn accept(&mut self, welcome: Option<Terms>) {
        self.has_more = false;
        for _ in 0..MAX_ACCEPTS.min(MAX_RUNS - self.runs.len()) {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            // SAFETY: the kernel made this descriptor for us in this call; nothing else owns it.
            let accepted = accept4(self.listener.as_raw_fd(), flags)
                .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            let connection = match accepted {
                Ok(connection) => connection,
                Err(nix::Error::EINTR | nix::Error::ECONNABORTED) => continue,
                Err(_) => return,
            };
            let is_ours = peer(&connection).is_ok_and(|peer| is_trusted(Uid::from_raw(peer.uid())));
            let Some(terms) = welcome.filter(|_| is_ours) else {
                continue;
            };
            let Ok(connection) = register(connection) else {
                continue;
            };
            if send(
                connection.get_ref(),
                &self.message(terms),
                &[self.pipe.as_raw_fd()],
            )
            .is_ok()
            {
                self.runs.push(NestedRun {
                    connection,
                    sent: Some(terms),
                });
            }
        }
        // When there is no room, the end of a run leads here again.
        self.has_more = self.runs.len() < MAX_RUNS;
    }

    fn message(&self, terms: Terms) -> String {
        Message {
            now: clock::now(),
            ttl: self.ttl,
            terms,
            locks: self.locks.clone(),
        }
        .to_string()
    }

    /// Whether a run is left, as was seen last.
    pub fn has_any(&self) -> bool {
        !self.runs.is_empty()
    }
}

fn send(to: &OwnedFd, message: &str, descriptors: &[RawFd]) -> nix::Result<usize> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() {
        &[][..]
    } else {
        &rights
    };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<UnixAddr>(
        to.as_raw_fd(),
        &[IoSlice::new(message.as_bytes())],
        rights,
        flags,
        None,
    )
}

fn has_something(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    // A failed poll counts as readable: the read that follows reports the error.
    poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::super::outer::{JoinError, OuterRun};
    use super::super::outlast;
    use super::*;
    use crate::lock::fence::Fence;
    use crate::lock::instant::Instant;
    use crate::lock::token::Token;

    fn terms(number: u64) -> Terms {
        let at = Instant::from_nanos(number);
        Terms {
            signal_at: at,
            kill_at: at,
            ends: at,
        }
    }

    fn locks<const N: usize>() -> [(Token, Fence); N] {
        std::array::from_fn(|lock| (Token::fresh(), Fence::new(7 + lock as u64).unwrap()))
    }

    /// The runs nested under `locks`, and the read end of their pipe.
    fn nested(locks: &[(Token, Fence)]) -> (NestedRuns, OwnedFd) {
        let (read, write) = nix::unistd::pipe().unwrap();
        let held = locks
            .iter()
            .fold(OuterLocks::default(), |held, (token, fence)| {
                held.with(*token, *fence)
            });
        (
            NestedRuns::listen(held, Duration::from_secs(30), write).unwrap(),
            read,
        )
    }

    fn on_a_runtime(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap()
            .block_on(test);
    }

    /// An admitted run starts its command. If `send` admitted one too, the caller would not hear of
    /// it.
    #[test]
    fn a_run_is_welcomed_by_admit_alone_and_is_sent_later_terms() {
        on_a_runtime(async {
            let [lock] = locks();
            let (mut runs, _read) = nested(&[lock]);
            let tokens = [lock.0];
            let mut joining = Box::pin(OuterRun::join(&tokens, &[]));
            assert!(
                futures_util::poll!(&mut joining).is_pending(),
                "it is connected"
            );
            runs.send(Some(terms(1)));
            tokio::task::yield_now().await;
            assert!(
                futures_util::poll!(&mut joining).is_pending(),
                "it is not welcomed"
            );
            assert!(runs.admit(Some(terms(2))));
            let mut run = joining.await.unwrap();
            assert_eq!(run.terms(), terms(2));
            runs.send(Some(terms(3)));
            run.next().await;
            assert_eq!(run.terms(), terms(3));
            drop(run);
            assert!(!runs.admit(Some(terms(3))));
        });
    }

    #[test]
    fn a_run_of_some_of_the_locks_is_told_their_fences_and_one_of_others_is_refused() {
        on_a_runtime(async {
            let [a, b, other] = locks();
            let (mut runs, _read) = nested(&[a, b]);
            for (tokens, wanted) in [
                (vec![b.0, a.0], Ok(vec![b, a])),
                (vec![b.0], Ok(vec![b])),
                (vec![b.0, other.0], Err(JoinError::Partly)),
                (vec![other.0], Err(JoinError::Refused)),
            ] {
                let claims = [other.0, a.0];
                let mut joining = Box::pin(OuterRun::join(&tokens, &claims));
                assert!(futures_util::poll!(&mut joining).is_pending());
                assert!(runs.admit(Some(terms(2))));
                assert_eq!(joining.await.map(|run| run.grants().to_vec()), wanted);
            }
        });
    }

    #[test]
    fn a_run_that_comes_when_none_is_welcome_is_refused() {
        on_a_runtime(async {
            let [lock] = locks();
            let (mut runs, _read) = nested(&[lock]);
            let tokens = [lock.0];
            let mut joining = Box::pin(OuterRun::join(&tokens, &[]));
            assert!(futures_util::poll!(&mut joining).is_pending());
            assert!(!runs.admit(None));
            assert_eq!(joining.await.map(|_| ()), Err(JoinError::Refused));
        });
    }

    #[test]
    fn connections_that_are_not_accepted_in_one_go_are_told_of_again() {
        on_a_runtime(async {
            let [lock] = locks();
            let (mut runs, _read) = nested(&[lock]);
            let tokens = [lock.0];
            let mut joining: Vec<_> = (0..=MAX_ACCEPTS)
                .map(|_| Box::pin(OuterRun::join(&tokens, &[])))
                .collect();
            for run in &mut joining {
                assert!(futures_util::poll!(run).is_pending());
            }
            runs.changed().await;
            runs.admit(Some(terms(2)));
            assert_eq!(runs.runs.len(), MAX_ACCEPTS);
            assert!(futures_util::poll!(std::pin::pin!(runs.changed())).is_ready());
            runs.admit(Some(terms(2)));
            assert_eq!(runs.runs.len(), MAX_ACCEPTS + 1);
            assert!(futures_util::poll!(std::pin::pin!(runs.changed())).is_pending());
        });
    }

    #[test]
    fn a_listener_without_the_token_is_no_outer_rlock() {
        on_a_runtime(async {
            let [lock, other] = locks();
            let (mut runs, _read) = nested(&[lock]);
            runs.locks = OuterLocks::default().with(other.0, other.1);
            let tokens = [lock.0];
            let mut joining = Box::pin(OuterRun::join(&tokens, &[]));
            assert!(futures_util::poll!(&mut joining).is_pending());
            assert!(runs.admit(Some(terms(2))));
            assert_eq!(joining.await.map(|_| ()), Err(JoinError::Refused));
        });
    }

    #[test]
    fn the_pipe_hangs_up_when_the_outer_rlock_and_all_runs_have_ended() {
        on_a_runtime(async {
            let [lock] = locks();
            let (mut runs, read) = nested(&[lock]);
            let tokens = [lock.0];
            let mut joining = Box::pin(OuterRun::join(&tokens, &[]));
            assert!(futures_util::poll!(&mut joining).is_pending());
            assert!(runs.admit(Some(terms(2))));
            let run = joining.await.unwrap();
            drop(runs);
            let is_held = || {
                poll(
                    &mut [PollFd::new(read.as_fd(), PollFlags::empty())],
                    PollTimeout::ZERO,
                ) == Ok(0)
            };
            assert!(is_held());
            drop(run);
            assert!(!is_held() && outlast(read.as_fd()));
        });
    }
}
