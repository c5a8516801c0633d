//! The statements, and what one lock makes of the answers of a scripted server to them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use super::super::SqlStore;
use super::packet::{packet, read};
use super::*;
use crate::clock;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::last::{Note, Run};
use crate::lock::queue::Waiter;
use crate::lock::schedule::{Schedule, ScheduleOptions, Term};
use crate::lock::token::Token;
use crate::store::address::Address;
use crate::store::net::dial::HostDial;
use crate::store::{
    Claim, Fault, FaultKind, Keep, Node, Release, ReleaseReply, Renewal, Store, Vote,
};

const TTL: Duration = Duration::from_secs(30);

/// Time of an exchange, which no test uses up.
const LIMIT: Duration = Duration::from_secs(20);

/// Time that the server takes for each answer.
const WORK: Duration = Duration::from_millis(20);

/// The request that ends a session.
const QUIT: u8 = 1;

/// The time that the server tells, and the begin of its rows, in unix µs.
const TIME: u64 = 1_800_000_000_000_000;
const BEGIN: u64 = 1_700_000_000_000_000;

/// The rest of a row beside its name: the holder, and the µs that are left.
type Told = (String, i64);

/// An answer of the server.
#[derive(Clone, Debug)]
enum Said {
    /// The number of rows that each update was about, and the row that is shown.
    Row(&'static [u8], Option<Told>),
    /// The same, of a lock that was taken just now.
    New(&'static [u8], Option<Told>),
    /// The same as the first, which comes only with the next answer.
    Late(&'static [u8], Option<Told>),
    /// The first place in line.
    Place,
    /// The same updates, and an error behind them.
    Error(&'static [u8], u16),
}

/// The way in which a server meets a client.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Door {
    Open,
    /// A pooler stands before it.
    Pooled,
    ReadOnly,
    /// It tells this error.
    Closed(u16),
    /// The same, to the first request.
    Refuses(u16),
    /// No server is there.
    Away,
    /// It says nothing.
    Silent,
}

/// A request: the number of its connection, its text, and when it was heard.
#[derive(Debug)]
struct Heard {
    number: usize,
    text: String,
    at: Instant,
}

/// A server that gives one answer after the other.
#[derive(Default)]
struct Server {
    script: Mutex<VecDeque<Said>>,
    /// The requests, but for those of a holder to the line.
    heard: Mutex<Vec<Heard>>,
    /// The hosts that were dialed.
    dialed: Mutex<Vec<String>>,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn says(&self, said: impl IntoIterator<Item = Said>) {
        held(&self.script).extend(said);
    }

    /// Returns the requests that it has heard since the last time.
    fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut held(&self.heard))
    }

    /// Waits until it has heard so many.
    async fn hears(&self, number: usize) {
        let limit = clock::now() + LIMIT;
        while held(&self.heard).len() < number {
            assert!(
                clock::now() < limit,
                "{number} requests: {:?}",
                self.heard()
            );
            tokio::time::sleep(WORK / 20).await;
        }
    }
}

fn done(count: u8, has_more: bool) -> Vec<u8> {
    let status = if has_more { 0x0a } else { 2 };
    packet(1, &[0, count, 0, status, 0, 0, 0])
}

fn error(number: u8, code: u16) -> Vec<u8> {
    let [low, high] = code.to_le_bytes();
    packet(number, &[&[0xff, low, high], &b"#08004told"[..]].concat())
}

fn rows(columns: u8, rows: &[Vec<String>], has_more: bool) -> Vec<u8> {
    let end = |status| packet(1, &[0xfe, 0, 0, status, 0]);
    let mut bytes = packet(1, &[columns]);
    (0..columns).for_each(|_| bytes.extend(packet(1, b"any")));
    bytes.extend(end(2));
    for row in rows {
        let cell = |cell: &String| [&[u8::try_from(cell.len()).unwrap()], cell.as_bytes()].concat();
        bytes.extend(packet(1, &row.iter().flat_map(cell).collect::<Vec<_>>()));
    }
    bytes.extend(end(if has_more { 0x0a } else { 2 }));
    bytes
}

/// The begin of the answer to a request: the time is noted, and rows are updated. One that updates none
/// only looks.
fn updated(counts: &[u8]) -> Vec<u8> {
    let noted = counts.first().map(|_| done(0, true));
    let updates = counts.iter().map(|count| done(*count, true));
    noted.into_iter().chain(updates).flatten().collect()
}

/// The same, and the row of a lock that was taken at `begin`.
fn shown(counts: &[u8], row: Option<&Told>, begin: u64) -> Vec<u8> {
    let mut bytes = updated(counts);
    let row = row.map(|(by, left)| {
        let (begin, now) = (begin.to_string(), TIME.to_string());
        vec!["job".to_owned(), by.clone(), begin, left.to_string(), now]
    });
    bytes.extend(rows(5, row.as_slice(), false));
    bytes
}

/// The answer to the first request of a session.
fn greeted(door: Door) -> Vec<u8> {
    let text = |cells: &[&str]| {
        cells
            .iter()
            .map(|&cell| cell.to_owned())
            .collect::<Vec<_>>()
    };
    let process = if door == Door::Pooled { "8" } else { "7" };
    let read_only = if door == Door::ReadOnly { "ON" } else { "OFF" };
    let columns = [
        ["name", "varchar(64)", ""],
        ["lock_until", "datetime(3)", ""],
        ["locked_at", "datetime(3)", ""],
        ["locked_by", "varchar(255)", ""],
    ];
    [
        done(0, true),
        rows(1, &[], true),
        rows(3, &[text(&[&TIME.to_string(), process, "InnoDB"])], true),
        rows(2, &[text(&["read_only", read_only])], true),
        rows(3, &columns.map(|column| text(&column)), true),
        rows(1, &[text(&["PRIMARY"])], false),
    ]
    .concat()
}

/// Serves one connection, until the client has left.
async fn serve(server: Arc<Server>, mut stream: DuplexStream, number: usize, door: Door) {
    let mut room = usize::MAX;
    if door == Door::Silent {
        let _ = read(&mut stream, &mut room).await;
        return;
    }
    if let Door::Closed(code) = door {
        let _ = stream.write_all(&error(0, code)).await;
        return;
    }
    let hello = [
        &b"\x0a10.11.6\0\x07\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\xfe\xf7\x2d\x02\0\xff\x81\x15"
            [..],
        &[0; 10],
        b"\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\0mysql_native_password\0",
    ];
    let _ = stream.write_all(&packet(0, &hello.concat())).await;
    let mut late = Vec::new();
    let mut is_first = true;
    while let Ok((sent, body)) = read(&mut stream, &mut room).await {
        if body == [QUIT] {
            return;
        }
        let text = String::from_utf8_lossy(body.get(1..).unwrap_or_default()).into_owned();
        let answer = if sent == 1 {
            done(0, false)
        } else if std::mem::take(&mut is_first) {
            match door {
                Door::Refuses(code) => error(1, code),
                door => greeted(door),
            }
        } else if text.ends_with(", 0)") || text.contains("RELEASE_LOCK") {
            rows(1, &[vec!["0".to_owned()]], false)
        } else {
            let at = clock::now();
            held(&server.heard).push(Heard { number, text, at });
            let said = held(&server.script).pop_front();
            tokio::time::sleep(WORK).await;
            match said {
                Some(Said::Row(counts, row)) => [
                    std::mem::take(&mut late),
                    shown(counts, row.as_ref(), BEGIN),
                ]
                .concat(),
                Some(Said::New(counts, row)) => shown(counts, row.as_ref(), TIME),
                Some(Said::Error(counts, code)) => [updated(counts), error(1, code)].concat(),
                Some(Said::Place) => rows(1, &[vec!["1".to_owned()]], false),
                Some(Said::Late(counts, row)) => {
                    late.extend(shown(counts, row.as_ref(), BEGIN));
                    continue;
                }
                None => continue,
            }
        };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Lets `test` use the lock `job` at servers `h0`, `h1` and so on, which have these doors.
fn at<T>(doors: &[Door], limit: Duration, test: impl AsyncFnOnce(&dyn Node, &Server) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = Arc::new(Server::default());
    let hosts: Vec<String> = (0..doors.len())
        .map(|number| format!("h{number}"))
        .collect();
    let Ok(Address::Sql(address)) =
        Address::parse(&format!("mysql://rlock@{}/app", hosts.join(",")))
    else {
        panic!("an address")
    };
    let tcp = |host: &String| Endpoint::Tcp {
        host: host.clone(),
        port: 3306,
        tls: false,
    };
    let access = SqlAccess {
        hosts: hosts.iter().map(|host| (tcp(host), None)).collect(),
        user: "rlock".to_owned(),
        database: "app".to_owned(),
        trust: None,
        renew: None,
    };
    let (ours, doors) = (Arc::clone(&server), doors.to_vec());
    let dial: HostDial = Arc::new(move |endpoint, _| {
        let Endpoint::Tcp { host, .. } = endpoint else {
            panic!("a host")
        };
        let door = doors[host[1..].parse::<usize>().unwrap()];
        let number = {
            let mut dialed = held(&ours.dialed);
            dialed.push(host);
            dialed.len()
        };
        let (client, stream) = duplex(1 << 16);
        tokio::spawn(serve(Arc::clone(&ours), stream, number, door));
        Box::pin(async move {
            match door {
                Door::Away => Err(Fault::new(FaultKind::Unavailable, "cannot connect")),
                _ => Ok(Box::new(client) as Box<dyn Stream>),
            }
        })
    });
    let store = SqlStore::over(&address, access, dial, limit);
    let node = store.open(&Key::new("", "job").unwrap());
    runtime.block_on(async { test(&*node, &server).await })
}

/// The same at one server, which is open.
fn with<T>(test: impl AsyncFnOnce(&dyn Node, &Server) -> T) -> T {
    at(&[Door::Open], LIMIT, test)
}

fn term(ttl: Duration) -> Term {
    let options = ScheduleOptions {
        drift: 0.0,
        ..ScheduleOptions::new(ttl)
    };
    Schedule::new(options).unwrap().term()
}

fn claim(waits: bool) -> Claim {
    Claim::example(term(TTL), waits.then(|| Waiter::example(1)))
}

/// A row in `state` as the token's, whose time has `left` to go in seconds.
#[expect(clippy::unnecessary_wraps, reason = "a row may be missing")]
fn row(state: &str, token: Token, left: i64) -> Option<Told> {
    let by = format!("rlock {state} {token} 30000 1 deploy@web1 backup.sh");
    Some((by, left * 1_000_000))
}

/// The row of a held lock that has all of its time.
fn whole(token: Token) -> Option<Told> {
    row("held", token, 30)
}

/// Takes the lock.
async fn taken(node: &dyn Node, server: &Server, token: &Claim) {
    server.says([Said::Row(&[1], whole(token.token))]);
    let vote = node.acquire(token).await.vote;
    assert!(matches!(vote, Vote::Granted { .. }), "{vote:?}");
    server.hears(1).await;
    server.heard();
}

fn renewal(claim: &Claim) -> Keep {
    claim.renewal(Fence::new(BEGIN).unwrap())
}

#[test]
fn a_grant_counts_from_before_its_request_and_no_longer_than_its_row() {
    for left in [30, 27] {
        with(async |node, server| {
            let claim = claim(false);
            server.says([Said::Row(&[1], row("held", claim.token, left))]);
            let vote = node.acquire(&claim).await.vote;
            let Vote::Granted { until, fence, .. } = vote else {
                panic!("{vote:?}")
            };
            let asked = server.heard()[0].at;
            assert!(until <= asked + Duration::from_secs(left.unsigned_abs()));
            assert_eq!(fence.get(), BEGIN);
        });
    }
}

#[test]
fn a_renewal_counts_from_before_its_request_and_no_longer_than_its_row() {
    for left in [30, 27] {
        with(async |node, server| {
            let claim = claim(false);
            taken(node, server, &claim).await;
            server.says([Said::Row(&[1], row("held", claim.token, left))]);
            let renewed = node.keep(&renewal(&claim)).await;
            let Renewal::Renewed(until, counter) = renewed else {
                panic!("{renewed:?}")
            };
            let asked = server.heard()[0].at;
            assert!(until <= asked + Duration::from_secs(left.unsigned_abs()));
            assert_eq!(counter, Some(BEGIN));
        });
    }
}

#[test]
fn a_row_that_is_free_is_asked_for_three_times_and_no_grant() {
    with(async |node, server| {
        let claim = claim(false);
        let over = row("held", claim.token, -1);
        server.says([0, 1, 2].map(|_| Said::Row(&[1], over.clone())));
        let Vote::Failed(fault) = node.acquire(&claim).await.vote else {
            panic!("it is over")
        };
        assert_eq!(fault.kind, FaultKind::Unavailable);
        assert_eq!(server.heard().len(), 3);
    });
}

#[test]
fn a_lock_that_is_broken_between_its_grant_and_the_look_is_no_busy_lock() {
    with(async |node, server| {
        let claim = claim(false);
        server.says([Said::Row(&[1], row("dead", claim.token, 30))]);
        let Vote::Failed(fault) = node.acquire(&claim).await.vote else {
            panic!("it was broken")
        };
        assert_eq!(fault.kind, FaultKind::Unknown);
    });
}

#[test]
fn a_row_that_is_missing_is_added_once_and_asked_for_again() {
    for is_hidden in [false, true] {
        with(async |node, server| {
            let claim = claim(false);
            let last = if is_hidden { None } else { whole(claim.token) };
            server.says([
                Said::Row(&[0], None),
                Said::Row(&[], None),
                Said::Row(&[1], last),
            ]);
            let vote = node.acquire(&claim).await.vote;
            let heard = server.heard();
            assert!(heard[1].text.contains("INSERT INTO shedlock"), "{heard:?}");
            assert!(heard[2].text.contains("UPDATE shedlock"), "{heard:?}");
            match vote {
                Vote::Granted { .. } => assert!(!is_hidden),
                Vote::Failed(fault) => assert!(is_hidden && fault.kind == FaultKind::Unfit),
                vote => panic!("{vote:?}"),
            }
        });
    }
}

#[test]
fn a_row_of_another_lock_of_this_run_and_a_record_are_not_waited_for() {
    with(async |node, server| {
        let claim = claim(false);
        server.says([Said::Row(&[0], Some(("rlock last 5 -".to_owned(), -1)))]);
        let Vote::Failed(fault) = node.acquire(&claim).await.vote else {
            panic!("it is a record")
        };
        assert!(fault.why.contains("the record of another lock"), "{fault}");
    });
}

/// The server may run the request for the lock yet, so that the release goes behind it.
#[test]
fn a_release_goes_behind_a_request_that_was_not_answered() {
    for has_row in [true, false] {
        with(async |node, server| {
            let claim = claim(false);
            let row_there = has_row.then(|| whole(claim.token)).flatten();
            server.says([
                Said::Late(&[1], row_there),
                Said::Row(&[0, 1, 0], row("free", claim.token, -1)),
            ]);
            let attempt = node.acquire(&claim);
            server.hears(1).await;
            let reply = node.release(&Release::of(claim.token)).await;
            assert!(matches!(reply, ReleaseReply::Released), "{reply:?}");
            // One that goes on sends a request which nothing answers.
            let answer = clock::until(clock::now() + LIMIT / 4, attempt).await;
            let vote = answer.expect("an answer").vote;
            let heard = server.heard();
            let connections: Vec<usize> = heard.iter().map(|one| one.number).collect();
            // Without a row, none is added for an attempt that was given up.
            assert_eq!(connections, [1, 1], "{heard:?}");
            assert!(heard[1].text.contains("'rlock free '"), "{heard:?}");
            assert_eq!(matches!(vote, Vote::Granted { .. }), has_row, "{vote:?}");
        });
    }
}

/// The session is asked nothing else any more.
#[test]
fn a_release_goes_to_the_session_that_owes_an_answer() {
    at(&[Door::Open], WORK * 50, async |node, server| {
        let claim = claim(false);
        server.says([
            Said::Late(&[1], whole(claim.token)),
            Said::Row(&[0, 1, 0], row("free", claim.token, -1)),
        ]);
        let mut attempt = node.acquire(&claim);
        let limit = clock::now() + WORK * 60;
        assert!(clock::until(limit, &mut attempt).await.is_none());
        let reply = node.release(&Release::of(claim.token)).await;
        assert!(matches!(reply, ReleaseReply::Released), "{reply:?}");
        let heard = server.heard();
        let connections: Vec<usize> = heard.iter().map(|one| one.number).collect();
        assert_eq!(connections, [1, 1], "{heard:?}");
    });
}

/// It grants nothing any more, with a release behind it or without.
#[test]
fn a_request_is_waited_for_until_its_deadline_and_no_longer() {
    let limit = WORK * 100;
    let row_less = [Said::Row(&[0], None), Said::Row(&[], None)];
    for (door, said) in [
        (Door::Silent, &row_less[..0]),
        (Door::Open, &row_less[..0]),
        (Door::Open, &row_less),
    ] {
        at(&[door], limit, async |node, server| {
            let claim = claim(false);
            server.says(said.to_vec());
            let begun = clock::now();
            let mut attempt = node.acquire(&claim);
            if door == Door::Open {
                server.hears(said.len() + 1).await;
                node.settled(Duration::ZERO).await;
                let waited = clock::now().since(begun);
                assert!(waited >= limit, "{said:?}: {waited:?}");
            }
            let _ = clock::until(begun + limit, &mut attempt).await;
            let late = clock::now();
            drop(node.release(&Release::of(claim.token)));
            node.settled(WORK).await;
            let waited = clock::now().since(late);
            assert!(waited < limit / 2, "{door:?}, {said:?}: {waited:?}");
        });
    }
}

#[test]
fn a_look_that_is_not_answered_is_followed_by_one_over_another_session() {
    at(&[Door::Open], WORK * 10, async |node, server| {
        let claim = claim(false);
        taken(node, server, &claim).await;
        node.queue().unwrap().listen(claim.token);
        server.hears(2).await;
        let connections: Vec<usize> = server.heard().iter().map(|one| one.number).collect();
        assert_eq!(connections, [1, 2]);
    });
}

/// A server ends a session that is idle, as that of a client that is cut off is.
#[test]
fn the_session_of_a_place_in_line_is_not_idle() {
    with(async |node, server| {
        let claim = Claim::example(term(Duration::from_secs(9)), Some(Waiter::example(1)));
        server.says([
            Said::Row(&[0], row("held", Token::fresh(), 9)),
            Said::Place,
            Said::Place,
        ]);
        let answer = node.acquire(&claim).await;
        assert!(matches!(answer.vote, Vote::Blocked(_)), "{:?}", answer.vote);
        server.hears(3).await;
        let heard = server.heard();
        assert!(
            heard[1].text.starts_with("SET wait_timeout = 10 "),
            "{heard:?}"
        );
        assert_eq!((heard[2].number, &*heard[2].text), (2, "SELECT 1"));
        let passed = heard[2].at.since(heard[1].at);
        assert!(passed < Duration::from_secs(5), "{passed:?}");
    });
}

#[test]
fn a_renewal_reads_whose_the_row_is() {
    let (ours, other) = (claim(false), Token::fresh());
    let token = ours.token;
    let shedlock = Some(("host1".to_owned(), 1_000_000));
    for (row, told) in [
        (row("held", token, 1), "Renewed"),
        (row("dead", token, 1), "Broken"),
        (row("held", token, -1), "NotOurs(Missing"),
        (row("free", token, -1), "NotOurs(Missing"),
        (row("park", token, 1), "NotOurs(Missing"),
        (row("held", other, 1), "NotOurs(TakenOver"),
        (row("held", other, -1), "NotOurs(Missing"),
        (shedlock, "NotOurs(TakenOver"),
        (None, "NotOurs(Missing"),
    ] {
        with(async |node, server| {
            taken(node, server, &ours).await;
            server.says([Said::Row(&[1], row.clone())]);
            let renewed = format!("{:?}", node.keep(&renewal(&ours)).await);
            assert!(renewed.starts_with(told), "{row:?}: {renewed}");
        });
    }
}

/// Another client may have the row before it is shown, and a release that comes again finds what the
/// first one did.
#[test]
fn a_release_reads_what_it_has_done_and_else_whose_the_row_is() {
    let (ours, other) = (claim(false), Token::fresh());
    let token = ours.token;
    for (counts, row, told) in [
        (&[0, 1, 0][..], row("held", other, 1), "Released"),
        (&[1, 0, 0], row("park", token, 1), "Released"),
        (&[0, 0, 0], row("free", token, -1), "Released"),
        (&[0, 0, 0], row("held", other, 1), "NotOurs(TakenOver)"),
        (&[0, 0, 0], None, "NotOurs(Missing)"),
    ] {
        with(async |node, server| {
            taken(node, server, &ours).await;
            server.says([Said::Row(counts, row.clone())]);
            let reply = format!("{:?}", node.release(&Release::of(token)).await);
            assert_eq!(reply, told, "{row:?}");
        });
    }
}

/// Each statement is a transaction: the lock may be given back although the release fails behind that.
/// A lock that was taken before the first release was lost.
#[test]
fn a_release_that_comes_again_knows_a_lost_lock_by_its_age() {
    let ours = claim(false);
    let others = row("held", Token::fresh(), 1);
    let (done, nothing) = (&[1, 0, 1][..], &[][..]);
    for (failed, found, told) in [
        (done, Said::New(&[0; 4], others.clone()), "Gone"),
        (
            done,
            Said::Row(&[0; 4], others.clone()),
            "NotOurs(TakenOver)",
        ),
        // It comes again without the record.
        (nothing, Said::New(&[0; 3], others), "NotOurs(TakenOver)"),
    ] {
        with(async |node, server| {
            taken(node, server, &ours).await;
            server.says([Said::Error(failed, 1213), found.clone()]);
            let note = Note::of(Run::default(), Fence::new(BEGIN).unwrap(), ours.token);
            let release = Release {
                note: Some(note),
                ..Release::of(ours.token)
            };
            let reply = format!("{:?}", node.release(&release).await);
            assert!(reply.starts_with(told), "{found:?}: {reply}");
        });
    }
}

/// Another transaction may have locked the row.
#[test]
fn a_release_whose_success_may_be_written_later_gives_no_lock_back_without_it() {
    let ours = claim(false);
    for (code, told, requests) in [(1205, "Failed", 1), (1142, "Gone", 2)] {
        with(async |node, server| {
            taken(node, server, &ours).await;
            let free = row("free", ours.token, 0);
            server.says([Said::Error(&[], code), Said::Row(&[0, 1, 0], free)]);
            let note = Note::of(Run::default(), Fence::new(BEGIN).unwrap(), ours.token);
            let release = Release {
                note: Some(Note {
                    success: Some(TTL),
                    ..note
                }),
                ..Release::of(ours.token)
            };
            let reply = format!("{:?}", node.release(&release).await);
            assert!(reply.starts_with(told), "{code}: {reply}");
            assert_eq!(server.heard().len(), requests, "{code}");
        });
    }
}

#[test]
fn a_lock_that_is_gone_is_taken_again_unless_a_later_one_was_given() {
    let ours = claim(false);
    for (told, counts, told_back) in [
        (Some(BEGIN + 9), &[0, 1][..], "Healed"),
        (None, &[1, 0], "Renewed"),
    ] {
        with(async |node, server| {
            taken(node, server, &ours).await;
            server.says([Said::Row(counts, whole(ours.token))]);
            let keep = ours.healing(Fence::new(BEGIN).unwrap(), told);
            let renewed = format!("{:?}", node.keep(&keep).await);
            assert!(renewed.starts_with(told_back), "{renewed}");
            let heard = server.heard().remove(0).text;
            let newest = format!(" <= {} AND ", told.unwrap_or(BEGIN));
            assert!(heard.contains(&newest), "{heard}");
        });
    }
}

#[test]
fn the_next_host_is_asked_if_one_is_away_and_not_if_it_refuses() {
    for (door, hosts) in [
        (Door::Open, 1),
        (Door::Away, 2),
        (Door::ReadOnly, 2),
        (Door::Closed(1053), 2),
        (Door::Closed(1290), 2),
        (Door::Closed(1040), 1),
        (Door::Closed(1203), 1),
        (Door::Closed(1226), 1),
        (Door::Closed(1045), 1),
        (Door::Closed(1049), 1),
        (Door::Refuses(1047), 2),
        (Door::Refuses(1205), 1),
    ] {
        at(&[door, Door::Open], LIMIT, async |node, server| {
            let claim = claim(false);
            server.says([Said::Row(&[1], whole(claim.token))]);
            let vote = node.acquire(&claim).await.vote;
            assert_eq!(held(&server.dialed).len(), hosts, "{door:?}");
            let refuses = matches!(door, Door::Closed(_) | Door::Refuses(_)) && hosts == 1;
            match vote {
                Vote::Granted { .. } => assert!(!refuses, "{door:?}"),
                Vote::Failed(fault) => {
                    assert!(refuses && fault.why.starts_with("h0:3306: told"), "{fault}");
                }
                vote => panic!("{vote:?}"),
            }
        });
    }
}

/// A pooler lends a session for one message, so that no place in a line is the client's.
#[test]
fn a_waiter_stands_in_line_where_the_session_is_its_own_and_looks_until_its_turn_comes() {
    for (door, rank) in [(Door::Open, Some(1)), (Door::Pooled, None)] {
        at(&[door], LIMIT, async |node, server| {
            let claim = claim(true);
            let theirs = row("held", Token::fresh(), 9);
            server.says([Said::Row(&[0], theirs.clone())]);
            let answer = node.acquire(&claim).await;
            let told = answer.position.and_then(|position| position.rank);
            assert_eq!(told, rank);
            if rank.is_some() {
                server.hears(2).await;
                let heard = server.heard();
                assert_eq!(heard[1].number, 2);
                assert!(heard[1].text.contains("GET_LOCK"), "{heard:?}");
            }
            server.says([Said::Row(&[], theirs.clone())]);
            let again = node.acquire(&claim).await;
            assert!(matches!(again.vote, Vote::Blocked(_)), "{:?}", again.vote);
            let heard = server.heard();
            let look = &heard.last().expect("a look").text;
            assert!(
                look.starts_with("SELECT") && !look.contains(';'),
                "{heard:?}"
            );
        });
    }
}

#[test]
fn a_server_that_answers_no_request_lends_eight_sessions_at_most() {
    at(&[Door::Open], WORK * 5, async |node, server| {
        let mut kept = Vec::new();
        loop {
            let attempt = claim(false);
            let mut attempt = node.acquire(&attempt);
            let limit = clock::now() + WORK * 6;
            match clock::until(limit, &mut attempt)
                .await
                .map(|answer| answer.vote)
            {
                None => kept.push(attempt),
                // A busy machine lets it wait for the login.
                Some(Vote::Failed(fault)) if !fault.why.contains("not answered yet") => {}
                Some(vote) => {
                    assert!(matches!(vote, Vote::Failed(_)), "{vote:?}");
                    break;
                }
            }
            assert!(kept.len() <= 20);
        }
        let mut connections: Vec<usize> = server.heard().iter().map(|one| one.number).collect();
        connections.dedup();
        assert_eq!(connections.len(), 8);
    });
}

#[test]
fn no_text_leaves_its_literal() {
    assert_eq!(MySql.quoted("a'\\\0ü"), "_utf8mb4 X'61275c00c3bc'");
    assert_eq!(MySql.quoted(""), "_utf8mb4 X''");
}

#[test]
fn a_late_statement_knows_how_long_it_has_waited() {
    assert_eq!(
        MySql.is_before(4711),
        "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + \
         ABS(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))) < 4711"
    );
}

#[test]
fn the_line_of_a_lock_has_a_name_that_a_server_takes() {
    for number in [0, -1, i64::MIN, i64::MAX] {
        assert_eq!(line(number).len(), "'rlock:'".len() + 16);
    }
    assert_eq!(line(-1), "'rlock:ffffffffffffffff'");
}

#[test]
fn the_rights_are_those_of_the_user_to_the_table() {
    let rights = |url: &str| {
        let Ok(Address::Sql(address)) = Address::parse(url) else {
            panic!("{url}")
        };
        MySql.rights(&address).line
    };
    let line = rights("mysql://it%27s@a/my-db");
    assert!(
        line.contains("IF NOT EXISTS `my-db`.shedlock(name "),
        "{line}"
    );
    assert!(
        line.ends_with("UPDATE ON `my-db`.shedlock TO 'it''s'@'%';"),
        "{line}"
    );
    let line = rights("mysql://a/x?table=app.locks&columns=a,b,c,d");
    assert!(
        line.contains("app.locks(a VARCHAR(64) NOT NULL, b DATETIME(3)"),
        "{line}"
    );
}
