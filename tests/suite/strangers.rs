//! Servers that are not what their address says, and servers and proxies that lack commands: each
//! is named for what it is.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Certificates, Rlock, Server, eventually, rlock, rlock_words};

/// Starts a peer on a port of its own, and returns its address. It serves each connection by
/// `serve`.
fn peer(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Starts a proxy to the server at `port`, and returns its address. It closes a connection at a
/// request that `passes` refuses.
fn relay(port: u16, passes: impl Fn(&mut [u8]) -> bool + Clone + Send + 'static) -> String {
    let address = peer(move |mut client| {
        let mut server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
        let (mut replies, mut to_client) = (
            server.try_clone().expect("a stream"),
            client.try_clone().expect("a stream"),
        );
        std::thread::spawn(move || std::io::copy(&mut replies, &mut to_client));
        let mut request = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = client.read(&mut request) {
            let request = &mut request[..count];
            if !passes(request) || server.write_all(request).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    format!("redis://{address}")
}

/// Starts a proxy to the server at `port`, which closes a connection at each of these commands.
/// Returns its address.
fn proxy(port: u16, unknown: &'static [&str]) -> String {
    relay(port, move |request| {
        let end = request
            .iter()
            .position(|byte| *byte == b'\r')
            .unwrap_or(request.len());
        let begins = |word: &&str| {
            request[end..].starts_with(format!("\r\n${}\r\n{word}\r\n", word.len()).as_bytes())
        };
        !unknown.iter().any(begins)
    })
}

/// A proxy to a server that may go away: then it accepts connections and closes them.
#[derive(Clone, Default)]
struct Balancer {
    is_alone: Arc<AtomicBool>,
    closed: Arc<AtomicUsize>,
}

impl Balancer {
    /// Starts it, in front of the server at `port`. Returns its address.
    fn start(&self, port: u16) -> String {
        let this = self.clone();
        let address = peer(move |mut client| {
            if this.is_alone.load(Ordering::SeqCst) {
                this.closed.fetch_add(1, Ordering::SeqCst);
                // Read first, so that the end of the stream is no reset.
                let _ = client.read(&mut [0; 4096]);
                return;
            }
            let mut server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
            let pause = Some(Duration::from_millis(10));
            let streams = [&client, &server].map(|stream| stream.try_clone().expect("a stream"));
            let [mut to_client, mut replies] = streams;
            let copied = std::thread::spawn(move || std::io::copy(&mut replies, &mut to_client));
            client.set_read_timeout(pause).expect("a limit");
            let mut request = vec![0; 64 * 1024];
            while !this.is_alone.load(Ordering::SeqCst) {
                match client.read(&mut request) {
                    Ok(0) => break,
                    Ok(count) => server.write_all(&request[..count]).expect("the server"),
                    Err(_) => {}
                }
            }
            let _ = server.shutdown(Shutdown::Both);
            let _ = client.shutdown(Shutdown::Both);
            let _ = copied.join();
        });
        format!("redis://{address}")
    }

    fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Runs `-n`, and as a waiter, and with a password. Nothing runs.
fn refused(url: &str, code: i32, words: &[&str]) {
    let run = || rlock("job").node(url);
    let ways: [Rlock; 3] = [
        run().args(["-n"]),
        run(),
        run().args(["-n"]).env("RLOCK_PASSWORD", "hunter2"),
    ];
    for way in ways {
        way.command(["echo", "ran"])
            .code(code)
            .printed(&[])
            .said(words);
    }
}

#[test]
fn a_port_with_tls_is_named_where_none_was_asked_for() {
    let Some(server) = Server::tls(&Certificates::for_name("127.0.0.1")) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port());
    refused(&url, 78, &["it speaks TLS; write rediss"]);
    rlock_words(["inspect", "job"])
        .node(&url)
        .finish()
        .code(78)
        .said(&["it speaks TLS"]);
    let told = rlock_words(["doctor"])
        .node(&url)
        .finish()
        .code(78)
        .stdout
        .join("\n");
    assert!(told.contains("it speaks TLS"), "{told}");
}

#[test]
fn a_server_without_tls_is_named_where_tls_was_asked_for() {
    let server = Server::tcp(&[]);
    let url = server.tcp_url().replace("redis://", "rediss://");
    let run = rlock("job")
        .node(&url)
        .args(["-n"])
        .command(["echo", "ran"])
        .code(78)
        .printed(&[]);
    run.said(&["it does not speak TLS; write redis://"])
        .never_said("--ca");
}

#[test]
fn a_web_server_is_named() {
    let address = peer(|mut stream| {
        let mut seen = [0; 1024];
        let _ = stream.read(&mut seen);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    refused(
        &format!("redis://{address}"),
        78,
        &["it speaks HTTP; write the port of a Redis server"],
    );
}

/// Redis says so when the connection is opened, before it reads a request, and closes it.
#[test]
fn a_server_in_protected_mode_is_named_though_it_closes_the_connection_at_once() {
    let address = peer(|mut stream| {
        let _ = stream.write_all(
            b"-DENIED Redis is running in protected mode because no password is set.\r\n",
        );
    });
    let url = format!("redis://{address}");
    for _ in 0..10 {
        refused(
            &url,
            78,
            &[
                "it is in protected mode",
                "; set a password for it (requirepass)",
            ],
        );
    }
    let told = rlock_words(["doctor"])
        .node(&url)
        .finish()
        .code(78)
        .stdout
        .join("\n");
    assert!(
        told.contains(
            "protected mode, which keeps other hosts out; set a password for it (requirepass)\n"
        ),
        "{told}"
    );
}

#[test]
fn a_waiter_behind_a_proxy_that_closes_at_hello_gets_the_lock() {
    let server = Server::tcp(&[]);
    let port = server.port();
    let url = proxy(port, &["HELLO"]);
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let waiter = rlock("job").node(&url).args(["--", "echo", "ran"]).spawn();
    server.wait_until_asked(2);
    holder.finish().code(0);
    let told = waiter.finish().code(0).printed(&["ran"]);
    told.within(Duration::from_secs(20));
}

/// Such is a load balancer whose server is away.
#[test]
fn a_server_that_closes_each_connection_costs_one_an_attempt_and_is_asked_once_what_it_is() {
    let server = Server::tcp(&[]);
    let balancer = Balancer::default();
    let url = balancer.start(server.port());
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let waiter = rlock("job").node(&url).args(["--", "echo", "ran"]).spawn();
    eventually("it listens", || {
        server.cli(&["CLIENT", "LIST"]).contains(" sub=1 ")
    });
    balancer.is_alone.store(true, Ordering::SeqCst);
    // The first attempt tries it with HELLO and without, and for TLS.
    eventually("it has found out", || balancer.closed() >= 3);
    std::thread::sleep(Duration::from_secs(3));
    let closed = balancer.closed();
    assert!((4..=12).contains(&closed), "{closed} connections");
    balancer.is_alone.store(false, Ordering::SeqCst);
    eventually("it listens again", || {
        server.cli(&["CLIENT", "LIST"]).contains(" sub=1 ")
    });
    holder.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
}

#[test]
fn a_claim_at_a_server_that_closes_each_connection_takes_one_connection_an_attempt() {
    // Clients that other tests have left may come to such a port too, so one of three counts.
    for password in ["", "hunter2"] {
        assert!((0..3).any(|_| has_one_connection_an_attempt(password)));
    }
}

fn has_one_connection_an_attempt(password: &str) -> bool {
    let balancer = Balancer::default();
    balancer.is_alone.store(true, Ordering::SeqCst);
    let run = rlock("job")
        .node(&balancer.start(0))
        .args(["--wait", "4s", "-v"])
        .env("RLOCK_PASSWORD", password);
    let told = run.command(["echo", "ran"]).code(69).printed(&[]);
    let attempts = told.stderr.matches("broken pipe").count();
    // The look for TLS, and the release of the only request that was sent.
    attempts >= 3 && balancer.closed() <= attempts + 2
}

/// fakeredis is such a server.
#[test]
fn a_waiter_at_a_server_that_takes_hello_3_and_speaks_another_protocol_gets_the_lock() {
    let server = Server::tcp(&[]);
    let url = relay(server.port(), |request| {
        let hello = b"HELLO\r\n$1\r\n3";
        if let Some(at) = request
            .windows(hello.len())
            .position(|words| words == hello)
        {
            request[at + hello.len() - 1] = b'2';
        }
        true
    });
    let holder = rlock("job").node(&url).hold("echo ready; read line; true");
    eventually("it has tried to listen", || {
        server.cli(&["CLIENT", "LIST"]).contains(" sub=1 ")
    });
    let waiter = rlock("job")
        .node(&url)
        .args(["-q", "--", "echo", "ran"])
        .spawn();
    server.wait_until_asked(3);
    holder.finish().code(0).silent();
    waiter
        .finish()
        .code(0)
        .printed(&["ran"])
        .within(Duration::from_secs(20));
}

/// These are the commands that twemproxy does not pass on.
#[test]
fn doctor_judges_a_server_behind_a_proxy_that_closes_at_commands() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    let url = proxy(
        server.port(),
        &[
            "HELLO",
            "INFO",
            "SCAN",
            "TIME",
            "SUBSCRIBE",
            "PUBLISH",
            "PUBSUB",
            "DBSIZE",
            "CONFIG",
        ],
    );
    rlock("job")
        .node(&url)
        .args(["-n"])
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
    let told = rlock_words(["doctor", "--try"])
        .node(&url)
        .finish()
        .code(1)
        .silent()
        .stdout
        .join("\n");
    for words in [
        "it does not know info",
        "it does not know hello, subscribe",
        "it does not know scan",
        "locks can be held",
    ] {
        assert!(told.contains(words), "{words} is missing in {told}");
    }
    // Scripts use them behind the proxy.
    assert!(
        !told.contains("publish,") && !told.contains("know time"),
        "{told}"
    );
}

/// fakeredis is such a server: it has no INFO, and answers with an error.
#[test]
fn doctor_judges_a_server_that_closes_the_connection_after_an_error() {
    let server = Server::tcp(&["--appendonly", "yes", "--rename-command", "INFO", ""]);
    let has_failed = Cell::new(false);
    let url = relay(server.port(), move |request| {
        let info = b"$4\r\nINFO\r\n";
        !has_failed.replace(request.windows(info.len()).any(|word| word == info))
    });
    rlock("job")
        .node(&url)
        .args(["-n"])
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
    let told = rlock_words(["doctor", "--try"])
        .node(&url)
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(
        told.contains("it does not know info") && told.contains("locks can be held"),
        "{told}"
    );
    assert!(
        !told.contains("know scan") && !told.contains("cannot run"),
        "{told}"
    );
}

#[test]
fn a_server_without_eval_is_unfit_and_doctor_says_so() {
    let server = Server::with(&["--appendonly", "yes", "--rename-command", "EVAL", ""]);
    rlock("job")
        .on(&server)
        .command(["echo", "ran"])
        .code(78)
        .printed(&[])
        .said(&["EVAL"]);
    let told = rlock_words(["doctor"])
        .on(&server)
        .finish()
        .code(78)
        .stdout
        .join("\n");
    assert!(
        told.contains("it cannot run rlock's scripts") && told.contains("not fit"),
        "{told}"
    );
}

#[test]
fn a_server_that_lacks_commands_of_the_scripts_is_unfit() {
    let server = Server::with(&["--appendonly", "yes", "--rename-command", "TYPE", ""]);
    rlock("job")
        .on(&server)
        .command(["echo", "ran"])
        .code(78)
        .printed(&[]);
    let told = rlock_words(["doctor"])
        .on(&server)
        .finish()
        .code(78)
        .stdout
        .join("\n");
    assert!(
        told.contains("it does not know type: no lock can be held"),
        "{told}"
    );
}

#[test]
fn a_server_that_tells_nothing_of_itself_holds_locks_and_doctor_names_what_is_missing() {
    let gone = ["INFO", "HELLO", "SUBSCRIBE", "PUBLISH", "PUBSUB"];
    let words: Vec<&str> = gone
        .iter()
        .flat_map(|name| ["--rename-command", name, ""])
        .collect();
    let server = Server::with(&words);
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let waiter = rlock("job")
        .on(&server)
        .args(["-q", "--", "echo", "ran"])
        .spawn();
    // It has no INFO to ask for the number of scripts: the waiter's own connection shows that it
    // has come.
    eventually("the waiter has come", || {
        server.cli(&["CLIENT", "LIST"]).matches("cmd=eval").count() >= 2
    });
    holder.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
    let told = rlock_words(["doctor"])
        .on(&server)
        .finish()
        .code(1)
        .stdout
        .join("\n");
    for words in [
        "it does not know info",
        "hello, subscribe, publish, pubsub|numsub",
        "locks can be held",
    ] {
        assert!(told.contains(words), "{words} is missing in {told}");
    }
}
