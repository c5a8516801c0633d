//! A reply, and its form in both versions of the protocol.

use std::borrow::Cow;

use super::number;
use super::refusal::Refusal;

/// Version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// A reply, before it is written to a connection or handed to a script.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Reply {
    Status(Cow<'static, [u8]>),
    Error(Refusal),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    /// No array. RESP3 has one null for all.
    NullArray,
    Double(f64),
    /// A text for people. RESP2 has it as a bulk string.
    Verbatim(Vec<u8>),
    Array(Vec<Reply>),
    /// Pairs, which RESP2 has as a flat array.
    Map(Vec<(Reply, Reply)>),
    /// Members with their scores: an array of pairs, which RESP2 has as a flat array.
    Scored(Vec<(Vec<u8>, f64)>),
    /// A message that answers no request. RESP2 has it as an array.
    Push(Vec<Reply>),
    /// Several replies to one request.
    Several(Vec<Reply>),
}

/// The reply of a command, or its refusal.
pub(super) type Outcome = Result<Reply, Refusal>;

impl Reply {
    pub(super) const OK: Self = Self::Status(Cow::Borrowed(b"OK"));

    pub(super) fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// Returns a number of elements.
    pub(super) fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Returns 1 or 0.
    pub(super) fn flag(is_set: bool) -> Self {
        Self::Integer(i64::from(is_set))
    }

    /// Appends the reply to `out` as `protocol` has it.
    pub(super) fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let is_new = protocol == Protocol::Resp3;
        match self {
            Self::Status(text) => line(out, b'+', &on_one_line(text)),
            Self::Error(refusal) => line(out, b'-', &on_one_line(refusal.0.as_bytes())),
            Self::Integer(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Bulk(bytes) => bulk(out, bytes),
            Self::Null => out.extend(if is_new { &b"_\r\n"[..] } else { b"$-1\r\n" }),
            Self::NullArray => out.extend(if is_new { &b"_\r\n"[..] } else { b"*-1\r\n" }),
            Self::Double(number) if is_new => line(out, b',', &number::written(*number)),
            Self::Double(number) => bulk(out, &number::written(*number)),
            Self::Verbatim(text) if is_new => {
                line(out, b'=', (text.len() + 4).to_string().as_bytes());
                out.extend(b"txt:");
                out.extend(text);
                out.extend(b"\r\n");
            }
            Self::Verbatim(text) => bulk(out, text),
            Self::Array(items) => list(out, b'*', items, protocol),
            Self::Push(items) => list(out, if is_new { b'>' } else { b'*' }, items, protocol),
            Self::Map(pairs) => {
                let (mark, length) = if is_new {
                    (b'%', pairs.len())
                } else {
                    (b'*', pairs.len() * 2)
                };
                line(out, mark, length.to_string().as_bytes());
                for (key, value) in pairs {
                    key.write(protocol, out);
                    value.write(protocol, out);
                }
            }
            Self::Scored(members) => {
                let length = if is_new {
                    members.len()
                } else {
                    members.len() * 2
                };
                line(out, b'*', length.to_string().as_bytes());
                for (member, score) in members {
                    if is_new {
                        line(out, b'*', b"2");
                    }
                    bulk(out, member);
                    Self::Double(*score).write(protocol, out);
                }
            }
            Self::Several(replies) => {
                for reply in replies {
                    reply.write(protocol, out);
                }
            }
        }
    }
}

fn line(out: &mut Vec<u8>, mark: u8, text: &[u8]) {
    out.push(mark);
    out.extend(text);
    out.extend(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    line(out, b'$', bytes.len().to_string().as_bytes());
    out.extend(bytes);
    out.extend(b"\r\n");
}

fn list(out: &mut Vec<u8>, mark: u8, items: &[Reply], protocol: Protocol) {
    line(out, mark, items.len().to_string().as_bytes());
    for item in items {
        item.write(protocol, out);
    }
}

/// A status or an error with a line break would not be one reply.
fn on_one_line(text: &[u8]) -> Cow<'_, [u8]> {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if !text.iter().any(is_break) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.iter()
            .map(|byte| if is_break(byte) { b' ' } else { *byte })
            .collect(),
    )
}
