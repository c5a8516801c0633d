//! The network between a client and its servers, which can lose replies.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rlock::store::net::dial::{HostDial, Stream};
use rlock::store::redis::connect::{Connector, Dial, dial};
use rlock::store::redis::locator::way::Connect;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The network of one client.
#[derive(Clone, Default)]
pub struct Wire {
    loses_replies: Arc<AtomicBool>,
}

impl Wire {
    /// Loses each reply from now on. Requests arrive.
    pub fn lose_replies(&self) {
        self.loses_replies.store(true, Ordering::Relaxed);
    }

    /// Returns what opens streams over the wire to hosts.
    pub(super) fn over(&self, dial: HostDial) -> HostDial {
        let wire = self.clone();
        Arc::new(move |endpoint, limit| {
            let (wire, dialing) = (wire.clone(), dial(endpoint, limit));
            Box::pin(async move {
                let stream = dialing.await?;
                Ok(Box::new(Lossy { stream, wire }) as Box<dyn Stream>)
            })
        })
    }

    /// Returns what opens connections over the wire.
    pub(super) fn connect(&self) -> Connect {
        let wire = self.clone();
        let dial_over: Dial = Arc::new(move |access, limit| {
            let wire = wire.clone();
            Box::pin(async move {
                Ok(Box::new(Lossy {
                    stream: dial(access, limit).await?,
                    wire,
                }) as Box<dyn Stream>)
            })
        });
        Arc::new(move |access| Connector::over(access, Arc::clone(&dial_over)))
    }
}

/// A connection over the wire.
struct Lossy {
    stream: Box<dyn Stream>,
    wire: Wire,
}

impl AsyncRead for Lossy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.wire.loses_replies.load(Ordering::Relaxed) {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        loop {
            let mut bytes = [0; 4096];
            let mut lost = ReadBuf::new(&mut bytes);
            std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut lost))?;
            if lost.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Lossy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
