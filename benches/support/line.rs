//! A long line to a server: a port from which all that is said takes its time. The suite has it from here.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// How long the next words are on their way.
pub(crate) type Delay = Box<dyn Fn() -> Duration + Send>;

/// Whoever connects to `listener` talks to the server on `port` of this machine; `delays` has, for one connection after
/// the other, how long it takes there and how long back. It ends with the process.
pub(crate) fn open(
    listener: TcpListener,
    port: u16,
    mut delays: impl FnMut() -> [Delay; 2] + Send + 'static,
) -> io::Result<()> {
    let accept = move || {
        for client in listener.incoming().flatten() {
            // Without a server the client finds its connection closed.
            let _ = connect(client, port, delays());
        }
    };
    std::thread::Builder::new().name("line".to_owned()).spawn(accept).map(drop)
}

/// Lets `client` talk to the server on `port` of this machine.
pub(crate) fn connect(client: TcpStream, port: u16, [there, back]: [Delay; 2]) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    std::thread::Builder::new().spawn(move || carry(from, to, &there))?;
    std::thread::Builder::new().spawn(move || carry(server, client, &back))?;
    Ok(())
}

/// Passes on what `from` says, so much later, and its end.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: &Delay) {
    let mut words = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut words) {
        std::thread::sleep(delay());
        if to.write_all(&words[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
