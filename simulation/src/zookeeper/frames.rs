//! The server's side of the protocol: it reads what clients write, and writes what they read.

use rlock::store::zookeeper::jute::{
    Frame, Kind, Malformed, Operation, Reader, Request, XID_OF_EVENT, code,
};

use super::tree::{Answer, Happening};

/// The zxid of what is about no transaction.
const NO_ZXID: i64 = -1;

/// The state of a connection in the events that it is told (`Watcher.java`, `SyncConnected`).
const CONNECTED: i32 = 3;

/// The request with which a connection begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The last transaction that the client has seen.
    pub zxid: i64,
    /// The timeout that it wants, in ms.
    pub timeout: i32,
    /// 0: a new session.
    pub session: i64,
    pub password: Vec<u8>,
}

/// Takes the first frame that has come, if it is whole.
pub fn take_first(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(*input.first_chunk()?);
    let whole = usize::try_from(length).ok()?.checked_add(4)?;
    if input.len() < whole {
        return None;
    }
    let frame = input.drain(..whole).skip(4).collect();
    Some(frame)
}

/// Returns the password of a session, which is a function of its number there too.
pub fn password(session: i64) -> Vec<u8> {
    let mixed = session.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0xb341_5c00;
    [session.to_be_bytes(), mixed.to_be_bytes()].concat()
}

/// Reads the first request of a connection.
pub fn connect(frame: &[u8]) -> Result<Connect, Malformed> {
    let mut body = Reader(frame);
    body.int()?;
    Ok(Connect {
        zxid: body.long()?,
        timeout: body.int()?,
        session: body.long()?,
        password: body.buffer()?.to_vec(),
    })
}

/// Returns the answer to it: the session and its timeout, or that it is over.
pub fn greeting(session: Option<(i64, i32)>) -> Vec<u8> {
    let mut frame = Frame::default();
    let (id, timeout) = session.unwrap_or_default();
    frame.int(0);
    frame.int(timeout);
    frame.long(id);
    frame.buffer(&session.map_or(vec![0; 16], |(id, _)| password(id)));
    frame.byte(0);
    frame.finished()
}

/// Reads a request, and its xid.
pub fn request(frame: &[u8]) -> Result<(i32, Request), Malformed> {
    let mut body = Reader(frame);
    let (xid, kind) = (body.int()?, body.int()?);
    let request = match kind {
        code::MULTI => Request::Multi(parts(&mut body)?),
        code::GET_CHILDREN => Request::Children(body.text()?, body.byte()? != 0),
        code::GET_DATA => Request::Data(body.text()?, body.byte()? != 0),
        code::CREATE_CONTAINER => match create(&mut body)? {
            Operation::Create(path, _, Kind::Container) => Request::Container(path),
            _ => return Err(Malformed),
        },
        code::PING => Request::Ping,
        code::CLOSE => Request::Close,
        _ => return Err(Malformed),
    };
    Ok((xid, request))
}

fn parts(body: &mut Reader<'_>) -> Result<Vec<Operation>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let (kind, is_last) = (body.int()?, body.byte()? != 0);
        body.int()?;
        if is_last {
            return Ok(parts);
        }
        parts.push(match kind {
            code::CREATE => create(body)?,
            code::DELETE => Operation::Delete(body.text()?, body.int()?),
            code::SET_DATA => Operation::Set(body.text()?, body.buffer()?.to_vec(), body.int()?),
            code::CHECK => Operation::Check(body.text()?, body.int()?),
            _ => return Err(Malformed),
        });
    }
}

fn create(body: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let (path, data) = (body.text()?, body.buffer()?.to_vec());
    for _ in 0..body.int()? {
        body.int()?;
        body.buffer()?;
        body.buffer()?;
    }
    let flags = body.int()?;
    let all = [
        Kind::Persistent,
        Kind::Ephemeral,
        Kind::EphemeralSequential,
        Kind::Container,
    ];
    let kind = all.into_iter().find(|kind| *kind as i32 == flags);
    Ok(Operation::Create(path, data, kind.ok_or(Malformed)?))
}

/// Returns the reply to the request of `xid`, after the transaction `zxid`.
pub fn reply(xid: i32, zxid: i64, answer: &Answer) -> Vec<u8> {
    let mut frame = Frame::default();
    frame.int(xid);
    frame.long(zxid);
    match answer {
        Answer::Failed(code) => frame.int(*code),
        _ => frame.int(0),
    }
    match answer {
        Answer::Nothing | Answer::Failed(_) => {}
        Answer::Made(path, stat) => {
            frame.buffer(path.as_bytes());
            stat.write(&mut frame);
        }
        Answer::Multi(parts) => {
            for part in parts {
                part.write(&mut frame);
            }
            frame.part_header(code::ERROR, true);
        }
        Answer::Children(names) => {
            frame.int(i32::try_from(names.len()).unwrap_or(i32::MAX));
            for name in names {
                frame.buffer(name.as_bytes());
            }
        }
        Answer::Data(data, stat) => {
            frame.buffer(data);
            stat.write(&mut frame);
        }
    }
    frame.finished()
}

/// Returns what a watch is told.
pub fn event(happening: Happening, path: &str) -> Vec<u8> {
    let mut frame = Frame::default();
    frame.int(XID_OF_EVENT);
    frame.long(NO_ZXID);
    frame.int(0);
    frame.int(happening as i32);
    frame.int(CONNECTED);
    frame.buffer(path.as_bytes());
    frame.finished()
}
