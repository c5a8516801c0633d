//! The simulated PostgreSQL of `simulation/` against a real one. The shipped client asks the simulated
//! server, which is told the real server's time. The real one is asked the same text, and must answer
//! the same, and have the same rows afterwards.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rlock::lock::details::{Breaker, Details};
use rlock::lock::fence::{self, Fence};
use rlock::lock::key::Key;
use rlock::lock::last::{Note, Run};
use rlock::lock::messages::ForeignValue;
use rlock::lock::remains::{Parking, Remains};
use rlock::lock::schedule::{Schedule, ScheduleOptions, Term};
use rlock::lock::token::Token;
use rlock::store::address::Address;
use rlock::store::net::dial::{HostDial, Stream};
use rlock::store::sql::SqlStore;
use rlock::store::sql::session::SqlAccess;
use rlock::store::{Claim, Look, Node, QueueAction, Renewal, Store, TakeAway, Vote};
use simulation::database::connection::{Incoming, Message, answered, greeting};
use simulation::database::greeted;
use simulation::database::rows::{Answer, Context, Effect, Row, Rows, execute};
use simulation::database::syntax::statements;
use simulation::database::value::SqlError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::support::{Database as _, Postgres};

/// Number of requests of the client, and of statements by hand.
const REQUESTS: usize = 1_000;
const BY_HAND: usize = 1_000;

/// Longest time in µs from the begin of a real transaction to one of its statements.
const LATEST: i64 = 5_000_000;

const LIMIT: Duration = Duration::from_secs(20);

/// Shows the time of a transaction, behind its other statements.
const TIME: &str = "SELECT (extract(epoch from CURRENT_TIMESTAMP) * 1000000)::bigint";

/// Shows all rows.
const ALL: &str = "SELECT name, (extract(epoch from lock_until) * 1000000)::bigint, \
     (extract(epoch from locked_at) * 1000000)::bigint, locked_by FROM shedlock ORDER BY name COLLATE \"C\"";

/// A session of a real server.
async fn connect(server: &Postgres) -> Client {
    let socket = format!("{}/.s.PGSQL.{}", server.socket().display(), server.port());
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let mut config = Config::new();
    config.user("rlock").dbname("rlock");
    let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Asks a real server. Returns the answer to each statement, or the code of the error.
async fn ask(real: &Client, text: &str) -> Result<Vec<Answer>, String> {
    let told = real.simple_query(text).await.map_err(|error| {
        let error = error.as_db_error().expect("an error of the server");
        error.code().code().to_owned()
    })?;
    let (mut answers, mut rows, mut columns) = (Vec::new(), Vec::new(), None);
    for message in told {
        match message {
            SimpleQueryMessage::RowDescription(description) => columns = Some(description.len()),
            SimpleQueryMessage::Row(row) => {
                let cell = |number| row.get(number).map(str::to_owned);
                rows.push((0..row.len()).map(cell).collect::<Vec<_>>());
            }
            SimpleQueryMessage::CommandComplete(count) => answers.push(match columns.take() {
                Some(columns) => Answer::Rows(columns, std::mem::take(&mut rows)),
                None => Answer::Changed(count),
            }),
            _ => {}
        }
    }
    Ok(answers)
}

/// A simulated server beside a real one.
struct Pair {
    real: Client,
    rows: Rows,
    /// Number of messages that both were asked, and of those that were refused.
    asked: usize,
    refused: usize,
}

impl Pair {
    /// Asks both, and returns their answer.
    async fn ask(&mut self, text: &str) -> Result<Vec<Answer>, SqlError> {
        self.asked += 1;
        let whole = format!("{};\n{TIME}", text.trim_end_matches(';'));
        let mut theirs = ask(&self.real, &whole).await;
        let now = theirs.as_mut().ok().and_then(Vec::pop);
        let now = now.map_or(0, |time| cell(&time, 0).parse().expect("a time"));
        let is_greeting = text.contains("pg_attribute");
        let process = match &theirs {
            Ok(answers) if is_greeting => cell(&answers[0], 1).parse().expect("a process"),
            _ => 0,
        };
        let there = self.real_rows().await;
        let context = |clock| Context {
            now,
            clock,
            process,
            is_read_only: false,
            lock_timeout: Duration::ZERO,
            synchronous_commit: "on".to_owned(),
        };
        let before = self.rows.clone();
        let mut ours = if is_greeting {
            Ok(vec![greeted(&context(now))])
        } else {
            self.execute(text, &mut context(now))
        };
        // A renewal writes the time at which the real server came to it.
        let late = there
            .iter()
            .filter_map(|row| Some(row.until - self.rows.get(&row.name)?.until));
        let late = late.max().unwrap_or_default();
        if text.contains("clock_timestamp") && (1..LATEST).contains(&late) {
            self.rows = before;
            ours = self.execute(text, &mut context(now + late));
        }
        let shown = |answers: &[Answer]| answers.iter().map(plain).collect::<Vec<_>>();
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => assert_eq!(shown(ours), shown(theirs), "{text}"),
            (Err(SqlError(code, _)), Err(other)) => {
                self.refused += 1;
                assert_eq!(code, other, "{text}");
            }
            _ => panic!("{text}: {ours:?}, and really {theirs:?}"),
        }
        let rows: Vec<Row> = self.rows.values().cloned().collect();
        assert_eq!(rows, there, "{text}");
        ours
    }

    fn execute(&mut self, text: &str, context: &mut Context) -> Result<Vec<Answer>, SqlError> {
        let mut rows = self.rows.clone();
        let mut answers = Vec::new();
        for statement in statements(text)? {
            match execute(&statement, &rows, context, |_| false)? {
                Effect::Done { answer, writes, .. } => {
                    rows.extend(writes.into_iter().map(|row| (row.name.clone(), row)));
                    answers.push(answer);
                }
                Effect::Blocked(name) => panic!("{name} is locked"),
            }
        }
        self.rows = rows;
        Ok(answers)
    }

    async fn real_rows(&self) -> Vec<Row> {
        let there = ask(&self.real, ALL).await.unwrap();
        let Some(Answer::Rows(_, there)) = there.first() else {
            panic!("no rows")
        };
        let time = |cell: &Option<String>| cell.as_ref().unwrap().parse().unwrap();
        let row = |cells: &Vec<Option<String>>| Row {
            name: cells[0].clone().unwrap(),
            until: time(&cells[1]),
            at: time(&cells[2]),
            by: cells[3].clone().unwrap(),
        };
        there.iter().map(row).collect()
    }
}

/// An answer without what the client is not told: whether a row was added or changed. The columns of
/// the table may be in any order, and so may rows.
fn plain(answer: &Answer) -> Answer {
    let sorted = |text: &String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    match answer {
        Answer::Added(count) | Answer::Changed(count) => Answer::Changed(*count),
        Answer::Rows(count, rows) => {
            let cells = |row: &Vec<Option<String>>| {
                row.iter().map(|cell| cell.as_ref().map(sorted)).collect()
            };
            let mut rows: Vec<Vec<Option<String>>> = rows.iter().map(cells).collect();
            rows.sort_unstable();
            Answer::Rows(*count, rows)
        }
    }
}

fn cell(answer: &Answer, number: usize) -> &str {
    match answer {
        Answer::Rows(_, rows) => rows[0][number].as_deref().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Serves one connection of the client.
async fn serve(mut stream: DuplexStream, pair: Arc<Mutex<Pair>>) {
    let (mut incoming, mut buffer) = (Incoming::default(), vec![0; 1 << 16]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        for message in incoming.receive(&buffer[..count]) {
            let answer = match message {
                // The process is another one: a session without a line.
                Message::Startup => greeting(0),
                Message::Query(text) => match pair.lock().await.ask(&text).await {
                    Ok(answers) => answered(&answers, None),
                    Err(error) => answered(&[], Some(&error)),
                },
                Message::Terminate => return,
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the shipped client of both servers.
fn store(pair: &Arc<Mutex<Pair>>) -> SqlStore {
    let Ok(Address::Sql(address)) = Address::parse("postgresql://rlock@host/rlock") else {
        panic!("an address")
    };
    let access = SqlAccess {
        hosts: vec![(address.hosts[0].clone(), None)],
        user: "rlock".to_owned(),
        database: "rlock".to_owned(),
        trust: None,
        renew: None,
    };
    let pair = Arc::clone(pair);
    let dial: HostDial = Arc::new(move |_, _| {
        let (ours, theirs) = duplex(1 << 16);
        tokio::spawn(serve(theirs, Arc::clone(&pair)));
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
    });
    SqlStore::over(&address, access, dial, LIMIT)
}

fn term(ttl: Duration) -> Term {
    Schedule::new(ScheduleOptions::new(ttl)).unwrap().term()
}

fn claim(random: &mut fastrand::Rng) -> Claim {
    let ttl = Duration::from_millis([1_000, 2_000, 600_000][random.usize(..3)]);
    let note = [None, Some("it's \\ 100 % ünï".to_owned())][random.usize(..2)].clone();
    let details = Details {
        host: "web1".to_owned(),
        user: "o'neil".to_owned(),
        cmd: "backup".to_owned(),
        pid: random.bool().then_some(7),
        kept: random.bool(),
        ttl: u64::try_from(ttl.as_millis()).unwrap(),
        n: 1,
        note,
        ..Details::default()
    };
    Claim {
        token: Token::fresh(),
        details,
        fence_hint: fence::hint(SystemTime::now()),
        term: term(ttl),
        guarded: None,
        ticket: None,
        index: 0,
        is_exact: false,
        outer: Vec::new(),
    }
}

/// A lock, and the last claim to it.
struct Subject {
    key: &'static str,
    node: Box<dyn Node>,
    claim: Claim,
    fence: Fence,
    told: Option<u64>,
}

impl Subject {
    /// Makes one request. Returns whether the lock was given.
    async fn request(&mut self, random: &mut fastrand::Rng) -> bool {
        let (claim, fence, token) = (&self.claim, self.fence, self.claim.token);
        let run = Run {
            host: "web1".to_owned(),
            cmd: "backup".to_owned(),
            start: 1,
            end: 2,
            exit: Some(random.u8(..3)),
            ..Run::default()
        };
        match random.u8(..14) {
            0..4 => {
                self.claim = claim_like(random, claim);
                let answer = self.node.acquire(&self.claim).await;
                if let Vote::Granted { fence, .. } = answer.vote {
                    self.fence = fence;
                    return true;
                }
            }
            4 | 5 => {
                let renewal = self.node.keep(&claim.renewal(fence)).await;
                if let Renewal::NotOurs(_, told, _) = renewal {
                    self.told = told;
                }
            }
            6 => drop(self.node.keep(&claim.healing(fence, self.told)).await),
            7..9 => {
                let left = Duration::from_millis(random.u64(..2_000));
                let parked = random.bool().then(|| Parking {
                    left,
                    span: left,
                    parks_tombstone: random.bool(),
                });
                let remains = Remains {
                    run: random.bool().then(|| run.clone()),
                    once: random.bool().then_some(left),
                    parked,
                    ..Remains::default()
                };
                let release = claim.release_leaving(QueueAction::None, fence, None, &remains);
                drop(self.node.release(&release).await);
            }
            9 => drop(self.node.release(&claim.release(QueueAction::None)).await),
            10 => {
                let by = Breaker {
                    name: "root".to_owned(),
                    reason: random.bool().then(|| "why not".to_owned()),
                };
                let tombstone = claim.details.tombstone(token, by);
                let how = TakeAway::Tombstone(token, tombstone);
                self.node.take_away(how).await.unwrap();
            }
            11 => {
                let note = Note::of(run, fence, token);
                let note = random.bool().then(|| Box::new(note));
                let how = TakeAway::Delete(token, fence.get(), note);
                self.node.take_away(how).await.unwrap();
            }
            12 => {
                let foreign = ForeignValue(vec![b"web'2".to_vec()]);
                let how = TakeAway::DeleteForeign(foreign);
                self.node.take_away(how).await.unwrap();
                self.node.take_away(TakeAway::Forget(token)).await.unwrap();
            }
            _ => drop(self.node.look(Look::default()).await.unwrap()),
        }
        false
    }

    /// Returns the statement by which another client takes or frees the lock.
    fn foreign(&self, random: &mut fastrand::Rng) -> String {
        let (key, now) = (self.key, "timezone('utc', CURRENT_TIMESTAMP)");
        let end = ["interval '1 second'", "interval '10 minutes'"][random.usize(..2)];
        [
            format!("UPDATE shedlock SET lock_until = {now} + {end}, locked_at = {now}, locked_by = 'web''2' WHERE name = '{key}' AND lock_until <= {now}"),
            format!("UPDATE shedlock SET lock_until = {now} WHERE name = '{key}'"),
            format!("UPDATE shedlock SET locked_at = '2111-12-31 23:59:59.5' WHERE name = '{key}' AND lock_until <= {now}"),
            format!("INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('{key}', {now} + {end}, {now}, 'web''2') ON CONFLICT DO NOTHING"),
        ][random.usize(..4)].clone()
    }
}

/// Returns a new claim, or the last one again.
fn claim_like(random: &mut fastrand::Rng, last: &Claim) -> Claim {
    if random.u8(..5) == 0 {
        last.clone()
    } else {
        claim(random)
    }
}

/// Returns a condition on a row.
fn condition(random: &mut fastrand::Rng, depth: u8) -> String {
    let now = "timezone('utc', CURRENT_TIMESTAMP)";
    if depth == 0 {
        let text = ["'rlock held %'", "'%2'", "'w_b%'", "E'web\\\\_%'", "''"];
        let time = [
            "lock_until",
            "locked_at",
            now,
            "'2000-02-29'",
            "'2112-01-01'",
        ];
        let numbers = [0; 2].map(|_| random.i64(-5..5));
        return match random.u8(..4) {
            0 => format!("locked_by LIKE {}", text[random.usize(..5)]),
            1 => format!("{} <= {}", time[random.usize(..3)], time[random.usize(..5)]),
            2 => format!("name = {}", ["'a'", "E'b'", "'it''s'"][random.usize(..3)]),
            _ => format!("{} < {}", numbers[0], numbers[1]),
        };
    }
    let [one, two, three] = [0; 3].map(|_| condition(random, depth - 1));
    match random.u8(..4) {
        0 => format!("({one} OR {two})"),
        1 => format!("NOT {one}"),
        2 => format!("NOT ({one} AND {two})"),
        _ => format!("{one} AND {two} OR {three}"),
    }
}

/// Returns a value of a row.
fn shown(random: &mut fastrand::Rng) -> String {
    let now = "timezone('utc', CURRENT_TIMESTAMP)";
    let column = ["lock_until", "locked_at", "'infinity'::timestamp"][random.usize(..3)];
    let micros = random.u64(..10_000_000_000);
    let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
    let span = format!("make_interval(secs => {whole}) + make_interval(secs => 0.{part:06})");
    let numerator = random.i64(-40..40);
    [
        format!("(extract(epoch from (LEAST({column}, {now} + interval '1000 years') - {now})) * 1000000)::bigint, {span} <= {span}"),
        format!("(extract(epoch from (GREATEST(LEAST({column}, '9999-01-01'), '0001-01-01'))) * 1000000)::bigint"),
        format!("GREATEST({column}, {now} + {span})"),
        format!("LEAST({column}, timestamp 'epoch' + {span}, '2024-02-29') + interval '{} years'", random.u8(..9)),
        format!("'x' || substr(locked_by, {}), (0.1 * {numerator} - 1)::bigint", random.u8(1..20)),
        format!("locked_at - {now}"),
        "EXISTS (SELECT 1 FROM shedlock WHERE name = 'a' AND locked_by LIKE '%2'), NULL, CASE name WHEN 'a' THEN 1 ELSE 2 END".to_owned(),
    ][random.usize(..7)].clone()
}

/// Returns a statement that no client of rlock sends.
fn by_hand(random: &mut fastrand::Rng) -> String {
    let depth = random.u8(..3);
    let condition = condition(random, depth);
    let now = "timezone('utc', CURRENT_TIMESTAMP)";
    let long = "x".repeat(random.usize(250..260));
    match random.u8(..8) {
        0..5 => {
            let shown = match shown(random) {
                // An interval is shown in words, which rlock does not ask for.
                shown if shown.ends_with(now) => format!("{shown} <= interval '1 minute'"),
                shown => shown,
            };
            format!("SELECT {shown} FROM shedlock WHERE {condition}")
        }
        5 => format!("UPDATE shedlock SET locked_by = '{long}' WHERE name = 'a'"),
        6 => format!(
            "INSERT INTO shedlock AS old (name, lock_until, locked_at, locked_by) SELECT 'b', {now}, {now}, 'web2' WHERE EXISTS (SELECT 1 FROM shedlock WHERE {condition}) \
             ON CONFLICT (name) DO UPDATE SET locked_at = EXCLUDED.locked_at, locked_by = old.locked_by || '!' WHERE old.locked_at < EXCLUDED.locked_at"
        ),
        _ => "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('it''s', '2000-01-01', '2000-01-01 10:00:00.25', 'x')".to_owned(),
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test)
}

#[test]
fn every_statement_is_answered_as_by_a_real_postgresql() {
    let Some(server) = Postgres::start() else {
        return;
    };
    run(async {
        let pair = Pair {
            real: connect(&server).await,
            rows: Rows::new(),
            asked: 0,
            refused: 0,
        };
        let pair = Arc::new(Mutex::new(pair));
        let mut random = fastrand::Rng::with_seed(7);
        let store = store(&pair);
        let subject = |key, random: &mut fastrand::Rng| Subject {
            key,
            node: store.open(&Key::new("", key).unwrap()),
            claim: claim(random),
            fence: Fence::FIRST,
            told: None,
        };
        let mut subjects = ["a", "b"].map(|key| subject(key, &mut random));
        let mut grants = 0;
        for _ in 0..REQUESTS {
            let subject = &mut subjects[random.usize(..2)];
            if random.u8(..8) == 0 {
                let text = subject.foreign(&mut random);
                pair.lock().await.ask(&text).await.unwrap();
            } else {
                grants += usize::from(subject.request(&mut random).await);
            }
        }
        assert!(grants > REQUESTS / 40, "{grants} grants");
        for _ in 0..BY_HAND {
            let text = by_hand(&mut random);
            let _ = pair.lock().await.ask(&text).await;
        }
        let Pair { asked, refused, .. } = &*pair.lock().await;
        assert!(
            *asked > REQUESTS + BY_HAND && *refused > 0,
            "{asked}, {refused}"
        );
    });
}

/// The rules of `simulation::database::transaction` for a row that another transaction has locked.
#[test]
fn a_statement_that_waits_for_a_row_sees_it_anew_at_an_old_time() {
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql("INSERT INTO shedlock VALUES ('job', '2000-01-01', '2000-01-01', 'first')");
    run(async {
        let (holder, waiter) = (connect(&server).await, connect(&server).await);
        let ask = async |client: &Client, text: &str| {
            let answers = ask(client, text).await;
            answers.map(|mut answers| answers.pop().expect("an answer"))
        };
        let begin = "BEGIN; UPDATE shedlock SET locked_by = 'second' WHERE name = 'job'";
        for (condition, ends, changed) in [
            // It sees what was committed, and what was not.
            ("locked_by = 'first'", "COMMIT", 0),
            ("locked_by = 'second'", "ROLLBACK", 1),
            // It looks at the clock when it looks at the row.
            (
                "clock_timestamp() < CURRENT_TIMESTAMP + interval '0.1 s'",
                "COMMIT",
                0,
            ),
            // The time of its transaction is that of its begin.
            ("true", "COMMIT", 1),
        ] {
            ask(&holder, begin).await.unwrap();
            let text = format!(
                "UPDATE shedlock SET locked_by = 'third' WHERE name = 'job' AND {condition};\n\
                 SELECT clock_timestamp() - CURRENT_TIMESTAMP > interval '0.2 s', locked_by FROM shedlock"
            );
            let waits = async {
                let answers = super::simulated_row::ask(&waiter, &text).await.unwrap();
                (answers[0].clone(), cell(&answers[1], 0) == "t")
            };
            let frees = async {
                let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
                while cell(&ask(&holder, waiting).await.unwrap(), 0) == "0" {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // Its time grows old.
                tokio::time::sleep(Duration::from_millis(250)).await;
                ask(&holder, ends).await.unwrap();
            };
            let ((count, is_old), ()) = tokio::join!(waits, frees);
            assert_eq!(count, Answer::Changed(changed), "{condition}");
            assert!(
                is_old || condition.starts_with("locked_by = 'second'"),
                "{condition}"
            );
        }
        // A row that does not fit is not waited for, and the wait has an end.
        ask(&holder, begin).await.unwrap();
        let other = "UPDATE shedlock SET locked_by = 'x' WHERE name = 'job' AND locked_by = 'none'";
        assert_eq!(ask(&waiter, other).await, Ok(Answer::Changed(0)));
        let limited =
            "SELECT set_config('lock_timeout', '50ms', true); UPDATE shedlock SET locked_by = 'x'";
        assert_eq!(ask(&waiter, limited).await, Err("55P03".to_owned()));
    });
}
