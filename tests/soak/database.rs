//! A database that crashes, hangs, loses its sessions, and fails over to a synchronous standby if it
//! has one; and clients of `ShedLock`.

use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::{Database, MariaDb, Postgres, now};

use crate::deployment::{Deployment, pause};
use crate::fault::Fault;
use crate::foreign::{self, Foreign, Witness};
use crate::network::address;
use crate::share::KEYS;
use crate::tool;

/// Faults of a database.
const FAULTS: [Fault; 9] = [
    Fault::Restart,
    Fault::Restart,
    Fault::StopServer,
    Fault::StopServer,
    Fault::StopServer,
    Fault::KillConnections,
    Fault::EndSessions,
    // The last ones, since they need a standby.
    Fault::Promote,
    Fault::Promote,
];

/// Number of faults that need a standby.
const OF_STANDBYS: usize = 2;

/// Pause of a client of `ShedLock` that has not got the lock.
const PAUSE: Duration = Duration::from_millis(50);

/// A database as the soak hurts it, and as clients of `ShedLock` use it.
pub(crate) trait Hurt: Database + Send {
    /// The settings with which it is reached at each address of the machine.
    const ANYWHERE: &'static [&'static str];

    /// Returns the client of the primary at one of these ports, as rlock's user: a program and its
    /// words before a statement.
    fn client_at(ports: &[u16]) -> (&'static str, Vec<String>);

    /// Returns the statements with which `ShedLock` takes the lock for `by`. One of them shows a 1
    /// if it has the lock.
    fn takes(by: &str) -> String;

    /// Returns the statement with which it gives the lock back.
    fn gives_back(by: &str) -> String;

    /// The statement that ends the sessions of rlock and `ShedLock`.
    const END_SESSIONS: &'static str;

    /// Starts a synchronous standby, if it can have one.
    fn standby(&self) -> Option<Self>;

    /// Takes the place of a primary that was killed, which becomes the standby after `pause`.
    fn take_over(&self, from: &mut Self, pause: impl FnOnce());
}

/// The statements of `ShedLock` 7 (`PostgresSqlServerTimeStatementsSource`).
impl Hurt for Postgres {
    const ANYWHERE: &'static [&'static str] = &["listen_addresses=*"];
    const END_SESSIONS: &'static str =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rlock'";

    fn client_at(ports: &[u16]) -> (&'static str, Vec<String>) {
        let hosts = vec!["127.0.0.1"; ports.len()].join(",");
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(",");
        let place = format!(
            "host={hosts} port={ports} user=rlock dbname=rlock connect_timeout=2 target_session_attrs=read-write"
        );
        let words = ["-X", "-q", "-A", "-t", "-d", &place, "-c"];
        ("psql", words.map(str::to_owned).to_vec())
    }

    fn standby(&self) -> Option<Self> {
        let standby = Self::standby(self, Self::ANYWHERE);
        self.wait_for_standby();
        Some(standby)
    }

    fn take_over(&self, from: &mut Self, pause: impl FnOnce()) {
        self.promote();
        pause();
        from.follow(self);
        self.wait_for_standby();
    }

    fn takes(by: &str) -> String {
        let (key, now, seconds) = (
            KEYS[0],
            "timezone('utc', CURRENT_TIMESTAMP)",
            foreign::LEASE.as_secs(),
        );
        let until = format!("{now} + make_interval(secs => {seconds})");
        format!(
            "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('{key}', {until}, {now}, '{by}') \
             ON CONFLICT (name) DO UPDATE SET lock_until = {until}, locked_at = {now}, locked_by = '{by}' \
             WHERE shedlock.name = '{key}' AND shedlock.lock_until <= {now} RETURNING 1"
        )
    }

    fn gives_back(by: &str) -> String {
        let (key, now) = (KEYS[0], "timezone('utc', CURRENT_TIMESTAMP)");
        format!(
            "UPDATE shedlock SET lock_until = {now} WHERE name = '{key}' AND locked_by = '{by}'"
        )
    }
}

/// The statements of `ShedLock` 7 (`MySqlServerTimeStatementsSource`).
impl Hurt for MariaDb {
    const ANYWHERE: &'static [&'static str] = &["bind-address=0.0.0.0"];
    const END_SESSIONS: &'static str = "KILL CONNECTION USER rlock";

    fn client_at(ports: &[u16]) -> (&'static str, Vec<String>) {
        let port = ports[0].to_string();
        let words = [
            "--no-defaults",
            "--skip-reconnect",
            "-N",
            "-B",
            "-h",
            "127.0.0.1",
            "-P",
            &port,
        ];
        let rest = ["-u", "rlock", "-D", "rlock", "-e"];
        let all = words.into_iter().chain(rest);
        ("mariadb", all.map(str::to_owned).collect())
    }

    fn standby(&self) -> Option<Self> {
        None
    }

    fn take_over(&self, _: &mut Self, _: impl FnOnce()) {}

    fn takes(by: &str) -> String {
        let (key, now) = (KEYS[0], "UTC_TIMESTAMP(3)");
        let until = format!(
            "TIMESTAMPADD(MICROSECOND, {}, {now})",
            foreign::LEASE.as_micros()
        );
        // Where there is a row, the second statement changes it.
        format!(
            "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('{key}', {until}, {now}, '{by}'); \
             SELECT ROW_COUNT(); \
             UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = '{by}' \
             WHERE name = '{key}' AND lock_until <= {now}; \
             SELECT ROW_COUNT()"
        )
    }

    fn gives_back(by: &str) -> String {
        let (key, now) = (KEYS[0], "UTC_TIMESTAMP(3)");
        let least = "TIMESTAMPADD(MICROSECOND, 0, locked_at)";
        format!(
            "UPDATE shedlock SET lock_until = IF ({least} > {now}, {least}, {now}) WHERE name = '{key}' AND locked_by = '{by}'"
        )
    }
}

/// A primary, and its standby.
pub(crate) struct Replicated<D> {
    primary: D,
    standby: Option<D>,
    /// The ports of both, in the order of their addresses.
    ports: Vec<u16>,
}

impl<D: Hurt> Replicated<D> {
    /// Starts them.
    pub(crate) fn start() -> Result<Self> {
        let primary = D::start_with(D::ANYWHERE).context("the database is needed")?;
        let standby = primary.standby();
        let all = [Some(&primary), standby.as_ref()].into_iter().flatten();
        Ok(Self {
            ports: all.map(|server| server.instance().port()).collect(),
            primary,
            standby,
        })
    }

    /// Kills the primary, and lets the standby take its place.
    fn fail_over(&mut self, random: &mut fastrand::Rng) {
        if let Some(standby) = &mut self.standby {
            self.primary.kill();
            pause(random, 0..2000);
            standby.take_over(&mut self.primary, || pause(random, 0..2000));
            std::mem::swap(standby, &mut self.primary);
        }
    }

    /// Returns the primary or the standby.
    fn either(&mut self, random: &mut fastrand::Rng) -> &mut D {
        match &mut self.standby {
            Some(standby) if random.u8(..4) == 0 => standby,
            _ => &mut self.primary,
        }
    }
}

impl<D: Hurt> Deployment for Replicated<D> {
    fn url_for(&self, contender: usize) -> String {
        let host = |port: &u16| format!("{}:{port}", address(contender));
        let hosts: Vec<String> = self.ports.iter().map(host).collect();
        format!("{}://rlock@{}/rlock", D::SCHEME, hosts.join(","))
    }

    fn foreign(&self) -> Option<Box<dyn Foreign>> {
        let (program, words) = D::client_at(&self.ports);
        let kind = PhantomData::<fn() -> D>;
        Some(Box::new(ShedLock {
            program,
            words,
            kind,
        }))
    }

    fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<(Fault, String)> {
        let without = if self.standby.is_some() {
            0
        } else {
            OF_STANDBYS
        };
        let fault = FAULTS[random.usize(..FAULTS.len() - without)];
        let server = self.either(random);
        let port = server.instance().port();
        match fault {
            Fault::Restart => {
                server.kill();
                pause(random, 0..4000);
                server.come_back();
            }
            Fault::StopServer => {
                server.freeze();
                pause(random, 50..5000);
                server.thaw();
            }
            Fault::KillConnections => tool::kill_connections(port)?,
            Fault::Promote => self.fail_over(random),
            _ => drop(self.primary.tried("rlock", D::END_SESSIONS)),
        }
        self.settle();
        pause(random, 0..3000);
        Ok((fault, format!("port {port}")))
    }

    fn settle(&self) {
        testkit::eventually("the database answers", || {
            self.primary.tried("rlock", "SELECT 1").is_ok()
        });
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        // A client of ShedLock that failed has left its lock, until its lease ends.
        let _ = testkit::until("nothing is left", || {
            left.clear();
            left.extend(self.primary.holder(KEYS[0]));
            Ok(left.is_empty().then_some(()))
        });
        Ok(left)
    }
}

/// Clients of `ShedLock`, each of which asks by a statement.
struct ShedLock<D> {
    program: &'static str,
    words: Vec<String>,
    kind: PhantomData<fn() -> D>,
}

impl<D> ShedLock<D> {
    fn asks(&self, statements: &str) -> Result<String> {
        let words = self.words.iter().map(String::as_str);
        tool::run(self.program, &words.chain([statements]).collect::<Vec<_>>())
    }
}

impl<D: Hurt> Foreign for ShedLock<D> {
    fn name(&self) -> &'static str {
        "ShedLock"
    }

    fn run(&self, witness: &Witness) -> Result<()> {
        let by = format!("host{}", now().as_nanos());
        // Without an answer it has no lock.
        let told = self.asks(&D::takes(&by)).unwrap_or_default();
        if !told.lines().any(|line| line == "1") {
            std::thread::sleep(PAUSE);
            return Ok(());
        }
        witness.command().status()?;
        // Its lock ends with its lease if this fails.
        let _ = self.asks(&D::gives_back(&by));
        Ok(())
    }
}
