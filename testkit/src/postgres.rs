//! A PostgreSQL of a test's own, with ShedLock's table. A plain user runs it: the server refuses root.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::plain_user::{as_user, directory, give, run};
use crate::program::clean;
use crate::server::{shifted_clock, write_offset};
use crate::{Certificates, Port, eventually, processes, skipped};

/// The directory of Debian's binaries, of which the highest version is taken.
const BINARIES: &str = "/usr/lib/postgresql";

/// Debian's binary.
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

/// ShedLock's table, as its documentation has it.
pub const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
     locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name));";

/// A server that runs until the drop.
pub struct Postgres {
    dir: TempDir,
    port: Port,
    options: Vec<String>,
    process: Option<Child>,
    /// Children that were stopped with it.
    stopped: std::cell::RefCell<Vec<i32>>,
    /// The data that it began with, for those that come after it.
    fresh: Option<Arc<TempDir>>,
    /// The directory of a clock that can be set, and the variables that make the server go by it.
    clock: Option<(TempDir, Vec<(&'static str, String)>)>,
}

/// Returns the directory of the binaries, if PostgreSQL is installed. With `TEST_INTEROP=required` a
/// missing one is a failure.
pub fn binaries() -> Option<PathBuf> {
    let found = std::fs::read_dir(BINARIES).into_iter().flatten();
    let bins = found.flatten().map(|version| version.path().join("bin"));
    let bin = bins.filter(|bin| bin.join("initdb").exists()).max();
    if bin.is_none() {
        assert!(
            std::env::var_os("TEST_INTEROP").is_none_or(|value| value != "required"),
            "PostgreSQL is needed"
        );
        skipped("PostgreSQL is not installed (Debian's postgresql-15)");
    }
    bin
}

/// Returns the data of a server that has never run, made once for all servers that there are.
fn fresh_data(bin: &Path) -> Arc<TempDir> {
    static FRESH: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut fresh = FRESH.lock().unwrap_or_else(PoisonError::into_inner);
    fresh.upgrade().unwrap_or_else(|| {
        let dir = directory();
        let data = dir.path().join("data");
        run(as_user(&bin.join("initdb"))
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(&data));
        let dir = Arc::new(dir);
        *fresh = Arc::downgrade(&dir);
        dir
    })
}

impl Postgres {
    /// Starts a server; `None` where PostgreSQL is not installed, which is printed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with these settings, as `name=value`.
    pub fn start_with(settings: &[&str]) -> Option<Self> {
        let bin = binaries()?;
        let server = Self::with_data(&bin, settings);
        Some(server.started())
    }

    /// The same with a clock that [`Self::set_clock`] sets.
    pub fn start_with_clock() -> Option<Self> {
        let bin = binaries()?;
        let mut server = Self::with_data(&bin, &[]);
        let (dir, variables) = shifted_clock(0);
        give(dir.path());
        server.clock = Some((dir, variables));
        Some(server.started())
    }

    /// The same with TLS.
    pub fn tls(certificates: &Certificates) -> Option<Self> {
        let bin = binaries()?;
        let server = Self::with_data(&bin, &["ssl=on"]);
        for (from, to) in [("server.pem", "server.crt"), ("server.key", "server.key")] {
            let to = server.data().join(to);
            std::fs::copy(certificates.file(from), &to).expect("a certificate");
            std::fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .expect("a mode");
            give(&to);
        }
        Some(server.started())
    }

    /// Starts a standby of `primary`, with these settings.
    pub fn standby(primary: &Self, settings: &[&str]) -> Self {
        let bin = binaries().expect("it runs already");
        let server = Self::prepared(settings);
        run(as_user(&bin.join("pg_basebackup"))
            .args([
                "-R",
                "-X",
                "stream",
                "--checkpoint=fast",
                "-U",
                "postgres",
                "-h",
            ])
            .arg(primary.dir.path())
            .args(["-p", &primary.port.number().to_string(), "-D"])
            .arg(server.data()));
        let mut server = server;
        server.come_back();
        server
    }

    fn with_data(bin: &Path, settings: &[&str]) -> Self {
        let fresh = fresh_data(bin);
        let mut server = Self::prepared(settings);
        run(as_user(Path::new("/bin/cp"))
            .arg("-a")
            .arg(fresh.path().join("data"))
            .arg(server.data()));
        server.fresh = Some(fresh);
        server
    }

    fn prepared(settings: &[&str]) -> Self {
        Self {
            dir: directory(),
            port: Port::reserve().expect("a port"),
            options: settings.iter().map(|&setting| setting.to_owned()).collect(),
            process: None,
            stopped: std::cell::RefCell::default(),
            fresh: None,
            clock: None,
        }
    }

    fn started(mut self) -> Self {
        self.come_back();
        self.sql_in("postgres", "CREATE ROLE rlock LOGIN");
        self.sql_in("postgres", "CREATE DATABASE rlock");
        self.sql_in(
            "rlock",
            &format!("{TABLE} GRANT SELECT, INSERT, UPDATE ON shedlock TO rlock"),
        );
        self
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts it again, and waits until it answers.
    pub fn come_back(&mut self) {
        let bin = binaries().expect("it ran already");
        let port = self.port.number().to_string();
        // What a killed server leaves names a process that may live again.
        for left in [
            self.data().join("postmaster.pid"),
            self.dir.path().join(format!(".s.PGSQL.{port}.lock")),
        ] {
            let _ = std::fs::remove_file(left);
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("a log");
        let mut command = as_user(&bin.join("postgres"));
        command
            .arg("-D")
            .arg(self.data())
            .args(["-p", &port, "-k"])
            .arg(self.dir.path())
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "shared_buffers=16MB",
            ]);
        for option in &self.options {
            command.args(["-c", option]);
        }
        if let Some((_, variables)) = &self.clock {
            command.envs(variables.iter().cloned());
        }
        let process = command.stdout(Stdio::null()).stderr(log).spawn();
        self.process = Some(process.expect("a server"));
        eventually("PostgreSQL answers", || {
            self.tried("postgres", "SELECT 1").is_ok()
        });
    }

    /// Returns the address for rlock.
    pub fn url(&self) -> String {
        format!("postgresql://rlock@{}/rlock", self.host())
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns the directory of its socket.
    pub fn socket(&self) -> &Path {
        self.dir.path()
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns what psql prints as the superuser, in the database of the locks.
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in("rlock", statements)
    }

    fn sql_in(&self, database: &str, statements: &str) -> String {
        match self.tried(database, statements) {
            Ok(told) => told,
            Err(why) => panic!("{statements}: {why}"),
        }
    }

    /// Returns psql as the superuser, in the database of the locks. It reads statements from its
    /// input.
    pub fn client(&self) -> Command {
        self.client_in("rlock")
    }

    fn client_in(&self, database: &str) -> Command {
        let mut command = clean("psql");
        command
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-h",
            ])
            .arg(self.dir.path())
            .args(["-p", &self.port.number().to_string(), "-d", database])
            .env("PGCONNECT_TIMEOUT", "2");
        command
    }

    fn tried(&self, database: &str, statements: &str) -> Result<String, String> {
        let mut psql = self
            .client_in(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql");
        let mut input = psql.stdin.take().expect("its input");
        // A server that cannot be reached ends psql before it has read.
        let _ = input.write_all(statements.as_bytes());
        drop(input);
        let output = psql.wait_with_output().expect("psql");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Returns `locked_by` of a lock, if its end has not come.
    pub fn holder(&self, key: &str) -> Option<String> {
        let told = self.sql(&format!(
            "SELECT locked_by FROM shedlock WHERE name = '{key}' AND lock_until > timezone('utc', now())"
        ));
        Some(told).filter(|told| !told.is_empty())
    }

    fn pid(&self) -> Pid {
        let process = self.process.as_ref().expect("a server that runs");
        Pid::from_raw(process.id().cast_signed())
    }

    /// Stops the server with all its processes.
    pub fn freeze(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("a signal");
        let children = processes::children(self.pid().as_raw());
        for &child in &children {
            let _ = kill(Pid::from_raw(child), Signal::SIGSTOP);
        }
        self.stopped.borrow_mut().extend(children);
    }

    /// Continues it.
    pub fn thaw(&self) {
        for child in self.stopped.take() {
            let _ = kill(Pid::from_raw(child), Signal::SIGCONT);
        }
        kill(self.pid(), Signal::SIGCONT).expect("a signal");
    }

    /// Kills it, as a crash does. Its data stay.
    pub fn kill(&mut self) {
        let Some(process) = self.process.as_mut() else {
            return;
        };
        let children = processes::children(process.id().cast_signed());
        process.kill().expect("a server to kill");
        process.wait().expect("its end");
        self.process = None;
        for child in self.stopped.take().into_iter().chain(children.clone()) {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
        // The next one cannot use their memory.
        eventually("its processes are gone", || {
            !children.iter().any(|&child| processes::alive(child))
        });
    }

    /// Sets its clock so many seconds ahead of the machine's.
    pub fn set_clock(&self, seconds: i64) {
        let (dir, _) = self.clock.as_ref().expect("a clock that can be set");
        write_offset(dir.path(), seconds);
        let unix = "SELECT round(extract(epoch from clock_timestamp()))::bigint";
        eventually("the clock is set", || {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("a time");
            let off = self.sql(unix).parse::<i64>().expect("a time") - now.as_secs().cast_signed();
            (off - seconds).abs() <= 1
        });
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.sql("SELECT pg_promote()");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A `PgBouncer` before a server, which lends a session for one transaction. It runs until the drop.
pub struct PgBouncer {
    dir: TempDir,
    port: Port,
    process: Child,
}

impl PgBouncer {
    /// Starts one that has `sessions` of the server's at most; `None` where none is installed, which
    /// is printed.
    pub fn before(server: &Postgres, sessions: usize) -> Option<Self> {
        if !Path::new(PGBOUNCER).exists() {
            assert!(
                std::env::var_os("TEST_INTEROP").is_none_or(|value| value != "required"),
                "PgBouncer is needed"
            );
            skipped("PgBouncer is not installed (Debian's pgbouncer)");
            return None;
        }
        let (dir, port) = (directory(), Port::reserve().expect("a port"));
        let path = |name: &str| dir.path().join(name).display().to_string();
        let settings = format!(
            "[databases]\nrlock = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {sessions}\nmax_client_conn = 2000\n",
            server.port(),
            port.number(),
            path("users"),
        );
        std::fs::write(path("users"), "\"rlock\" \"\"\n").expect("its users");
        std::fs::write(path("pgbouncer.ini"), settings).expect("its settings");
        let log = std::fs::File::create(path("log")).expect("a log");
        let process = as_user(Path::new(PGBOUNCER))
            .arg("-q")
            .arg(path("pgbouncer.ini"))
            .stderr(log)
            .spawn()
            .expect("PgBouncer");
        let pooler = Self { dir, port, process };
        eventually("PgBouncer answers", || {
            TcpStream::connect(pooler.host()).is_ok()
        });
        Some(pooler)
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns the address for rlock.
    pub fn url(&self) -> String {
        format!("postgresql://rlock@{}/rlock", self.host())
    }

    /// Returns what it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).expect("its log")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
