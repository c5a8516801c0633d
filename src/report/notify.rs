//! Messages to a service manager about a wait (`sd_notify(3)`): its status, and that the start
//! takes longer. `READY=1` is left to the command.

use std::cell::Cell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::clock;
use crate::lock::instant::Instant;

/// Variable that names the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Time between two messages.
const EVERY: Duration = Duration::from_secs(5);

/// Time by which the start is extended from each message on: some messages may be late or lost.
const EXTENDED: Duration = Duration::from_secs(60);

/// The service manager's socket.
#[derive(Debug)]
pub struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    due: Cell<Instant>,
    has_said: Cell<bool>,
}

impl Manager {
    /// Returns the manager that the environment names, if there is one.
    pub fn of_environment() -> Option<Self> {
        let address = address(&std::env::var(SOCKET).ok()?)?;
        let socket = UnixDatagram::unbound().ok()?;
        // A manager that reads nothing must not hold up the wait.
        socket.set_nonblocking(true).ok()?;
        Some(Self {
            socket,
            address,
            due: Cell::new(clock::now() + Duration::from_secs(1)),
            has_said: Cell::new(false),
        })
    }

    /// Returns when the next message is due.
    pub fn due(&self) -> Instant {
        self.due.get()
    }

    /// Tells how the wait stands, if that is due.
    pub fn waits(&self, status: impl FnOnce() -> String) {
        let now = clock::now();
        if now >= self.due.get() {
            self.due.set(now + EVERY);
            self.has_said.set(true);
            self.send(&message(&status()));
        }
    }

    fn send(&self, message: &str) {
        let _ = self.socket.send_to_addr(message.as_bytes(), &self.address);
    }
}

impl Drop for Manager {
    /// The status is that of a wait, which is over.
    fn drop(&mut self) {
        if self.has_said.get() {
            self.send("STATUS=\n");
        }
    }
}

/// Reads `/path` or `@abstract`.
fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None if text.starts_with('/') => SocketAddr::from_pathname(text).ok(),
        None => None,
    }
}

fn message(status: &str) -> String {
    format!(
        "STATUS={}\nEXTEND_TIMEOUT_USEC={}\n",
        status.replace('\n', " "),
        EXTENDED.as_micros()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        assert_eq!(
            address("/run/x").unwrap().as_pathname(),
            Some("/run/x".as_ref())
        );
        assert_eq!(address("@x").unwrap().as_abstract_name(), Some(&b"x"[..]));
        assert!(address("").is_none() && address("x").is_none() && address("vsock:2:1").is_none());
    }

    #[test]
    fn a_message_never_says_that_the_service_is_ready() {
        assert_eq!(
            message("a\nREADY=1"),
            "STATUS=a READY=1\nEXTEND_TIMEOUT_USEC=60000000\n"
        );
    }
}
