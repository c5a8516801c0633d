//! Proxies in front of a server: one that delays what passes, and one that is moved to another
//! server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use crate::Server;

/// Returns how long the next bytes are on their way.
pub type Delay = Box<dyn Fn() -> Duration + Send>;

/// A port that leads to a server, with a delay in both directions. Its threads end with the
/// process.
pub struct Proxy {
    port: u16,
}

impl Proxy {
    /// Listens on a free port of `address` for connections to `server` on this machine. For one
    /// connection after the other `delays` gets the client's address, and returns the delays of
    /// requests and of replies.
    pub fn open(
        address: Ipv4Addr,
        server: u16,
        mut delays: impl FnMut(SocketAddr) -> [Delay; 2] + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let port = listener.local_addr()?.port();
        let accept = move || {
            for client in listener.incoming().flatten() {
                if let Ok(address) = client.peer_addr() {
                    // Without a server the client finds its connection closed.
                    let _ = connect(client, server, delays(address));
                }
            }
        };
        std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(accept)?;
        Ok(Self { port })
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Returns delays that hold all bytes back while `is_held` says so.
pub fn held_while(is_held: impl Fn() -> bool + Clone + Send + 'static) -> [Delay; 2] {
    [(); 2].map(|()| {
        let is_held = is_held.clone();
        Box::new(move || {
            while is_held() {
                std::thread::sleep(Duration::from_millis(20));
            }
            Duration::ZERO
        }) as Delay
    })
}

/// Returns another address of `server`, which must listen on TCP, where every reply is delayed.
pub fn slow(server: &Server, delay: Duration) -> String {
    address(server, std::iter::repeat(Duration::ZERO), delay)
}

/// Returns another address of `server`, which must listen on TCP, where every request is delayed.
pub fn far(server: &Server, delay: Duration) -> String {
    address(server, std::iter::repeat(delay), Duration::ZERO)
}

/// Returns another address of `server`, which must listen on TCP, where requests of the first
/// connection are delayed. What is sent later on another connection overtakes them.
pub fn far_at_first(server: &Server, delay: Duration) -> String {
    address(
        server,
        std::iter::once(delay).chain(std::iter::repeat(Duration::ZERO)),
        Duration::ZERO,
    )
}

/// `requests` has the delay of one connection after the other.
fn address(
    server: &Server,
    mut requests: impl Iterator<Item = Duration> + Send + 'static,
    replies: Duration,
) -> String {
    let delays = move |_| {
        [requests.next().unwrap_or_default(), replies].map(|delay| Box::new(move || delay) as Delay)
    };
    let proxy = Proxy::open(Ipv4Addr::LOCALHOST, server.port(), delays).expect("a proxy");
    format!("redis://127.0.0.1:{}", proxy.port())
}

/// An address that is moved to another server, as a virtual address or a name is in a failover. New
/// connections lead there, and those that are open stay where they are.
pub struct Alias {
    /// The address as `--node` takes it.
    pub url: String,
    port: Arc<AtomicU16>,
    opened: Arc<AtomicUsize>,
}

impl Alias {
    /// Makes an address of `server`, which must listen on TCP.
    pub fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("its address"));
        let (port, opened) = (
            Arc::new(AtomicU16::new(server.port())),
            Arc::new(AtomicUsize::new(0)),
        );
        std::thread::spawn({
            let (port, opened) = (Arc::clone(&port), Arc::clone(&opened));
            move || {
                for client in listener.incoming().flatten() {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let at_once = || Box::new(|| Duration::ZERO) as Delay;
                    // Without a server the client finds its connection closed.
                    let _ = connect(client, port.load(Ordering::Relaxed), [at_once(), at_once()]);
                }
            }
        });
        Self { url, port, opened }
    }

    /// Lets new connections lead to `server`.
    pub fn move_to(&self, server: &Server) {
        self.port.store(server.port(), Ordering::Relaxed);
    }

    /// Returns the number of connections that were opened so far.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Passes on what `client` and the server on `port` of this machine send to each other.
fn connect(client: TcpStream, port: u16, [requests, replies]: [Delay; 2]) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    std::thread::Builder::new().spawn(move || carry(from, to, &requests))?;
    std::thread::Builder::new().spawn(move || carry(server, client, &replies))?;
    Ok(())
}

/// Passes on what `from` sends after a delay, and its end.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: &Delay) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        std::thread::sleep(delay());
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
