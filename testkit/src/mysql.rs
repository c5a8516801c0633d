//! A MariaDB of a test's own, with ShedLock's table. A plain user runs it: the server refuses root.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
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
use crate::{Certificates, Port, eventually, skipped};

/// Debian's binaries.
const SERVER: &str = "/usr/sbin/mariadbd";
const INSTALL: &str = "/usr/bin/mariadb-install-db";

/// ShedLock's table, as docs/sql.md has it.
const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until DATETIME(3) NOT NULL, \
     locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)) ENGINE=InnoDB CHARACTER SET utf8mb4;";

/// Settings with which a server is small, and starts at once.
const SMALL: [&str; 6] = [
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--key-buffer-size=1M",
    "--skip-name-resolve",
];

/// A server that runs until the drop.
pub struct MariaDb {
    dir: TempDir,
    port: Port,
    options: Vec<String>,
    process: Option<Child>,
    /// The data that it began with, for those that come after it.
    _fresh: Arc<TempDir>,
    /// The directory of a clock that can be set, and the variables that make the server go by it.
    clock: Option<(TempDir, Vec<(&'static str, String)>)>,
}

/// Whether MariaDB is installed. With `TEST_INTEROP=required` a missing one is a failure.
fn is_installed() -> bool {
    let is_there = Path::new(SERVER).exists();
    if !is_there {
        assert!(
            std::env::var_os("TEST_INTEROP").is_none_or(|value| value != "required"),
            "MariaDB is needed"
        );
        skipped("MariaDB is not installed (Debian's mariadb-server)");
    }
    is_there
}

/// Returns the data of a server that has never run, made once for all servers that there are.
fn fresh_data() -> Arc<TempDir> {
    static FRESH: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut fresh = FRESH.lock().unwrap_or_else(PoisonError::into_inner);
    fresh.upgrade().unwrap_or_else(|| {
        let dir = directory();
        let data = format!("--datadir={}", dir.path().join("data").display());
        run(as_user(Path::new(INSTALL))
            .args(["--no-defaults", &data])
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(SMALL));
        let dir = Arc::new(dir);
        *fresh = Arc::downgrade(&dir);
        dir
    })
}

impl MariaDb {
    /// Starts a server; `None` where MariaDB is not installed, which is printed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with these settings, as `name=value`.
    pub fn start_with(settings: &[&str]) -> Option<Self> {
        is_installed().then(|| Self::prepared(settings).started())
    }

    /// The same with a clock that [`Self::set_clock`] sets.
    pub fn start_with_clock() -> Option<Self> {
        is_installed().then(|| {
            let (dir, variables) = shifted_clock(0);
            give(dir.path());
            let mut server = Self::prepared(&[]);
            server.clock = Some((dir, variables));
            server.started()
        })
    }

    /// The same with TLS.
    pub fn tls(certificates: &Certificates) -> Option<Self> {
        is_installed().then(|| {
            let mut server = Self::prepared(&[]);
            for (option, name) in [("ssl-cert", "server.pem"), ("ssl-key", "server.key")] {
                let to = server.dir.path().join(name);
                std::fs::copy(certificates.file(name), &to).expect("a certificate");
                std::fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("a mode");
                give(&to);
                server.options.push(format!("{option}={}", to.display()));
            }
            server.started()
        })
    }

    fn prepared(settings: &[&str]) -> Self {
        let (fresh, dir) = (fresh_data(), directory());
        run(as_user(Path::new("/bin/cp"))
            .arg("-a")
            .arg(fresh.path().join("data"))
            .arg(dir.path()));
        Self {
            dir,
            port: Port::reserve().expect("a port"),
            options: settings.iter().map(|&setting| setting.to_owned()).collect(),
            process: None,
            _fresh: fresh,
            clock: None,
        }
    }

    fn started(mut self) -> Self {
        self.come_back();
        let statements = format!(
            "CREATE DATABASE rlock; CREATE USER rlock@'%'; USE rlock; {TABLE} GRANT SELECT, INSERT, UPDATE ON shedlock TO rlock@'%'"
        );
        self.tried("mysql", &statements).expect("a table");
        self
    }

    /// Starts it again, and waits until it answers.
    pub fn come_back(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("a log");
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let mut command = as_user(Path::new(SERVER));
        command
            .arg("--no-defaults")
            .args(SMALL)
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--datadir={}", path("data")))
            // A server that starts deletes the temporary tables there.
            .arg(format!("--tmpdir={}", path("")))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--port={}", self.port.number()))
            .args(self.options.iter().map(|option| format!("--{option}")));
        if let Some((_, variables)) = &self.clock {
            command.envs(variables.iter().cloned());
        }
        let process = command.stdout(Stdio::null()).stderr(log).spawn();
        self.process = Some(process.expect("a server"));
        eventually("MariaDB answers", || {
            self.tried("mysql", "SELECT 1").is_ok()
        });
    }

    /// Returns the address for rlock.
    pub fn url(&self) -> String {
        format!("mysql://rlock@{}/rlock", self.host())
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Returns what the client prints as the superuser, in the database of the locks: a line for each
    /// row, with tabs between its cells.
    pub fn sql(&self, statements: &str) -> String {
        match self.tried("rlock", statements) {
            Ok(told) => told,
            Err(why) => panic!("{statements}: {why}"),
        }
    }

    /// Returns the client as the superuser, in the database of the locks. It reads statements from its
    /// input.
    pub fn client(&self) -> Command {
        self.client_in("rlock")
    }

    fn client_in(&self, database: &str) -> Command {
        let mut command = clean("mariadb");
        command
            .args(["--no-defaults", "-u", "root", "-N", "-B", "-r"])
            .args(["--default-character-set=utf8mb4", "-D", database, "-S"])
            .arg(self.socket());
        command
    }

    fn tried(&self, database: &str, statements: &str) -> Result<String, String> {
        let mut client = self
            .client_in(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mariadb");
        let mut input = client.stdin.take().expect("its input");
        // A server that cannot be reached ends the client before it has read.
        let _ = input.write_all(statements.as_bytes());
        drop(input);
        let output = client.wait_with_output().expect("mariadb");
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
            "SELECT locked_by FROM shedlock WHERE name = '{key}' AND lock_until > UTC_TIMESTAMP(3)"
        ));
        Some(told).filter(|told| !told.is_empty())
    }

    fn pid(&self) -> Pid {
        let process = self.process.as_ref().expect("a server that runs");
        Pid::from_raw(process.id().cast_signed())
    }

    /// Stops the server with all its threads.
    pub fn freeze(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("a signal");
        let threads = format!("/proc/{}/task", self.pid());
        eventually("its threads are stopped", || {
            let threads = std::fs::read_dir(&threads).expect("its threads");
            threads.flatten().all(|thread| {
                let state = std::fs::read_to_string(thread.path().join("stat"));
                state.is_ok_and(|state| state.contains(") T "))
            })
        });
    }

    /// Continues it.
    pub fn thaw(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("a signal");
    }

    /// Kills it, as a crash does. Its data stay.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("a server to kill");
            process.wait().expect("its end");
        }
    }

    /// Sets its clock so many seconds ahead of the machine's.
    pub fn set_clock(&self, seconds: i64) {
        let (dir, _) = self.clock.as_ref().expect("a clock that can be set");
        write_offset(dir.path(), seconds);
        eventually("the clock is set", || {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("a time");
            let told = self.sql("SELECT FLOOR(UNIX_TIMESTAMP())");
            let off = told.parse::<i64>().expect("a time") - now.as_secs().cast_signed();
            (off - seconds).abs() <= 1
        });
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
    }
}
