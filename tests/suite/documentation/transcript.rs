//! README's transcript, played on two hosts again: what is printed must be what README shows, but
//! for times, numbers and names.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use testkit::program::install_script;

use super::examples::programs;
use super::script;
use crate::support::{Delay, Proxy, Server};

/// Longest time for which a line may not come: a lease of `TTL` is over sooner.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lease of the run that is played. README shows the default's, which takes longer.
const TTL: &str = "5s";

/// A shell on a host, and the lines that it and its commands print.
struct Host {
    shell: Child,
    typed: ChildStdin,
    lines: Receiver<String>,
}

impl Host {
    /// `lasts` is how long the job runs there, in seconds.
    fn start(folder: &Path, node: &str, lasts: &str) -> Self {
        let path = format!(
            "{}:{}",
            folder.display(),
            std::env::var("PATH").expect("a PATH")
        );
        let mut shell = Command::new("sh");
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"RLOCK_"))
        {
            shell.env_remove(name);
        }
        shell
            .args(["-c", "exec sh -s 2>&1"])
            .current_dir(folder)
            .env("PATH", path)
            .env("LOGNAME", "deploy");
        shell.envs([
            ("RLOCK_NODE", node),
            ("RLOCK_CONFIG", "none"),
            ("RLOCK_TTL", TTL),
            ("LASTS", lasts),
        ]);
        let mut shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let (typed, printed) = (
            shell.stdin.take().expect("stdin"),
            shell.stdout.take().expect("stdout"),
        );
        let (send, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(printed)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self {
            shell,
            typed,
            lines,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Returns the line without what differs from run to run: columns, times, numbers of three digits
/// and more, names of hosts and nodes.
fn masked(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_matches([',', ';', ':', '(', ')']);
        let is_time =
            bare.starts_with(|c: char| c.is_ascii_digit()) && bare.ends_with(['s', 'm', 'h']);
        let is_number = bare.len() > 2 && bare.chars().all(|c| c.is_ascii_digit());
        let name = match () {
            () if is_time => "TIME",
            () if is_number => "NUMBER",
            () if bare.contains('@') => "HOLDER",
            () if bare.starts_with("redis://") => "NODE",
            () => bare,
        };
        // "7s 100ms" is one time.
        if name != "TIME" || words.last().is_none_or(|last| last != "TIME") {
            words.push(word.replace(bare, name));
        }
    }
    words.join(" ")
}

/// A command of the transcript, and the lines after it.
struct Step<'a> {
    host: usize,
    command: &'a str,
    printed: Vec<&'a str>,
}

/// The prompts of the two hosts.
const PROMPTS: [&str; 2] = ["web1$ ", "web2$ "];

fn steps(transcript: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in transcript.lines() {
        let prompt = PROMPTS.iter().position(|prompt| line.starts_with(prompt));
        match (prompt, steps.last_mut()) {
            (Some(host), _) => steps.push(Step {
                host,
                command: &line[PROMPTS[host].len()..],
                printed: Vec::new(),
            }),
            (None, Some(step)) => step.printed.push(line),
            (None, None) => panic!("no prompt before {line}"),
        }
    }
    steps
}

#[test]
fn the_transcript_of_readme_is_what_two_hosts_print() {
    let server = Server::tcp(&[]);
    let is_cut = Arc::new(AtomicBool::new(false));
    let line = Proxy::open(Ipv4Addr::LOCALHOST, server.port(), {
        let is_cut = Arc::clone(&is_cut);
        move || {
            let delay = |is_cut: Arc<AtomicBool>| -> Delay {
                Box::new(move || {
                    if is_cut.load(Ordering::Relaxed) {
                        PATIENCE * 10
                    } else {
                        Duration::ZERO
                    }
                })
            };
            [delay(Arc::clone(&is_cut)), delay(Arc::clone(&is_cut))]
        }
    });
    let node = format!("redis://127.0.0.1:{}", line.expect("a proxy").port());
    let folder = programs(&[]);
    let job = "#!/bin/sh\necho \"backing up, fence $RLOCK_FENCE\"\nexec sleep $LASTS\n";
    install_script(job, &folder.path().join("backup.sh")).expect("a script");
    let mut hosts = [
        Host::start(folder.path(), &node, "600"),
        Host::start(folder.path(), &server.tcp_url(), "0"),
    ];
    for Step {
        host,
        command,
        printed,
    } in steps(&script("README.md", "web1$ "))
    {
        is_cut.fetch_or(command.starts_with('#'), Ordering::Relaxed);
        writeln!(hosts[host].typed, "{command}").expect("a shell");
        for line in printed {
            let now = hosts[host]
                .lines
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("{command}: no {line}"));
            assert_eq!(masked(&now), masked(line), "{command}");
        }
    }
    assert!(is_cut.load(Ordering::Relaxed));
}
