//! A service of which one instance runs: the service manager learns of the wait, and the command
//! says that it is ready.

use std::os::unix::net::UnixDatagram;

use testkit::LIMIT;

use crate::support::{Server, rlock};

#[test]
fn a_waiting_run_tells_its_status_and_asks_for_time_and_leaves_ready_to_the_command() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(LIMIT)).expect("a limit");
    let path = path.to_str().expect("a path");
    let service = rlock("job")
        .on(&server)
        .env("NOTIFY_SOCKET", path)
        .args(["--", "sh", "-c", "echo $NOTIFY_SOCKET"])
        .spawn();
    let next = || {
        let mut buffer = [0; 4096];
        let length = manager.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    };
    let first = next();
    let waits = first
        .strip_prefix("STATUS=job: waiting ")
        .and_then(|line| line.split_once("s; held for "));
    assert!(
        waits.is_some_and(|(seconds, holder)| {
            seconds.parse::<u32>().is_ok() && holder.contains("by tester@")
        }),
        "{first}"
    );
    assert!(
        first.ends_with("\nEXTEND_TIMEOUT_USEC=60000000\n"),
        "{first}"
    );
    holder.finish().code(0);
    let last = std::iter::repeat_with(next).find(|message| !message.contains("waiting"));
    assert_eq!(last.as_deref(), Some("STATUS=\n"));
    service.finish().code(0).printed(&[path]).silent();
}

#[test]
fn a_run_that_does_not_wait_tells_the_manager_nothing() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_nonblocking(true).expect("a socket");
    rlock("job")
        .on(&server)
        .env("NOTIFY_SOCKET", path.to_str().expect("a path"))
        .command(["true"])
        .code(0)
        .silent();
    assert!(manager.recv(&mut [0; 64]).is_err());
}
