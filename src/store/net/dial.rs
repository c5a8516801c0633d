//! Opens the byte stream to a server over TCP.
//!
//! A host name may have several addresses, of which some may lead nowhere. They are tried in the
//! resolver's order, each a moment after the one before it, and the first that answers is taken
//! (Happy Eyeballs, RFC 8305). So an address whose packets are dropped costs that moment and not
//! the node timeout.
//!
//! A server drops the first packet of a connection while its queue of new ones is full, as when a
//! thousand hosts come in the same moment. The kernel sends another one after 1 s (RFC 6298), which
//! is the node timeout of long leases. So each address that has not answered is tried again before.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};

use super::hosts::Endpoint;
use super::last_words::LastWords;
use crate::clock;
use crate::store::{Fault, FaultKind};
use crate::text::duration::show_rounded;
use crate::text::escape;

/// Longest time that an address has for itself.
const HEAD_START: Duration = Duration::from_millis(50);

/// Time after which addresses that have not answered are tried again: longer than a round trip to
/// any place on earth.
const AGAIN: Duration = Duration::from_millis(250);

/// Number of times that they are tried again.
const REPEATS: usize = 3;

/// Number of addresses that are tried, so that a name with hundreds does not use up our
/// descriptors.
const MOST: usize = 8;

/// A byte stream to a server, whatever it is made of.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A stream that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, Fault>> + Send>>;

/// Opens the stream to a server, within a time.
pub type HostDial = Arc<dyn Fn(Endpoint, Duration) -> Dialing + Send + Sync>;

/// Returns the stream, or the fault of a server that cannot be reached.
pub(in crate::store) fn boxed(
    stream: io::Result<impl Stream + 'static>,
) -> Result<Box<dyn Stream>, Fault> {
    stream
        .map(|stream| -> Box<dyn Stream> { Box::new(LastWords::of(stream)) })
        .map_err(|error| cannot_connect(&error))
}

/// The remedy for a server that closes a connection and has said nothing.
pub(in crate::store) const SAID_NOTHING: &str = "it said nothing: see its log, and the port";

fn cannot_connect(error: &io::Error) -> Fault {
    let fault = Fault::new(
        FaultKind::Unavailable,
        format!("cannot connect: {}", escape::text(&error.to_string())),
    );
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            fault.with_remedy("start a server there, or check --node")
        }
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::TimedOut => fault.with_remedy("see the network, or check --node"),
        _ => fault,
    }
}

/// The first byte of a TLS alert (RFC 8446 §5.1). No reply of another protocol begins with it.
pub(in crate::store) const TLS_ALERT: u8 = 21;

/// A `ClientHello` without contents, which a TLS server answers with an alert.
const EMPTY_HELLO: [u8; 10] = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0];

/// Whether the server that is being connected to says within `limit` that it speaks TLS.
pub(in crate::store) async fn speaks_tls(dialing: Dialing, limit: Duration) -> bool {
    let first = async {
        let mut stream = dialing.await.ok()?;
        stream.write_all(&EMPTY_HELLO).await.ok()?;
        stream.read_u8().await.ok()
    };
    let first = clock::until(clock::now() + limit, Box::pin(first)).await;
    first.flatten() == Some(TLS_ALERT)
}

/// Returns the first byte of a server's answer to `greeting`, if it comes within `limit`.
pub(in crate::store) async fn first_byte(
    host: &str,
    port: u16,
    greeting: &[u8],
    limit: Duration,
) -> Option<u8> {
    let answered = async {
        let mut stream = connect(host, port, limit).await.ok()?;
        stream.write_all(greeting).await.ok()?;
        stream.read_u8().await.ok()
    };
    clock::until(clock::now() + limit, Box::pin(answered)).await?
}

/// Looks the name up and connects. What is written goes out at once.
pub(in crate::store) async fn connect(
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<TcpStream, Fault> {
    let addresses = look_up(host, limit, lookup_host((host, port))).await?;
    let made = race(&addresses, head_start(limit, addresses.len())).await;
    made.and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        .map_err(|error| cannot_connect(&error))
}

/// Returns the addresses that `lookup` finds for `host`. It gets the most of `limit`: what is left
/// lets the caller hear that the name was what took so long.
async fn look_up(
    host: &str,
    limit: Duration,
    lookup: impl Future<Output = io::Result<impl Iterator<Item = SocketAddr>>>,
) -> Result<Vec<SocketAddr>, Fault> {
    let limit = limit / 10 * 9;
    let found = clock::until(clock::now() + limit, lookup).await;
    let found = found.ok_or_else(|| {
        let (host, limit) = (escape::text(host), show_rounded(limit));
        let why = format!("looking up {host} took more than {limit}");
        let remedy = "see /etc/resolv.conf, and whether its name servers answer";
        Fault::new(FaultKind::Unavailable, why).with_remedy(remedy)
    })?;
    let found =
        found.map_err(|error| cannot_connect(&error).with_remedy("check the name in --node"))?;
    Ok(found.take(MOST).collect())
}

/// Time that an address has for itself: the last of `count` begins in the first half of `limit`.
fn head_start(limit: Duration, count: usize) -> Duration {
    let shares = u32::try_from(count)
        .unwrap_or(u32::MAX)
        .saturating_mul(2)
        .max(1);
    HEAD_START.min(limit / shares)
}

/// Returns the first connection that is made to any of `addresses`, or the last error. A further
/// address is tried after each `pause`, and at once when another has failed.
async fn race(addresses: &[SocketAddr], pause: Duration) -> io::Result<TcpStream> {
    let dial = |address: SocketAddr| async move { (address, TcpStream::connect(address).await) };
    let mut dials = FuturesUnordered::new();
    let mut failed = io::Error::other("the name has no address");
    let mut silent = addresses.to_vec();
    let mut rest: VecDeque<SocketAddr> = silent.iter().copied().collect();
    let mut repeats = REPEATS;
    loop {
        dials.extend(rest.pop_front().map(dial));
        let is_last = rest.is_empty();
        let made = if is_last && repeats == 0 {
            dials.next().await
        } else {
            let end = clock::now() + if is_last { AGAIN } else { pause };
            let Some(made) = clock::until(end, dials.next()).await else {
                if is_last {
                    rest.extend(&silent);
                    repeats -= 1;
                }
                continue;
            };
            made
        };
        match made {
            Some((_, Ok(stream))) => return Ok(stream),
            Some((address, Err(error))) => {
                silent.retain(|other| *other != address);
                failed = error;
            }
            None => return Err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    /// A listener whose queue is full: the kernel drops what else comes.
    fn black_hole() -> (TcpListener, Vec<std::net::TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let fill =
            || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        (listener, std::iter::from_fn(fill).collect())
    }

    fn done<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(work)
    }

    fn raced(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        done(race(addresses, Duration::from_millis(20)))
    }

    #[test]
    fn a_name_that_is_not_looked_up_in_time_is_told() {
        let never = std::future::pending::<io::Result<std::vec::IntoIter<SocketAddr>>>();
        let fault = done(look_up("redis4", Duration::from_millis(100), never)).unwrap_err();
        assert_eq!(fault.why, "looking up redis4 took more than 90ms");
        assert!(
            fault
                .remedy
                .is_some_and(|remedy| remedy.contains("resolv.conf"))
        );
    }

    #[test]
    fn every_address_gets_its_turn_in_time() {
        let ms = Duration::from_millis;
        assert_eq!(head_start(ms(1000), 2), ms(50));
        assert_eq!(head_start(ms(50), 2), Duration::from_micros(12_500));
        assert_eq!(head_start(ms(50), 0), ms(50));
        for count in 1..=MOST {
            assert!(head_start(ms(50), count) * u32::try_from(count).unwrap() <= ms(25));
        }
    }

    #[test]
    fn an_address_that_leads_nowhere_costs_a_moment() {
        let (hole, _filled) = black_hole();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let [hole, good] = [&hole, &server].map(|listener| listener.local_addr().unwrap());
        let begin = Instant::now();
        let stream = raced(&[hole, hole, good]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(
            begin.elapsed() >= Duration::from_millis(40),
            "the resolver's order counts: {:?}",
            begin.elapsed()
        );
        assert!(
            begin.elapsed() < Duration::from_millis(900),
            "{:?}",
            begin.elapsed()
        );
    }

    #[test]
    fn a_connection_whose_first_packet_was_dropped_is_tried_again_before_the_kernel_does() {
        let (hole, filled) = black_hole();
        let address = hole.local_addr().unwrap();
        let begin = Instant::now();
        let emptied = std::thread::spawn(move || {
            // The first packet has been sent, and so dropped (/proc/net/tcp: 02 is SYN_SENT).
            let to = format!(":{:04X} 02 ", address.port());
            while !std::fs::read_to_string("/proc/net/tcp")
                .unwrap()
                .contains(&to)
            {
                std::thread::yield_now();
            }
            for _ in filled {
                hole.accept().unwrap();
            }
            hole
        });
        assert!(raced(&[address]).is_ok());
        assert!(
            begin.elapsed() < Duration::from_millis(900),
            "{:?}",
            begin.elapsed()
        );
        emptied.join().unwrap();
    }

    #[test]
    fn an_address_that_refuses_is_followed_at_once_and_the_last_error_is_told() {
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = server.local_addr().unwrap();
        assert_eq!(raced(&[closed, good]).unwrap().peer_addr().unwrap(), good);
        assert_eq!(
            raced(&[closed, closed]).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(raced(&[]).is_err());
    }
}
