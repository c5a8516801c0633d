//! Servers of databases: ShedLock's table, a client, a clock, and their faults, which all kinds have in
//! common. A plain user runs them: they refuse root.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::plain_user::{as_user, directory, give, run};
use crate::server::{shifted_clock, write_offset};
use crate::{Port, eventually, skipped};

/// A server with the table, in a database `rlock`, whose user `rlock` has the rights to it. It runs
/// until the drop.
pub trait Database: Sized + 'static {
    /// The scheme of its addresses.
    const SCHEME: &'static str;

    /// The time, as ShedLock takes it of the database.
    const NOW: &'static str;

    /// The statement that tells the unix time in seconds.
    const CLOCK: &'static str;

    /// The statement that counts the waiters in line.
    const WAITERS: &'static str;

    /// The statement that counts the sessions of rlock's user.
    const SESSIONS: &'static str;

    /// The statement that counts the statements that the server has carried out, or the
    /// transactions.
    const STATEMENTS: &'static str;

    /// The statement that gives that user two sessions at most.
    const TWO_SESSIONS: &'static str;

    /// Lets each change of a row take 10 ms more once the row is changed, as on a disk.
    const LINGERS: &'static str;

    /// Starts one; `None` where it is not installed, which is printed.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with these settings, as `name=value`.
    fn start_with(settings: &[&str]) -> Option<Self>;

    /// Returns its files and its process.
    fn instance(&self) -> &Instance;

    /// Returns the database's client as the superuser. It reads statements from its input.
    fn client_in(&self, database: &str) -> Command;

    /// Returns the statement with which ShedLock takes the lock for an hour.
    fn occupies(name: &str) -> String;

    /// Stops it.
    fn freeze(&self);

    /// Continues it.
    fn thaw(&self);

    /// Kills it, as a crash does. Its data stay.
    fn kill(&mut self);

    /// Starts it again, and waits until it answers.
    fn come_back(&mut self);

    /// Returns host and port.
    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.instance().port.number())
    }

    /// Returns the address for rlock.
    fn url(&self) -> String {
        format!("{}://rlock@{}/rlock", Self::SCHEME, self.host())
    }

    /// Returns the client in the database of the locks.
    fn client(&self) -> Command {
        self.client_in("rlock")
    }

    /// Returns what the client prints of statements in the database of the locks: a line for each row.
    fn sql(&self, statements: &str) -> String {
        match self.tried("rlock", statements) {
            Ok(told) => told,
            Err(why) => panic!("{statements}: {why}"),
        }
    }

    /// The same in another database, or what the client says of its failure.
    fn tried(&self, database: &str, statements: &str) -> Result<String, String> {
        let mut client = self
            .client_in(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a client");
        let mut input = client.stdin.take().expect("its input");
        // A server that cannot be reached ends the client before it has read.
        let _ = input.write_all(statements.as_bytes());
        drop(input);
        let output = client.wait_with_output().expect("a client");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Returns `locked_by` of a lock, if its end has not come.
    fn holder(&self, key: &str) -> Option<String> {
        let told = self.sql(&format!(
            "SELECT locked_by FROM shedlock WHERE name = '{key}' AND lock_until > {}",
            Self::NOW
        ));
        Some(told).filter(|told| !told.is_empty())
    }

    /// Sets its clock so many seconds ahead of the machine's.
    fn set_clock(&self, seconds: i64) {
        let clock = self.instance().clock.as_ref();
        let (dir, _) = clock.expect("a clock that can be set");
        write_offset(dir.path(), seconds);
        eventually("the clock is set", || {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("a time");
            let told = self.sql(Self::CLOCK);
            let off = told.parse::<i64>().expect("a time") - now.as_secs().cast_signed();
            (off - seconds).abs() <= 1
        });
    }
}

/// A server's files, its port and its process.
pub struct Instance {
    pub(crate) dir: TempDir,
    pub(crate) port: Port,
    pub(crate) options: Vec<String>,
    pub(crate) process: Option<Child>,
    /// The data that it began with, for those that come after it.
    fresh: Option<Arc<TempDir>>,
    /// The directory of a clock that can be set, and the variables that make the server go by it.
    clock: Option<(TempDir, Vec<(&'static str, String)>)>,
}

impl Instance {
    /// One without data.
    pub(crate) fn new(settings: &[&str]) -> Self {
        Self {
            dir: directory(),
            port: Port::reserve().expect("a port"),
            options: settings.iter().map(|&setting| setting.to_owned()).collect(),
            process: None,
            fresh: None,
            clock: None,
        }
    }

    /// One with the data of a server that has never run.
    pub(crate) fn with_data(fresh: Arc<TempDir>, settings: &[&str]) -> Self {
        let mut instance = Self::new(settings);
        run(as_user(Path::new("/bin/cp"))
            .arg("-a")
            .arg(fresh.path().join("data"))
            .arg(instance.data()));
        instance.fresh = Some(fresh);
        instance
    }

    /// The same with a clock that [`Database::set_clock`] sets.
    pub(crate) fn with_clock(mut self) -> Self {
        let (dir, variables) = shifted_clock(0);
        give(dir.path());
        self.clock = Some((dir, variables));
        self
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the directory of its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts its process by `command`.
    pub(crate) fn spawn(&mut self, mut command: Command) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("a log");
        if let Some((_, variables)) = &self.clock {
            command.envs(variables.iter().cloned());
        }
        let process = command.stdout(Stdio::null()).stderr(log).spawn();
        self.process = Some(process.expect("a server"));
    }

    /// Returns the number of its process.
    pub fn pid(&self) -> i32 {
        let process = self.process.as_ref().expect("a server that runs");
        process.id().cast_signed()
    }

    /// Kills its process, if it runs.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("a server to kill");
            process.wait().expect("its end");
        }
    }
}

/// The data of a server that has never run, made once for all servers that there are.
pub(crate) struct FreshData(Mutex<Weak<TempDir>>);

impl FreshData {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Returns them. `make`: makes them in a directory that is not there.
    pub(crate) fn get(&self, make: impl FnOnce(&Path)) -> Arc<TempDir> {
        let mut fresh = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.upgrade().unwrap_or_else(|| {
            let dir = directory();
            make(&dir.path().join("data"));
            let dir = Arc::new(dir);
            *fresh = Arc::downgrade(&dir);
            dir
        })
    }
}

/// Says that a program is not there, with the way to it. With `TEST_INTEROP=required` that is a failure.
pub(crate) fn missing(name: &str, package: &str) {
    assert!(
        std::env::var_os("TEST_INTEROP").is_none_or(|value| value != "required"),
        "{name} is needed"
    );
    skipped(&format!("{name} is not installed (Debian's {package})"));
}
