//! One client's connection to a member: gRPC over HTTP/2, moved on by hand. It needs no runtime, so
//! the bytes that come are served in no time.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::{self, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use rlock::store::etcd::rpc::{framed, take_first};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::store::Refusal;

/// A call of a client, whose message has come.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number on the connection.
    pub number: u64,
    /// Its name: what stands behind the last slash of its path.
    pub name: String,
    /// The message.
    pub message: Vec<u8>,
}

/// The server's end of a connection.
pub struct Connection {
    pipe: Pipe,
    state: State,
    open: BTreeMap<u64, OpenCall>,
    /// Number of calls so far.
    begun: u64,
}

enum State {
    Shaking(Box<server::Handshake<Pipe, Bytes>>),
    Open(Box<server::Connection<Pipe, Bytes>>),
    Over,
}

struct OpenCall {
    name: String,
    body: RecvStream,
    buffer: BytesMut,
    is_asked: bool,
    answer: Answering,
}

enum Answering {
    Not(SendResponse<Bytes>),
    Begun(SendStream<Bytes>),
}

impl Connection {
    /// A connection on which nothing has come.
    pub fn new() -> Self {
        let pipe = Pipe::default();
        Self {
            state: State::Shaking(Box::new(server::handshake(pipe.clone()))),
            pipe,
            open: BTreeMap::new(),
            begun: 0,
        }
    }

    /// Takes bytes, and returns the calls that they complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<Call> {
        self.pipe.held().incoming.extend(bytes);
        self.go_on();
        let mut context = Context::from_waker(Waker::noop());
        let mut calls = Vec::new();
        self.open.retain(|number, call| {
            while let Poll::Ready(Some(data)) = call.body.poll_data(&mut context) {
                let Ok(data) = data else { return false };
                let _ = call.body.flow_control().release_capacity(data.len());
                call.buffer.put(data);
            }
            if !call.is_asked
                && let Some(message) = take_first(&mut call.buffer)
            {
                call.is_asked = true;
                calls.push(Call {
                    number: *number,
                    name: call.name.clone(),
                    message,
                });
            }
            let reset = match &mut call.answer {
                Answering::Not(respond) => respond.poll_reset(&mut context),
                Answering::Begun(send) => send.poll_reset(&mut context),
            };
            reset.is_pending()
        });
        calls
    }

    /// Whether the client still waits for answers to this call.
    pub fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// Answers a call with one message, which ends it.
    pub fn answer(&mut self, number: u64, message: &[u8]) {
        self.tell(number, message);
        if let Some(OpenCall {
            answer: Answering::Begun(mut send),
            ..
        }) = self.open.remove(&number)
        {
            let _ = send.send_trailers(status("0", ""));
        }
    }

    /// Answers a call with a message, after which others may come.
    pub fn tell(&mut self, number: u64, message: &[u8]) {
        let Some(call) = self.open.get_mut(&number) else {
            return;
        };
        if let Answering::Not(respond) = &mut call.answer {
            let Ok(send) = respond.send_response(Response::new(()), false) else {
                return;
            };
            call.answer = Answering::Begun(send);
        }
        if let Answering::Begun(send) = &mut call.answer {
            let _ = send.send_data(framed(message), false);
        }
    }

    /// Refuses a call, or ends one that has had answers.
    pub fn refuse(&mut self, number: u64, Refusal(code, words): Refusal) {
        let Some(call) = self.open.remove(&number) else {
            return;
        };
        match call.answer {
            Answering::Not(mut respond) => {
                let mut response = Response::new(());
                *response.headers_mut() = status(code, words);
                let _ = respond.send_response(response, true);
            }
            Answering::Begun(mut send) => {
                let _ = send.send_trailers(status(code, words));
            }
        }
    }

    /// Takes the bytes that are to be sent.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        self.go_on();
        std::mem::take(&mut self.pipe.held().outgoing)
    }

    fn go_on(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match &mut self.state {
                State::Over => return,
                State::Shaking(shaking) => match Pin::new(shaking).poll(&mut context) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(open)) => self.state = State::Open(Box::new(open)),
                    Poll::Ready(Err(_)) => self.state = State::Over,
                },
                State::Open(open) => match open.poll_accept(&mut context) {
                    Poll::Pending => return,
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        let path = request.uri().path();
                        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                        self.begun += 1;
                        let call = OpenCall {
                            name,
                            body: request.into_body(),
                            buffer: BytesMut::new(),
                            is_asked: false,
                            answer: Answering::Not(respond),
                        };
                        self.open.insert(self.begun, call);
                    }
                    Poll::Ready(Some(Err(_)) | None) => self.state = State::Over,
                },
            }
        }
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection with {} open calls", self.open.len())
    }
}

fn status(code: &'static str, words: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from_static(code));
    headers.insert("grpc-message", HeaderValue::from_static(words));
    headers
}

/// The bytes of a connection, between the network and HTTP/2.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Bytewise>>);

#[derive(Default)]
struct Bytewise {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
}

impl Pipe {
    fn held(&self) -> MutexGuard<'_, Bytewise> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut held = self.held();
        if held.incoming.is_empty() {
            return Poll::Pending;
        }
        let count = buffer.remaining().min(held.incoming.len());
        let bytes: Vec<u8> = held.incoming.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.held().outgoing.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
