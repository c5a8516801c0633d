//! The status line of a waiter on a terminal.

use crate::support::{RLOCK, Server, Session, rlock};

/// Begin of the line. The seconds of the wait follow it.
const WAITING: &str = "\rrlock: job: waiting ";

/// Returns the seconds in the line that has begun.
fn seconds(bash: &mut Session) -> u32 {
    bash.sees("s; ").parse().expect("seconds")
}

#[test]
fn a_terminal_shows_the_holder_in_one_line_that_goes_away() {
    let server = Server::start();
    let holder = rlock("job")
        .on(&server)
        .args(["--note", "why"])
        .hold("echo ready; read line; true");
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -k job -- echo let in");
    bash.sees(WAITING);
    let first = seconds(&mut bash);
    let line = bash.sees("(why)");
    assert!(
        line.starts_with("held for ") && line.contains(" by tester@"),
        "{line:?}"
    );
    bash.sees(WAITING);
    assert!(first >= 1 && seconds(&mut bash) > first);
    holder.finish().code(0);
    let rest = bash.sees("let in");
    assert!(
        rest.contains("\r\x1b[K") && !rest.contains('\n'),
        "{rest:?}"
    );
}

#[test]
fn the_line_stays_while_a_foreign_holder_is_looked_at() {
    let server = Server::start();
    server.cli(&["SET", "job", "foreign", "PX", "60000"]);
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -k job --wait 6 -- true");
    bash.sees(WAITING);
    let first = seconds(&mut bash);
    bash.sees("held by a client that is not rlock");
    let until_next = bash.sees(WAITING);
    assert!(!until_next.contains("\r\x1b[K"), "{until_next:?}");
    assert!(seconds(&mut bash) > first);
    assert!(bash.sees("rlock: job: busy").contains("\r\x1b[K"));
}

#[test]
fn the_line_is_cut_at_the_terminals_width_and_tells_the_end_of_the_wait() {
    let server = Server::start();
    let _holder = rlock("job")
        .on(&server)
        .args(["--note", "why"])
        .hold("echo ready; read line; true");
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.resize(24, 200);
    bash.line("rlock run -k job --wait 5m -- true");
    bash.sees("(why); gives up in 4m 5");
    bash.resize(24, 20);
    bash.sees("\rrlock: job: waitin…\x1b[K");
}

#[test]
fn a_step_stands_above_the_line_which_is_drawn_again() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -v -k job -- sh -c 'read line < go; echo let in'");
    bash.sees("rlock: job: waiting: held by tester@");
    bash.sees(WAITING);
    bash.sees("s; held for ");
    holder.finish().code(0);
    assert!(
        bash.sees("rlock: job: acquired, fence")
            .ends_with("\r\x1b[K")
    );
    bash.go();
    assert!(!bash.sees("let in").contains("\x1b[K"));
}

#[test]
fn a_waiter_sent_to_the_background_leaves_the_line_of_others_alone() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -k job -- echo let in");
    bash.sees(WAITING);
    bash.press("\x1a");
    bash.prompt();
    bash.line("bg");
    bash.prompt();
    holder.finish().code(0);
    let rest = bash.sees("let in");
    assert!(!rest.contains("\x1b[K"), "{rest:?}");
}
