//! Other addresses of a server: at the end of a long line, or one that is moved to another server.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
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

/// An address that is moved to another server, as a virtual address or a name is in a failover: new connections lead there,
/// and those that are open stay where they are.
pub(crate) struct Alias {
    pub(crate) url: String,
    port: Arc<AtomicU16>,
    opened: Arc<AtomicUsize>,
}

impl Alias {
    /// An address of `server`, which must listen on TCP.
    pub(crate) fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("its address"));
        let (port, opened) = (Arc::new(AtomicU16::new(server.port())), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn({
            let (port, opened) = (Arc::clone(&port), Arc::clone(&opened));
            move || {
                for client in listener.incoming().flatten() {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let at_once = || Box::new(|| Duration::ZERO) as Delay;
                    // Without a server the client finds its connection closed.
                    let _ = line::connect(client, port.load(Ordering::Relaxed), [at_once(), at_once()]);
                }
            }
        });
        Self { url, port, opened }
    }

    /// New connections lead to `server` from now on.
    pub(crate) fn move_to(&self, server: &Server) {
        self.port.store(server.port(), Ordering::Relaxed);
    }

    /// Number of connections that were opened so far.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}
