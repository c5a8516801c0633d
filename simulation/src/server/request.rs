//! Requests, cut from the bytes that a client sent: arrays of bulk strings, the only form that
//! client libraries use.

/// A request that is complete.
pub(super) struct Request<'a> {
    /// The command's name and its arguments.
    pub(super) words: Vec<&'a [u8]>,
    /// Number of bytes that it takes.
    pub(super) length: usize,
}

/// Bytes that are no request. The server says so and closes the connection.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Garbled(pub(super) &'static str);

/// Cuts the first request from `bytes`; none if it is not complete.
pub(super) fn first(bytes: &[u8]) -> Result<Option<Request<'_>>, Garbled> {
    let mut rest = bytes;
    let Some(count) = header(
        &mut rest,
        b'*',
        Garbled("expected '*'"),
        Garbled("invalid multibulk length"),
    )?
    else {
        return Ok(None);
    };
    let mut words = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        let Some(length) = header(
            &mut rest,
            b'$',
            Garbled("expected '$'"),
            Garbled("invalid bulk length"),
        )?
        else {
            return Ok(None);
        };
        let (Some(word), Some(after)) = (rest.get(..length), rest.get(length + 2..)) else {
            return Ok(None);
        };
        words.push(word);
        rest = after;
    }
    Ok(Some(Request {
        words,
        length: bytes.len() - rest.len(),
    }))
}

/// Takes a line of a mark and a number; none if it is not complete.
fn header(
    rest: &mut &[u8],
    mark: u8,
    not_marked: Garbled,
    no_number: Garbled,
) -> Result<Option<usize>, Garbled> {
    match rest.first() {
        None => return Ok(None),
        Some(byte) if *byte != mark => return Err(not_marked),
        Some(_) => {}
    }
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
        return Ok(None);
    };
    let number = std::str::from_utf8(&rest[1..end])
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or(no_number)?;
    let Some(after) = rest.get(end + 2..) else {
        return Ok(None);
    };
    *rest = after;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_executed_once_its_last_byte_has_come() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\na\n\r\n*1\r\n";
        let complete = bytes.len() - 4;
        for length in 0..complete {
            assert!(matches!(first(&bytes[..length]), Ok(None)), "{length}");
        }
        let request = first(bytes).unwrap().expect("a request");
        assert_eq!(
            (request.words, request.length),
            (vec![&b"GET"[..], b"a\n"], complete)
        );
        assert!(first(b"GET a\r\n").is_err());
    }
}
