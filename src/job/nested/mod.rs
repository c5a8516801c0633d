//! The connection between an outer rlock and the runs that are nested in its command.
//!
//! 1. The outer rlock listens on an abstract unix socket for each of its locks, named after the lock's token ([`runs`]).
//! 2. A nested rlock whose attempt meets that token at the nodes connects, and starts its command once it is welcomed
//!    ([`outer`]). Of several locks it connects for each: to one outer rlock, or to several.
//! 3. The outer rlock sends the terms: when the nested command must be signalled and killed. It sends them again at each
//!    change. The nested rlock and its guard enforce them on their own, even if the outer rlock stalls.
//! 4. If the connection ends, the outer rlock has ended or wants the nested command killed: it is killed at once.
//! 5. The guard of the nested rlock has the connection too. So the outer rlock sees its end only when the nested command
//!    is dead or free to go on, and gives the lock back only when no connection is left.
//! 6. The nested end of a connection has a name of its own. If the outer rlock is killed, its guard finds those names in
//!    /proc/net/unix, and lets the lock go only when none is left ([`outlast`]).
//!
//! `SOCK_SEQPACKET` keeps message boundaries and reports the peer's end.

pub mod outer;
pub mod outers;
pub mod runs;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, UnixAddr, getsockopt, recv};
use nix::unistd::Uid;
use uuid::Uuid;

use super::polling::{self, SHORTEST_PAUSE};
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::schedule::Terms;

/// Length of a message in bytes: four numbers.
const LENGTH: usize = 32;

/// A message of an outer rlock: the welcome, or a later change of its terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message {
    fence: Fence,
    ttl: Duration,
    terms: Terms,
}

impl Message {
    fn encode(&self) -> [u8; LENGTH] {
        let ttl = u64::try_from(self.ttl.as_nanos()).unwrap_or(u64::MAX);
        let numbers = [self.fence.get(), ttl, self.terms.signal_at.as_nanos(), self.terms.kill_at.as_nanos()];
        let mut bytes = [0; LENGTH];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: [u8; LENGTH]) -> Option<Self> {
        let mut numbers = bytes.chunks_exact(8).filter_map(|eight| Some(u64::from_ne_bytes(eight.try_into().ok()?)));
        let mut next = || numbers.next();
        let (fence, ttl) = (Fence::new(next()?)?, Duration::from_nanos(next()?));
        let (signal_at, kill_at) = (Instant::from_nanos(next()?), Instant::from_nanos(next()?));
        Some(Self { fence, ttl, terms: Terms { signal_at, kill_at, ends: kill_at } })
    }
}

/// The listener's name. Its number is the version of the message format.
fn name(token: Uuid) -> String {
    format!("rlock/1/{}", token.hyphenated())
}

fn address(name: &str) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(name.as_bytes())
}

/// The prefix of the nested ends' names.
fn nested_names(token: Uuid) -> String {
    name(token) + "/"
}

/// Returns true once no run is left that was nested under the locks of `tokens`, false if /proc cannot be read. For the guard
/// of an outer rlock that has died.
pub(super) fn outlast(tokens: &[Uuid]) -> bool {
    if tokens.is_empty() {
        return true;
    }
    let wanted: Vec<String> = tokens.iter().map(|token| format!("@{}", nested_names(*token))).collect();
    let is_left = |sockets: &[u8]| {
        let mut names = sockets.split(u8::is_ascii_whitespace);
        names.any(|name| wanted.iter().any(|wanted| name.starts_with(wanted.as_bytes())))
    };
    let (begin, mut absent) = (clock::now(), 0);
    // The table is not read atomically: sockets that come and go may hide one. So two polls must agree.
    while absent < 2 {
        match std::fs::read("/proc/net/unix") {
            Ok(sockets) if is_left(&sockets) => absent = 0,
            Ok(_) => absent += 1,
            Err(_) => return false,
        }
        if absent < 2 {
            let pause = polling::pause(clock::now().since(begin), polling::LONGEST_PAUSE);
            std::thread::sleep(if absent == 0 { pause } else { SHORTEST_PAUSE });
        }
    }
    true
}

/// A socket with the trait that tokio's `AsyncFd` needs.
#[derive(Debug)]
struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The result of a read that does not block.
enum Read {
    Message([u8; LENGTH]),
    Nothing,
    /// The peer has closed its end, or sent what is no message.
    End,
}

impl Socket {
    fn read(&self) -> Read {
        // One byte more than a message, so that a longer one is recognised.
        let mut bytes = [0; LENGTH + 1];
        loop {
            return match recv(self.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(LENGTH) => bytes.first_chunk().map_or(Read::End, |message| Read::Message(*message)),
                Err(nix::Error::EAGAIN) => Read::Nothing,
                Err(nix::Error::EINTR) => continue,
                Ok(_) | Err(_) => Read::End,
            };
        }
    }

    /// Whether the peer runs as our user or as root. Any other user who learns a token must not keep a lock or offer one.
    fn is_trusted(&self) -> bool {
        let peer = getsockopt(&self.0, PeerCredentials).map(|peer| Uid::from_raw(peer.uid()));
        peer.is_ok_and(|user| user.is_root() || user == Uid::effective())
    }
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
            fence in 1u64..Fence::LIMIT, ttl: u64, signal_at: u64, kill_at: u64,
        ) {
            let [signal_at, kill_at] = [signal_at, kill_at].map(Instant::from_nanos);
            let terms = Terms { signal_at, kill_at, ends: kill_at };
            let message = Message { fence: Fence::new(fence).unwrap(), ttl: Duration::from_nanos(ttl), terms };
            prop_assert_eq!(Message::decode(message.encode()), Some(message));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: [u8; LENGTH]) {
            let _ = Message::decode(bytes);
        }
    }
}
