//! The stream below the redis crate, which adds what the crate lacks:
//! 1. a limit on the bytes that a server may send between two requests;
//! 2. the number of bytes that the kernel has taken;
//! 3. notice of a connection that breaks while no request waits;
//! 4. the reason of a server that refuses a connection when it is opened, or its certificate.
//!
//! The limit makes a hostile or mistaken server cost 64 KiB, not a gigabyte. The count lets rlock
//! exit only once a release is written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::state::ConnectionState;
use super::stranger;
use crate::store::net::tls::refusal;

/// Extra cost charged per line of a reply. A parsed value takes about 100 bytes however short its
/// line, so a reply of empty values would use twenty times its size in memory.
const LINE: usize = 32;

/// Number of the first bytes that are kept: more than a line by which a server refuses a connection
/// has.
const FIRST: usize = 1024;

/// A stream that limits and counts.
pub(super) struct Metered<S> {
    stream: S,
    state: Arc<watch::Sender<ConnectionState>>,
    limit: usize,
    /// Bytes that may still be read before the next request is written.
    allowance: usize,
    /// The first bytes that have come.
    first: Vec<u8>,
}

impl<S> Metered<S> {
    /// `stream`, of which at most `limit` bytes are read between two requests. What happens on it
    /// is noted in `state`.
    pub(super) fn new(stream: S, state: Arc<watch::Sender<ConnectionState>>, limit: usize) -> Self {
        Self {
            stream,
            state,
            limit,
            allowance: limit,
            first: Vec::new(),
        }
    }

    fn mark_broken(&self) {
        self.state.send_modify(|state| state.broken = true);
    }

    /// Notes the first bytes that the server sends, and whether they are the line by which it
    /// refuses the connection. A proxy that passed that line on goes on behind it.
    fn hear(&mut self, bytes: &[u8]) {
        let room = FIRST - self.first.len();
        if bytes.is_empty() || room == 0 {
            return;
        }
        self.first.extend(&bytes[..bytes.len().min(room)]);
        let refusal = stranger::of_only_line(&self.first);
        self.note(|state| (state.first, state.shut_out) = (self.first.first().copied(), refusal));
    }

    /// Notes that the server has closed the connection, and whether that was for our certificate.
    fn end(&self, result: &io::Result<()>) {
        let refusal = result.as_ref().err().and_then(refusal);
        self.state.send_modify(|state| {
            state.closed = true;
            state.shut_out = refusal.or(state.shut_out.take());
        });
        self.mark_broken();
    }

    /// Notes what no task waits for.
    fn note(&self, change: impl FnOnce(&mut ConnectionState)) {
        self.state.send_if_modified(|state| {
            change(state);
            false
        });
    }
}

impl<S: AsyncRead + Unpin> Metered<S> {
    /// Ends the connection after this error of a write. The crate reads no more then, though the
    /// server may have said why it closed the connection.
    fn break_off(&mut self, cx: &mut Context<'_>, error: &io::Error) {
        let refusal = refusal(error);
        self.note(|state| state.shut_out = refusal.or(state.shut_out.take()));
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        if self.first.is_empty()
            && let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, &mut buffer)
        {
            self.hear(buffer.filled());
            self.end(&result);
        }
        self.mark_broken();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        let new = &buffer.filled()[before..];
        let count = new.len();
        let lines = new.split(|byte| *byte == b'\n').count() - 1;
        let Some(left) = self.allowance.checked_sub(count + lines * LINE) else {
            self.mark_broken();
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a reply of over {} KiB, or of very many values",
                    self.limit / 1024
                ),
            )));
        };
        self.allowance = left;
        self.hear(new);
        if result.is_err() || count == 0 {
            self.end(&result);
        }
        // TLS that ends without a farewell ends like any other stream.
        Poll::Ready(result.or_else(|error| if is_end(&error) { Ok(()) } else { Err(error) }))
    }
}

fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        match &result {
            Ok(count) => {
                // Tasks that wait for the flush are told then.
                self.note(|state| state.written += *count as u64);
                self.allowance = self.limit;
            }
            Err(error) => self.break_off(cx, error),
        }
        Poll::Ready(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if result.is_ok() {
            self.state.send_if_modified(|state| {
                std::mem::replace(&mut state.flushed, state.written) != state.written
            });
        } else {
            self.mark_broken();
        }
        Poll::Ready(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a server that has sent these parts counts as refusing.
    fn refuses(parts: &[&str]) -> bool {
        let state = Arc::new(watch::Sender::new(ConnectionState::default()));
        let mut metered = Metered::new(tokio::io::empty(), Arc::clone(&state), 1024);
        for part in parts {
            metered.hear(part.as_bytes());
        }
        state.borrow().shut_out.is_some()
    }

    #[test]
    fn a_line_of_refusal_counts_if_nothing_came_behind_it() {
        for parts in [
            &["-DENIED Redis is", " in protected mode\r\n", ""][..],
            &["", "-DENIED Redis is\r\n"],
            &["-ERR max number of clients reached\r\n"],
        ] {
            assert!(refuses(parts), "{parts:?}");
        }
        for parts in [
            &["-DENIED Redis is in protected mode\r\n", "+OK\r\n"][..],
            &["-DENIED Redis is", " in protected mode\r\n+OK\r\n", "+OK"],
            &["-ERR max number of clients reached\r\n+OK\r\n", ""],
            &["+OK\r\n", "-DENIED Redis is\r\n"],
            &[],
        ] {
            assert!(!refuses(parts), "{parts:?}");
        }
    }
}
