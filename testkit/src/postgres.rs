//! A PostgreSQL of a test's own, with ShedLock's table, and a pooler before it.

use std::cell::RefCell;
use std::fs::Permissions;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::database::{FreshData, Instance, missing};
use crate::plain_user::{as_user, directory, give, run};
use crate::processes::{self, signal};
use crate::program::clean;
use crate::{Certificates, Database, Port, eventually};

/// The directory of Debian's binaries, of which the highest version is taken.
const BINARIES: &str = "/usr/lib/postgresql";

/// Debian's binary.
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

/// ShedLock's table, as its documentation has it.
pub const TABLE: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
     locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name));";

/// A server that runs until the drop.
pub struct Postgres {
    own: Instance,
    /// Children that were stopped with it.
    stopped: RefCell<Vec<i32>>,
}

/// Returns the directory of the binaries, if PostgreSQL is installed. With `TEST_INTEROP=required` a
/// missing one is a failure.
pub fn binaries() -> Option<PathBuf> {
    let found = std::fs::read_dir(BINARIES).into_iter().flatten();
    let bins = found.flatten().map(|version| version.path().join("bin"));
    let bin = bins.filter(|bin| bin.join("initdb").exists()).max();
    if bin.is_none() {
        missing("PostgreSQL", "postgresql-15");
    }
    bin
}

static FRESH: FreshData = FreshData::new();

impl Postgres {
    /// Starts one with a clock that [`Database::set_clock`] sets; `None` where none is installed.
    pub fn start_with_clock() -> Option<Self> {
        let own = Self::prepared(&[])?.with_clock();
        Some(Self::of(own).started())
    }

    /// The same with TLS, and the machine's clock.
    pub fn tls(certificates: &Certificates) -> Option<Self> {
        let own = Self::prepared(&["ssl=on", "ssl_ca_file=root.crt"])?;
        for (from, to) in [
            ("ca.pem", "root.crt"),
            ("server.pem", "server.crt"),
            ("server.key", "server.key"),
        ] {
            let to = own.data().join(to);
            std::fs::copy(certificates.file(from), &to).expect("a certificate");
            std::fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("a mode");
            give(&to);
        }
        Some(Self::of(own).started())
    }

    /// Starts a standby of `primary`, with these settings.
    pub fn standby(primary: &Self, settings: &[&str]) -> Self {
        let mut server = Self::of(Instance::new(settings));
        server.follow(primary);
        server
    }

    /// Starts one that does not run as a standby of `primary`, with its data.
    pub fn follow(&mut self, primary: &Self) {
        let bin = binaries().expect("it runs already");
        let data = self.own.data();
        // A new one has none.
        let _ = std::fs::remove_dir_all(&data);
        run(as_user(&bin.join("pg_basebackup"))
            .args(["-R", "-X", "stream", "--checkpoint=fast"])
            .args(["-U", "postgres", "-h"])
            .arg(primary.socket())
            .args(["-p", &primary.port().to_string(), "-D"])
            .arg(data));
        self.come_back();
    }

    /// Lets each commit wait for a standby from now on.
    pub fn wait_for_standby(&self) {
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        let state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        eventually("the standby is synchronous", || self.sql(state) == "1");
    }

    fn prepared(settings: &[&str]) -> Option<Instance> {
        let bin = binaries()?;
        let fresh = FRESH.get(|data| {
            run(as_user(&bin.join("initdb"))
                .args(["-A", "trust", "-U", "postgres", "--no-sync"])
                .args(["-E", "UTF8", "--locale=C", "-D"])
                .arg(data));
        });
        Some(Instance::with_data(fresh, settings))
    }

    fn of(own: Instance) -> Self {
        Self {
            own,
            stopped: RefCell::default(),
        }
    }

    fn started(mut self) -> Self {
        self.come_back();
        let table = format!("{TABLE} GRANT SELECT, INSERT, UPDATE ON shedlock TO rlock");
        for (database, statement) in [
            ("postgres", "CREATE ROLE rlock LOGIN"),
            ("postgres", "CREATE DATABASE rlock"),
            ("rlock", &table),
        ] {
            self.tried(database, statement).expect("a table");
        }
        self
    }

    /// Returns the directory of its socket.
    pub fn socket(&self) -> &Path {
        self.own.dir.path()
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.own.port.number()
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.sql("SELECT pg_promote()");
    }
}

impl Database for Postgres {
    const SCHEME: &'static str = "postgresql";
    const NOW: &'static str = "timezone('utc', now())";
    const CLOCK: &'static str = "SELECT round(extract(epoch from clock_timestamp()))::bigint";
    const WAITERS: &'static str =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    const SESSIONS: &'static str = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'rlock'";
    const STATEMENTS: &'static str =
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'rlock'";
    const TWO_SESSIONS: &'static str = "ALTER ROLE rlock CONNECTION LIMIT 2";
    const LINGERS: &'static str = "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END$$; \
         CREATE TRIGGER lingers AFTER UPDATE ON shedlock FOR EACH ROW EXECUTE FUNCTION linger()";

    fn start_with(settings: &[&str]) -> Option<Self> {
        Some(Self::of(Self::prepared(settings)?).started())
    }

    fn instance(&self) -> &Instance {
        &self.own
    }

    fn client_in(&self, database: &str) -> Command {
        // Debian's /usr/bin/psql is a program that looks for this one.
        let bin = binaries().expect("it runs already");
        let mut command = clean(bin.join("psql"));
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .args(["-U", "postgres", "-h"])
            .arg(self.socket())
            .args(["-p", &self.port().to_string(), "-d", database])
            .env("PGCONNECT_TIMEOUT", "2");
        command
    }

    fn occupies(name: &str) -> String {
        format!(
            "INSERT INTO shedlock VALUES('{name}', timezone('utc', now()) + interval '1 hour', timezone('utc', now()), 'host1') \
             ON CONFLICT (name) DO UPDATE SET lock_until = EXCLUDED.lock_until, locked_at = EXCLUDED.locked_at, locked_by = 'host1'"
        )
    }

    /// Stops the server with all its processes.
    fn freeze(&self) {
        signal(self.own.pid(), Signal::SIGSTOP);
        let children = processes::children(self.own.pid());
        for &child in &children {
            let _ = kill(Pid::from_raw(child), Signal::SIGSTOP);
        }
        self.stopped.borrow_mut().extend(children);
    }

    fn thaw(&self) {
        for child in self.stopped.take() {
            let _ = kill(Pid::from_raw(child), Signal::SIGCONT);
        }
        signal(self.own.pid(), Signal::SIGCONT);
    }

    fn kill(&mut self) {
        if self.own.process.is_none() {
            return;
        }
        let children = processes::children(self.own.pid());
        self.own.kill();
        for child in self.stopped.take().into_iter().chain(children.clone()) {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
        // The next one cannot use their memory.
        eventually("its processes are gone", || {
            !children.iter().any(|&child| processes::alive(child))
        });
    }

    fn come_back(&mut self) {
        let bin = binaries().expect("it ran already");
        let port = self.port().to_string();
        // What a killed server leaves names a process that may live again.
        for left in [
            self.own.data().join("postmaster.pid"),
            self.socket().join(format!(".s.PGSQL.{port}.lock")),
        ] {
            let _ = std::fs::remove_file(left);
        }
        let mut command = as_user(&bin.join("postgres"));
        command
            .arg("-D")
            .arg(self.own.data())
            .args(["-p", &port, "-k"])
            .arg(self.socket())
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "shared_buffers=16MB"]);
        for option in &self.own.options {
            command.args(["-c", option]);
        }
        self.own.spawn(command);
        eventually("PostgreSQL answers", || {
            self.tried("postgres", "SELECT 1").is_ok()
        });
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
            missing("PgBouncer", "pgbouncer");
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
