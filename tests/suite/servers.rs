//! Servers of the kit: a port that another program takes fails no test, nor does a descriptor that a
//! fork has.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;

use testkit::cli;
use tokio::net::TcpSocket;

use crate::support::{Port, Server, rlock};

/// Checks that `server` grants a lock over TCP, and that no other server answers there.
fn serves(server: &Server) {
    rlock("job")
        .node(&server.tcp_url())
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    assert_eq!(server.cli(&["EXISTS", "rlock:fence:{job}:job"]), "1");
}

#[test]
fn a_server_whose_port_is_taken_starts_on_another_one() {
    let port = Port::reserve().expect("a port");
    let taken = port.number();
    // This listener sets SO_REUSEADDR like a redis-server, and was there first.
    let stranger = TcpListener::bind((Ipv4Addr::UNSPECIFIED, taken)).expect("a listener");
    let ports = std::iter::once(Ok(port)).chain(Port::choices());
    let server = Server::on_first_free(ports, |port| vec!["--port".to_owned(), port.to_string()]);
    assert_ne!(server.port(), taken);
    serves(&server);
    drop(stranger);
}

#[test]
fn a_server_that_is_down_keeps_its_port() {
    let mut server = Server::tcp(&[]);
    let port = server.port();
    server.crash();
    // Without SO_REUSEADDR, as when the kernel looks for a port for a connection.
    let other = TcpSocket::new_v4().expect("a socket");
    let refused = other
        .bind((Ipv4Addr::LOCALHOST, port).into())
        .expect_err("the port is reserved");
    assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    server.come_back();
    assert_eq!(server.port(), port);
    serves(&server);
}

#[test]
fn an_answer_is_the_end_of_its_client_while_a_fork_has_the_descriptor() {
    let server = Server::start();
    let stream = UnixStream::connect(server.socket()).expect("a server");
    let forked = stream.try_clone().expect("a descriptor");
    assert_eq!(cli::ask(stream, &[], &["PING"]), "PONG");
    assert_eq!(server.cli(&["CLIENT", "LIST"]).lines().count(), 1);
    drop(forked);
}
