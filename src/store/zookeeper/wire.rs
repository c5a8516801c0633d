//! One connection to a server: what is to be written, what was read, and which reply belongs to
//! which request. A server answers the requests of a connection in their order.
//!
//! If a caller gives up, nothing is lost. A frame that was queued is written by the next caller
//! that waits. So a release is written behind a request that is not answered yet.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::jute::{
    self, Header, LARGEST_FRAME, Malformed, Reader, Request, Session, Stat, XID_OF_EVENT, error,
    greeting,
};
use crate::clock;
use crate::lock::instant::Instant;
use crate::store::net::dial::Stream;
use crate::store::net::tls::refusal;
use crate::store::{Fault, FaultKind};

/// Longest frame that counts while a session ends, in bytes: a reply to a deletion is shorter.
const SHORT: usize = 1 << 16;

/// A connection, from its first byte on.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    /// Bytes to be written, and how many of them were.
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// Whether a frame that is longer than [`SHORT`] is of no use.
    is_ending: bool,
    /// Bytes of such a frame that are still to come.
    surplus: usize,
    next_xid: i32,
    /// When the first byte was about to be written.
    pub(super) begun: Instant,
    /// When the server was heard last.
    pub(super) heard: Instant,
    /// Whether a znode that is watched has changed since that was asked last.
    pub(super) has_changed: bool,
}

/// The reply to a request: its error, and its body.
pub(super) struct Reply {
    pub(super) header: Header,
    frame: Vec<u8>,
}

impl Reply {
    /// Reads the body, or returns the code of the error.
    fn read<'r, T>(
        &'r self,
        read: impl FnOnce(&mut Reader<'r>) -> Result<T, Malformed>,
    ) -> Result<Result<T, i32>, Fault> {
        if self.header.error != 0 {
            return Ok(Err(self.header.error));
        }
        let mut body = Reader(&self.frame);
        body.header().map_err(|_| not_zookeeper())?;
        read(&mut body).map(Ok).map_err(|_| not_zookeeper())
    }

    /// Reads the reply to a multi.
    pub(super) fn multi(&self) -> Result<Result<Vec<String>, i32>, Fault> {
        Ok(self.read(Reader::multi)?.and_then(|done| done))
    }

    /// Reads the names of children.
    pub(super) fn children(&self) -> Result<Result<Vec<String>, i32>, Fault> {
        self.read(Reader::children)
    }

    /// Reads a znode's data.
    pub(super) fn data(&self) -> Result<Result<(Vec<u8>, Stat), i32>, Fault> {
        self.read(Reader::data)
    }
}

impl Wire {
    /// Begins to attach to `session`, or to a new one, over `stream`.
    pub(super) fn new(
        stream: Box<dyn Stream>,
        session: Option<&Session>,
        timeout: Duration,
    ) -> Self {
        let now = clock::now();
        Self {
            stream,
            out: jute::connect(session, timeout),
            written: 0,
            input: Vec::new(),
            is_ending: false,
            surplus: 0,
            next_xid: 1,
            begun: now,
            heard: now,
            has_changed: false,
        }
    }

    /// Puts a request behind all others. Returns the xid of its reply.
    pub(super) fn queue(&mut self, request: &Request) -> i32 {
        let (xid, frame) = request.frame(self.next_xid);
        self.next_xid += 1;
        self.out.extend(frame);
        xid
    }

    /// Ends the session behind all others. Returns the xid of the reply. Lists are not kept any more,
    /// so that connections which wait for their ends take little memory.
    pub(super) fn queue_end(&mut self) -> i32 {
        self.is_ending = true;
        self.drop_surplus();
        self.queue(&Request::Close)
    }

    /// Drops what has come of a long frame, if none is of use, and notes the rest of it.
    fn drop_surplus(&mut self) {
        let Some((length, _)) = self.input.split_first_chunk() else {
            return;
        };
        let length = u32::from_be_bytes(*length) as usize;
        if self.is_ending && (SHORT..=LARGEST_FRAME).contains(&length) {
            let dropped = self.input.len().min(4 + length);
            self.surplus = 4 + length - dropped;
            self.input = self.input.split_off(dropped);
        }
    }

    /// Puts the login behind all others, if there is one.
    pub(super) fn queue_login(&mut self, login: Option<&str>) {
        if let Some(login) = login {
            self.queue(&Request::Login(login.to_owned()));
        }
    }

    /// Writes all that is queued. May be dropped and called again.
    pub(super) async fn flush(&mut self) -> Result<(), Fault> {
        poll_fn(|cx| self.poll_write(cx))
            .await
            .map_err(|error| broken(&error))
    }

    /// Returns the session that the server has attached the connection to; `None`: it is over.
    pub(super) async fn greeted(&mut self) -> Result<Option<Session>, Fault> {
        let frame = self.frame().await?;
        Ok(greeting(&frame).map_err(|_| not_zookeeper())?.session)
    }

    /// Returns the reply to the request of `xid`. May be dropped and called again.
    pub(super) async fn reply(&mut self, xid: i32) -> Result<Reply, Fault> {
        loop {
            let reply = self.next().await?;
            if reply.header.xid == xid {
                return Ok(reply);
            }
            // A login that fails is answered, and all that comes behind it is not.
            if reply.header.error == error::AUTH_FAILED {
                return Err(super::refused(error::AUTH_FAILED));
            }
        }
    }

    /// Returns when a znode has changed that is watched. May be dropped and called again.
    pub(super) async fn changed(&mut self) -> Result<(), Fault> {
        while !self.has_changed {
            self.next().await?;
        }
        self.has_changed = false;
        Ok(())
    }

    /// Reads the next reply that is not of a watch.
    async fn next(&mut self) -> Result<Reply, Fault> {
        let frame = self.frame().await?;
        let mut body = Reader(&frame);
        let header = body.header().map_err(|_| not_zookeeper())?;
        if header.xid == XID_OF_EVENT {
            let path = body.event().map_err(|_| not_zookeeper())?;
            self.has_changed |= !path.is_empty();
        }
        Ok(Reply { header, frame })
    }

    /// Reads a frame, and writes meanwhile.
    async fn frame(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            self.drop_surplus();
            if let Some((length, rest)) = self.input.split_first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > LARGEST_FRAME {
                    let is_reply = self.heard > self.begun && i32::try_from(length).is_ok();
                    return Err(if is_reply {
                        too_long()
                    } else {
                        not_zookeeper()
                    });
                }
                if rest.len() >= length {
                    let frame = rest[..length].to_vec();
                    self.input.drain(..4 + length);
                    self.heard = clock::now();
                    return Ok(frame);
                }
            }
            poll_fn(|cx| self.poll(cx))
                .await
                .map_err(|error| broken(&error))?;
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        while self.written < self.out.len() {
            match stream.as_mut().poll_write(cx, &self.out[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.out.clear();
        self.written = 0;
        stream.poll_flush(cx)
    }

    /// Writes what there is to write, and returns when something was read.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.poll_write(cx) {
            return Poll::Ready(Err(error));
        }
        let mut chunk = [0; 4096];
        let mut chunk = ReadBuf::new(&mut chunk);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut chunk);
        read.map(|read| {
            read?;
            if chunk.filled().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let dropped = self.surplus.min(chunk.filled().len());
            self.surplus -= dropped;
            self.input.extend(&chunk.filled()[dropped..]);
            Ok(())
        })
    }
}

/// The fault of a server that speaks another protocol.
pub(super) fn not_zookeeper() -> Fault {
    Fault::unfit(
        "it does not speak ZooKeeper's protocol",
        "check the host and the port in --node",
    )
}

/// The fault of a reply that no lock's line has.
fn too_long() -> Fault {
    Fault::unfit(
        "its reply has more than 1 MiB, as where a znode has 10,000 children or more",
        "give the lock another name",
    )
}

/// The fault of a connection that broke.
fn broken(error: &io::Error) -> Fault {
    if let Some(fault) = refusal(error) {
        return fault;
    }
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => format!(
            "the connection broke: {}",
            crate::text::escape::text(&error.to_string())
        ),
    };
    Fault::new(FaultKind::Unknown, why)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    /// A frame of a reply with this xid.
    fn reply(xid: i32, body: usize) -> Vec<u8> {
        let length = u32::try_from(16 + body).unwrap().to_be_bytes();
        [&length[..], &xid.to_be_bytes(), &vec![0; 12 + body]].concat()
    }

    #[tokio::test]
    async fn a_session_that_ends_keeps_no_long_frame_and_hears_what_follows() {
        let (ours, mut theirs) = duplex(LARGEST_FRAME * 4);
        let mut wire = Wire::new(Box::new(ours), None, Duration::from_secs(9));
        let deletion = wire.queue(&Request::Multi(Vec::new()));
        let (long, half) = (reply(77, LARGEST_FRAME - 16), LARGEST_FRAME / 2);
        theirs.write_all(&long[..half]).await.unwrap();
        let limit = Duration::from_millis(50);
        assert!(
            clock::until(clock::now() + limit, wire.changed())
                .await
                .is_none()
        );
        assert!(wire.input.len() == half, "{}", wire.input.len());
        let end = wire.queue_end();
        assert!(wire.input.capacity() <= SHORT);
        theirs.write_all(&long[half..]).await.unwrap();
        theirs.write_all(&long[..half]).await.unwrap();
        assert!(
            clock::until(clock::now() + limit, wire.reply(deletion))
                .await
                .is_none()
        );
        assert!(wire.input.capacity() <= SHORT);
        theirs.write_all(&long[half..]).await.unwrap();
        theirs.write_all(&reply(deletion, 8)).await.unwrap();
        theirs.write_all(&reply(end, 0)).await.unwrap();
        assert!(wire.reply(deletion).await.is_ok());
        assert!(wire.reply(end).await.is_ok());
    }
}
