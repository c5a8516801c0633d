//! A service with sentinels: a primary, its replicas, and the sentinels that watch over them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::processes::{self, signal};
use crate::program::clean;
use crate::wait::eventually_within;
use crate::{Certificates, LIMIT, Port, Server, cli, eventually, now};

/// Name of the service.
const SERVICE: &str = "svc";

/// Time after which a sentinel takes a silent server for dead.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// Limit of the waits for sentinels. One that was stopped for 2 s does nothing for 30 s from then
/// on ("TILT Mode" in Redis Sentinel's documentation), and a failover comes after that.
const PATIENCE: Duration = Duration::from_secs(60).saturating_add(LIMIT);

/// Limit of a wait in which sentinels come into TILT Mode again and again: on a machine so busy
/// that their own timers are late.
const MOST: Duration = Duration::from_secs(600);

/// A primary, two replicas and their sentinels. All of them end with it.
pub struct Watched {
    /// The servers; the first one is the primary at first.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Sentinel>,
}

impl Watched {
    /// Starts them, and waits until all sentinels know each other and the replicas.
    pub fn start() -> Self {
        Self::with(&[], "")
    }

    /// The same with more options for the servers, and more `lines` in the configuration of the
    /// sentinels.
    pub fn with(options: &[&str], lines: &str) -> Self {
        let options = [&["--repl-diskless-sync-delay", "0"], options].concat();
        let server = || Server::tcp(&options);
        let servers: Vec<Server> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..3).map(|_| scope.spawn(server)).collect();
            starting
                .into_iter()
                .map(|server| server.join().expect("a server"))
                .collect()
        });
        let primary = servers[0].port();
        for replica in &servers[1..] {
            replica.cli(&["REPLICAOF", "127.0.0.1", &primary.to_string()]);
        }
        for replica in &servers[1..] {
            eventually("it replicates", || {
                replica
                    .cli(&["INFO", "replication"])
                    .contains("master_link_status:up")
            });
        }
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(primary, lines)).collect();
        let all = Self { servers, sentinels };
        for sentinel in &all.sentinels {
            eventually("a sentinel knows the others", || {
                sentinel.field("num-other-sentinels") == "2" && sentinel.field("num-slaves") == "2"
            });
        }
        all
    }

    /// Returns the node's address.
    pub fn url(&self) -> String {
        let all: Vec<&Sentinel> = self.sentinels.iter().collect();
        Self::url_of(&all)
    }

    /// Returns the address with these sentinels alone.
    pub fn url_of(sentinels: &[&Sentinel]) -> String {
        let hosts: Vec<String> = sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// Returns the number of the server that all sentinels name; `None` while they do not agree.
    pub fn primary(&self) -> Option<usize> {
        let named: Vec<String> = self.sentinels.iter().map(Sentinel::primary).collect();
        let port = named
            .first()
            .filter(|first| named.iter().all(|other| other == *first))?;
        self.servers
            .iter()
            .position(|server| server.port().to_string() == *port)
    }

    /// Waits until all sentinels name the same server, and returns its number.
    pub fn agreed(&self) -> usize {
        let mut primary = None;
        eventually_within(PATIENCE, "all sentinels name the same primary", || {
            primary = self.primary();
            primary.is_some()
        });
        primary.expect("a primary")
    }

    /// Waits until the primary takes writes and has a replica in step, so that another failover is
    /// possible.
    pub fn ready(&self) {
        eventually_within(PATIENCE, "a replica is in step with the primary", || {
            self.replicas_in_step() > 0
        });
    }

    /// Waits until all other servers are replicas of the primary, and all sentinels know that.
    pub fn settled(&self) {
        eventually_within(
            PATIENCE,
            "all replicas are in step with the primary",
            || self.replicas_in_step() == self.servers.len() - 1,
        );
        for sentinel in &self.sentinels {
            eventually_within(PATIENCE, "a sentinel knows no failover", || {
                sentinel.field("flags") == "master"
            });
        }
    }

    fn replicas_in_step(&self) -> usize {
        let Some(primary) = self.primary() else {
            return 0;
        };
        let is_primary = self.servers[primary]
            .cli(&["INFO", "replication"])
            .contains("role:master");
        let follows = |server: &&Server| {
            let told = server.cli(&["INFO", "replication"]);
            let of_primary = format!("master_port:{}\r", self.servers[primary].port());
            told.contains("master_link_status:up") && told.contains(&of_primary)
        };
        if is_primary {
            self.servers.iter().filter(follows).count()
        } else {
            0
        }
    }

    /// Waits until all sentinels name another server than number `old`, and returns its number.
    pub fn switched_from(&self, old: usize) -> usize {
        self.switched(old, || {})
    }

    /// The same, and does `meanwhile` while they do not.
    fn switched(&self, old: usize, meanwhile: impl Fn()) -> usize {
        let what = "all sentinels name another primary";
        let mut begin = now();
        eventually_within(MOST, what, || {
            let has_switched = self.primary().is_some_and(|primary| primary != old);
            if !has_switched {
                meanwhile();
                if self.sentinels.iter().any(Sentinel::is_in_tilt_mode) {
                    begin = now();
                }
            }
            assert!(
                has_switched || now().saturating_sub(begin) < PATIENCE,
                "never happened: {what}"
            );
            has_switched
        });
        self.primary().expect("a primary")
    }

    /// Fails over on purpose, and returns the number of the new primary once all sentinels name it.
    ///
    /// A sentinel gives up where a replica takes longer than the failover's timeout, as on a busy
    /// machine. It does not try again by itself, for the primary is not down.
    pub fn fail_over(&self) -> usize {
        let old = self.agreed();
        let (asked, port) = (&self.sentinels[0], self.servers[old].port().to_string());
        self.switched(old, || {
            if asked.fields(["port", "flags"]) == [port.as_str(), "master"] {
                asked.cli(&["SENTINEL", "FAILOVER", SERVICE]);
            }
        })
    }
}

/// A sentinel that is started for a test and killed with it.
pub struct Sentinel {
    process: Child,
    port: Port,
    _dir: TempDir,
    password: Option<String>,
}

impl Sentinel {
    /// Starts a sentinel of the service whose primary listens on `primary`, with more `lines` in
    /// its configuration.
    pub fn start(primary: u16, lines: &str) -> Self {
        Self::with(primary, |port| format!("port {port}\n{lines}"))
    }

    /// The same over TLS, to clients and servers.
    pub fn tls(primary: u16, certificates: &Certificates) -> Self {
        let options = |port| {
            let words = certificates.options(port);
            let line =
                |pair: &[String]| format!("{} {}\n", pair[0].trim_start_matches('-'), pair[1]);
            words.chunks_exact(2).map(line).collect::<String>()
        };
        Self::with(primary, |port| {
            format!("port 0\n{}tls-replication yes", options(port))
        })
    }

    fn with(primary: u16, lines: impl Fn(u16) -> String) -> Self {
        for port in Port::choices() {
            let (dir, port) = (
                tempfile::tempdir().expect("a directory"),
                port.expect("a port"),
            );
            let lines = lines(port.number());
            let down_after = DOWN_AFTER.as_millis();
            let text = format!(
                "{lines}\ndir .\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\nsentinel down-after-milliseconds \
                 {SERVICE} {down_after}\nsentinel failover-timeout {SERVICE} 2000\n"
            );
            let file = dir.path().join("sentinel.conf");
            std::fs::write(&file, text).expect("its configuration");
            let binary = std::env::var("TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
            let mut process = clean(&binary)
                .arg(&file)
                .arg("--sentinel")
                .current_dir(dir.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{binary}: {error}"));
            let mut log = BufReader::new(process.stdout.take().expect("its log"))
                .lines()
                .map_while(Result::ok);
            let is_up = log.any(|line| line.contains("Sentinel ID is"));
            std::thread::spawn(move || log.for_each(drop));
            if is_up {
                let of_auth = |line: &str| line.strip_prefix("requirepass ").map(str::to_owned);
                let password = lines.lines().find_map(of_auth);
                return Self {
                    process,
                    port,
                    _dir: dir,
                    password,
                };
            }
            let _ = process.wait();
        }
        panic!("no sentinel could be started");
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns what redis-cli prints for `command`.
    pub fn cli(&self, command: &[&str]) -> String {
        cli::at_port(self.port(), self.password.as_deref().as_slice(), command)
    }

    /// Returns a field of what it knows about the service.
    pub fn field(&self, name: &str) -> String {
        let [field] = self.fields([name]);
        field
    }

    /// Returns fields of one answer about the service.
    fn fields<const N: usize>(&self, names: [&str; N]) -> [String; N] {
        let told = self.cli(&["SENTINEL", "MASTER", SERVICE]);
        names.map(|name| {
            told.lines()
                .skip_while(|line| *line != name)
                .nth(1)
                .unwrap_or_default()
                .to_owned()
        })
    }

    fn is_in_tilt_mode(&self) -> bool {
        self.cli(&["INFO", "sentinel"]).contains("sentinel_tilt:1")
    }

    /// Returns the port of the primary that it names.
    pub fn primary(&self) -> String {
        let told = self.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
        told.lines().nth(1).unwrap_or_default().to_owned()
    }

    /// Stops it (SIGSTOP).
    pub fn freeze(&self) {
        processes::freeze(self.process.id().cast_signed());
    }

    /// Continues it (SIGCONT).
    pub fn thaw(&self) {
        signal(self.process.id().cast_signed(), Signal::SIGCONT);
    }

    /// Kills it (SIGKILL).
    pub fn crash(&mut self) {
        self.process.kill().expect("a sentinel to kill");
        self.process.wait().expect("its end");
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
