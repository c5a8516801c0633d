//! A session at a server of PostgreSQL: how it is begun, what it is asked, and what its errors mean.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::meter::{CLEAR, Meter, Told};
use super::statements::{Message, Table};
use crate::clock;
use crate::lock::instant::Instant;
use crate::secret::{self, Secret};
use crate::store::net::dial::{HostDial, Stream, boxed, connect};
use crate::store::net::hosts::Endpoint;
use crate::store::net::tls::{Trust, no_tls};
use crate::store::net::unwritten::Unwritten;
use crate::store::{Denied, Fault, FaultKind};
use crate::text::escape;

/// The request for TLS (PostgreSQL, 55.2.10), and the answer of a server that speaks it.
const TLS: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const TLS_FOLLOWS: u8 = b'S';

/// Bytes of a request besides its text: its type, its length, and a NUL.
const AROUND: u64 = 6;

/// The way to a missing table and to a missing right.
const CREATE: &str = "create it: rlock doctor --acl prints how";
const GRANT: &str = "grant the rights of the line that rlock doctor --acl prints";
const LOGIN: &str = "give the right user and password, as in postgresql://user@host and --password-file, PGPASSWORD or ~/.pgpass";

/// How the servers are reached, and as whom.
#[derive(Clone)]
pub struct SqlAccess {
    /// The servers in the order in which they are tried, each with the password for it.
    pub hosts: Vec<(Endpoint, Option<Secret>)>,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// Needed for TLS only.
    pub trust: Option<Trust>,
}

/// Opens a stream to a server, with TLS if there is something to trust.
pub fn dial(trust: Option<&Trust>) -> HostDial {
    let trust = trust.cloned();
    Arc::new(move |endpoint, limit| {
        let trust = trust.clone();
        Box::pin(async move {
            match endpoint {
                Endpoint::Unix(path) => boxed(UnixStream::connect(path).await),
                Endpoint::Tcp { host, port, .. } => {
                    let mut stream = connect(&host, port, limit).await?;
                    let Some(trust) = trust else {
                        return boxed(Ok(stream));
                    };
                    let plain = "leave sslmode= out if that is meant";
                    let asked = async {
                        stream.write_all(&TLS).await?;
                        stream.read_u8().await
                    };
                    match asked.await {
                        Ok(TLS_FOLLOWS) => boxed(Ok(trust.handshake(&host, stream, plain).await?)),
                        Ok(_) => Err(no_tls(plain)),
                        Err(error) => boxed(Err::<UnixStream, _>(error)),
                    }
                }
            }
        })
    })
}

/// A session. Requests are written behind each other, and answered in their order.
pub(super) struct Session {
    client: Client,
    told: Arc<Told>,
    /// Number of bytes of all requests so far, and the time of the server.
    state: Mutex<State>,
    /// Whether the server's session is ours alone, and no pooler stands between.
    pub(super) is_direct: bool,
    /// Version of the server.
    pub(super) version: String,
    is_given_up: AtomicBool,
}

struct State {
    asked: u64,
    /// Unix time in µs that the server told, and when it was heard.
    now: (u64, Instant),
}

/// An answer: of each statement its rows, and the number of rows that it was about.
#[derive(Debug, Default)]
pub(super) struct Reply(pub(super) Vec<Statement>);

/// The answer to one statement.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub(super) rows: Vec<Vec<Option<String>>>,
    pub(super) count: u64,
}

impl Session {
    /// Begins a session at the first of the servers that takes writes, within `limit` in all.
    /// `broken` hears when one has come to an end that no caller wanted.
    pub(super) async fn begin(
        access: &SqlAccess,
        dial: &HostDial,
        table: &Table,
        limit: Duration,
        broken: &watch::Sender<()>,
    ) -> Result<Self, Fault> {
        let end = clock::now() + limit;
        let mut first = None;
        for (index, (host, password)) in access.hosts.iter().enumerate() {
            let left = end.since(clock::now());
            let shares = u32::try_from(access.hosts.len() - index).unwrap_or(u32::MAX);
            let share = left / shares;
            let begun = Self::at(host, password.as_ref(), access, dial, table, share, broken);
            let begun = clock::until(clock::now() + share, Box::pin(begun)).await;
            match begun.unwrap_or_else(|| Err(no_answer(share))) {
                Ok(session) => return Ok(session),
                Err(fault) => {
                    let fault = if access.hosts.len() > 1 {
                        Fault {
                            why: format!("{host}: {fault}"),
                            ..fault
                        }
                    } else {
                        fault
                    };
                    first.get_or_insert(fault);
                }
            }
        }
        Err(first.unwrap_or_else(|| no_answer(limit)))
    }

    async fn at(
        host: &Endpoint,
        password: Option<&Secret>,
        access: &SqlAccess,
        dial: &HostDial,
        table: &Table,
        limit: Duration,
        broken: &watch::Sender<()>,
    ) -> Result<Self, Fault> {
        let stream = dial(host.clone(), limit).await?;
        let is_private = access.trust.is_some() || matches!(host, Endpoint::Unix(_));
        let mut config = Config::new();
        config
            .user(&access.user)
            .dbname(&access.database)
            .application_name("rlock");
        if let Some(password) = password {
            config.password(password.reveal());
        }
        let mut session = Self::over(stream, is_private, &config, broken)
            .await
            .map_err(|fault| match password {
                Some(password) => refused_with(password, &fault),
                None => fault,
            })?;
        session.greet(table).await?;
        Ok(session)
    }

    async fn over(
        stream: Box<dyn Stream>,
        is_private: bool,
        config: &Config,
        broken: &watch::Sender<()>,
    ) -> Result<Self, Fault> {
        let (meter, told) = Meter::new(stream, is_private);
        let (client, connection) = config
            .connect_raw(meter, NoTls)
            .await
            .map_err(|error| of_start(&error))?;
        let version = connection
            .parameter("server_version")
            .unwrap_or_default()
            .to_owned();
        let (ended, broken) = (Arc::clone(&told), broken.clone());
        tokio::spawn(async move {
            let end = connection.await;
            ended.written.send_replace(None);
            if end.is_err() {
                broken.send_replace(());
            }
        });
        let asked = told.written.borrow().unwrap_or_default();
        Ok(Self {
            client,
            told,
            state: Mutex::new(State {
                asked,
                now: (0, clock::now()),
            }),
            is_direct: false,
            version,
            is_given_up: AtomicBool::new(false),
        })
    }

    /// Hears the server's time, and what it has.
    async fn greet(&mut self, table: &Table) -> Result<(), Fault> {
        let reply = self.ask(&table.greeting(), None).await?;
        let row = reply.0.first().and_then(|statement| statement.rows.first());
        let [now, process, read_only, is_keyed, persistence, columns] =
            row.map(Vec::as_slice).unwrap_or_default()
        else {
            return Err(strange());
        };
        let now = number(now.as_deref())?;
        let process = number::<i32>(process.as_deref())?;
        self.is_direct = process == self.told.process.load(Ordering::Relaxed);
        self.state().now = (now, clock::now());
        if read_only.as_deref() == Some("on") {
            let why = "it takes no writes: it is a standby, or read-only";
            let remedy = "name the primary, or all servers of the database";
            return Err(Fault::new(FaultKind::Unavailable, why).with_remedy(remedy));
        }
        check(table, columns.as_deref())?;
        let is_keyed = is_keyed.as_deref() == Some("t");
        check_rows(table, is_keyed, persistence.as_deref())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests have a chance.
    pub(super) fn is_alive(&self) -> bool {
        !self.client.is_closed() && !self.is_given_up.load(Ordering::Relaxed)
    }

    /// Whether it is still connected.
    pub(super) fn is_connected(&self) -> bool {
        !self.client.is_closed()
    }

    /// Asks it nothing any more but a release.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Returns the server's unix time in µs at which `limit` from now is over. It is early by the
    /// time for which the last answer was on its way.
    pub(super) fn deadline(&self, limit: Duration) -> u64 {
        let (told, heard) = self.state().now;
        let since = clock::now().since(heard) + limit;
        told.saturating_add(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// Notes the server's time; 0: it told none.
    pub(super) fn heard(&self, now: u64) {
        if now > 0 {
            self.state().now = (now, clock::now());
        }
    }

    /// Asks, and returns the answers to the statements of the request itself. The request goes out
    /// when this is first polled. `unwritten` is dropped when the kernel has it.
    pub(super) async fn request(
        &self,
        message: &Message,
        unwritten: Option<Unwritten>,
    ) -> Result<Reply, Fault> {
        let mut reply = self.ask(&message.text, unwritten).await?;
        if reply.0.len() < message.before {
            return Err(strange());
        }
        Ok(Reply(reply.0.split_off(message.before)))
    }

    /// Asks, and returns the answers to all statements.
    pub(super) async fn ask(
        &self,
        text: &str,
        unwritten: Option<Unwritten>,
    ) -> Result<Reply, Fault> {
        let end = {
            let mut state = self.state();
            state.asked += text.len() as u64 + AROUND;
            state.asked
        };
        if let Some(unwritten) = unwritten {
            let mut written = self.told.written.subscribe();
            tokio::spawn(async move {
                let has = |written: &Option<u64>| written.is_none_or(|bytes| bytes >= end);
                let _ = written.wait_for(has).await;
                drop(unwritten);
            });
        }
        let messages = self.client.simple_query(text).await;
        let messages = messages.map_err(|error| of_request(&error))?;
        let mut statements = vec![Statement::default()];
        for message in messages {
            let Some(last) = statements.last_mut() else {
                break;
            };
            match message {
                SimpleQueryMessage::Row(row) => {
                    let cells = (0..row.len()).map(|column| row.get(column).map(str::to_owned));
                    last.rows.push(cells.collect());
                }
                SimpleQueryMessage::CommandComplete(count) => {
                    last.count = count;
                    statements.push(Statement::default());
                }
                _ => {}
            }
        }
        statements.pop();
        Ok(Reply(statements))
    }
}

/// Reads a number that the server told.
pub(super) fn number<T: std::str::FromStr>(text: Option<&str>) -> Result<T, Fault> {
    text.and_then(|text| text.parse().ok()).ok_or_else(strange)
}

/// The fault of an answer that PostgreSQL does not give.
pub(super) fn strange() -> Fault {
    Fault::unfit(
        "its answer is none of PostgreSQL's",
        "see what listens there",
    )
}

/// Returns the fault of a server that was shown `password`, without that.
fn refused_with(password: &Secret, fault: &Fault) -> Fault {
    let why = secret::without(&fault.why, password.reveal());
    let why = match fault.denied {
        Some(Denied::Login) => format!("{why}; password from {}", password.source()),
        _ => why,
    };
    Fault { why, ..*fault }
}

/// Nothing was asked of it yet.
fn no_answer(limit: Duration) -> Fault {
    Fault {
        kind: FaultKind::Unavailable,
        ..Fault::timeout(limit)
    }
}

/// Checks the columns of the table: lines of a name and a type.
fn check(table: &Table, columns: Option<&str>) -> Result<(), Fault> {
    let shown = table.table_name();
    let Some(columns) = columns else {
        return Err(Fault::unfit(
            format!("relation \"{shown}\" does not exist (42P01)"),
            CREATE,
        ));
    };
    let known: Vec<(&str, &str)> = columns
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let mut kinds = [""; 4];
    for (kind, column) in kinds.iter_mut().zip(table.columns()) {
        // A name without quotes is taken in lower case.
        let column = column.to_ascii_lowercase();
        let Some((_, found)) = known.iter().find(|(name, _)| *name == column) else {
            let what = format!("the table {shown} has no column {column} (42703)");
            return Err(Fault::unfit(what, CREATE));
        };
        *kind = found;
    }
    for (kind, column) in kinds.iter().zip(table.columns()).skip(1).take(2) {
        let digits = digits(kind);
        if digits.is_none_or(|digits| digits < 3) {
            let what =
                format!("the column {column} is of type {kind}, which keeps no milliseconds");
            let remedy = "give it the type timestamp (ALTER TABLE)";
            return Err(Fault::unfit(what, remedy));
        }
        if !kind.contains("without") && !table.has_zone() {
            let what = format!("the column {column} is of type {kind}");
            let remedy = "give it the type timestamp (ALTER TABLE), or the address the time zone of the other clients' sessions, as in ?time_zone=Europe/Berlin";
            return Err(Fault::unfit(what, remedy));
        }
    }
    for (index, needed) in [(0, super::LONGEST_NAME), (3, super::row::LONGEST)] {
        let room = kinds[index]
            .strip_prefix("character varying(")
            .and_then(|room| room.trim_end_matches(')').parse::<usize>().ok());
        if let Some(room) = room.filter(|room| *room < needed) {
            let column = table.columns()[index];
            let what =
                format!("the column {column} has room for {room} characters; rlock needs {needed}");
            let remedy = "give it a wider type (ALTER TABLE)";
            return Err(Fault::unfit(what, remedy));
        }
    }
    Ok(())
}

/// Checks that a name has one row, and that a crash of the server leaves it.
fn check_rows(table: &Table, is_keyed: bool, persistence: Option<&str>) -> Result<(), Fault> {
    let shown = table.table_name();
    if !is_keyed {
        let what = format!(
            "{shown} has no primary key or unique index on its name alone: two rows may be one lock"
        );
        let remedy = "add one (ALTER TABLE … ADD PRIMARY KEY)";
        return Err(Fault::unfit(what, remedy));
    }
    if persistence != Some("p") {
        let what = format!("{shown} is unlogged or temporary: a crash of the server empties it");
        let remedy = "set it to be logged (ALTER TABLE … SET LOGGED)";
        return Err(Fault::unfit(what, remedy));
    }
    Ok(())
}

/// Returns the number of digits of seconds that a type of time keeps; `None` of another type.
fn digits(kind: &str) -> Option<u32> {
    let rest = kind.strip_prefix("timestamp")?;
    match rest.strip_prefix('(') {
        Some(rest) => rest.split(')').next()?.parse().ok(),
        None => Some(6),
    }
}

/// Returns the fault of a session that was not begun.
fn of_start(error: &tokio_postgres::Error) -> Fault {
    if let Some(error) = error.as_db_error() {
        return of_server(error);
    }
    let why = told(error);
    if why.contains(CLEAR) {
        return Fault::denied(
            Denied::Login,
            CLEAR,
            "give sslmode=verify-full, or let the server ask for scram-sha-256",
        );
    }
    if why.contains("password missing") {
        return Fault::denied(Denied::Login, "it asks for a password", LOGIN);
    }
    if why.contains("authentication") || why.contains("SASL") || why.contains("scram") {
        return Fault::denied(
            Denied::Login,
            format!("it asks for what rlock cannot give: {why}"),
            "let the server's pg_hba.conf ask for scram-sha-256",
        );
    }
    if error.is_closed() || is_io(error) {
        return Fault::new(FaultKind::Unavailable, format!("cannot connect: {why}"));
    }
    strange()
}

/// Returns the fault of a request.
fn of_request(error: &tokio_postgres::Error) -> Fault {
    match error.as_db_error() {
        Some(error) => of_server(error),
        None if error.is_closed() || is_io(error) => Fault::new(
            FaultKind::Unknown,
            format!("the connection broke: {}", told(error)),
        ),
        None => strange(),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}

/// Returns what an error says, with its cause.
fn told(error: &tokio_postgres::Error) -> String {
    let text = match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    escape::short(&text)
}

/// Returns the fault of an error that the server told (PostgreSQL, Appendix A).
fn of_server(error: &DbError) -> Fault {
    of_code(error.code().code(), error.message())
}

fn of_code(code: &str, message: &str) -> Fault {
    let why = format!("{} ({})", escape::short(message), escape::text(code));
    match code {
        "28000" | "28P01" => Fault::denied(Denied::Login, why, LOGIN),
        "42501" => Fault::denied(Denied::Key, why, GRANT),
        "42P01" | "42703" | "3F000" => Fault::unfit(why, CREATE),
        "3D000" => Fault::unfit(why, "name the database, as in postgresql://host/db"),
        "22P05" => Fault::unfit(
            why,
            "leave the character out of the names, the command and --note, or use a database in UTF8",
        ),
        "55P03" => Fault::new(FaultKind::Unavailable, why)
            .with_remedy("see which transaction has locked the row (pg_stat_activity)"),
        "40P01" | "40001" | "57014" | "57P03" | "25006" => Fault::new(FaultKind::Unavailable, why),
        _ if code.starts_with("53") => Fault::new(FaultKind::Unavailable, why),
        _ if code.starts_with("57P") || code.starts_with("08") => {
            Fault::new(FaultKind::Unknown, why)
        }
        _ => Fault::unfit(why, "see the server's log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::address::Address;

    fn checked(columns: Option<&str>, options: &str) -> Result<(), String> {
        let url = format!("postgresql://a{options}");
        let Ok(Address::Sql(address)) = Address::parse(&url) else {
            panic!("{url}")
        };
        let table = Table::new(&address, Duration::from_secs(1));
        check(&table, columns).map_err(|fault| fault.why)
    }

    #[test]
    fn a_table_that_would_lie_is_refused() {
        let with = |until: &str, by: &str| {
            let at = "timestamp without time zone";
            format!(
                "name character varying(64)\nlock_until {until}\nlocked_at {at}\nlocked_by {by}"
            )
        };
        let (plain, by) = ("timestamp without time zone", "character varying(255)");
        for (columns, options, why) in [
            (Some(with(plain, by)), "", ""),
            (Some(with("timestamp(3) without time zone", "text")), "", ""),
            (
                Some(with("timestamp with time zone", by)),
                "?time_zone=UTC",
                "",
            ),
            (Some(with("timestamp with time zone", by)), "", "time_zone="),
            (
                Some(with("timestamp(0) without time zone", by)),
                "",
                "milliseconds",
            ),
            (Some(with("date", by)), "", "milliseconds"),
            (
                Some(with(plain, "character varying(100)")),
                "",
                "room for 100",
            ),
            (
                Some(with(plain, by).replace("varying(64)", "varying(40)")),
                "",
                "the column name has room for 40",
            ),
            (
                Some("name text\nlock_until date".to_owned()),
                "",
                "no column locked_at",
            ),
            (None, "", "relation \"shedlock\" does not exist"),
            (
                Some(with(plain, by)),
                "?columns=n,lock_until,locked_at,locked_by",
                "no column n ",
            ),
        ] {
            match checked(columns.as_deref(), options) {
                Ok(()) => assert_eq!(why, "", "{columns:?}"),
                Err(told) => assert!(!why.is_empty() && told.contains(why), "{told}"),
            }
        }
    }

    #[test]
    fn a_table_that_has_two_rows_of_a_name_or_loses_them_is_refused() {
        let Ok(Address::Sql(address)) = Address::parse("postgresql://a") else {
            panic!("an address")
        };
        let table = Table::new(&address, Duration::from_secs(1));
        let checked =
            |is_keyed, kept| check_rows(&table, is_keyed, Some(kept)).map_err(|fault| fault.why);
        assert_eq!(checked(true, "p"), Ok(()));
        assert!(checked(false, "p").is_err_and(|why| why.contains("two rows")));
        assert!(checked(true, "u").is_err_and(|why| why.contains("unlogged")));
    }

    #[test]
    fn each_error_of_a_server_has_its_kind() {
        use FaultKind::{Refused, Unavailable, Unfit, Unknown};
        for (code, kind) in [
            ("28P01", Refused),
            ("42501", Refused),
            ("42P01", Unfit),
            ("3D000", Unfit),
            ("22001", Unfit),
            ("55P03", Unavailable),
            ("40P01", Unavailable),
            ("53300", Unavailable),
            ("25006", Unavailable),
            ("57P01", Unknown),
            ("08006", Unknown),
        ] {
            assert_eq!(of_code(code, "told").kind, kind, "{code}");
        }
    }
}
