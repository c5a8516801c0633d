//! `--progress`: plain lines about what takes longer than a second.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{RLOCK, Running, Server, Session, eventually, rlock, rlock_words};

fn holder(server: &Server) -> Running {
    rlock("job")
        .on(server)
        .args(["--note", "why"])
        .hold("echo ready; read line; true")
}

/// Returns the lines that a waiter of `job` has told in the end, where its holder ends once it has
/// told `words`.
fn told_by_waiter(words: &str, waits: impl FnOnce(&Server) -> Running) -> String {
    let server = Server::start();
    let holder = holder(&server);
    let mut waiter = waits(&server);
    waiter.wait_until_told(words);
    holder.finish().code(0);
    waiter.finish().code(0).stderr
}

#[test]
fn in_ci_plain_lines_tell_the_holder_and_the_end() {
    let waits = |server: &Server| {
        rlock("job")
            .on(server)
            .env("CI", "true")
            .args(["--", "true"])
            .spawn()
    };
    let told = told_by_waiter("; held for ", waits);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(
        lines[0].starts_with("rlock: job: waiting ")
            && lines[0].contains(" by tester@")
            && lines[0].ends_with(", sh (why)"),
        "{told}"
    );
    assert!(
        lines[1].starts_with("rlock: job: acquired after "),
        "{told}"
    );
}

#[test]
fn without_a_terminal_and_ci_and_with_q_a_wait_is_silent() {
    let server = Server::start();
    for words in [
        &["--wait", "1500ms"][..],
        &["-q", "--progress", "plain", "--wait", "1500ms"],
        &["--progress", "none", "--wait", "1500ms"],
    ] {
        let _holder = holder(&server);
        let waiter = rlock("job")
            .on(&server)
            .env("CI", if words.len() == 2 { "false" } else { "1" })
            .args(words);
        let finished = waiter.command(["true"]).code(75);
        assert!(
            finished.stderr.lines().count() <= 1 && !finished.stderr.contains("waiting"),
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn a_new_holder_and_a_new_place_are_told() {
    let server = Server::start();
    let first = holder(&server);
    let second = rlock("job").on(&server).args([
        "--name",
        "second",
        "--",
        "sh",
        "-c",
        "echo ready; read line; true",
    ]);
    let piped = second.with(|command| {
        command.stdin(Stdio::piped());
    });
    let mut second = piped.spawn();
    eventually("it stands in line", || {
        server.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
    });
    let mut third = rlock("job")
        .on(&server)
        .args(["--progress", "plain", "--", "true"])
        .spawn();
    third.wait_until_told("s, 1 ahead; held for ");
    first.finish().code(0);
    second.wait_for("ready");
    third.wait_until_told(", second");
    second.finish().code(0);
    third
        .finish()
        .code(0)
        .mentions(&["rlock: job: acquired after "]);
}

#[test]
fn steps_are_not_told_twice() {
    let waits = |server: &Server| {
        rlock("job")
            .on(server)
            .args(["-v", "--progress", "plain", "--wait", "1m", "--", "true"])
            .spawn()
    };
    let told = told_by_waiter("rlock: job: waiting: held by ", waits);
    assert!(
        !told.contains("held for") && !told.contains("acquired after"),
        "{told}"
    );
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let server = Server::start();
    let holder = holder(&server);
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("TERM=dumb rlock run -k job -- echo let in");
    bash.sees("s; held for ");
    bash.sees("(why)\r\n");
    holder.finish().code(0);
    let rest = bash.sees("let in");
    assert!(
        rest.contains("rlock: job: acquired after ") && !rest.contains('\x1b'),
        "{rest:?}"
    );
}

#[test]
fn nodes_that_do_not_answer_are_told() {
    let server = Server::start();
    server.freeze();
    let words = [
        "--progress",
        "plain",
        "--node-timeout",
        "4s",
        "--ttl",
        "2m",
        "--",
        "true",
    ];
    let mut waiter = rlock("job").on(&server).args(words).spawn();
    waiter.wait_until_told("s; no majority of the nodes has answered yet");
    server.thaw();
    waiter.finish().code(0);
}

#[test]
fn nodes_under_their_restart_guard_are_told() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    let words = [
        "--progress",
        "plain",
        "--restart-guard",
        "8s",
        "--ttl",
        "2s",
        "--",
        "true",
    ];
    let waiter = rlock("job").node(&urls).args(words).finish().code(0);
    waiter.mentions(&[
        "s; no majority of the 3 nodes",
        "restarted",
        "acquired after",
    ]);
}

#[test]
fn break_tells_what_it_waits_for() {
    let server = Server::start();
    let job = rlock("job")
        .on(&server)
        .args(["--ttl", "12s", "--kill-after", "3s"]);
    let job = job.hold("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    let broken = rlock_words(["break", "-y", "job", "--progress", "plain"])
        .on(&server)
        .finish()
        .code(0);
    broken.mentions(&["rlock: job: waiting for the holder to stop its command: "]);
    job.finish().code(79);
}

#[test]
fn leftovers_that_are_being_ended_are_told() {
    let server = Server::start();
    let job = |words: &[&str]| {
        let job = rlock("job")
            .on(&server)
            .args(["--contain", "--kill-after", "2s"])
            .args(words);
        job.sh("setsid sh -c \"trap '' TERM; while :; do sleep 0.1; done\" >/dev/null 2>&1 & sleep 0.3").code(0)
    };
    job(&["--progress", "plain"])
        .mentions(&["rlock: job: ending ", "that the command left behind"]);
    job(&[]).silent();
}

#[test]
fn a_value_that_is_none_of_the_four_is_refused() {
    let run = rlock("job")
        .args(["--node", "local", "--progress", "fancy"])
        .command(["true"])
        .code(64);
    run.said(&["--progress", "auto"])
        .within(Duration::from_secs(5));
}

#[test]
fn nodes_that_do_not_answer_are_told_after_a_second_where_no_line_shows_the_wait() {
    let lines = |words: &[&str]| {
        let run = rlock("job")
            .node("redis://127.0.0.1:1")
            .args(words)
            .command(["true"])
            .code(69);
        let told = run
            .stderr
            .lines()
            .filter(|line| line.ends_with("; trying again"))
            .count();
        assert!(
            run.stderr
                .lines()
                .last()
                .is_some_and(|line| !line.contains("trying")),
            "{}",
            run.stderr
        );
        (told, run.stderr.lines().count())
    };
    assert_eq!(lines(&["--wait", "4"]), (1, 2));
    for words in [
        &["-n"][..],
        &["--wait", "0.5"],
        &["--wait", "4", "-q"],
        &["--wait", "4", "--progress", "none"],
    ] {
        assert_eq!(lines(words), (0, 1), "{words:?}");
    }
}
