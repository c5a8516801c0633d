//! One client's connection: PostgreSQL's protocol, version 3, as far as simple queries need it.

use super::rows::Answer;
use super::value::SqlError;

/// A message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The first one.
    Startup,
    /// A simple query.
    Query(String),
    /// The end of the session.
    Terminate,
}

/// The type of each column: text.
const TEXT: u32 = 25;

/// The bytes of a client that make no whole message yet.
#[derive(Debug, Default)]
pub struct Incoming {
    buffer: Vec<u8>,
    is_started: bool,
}

impl Incoming {
    /// Takes bytes, and returns the messages that they complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.buffer.extend(bytes);
        let mut all = Vec::new();
        while let Some(message) = self.first() {
            all.push(message);
        }
        all
    }

    fn first(&mut self) -> Option<Message> {
        // The first message has no type.
        let head = usize::from(self.is_started);
        let length = self.buffer.get(head..head + 4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let end = head + usize::try_from(length).ok()?;
        if self.buffer.len() < end {
            return None;
        }
        let message: Vec<u8> = self.buffer.drain(..end).collect();
        if !self.is_started {
            self.is_started = true;
            return Some(Message::Startup);
        }
        match message[0] {
            b'Q' => {
                let text = &message[5..end - 1];
                Some(Message::Query(String::from_utf8_lossy(text).into_owned()))
            }
            _ => Some(Message::Terminate),
        }
    }
}

/// Returns the answer to the first message. `process`: number of the session's process.
pub fn greeting(process: u32) -> Vec<u8> {
    let mut bytes = framed(b'R', &0_u32.to_be_bytes());
    bytes.extend(framed(b'S', b"server_version\x0015.0\0"));
    let key = [process.to_be_bytes(), [0; 4]].concat();
    bytes.extend(framed(b'K', &key));
    bytes.extend(ready());
    bytes
}

/// Returns the answers to the statements of a query, and what has ended it.
pub fn answered(answers: &[Answer], error: Option<&SqlError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for answer in answers {
        if let Answer::Rows(columns, rows) = answer {
            bytes.extend(described(*columns));
            for row in rows {
                bytes.extend(shown(row));
            }
        }
        bytes.extend(framed(b'C', format!("{}\0", answer.tag()).as_bytes()));
    }
    if let Some(error) = error {
        bytes.extend(refused(error, "ERROR"));
    }
    bytes.extend(ready());
    bytes
}

/// Returns an error that ends the session.
pub fn fatal(error: &SqlError) -> Vec<u8> {
    refused(error, "FATAL")
}

fn refused(SqlError(code, words): &SqlError, severity: &str) -> Vec<u8> {
    let fields = format!("S{severity}\0V{severity}\0C{code}\0M{words}\0\0");
    framed(b'E', fields.as_bytes())
}

fn described(columns: usize) -> Vec<u8> {
    let mut body = short(columns).to_vec();
    for _ in 0..columns {
        body.extend(b"?column?\0");
        body.extend([0; 6]);
        body.extend(TEXT.to_be_bytes());
        body.extend([0xff; 6]);
        body.extend([0; 2]);
    }
    framed(b'T', &body)
}

fn shown(row: &[Option<String>]) -> Vec<u8> {
    let mut body = short(row.len()).to_vec();
    for cell in row {
        match cell {
            None => body.extend([0xff; 4]),
            Some(text) => {
                body.extend(long(text.len()));
                body.extend(text.as_bytes());
            }
        }
    }
    framed(b'D', &body)
}

fn ready() -> Vec<u8> {
    framed(b'Z', b"I")
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &long(body.len() + 4), body].concat()
}

fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

fn long(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()
}
