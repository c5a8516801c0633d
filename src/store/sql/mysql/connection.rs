//! A connection to a server of MySQL or MariaDB: TLS, the login, requests, and what its errors mean.
//!
//! 1. One task writes requests behind each other, and reads the answers in that order.
//! 2. A server cannot fill our memory: an answer has at most [`MOST_RECEIVED`] bytes.
//! 3. No file is sent that a server asks for (`LOCAL INFILE`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::dialect::Working;
use super::super::session::{
    Begun, CREATE, Connection, GRANT, LISTENS, NO_WRITER, NotBegun, Reply, SqlAccess, Statement,
    strange,
};
use super::login::{self, Greeting, Login, Refused};
use super::packet::{
    ERROR, Malformed, Reader, ServerError, done, end_of_rows, error, is_end, packet, read,
};
use crate::secret::Secret;
use crate::store::net::dial::{Stream, boxed};
use crate::store::net::hosts::Endpoint;
use crate::store::net::tls::{no_tls, refusal};
use crate::store::net::unwritten::Unwritten;
use crate::store::{Denied, Fault, FaultKind};
use crate::text::escape;

/// Most bytes of an answer, with the memory that its cells take: a page of names is the most that is
/// asked for.
const MOST_RECEIVED: usize = 8 << 20;

/// Most bytes that a server sends before the login is done, and most packets of it.
const MOST_AT_FIRST: usize = 64 << 10;
const MOST_QUESTIONS: usize = 8;

/// Most columns of an answer.
const MOST_COLUMNS: u64 = 64;

/// The requests: a statement, and the end of the session.
const QUERY: u8 = 3;
const QUIT: u8 = 1;

/// The way to a login.
const LOGIN: &str = "give the right user and password, as in mysql://user@host and --password-file, MYSQL_PWD or ~/.my.cnf; a user without a name, ''@'localhost', may stand before it: drop that one";
const ANONYMOUS: &str = "the server knows this user from no such host, and took rlock for one without a name; create the user for that host, or drop the one without a name";

/// The fault of a server that wants the password itself.
const CLEAR: &str = "it asks for the password itself, over a connection without TLS";

/// Logs in over `stream`, with TLS if there is something to trust.
pub(super) async fn begin(
    mut stream: Box<dyn Stream>,
    host: &Endpoint,
    password: Option<&Secret>,
    access: &SqlAccess,
    broken: &watch::Sender<()>,
) -> Result<Begun, NotBegun> {
    let mut room = MOST_AT_FIRST;
    let (mut number, body) = read(&mut stream, &mut room)
        .await
        .map_err(|error| of_start(&error))?;
    if body.first() == Some(&ERROR) {
        return Err(refused(&error(&body).map_err(Fault::from)?));
    }
    let greeting = Greeting::read(&body).map_err(Fault::from)?;
    let mut login = Login {
        user: &access.user,
        password: password.map(Secret::reveal),
        database: &access.database,
        is_private: matches!(host, Endpoint::Unix(_)),
        is_tls: false,
    };
    if let (Endpoint::Tcp { host, .. }, Some(trust)) = (host, &access.trust) {
        let plain = "leave ssl-mode= out if that is meant";
        if !greeting.has_tls {
            return Err(no_tls(plain).into());
        }
        number = number.wrapping_add(1);
        send(&mut stream, &packet(number, &login::request_for_tls())).await?;
        let shaken = trust.handshake(host, stream, plain).await;
        stream = boxed(Ok(shaken.map_err(NotBegun::by_kind)?)).map_err(NotBegun::by_kind)?;
        (login.is_tls, login.is_private) = (true, true);
    }
    let response = login.response(&greeting).map_err(of_login)?;
    send(&mut stream, &packet(number.wrapping_add(1), &response)).await?;
    for _ in 0..MOST_QUESTIONS {
        let (number, body) = read(&mut stream, &mut room)
            .await
            .map_err(|error| of_start(&error))?;
        match body.first() {
            Some(0) => {
                return Ok(Begun {
                    connection: Box::new(Text::over(stream, broken.clone())),
                    version: greeting.version,
                    process: greeting.process.into(),
                });
            }
            Some(&ERROR) => return Err(refused(&error(&body).map_err(Fault::from)?)),
            _ => {
                if let Some(answer) = login.reply(&body).map_err(of_login)? {
                    send(&mut stream, &packet(number.wrapping_add(1), &answer)).await?;
                }
            }
        }
    }
    Err(strange().into())
}

async fn send(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> Result<(), NotBegun> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| of_start(&error))
}

/// A connection that is asked by the text protocol.
struct Text(mpsc::UnboundedSender<Request>);

/// A request that is to be written.
struct Request {
    text: String,
    unwritten: Option<Unwritten>,
    answer: Listener,
}

/// The listener to an answer.
type Listener = oneshot::Sender<Result<Reply, Fault>>;

impl Connection for Text {
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn ask<'a>(
        &'a self,
        text: &'a str,
        unwritten: Option<Unwritten>,
    ) -> Working<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let (answer, heard) = oneshot::channel();
            let request = Request {
                text: text.to_owned(),
                unwritten,
                answer,
            };
            let gone = || broke("closed");
            self.0.send(request).map_err(|_| gone())?;
            heard.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl Text {
    /// Asks over a stream that has logged in.
    fn over(stream: Box<dyn Stream>, broken: watch::Sender<()>) -> Self {
        let (requests, taken) = mpsc::unbounded_channel();
        let (input, output) = split(stream);
        let (asked, waiting) = mpsc::unbounded_channel();
        let unanswered = Arc::new(AtomicUsize::new(0));
        tokio::spawn(async move {
            let is_broken = tokio::select! {
                biased;
                () = answer_all(input, waiting, &unanswered) => true,
                written = write_all(output, taken, asked, &unanswered) => written.is_err(),
            };
            if is_broken {
                broken.send_replace(());
            }
        });
        Self(requests)
    }
}

/// Writes each request, until none can come any more. A server that is still at one notices the end of
/// the connection only if nothing is behind it.
async fn write_all(
    mut output: WriteHalf<Box<dyn Stream>>,
    mut requests: mpsc::UnboundedReceiver<Request>,
    asked: mpsc::UnboundedSender<Listener>,
    unanswered: &AtomicUsize,
) -> io::Result<()> {
    while let Some(request) = requests.recv().await {
        unanswered.fetch_add(1, Ordering::Relaxed);
        let _ = asked.send(request.answer);
        write(&mut output, QUERY, request.text.as_bytes()).await?;
        drop(request.unwritten);
    }
    match unanswered.load(Ordering::Relaxed) {
        0 => write(&mut output, QUIT, &[]).await,
        _ => Ok(()),
    }
}

async fn write(output: &mut (impl AsyncWrite + Unpin), request: u8, text: &[u8]) -> io::Result<()> {
    let bytes = packet(0, &[&[request], text].concat());
    output.write_all(&bytes).await?;
    output.flush().await
}

/// Reads the answer to each request, until the connection ends.
async fn answer_all(
    mut input: ReadHalf<Box<dyn Stream>>,
    mut waiting: mpsc::UnboundedReceiver<Listener>,
    unanswered: &AtomicUsize,
) {
    loop {
        let (mut room, mut done) = (MOST_RECEIVED, Vec::new());
        let first = read(&mut input, &mut room).await;
        // A server tells that it ends a session, too.
        let Ok(listener) = waiting.try_recv() else {
            return;
        };
        let (reply, goes_on) = match first {
            Ok((_, first)) => match answer(&mut input, first, &mut room, &mut done).await {
                Ok(()) => (Ok(Reply::of(done)), true),
                Err(Ended::Told(error)) => {
                    let fault = of_server(&error);
                    let goes_on = fault.kind != FaultKind::Unknown && !takes_no_writes(error.code);
                    // Each statement is a transaction: what those before it did stays.
                    let kind = if done.iter().any(|statement| statement.count > 0) {
                        FaultKind::Unknown
                    } else {
                        fault.kind
                    };
                    (Err(Fault { kind, ..fault }), goes_on)
                }
                Err(Ended::Strange) => (Err(strange()), false),
                Err(Ended::Broken(error)) => (Err(broke(&error.to_string())), false),
            },
            Err(error) => (Err(broke(&error.to_string())), false),
        };
        unanswered.fetch_sub(1, Ordering::Relaxed);
        let _ = listener.send(reply);
        if !goes_on {
            return;
        }
    }
}

/// The end of an answer that was no reply.
enum Ended {
    Told(ServerError),
    Strange,
    Broken(io::Error),
}

impl From<Malformed> for Ended {
    fn from(_: Malformed) -> Self {
        Self::Strange
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Reads the answers to the statements of a request, of which the `first` packet is there, into
/// `statements`.
async fn answer(
    input: &mut (impl AsyncRead + Unpin),
    first: Vec<u8>,
    room: &mut usize,
    statements: &mut Vec<Statement>,
) -> Result<(), Ended> {
    let mut head = first;
    loop {
        charge(room, size_of::<Statement>())?;
        let has_more = match head.first() {
            Some(0) => {
                let done = done(&head)?;
                statements.push(Statement {
                    rows: Vec::new(),
                    count: done.count,
                });
                done.has_more
            }
            Some(&ERROR) => return Err(Ended::Told(error(&head)?)),
            _ => {
                let columns = Reader(&head).length()?;
                let (statement, has_more) = rows(input, columns, room).await?;
                statements.push(statement);
                has_more
            }
        };
        if !has_more {
            return Ok(());
        }
        (_, head) = read(input, room).await?;
    }
}

/// Reads the columns and the rows of a statement. Returns whether another answer follows.
async fn rows(
    input: &mut (impl AsyncRead + Unpin),
    columns: u64,
    room: &mut usize,
) -> Result<(Statement, bool), Ended> {
    if !(1..=MOST_COLUMNS).contains(&columns) {
        return Err(Ended::Strange);
    }
    for _ in 0..columns {
        read(input, room).await?;
    }
    if !is_end(&read(input, room).await?.1) {
        return Err(Ended::Strange);
    }
    let mut statement = Statement::default();
    loop {
        let (_, body) = read(input, room).await?;
        if is_end(&body) {
            return Ok((statement, end_of_rows(&body)?));
        }
        if body.first() == Some(&ERROR) {
            return Err(Ended::Told(error(&body)?));
        }
        let cells = usize::try_from(columns).unwrap_or(usize::MAX);
        charge(
            room,
            size_of::<Vec<()>>() + cells * size_of::<Option<String>>(),
        )?;
        let mut reader = Reader(&body);
        let cells = (0..columns).map(|_| reader.cell());
        statement.rows.push(cells.collect::<Result<_, _>>()?);
    }
}

/// Takes what an answer costs in memory from what it may.
fn charge(room: &mut usize, cost: usize) -> Result<(), Ended> {
    *room = room.checked_sub(cost).ok_or(Ended::Strange)?;
    Ok(())
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        strange()
    }
}

/// The fault of a connection that ended before its login.
fn of_start(error: &io::Error) -> NotBegun {
    NotBegun::by_kind(refusal(error).unwrap_or_else(|| {
        let why = format!("cannot connect: {}", escape::short(&error.to_string()));
        Fault::new(FaultKind::Unavailable, why).with_remedy(LISTENS)
    }))
}

/// The fault of a server that refuses a session. One that shuts down is away.
fn refused(error: &ServerError) -> NotBegun {
    NotBegun {
        fault: of_server(error),
        is_away: error.code == 1053 || takes_no_writes(error.code),
    }
}

/// The fault of a connection that ended.
fn broke(why: &str) -> Fault {
    let why = format!("the connection broke: {}", escape::short(why));
    Fault::new(FaultKind::Unknown, why)
}

/// The fault of a login that is not answered.
fn of_login(refused: Refused) -> Fault {
    match refused {
        Refused::Clear => Fault::denied(
            Denied::Login,
            CLEAR,
            "give the right password, and ssl-mode=VERIFY_IDENTITY: MySQL asks so at a user's first login, and for a wrong user or password",
        ),
        Refused::Unknown(plugin) => Fault::denied(
            Denied::Login,
            format!(
                "it asks for what rlock cannot give: the plugin {}",
                escape::short(&plugin)
            ),
            "let the user log in by caching_sha2_password or mysql_native_password (ALTER USER)",
        ),
        Refused::Malformed => strange(),
    }
}

/// Whether the error is that of a server that takes no writes now: it is read-only, or a node of a
/// Galera cluster that is not among the majority. Another one may.
fn takes_no_writes(code: u16) -> bool {
    matches!(code, 1047 | 1290 | 1792 | 1836)
}

/// Returns the fault of an error that the server told (MySQL, Server Error Message Reference; MariaDB,
/// Error Codes).
fn of_server(error: &ServerError) -> Fault {
    let why = format!("{} ({})", escape::short(&error.message), error.code);
    match error.code {
        1045 | 1130 | 1251 | 1698 | 1820 | 1862 | 3118 | 4151 => {
            Fault::denied(Denied::Login, why, LOGIN)
        }
        // The user of these rights has no name: it stands before one whose host is a pattern.
        1044 | 1142 if error.message.contains("user ''@") => {
            Fault::denied(Denied::Login, why, ANONYMOUS)
        }
        1044 | 1142 | 1143 | 1227 => Fault::denied(Denied::Key, why, GRANT),
        1054 | 1146 => Fault::unfit(why, CREATE),
        1049 => Fault::unfit(
            why,
            "name the database, as in mysql://host/db or table=db.name",
        ),
        1267 | 1366 | 3854 | 3988 => Fault::unfit(
            why,
            "leave the character out of the names, or give the table CHARACTER SET utf8mb4 (ALTER TABLE)",
        ),
        1298 => Fault::unfit(
            why,
            "load the time zones into the server (mysql_tzinfo_to_sql), or write time_zone= as an offset",
        ),
        1205 => Fault::new(FaultKind::Unavailable, why).with_remedy(
            "see which transaction has locked the row (information_schema.innodb_trx)",
        ),
        code if takes_no_writes(code) => {
            Fault::new(FaultKind::Unavailable, why).with_remedy(NO_WRITER)
        }
        // A deadlock, no more connections or memory, a stop of a statement; a node of a cluster that
        // rolls back.
        1020 | 1021 | 1040 | 1041 | 1114 | 1129 | 1203 | 1213 | 1226 | 1317 | 1969 | 3024
        | 3100 | 3101 => Fault::new(FaultKind::Unavailable, why),
        // The end of a session, or of a commit (1180).
        1053 | 1152..=1161 | 1180 | 1927 | 4031 => Fault::new(FaultKind::Unknown, why),
        _ => Fault::unfit(why, "see the server's log"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;

    fn done<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work)
    }

    /// A connection, and its server's end.
    fn connected() -> (Text, DuplexStream) {
        let (ours, theirs) = duplex(1 << 16);
        (Text::over(Box::new(ours), watch::Sender::default()), theirs)
    }

    async fn request(server: &mut DuplexStream) -> Vec<u8> {
        let mut room = 1 << 16;
        read(server, &mut room).await.unwrap().1
    }

    async fn tell(server: &mut DuplexStream, bodies: &[&[u8]]) {
        for body in bodies {
            server.write_all(&packet(1, body)).await.unwrap();
        }
    }

    /// The answer to an update of three rows, with more to come or without.
    const DONE: &[u8] = b"\0\x03\0\x02\0\0\0";
    const DONE_AND_MORE: &[u8] = b"\0\x03\0\x0a\0\0\0";

    #[test]
    fn requests_are_written_behind_each_other_and_answered_in_their_order() {
        done(async {
            let (client, mut server) = connected();
            let asked =
                async { tokio::join!(client.ask("first", None), client.ask("second", None)) };
            let answers = async {
                assert_eq!(request(&mut server).await, b"\x03first");
                assert_eq!(request(&mut server).await, b"\x03second");
                let row = b"\x03job\xfb\x00";
                let column = &b"any"[..];
                tell(
                    &mut server,
                    &[DONE_AND_MORE, b"\x03", column, column, column],
                )
                .await;
                tell(
                    &mut server,
                    &[b"\xfe\0\0\x02\0", row, row, b"\xfe\0\0\x02\0"],
                )
                .await;
                tell(&mut server, &[DONE]).await;
            };
            let ((first, second), ()) = tokio::join!(asked, answers);
            let (first, second) = (first.unwrap(), second.unwrap());
            assert_eq!((first.statements.len(), second.statements.len()), (2, 1));
            assert_eq!(
                (first.statements[0].count, first.statements[1].rows.len()),
                (3, 2)
            );
            let row = [Some("job".to_owned()), None, Some(String::new())];
            assert_eq!(first.statements[1].rows[1], row);
        });
    }

    #[test]
    fn an_error_ends_a_request_and_those_of_a_lost_server_the_connection() {
        for (error, kind, goes_on) in [
            (
                &b"\xff\xb5\x04#HY000waited"[..],
                FaultKind::Unavailable,
                true,
            ),
            (b"\xff\x7a\x04#42S02none", FaultKind::Unfit, true),
            (
                b"\xff\x0a\x05#HY000read-only",
                FaultKind::Unavailable,
                false,
            ),
            (b"\xff\x1d\x04#08S01shutdown", FaultKind::Unknown, false),
        ] {
            done(async {
                let (client, mut server) = connected();
                let answers = async {
                    request(&mut server).await;
                    tell(&mut server, &[error]).await;
                };
                let (asked, ()) = tokio::join!(client.ask("x", None), answers);
                assert_eq!(asked.unwrap_err().kind, kind);
                // Its task ends before the next request, or takes that.
                let next = client.ask("y", None);
                let answers = async {
                    let _ = server.read_u8().await;
                    let _ = server.write_all(&packet(1, DONE)).await;
                };
                let (next, ()) = tokio::join!(next, answers);
                assert_eq!(next.is_ok(), goes_on);
                assert_eq!(client.is_closed(), !goes_on);
            });
        }
    }

    #[test]
    fn an_error_behind_a_statement_that_was_done_leaves_its_outcome_unknown() {
        // The lock was taken, and KILL QUERY came before its row was shown; none was there to take.
        for (first, kind) in [
            (DONE_AND_MORE, FaultKind::Unknown),
            (b"\0\0\0\x0a\0\0\0", FaultKind::Unavailable),
        ] {
            done(async {
                let (client, mut server) = connected();
                let answers = async {
                    request(&mut server).await;
                    tell(&mut server, &[first, b"\xff\x25\x05#70100interrupted"]).await;
                    request(&mut server).await;
                    tell(&mut server, &[DONE]).await;
                };
                let asked = async { (client.ask("x", None).await, client.ask("y", None).await) };
                let ((asked, next), ()) = tokio::join!(asked, answers);
                assert_eq!(asked.unwrap_err().kind, kind);
                assert!(next.is_ok());
            });
        }
    }

    #[test]
    fn cells_without_a_value_take_no_more_memory_than_an_answer_may() {
        done(async {
            let (client, mut server) = connected();
            let answers = async {
                request(&mut server).await;
                tell(&mut server, &[b"\x40"]).await;
                tell(&mut server, &[&b"any"[..]; 64]).await;
                let end = b"\xfe\0\0\x02\0";
                tell(&mut server, &[end]).await;
                // 410 KB on the wire, and 9 MB in memory.
                for _ in 0..6000 {
                    let _ = server.write_all(&packet(1, &[0xfb; 64])).await;
                }
                let _ = server.write_all(&packet(1, end)).await;
            };
            let (asked, ()) = tokio::join!(client.ask("x", None), answers);
            assert_eq!(asked.unwrap_err().kind, FaultKind::Unfit);
            assert!(client.is_closed());
        });
    }

    #[test]
    fn statements_take_no_more_memory_than_an_answer_may() {
        done(async {
            let (client, mut server) = connected();
            let answers = async {
                request(&mut server).await;
                // 2.8 MB on the wire, and 8 MB in memory.
                for _ in 0..250_000 {
                    let _ = server.write_all(&packet(1, DONE_AND_MORE)).await;
                }
                let _ = server.write_all(&packet(1, DONE)).await;
            };
            let (asked, ()) = tokio::join!(client.ask("x", None), answers);
            assert_eq!(asked.unwrap_err().kind, FaultKind::Unfit);
        });
    }

    #[test]
    fn a_server_that_says_what_no_server_says_is_left() {
        let end = &b"\xfe\0\0\x02\0"[..];
        for said in [
            // A file of ours; a thousand columns, and none; rows without an end of the columns; no text
            // at all.
            &[&b"\xfb/etc/passwd"[..]][..],
            &[b"\xfc\xe8\x03"],
            &[b"\xfc\0\0", end, end],
            &[b"\x01", b"any", b"\x01a"],
            &[b""],
        ] {
            done(async {
                let (client, mut server) = connected();
                let answers = async {
                    request(&mut server).await;
                    tell(&mut server, said).await;
                };
                let (asked, ()) = tokio::join!(client.ask("x", None), answers);
                assert_eq!(asked.unwrap_err().kind, FaultKind::Unfit, "{said:?}");
                let mut rest = Vec::new();
                let ended = server.read_to_end(&mut rest);
                tokio::time::timeout(Duration::from_secs(9), ended)
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(rest, b"");
            });
        }
    }

    #[test]
    fn a_session_that_the_server_ends_is_noticed_without_a_request() {
        done(async {
            let (client, mut server) = connected();
            tell(
                &mut server,
                &[b"\xff\xbf\x0f#HY000The client was disconnected"],
            )
            .await;
            while !client.is_closed() {
                tokio::task::yield_now().await;
            }
            let asked = client.ask("x", None).await;
            assert_eq!(asked.unwrap_err().kind, FaultKind::Unknown);
        });
    }

    /// No right helps then: it would be given to a user that the server does not take rlock for.
    #[test]
    fn a_user_without_a_name_is_no_missing_right() {
        let message = "Access denied for user ''@'localhost' to database 'app'".to_owned();
        let fault = of_server(&ServerError {
            code: 1044,
            message,
        });
        assert_eq!(fault.denied, Some(Denied::Login));
    }

    #[test]
    fn each_error_of_a_server_has_its_kind() {
        use FaultKind::{Refused, Unavailable, Unfit, Unknown};
        for (codes, kind) in [
            (&[1044, 1045, 1142, 1143, 1227, 1698, 3118][..], Refused),
            (&[1049, 1054, 1146, 1267, 1298, 1064, 3854], Unfit),
            (
                &[1020, 1040, 1047, 1114, 1203, 1205, 1213, 1290, 1836, 3100],
                Unavailable,
            ),
            (&[1053, 1158, 1180, 1927, 4031], Unknown),
        ] {
            for code in codes {
                let message = "told".to_owned();
                let error = ServerError {
                    code: *code,
                    message,
                };
                assert_eq!(of_server(&error).kind, kind, "{code}");
            }
        }
    }
}
