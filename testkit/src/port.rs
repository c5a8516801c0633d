//! A port that is reserved for one server from before its start until after its end.
//!
//! A port that is looked up, freed and then given to a server can be taken in between. So it is never freed:
//!
//! 1. A socket with `SO_REUSEADDR` is bound to a port that the kernel chooses, and never listens.
//! 2. A server that sets `SO_REUSEADDR` can listen on that port all the same, as often as it is started (socket(7)).
//!    redis-server, Valkey and etcd set it.
//! 3. While the socket is open, the kernel gives the port to no connection, and to no other socket that is bound to port 0.
//!
//! A program that asks for this very port by its number can still take it. The server cannot start then, and gets another one.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::TcpSocket;

/// Number of ports to try before a start counts as failed.
const TRIES: usize = 5;

/// A port, reserved until the drop.
pub struct Port {
    number: u16,
    _reservation: TcpSocket,
}

impl Port {
    /// Reserves a port on all IPv4 addresses.
    pub fn reserve() -> io::Result<Self> {
        let reservation = TcpSocket::new_v4()?;
        reservation.set_reuseaddr(true)?;
        reservation.bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let number = reservation.local_addr()?.port();
        Ok(Self { number, _reservation: reservation })
    }

    /// Returns ports for a server to try in turn.
    pub fn choices() -> impl Iterator<Item = io::Result<Self>> {
        std::iter::repeat_with(Self::reserve).take(TRIES)
    }

    /// Returns the number, for the server's options and its clients.
    pub fn number(&self) -> u16 {
        self.number
    }
}
