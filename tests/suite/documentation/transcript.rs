//! Terminals that the pages show, played again: rlock must print what the page shows, but for times,
//! numbers and names.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Map, Value};
use tempfile::TempDir;
use testkit::program::install_script;

use super::examples::{programs, sh};
use super::{blocks, pages, script};
use crate::support::{Delay, Proxy, RLOCK, Server, Session, eventually};

/// Longest time for which a line may not come: a lease of `TTL` is over sooner.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lease of the run that is played. README shows the default's, which takes longer.
const TTL: &str = "5s";

/// Days of the week, as messages name them.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A shell on a host, and the lines that it and its commands print.
struct Host {
    name: &'static str,
    shell: Child,
    typed: ChildStdin,
    lines: Receiver<String>,
}

impl Host {
    /// `waits`: jobs of this host go on until there is a file `go`. Elsewhere they end at once.
    fn start(name: &'static str, folder: &Path, node: &str, waits: bool) -> Self {
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
            .process_group(0)
            .current_dir(folder)
            .env("PATH", path)
            .env("LOGNAME", "deploy");
        shell.envs([
            ("RLOCK_NODE", node),
            ("RLOCK_CONFIG", "none"),
            ("RLOCK_TTL", TTL),
            ("RLOCK_RESTART_GUARD", "off"),
            ("WAITS", if waits { "yes" } else { "" }),
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
            name,
            shell,
            typed,
            lines,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // An rlock of the shell's that waits would go on without it.
        let group = Pid::from_raw(self.shell.id().cast_signed());
        let _ = killpg(group, Signal::SIGTERM);
        let _ = self.shell.wait();
    }
}

/// Hosts in one folder with one job, and the servers that a page calls redis1, redis2 and so on.
struct Stage {
    folder: TempDir,
    servers: Vec<Server>,
    hosts: Vec<Host>,
}

/// A command of a transcript, and the lines after it.
struct Step<'a> {
    host: usize,
    command: &'a str,
    printed: Vec<&'a str>,
}

impl Stage {
    fn of(servers: Vec<Server>) -> Self {
        let folder = programs(&[]);
        let install = |name: &str, text: &str| {
            install_script(text, &folder.path().join(name)).expect("a script");
        };
        let job = script("docs/getting-started.md", "web1$ cat backup.sh");
        let job = job.lines().skip(1).take(3).collect::<Vec<_>>().join("\n");
        install("backup.sh", &format!("{job}\n"));
        install("deploy.sh", "#!/bin/sh\necho deploy.sh \"$@\"\n");
        let sleep = "until [ -e go ]; do /bin/sleep 0.05; done";
        install(
            "sleep",
            &format!("#!/bin/sh\n[ \"$WAITS\" ] || exit 0\n{sleep}\n"),
        );
        Self {
            folder,
            servers,
            hosts: Vec::new(),
        }
    }

    /// Adds a host whose node is the first server. Jobs of web1 go on until there is a file `go`.
    fn host(mut self, name: &'static str) -> Self {
        let node = self.servers[0].tcp_url();
        let host = Host::start(name, self.folder.path(), &node, name == "web1");
        self.hosts.push(host);
        self
    }

    fn steps<'a>(&self, transcript: &'a str) -> Vec<Step<'a>> {
        let mut steps: Vec<Step<'a>> = Vec::new();
        for line in transcript.lines() {
            let mut prompts = self.hosts.iter().enumerate().filter_map(|(host, of)| {
                Some((host, line.strip_prefix(of.name)?.strip_prefix("$ ")?))
            });
            match (prompts.next(), steps.last_mut()) {
                (Some((host, command)), _) => {
                    steps.push(Step {
                        host,
                        command,
                        printed: Vec::new(),
                    });
                }
                (None, Some(step)) => step.printed.push(line),
                (None, None) => panic!("no prompt before {line}"),
            }
        }
        steps
    }

    /// Types each command, and compares the lines that it prints. A command and its rlock print in
    /// no order. `seen` is called with each command and each line.
    fn play(&mut self, transcript: &str, mut seen: impl FnMut(&str, &Self)) {
        for Step {
            host,
            command,
            mut printed,
        } in self.steps(transcript)
        {
            let typed = self.with_addresses(command);
            writeln!(self.hosts[host].typed, "{typed}").expect("a shell");
            seen(command, self);
            while !printed.is_empty() {
                let line = self.hosts[host].lines.recv_timeout(PATIENCE);
                let line = line.unwrap_or_else(|_| panic!("{command}: no {printed:?}"));
                let mut places = printed.iter();
                let place = places.position(|there| self.masked(there) == self.masked(&line));
                let place =
                    place.unwrap_or_else(|| panic!("{command}: {line:?} is not in {printed:#?}"));
                printed.remove(place);
                seen(&line, self);
            }
        }
    }

    /// Returns the command with the addresses of the servers.
    fn with_addresses(&self, command: &str) -> String {
        (1..)
            .zip(&self.servers)
            .fold(command.to_owned(), |command, (number, server)| {
                command
                    .replace(&format!("redis://redis{number}"), &server.tcp_url())
                    .replace(
                        &format!("-h redis{number}"),
                        &format!("-p {}", server.port()),
                    )
            })
    }

    /// Returns the line without what differs from run to run: columns, times, numbers of three
    /// digits and more, tokens, versions, names of hosts and nodes.
    fn masked(&self, line: &str) -> String {
        let hostname = nix::unistd::gethostname().expect("a name");
        let mut words: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            let bare = word.trim_matches([',', ';', ':', '(', ')', '<', '+', '-']);
            let is_digit = |c: char| c.is_ascii_digit();
            let name = match () {
                () if bare.starts_with(is_digit) && bare.ends_with(['s', 'm', 'h']) => "TIME",
                () if bare.chars().all(is_digit)
                    && (bare.len() > 2 || (word.starts_with(['+', '-']) && word != "-")) =>
                {
                    "NUMBER"
                }
                () if DAYS.contains(&bare) => "DAY",
                () if bare.len() == 5 && bare.as_bytes()[2] == b':' => "CLOCK",
                () if bare.matches('.').count() == 2 && bare.starts_with(is_digit) => "VERSION",
                () if bare.len() == 36 && bare.matches('-').count() == 4 => "TOKEN",
                () if bare.contains('@') => "HOLDER",
                () if bare.starts_with("redis://") => "NODE",
                () if bare == hostname || self.hosts.iter().any(|host| host.name == bare) => "HOST",
                () => bare,
            };
            // "7s 100ms" is one time.
            if name != "TIME" || words.last().is_none_or(|last| last != "TIME") {
                let word = word.trim_start_matches(['<', '+', '-']);
                words.push(if bare.is_empty() {
                    word.to_owned()
                } else {
                    word.replace(bare, name)
                });
            }
        }
        words.join(" ")
    }

    /// Lets the jobs of web1 end, or lets later ones wait.
    fn go(&self, goes: bool) {
        let file = self.folder.path().join("go");
        if goes {
            std::fs::write(file, "").expect("a file");
        } else {
            std::fs::remove_file(file).expect("the file");
        }
    }

    /// Starts the job on web1, and returns when it runs.
    fn backup_runs(&mut self, more: &str) {
        let run = format!("web1$ rlock run -k backup {more} -- ./backup.sh\nbacking up, fence 100");
        self.play(&run, |_, _| {});
    }
}

fn servers(count: usize, options: &[&str]) -> Vec<Server> {
    (0..count).map(|_| Server::tcp(options)).collect()
}

#[test]
fn the_transcript_of_readme_is_what_two_hosts_print() {
    let mut stage = Stage::of(servers(1, &[])).host("web2");
    let is_cut = Arc::new(AtomicBool::new(false));
    let line = Proxy::open(Ipv4Addr::LOCALHOST, stage.servers[0].port(), {
        let is_cut = Arc::clone(&is_cut);
        move |_| {
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
    let web1 = Host::start("web1", stage.folder.path(), &node, true);
    stage.hosts.push(web1);
    stage.play(&script("README.md", "web1$ "), |line, _| {
        is_cut.fetch_or(line.starts_with('#'), Ordering::Relaxed);
    });
    assert!(is_cut.load(Ordering::Relaxed));
}

#[test]
fn the_first_lock_of_getting_started_is_what_two_hosts_print() {
    let mut stage = Stage::of(servers(1, &[])).host("web1").host("web2");
    stage.play(
        &script("docs/getting-started.md", "web1$ cat backup.sh"),
        |_, _| {},
    );
    stage.play(
        &script("docs/getting-started.md", "web2$ rlock run -v"),
        |line, stage| {
            // The job on web1 ends when the run on web2 waits.
            if line.contains("waiting: held by") {
                stage.go(true);
            }
        },
    );
    stage.go(false);
    stage.play(
        &script("docs/getting-started.md", "sleep 600"),
        |line, stage| {
            if line.starts_with("rlock run") {
                eventually("it is held", || {
                    stage.servers[0].cli(&["DEL", "deploy"]) == "1"
                });
            }
        },
    );
    stage.backup_runs("");
    stage.play(
        &script("docs/getting-started.md", "web2$ rlock inspect"),
        |_, _| {},
    );
}

#[test]
fn the_nodes_that_go_away_are_what_a_host_prints() {
    let mut stage = Stage::of(servers(3, &[])).host("web1");
    stage.go(true);
    stage.play(
        &script("docs/nodes.md", "redis-cli -h redis3 SHUTDOWN"),
        |_, _| {},
    );
}

#[test]
fn the_holder_and_waiters_of_inspect_are_what_it_prints() {
    let mut stage = Stage::of(servers(3, &[]));
    for name in ["web1", "web2", "web3", "ci", "ops"] {
        stage = stage.host(name);
    }
    for name in ["web1", "web2", "web3", "ci", "ops"] {
        let nodes = "export RLOCK_NODE=redis://redis1,redis://redis2,redis://redis3";
        stage.play(&format!("{name}$ {nodes}"), |_, _| {});
    }
    stage.backup_runs("--note 'nightly, see wiki/backup'");
    for (number, name) in ["web2", "web3"].into_iter().enumerate() {
        stage.play(
            &format!("{name}$ rlock run -k backup -- ./backup.sh"),
            |_, stage| {
                eventually("it waits", || {
                    let place = stage.servers[0].cli(&["ZCARD", "rlock:queue:{backup}:backup"]);
                    place == (number + 1).to_string()
                });
            },
        );
    }
    let acquire = "ci$ rlock acquire -k deploy --ttl 20m --note https://ci.example/job/7";
    stage.play(
        &format!("{acquire}\n2e21bcac-3b25-4678-9f07-0d7696bb22a5"),
        |_, _| {},
    );
    stage.servers[2].cli(&["DEL", "deploy"]);
    stage.play(
        &script("docs/operations.md", "ops$ rlock inspect backup"),
        |_, _| {},
    );
}

/// The question needs a terminal.
#[test]
fn the_broken_lock_is_what_a_terminal_shows() {
    let mut stage = Stage::of(servers(1, &[])).host("web1");
    stage.backup_runs("--note 'nightly, see wiki/backup'");
    let page = script("docs/operations.md", "ops$ rlock break backup");
    let (command, lines) = page.split_once('\n').expect("lines");
    let command = command.trim_start_matches("ops$ ");
    let mut session = Session::of_on(RLOCK, &["sh", "-c", command], &stage.servers[0]);
    session.sees("[y/N]");
    session.line("y");
    session.sees("rlock: backup: broken");
    session.sees("\n");
    assert_eq!(session.ends(), Some(0));
    // The terminal shows no key that is pressed here.
    let expected: Vec<String> = lines.lines().map(|line| stage.masked(line)).collect();
    let seen = session.seen().replace("[y/N] ", "[y/N] y\n");
    // How long it waits is shown on a line that is erased.
    let last = |line: &str| {
        line.rsplit("\u{1b}[K")
            .next()
            .map(|left| stage.masked(left))
    };
    let seen: Vec<String> = seen.lines().filter_map(last).collect();
    assert_eq!(seen, expected);
}

#[test]
fn the_findings_of_doctor_are_what_it_prints() {
    let mut all = servers(1, &["--appendonly", "yes"]);
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    all.push(Server::tcp(
        &[&["--appendonly", "yes"], &evicting[..]].concat(),
    ));
    all.extend(servers(1, &[]));
    let mut stage = Stage::of(all).host("ops");
    stage.servers[2].freeze();
    stage.play(
        &script("docs/operations.md", "ops$ rlock doctor"),
        |_, _| {},
    );
}

#[test]
fn the_deploy_freeze_is_what_a_host_prints() {
    let mut stage = Stage::of(servers(1, &[])).host("");
    stage.play(
        &script("docs/recipes/ci.md", "frozen until Monday"),
        |_, _| {},
    );
}

/// Of many settings the page shows some.
#[test]
fn the_settings_in_force_are_what_config_prints() {
    let stage = Stage::of(servers(1, &[]));
    let file = stage.folder.path().join("config.toml");
    std::fs::write(&file, script("docs/configuration.md", "[defaults]")).expect("a file");
    let page = script("docs/configuration.md", "$ rlock config -k");
    let (command, lines) = page.split_once('\n').expect("lines");
    let command = command.trim_start_matches("$ ");
    let set = format!("export RLOCK_CONFIG={}; {command}", file.display());
    let (code, told) = sh(&set, stage.folder.path(), "rediss://redis1:6380");
    assert_eq!(code, Some(0), "{told}");
    let told = told.replace(&file.display().to_string(), "/etc/rlock/config.toml");
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let printed: Vec<_> = told.lines().map(words).collect();
    for line in lines.lines() {
        assert!(printed.contains(&words(line)), "{line}: {told}");
    }
}

#[test]
fn the_value_at_the_key_has_the_fields_of_the_page() {
    let mut stage = Stage::of(servers(1, &[])).host("web1");
    stage.backup_runs("--note nightly");
    let fields = |value: &str| -> Vec<String> {
        let details = value.split_once(' ').expect("a token and details").1;
        let details: Map<String, Value> = serde_json::from_str(details).expect("JSON");
        details.keys().cloned().collect()
    };
    let page = script("docs/redis.md", "$ redis-cli GET backup");
    let shown = page.lines().nth(1).expect("the value");
    assert_eq!(
        fields(&stage.servers[0].cli(&["GET", "backup"])),
        fields(shown)
    );
}

/// A block is named by a word of it where it is played.
#[test]
fn every_terminal_of_the_pages_is_played() {
    let source = include_str!("transcript.rs");
    let played: Vec<(&str, &str)> = source
        .split("script(\"")
        .skip(1)
        .filter_map(|call| {
            let mut parts = call.split('"');
            Some((parts.next()?, parts.nth(1)?))
        })
        .collect();
    for (page, text) in pages() {
        for block in blocks(&text)
            .into_iter()
            .filter(|block| block.language == "console")
        {
            let has_command = block.lines.iter().any(|line| line.contains("$ "));
            let page = page.display().to_string();
            let is_played = played.iter().any(|(of, words)| {
                *of == page && block.lines.iter().any(|line| line.contains(words))
            });
            assert!(!has_command || is_played, "{page}:{}", block.line);
        }
    }
}
