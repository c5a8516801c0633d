//! A server in memory: a stream that says what a test has written down, in virtual time if the
//! runtime's time is paused.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The client's end of a connection to a scripted server. The server sends its next piece whenever
/// the client has flushed a request, and closes after the last piece.
pub struct Scripted {
    /// Pieces that were not sent yet.
    pieces: VecDeque<VecDeque<u8>>,
    /// Number of pieces that were asked for and not sent yet.
    asked: usize,
    /// Whether something was written since the last flush.
    written: bool,
    /// Most bytes that one read returns.
    step: usize,
    waker: Option<Waker>,
}

impl Scripted {
    /// Makes a server that sends `pieces`, at most `step` bytes at a time. If `greets`, the first
    /// one is sent unasked.
    pub fn new(pieces: impl IntoIterator<Item = Vec<u8>>, step: usize, greets: bool) -> Self {
        let pieces = pieces.into_iter().map(VecDeque::from).collect();
        Self {
            pieces,
            asked: usize::from(greets),
            written: false,
            step,
            waker: None,
        }
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.asked > 0 {
            let step = self.step.min(buffer.remaining());
            // Without a piece the server closes.
            let Some(piece) = self.pieces.front_mut() else {
                return Poll::Ready(Ok(()));
            };
            let count = step.min(piece.len());
            if count > 0 {
                buffer.put_slice(&piece.drain(..count).collect::<Vec<_>>());
                return Poll::Ready(Ok(()));
            }
            self.pieces.pop_front();
            // The end follows the last piece without a request.
            if !self.pieces.is_empty() {
                self.asked -= 1;
            }
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.written) {
            self.asked += 1;
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
