//! A stream that tells why a server ended it.
//!
//! A server that refuses a client says why, with an error of its protocol or an alert of TLS, and closes
//! the connection. A client that is writing then learns only that the write failed, and reads no more.
//! So the first write that fails waits for what the server said, if nothing had come before.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tls::refusal;

/// Number of bytes that are kept of what a server said last.
const ROOM: usize = 64;

pub(super) struct LastWords<S> {
    stream: S,
    /// Whether the server has said anything.
    has_spoken: bool,
    /// The error of a write for which the server's words are waited for.
    failed: Option<io::Error>,
    /// Its words, to be read.
    words: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> LastWords<S> {
    pub(super) fn of(stream: S) -> Self {
        Self {
            stream,
            has_spoken: false,
            failed: None,
            words: Vec::new(),
        }
    }

    /// Returns the error of a write, or the alert behind it, once the server's words have come. They
    /// come, or the end of the stream does: the server has closed it.
    fn explained<T>(&mut self, cx: &mut Context<'_>, error: io::Error) -> Poll<io::Result<T>> {
        let mut bytes = [0; ROOM];
        let mut buffer = ReadBuf::new(&mut bytes);
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut buffer) else {
            self.failed = Some(error);
            return Poll::Pending;
        };
        self.has_spoken = true;
        self.words.extend(buffer.filled());
        let alert = read.err().filter(|told| refusal(told).is_some());
        Poll::Ready(Err(alert.unwrap_or(error)))
    }

    fn write<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(error) = self.failed.take() {
            return self.explained(cx, error);
        }
        match ready!(poll(Pin::new(&mut self.stream), cx)) {
            Err(error) if !self.has_spoken => self.explained(cx, error),
            result => Poll::Ready(result),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LastWords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.words.is_empty() {
            let count = self.words.len().min(buffer.remaining());
            buffer.put_slice(&self.words[..count]);
            self.words.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.has_spoken |= buffer.filled().len() > before;
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LastWords<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection to a server that says these words at once, and closes it.
    async fn closed_after(words: &str) -> LastWords<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (mut theirs, _) = listener.accept().await.unwrap();
        theirs.write_all(words.as_bytes()).await.unwrap();
        LastWords::of(ours.unwrap())
    }

    async fn write_until_it_fails(stream: &mut LastWords<TcpStream>) -> io::Error {
        loop {
            if let Err(error) = stream.write_all(b"PING\r\n").await {
                return error;
            }
        }
    }

    #[tokio::test]
    async fn words_that_came_before_a_write_failed_can_be_read_behind_it() {
        let words = "-ERR max number of clients reached\r\n";
        let mut stream = closed_after(words).await;
        write_until_it_fails(&mut stream).await;
        let mut heard = vec![0; words.len()];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(String::from_utf8(heard).unwrap(), words);
    }

    #[tokio::test]
    async fn a_write_fails_though_the_server_says_nothing() {
        let mut stream = closed_after("").await;
        write_until_it_fails(&mut stream).await;
        assert!(stream.words.is_empty());
    }
}
