//! Servers that speak HTTP/2 as etcd does, and say whatever they like: none costs rlock more than
//! one node timeout and some memory, or starts a command.

use crate::hostile::{OTHERS, RUN, Says, meet};

/// Words of a server for a client's first bytes, and the exit code of `run`. It begins with a frame
/// of settings (RFC 9113 §6.5), and answers the first call, which has the number 1.
const SERVERS: [(&str, Says, i32); 16] = [
    ("silence", Says::Once(b""), 69),
    ("settings without end", Says::Forever(b"\0\0\0\x04\0\0\0\0\0", b"\0\0\0\x04\0\0\0\0\0"), 69),
    ("pings without end", Says::Forever(b"\0\0\0\x04\0\0\0\0\0", b"\0\0\x08\x06\0\0\0\0\0abcdefgh"), 69),
    ("a frame of 16 MB", Says::Forever(b"\0\0\0\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\x01", b"x"), 69),
    ("headers without end", Says::Forever(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x88", b"\0\0\x05\x09\0\0\0\0\x01\0\x01x\x01y"), 69),
    ("a reply of 4 GB", Says::Forever(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x05\0\0\0\0\0\x01\0\xff\xff\xff\xff", b"\0\0\x04\0\0\0\0\0\x01xxxx"), 69),
    ("a reply that never ends", Says::Forever(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x05\0\0\0\0\0\x01\0\0\x10\0\0", b"\0\0\0\0\0\0\0\0\x01"), 69),
    ("resets without end", Says::Forever(b"\0\0\0\x04\0\0\0\0\0", b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08"), 69),
    ("a malformed reply", Says::Once(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x07\0\0\0\0\0\x01\0\0\0\0\x02\xff\xff\0\0\x0f\x01\x05\0\0\0\x01\0\x0bgrpc-status\x010"), 69),
    ("an empty reply", Says::Once(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x05\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0f\x01\x05\0\0\0\x01\0\x0bgrpc-status\x010"), 78),
    ("ESC in a refusal", Says::Once(b"\0\0\0\x04\0\0\0\0\0\0\x002\x01\x05\0\0\0\x01\x88\0\x0bgrpc-status\x012\0\x0cgrpc-message\x13%1b[31mred%e2%80%ae"), 69),
    ("an HTTP status", Says::Once(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x8d"), 78),
    ("a goodbye", Says::Last(b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b"), 69),
    ("a web page", Says::Once(b"HTTP/1.1 400 Bad Request\r\n\r\n"), 78),
    ("another protocol's words without end", Says::Forever(b"-ERR\r\n", b"-ERR\r\n"), 78),
    ("closing at once", Says::Last(b""), 69),
];

#[test]
fn whatever_a_server_says_costs_a_run_one_timeout_and_starts_no_command() {
    meet("etcd", &[RUN], &SERVERS);
}

#[test]
fn a_server_that_hangs_or_floods_costs_the_other_commands_no_more() {
    meet("etcd", &OTHERS, &[SERVERS[0], SERVERS[6]]);
}
