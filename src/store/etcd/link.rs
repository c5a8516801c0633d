//! One connection to a member of the cluster: gRPC over HTTP/2.
//!
//! 1. A call is a POST whose body is one message, with a byte and a length before it. The answer is
//!    a message in the same form, and a status in the trailers.
//! 2. A reply has a largest size, so that a hostile or mistaken server costs no more.
//! 3. The stream below notes what it has flushed, so that rlock exits only once a release is
//!    written, and the first byte that came, by which a stranger is known.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::rpc::{first_length, framed, take_first};
use super::status::{Status, stranger};
use crate::secret::Secret;
use crate::store::net::dial::{SAID_NOTHING, Stream};
use crate::store::net::tls::refusal;
use crate::store::{Fault, FaultKind};
use crate::text::escape;

/// Largest headers of a reply, in bytes. etcd's have some hundred.
const HEADER_ROOM: u32 = 16 * 1024;

/// Why a call has no answer that counts.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection is of no more use.
    Broken(Fault),
    /// The member says no.
    Refused(Status),
}

/// State of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LinkState {
    /// Number of times that all that was written has been handed to the kernel.
    flushes: u64,
    /// The first byte that came.
    first: Option<u8>,
    /// Why the server refuses our certificate, if it does.
    refusal: Option<Fault>,
    /// Whether the member has answered a call.
    pub(super) has_answered: bool,
    /// Whether the connection has ended.
    pub(super) is_broken: bool,
}

/// A connection. Its clones are the same one.
#[derive(Clone)]
pub(super) struct Link {
    send: SendRequest<Bytes>,
    /// Scheme and host, as HTTP wants them.
    origin: String,
    state: Arc<watch::Sender<LinkState>>,
    /// Largest reply.
    room: usize,
    /// The password that the member is told.
    password: Option<Secret>,
}

impl Link {
    /// Speaks HTTP/2 over `stream` with the member at `authority`, which is told `password`. The
    /// connection ends with its last clone.
    pub(super) async fn over(
        stream: Box<dyn Stream>,
        authority: &str,
        is_tls: bool,
        room: usize,
        password: Option<Secret>,
    ) -> Result<Self, Fault> {
        let state = Arc::new(watch::Sender::new(LinkState::default()));
        let noted = Noted {
            stream,
            state: Arc::clone(&state),
        };
        let (send, connection) = h2::client::Builder::new()
            .enable_push(false)
            .max_header_list_size(HEADER_ROOM)
            .handshake(noted)
            .await
            .map_err(|error| broken(&error, &state.borrow()))?;
        tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                // Each call is told its own error.
                let _ = connection.await;
                state.send_modify(|state| state.is_broken = true);
            }
        });
        let scheme = if is_tls { "https" } else { "http" };
        Ok(Self {
            send,
            origin: format!("{scheme}://{authority}"),
            state,
            room,
            password,
        })
    }

    /// Returns what is known of the connection.
    pub(super) fn state(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// Gives the connection up, which leads to a member that does not answer.
    pub(super) fn abandon(&self) {
        self.state.send_modify(|state| state.is_broken = true);
    }

    /// Returns when the connection has ended.
    pub(super) async fn ended(&self) {
        let _ = self
            .state
            .subscribe()
            .wait_for(|state| state.is_broken)
            .await;
    }

    /// Calls `path` with `message`, and returns the answer. `written` hears when the kernel has the
    /// request.
    pub(super) async fn call(
        &self,
        path: &str,
        token: Option<&str>,
        message: Vec<u8>,
        written: &(dyn Fn() + Sync),
    ) -> Result<Vec<u8>, Failed> {
        let mut answers = self.begin(path, token, message, written, true).await?;
        let answer = answers.next().await?;
        let reply = answer.ok_or_else(|| {
            Failed::Broken(Fault::new(
                FaultKind::Unknown,
                "it ended a call without an answer",
            ))
        })?;
        // The trailers end the stream; a status in them says that all went well.
        self.state.send_if_modified(|state| {
            state.has_answered = true;
            false
        });
        Ok(reply)
    }

    /// Calls `path` with `message`, and returns the answers as they come. `is_last`: no other
    /// message follows.
    pub(super) async fn begin(
        &self,
        path: &str,
        token: Option<&str>,
        message: Vec<u8>,
        written: &(dyn Fn() + Sync),
        is_last: bool,
    ) -> Result<Answers, Failed> {
        let fail = |error: h2::Error| Failed::Broken(broken(&error, &self.state()));
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.origin))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            // A member without a leader answers at once then, and ends its watches.
            .header("hasleader", "true");
        if let Some(token) = token.and_then(|token| HeaderValue::from_str(token).ok()) {
            request = request.header("token", token);
        }
        let request = request
            .body(())
            .map_err(|_| Failed::Broken(Fault::new(FaultKind::Unfit, "invalid address")))?;
        let mut send = self.send.clone().ready().await.map_err(fail)?;
        let (response, mut body) = send.send_request(request, false).map_err(fail)?;
        let before = self.state().flushes;
        body.send_data(framed(&message), is_last).map_err(fail)?;
        let flushed = |state: &LinkState| state.flushes > before || state.is_broken;
        let _ = self.state.subscribe().wait_for(flushed).await;
        written();
        let response = response.await.map_err(fail)?;
        let (parts, stream) = response.into_parts();
        if parts.status != StatusCode::OK {
            let why = format!("it answers with HTTP status {}", parts.status.as_u16());
            return Err(Failed::Broken(Fault::unfit(
                why,
                "write the client port of an etcd, and no proxy of another protocol",
            )));
        }
        if let Some(status) = Status::of(&parts.headers, self.password.as_ref()) {
            status.map_err(Failed::Refused)?;
        }
        Ok(Answers {
            link: self.clone(),
            stream,
            _body: body,
            buffer: BytesMut::new(),
        })
    }
}

/// The answers to one call.
pub(super) struct Answers {
    link: Link,
    stream: RecvStream,
    /// Kept open where more may be asked: a watch ends with it.
    _body: SendStream<Bytes>,
    buffer: BytesMut,
}

impl Answers {
    /// Returns the next one; `None` at the end of them.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failed> {
        loop {
            if let Some(message) = self.taken()? {
                return Ok(Some(message));
            }
            let data = tokio::select! {
                biased;
                data = self.stream.data() => data,
                () = self.link.ended() => {
                    return Err(Failed::Broken(Fault::new(
                        FaultKind::Unknown,
                        "the connection was given up",
                    )));
                }
            };
            let Some(data) = data else {
                let trailers = self.stream.trailers().await.map_err(|e| self.fail(&e))?;
                let status = trailers
                    .as_ref()
                    .and_then(|trailers| Status::of(trailers, self.link.password.as_ref()));
                return status
                    .unwrap_or(Ok(()))
                    .map(|()| None)
                    .map_err(Failed::Refused);
            };
            let data = data.map_err(|e| self.fail(&e))?;
            let _ = self.stream.flow_control().release_capacity(data.len());
            self.buffer.put(data);
        }
    }

    /// Takes a whole message out of what has come.
    fn taken(&mut self) -> Result<Option<Vec<u8>>, Failed> {
        let Some(length) = first_length(&self.buffer) else {
            return Ok(None);
        };
        if length > self.link.room || self.buffer[0] != 0 {
            let why = format!("a reply of over {} KiB", self.link.room / 1024);
            return Err(Failed::Broken(Fault::new(FaultKind::Unknown, why)));
        }
        Ok(take_first(&mut self.buffer))
    }

    fn fail(&self, error: &h2::Error) -> Failed {
        Failed::Broken(broken(error, &self.link.state()))
    }
}

/// The fault of a connection that broke, of which this is known.
fn broken(error: &h2::Error, known: &LinkState) -> Fault {
    let told = known.refusal.clone().or_else(|| stranger(known.first));
    told.unwrap_or_else(|| {
        // A goodbye has words of the server, which could show the password.
        let why = match (error.get_io(), error.reason()) {
            (Some(io), _) => io.to_string(),
            (None, Some(reason)) => reason.to_string(),
            (None, None) => error.to_string(),
        };
        let why = format!("the connection broke: {}", escape::short(&why));
        let fault = Fault::new(FaultKind::Unknown, why);
        match known.first {
            Some(_) => fault,
            None => fault.with_remedy(SAID_NOTHING),
        }
    })
}

/// Returns the header `name` as text.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// A stream that notes what happens on it.
struct Noted {
    stream: Box<dyn Stream>,
    state: Arc<watch::Sender<LinkState>>,
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.hear(&buffer.filled()[before..], &result);
        Poll::Ready(result)
    }
}

impl Noted {
    /// Notes the first byte that comes, and whether the server refuses our certificate. With TLS
    /// 1.3 that is told only then.
    fn hear<T>(&self, bytes: &[u8], result: &io::Result<T>) {
        let refusal = result.as_ref().err().and_then(refusal);
        self.state.send_if_modified(|state| {
            state.first = state.first.or(bytes.first().copied());
            state.refusal = state.refusal.take().or(refusal);
            false
        });
    }
}

impl AsyncWrite for Noted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        if result.is_err() {
            self.hear(&[], &result);
            // The server may have said why it closed the connection, and nothing is read any more.
            let mut first = [0; 64];
            let mut buffer = ReadBuf::new(&mut first);
            if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                self.hear(buffer.filled(), &read);
            }
        }
        Poll::Ready(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if result.is_ok() {
            self.state.send_modify(|state| state.flushes += 1);
        }
        Poll::Ready(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Response;
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    /// Largest reply of these tests.
    const ROOM: usize = 1024;

    /// A member that answers each call with these headers, this body and these trailers.
    #[derive(Clone, Default)]
    struct Scripted {
        headers: Vec<(&'static str, &'static str)>,
        body: Vec<u8>,
        trailers: Vec<(&'static str, &'static str)>,
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = all.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    /// Calls the member, and returns what it was sent and its answer.
    fn called(scripted: Scripted, message: &[u8]) -> (Vec<u8>, Result<Vec<u8>, Failed>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (ours, theirs) = duplex(1 << 20);
            let serving = tokio::spawn(async move {
                let mut server = h2::server::handshake(theirs).await.unwrap();
                let (request, mut respond) = server.accept().await.unwrap().unwrap();
                let (parts, mut body) = request.into_parts();
                assert_eq!(parts.uri.path(), "/etcdserverpb.KV/Range");
                assert_eq!(header(&parts.headers, "token"), Some("t"));
                let answering = async move {
                    let asked = body.data().await.unwrap().unwrap();
                    let mut response = Response::new(());
                    *response.headers_mut() = headers(&scripted.headers);
                    let is_over = scripted.body.is_empty() && scripted.trailers.is_empty();
                    let mut send = respond.send_response(response, is_over).unwrap();
                    if !is_over {
                        send.send_data(scripted.body.into(), false).unwrap();
                        send.send_trailers(headers(&scripted.trailers)).unwrap();
                    }
                    asked.to_vec()
                };
                let asked = answering.await;
                // Goes on until the client is gone.
                while server.accept().await.is_some() {}
                asked
            });
            let link = Link::over(Box::new(ours), "h:1", false, ROOM, None)
                .await
                .unwrap();
            let is_written = AtomicBool::new(false);
            let answer = link
                .call(
                    "/etcdserverpb.KV/Range",
                    Some("t"),
                    message.to_vec(),
                    &|| is_written.store(true, Ordering::Relaxed),
                )
                .await;
            assert!(
                is_written.into_inner(),
                "the request is written before its answer comes"
            );
            drop(link);
            (serving.await.unwrap(), answer)
        })
    }

    #[test]
    fn a_message_goes_and_comes_behind_its_length() {
        let scripted = Scripted {
            body: b"\0\0\0\0\x03abc".to_vec(),
            trailers: vec![("grpc-status", "0")],
            ..Scripted::default()
        };
        let (asked, answer) = called(scripted, b"key");
        assert_eq!(asked, b"\0\0\0\0\x03key");
        assert_eq!(answer.unwrap(), b"abc");
    }

    #[test]
    fn a_refusal_is_read_from_the_trailers_and_from_the_headers() {
        let refusal = vec![
            ("grpc-status", "9"),
            ("grpc-message", "lease already exists"),
        ];
        for scripted in [
            Scripted {
                headers: refusal.clone(),
                ..Scripted::default()
            },
            Scripted {
                trailers: refusal,
                ..Scripted::default()
            },
        ] {
            match called(scripted, b"").1 {
                Err(Failed::Refused(status)) => assert!(status.is_lease_known()),
                answer => panic!("{answer:?}"),
            }
        }
    }

    #[test]
    fn a_reply_that_is_too_long_compressed_or_missing_is_none() {
        let long = [&b"\0\0\0\x10\0"[..], &[7; 4096]].concat();
        for (body, told) in [
            (long, "a reply of over"),
            (b"\x01\0\0\0\x01a".to_vec(), "a reply of over"),
            (b"\0\0\0\0\x09abc".to_vec(), "without an answer"),
        ] {
            let scripted = Scripted {
                body,
                trailers: vec![("grpc-status", "0")],
                ..Scripted::default()
            };
            match called(scripted, b"").1 {
                Err(Failed::Broken(fault)) => assert!(fault.why.contains(told), "{fault}"),
                answer => panic!("{answer:?}"),
            }
        }
    }

    #[test]
    fn headers_that_are_too_long_are_no_answer() {
        let long: &str = Box::leak("x".repeat(HEADER_ROOM as usize).into_boxed_str());
        let scripted = Scripted {
            headers: vec![("x", long)],
            trailers: vec![("grpc-status", "0")],
            body: b"\0\0\0\0\x03abc".to_vec(),
        };
        let answer = called(scripted, b"").1;
        assert!(matches!(answer, Err(Failed::Broken(_))), "{answer:?}");
    }

    #[test]
    fn a_server_of_another_kind_is_told_from_one_that_went_away() {
        for (first, kind) in [
            (&b"-ERR unknown command\r\n"[..], FaultKind::Unfit),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", FaultKind::Unfit),
            (b"", FaultKind::Unknown),
        ] {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let answer = runtime.block_on(async {
                let (ours, mut theirs) = duplex(1 << 16);
                let link = Link::over(Box::new(ours), "h:1", false, ROOM, None)
                    .await
                    .unwrap();
                theirs.write_all(first).await.unwrap();
                drop(theirs);
                link.call("/x", None, Vec::new(), &|| {}).await
            });
            match answer {
                Err(Failed::Broken(fault)) => assert_eq!(fault.kind, kind, "{fault}"),
                answer => panic!("{answer:?}"),
            }
        }
    }
}
