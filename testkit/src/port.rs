//! A port that is reserved for one server from before its start until after its end.
//!
//! A port that is looked up, freed and then given to a server can be taken in between. So it is
//! never freed:
//!
//! 1. A socket with `SO_REUSEADDR` is bound to a port that the kernel chooses, and never listens.
//! 2. A server that sets `SO_REUSEADDR` can listen on that port all the same, as often as it is
//!    started (socket(7)). redis-server, Valkey and etcd set it.
//! 3. While the socket is open, the kernel gives the port to no connection, and to no other socket
//!    that is bound to port 0.
//!
//! A program that asks for this very port by its number can still take it. The server cannot start
//! then, and gets another one.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpSocket;

/// Number of ports to try before a start counts as failed.
const TRIES: usize = 5;

/// Numbers the ports of members of clusters, so that no two of this process are the same.
static NEXT_LOW: AtomicU32 = AtomicU32::new(0);

/// A port, reserved until the drop.
pub struct Port {
    number: u16,
    _reservation: TcpSocket,
}

impl Port {
    /// Reserves a port on all IPv4 addresses.
    pub fn reserve() -> io::Result<Self> {
        Self::at(0)
    }

    /// Reserves the port `number`, or if it is 0 the one that the kernel chooses.
    fn at(number: u16) -> io::Result<Self> {
        let reservation = TcpSocket::new_v4()?;
        reservation.set_reuseaddr(true)?;
        reservation.bind((Ipv4Addr::UNSPECIFIED, number).into())?;
        let number = reservation.local_addr()?.port();
        Ok(Self {
            number,
            _reservation: reservation,
        })
    }

    /// Returns ports for a server to try in turn.
    pub fn choices() -> impl Iterator<Item = io::Result<Self>> {
        std::iter::repeat_with(Self::reserve).take(TRIES)
    }

    /// Returns ports for a member of a cluster to try in turn: 10000 above them, where its bus
    /// listens, no connection has its own end (`net.ipv4.ip_local_port_range` begins at 32768).
    pub fn low() -> impl Iterator<Item = io::Result<Self>> {
        let next = || {
            let number = std::process::id()
                .wrapping_mul(101)
                .wrapping_add(NEXT_LOW.fetch_add(1, Ordering::Relaxed));
            u16::try_from(10_000 + number % 12_000).expect("a port")
        };
        std::iter::repeat_with(next)
            .take(10 * TRIES)
            .filter_map(|number| Self::at(number).ok().map(Ok))
    }

    /// Returns the number, for the server's options and its clients.
    pub fn number(&self) -> u16 {
        self.number
    }
}
