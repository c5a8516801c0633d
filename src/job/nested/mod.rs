//! The connection between an outer rlock and the runs that are nested in its command.
//!
//! 1. The outer rlock listens on an abstract unix socket, named after a hash of its first lock's token ([`runs`]).
//! 2. A nested rlock whose attempt meets one of the outer tokens at the nodes connects, and starts its command once it is welcomed
//!    ([`outer`]). The welcome names the tokens of all locks of the outer run. Only that run can know them, and the nested one may need
//!    several.
//! 3. The outer rlock sends the terms: when the nested command must be signalled and killed. It sends them again at each
//!    change. The nested rlock and its guard enforce them on their own, even if the outer rlock stalls.
//! 4. If the connection ends, the outer rlock has ended or wants the nested command killed: it is killed at once.
//! 5. The guard of the nested rlock has the connection too. So the outer rlock sees its end only when the nested command
//!    is dead or free to go on, and gives the lock back only when no connection is left.
//! 6. With the welcome comes the write end of a pipe, which the nested rlock and its guard keep as long. If the outer rlock is killed,
//!    its guard lets the lock go only at the hang-up of that pipe ([`outlast`]).
//!
//! `SOCK_SEQPACKET` keeps message boundaries and reports the peer's end.

pub mod outer;
pub mod runs;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixAddr, UnixCredentials, getsockopt};
use nix::unistd::Uid;
use uuid::Uuid;

use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::keys;
use crate::lock::schedule::Terms;
use crate::lock::token::Token;

/// Length of the four numbers that every message has, in bytes.
const NUMBERS: usize = 32;

/// Length of a lock's token and fence, in bytes.
const LOCK: usize = 24;

/// Length of the longest message, in bytes.
const LONGEST: usize = NUMBERS + keys::MOST * LOCK;

/// A message of an outer rlock: the welcome, or a later change of its terms.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    /// When it was made, by the outer rlock's clock.
    now: Instant,
    ttl: Duration,
    terms: Terms,
    /// The locks of the outer run.
    locks: Vec<(Token, Fence)>,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let ttl = u64::try_from(self.ttl.as_nanos()).unwrap_or(u64::MAX);
        let numbers = [self.now.as_nanos(), ttl, self.terms.signal_at.as_nanos(), self.terms.kill_at.as_nanos()];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        for (token, fence) in &self.locks {
            bytes.extend(token.as_uuid().as_bytes());
            bytes.extend(fence.get().to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
        let (numbers, locks) = bytes.split_at_checked(NUMBERS)?;
        let mut next = numbers.chunks_exact(8).filter_map(number);
        let (now, ttl) = (Instant::from_nanos(next.next()?), Duration::from_nanos(next.next()?));
        let (signal_at, kill_at) = (Instant::from_nanos(next.next()?), Instant::from_nanos(next.next()?));
        let lock = |bytes: &[u8]| {
            let (token, fence) = bytes.split_at_checked(16)?;
            let token = Uuid::from_slice(token).ok()?.hyphenated().to_string();
            Some((token.parse().ok()?, Fence::new(number(fence)?)?))
        };
        let whole = locks.len().is_multiple_of(LOCK);
        let locks = locks.chunks_exact(LOCK).map(lock).collect::<Option<_>>().filter(|_| whole)?;
        Some(Self { now, ttl, terms: Terms { signal_at, kill_at, ends: kill_at }, locks })
    }
}

/// The address of the listener of a run whose first lock has this token. All users see the name in /proc/net/unix, so it does not tell the
/// token. Its number is the version of the message format.
fn address(token: Token) -> nix::Result<UnixAddr> {
    let hash = Uuid::new_v5(&token.as_uuid(), b"nested").hyphenated();
    UnixAddr::new_abstract(format!("rlock/2/{hash}").as_bytes())
}

/// Returns true once all write ends of `pipe` are closed: no run is left that was nested under our locks. Returns false if that cannot
/// be known. For the guard of an outer rlock that has died.
pub(super) fn outlast(pipe: BorrowedFd) -> bool {
    loop {
        // The kernel tells of a hang-up even where it is asked for nothing.
        match poll(&mut [PollFd::new(pipe, PollFlags::empty())], PollTimeout::NONE) {
            Ok(_) => return true,
            Err(nix::Error::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// A socket with the trait that tokio's `AsyncFd` needs.
#[derive(Debug)]
struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Socket {
    /// Returns who made the peer's end.
    fn peer(&self) -> nix::Result<UnixCredentials> {
        getsockopt(&self.0, PeerCredentials)
    }
}

/// Whether `user` is ours or root. Any other user who learns a token must not keep a lock or offer one.
fn is_trusted(user: Uid) -> bool {
    user.is_root() || user == Uid::effective() && !stands_for_others(user)
}

/// Whether the kernel may show `user` in place of any user that our user namespace does not map (`user_namespaces(7)`).
fn stands_for_others(user: Uid) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65_534);
    let maps_all = || read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    user.as_raw() == overflow && !maps_all()
}

fn error(number: nix::Error) -> io::Error {
    number.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_is_read_back_as_it_was_written(
            now: u64, ttl: u64, signal_at: u64, kill_at: u64,
            fences in proptest::collection::vec(1u64..Fence::LIMIT, 0..=keys::MOST),
        ) {
            let [now, signal_at, kill_at] = [now, signal_at, kill_at].map(Instant::from_nanos);
            let terms = Terms { signal_at, kill_at, ends: kill_at };
            let locks = fences.into_iter().map(|fence| (Token::fresh(), Fence::new(fence).unwrap())).collect();
            let message = Message { now, ttl: Duration::from_nanos(ttl), terms, locks };
            prop_assert!(message.encode().len() <= LONGEST);
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
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
        assert!(name.starts_with("rlock/2/") && !name.contains(&parts[0]) && !name.contains(&parts[4]), "{name}");
        assert_ne!(address(Token::fresh()).unwrap(), address(token).unwrap());
    }
}
