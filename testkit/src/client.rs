//! Clients of other projects, behind programs that speak the lines of tests/interop/README.md.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;

use crate::rlock::lines_of;
use crate::{LIMIT, Nodes, Server, repository, skipped};

/// A client that is killed on drop.
pub struct Client {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    /// Starts the client of `library`, with its locks on `nodes`, which must listen on TCP; none if
    /// it is not installed.
    pub fn start(library: &str, nodes: &Nodes) -> Option<Self> {
        let dir = repository().join("tests/interop");
        let installed = dir.join(".installed");
        let (needed, mut command) = match library {
            "node-redlock" => (
                installed.join("node/node_modules/redlock"),
                Command::new("node"),
            ),
            "rslock" => {
                let program = installed.join("rslock/debug/interop-rslock");
                (program.clone(), Command::new(program))
            }
            _ => {
                let python = installed.join("python/bin/python");
                (python.clone(), Command::new(python))
            }
        };
        if !needed.exists() {
            let missing = format!("{library} is not installed (tests/interop/install)");
            assert!(
                std::env::var_os("TEST_INTEROP").is_none_or(|wish| wish != "required"),
                "{missing}"
            );
            skipped(&missing);
            return None;
        }
        match library {
            "node-redlock" => _ = command.arg(dir.join("client.mjs")),
            "rslock" => {}
            python => _ = command.arg(dir.join("client.py")).arg(python),
        }
        let urls = nodes.iter().map(Server::tcp_url);
        let mut process = command
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a client that is installed");
        let stdin = process.stdin.take().expect("its stdin");
        let lines = lines_of(process.stdout.take().expect("its stdout"));
        Some(Self {
            process,
            stdin,
            lines,
        })
    }

    /// Tries once, and returns whether the client has the lock.
    #[track_caller]
    pub fn acquires(&mut self, key: &str, ttl_ms: u32) -> bool {
        match self.ask(&format!("acquire {key} {ttl_ms}")).as_str() {
            "held" => true,
            "refused" => false,
            other => panic!("{other}"),
        }
    }

    /// Releases the lock that the client acquired last, and checks that it finds nothing wrong.
    #[track_caller]
    pub fn releases(&mut self) {
        let answer = self.ask("release");
        assert!(matches!(answer.as_str(), "released" | "tried"), "{answer}");
    }

    /// Releases the lock, and checks that the client finds that it no longer holds it, if its
    /// library can tell.
    #[track_caller]
    pub fn fails_to_release(&mut self) {
        let answer = self.ask("release");
        assert!(matches!(answer.as_str(), "not ours" | "tried"), "{answer}");
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").expect("a client that listens");
        self.lines
            .recv_timeout(LIMIT)
            .unwrap_or_else(|error| panic!("no answer to {line:?}: {error}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
