//! A long line to a server, on which what is said takes its time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use super::Server;

/// Another address of `server`, which must listen on TCP, from which every answer comes so much later.
pub(crate) fn slow(server: &Server, delay: Duration) -> String {
    line(server, std::iter::repeat(Duration::ZERO), delay)
}

/// The same, but every request takes that long to get there.
pub(crate) fn far(server: &Server, delay: Duration) -> String {
    line(server, std::iter::repeat(delay), Duration::ZERO)
}

/// The same for the first connection only, so that what is said later on another overtakes it.
pub(crate) fn far_at_first(server: &Server, delay: Duration) -> String {
    line(server, std::iter::once(delay).chain(std::iter::repeat(Duration::ZERO)), Duration::ZERO)
}

/// `there`: for one connection after the other.
fn line(server: &Server, there: impl Iterator<Item = Duration> + Send + 'static, back: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("its address"));
    let port = server.port();
    std::thread::spawn(move || {
        for (client, there) in listener.incoming().map_while(Result::ok).zip(there) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for side in [&client, &server] {
                side.set_nodelay(true).expect("a socket");
            }
            let (from, to) = (client.try_clone().expect("it"), server.try_clone().expect("it"));
            std::thread::spawn(move || carry(from, to, there));
            std::thread::spawn(move || carry(server, client, back));
        }
    });
    url
}

/// Passes on what `from` says, so much later, and its end.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut words = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut words) {
        std::thread::sleep(delay);
        if to.write_all(&words[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
