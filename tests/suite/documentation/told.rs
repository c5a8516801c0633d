//! The scripts of docs/recipes/being-told.md, with a server of HTTP that keeps what it was told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use testkit::program::install_script;

use super::script;
use crate::support::{Rlock, Server, rlock, skipped};

const PAGE: &str = "docs/recipes/being-told.md";

/// Longest time until a message has come.
const SOON: Duration = Duration::from_secs(20);

/// A server of HTTP: what each request asks for, with its body.
struct Told {
    url: String,
    requests: Receiver<String>,
    /// With the scripts of the page.
    folder: tempfile::TempDir,
}

/// None where curl and jq are not installed.
fn told() -> Option<Told> {
    for program in ["curl", "jq"] {
        let mut version = Command::new(program);
        if version
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            assert!(
                std::env::var_os("TEST_PACKAGING").is_none_or(|wish| wish != "required"),
                "{program} is not installed"
            );
            skipped(&format!("{program} is not installed"));
            return None;
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut first, mut length) = (String::new(), 0);
            stream.read_line(&mut first).expect("a request");
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).expect("a header");
                if line.trim().is_empty() {
                    break;
                }
                if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                    length = number.trim().parse().expect("a number");
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("a body");
            let asked = first.split(' ').nth(1).expect("a path");
            let request = format!("{asked} {}", String::from_utf8_lossy(&body));
            // Before the answer, so that a script that has ended has told all.
            if sender.send(request).is_err() {
                return;
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).expect("an answer");
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["checked", "tell-slack", "tell-log"] {
        let text = script(PAGE, &format!("# {name}"));
        install_script(&text, &folder.path().join(name)).expect("a script");
    }
    Some(Told {
        url,
        requests,
        folder,
    })
}

impl Told {
    fn next(&self) -> String {
        self.requests.recv_timeout(SOON).expect("a request")
    }

    fn is_silent(&self) {
        assert_eq!(self.requests.try_recv().ok(), None);
    }

    /// Runs `commands` under the lock.
    fn run(&self, server: &Server, commands: &str) -> Rlock {
        let path = format!(
            "{}:{}",
            self.folder.path().display(),
            std::env::var("PATH").expect("a path")
        );
        rlock("job")
            .on(server)
            .env("PATH", &path)
            .args(["-n", "-c", commands])
    }

    /// Runs `tell-slack` as a shell does behind a run that has failed.
    fn slack(&self, code: &str) {
        let status = Command::new(self.folder.path().join("tell-slack"))
            .args(["job", code])
            .env("SLACK_URL", &self.url)
            .status();
        assert!(status.expect("the script").success());
    }
}

#[test]
fn a_check_hears_of_the_host_that_runs_the_job_and_of_no_other() {
    let Some(told) = told() else { return };
    let server = Server::start();
    let command = |code: i32| format!("checked {}/ping/7 sh -c 'exit {code}'", told.url);
    told.run(&server, &command(0)).finish().code(0);
    assert_eq!([told.next(), told.next()], ["/ping/7/start ", "/ping/7/0 "]);
    told.run(&server, &command(3)).finish().code(3);
    assert_eq!([told.next(), told.next()], ["/ping/7/start ", "/ping/7/3 "]);

    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    told.run(&server, &command(0)).finish().code(75);
    told.is_silent();
    holder.finish().code(0);

    // The lock was lost: no ping of an end.
    let command = format!("checked {}/ping/7 sleep 60", told.url);
    let run = told.run(&server, &command).args(["--ttl", "1s"]).spawn();
    assert_eq!(told.next(), "/ping/7/start ");
    server.cli(&["SET", "job", "another"]);
    run.finish().code(79);
    told.is_silent();
}

#[test]
fn slack_hears_what_an_exit_code_means() {
    let Some(told) = told() else { return };
    let host = nix::unistd::gethostname().expect("a name");
    let host = host.to_string_lossy();
    told.slack("0");
    told.slack("75");
    for (code, what) in [
        ("3", "failed with exit code 3"),
        ("69", "no server of the locks could be reached"),
        ("79", "the lock was lost"),
        ("143", "ended by signal 15"),
        // As systemd tells it.
        ("KILL", "rlock itself was ended by SIGKILL"),
    ] {
        told.slack(code);
        let request = told.next();
        let body: serde_json::Value =
            serde_json::from_str(request.strip_prefix("/ ").expect("a body")).expect("JSON");
        let text = body["text"].as_str().expect("a text");
        assert!(
            text.starts_with(&format!("job on {host}: {what}")),
            "{text}"
        );
    }
}

#[test]
fn warnings_and_errors_of_the_log_are_posted_and_nothing_else() {
    let Some(told) = told() else { return };
    let server = Server::start();
    let run = rlock("job")
        .on(&server)
        .args(["--log", "json", "--ttl", "1s"]);
    let run = run.args([
        "-c",
        "echo '{\"level\":\"error\"}' >&2; echo ready; exec sleep 60",
    ]);
    let mut run = run.spawn();
    run.wait_for("ready");
    server.cli(&["SET", "job", "another \"client\""]);
    let lines = run.finish().code(79).stderr;
    assert!(
        lines.contains("\"acquired\"") && lines.contains("{\"level\":\"error\"}"),
        "{lines}"
    );
    let mut script = Command::new(told.folder.path().join("tell-log"))
        .env("SLACK_URL", &told.url)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the script");
    script
        .stdin
        .take()
        .expect("its stdin")
        .write_all(lines.as_bytes())
        .expect("room");
    assert!(script.wait().expect("its end").success());
    let bodies: Vec<String> = told.requests.try_iter().collect();
    assert!(
        !bodies.is_empty() && bodies.len() < lines.lines().count(),
        "{bodies:?}"
    );
    assert!(
        bodies.iter().any(|body| body.contains("lost the lock")),
        "{bodies:?}"
    );
    assert!(
        bodies
            .iter()
            .all(|body| body.starts_with("/ {\"text\":\"job: ")),
        "{bodies:?}"
    );
}
