//! Nodes that are away, slow, or out of order for a while.

use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, listen};

use crate::support::{RLOCK, STEADY, Server, eventually, renewed, rlock};

#[test]
fn connections_that_are_killed_do_not_disturb_the_command() {
    let server = Server::tcp(&[]);
    let mut job = rlock("job")
        .node(&server.tcp_url())
        .args(["--ttl", "5s"])
        .stdin(Stdio::piped())
        .hold("echo ready; read line; echo done");
    for _ in 0..100 {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        eventually("it is back", || {
            server.cli(&["CLIENT", "LIST"]).contains("cmd=eval")
        });
    }
    drop(job.stdin.take());
    job.finish().code(0).silent().printed(&["ready", "done"]);
}

#[test]
fn a_node_that_is_away_is_69_at_once_without_waiting_and_after_the_wait_with() {
    let absent = "redis://127.0.0.1:1";
    let words = [
        "job",
        absent,
        "cannot connect: Connection refused (os error 111); start a server there, or check --node",
    ];
    rlock("job")
        .node(absent)
        .args(["-n"])
        .command(["true"])
        .code(69)
        .said(&words)
        .within(Duration::from_secs(5));
    let waited = rlock("job")
        .node(absent)
        .args(["--wait", "1"])
        .command(["true"])
        .code(69)
        .said(&words);
    assert!(
        waited.took >= Duration::from_millis(990) && waited.took < Duration::from_secs(6),
        "{:?}",
        waited.took
    );
}

#[test]
fn a_node_that_never_answered_is_given_up_after_ten_seconds() {
    let finished = rlock("job")
        .node("redis://127.0.0.1:1")
        .command(["true"])
        .code(69);
    assert!(
        finished.took > Duration::from_secs(9) && finished.took < Duration::from_secs(20),
        "{:?}",
        finished.took
    );
}

#[test]
fn a_waiter_backs_off_from_a_node_that_is_gone_and_notices_when_it_is_back() {
    let mut server = Server::start();
    server.crash();
    let begin = Instant::now();
    // Without a backoff there would be a try every 45 ms or so.
    let mut waiter = rlock("job")
        .on(&server)
        .args(["--ttl", "3s", "-v", "--", "echo", "ran"])
        .spawn();
    for _ in 0..7 {
        waiter.wait_until_told("trying again");
    }
    assert!(
        begin.elapsed() > Duration::from_secs(2),
        "seven tries in {:?}",
        begin.elapsed()
    );
    server.come_back();
    let begin = Instant::now();
    waiter.finish().code(0).printed(&["ran"]);
    // There is a try every two seconds, and one may meet the server while it starts.
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_name_whose_first_address_leads_nowhere_costs_a_moment() {
    let server = Server::tcp(&["--bind", "127.0.0.3"]);
    // The backlog of this listener is full, and the kernel drops further connections.
    let hole = TcpListener::bind(("127.0.0.2", server.port())).expect("the same port");
    listen(&hole, Backlog::new(0).expect("a backlog")).expect("a queue");
    let address = hole.local_addr().expect("its address");
    let fill = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
    let _filled: Vec<TcpStream> = std::iter::from_fn(fill).collect();

    let dir = tempfile::tempdir().expect("a directory");
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.2 two.test\n127.0.0.3 two.test\n").expect("a file");
    let script = format!(
        "mount --bind {} /etc/hosts && getent ahosts two.test >&2 && exec {} run -n --key job --node redis://two.test:{} -- echo ran",
        hosts.display(),
        RLOCK,
        server.port(),
    );
    let output = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", &script])
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("127.0.0.2"),
        "the resolver's order is another: {said}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn a_node_that_comes_up_while_rlock_waits_is_used() {
    let mut server = Server::start();
    server.crash();
    let waiter = rlock("job").on(&server).args(["--", "echo", "ran"]).spawn();
    server.come_back();
    waiter.finish().code(0).printed(&["ran"]).silent();
}

#[test]
fn a_request_that_got_no_answer_leaves_no_key_when_the_node_wakes() {
    let server = Server::start();
    // From then on it has the script.
    rlock("job").on(&server).command(["true"]).code(0);
    let before = server.asked();
    server.freeze();
    rlock("job")
        .on(&server)
        .args(["-n", "--ttl", "20s"])
        .sh("echo ran")
        .code(69)
        .printed(&[])
        .said(&["no answer within 1s; see whether it hangs"]);
    server.thaw();
    // The SET runs now, and the release that was written behind it undoes it.
    eventually("both have run", || server.asked() == before + 2);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_wait_is_ended_in_time_though_the_node_hangs() {
    let server = Server::start();
    server.freeze();
    let finished = rlock("job")
        .on(&server)
        .args(["--wait", "4", "--ttl", "1m", "--node-timeout", "3s"])
        .command(["true"])
        .code(69);
    // The second attempt would be over after six seconds.
    assert!(
        finished.took >= Duration::from_millis(3990) && finished.took < Duration::from_secs(6),
        "{:?}",
        finished.took
    );
}

#[test]
fn passing_conditions_of_a_server_are_waited_out() {
    let server = Server::tcp(&[]);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let mut waiter = rlock("job")
        .on(&server)
        .args(["-v", "--", "echo", "ran"])
        .spawn();
    waiter.wait_until_told("READONLY");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    waiter
        .finish()
        .code(0)
        .printed(&["ran"])
        .mentions(&["READONLY", "trying again"]);

    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    rlock("job")
        .on(&server)
        .args(["--wait", "3", "-q"])
        .command(["true"])
        .code(69)
        .said(&["OOM", "; raise its maxmemory, or delete keys"]);
}

#[test]
fn a_server_out_of_memory_still_renews_and_releases() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(STEADY)
        .stdin(Stdio::piped())
        .hold("echo ready; read line; true");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    renewed([&server]);
    renewed([&server]);
    drop(job.stdin.take());
    job.finish().code(0).silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_waiter_leaves_a_connection_that_went_silent() {
    let server = Server::tcp(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("its address"));
    let port = server.port();
    std::thread::spawn(move || {
        // The first connection is a black hole, as if a firewall had forgotten it. The others lead
        // to the server.
        let _hole = listener.accept();
        while let Ok((mut client, _)) = listener.accept() {
            let mut server = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the server");
            let (mut from, mut to) = (
                client.try_clone().expect("it"),
                server.try_clone().expect("it"),
            );
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    rlock("job")
        .node(&url)
        .args(["--ttl", "5s"])
        .command(["echo", "ran"])
        .code(0)
        .printed(&["ran"])
        .within(Duration::from_secs(5));
}
