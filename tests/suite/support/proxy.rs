//! Other addresses of a server, at the end of a long line.

use std::net::TcpListener;
use std::time::Duration;

use super::Server;
use super::line::{self, Delay};

/// Another address of `server`, which must listen on TCP, from which every answer comes so much later.
pub(crate) fn slow(server: &Server, delay: Duration) -> String {
    address(server, std::iter::repeat(Duration::ZERO), delay)
}

/// The same, but every request takes that long to get there.
pub(crate) fn far(server: &Server, delay: Duration) -> String {
    address(server, std::iter::repeat(delay), Duration::ZERO)
}

/// The same for the first connection only, so that what is said later on another overtakes it.
pub(crate) fn far_at_first(server: &Server, delay: Duration) -> String {
    address(server, std::iter::once(delay).chain(std::iter::repeat(Duration::ZERO)), Duration::ZERO)
}

/// `there`: for one connection after the other.
fn address(server: &Server, mut there: impl Iterator<Item = Duration> + Send + 'static, back: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("its address"));
    let delays = move || [there.next().unwrap_or_default(), back].map(|delay| Box::new(move || delay) as Delay);
    line::open(listener, server.port(), delays).expect("a line");
    url
}
