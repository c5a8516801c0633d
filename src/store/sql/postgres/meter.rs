//! The byte stream below a connection to PostgreSQL, watched: how much the kernel has, what session
//! the server names, and what it may not do.
//!
//! 1. A server that asks for the password itself, over a connection without TLS, does not get it.
//! 2. A server cannot fill our memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::store::net::dial::Stream;

/// Most bytes that a server sends between two requests: a page of names is the most that is asked
/// for.
const MOST_RECEIVED: u64 = 8 << 20;

/// Most bytes of a message of the beginning.
const MOST_AT_FIRST: usize = 64 << 10;

/// A session's process at the server is told in a message of this type (BackendKeyData).
const KEY_DATA: u8 = b'K';

/// Authentication, and the kind of it that wants the password as it is.
const AUTHENTICATION: u8 = b'R';
const CLEAR_TEXT: i32 = 3;

/// The server is ready, and the beginning over.
const READY: u8 = b'Z';

/// Facts that the stream tells of a connection.
#[derive(Default)]
pub(super) struct Told {
    /// Number of bytes that the kernel has; `None` once the connection is over.
    pub(super) written: watch::Sender<Option<u64>>,
    /// Number of bytes of all that was asked, the login included.
    pub(super) asked: AtomicU64,
    /// The session's process, 0 if it was not told.
    pub(super) process: AtomicI32,
}

impl Told {
    /// Waits until the kernel has this number of bytes, or the connection is over.
    pub(super) async fn is_written(&self, bytes: u64) {
        let mut written = self.written.subscribe();
        let has = |written: &Option<u64>| written.is_none_or(|written| written >= bytes);
        let _ = written.wait_for(has).await;
    }
}

/// A stream that tells.
pub(super) struct Meter {
    stream: Box<dyn Stream>,
    told: Arc<Told>,
    /// Whether the password may be sent as it is.
    is_private: bool,
    /// The messages of the beginning, as far as they were read; `None` when that is over.
    beginning: Option<Vec<u8>>,
    received: u64,
    /// Number of bytes that the stream has taken.
    taken: u64,
}

impl Meter {
    pub(super) fn new(stream: Box<dyn Stream>, is_private: bool) -> (Self, Arc<Told>) {
        let told = Arc::new(Told::default());
        told.written.send_replace(Some(0));
        let meter = Self {
            stream,
            told: Arc::clone(&told),
            is_private,
            beginning: Some(Vec::new()),
            received: 0,
            taken: 0,
        };
        (meter, told)
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.received += bytes.len() as u64;
        if self.received > MOST_RECEIVED {
            return Err(io::Error::other("its answer is too long"));
        }
        let Some(beginning) = &mut self.beginning else {
            return Ok(());
        };
        beginning.extend(bytes);
        if beginning.len() > MOST_AT_FIRST {
            return Err(io::Error::other("its greeting is too long"));
        }
        let mut at = 0;
        while let Some((kind, body, next)) = message(&beginning[at..]) {
            match (kind, number(body)) {
                (AUTHENTICATION, Some(CLEAR_TEXT)) if !self.is_private => {
                    return Err(io::Error::other(CLEAR));
                }
                (KEY_DATA, Some(process)) => self.told.process.store(process, Ordering::Relaxed),
                (READY, _) => {
                    self.beginning = None;
                    return Ok(());
                }
                _ => {}
            }
            at += next;
        }
        beginning.drain(..at);
        Ok(())
    }
}

/// Why the password is not sent.
pub(super) const CLEAR: &str = "it asks for the password itself, over a connection without TLS";

/// Returns the kind of the first message, what it says, and its length.
fn message(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let kind = *bytes.first()?;
    let length = usize::try_from(number(bytes.get(1..)?)?).ok()?;
    let body = bytes.get(5..1 + length)?;
    Some((kind, body, 1 + length))
}

/// Returns the number at the beginning.
fn number(bytes: &[u8]) -> Option<i32> {
    let bytes = bytes.get(..4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}

impl AsyncRead for Meter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.read(&buffer.filled()[before..])?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Meter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.received = 0;
        self.taken += count as u64;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let taken = Some(self.taken);
        self.told
            .written
            .send_if_modified(|written| std::mem::replace(written, taken) != taken);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = i32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn meter(is_private: bool) -> (Meter, Arc<Told>) {
        Meter::new(Box::new(tokio::io::empty()), is_private)
    }

    #[test]
    fn the_password_itself_is_sent_over_a_private_connection_only() {
        let asks = told(AUTHENTICATION, &CLEAR_TEXT.to_be_bytes());
        for is_private in [false, true] {
            let (mut meter, _) = meter(is_private);
            let (first, rest) = asks.split_at(6);
            assert!(meter.read(first).is_ok());
            assert_eq!(meter.read(rest).is_ok(), is_private);
        }
    }

    #[test]
    fn the_session_is_told_and_what_follows_is_not_looked_at() {
        let (mut meter, known) = meter(false);
        let key = told(KEY_DATA, &[0, 0, 0, 7, 1, 2, 3, 4]);
        let all = [told(b'S', b"a\0b\0"), key, told(READY, b"I")].concat();
        for byte in &all {
            meter.read(&[*byte]).unwrap();
        }
        assert_eq!(known.process.load(Ordering::Relaxed), 7);
        let asks = told(AUTHENTICATION, &CLEAR_TEXT.to_be_bytes());
        assert!(meter.read(&asks).is_ok());
    }

    #[test]
    fn a_server_that_talks_without_end_is_left() {
        let (mut meter, _) = meter(false);
        let mut talked = (0..).map(|_| meter.read(&[b'S'; 1 << 12]));
        assert!(talked.any(|read| read.is_err()));
        for length in [i32::MIN, -1, 0, 3] {
            let bytes = [&[b'S'][..], &length.to_be_bytes(), b"xyz"].concat();
            let _ = super::tests::meter(false).0.read(&bytes);
        }
    }
}
