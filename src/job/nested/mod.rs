//! The connection between an outer rlock and the runs that are nested in its command.
//!
//! 1. The outer rlock listens on an abstract unix socket, named after a hash of its first lock's
//!    token ([`runs`]).
//! 2. A nested rlock whose attempt meets one of the outer tokens at the nodes connects, and starts
//!    its command once it is welcomed ([`outer`]). The welcome names the tokens of all locks of the
//!    outer run. Only that run can know them, and the nested one may need several.
//! 3. The outer rlock sends the terms: when the nested command must be signalled and killed. It
//!    sends them again at each change. The nested rlock and its guard enforce them on their own,
//!    even if the outer rlock stalls.
//! 4. If the connection ends, the outer rlock has ended or wants the nested command killed: it is
//!    killed at once.
//! 5. The guard of the nested rlock has the connection too. So the outer rlock sees its end only
//!    when the nested command is dead or free to go on, and gives the lock back only when no
//!    connection is left.
//! 6. With the welcome comes the write end of a pipe, which the nested rlock and its guard keep as
//!    long. If the outer rlock is killed, its guard lets the lock go only at the hang-up of that
//!    pipe ([`outlast`]).
//!
//! `SOCK_SEQPACKET` keeps message boundaries and reports the peer's end.

pub mod outer;
pub mod runs;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixAddr, UnixCredentials, getsockopt};
use nix::unistd::Uid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use uuid::Uuid;

use crate::lock::instant::Instant;
use crate::lock::outer::OuterLocks;
use crate::lock::schedule::Terms;
use crate::lock::token::Token;

/// Limit of the length of a message in bytes: of four numbers and the tokens and fences of all
/// locks that a run may have.
const LONGEST: usize = 4096;

/// A message of an outer rlock: the welcome, or a later change of its terms.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    /// When it was made, by the outer rlock's clock.
    now: Instant,
    ttl: Duration,
    terms: Terms,
    /// The locks of the outer run.
    locks: OuterLocks,
}

/// Times in nanoseconds, and the locks as in `RLOCK_HELD`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [now, signal_at, kill_at] =
            [self.now, self.terms.signal_at, self.terms.kill_at].map(Instant::as_nanos);
        write!(
            f,
            "{now} {} {signal_at} {kill_at} {}",
            self.ttl.as_nanos(),
            self.locks
        )
    }
}

impl Message {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (now, ttl) = (
            Instant::from_nanos(number()?),
            Duration::from_nanos(number()?),
        );
        let (signal_at, kill_at) = (
            Instant::from_nanos(number()?),
            Instant::from_nanos(number()?),
        );
        let locks = OuterLocks::read(words.next()?, "");
        Some(Self {
            now,
            ttl,
            terms: Terms {
                signal_at,
                kill_at,
                ends: kill_at,
            },
            locks,
        })
    }
}

/// The address of the listener of a run whose first lock has this token. All users see the name in
/// /proc/net/unix, so it does not tell the token. Its number is the version of the message format.
fn address(token: Token) -> nix::Result<UnixAddr> {
    let hash = Uuid::new_v5(&token.as_uuid(), b"nested").hyphenated();
    UnixAddr::new_abstract(format!("rlock/2/{hash}").as_bytes())
}

/// Returns true once all write ends of `pipe` are closed: no run is left that was nested under our
/// locks. Returns false if that cannot be known. For the guard of an outer rlock that has died.
pub(super) fn outlast(pipe: BorrowedFd) -> bool {
    loop {
        // The kernel tells of a hang-up even where it is asked for nothing.
        match poll(
            &mut [PollFd::new(pipe, PollFlags::empty())],
            PollTimeout::NONE,
        ) {
            Ok(_) => return true,
            Err(nix::Error::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Returns who made the peer's end of a connection.
fn peer(connection: &impl AsFd) -> nix::Result<UnixCredentials> {
    getsockopt(connection, PeerCredentials)
}

fn register(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the socket owns its descriptor, always names the same one, and closes it only when
    // dropped.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// Whether `user` is ours or root. Any other user who learns a token must not keep a lock or offer
/// one.
fn is_trusted(user: Uid) -> bool {
    user.is_root() || user == Uid::effective() && !stands_for_others(user)
}

/// Whether the kernel may show `user` in place of any user that our user namespace does not map
/// (`user_namespaces(7)`).
fn stands_for_others(user: Uid) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid")
        .trim()
        .parse()
        .unwrap_or(65_534);
    let maps_all = || {
        read("/proc/self/uid_map")
            .split_whitespace()
            .eq(["0", "0", "4294967295"])
    };
    user.as_raw() == overflow && !maps_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fence::Fence;
    use crate::lock::key;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_is_read_back_as_it_was_written(
            now: u64, ttl: u64, signal_at: u64, kill_at: u64,
            fences in proptest::collection::vec(1u64..Fence::LIMIT, 0..=key::MOST_KEYS),
        ) {
            let [now, signal_at, kill_at] = [now, signal_at, kill_at].map(Instant::from_nanos);
            let terms = Terms { signal_at, kill_at, ends: kill_at };
            let fences = fences.into_iter().map(|fence| Fence::new(fence).unwrap());
            let locks = fences.fold(OuterLocks::default(), |locks, fence| locks.with(Token::fresh(), fence));
            let message = Message { now, ttl: Duration::from_nanos(ttl), terms, locks };
            let text = message.to_string();
            prop_assert!(text.len() <= LONGEST);
            prop_assert_eq!(Message::decode(text.as_bytes()), Some(message));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..=LONGEST)) {
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn the_name_of_a_listener_does_not_tell_the_token() {
        let token = Token::fresh();
        let name = address(token).unwrap();
        let name = String::from_utf8_lossy(name.as_abstract().unwrap()).into_owned();
        let parts: Vec<String> = token.to_string().split('-').map(str::to_owned).collect();
        assert!(
            name.starts_with("rlock/2/") && !name.contains(&parts[0]) && !name.contains(&parts[4]),
            "{name}"
        );
        assert_ne!(address(Token::fresh()).unwrap(), address(token).unwrap());
    }
}
