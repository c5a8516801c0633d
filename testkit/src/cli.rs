//! Commands for a server, and its answers as redis-cli prints them. Tests ask servers tens of
//! thousands of times, so a process for each would take longer than the server does.

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use redis::{Cmd, Parser, Value};

/// A stream to a server.
pub trait Stream: Read + Write + Send {
    /// Ends it, though a process that was forked and not yet executed may have its descriptor.
    fn end(&self);
}

impl Stream for UnixStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for TcpStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Asks the server behind a unix socket for `command`, after a login if there are words for
/// it. Nothing is printed where no server is.
pub(crate) fn at_socket(socket: &Path, login: &[&str], command: &[&str]) -> String {
    let asked = UnixStream::connect(socket).map(|stream| ask(stream, login, command));
    asked.unwrap_or_default()
}

/// The same at a TCP port of this machine.
pub(crate) fn at_port(port: u16, login: &[&str], command: &[&str]) -> String {
    let asked =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(|stream| ask(stream, login, command));
    asked.unwrap_or_default()
}

/// Asks over `stream`, and ends it. Returns what is printed, without the last line break.
pub fn ask(mut stream: impl Stream, login: &[&str], command: &[&str]) -> String {
    let printed = answer(&mut stream, login, command);
    // Else the server may still count this client when it answers the next one.
    stream.end();
    printed
}

fn answer(stream: &mut impl Stream, login: &[&str], command: &[&str]) -> String {
    let mut packed = Vec::new();
    if !login.is_empty() {
        packed = pack(&[&["AUTH"], login].concat());
    }
    packed.extend(pack(command));
    if stream.write_all(&packed).is_err() {
        return String::new();
    }
    let (mut parser, mut replies) = (Parser::new(), BufReader::new(stream));
    let mut reply = || parser.parse_value(&mut replies);
    if !login.is_empty() {
        let _ = reply();
    }
    let printed = reply().map(|reply| print(&reply));
    printed.unwrap_or_default().trim_end().to_owned()
}

fn pack(command: &[&str]) -> Vec<u8> {
    let mut packed = Cmd::new();
    for word in command {
        packed.arg(*word);
    }
    packed.get_packed_command()
}

fn print(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(all) => all.iter().map(print).collect::<Vec<_>>().join("\n"),
        Value::ServerError(error) => {
            format!("{} {}", error.code(), error.details().unwrap_or_default())
        }
        _ => String::new(),
    }
}
