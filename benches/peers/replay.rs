//! What one program says to a server, recorded and said again on many connections at once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use redis::{Parser, Value};

use testkit::Server;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// Time after which a connection is tried again (`store/net/dial.rs`).
const AGAIN: Duration = Duration::from_millis(250);

/// The requests of one connection, each sent after the answer to the one before it. Of requests
/// that were sent together, the first has the bytes of all.
pub(crate) struct Conversation(Vec<Vec<u8>>);

impl Conversation {
    /// Records what a program says over its one connection to `server`. `program` gets the address
    /// to which it is to connect.
    pub(crate) fn of(server: &Server, program: impl FnOnce(&str) -> Command) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("redis://{}", listener.local_addr()?);
        let mut program = program(&url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let (client, _) = listener.accept()?;
        let requests = recorded(
            client,
            TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?,
        )?;
        program.wait()?;
        ensure!(!requests.is_empty(), "nothing was said");
        Ok(Self(requests))
    }

    /// Returns the number of commands.
    pub(crate) fn commands(&self) -> usize {
        self.0.len()
    }

    /// Says it on `count` connections at once, and returns the time from the first connection to
    /// the last answer.
    pub(crate) fn replay(&self, server: &Server, count: usize) -> Result<Duration> {
        let begin = Instant::now();
        let connect = || -> Result<_> {
            let stream = connected((Ipv4Addr::LOCALHOST, server.port()).into())?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            Ok((stream, Parser::new()))
        };
        let mut clients: Vec<(TcpStream, Parser)> =
            (0..count).map(|_| connect()).collect::<Result<_>>()?;
        for request in &self.0 {
            for (stream, _) in &mut clients {
                stream.write_all(request)?;
            }
            for (stream, parser) in &mut clients {
                if let Value::ServerError(error) = parser.parse_value(&mut *stream)? {
                    bail!("the server refused a request: {error:?}");
                }
            }
        }
        Ok(begin.elapsed())
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

/// Passes on what `client` and `server` say to each other until the client has gone. Returns the
/// client's requests.
fn recorded(client: TcpStream, server: TcpStream) -> Result<Vec<Vec<u8>>> {
    let (mut client, mut server) = (Heard::new(client), Heard::new(server));
    let mut requests = Vec::new();
    while client.next()? {
        server.from.write_all(&client.bytes)?;
        ensure!(server.next()?, "the server gave no answer");
        client.from.write_all(&server.bytes)?;
        requests.push(std::mem::take(&mut client.bytes));
    }
    Ok(requests)
}

/// One side, and the bytes that it said last.
struct Heard {
    from: TcpStream,
    parser: Parser,
    bytes: Vec<u8>,
}

impl Heard {
    fn new(from: TcpStream) -> Self {
        Self {
            from,
            parser: Parser::new(),
            bytes: Vec::new(),
        }
    }

    /// Reads a request or an answer; false if the side has gone.
    fn next(&mut self) -> Result<bool> {
        self.bytes.clear();
        let mut noted = Noted {
            from: &self.from,
            bytes: &mut self.bytes,
        };
        match self.parser.parse_value(&mut noted) {
            Ok(_) => Ok(true),
            Err(_) if self.bytes.is_empty() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Keeps what it reads.
struct Noted<'a> {
    from: &'a TcpStream,
    bytes: &'a mut Vec<u8>,
}

impl Read for Noted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}
