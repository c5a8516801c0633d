//! The connection of a nested run to the outer rlock: what it may say, who may connect, what
//! happens without it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use uuid::Uuid;

use super::nested;
use crate::support::{Server, rlock};

/// Returns the name on which the rlock listens whose first lock has this token.
pub(super) fn listener_of(token: Uuid) -> String {
    format!("rlock/2/{}", Uuid::new_v5(&token, b"nested"))
}

/// Returns the name on which the rlock that holds `job` listens.
fn listener(server: &Server) -> String {
    let value = server.cli(&["GET", "job"]);
    listener_of(
        value
            .split(' ')
            .next()
            .expect("a token")
            .parse()
            .expect("a uuid"),
    )
}

/// Opens a connection to the rlock that holds `job`, as a nested run does.
fn connected(server: &Server) -> OwnedFd {
    let ours = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .expect("a socket");
    connect(
        ours.as_raw_fd(),
        &UnixAddr::new_abstract(listener(server).as_bytes()).expect("a name"),
    )
    .expect("a listener");
    ours
}

#[test]
fn a_connection_that_says_nothing_stalls_nothing_and_is_waited_for() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "3s", "-v"])
        .hold("echo ready; read x; exit 3");
    let silent: Vec<OwnedFd> = (0..300).map(|_| connected(&server)).collect();
    (0..2).for_each(|_| job.wait_until_told("renewed for"));
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock");
    (0..2).for_each(|_| job.wait_until_told("renewed for"));
    assert_eq!(server.cli(&["EXISTS", "job"]), "1");
    drop(silent);
    job.finish().code(3);
}

#[test]
fn a_nested_run_that_does_not_end_is_told_of_and_waited_for() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["-v", "--kill-after", "100ms"])
        .hold("echo ready; read x; exit 3");
    let silent = connected(&server);
    drop(job.stdin.take());
    job.wait_until_told("keeping the lock");
    job.signal(Signal::SIGTERM);
    job.wait_until_told("must kill its command and has not ended");
    assert_eq!(server.cli(&["EXISTS", "job"]), "1");
    drop(silent);
    job.finish().code(3);
}

#[test]
fn a_connection_that_talks_is_no_nested_run() {
    let server = Server::start();
    let job = rlock("job").on(&server).hold("echo ready; read x; exit 3");
    let loud = connected(&server);
    nix::unistd::write(&loud, b"hello").expect("a listener");
    job.finish().code(3);
    drop(loud);
}

#[test]
fn another_user_cannot_keep_the_lock() {
    if !nix::unistd::Uid::effective().is_root() {
        crate::support::skipped("only root can run as another user");
        return;
    }
    let server = Server::start();
    let mut job = rlock("job").on(&server).hold("echo ready; read x; exit 3");
    let name = listener(&server);
    // It reads the end of the connection, and no welcome.
    let script = "use Socket; $_ = ''; socket(S, AF_UNIX, SOCK_SEQPACKET, 0) or die $!;
        connect(S, pack_sockaddr_un(\"\\0$ARGV[0]\")) or die $!; print defined sysread(S, $_, 999) ? $_ : $!";
    let stranger = |user| {
        let mut perl = std::process::Command::new("perl");
        std::os::unix::process::CommandExt::uid(&mut perl, user);
        let output = perl
            .args(["-e", script, &name])
            .current_dir(Path::new("/"))
            .output()
            .expect("perl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(stranger(65_534), "");
    let value = server.cli(&["GET", "job"]);
    assert!(stranger(0).contains(value.split(' ').next().expect("a token")));
    drop(job.stdin.take());
    job.finish().code(3);
}

#[test]
fn an_outer_rlock_that_cannot_be_reached_is_64_and_not_waited_for() {
    if !nix::unistd::Uid::effective().is_root() {
        crate::support::skipped("only root can make a network namespace");
        return;
    }
    let server = Server::start();
    let script = format!("unshare -n {}; echo $?", nested("", "echo ran"));
    let finished = rlock("job")
        .on(&server)
        .sh(&script)
        .code(0)
        .printed(&["64"]);
    finished.said(&[
        "job: held by",
        "cannot be reached from here",
        "run the command without rlock run",
    ]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn an_outer_rlock_that_cannot_be_reached_is_busy_for_a_run_that_does_not_wait() {
    if !nix::unistd::Uid::effective().is_root() {
        crate::support::skipped("only root can make a network namespace");
        return;
    }
    let server = Server::start();
    for wait in ["-n", "-w 1"] {
        let script = format!("unshare -n {}; echo $?", nested(wait, "echo ran"));
        let finished = rlock("job")
            .on(&server)
            .sh(&script)
            .code(0)
            .printed(&["75"]);
        finished.said(&["job: busy: held by"]);
    }
}
