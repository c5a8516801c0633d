//! The packets of MySQL's protocol, and what is in them. Each has three bytes of length, and its
//! number (MySQL, Client/Server Protocol).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes before the body of a packet.
const HEADER: usize = 4;

/// The first byte of a body that is an error.
pub(super) const ERROR: u8 = 0xff;

/// The first byte of an end of rows, whose body has at most [`LONGEST_END`] bytes, or of a request
/// for another login.
pub(super) const END: u8 = 0xfe;
const LONGEST_END: usize = 8;

/// The first byte of a cell without a value.
const NULL: u8 = 0xfb;

/// A body that is none of MySQL's.
#[derive(Debug)]
pub(super) struct Malformed;

/// Returns the packet of `body`, which has the number `number`.
pub(super) fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut packet = Vec::with_capacity(HEADER + body.len());
    packet.extend([length[0], length[1], length[2], number]);
    packet.extend(body);
    packet
}

/// Reads a packet: its number, and its body. `room`: number of bytes that are read at most, of which
/// this takes its part.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    room: &mut usize,
) -> io::Result<(u8, Vec<u8>)> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let left = room.checked_sub(length.saturating_add(HEADER));
    *room = left.ok_or_else(|| io::Error::other("its answer is too long"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((header[3], body))
}

/// Whether a body ends the rows of a statement.
pub(super) fn is_end(body: &[u8]) -> bool {
    body.first() == Some(&END) && body.len() <= LONGEST_END
}

/// The rest of a body.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes so many bytes.
    pub(super) fn bytes(&mut self, number: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(number).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a number of `N` bytes, the lowest first.
    pub(super) fn number<const N: usize>(&mut self) -> Result<u64, Malformed> {
        let mut all = [0; 8];
        all[..N].copy_from_slice(self.bytes(N)?);
        Ok(u64::from_le_bytes(all))
    }

    /// Takes a number that tells its own length.
    pub(super) fn length(&mut self) -> Result<u64, Malformed> {
        match self.number::<1>()? {
            0xfc => self.number::<2>(),
            0xfd => self.number::<3>(),
            0xfe => self.number::<8>(),
            number @ ..=0xfa => Ok(number),
            _ => Err(Malformed),
        }
    }

    /// Takes the text until a NUL, or all.
    pub(super) fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let (text, rest) = match end {
            Some(end) => (&self.0[..end], &self.0[end + 1..]),
            None => (self.0, &[][..]),
        };
        self.0 = rest;
        text
    }

    /// Takes a cell of a row.
    pub(super) fn cell(&mut self) -> Result<Option<String>, Malformed> {
        if self.0.first() == Some(&NULL) {
            self.bytes(1)?;
            return Ok(None);
        }
        let length = usize::try_from(self.length()?).map_err(|_| Malformed)?;
        Ok(Some(
            String::from_utf8_lossy(self.bytes(length)?).into_owned(),
        ))
    }
}

/// An error that a server told.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct ServerError {
    pub(super) code: u16,
    pub(super) message: String,
}

/// Reads the body of an error. Before the login it has no state of SQL.
pub(super) fn error(body: &[u8]) -> Result<ServerError, Malformed> {
    let mut reader = Reader(body.get(1..).ok_or(Malformed)?);
    let code = u16::try_from(reader.number::<2>()?).map_err(|_| Malformed)?;
    if reader.0.first() == Some(&b'#') {
        reader.bytes(6)?;
    }
    let message = String::from_utf8_lossy(reader.0).into_owned();
    Ok(ServerError { code, message })
}

/// A statement that was done, without rows.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Done {
    /// Number of rows that it was about.
    pub(super) count: u64,
    /// Whether another statement's answer follows.
    pub(super) has_more: bool,
}

/// Another answer follows (`SERVER_MORE_RESULTS_EXISTS`).
const MORE: u64 = 8;

/// Reads the body of a statement that was done.
pub(super) fn done(body: &[u8]) -> Result<Done, Malformed> {
    let mut reader = Reader(body.get(1..).ok_or(Malformed)?);
    let count = reader.length()?;
    reader.length()?;
    let has_more = reader.number::<2>()? & MORE != 0;
    Ok(Done { count, has_more })
}

/// Reads the body of an end of rows. Returns whether another answer follows.
pub(super) fn end_of_rows(body: &[u8]) -> Result<bool, Malformed> {
    let mut reader = Reader(body.get(1..).ok_or(Malformed)?);
    reader.number::<2>()?;
    Ok(reader.number::<2>()? & MORE != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_from(bytes: &[u8], room: &mut usize) -> io::Result<(u8, Vec<u8>)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(read(&mut &bytes[..], room))
    }

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let bytes = packet(3, b"\x03SELECT 1");
        assert_eq!(bytes[..5], [9, 0, 0, 3, 3]);
        let mut room = 20;
        assert_eq!(
            read_from(&bytes, &mut room).unwrap(),
            (3, b"\x03SELECT 1".to_vec())
        );
        assert_eq!(room, 7);
    }

    #[test]
    fn a_server_that_talks_without_end_is_left() {
        for bytes in [&[0xff; 8][..], &packet(0, &[0; 100])] {
            let refused = read_from(bytes, &mut 64).unwrap_err();
            assert_eq!(refused.to_string(), "its answer is too long");
        }
        assert!(read_from(&[1, 0, 0], &mut 64).is_err());
    }

    /// The bytes of `Access denied`, and of a server without a free connection, which tells it before
    /// the login (MariaDB 10.11).
    #[test]
    fn an_error_is_read_with_and_without_its_state() {
        let told = |code, message: &str| ServerError {
            code,
            message: message.to_owned(),
        };
        assert_eq!(
            error(b"\xff\x15\x04#28000Access denied").unwrap(),
            told(1045, "Access denied")
        );
        assert_eq!(
            error(b"\xff\x10\x04Too many connections").unwrap(),
            told(1040, "Too many connections")
        );
        assert!(error(b"\xff\x15").is_err() && error(b"\xff\x15\x04#28").is_err());
    }

    #[test]
    fn numbers_tell_their_own_length() {
        for (bytes, number) in [
            (&[7][..], 7),
            (&[0xfa], 250),
            (&[0xfc, 0x34, 0x12], 0x1234),
            (&[0xfd, 1, 0, 2], 0x0002_0001),
            (&[0xfe, 1, 0, 0, 0, 0, 0, 0, 1], 0x0100_0000_0000_0001),
        ] {
            assert_eq!(Reader(bytes).length().unwrap(), number);
        }
        for bytes in [&[0xfb][..], &[0xff], &[0xfc, 1], &[]] {
            assert!(Reader(bytes).length().is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (error(&bytes), done(&bytes), end_of_rows(&bytes), is_end(&bytes));
            let mut reader = Reader(&bytes);
            while reader.cell().is_ok() && !reader.0.is_empty() {}
            let _ = Reader(&bytes).text();
        }
    }
}
