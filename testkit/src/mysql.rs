//! A MariaDB of a test's own, with ShedLock's table, or a MySQL: `TEST_MYSQL` names its binary.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::database::{FreshData, Instance, missing};
use crate::plain_user::{as_user, give, run};
use crate::processes::{self, signal};
use crate::program::clean;
use crate::{Certificates, Database, eventually};

/// Debian's binaries.
const SERVER: &str = "/usr/sbin/mariadbd";
const INSTALL: &str = "/usr/bin/mariadb-install-db";

/// Returns the binary of the MySQL that the environment names.
fn mysqld() -> Option<PathBuf> {
    std::env::var_os("TEST_MYSQL").map(PathBuf::from)
}

/// ShedLock's table, as docs/sql.md has it.
const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until DATETIME(3) NOT NULL, \
     locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)) ENGINE=InnoDB CHARACTER SET utf8mb4;";

/// Returns a command of the server's user. A MySQL becomes that user by itself: the user may not enter the
/// directory of its files.
fn server(program: &Path) -> Command {
    let mut command = if mysqld().is_some() {
        clean(program)
    } else {
        as_user(program)
    };
    command.arg("--no-defaults");
    if mysqld().is_some() {
        command.args(["--user=nobody", "--secure-file-priv=NULL"]);
    }
    command
}

/// Settings with which a server is small, and starts at once. Those of one of the two databases are loose.
const SMALL: [&str; 9] = [
    "--loose-innodb-log-file-size=4M",
    "--loose-innodb-redo-log-capacity=8M",
    "--loose-mysqlx=OFF",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=16M",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--key-buffer-size=1M",
    "--skip-name-resolve",
];

/// A server that runs until the drop.
pub struct MariaDb(Instance);

/// Whether one is installed. With `TEST_INTEROP=required` a missing one is a failure.
fn is_installed() -> bool {
    let is_there = mysqld().is_some() || Path::new(SERVER).exists();
    if !is_there {
        missing("MariaDB", "mariadb-server");
    }
    is_there
}

static FRESH: FreshData = FreshData::new();

impl MariaDb {
    /// Starts one with a clock that [`Database::set_clock`] sets; `None` where none is installed.
    pub fn start_with_clock() -> Option<Self> {
        is_installed().then(|| Self(Self::prepared(&[]).with_clock()).started())
    }

    /// The same with TLS, and the machine's clock.
    pub fn tls(certificates: &Certificates) -> Option<Self> {
        is_installed().then(|| {
            let mut server = Self::prepared(&[]);
            for (option, name) in [
                ("ssl-ca", "ca.pem"),
                ("ssl-cert", "server.pem"),
                ("ssl-key", "server.key"),
            ] {
                let to = server.dir.path().join(name);
                std::fs::copy(certificates.file(name), &to).expect("a certificate");
                std::fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("a mode");
                give(&to);
                server.options.push(format!("{option}={}", to.display()));
            }
            Self(server).started()
        })
    }

    fn prepared(settings: &[&str]) -> Instance {
        let fresh = FRESH.get(|data| {
            let dir = format!("--datadir={}", data.display());
            let mut command = if let Some(mysqld) = mysqld() {
                let mut command = server(&mysqld);
                command.arg("--initialize-insecure");
                command
            } else {
                let mut command = server(Path::new(INSTALL));
                command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
                command
            };
            run(command.arg(dir).args(SMALL));
            // A MySQL copies from none of the same number, which it has there.
            let _ = std::fs::remove_file(data.join("auto.cnf"));
        });
        Instance::with_data(fresh, settings)
    }

    fn started(mut self) -> Self {
        self.come_back();
        let statements = format!(
            "CREATE DATABASE rlock; CREATE USER rlock@'%'; USE rlock; {TABLE} GRANT SELECT, INSERT, UPDATE ON shedlock TO rlock@'%'"
        );
        self.tried("mysql", &statements).expect("a table");
        self
    }

    /// Whether it is a MySQL.
    pub fn is_mysql() -> bool {
        mysqld().is_some()
    }

    /// Returns a counter of the server's.
    pub fn status(&self, name: &str) -> u64 {
        let told = self.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        let figure = told.rsplit('\t').next().map(str::parse);
        figure.expect("a counter").expect("a number")
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        self.0.dir.path().join("socket")
    }
}

impl Database for MariaDb {
    const SCHEME: &'static str = "mysql";
    const NOW: &'static str = "UTC_TIMESTAMP(3)";
    const CLOCK: &'static str = "SELECT FLOOR(UNIX_TIMESTAMP())";
    const WAITERS: &'static str =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'";
    const SESSIONS: &'static str =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'rlock'";
    const STATEMENTS: &'static str = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'";
    const TWO_SESSIONS: &'static str = "ALTER USER rlock@'%' WITH MAX_USER_CONNECTIONS 2";
    const LINGERS: &'static str =
        "CREATE TRIGGER lingers AFTER UPDATE ON shedlock FOR EACH ROW DO SLEEP(0.01)";

    fn start_with(settings: &[&str]) -> Option<Self> {
        is_installed().then(|| Self(Self::prepared(settings)).started())
    }

    fn instance(&self) -> &Instance {
        &self.0
    }

    fn client_in(&self, database: &str) -> Command {
        let mut command = clean("mariadb");
        command
            .args(["--no-defaults", "-u", "root", "-N", "-B", "-r"])
            .args(["--default-character-set=utf8mb4", "-D", database, "-S"])
            .arg(self.socket());
        command
    }

    fn occupies(name: &str) -> String {
        format!(
            "INSERT INTO shedlock VALUES('{name}', UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, UTC_TIMESTAMP(3), 'host1') \
             ON DUPLICATE KEY UPDATE lock_until = VALUES(lock_until), locked_at = VALUES(locked_at), locked_by = 'host1'"
        )
    }

    fn freeze(&self) {
        processes::freeze(self.0.pid());
    }

    fn thaw(&self) {
        signal(self.0.pid(), Signal::SIGCONT);
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn come_back(&mut self) {
        let path = |name: &str| self.0.dir.path().join(name).display().to_string();
        let mut command = server(&mysqld().unwrap_or_else(|| SERVER.into()));
        command
            .args(SMALL)
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--datadir={}", path("data")))
            // A server that starts deletes the temporary tables there.
            .arg(format!("--tmpdir={}", path("")))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--port={}", self.0.port.number()))
            .args(self.0.options.iter().map(|option| format!("--{option}")));
        self.0.spawn(command);
        eventually("MariaDB answers", || {
            self.tried("mysql", "SELECT 1").is_ok()
        });
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
    }
}
