//! The byte stream below a connection to PostgreSQL, watched: how much the kernel has, what session
//! the server names, and what it may not do.
//!
//! 1. A server that asks for the password itself, over a connection without TLS, does not get it.
//! 2. A server cannot fill our memory.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::store::net::dial::Stream;

/// Most bytes that a server sends between two requests, with the memory that its messages and cells
/// take: a page of names is the most that is asked for.
const MOST_RECEIVED: u64 = 8 << 20;

/// Bytes of memory that a message takes beside its own, and a cell of a row.
const PER_MESSAGE: u64 = 64;
const PER_CELL: u64 = 48;

/// Most parameters that a server tells, and most bytes of one: the library keeps each, as long as the
/// connection lasts.
const MOST_PARAMETERS: usize = 64;
const MOST_OF_PARAMETER: usize = 16 << 10;

/// Most bytes of a message of the beginning.
const MOST_AT_FIRST: usize = 64 << 10;

/// A session's process at the server is told in a message of this type (BackendKeyData).
const KEY_DATA: u8 = b'K';

/// A parameter, with its name and its value (`ParameterStatus`).
const PARAMETER: u8 = b'S';

/// A row, whose cells are counted by its first two bytes (`DataRow`).
const ROW: u8 = b'D';

/// Bytes of a message's type and length.
const HEADER: usize = 5;

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
    /// Whether the server is not ready yet.
    is_beginning: bool,
    received: u64,
    /// The part of a message that was read and is looked at, and the number of its bytes that are not.
    message: Vec<u8>,
    skipped: usize,
    /// The names of the parameters.
    parameters: HashSet<Vec<u8>>,
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
            is_beginning: true,
            received: 0,
            message: Vec::new(),
            skipped: 0,
            parameters: HashSet::new(),
            taken: 0,
        };
        (meter, told)
    }

    fn charge(&mut self, cost: u64) -> io::Result<()> {
        self.received += cost;
        if self.received > MOST_RECEIVED {
            return Err(io::Error::other("its answer is too long"));
        }
        Ok(())
    }

    /// Reads what the server sent next.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.charge(bytes.len() as u64)?;
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            let (wanted, _) = self.extent()?;
            let missing = (wanted - self.message.len()).min(bytes.len());
            let (taken, rest) = bytes.split_at(missing);
            self.message.extend(taken);
            bytes = rest;
            let (wanted, length) = self.extent()?;
            if self.message.len() == wanted {
                self.heard()?;
                self.message.clear();
                self.skipped = length - wanted;
            }
        }
        Ok(())
    }

    /// Returns how much of the message is looked at, and its length, as far as its beginning tells.
    fn extent(&self) -> io::Result<(usize, usize)> {
        let [kind, length @ ..] = &self.message[..] else {
            return Ok((HEADER, HEADER));
        };
        let Some(length) = number(length) else {
            return Ok((HEADER, HEADER));
        };
        let length = usize::try_from(length).unwrap_or_default() + 1;
        if length < HEADER {
            return Err(io::Error::other("a message of it has no length"));
        }
        if self.is_beginning && length > MOST_AT_FIRST {
            return Err(io::Error::other("its greeting is too long"));
        }
        let wanted = match *kind {
            PARAMETER if length > MOST_OF_PARAMETER => {
                return Err(io::Error::other("it tells too long a parameter"));
            }
            PARAMETER => length,
            ROW => length.min(HEADER + 2),
            AUTHENTICATION | KEY_DATA => length.min(HEADER + 4),
            _ => HEADER,
        };
        Ok((wanted, length))
    }

    /// Charges the message, and reads it.
    fn heard(&mut self) -> io::Result<()> {
        self.charge(PER_MESSAGE)?;
        let (kind, body) = (self.message[0], &self.message[HEADER..]);
        match (kind, body) {
            (ROW, [high, low]) => {
                self.charge(PER_CELL * u64::from(u16::from_be_bytes([*high, *low])))?;
            }
            (PARAMETER, _) => {
                let name = body.split(|byte| *byte == 0).next().unwrap_or_default();
                if !self.parameters.contains(name) {
                    self.parameters.insert(name.to_vec());
                }
                if self.parameters.len() > MOST_PARAMETERS {
                    return Err(io::Error::other("it tells too many parameters"));
                }
            }
            _ if self.is_beginning => match (kind, number(body)) {
                (AUTHENTICATION, Some(CLEAR_TEXT)) if !self.is_private => {
                    return Err(io::Error::other(CLEAR));
                }
                (KEY_DATA, Some(process)) => self.told.process.store(process, Ordering::Relaxed),
                (READY, _) => self.is_beginning = false,
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }
}

/// Why the password is not sent.
pub(super) const CLEAR: &str = "it asks for the password itself, over a connection without TLS";

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
    fn a_message_of_the_beginning_is_short() {
        let long = told(b'N', &vec![b'x'; MOST_AT_FIRST]);
        for is_beginning in [true, false] {
            let (mut meter, _) = meter(false);
            meter.is_beginning = is_beginning;
            assert_eq!(meter.read(&long).is_err(), is_beginning);
        }
    }

    #[test]
    fn a_server_that_talks_without_end_is_left() {
        let (mut meter, _) = meter(false);
        meter.is_beginning = false;
        let talked = (0..).map(|_| meter.read(&[b'x'; 1 << 12]));
        assert_eq!(talked.take_while(Result::is_ok).count(), 2047);
        for length in [i32::MIN, -1, 0, 3] {
            let bytes = [&[b'S'][..], &length.to_be_bytes(), b"xyz"].concat();
            assert!(super::tests::meter(false).0.read(&bytes).is_err());
        }
    }

    #[test]
    fn messages_and_cells_take_no_more_memory_than_an_answer_may() {
        let nulls = vec![0xff; 2 + 4 * 0xffff];
        // 1 MB and 800 KB on the wire.
        for (message, times) in [(told(b'C', b""), 200_000), (told(ROW, &nulls), 3)] {
            let (mut meter, _) = meter(false);
            meter.is_beginning = false;
            let all = message.repeat(times);
            let (last, most) = all.split_last().unwrap();
            let read = meter.read(most).and_then(|()| meter.read(&[*last]));
            assert!(read.is_err());
        }
    }

    #[test]
    fn parameters_of_a_connection_are_limited_in_number_and_length_but_not_in_changes() {
        let told = |names: usize, length: usize| {
            let (mut meter, _) = meter(false);
            meter.is_beginning = false;
            let value = "v".repeat(length);
            for step in 0..1000 {
                meter.received = 0;
                let body = format!("name{}\0{value}\0", step % names);
                for bytes in told(PARAMETER, body.as_bytes()).chunks(7) {
                    meter.read(bytes)?;
                }
            }
            io::Result::Ok(())
        };
        told(MOST_PARAMETERS, 100).unwrap();
        assert!(told(MOST_PARAMETERS + 1, 0).is_err());
        assert!(told(1, MOST_OF_PARAMETER).is_err());
    }
}
