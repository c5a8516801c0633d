//! What one program says to a server, recorded and said again on other connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::{Parser, PushKind, Value};

use testkit::Server;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// Time after which a connection is tried again (`store/net/dial.rs`).
const AGAIN: Duration = Duration::from_millis(250);

/// Requests of each connection, in the order in which these were made.
type Said = Arc<Mutex<Vec<Vec<Request>>>>;

/// What a client sent in one write.
#[derive(Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// Number of the commands in it.
    commands: usize,
}

/// A way to a server that records what goes along it.
pub(crate) struct Recorder {
    url: String,
    said: Said,
}

impl Recorder {
    /// Opens one to `server`.
    pub(crate) fn before(server: &Server) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("redis://{}", listener.local_addr()?);
        let (said, port) = (Said::default(), server.port());
        let heard = Arc::clone(&said);
        // It ends with the bench.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                pass_on(client, port, &heard);
            }
        });
        Ok(Self { url, said })
    }

    /// Returns the address that leads along it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns what was said on the connection that was made last, once its client has ended.
    pub(crate) fn conversation(&self) -> Result<Conversation> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let last = said.last().filter(|requests| !requests.is_empty());
        Ok(Conversation(last.context("nothing was said")?.clone()))
    }
}

/// Passes on what a client and the server say to each other.
fn pass_on(client: TcpStream, port: u16, said: &Said) {
    let number = {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push(Vec::new());
        said.len() - 1
    };
    let said = Arc::clone(said);
    let note = move |bytes: &[u8]| {
        let request = Request {
            bytes: bytes.to_vec(),
            commands: commands_in(bytes),
        };
        said.lock().unwrap_or_else(PoisonError::into_inner)[number].push(request);
    };
    std::thread::spawn(move || -> io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        let answers = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || copy(answers.0, answers.1, |_| {}));
        copy(client, server, note)
    });
}

fn copy(mut from: TcpStream, mut to: TcpStream, note: impl Fn(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return to.shutdown(Shutdown::Write);
        }
        note(&buffer[..length]);
        to.write_all(&buffer[..length])?;
    }
}

fn commands_in(mut bytes: &[u8]) -> usize {
    let mut parser = Parser::new();
    std::iter::from_fn(|| parser.parse_value(&mut bytes).ok()).count()
}

/// The requests of one connection, each sent after the answers to the one before it.
#[derive(Clone)]
pub(crate) struct Conversation(Vec<Request>);

impl Conversation {
    /// Records what a program says to `server`. `program` gets the address to which it is to
    /// connect.
    pub(crate) fn of(server: &Server, program: impl FnOnce(&str) -> Command) -> Result<Self> {
        let recorder = Recorder::before(server)?;
        let mut program = program(recorder.url());
        program
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        recorder.conversation()
    }

    /// Returns the number of commands.
    pub(crate) fn commands(&self) -> usize {
        self.0.iter().map(|request| request.commands).sum()
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|request| request.bytes.len()).sum()
    }

    /// Returns the same with other words in it, of the same lengths.
    pub(crate) fn with(&self, words: &[(&str, &str)]) -> Self {
        let changed = |request: &Request| {
            let mut bytes = request.bytes.clone();
            for (word, other) in words {
                let (word, other) = (word.as_bytes(), other.as_bytes());
                assert_eq!(word.len(), other.len(), "a request tells its length");
                let mut at = 0;
                while let Some(found) = bytes[at..].windows(word.len()).position(|it| it == word) {
                    at += found;
                    let end = at + word.len();
                    bytes[at..end].copy_from_slice(other);
                    at = end;
                }
            }
            Request {
                bytes,
                commands: request.commands,
            }
        };
        Self(self.0.iter().map(changed).collect())
    }

    /// Returns its requests as text.
    pub(crate) fn text(&self) -> Vec<String> {
        let text = |request: &Request| String::from_utf8_lossy(&request.bytes).into_owned();
        self.0.iter().map(text).collect()
    }

    /// Returns its requests.
    pub(crate) fn requests(&self) -> &[Request] {
        &self.0
    }

    /// Says it on `count` connections at once, and returns the time from the first connection to
    /// the last answer.
    pub(crate) fn replay(&self, server: &Server, count: usize) -> Result<Duration> {
        let begin = Instant::now();
        let mut clients: Vec<Client> = (0..count)
            .map(|_| Client::of(server))
            .collect::<Result<_>>()?;
        for request in &self.0 {
            for client in &mut clients {
                client.send(request)?;
            }
            for client in &mut clients {
                client.answers(request)?;
            }
        }
        Ok(begin.elapsed())
    }
}

/// A connection on which recorded requests are said again.
pub(crate) struct Client {
    stream: TcpStream,
    parser: Parser,
}

impl Client {
    /// Opens one.
    pub(crate) fn of(server: &Server) -> Result<Self> {
        let stream = connected((Ipv4Addr::LOCALHOST, server.port()).into())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let parser = Parser::new();
        Ok(Self { stream, parser })
    }

    pub(crate) fn send(&mut self, request: &Request) -> Result<()> {
        Ok(self.stream.write_all(&request.bytes)?)
    }

    /// Returns the answers to a request that was sent. What the server says unasked is left out.
    pub(crate) fn answers(&mut self, request: &Request) -> Result<Vec<Value>> {
        let mut answers = Vec::with_capacity(request.commands);
        while answers.len() < request.commands {
            match self.next()? {
                Value::Push {
                    kind: PushKind::Message,
                    ..
                } => {}
                answer => answers.push(answer),
            }
        }
        Ok(answers)
    }

    /// Returns what the server says next.
    pub(crate) fn next(&mut self) -> Result<Value> {
        match self.parser.parse_value(&mut self.stream)? {
            Value::ServerError(error) => bail!("the server refused a request: {error:?}"),
            answer => Ok(answer),
        }
    }
}

/// Connects as rlock does: a server whose queue of new connections is full drops the first packet,
/// so it is sent again.
fn connected(address: SocketAddr) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect_timeout(&address, AGAIN) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            made => return made,
        }
    }
}
