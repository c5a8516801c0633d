//! A stderr that is not read: it blocks neither renewals nor the end.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;

use crate::support::{RLOCK, Running, STEADY, Server, Session, eventually, rlock, signal};

const CTRL_S: &str = "\x13";

/// Returns a key that makes long lines: each character is shown as several, and one line fills a
/// terminal.
fn wordy() -> String {
    "\u{1}".repeat(1000)
}

/// Waits for enough renewals of so many locks to fill a terminal, or a pipe and the queue before it,
/// and for one TTL more.
fn wait_for_renewals(server: &Server, locks: u64) {
    server.wait_until_asked(4 * locks);
}

#[test]
fn a_terminal_that_is_not_read_stops_no_renewal() {
    let server = Server::start();
    let key = wordy();
    let words = [
        &["rlock", "run", "-v"],
        &STEADY[..],
        &["-k", &key, "--", "sh", "-c", "read line < go"],
    ]
    .concat();
    let mut session = Session::of_on(RLOCK, &words, &server);
    wait_for_renewals(&server, 1);
    session.go();
    assert_eq!(session.ends(), Some(0));
    assert_eq!(server.cli(&["EXISTS", &key]), "0");
}

#[test]
fn a_pipe_that_is_not_read_stops_no_renewal_and_its_reader_learns_what_was_dropped() {
    let server = Server::start();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).expect("a small one");
    let job = rlock(&wordy())
        .args(["-k", &(wordy() + "2")])
        .on(&server)
        .args(STEADY)
        .args(["--log", "json"])
        .with(|command| {
            command.stderr(Stdio::from(writer));
        });
    let job = job.hold("echo ready; read line; true");
    wait_for_renewals(&server, 2);
    let told = std::thread::spawn(move || {
        let mut told = String::new();
        reader.read_to_string(&mut told).map(|_| told)
    });
    job.finish().code(0);
    let told = told.join().expect("the reader").expect("what was told");
    let parsed = |line| -> serde_json::Value { serde_json::from_str(line).expect(line) };
    let events: Vec<String> = told
        .lines()
        .map(|line| parsed(line)["event"].as_str().expect(line).to_owned())
        .collect();
    let mut told: Vec<_> = events
        .iter()
        .filter(|event| ["acquired", "running", "dropped"].contains(&event.as_str()))
        .collect();
    told.dedup();
    assert_eq!(told, ["acquired", "running", "dropped"], "{events:?}");
}

/// Starts a holder, and a waiter at a terminal that is then stopped.
fn waiter_at_a_frozen_terminal(server: &Server) -> (Session, Running) {
    let holder = rlock("job").on(server).hold("echo ready; read line; true");
    let words = [
        "rlock",
        "run",
        "-k",
        "job",
        "--",
        "sh",
        "-c",
        "echo > started; read line < go; exit 5",
    ];
    let mut session = Session::of_on(RLOCK, &words, server);
    session.sees("waiting");
    session.press(CTRL_S);
    eventually("the terminal has stopped", || session.is_stopped());
    (session, holder)
}

#[test]
fn a_waiter_at_a_frozen_terminal_that_wins_starts_its_command_at_once() {
    let server = Server::start();
    let (mut session, holder) = waiter_at_a_frozen_terminal(&server);
    holder.finish().code(0);
    let begin = Instant::now();
    let started = session.dir().join("started");
    eventually("the command has started", || started.exists());
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    session.go();
    assert_eq!(session.ends(), Some(5));
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_waiter_at_a_frozen_terminal_is_gone_soon_after_a_term() {
    let server = Server::start();
    let (mut session, _holder) = waiter_at_a_frozen_terminal(&server);
    let begin = Instant::now();
    signal(session.leader(), Signal::SIGTERM);
    // rlock gives the terminal half a second for the last line.
    assert_eq!(session.ends(), Some(143));
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(server.cli(&["EXISTS", "rlock:queue:{job}:job"]), "0");
}

#[test]
fn the_line_of_a_waiter_is_gone_before_its_command_prints() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let words = ["rlock", "run", "-k", "job", "--", "echo", "the command"];
    let mut session = Session::of_on(RLOCK, &words, &server);
    session.sees("waiting");
    holder.finish().code(0);
    let before = session.sees("the command");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    assert_eq!(session.ends(), Some(0));
}
