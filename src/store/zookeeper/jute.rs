//! ZooKeeper's wire format: the records of `zookeeper.jute` that a lock needs, as jute's
//! `BinaryOutputArchive` writes them. Numbers are big-endian; texts, buffers and lists begin with
//! their length as an int, which is -1 for null.
//!
//! Each frame begins with its length. The first one of a connection is a `ConnectRequest`, or a
//! `ConnectResponse`. All others begin with a `RequestHeader` or a `ReplyHeader`.

use std::time::Duration;

/// Largest frame that is read, in bytes: a list of some ten thousand entries.
pub const LARGEST_FRAME: usize = 1 << 20;

/// The xids of what is no request of ours (`ClientCnxn.java`).
pub const XID_OF_EVENT: i32 = -1;
pub const XID_OF_PING: i32 = -2;
const XID_OF_AUTH: i32 = -4;

/// All rights for all users, Curator's and kazoo's default (`ZooDefs.java`).
const PERMS_ALL: i32 = 31;

/// The version that leaves a znode's version out of account.
pub const ANY_VERSION: i32 = -1;

/// A session, as a server gave it to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: i64,
    pub password: Vec<u8>,
    /// Its timeout, as it was agreed on when it began. A new leader counts by this one.
    pub timeout: Duration,
}

/// How a znode is created (`CreateMode.java`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Persistent = 0,
    Ephemeral = 1,
    EphemeralSequential = 3,
    Container = 4,
}

/// A part of a multi, which is executed as a whole or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Create(String, Vec<u8>, Kind),
    Delete(String, i32),
    Set(String, Vec<u8>, i32),
    Check(String, i32),
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Multi(Vec<Operation>),
    /// The names of a znode's children; `true`: their next change is told.
    Children(String, bool),
    /// A znode's data; `true`: its next change is told.
    Data(String, bool),
    /// A znode that the server deletes some time after its last child.
    Container(String),
    Ping,
    /// `user:password`, for the rights of scheme `digest`.
    Login(String),
    Close,
}

/// Codes of requests (`ZooDefs.java`).
pub mod code {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_CHILDREN: i32 = 8;
    pub const PING: i32 = 11;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const AUTH: i32 = 100;
    pub const CLOSE: i32 = -11;
    pub const ERROR: i32 = -1;
}

/// Codes of errors (`KeeperException.java`).
pub mod error {
    pub const UNIMPLEMENTED: i32 = -6;
    pub const NO_NODE: i32 = -101;
    pub const NO_AUTH: i32 = -102;
    pub const BAD_VERSION: i32 = -103;
    pub const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub const NODE_EXISTS: i32 = -110;
    pub const SESSION_EXPIRED: i32 = -112;
    pub const AUTH_FAILED: i32 = -115;
    /// Of the parts of a multi that were not tried because another one failed.
    pub const NOT_TRIED: i32 = -2;
}

/// A frame that is no record of ZooKeeper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// A znode's state, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The transaction that created it.
    pub czxid: u64,
    /// When that was, unix time in ms.
    pub ctime: u64,
    /// When its data were set last, likewise.
    pub mtime: u64,
    /// Number of times that its data were set.
    pub version: i32,
    /// The session that it ends with; 0 if it ends with none.
    pub owner: i64,
}

/// An answer to [`connect`]: the session, and how long it lasts unless the server hears of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// `None` if the session that was named is over.
    pub session: Option<Session>,
}

/// The beginning of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub xid: i32,
    pub zxid: i64,
    pub error: i32,
}

/// Returns the frame that begins a new session, or attaches to `session`.
pub fn connect(session: Option<&Session>, timeout: Duration) -> Vec<u8> {
    let mut frame = Frame::default();
    frame.int(0);
    // The last transaction that was seen. All that a session asks for is behind one of its own.
    frame.long(0);
    frame.int(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    frame.long(session.map_or(0, |session| session.id));
    match session {
        Some(session) => frame.buffer(&session.password),
        None => frame.buffer(&[0; 16]),
    }
    // Never a session of a server without a quorum (`readOnly`).
    frame.byte(0);
    frame.finished()
}

/// Reads the answer to [`connect`].
pub fn greeting(body: &[u8]) -> Result<Greeting, Malformed> {
    let mut body = Reader(body);
    body.int()?;
    let timeout = body.int()?;
    let (id, password) = (body.long()?, body.buffer()?.to_vec());
    let timeout = Duration::from_millis(u64::try_from(timeout).map_err(|_| Malformed)?);
    let session = (id != 0 && !timeout.is_zero()).then_some(Session {
        id,
        password,
        timeout,
    });
    Ok(Greeting { session })
}

impl Request {
    /// Returns the frame of the request, and the xid of its reply.
    pub fn frame(&self, next: i32) -> (i32, Vec<u8>) {
        let (xid, code) = match self {
            Self::Multi(_) => (next, code::MULTI),
            Self::Children(..) => (next, code::GET_CHILDREN),
            Self::Data(..) => (next, code::GET_DATA),
            Self::Container(_) => (next, code::CREATE_CONTAINER),
            Self::Ping => (XID_OF_PING, code::PING),
            Self::Login(_) => (XID_OF_AUTH, code::AUTH),
            Self::Close => (next, code::CLOSE),
        };
        let mut frame = Frame::default();
        frame.int(xid);
        frame.int(code);
        match self {
            Self::Multi(operations) => {
                for part in operations {
                    frame.part(part);
                }
                frame.part_header(code::ERROR, true);
            }
            Self::Children(path, is_watched) | Self::Data(path, is_watched) => {
                frame.path(path, *is_watched);
            }
            Self::Container(path) => frame.create(path, &[], Kind::Container),
            Self::Login(login) => {
                frame.int(0);
                frame.buffer(b"digest");
                frame.buffer(login.as_bytes());
            }
            Self::Ping | Self::Close => {}
        }
        (xid, frame.finished())
    }
}

/// A frame that is being written.
#[derive(Debug)]
pub struct Frame(Vec<u8>);

impl Default for Frame {
    /// The length comes first, and is known last.
    fn default() -> Self {
        Self(vec![0; 4])
    }
}

impl Frame {
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn int(&mut self, number: i32) {
        self.0.extend(number.to_be_bytes());
    }

    pub fn long(&mut self, number: i64) {
        self.0.extend(number.to_be_bytes());
    }

    pub fn buffer(&mut self, bytes: &[u8]) {
        // What rlock writes is a few kilobytes long.
        self.int(i32::try_from(bytes.len()).unwrap_or_default());
        self.0.extend(bytes);
    }

    fn path(&mut self, path: &str, is_watched: bool) {
        self.buffer(path.as_bytes());
        self.byte(u8::from(is_watched));
    }

    fn create(&mut self, path: &str, data: &[u8], kind: Kind) {
        self.buffer(path.as_bytes());
        self.buffer(data);
        // One entry of the access list.
        self.int(1);
        self.int(PERMS_ALL);
        self.buffer(b"world");
        self.buffer(b"anyone");
        self.int(kind as i32);
    }

    pub fn part_header(&mut self, code: i32, is_last: bool) {
        self.int(code);
        self.byte(u8::from(is_last));
        self.int(-1);
    }

    fn part(&mut self, part: &Operation) {
        match part {
            Operation::Create(path, data, kind) => {
                self.part_header(code::CREATE, false);
                self.create(path, data, *kind);
            }
            Operation::Delete(path, version) => {
                self.part_header(code::DELETE, false);
                self.buffer(path.as_bytes());
                self.int(*version);
            }
            Operation::Set(path, data, version) => {
                self.part_header(code::SET_DATA, false);
                self.buffer(path.as_bytes());
                self.buffer(data);
                self.int(*version);
            }
            Operation::Check(path, version) => {
                self.part_header(code::CHECK, false);
                self.buffer(path.as_bytes());
                self.int(*version);
            }
        }
    }

    /// Returns the frame with its length.
    pub fn finished(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or_default();
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// A reply that is being read.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Malformed)?),
        }
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.buffer()?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }

    fn stat(&mut self) -> Result<Stat, Malformed> {
        let czxid = u64::try_from(self.long()?).map_err(|_| Malformed)?;
        // mzxid
        self.take(8)?;
        let ctime = u64::try_from(self.long()?).map_err(|_| Malformed)?;
        let mtime = u64::try_from(self.long()?).map_err(|_| Malformed)?;
        let version = self.int()?;
        // cversion, aversion
        self.take(8)?;
        let owner = self.long()?;
        // dataLength, numChildren, pzxid
        self.take(16)?;
        Ok(Stat {
            czxid,
            ctime,
            mtime,
            version,
            owner,
        })
    }

    /// Reads the beginning of a reply.
    pub fn header(&mut self) -> Result<Header, Malformed> {
        Ok(Header {
            xid: self.int()?,
            zxid: self.long()?,
            error: self.int()?,
        })
    }

    /// Reads the path of a `WatcherEvent`; empty if it is about the connection.
    pub fn event(&mut self) -> Result<String, Malformed> {
        self.int()?;
        self.int()?;
        self.text()
    }

    /// Reads the reply to [`Request::Children`].
    pub fn children(&mut self) -> Result<Vec<String>, Malformed> {
        // Each name takes some bytes, so a false number ends with the frame.
        let count = self.int()?;
        (0..count).map(|_| self.text()).collect()
    }

    /// Reads the reply to [`Request::Data`].
    pub fn data(&mut self) -> Result<(Vec<u8>, Stat), Malformed> {
        Ok((self.buffer()?.to_vec(), self.stat()?))
    }

    /// Reads the reply to [`Request::Multi`]. Returns the paths that were created, or the code of
    /// the error because of which nothing was done.
    pub fn multi(&mut self) -> Result<Result<Vec<String>, i32>, Malformed> {
        let (mut created, mut error) = (Vec::new(), None);
        loop {
            let (code, is_last) = (self.int()?, self.byte()? != 0);
            self.int()?;
            if is_last {
                return Ok(error.map_or(Ok(created), Err));
            }
            match code {
                code::CREATE => created.push(self.text()?),
                code::SET_DATA => drop(self.stat()?),
                code::DELETE | code::CHECK => {}
                code::ERROR => match self.int()? {
                    0 | error::NOT_TRIED => {}
                    code => error = error.or(Some(code)),
                },
                _ => return Err(Malformed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session() -> Session {
        Session {
            id: 0x0102_0304_0506_0708,
            password: vec![9; 16],
            timeout: Duration::from_secs(6),
        }
    }

    #[test]
    fn a_connect_request_is_that_of_the_protocol() {
        let frame = connect(Some(&session()), Duration::from_secs(6));
        let mut expected = vec![0, 0, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([0, 0, 0x17, 0x70, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 16]);
        expected.extend([9; 16]);
        expected.push(0);
        assert_eq!(frame, expected);
        // A server of 3.4 and one of 3.5 answer without and with the last byte.
        for last in [&[][..], &[0]] {
            let told = [&[0, 0, 0, 0][..], &expected[16..48], last].concat();
            assert_eq!(greeting(&told).unwrap().session, Some(session()));
        }
        let over = [0; 40];
        assert_eq!(greeting(&over).unwrap().session, None);
    }

    #[test]
    fn requests_are_those_of_the_protocol() {
        let (xid, frame) = Request::Children("/a".to_owned(), false).frame(7);
        assert_eq!(xid, 7);
        assert_eq!(
            frame,
            [
                0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 2, b'/', b'a', 0
            ]
        );
        assert_eq!(
            Request::Ping.frame(7).1,
            [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11]
        );
        assert_eq!(
            Request::Close.frame(7).1,
            [0, 0, 0, 8, 0, 0, 0, 7, 255, 255, 255, 245]
        );
        let check = Request::Multi(vec![Operation::Check("/a".to_owned(), ANY_VERSION)]);
        assert_eq!(
            check.frame(1).1[12..],
            [
                0, 0, 0, 13, 0, 255, 255, 255, 255, 0, 0, 0, 2, b'/', b'a', 255, 255, 255, 255,
                // The end.
                255, 255, 255, 255, 1, 255, 255, 255, 255
            ]
        );
    }

    #[test]
    fn a_multi_that_failed_names_the_part_because_of_which_it_did() {
        let part =
            |code: i32, body: &[u8]| [&code.to_be_bytes()[..], &[0, 0, 0, 0, 0], body].concat();
        let end = [255, 255, 255, 255, 1, 255, 255, 255, 255];
        let failed: Vec<u8> = [0, error::NO_NODE, error::NOT_TRIED]
            .iter()
            .flat_map(|code| part(code::ERROR, &code.to_be_bytes()))
            .chain(end)
            .collect();
        assert_eq!(Reader(&failed).multi(), Ok(Err(error::NO_NODE)));
        let done = [part(code::CREATE, b"\0\0\0\x02/a"), end.to_vec()].concat();
        assert_eq!(Reader(&done).multi(), Ok(Ok(vec!["/a".to_owned()])));
    }

    proptest! {
        #[test]
        fn no_reply_makes_the_reader_panic_or_take_more_than_it_got(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = greeting(&body);
            let _ = Reader(&body).header();
            let _ = Reader(&body).event();
            let _ = Reader(&body).children();
            let _ = Reader(&body).data();
            let _ = Reader(&body).multi();
        }
    }
}
