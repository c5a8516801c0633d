//! A connection to a server of PostgreSQL: TLS, the login, requests, and what its errors mean.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::TryStreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::super::dialect::Working;
use super::super::session::{
    Begun, CREATE, Connection, GRANT, LISTENS, NotBegun, Reply, SqlAccess, Statement, strange,
};
use super::meter::{CLEAR, Meter, Told};
use crate::secret::Secret;
use crate::store::net::dial::{Stream, boxed};
use crate::store::net::hosts::Endpoint;
use crate::store::net::tls::{Trust, no_tls, refusal};
use crate::store::net::unwritten::Unwritten;
use crate::store::{Denied, Fault, FaultKind};
use crate::text::escape;

/// The request for TLS (PostgreSQL, 55.2.10), and the answer of a server that speaks it.
const TLS: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const TLS_FOLLOWS: u8 = b'S';

/// Bytes of a request besides its text: its type, its length, and a NUL.
const AROUND: u64 = 6;

/// The way to a login.
const LOGIN: &str = "give the right user and password, as in postgresql://user@host and --password-file, PGPASSWORD or ~/.pgpass";

/// The way to rows that row level security hides or keeps from being written.
pub(super) const POLICY: &str =
    "give rlock's user a policy for all rows (CREATE POLICY … USING (true))";

/// Logs in over `stream`, with TLS if there is something to trust.
pub(super) async fn begin(
    stream: Box<dyn Stream>,
    host: &Endpoint,
    password: Option<&Secret>,
    access: &SqlAccess,
    broken: &watch::Sender<()>,
) -> Result<Begun, NotBegun> {
    let is_private = access.trust.is_some() || matches!(host, Endpoint::Unix(_));
    let stream = match (host, &access.trust) {
        (Endpoint::Tcp { host, .. }, Some(trust)) => encrypted(stream, host, trust).await?,
        _ => stream,
    };
    let mut config = Config::new();
    config
        .user(&access.user)
        .dbname(&access.database)
        .application_name("rlock");
    if let Some(password) = password {
        config.password(password.reveal());
    }
    let (meter, told) = Meter::new(stream, is_private);
    let (client, connection) = config
        .connect_raw(meter, NoTls)
        .await
        .map_err(|error| of_start(&error))?;
    let version = connection
        .parameter("server_version")
        .unwrap_or_default()
        .to_owned();
    let asked = told.written.borrow().unwrap_or_default();
    told.asked.store(asked, Ordering::Relaxed);
    let (needed, dropped) = oneshot::channel();
    let (ended, broken) = (Arc::clone(&told), broken.clone());
    tokio::spawn(async move {
        // The library would wait for an answer that no caller hears, as long as the server likes.
        let left = async {
            let _ = dropped.await;
            let asked = ended.asked.load(Ordering::Relaxed);
            ended.is_written(asked).await;
        };
        let is_broken = tokio::select! {
            biased;
            end = connection => end.is_err(),
            () = left => false,
        };
        ended.written.send_replace(None);
        if is_broken {
            broken.send_replace(());
        }
    });
    // A session whose process was not told is none of ours.
    let process = told.process.load(Ordering::Relaxed);
    Ok(Begun {
        connection: Box::new(Simple {
            client,
            told,
            _needed: needed,
        }),
        version,
        process: process.try_into().unwrap_or_default(),
    })
}

/// Asks for TLS, and shakes hands.
async fn encrypted(
    mut stream: Box<dyn Stream>,
    host: &str,
    trust: &Trust,
) -> Result<Box<dyn Stream>, NotBegun> {
    let plain = "leave sslmode= out if that is meant";
    let asked = async {
        stream.write_all(&TLS).await?;
        stream.read_u8().await
    };
    match asked.await {
        Ok(TLS_FOLLOWS) => {
            let shaken = trust.handshake(host, stream, plain).await;
            boxed(Ok(shaken.map_err(NotBegun::by_kind)?)).map_err(NotBegun::by_kind)
        }
        Ok(_) => Err(no_tls(plain).into()),
        Err(error) => boxed(Err::<Box<dyn Stream>, _>(error)).map_err(NotBegun::by_kind),
    }
}

/// A connection that is asked by simple queries.
struct Simple {
    client: Client,
    told: Arc<Told>,
    /// Ends the connection when it is dropped, once the requests are written.
    _needed: oneshot::Sender<()>,
}

impl Connection for Simple {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn ask<'a>(
        &'a self,
        text: &'a str,
        unwritten: Option<Unwritten>,
    ) -> Working<'a, Result<Reply, Fault>> {
        Box::pin(self.asked(text, unwritten))
    }
}

impl Simple {
    async fn asked(&self, text: &str, unwritten: Option<Unwritten>) -> Result<Reply, Fault> {
        let length = text.len() as u64 + AROUND;
        let end = self.told.asked.fetch_add(length, Ordering::Relaxed) + length;
        if let Some(unwritten) = unwritten {
            let told = Arc::clone(&self.told);
            tokio::spawn(async move {
                told.is_written(end).await;
                drop(unwritten);
            });
        }
        let failed = |error| of_request(&error);
        let messages = self.client.simple_query_raw(text).await.map_err(failed)?;
        let mut messages = pin!(messages);
        let mut statements = vec![Statement::default()];
        while let Some(message) = messages.try_next().await.map_err(failed)? {
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
        Ok(Reply::of(statements))
    }
}

/// Returns the fault of a session that was not begun. A server that starts or shuts down is away.
fn of_start(error: &tokio_postgres::Error) -> NotBegun {
    if let Some(error) = error.as_db_error() {
        return NotBegun {
            fault: of_server(error),
            is_away: is_away(error.code().code()),
        };
    }
    NotBegun::by_kind(of_login(error))
}

/// Whether the error is that of a server that starts, shuts down, or takes no writes.
fn is_away(code: &str) -> bool {
    matches!(code, "25006" | "57P01" | "57P02" | "57P03")
}

/// Returns the fault of a login that did not come to its end.
fn of_login(error: &tokio_postgres::Error) -> Fault {
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
    if let Some(fault) = io(error).and_then(refusal) {
        return fault;
    }
    if error.is_closed() || io(error).is_some() {
        let why = format!("cannot connect: {why}");
        return Fault::new(FaultKind::Unavailable, why).with_remedy(LISTENS);
    }
    strange()
}

/// Returns the fault of a request.
fn of_request(error: &tokio_postgres::Error) -> Fault {
    match error.as_db_error() {
        Some(error) => of_server(error),
        None if error.is_closed() || io(error).is_some() => Fault::new(
            FaultKind::Unknown,
            format!("the connection broke: {}", told(error)),
        ),
        None => strange(),
    }
}

/// Returns the error of the connection's stream behind `error`.
fn io(error: &tokio_postgres::Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref()
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
    let why = format!("{} ({})", escape::short(message), escape::short(code));
    match code {
        "28000" | "28P01" => Fault::denied(Denied::Login, why, LOGIN),
        "42501" if why.contains("row-level security") => Fault::denied(Denied::Key, why, POLICY),
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
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::io::{DuplexStream, duplex};

    use super::super::super::pool::Pool;
    use super::super::super::session::{Greeting, Session};
    use super::super::super::statements::Table;
    use super::*;
    use crate::store::address::Address;
    use crate::store::net::dial::HostDial;

    fn done<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let in_time = async { tokio::time::timeout(Duration::from_secs(20), work).await };
        runtime.block_on(in_time).expect("an end")
    }

    /// The answer to a login.
    const WELCOME: &[u8] =
        b"R\0\0\0\x08\0\0\0\0S\0\0\0\x16server_version\x0016\0K\0\0\0\x0c\0\0\0\x07\0\0\0\x01Z\0\0\0\x05I";

    const PASSWORD: &str = "correct\thorse";

    fn access() -> SqlAccess {
        let host = Endpoint::Unix("/any".into());
        SqlAccess {
            hosts: vec![(host, Some(Secret::new(PASSWORD)))],
            user: "u".to_owned(),
            database: "db".to_owned(),
            trust: None,
            renew: None,
        }
    }

    /// Reads a message of a client, but for its type.
    async fn heard(server: &mut DuplexStream) -> Vec<u8> {
        let length = server.read_i32().await.unwrap();
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        server.read_exact(&mut body).await.unwrap();
        body
    }

    async fn welcome(server: &mut DuplexStream) {
        heard(server).await;
        server.write_all(WELCOME).await.unwrap();
    }

    /// A connection, and its server's end. No more than `room` bytes are under way.
    async fn connected(room: usize) -> (Begun, DuplexStream) {
        let (ours, mut theirs) = duplex(room);
        let (access, broken) = (access(), watch::Sender::default());
        let (host, password) = &access.hosts[0];
        let begun = begin(Box::new(ours), host, password.as_ref(), &access, &broken);
        let (begun, ()) = tokio::join!(begun, welcome(&mut theirs));
        (
            begun.unwrap_or_else(|not| panic!("{:?}", not.fault)),
            theirs,
        )
    }

    /// Answers a request by an error that repeats the password.
    async fn refuse(server: &mut DuplexStream) {
        assert_eq!(server.read_u8().await.unwrap(), b'Q');
        heard(server).await;
        let fields = format!("SERROR\0C42501\0Mdenied to {PASSWORD}\0\0");
        let length = u8::try_from(fields.len() + 4).unwrap();
        let told = [
            b"E\0\0\0",
            &[length][..],
            fields.as_bytes(),
            b"Z\0\0\0\x05I",
        ]
        .concat();
        server.write_all(&told).await.unwrap();
    }

    #[test]
    fn a_server_that_repeats_the_password_is_quoted_without_it() {
        done(async {
            let (mut begun, mut server) = connected(1 << 16).await;
            begun.version = format!("15 {PASSWORD}");
            let greeting = Greeting { now: 1, process: 7 };
            let session = Session::new(begun, &greeting, Some(&Secret::new(PASSWORD)));
            assert_eq!(session.version, "15 ***");
            let (asked, ()) = tokio::join!(session.ask("x"), refuse(&mut server));
            assert_eq!(asked.unwrap_err().why, "denied to *** (42501)");

            let (ours, mut server) = duplex(1 << 16);
            let ours = Mutex::new(Some(ours));
            let dial: HostDial = Arc::new(move |_, _| {
                let ours = ours.lock().unwrap().take().expect("one connection");
                Box::pin(async move { boxed(Ok(ours)) })
            });
            let Ok(Address::Sql(address)) = Address::parse("postgresql://a") else {
                panic!("no address")
            };
            let limit = Duration::from_secs(9);
            let pool = Pool::new(access(), dial, Table::new(&address, limit), limit);
            let greeted = async {
                welcome(&mut server).await;
                refuse(&mut server).await;
            };
            let (begun, ()) = tokio::join!(pool.session(), greeted);
            assert_eq!(begun.err().unwrap().why, "denied to *** (42501)");
        });
    }

    #[test]
    fn a_connection_that_is_not_needed_ends_without_its_answer_once_all_is_written() {
        done(async {
            let (begun, mut server) = connected(64).await;
            let text = "x".repeat(1000);
            let mut asked = begun.connection.ask(&text, None);
            assert!(futures_util::poll!(&mut asked).is_pending());
            drop(asked);
            drop(begun);
            let mut request = Vec::new();
            server.read_to_end(&mut request).await.unwrap();
            assert_eq!(request.len() as u64, 1000 + AROUND);
        });
    }

    #[test]
    fn a_code_of_any_length_is_shown_short() {
        assert!(of_code(&"x".repeat(1 << 20), "told").why.len() < 300);
    }

    #[test]
    fn a_server_that_refuses_a_session_is_away_only_if_it_starts_or_stops() {
        for code in ["57P01", "57P02", "57P03"] {
            assert!(is_away(code), "{code}");
        }
        // A pooler tells 08P01 if it has no connection to spare.
        for code in ["53300", "28P01", "3D000", "08P01", "57014"] {
            assert!(!is_away(code), "{code}");
        }
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
