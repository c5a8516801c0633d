//! Answers of a Redis server as redis-cli prints them. The suite asks tens of thousands of times,
//! and each start of that program would take a hundred times as long as the answer.

use std::io::{Read, Write};

use redis::{Parser, Value, cmd};

/// Returns what redis-cli prints for `command`, without the last line break. It prints nothing if
/// the server ends the connection.
pub(crate) fn printed(mut server: impl Read + Write, command: &[&str]) -> String {
    let mut request = cmd(command[0]);
    request.arg(&command[1..]);
    let answer = server
        .write_all(&request.get_packed_command())
        .ok()
        .and_then(|()| Parser::new().parse_value(&mut server).ok());
    lines(answer.unwrap_or(Value::Nil)).trim_end().to_owned()
}

fn lines(answer: Value) -> String {
    match answer {
        Value::Nil => String::new(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::SimpleString(text) => text,
        Value::Okay => "OK".to_owned(),
        Value::Array(all) => all.into_iter().map(lines).collect::<Vec<_>>().join("\n"),
        Value::ServerError(error) => {
            format!("{} {}", error.code(), error.details().unwrap_or_default())
        }
        other => panic!("an answer that RESP2 does not have: {other:?}"),
    }
}
