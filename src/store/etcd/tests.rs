//! The requests of one lock, and what it makes of the answers of a scripted member.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response};
use prost::Message;
use tokio::io::{DuplexStream, duplex};

use super::names::lease_of;
use super::rpc::{
    AuthenticateResponse, Done, Event, KeyValue, LeaseResponse, MemberListResponse, RangeResponse,
    ResponseHeader, ResponseOp, StatusResponse, TxnResponse, WatchResponse,
};
use super::*;
use crate::clock;
use crate::lock::details::Details;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::last::{Note, Run};
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions, Term};
use crate::secret::Secret;
use crate::store::QueueAction;
use crate::store::address::Address;

const LIMIT: Duration = Duration::from_secs(10);

const TTL: i64 = 30;

/// The revision that made our entry.
const OURS: i64 = 7;

/// Time that the member takes for each answer.
const WORK: Duration = Duration::from_millis(20);

/// An answer of the member to a call.
#[derive(Clone)]
enum Said {
    Message(Vec<u8>),
    Refusal(&'static str, &'static str),
}

/// A call that the member has heard: its name, when that was, and the token of the login.
struct Heard {
    name: String,
    at: Instant,
    login: Option<String>,
}

/// A member that gives one answer after the other.
#[derive(Default)]
struct Member {
    script: Mutex<VecDeque<Said>>,
    /// The answers to watches.
    news: Mutex<VecDeque<Said>>,
    /// Answers to keepalives that come in any order with other calls.
    keepalives: Mutex<VecDeque<Said>>,
    heard: Mutex<Vec<Heard>>,
    /// Watches that have no answer yet.
    silent: Mutex<Vec<SendResponse<Bytes>>>,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    fn says(&self, script: impl IntoIterator<Item = Said>) {
        held(&self.script).extend(script);
    }

    /// Returns the names of all calls that were not told yet, and the first one's instant.
    fn heard(&self) -> (Vec<String>, Instant) {
        let all = std::mem::take(&mut *held(&self.heard));
        let names = all.iter().map(|heard| heard.name.clone()).collect();
        (names, all[0].at)
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let mut server = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, respond))) = server.accept().await {
            let login = request.headers().get("token");
            let login = login.and_then(|login| login.to_str().ok());
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let is_watch = name == "Watch";
            let said = match name {
                "Watch" => &self.news,
                "LeaseKeepAlive" if !held(&self.keepalives).is_empty() => &self.keepalives,
                _ => &self.script,
            };
            held(&self.heard).push(Heard {
                name: name.to_owned(),
                at: clock::now(),
                login: login.map(str::to_owned),
            });
            let said = held(said).pop_front();
            if let Some(said) = said {
                tokio::spawn(answer(respond, said));
            } else if is_watch {
                held(&self.silent).push(respond);
            }
        }
    }
}

async fn answer(mut respond: SendResponse<Bytes>, said: Said) {
    tokio::time::sleep(WORK).await;
    let mut end = HeaderMap::new();
    let mut put = |name, value| end.insert(name, HeaderValue::from_static(value));
    match said {
        Said::Message(message) => {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            let framed = [&[0], &length[..], &message].concat();
            put("grpc-status", "0");
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(framed.into(), false).unwrap();
            send.send_trailers(end).unwrap();
        }
        Said::Refusal(code, words) => {
            put("grpc-status", code);
            put("grpc-message", words);
            let mut response = Response::new(());
            *response.headers_mut() = end;
            respond.send_response(response, true).unwrap();
        }
    }
}

/// Lets `test` use a lock of this cluster, whose members are one.
fn with<T: Future<Output = ()>>(url: &str, test: impl FnOnce(Box<dyn Node>, Arc<Member>) -> T) {
    with_store(url, |store, member| {
        test(store.open(&Key::new("", "job").unwrap()), member)
    });
}

/// Lets `test` use this cluster, whose members are one.
fn with_store<T: Future<Output = ()>>(url: &str, test: impl FnOnce(EtcdStore, Arc<Member>) -> T) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let Ok(Address::Etcd(address)) = Address::parse(url) else {
            panic!("an address of etcd")
        };
        let member = Arc::new(Member::default());
        let serving = Arc::clone(&member);
        let dial: HostDial = Arc::new(move |_, _| {
            let (ours, theirs) = duplex(1 << 16);
            tokio::spawn(Arc::clone(&serving).serve(theirs));
            Box::pin(async { crate::store::net::dial::boxed(Ok(ours)) })
        });
        let user = url
            .contains('@')
            .then(|| ("u".to_owned(), Secret::new("p")));
        let access = QuorumAccess {
            hosts: address.hosts.clone(),
            user,
            trust: None,
        };
        let store = EtcdStore::over(&address, access, dial, LIMIT);
        test(store, member).await;
    });
}

fn options() -> ScheduleOptions {
    ScheduleOptions {
        ttl: Duration::from_secs(TTL.unsigned_abs()),
        drift: 0.01,
        node_timeout: Some(Duration::from_secs(1)),
        kill_after: None,
    }
}

fn term() -> Term {
    Schedule::new(options()).unwrap().term()
}

fn claim(waits: bool) -> Claim {
    Claim::example(term(), waits.then(|| Waiter::example(1)))
}

fn origin(member_id: u64, raft_term: u64, revision: i64) -> ResponseHeader {
    ResponseHeader {
        member_id,
        revision,
        raft_term,
    }
}

fn lease(ttl: i64) -> Said {
    let header = Some(origin(1, 1, OURS));
    let granted_ttl = TTL;
    Said::Message(
        LeaseResponse {
            header,
            ttl,
            granted_ttl,
        }
        .encode_to_vec(),
    )
}

fn txn(header: ResponseHeader, succeeded: bool, found: &[Vec<KeyValue>]) -> Said {
    // No request asks for more ranges.
    let found = found.iter().cloned().chain(std::iter::repeat(Vec::new()));
    let ranges = found.take(4).map(|kvs| {
        let range = RangeResponse {
            kvs,
            ..RangeResponse::default()
        };
        let response = Some(super::rpc::Response::Range(range));
        ResponseOp { response }
    });
    let responses = ranges.collect();
    Said::Message(
        TxnResponse {
            header: Some(header),
            succeeded,
            responses,
        }
        .encode_to_vec(),
    )
}

/// The answer to a read of one key.
fn range(header: ResponseHeader, kvs: Vec<KeyValue>) -> Said {
    Said::Message(
        RangeResponse {
            header: Some(header),
            kvs,
            more: false,
        }
        .encode_to_vec(),
    )
}

fn done() -> Said {
    Said::Message(Done {}.encode_to_vec())
}

fn own(token: Token, create_revision: i64) -> Vec<KeyValue> {
    vec![KeyValue {
        key: format!("job/{:x}", lease_of(token)).into_bytes(),
        create_revision,
        lease: lease_of(token),
        value: super::names::value(token, &Details::default(), None),
        ..KeyValue::default()
    }]
}

/// An entry that came before ours.
fn other() -> Vec<KeyValue> {
    vec![KeyValue {
        key: b"job/1f".to_vec(),
        create_revision: 3,
        lease: 0x1f,
        ..KeyValue::default()
    }]
}

/// Takes the lock, and returns the end of the grant.
async fn taken(node: &dyn Node, member: &Member, claim: &Claim) -> Instant {
    let made = txn(origin(1, 1, OURS), true, &[own(claim.token, OURS)]);
    member.says([lease(TTL), made]);
    match node.acquire(claim).await.vote {
        Vote::Granted { until, .. } => until,
        vote => panic!("{vote:?}"),
    }
}

#[test]
fn a_grant_and_a_renewal_count_from_before_the_lease_was_asked_for() {
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        let until = taken(&*node, &member, &claim).await;
        let (names, at) = member.heard();
        assert_eq!(names, ["LeaseGrant", "Txn"]);
        assert!(until <= term().end(at));
        member.says([
            lease(TTL),
            txn(origin(1, 1, 9), true, &[own(claim.token, OURS)]),
        ]);
        let renewal = node.keep(&claim.renewal(Fence::new(7).unwrap())).await;
        let (names, at) = member.heard();
        assert_eq!(names, ["LeaseKeepAlive", "Txn"]);
        assert!(matches!(renewal, Renewal::Renewed(until, _) if until <= term().end(at)));
    });
}

#[test]
fn a_renewal_counts_if_one_leader_has_answered_both_and_the_entry_is_ours() {
    let same = origin(1, 1, 9);
    for (alive, header, succeeded, created, told) in [
        (TTL, same, true, OURS, "Renewed"),
        (TTL, origin(1, 2, 9), true, OURS, "its leader has changed"),
        (TTL, origin(2, 1, 9), true, OURS, "its leader has changed"),
        (0, same, true, OURS, "NotOurs"),
        (TTL, same, false, OURS, "NotOurs"),
        (TTL, same, true, OURS + 1, "NotOurs"),
        (TTL - 1, same, true, OURS, "cannot be made longer"),
    ] {
        with("etcd://a", |node, member| async move {
            let claim = claim(false);
            taken(&*node, &member, &claim).await;
            let proof = [
                lease(alive),
                txn(header, succeeded, &[own(claim.token, created)]),
            ];
            member.says([proof.clone(), proof].concat());
            let renewal = node.keep(&claim.renewal(Fence::new(7).unwrap())).await;
            let renewal = format!("{renewal:?}");
            assert!(renewal.contains(told), "{told}: {renewal}");
        });
    }
}

#[test]
fn an_answer_without_what_stands_ahead_is_no_grant_and_no_renewal() {
    let silent = || {
        let reply = TxnResponse {
            header: Some(origin(1, 1, OURS)),
            succeeded: true,
            responses: vec![ResponseOp::default()],
        };
        Said::Message(reply.encode_to_vec())
    };
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        member.says([lease(TTL), silent()]);
        let vote = node.acquire(&claim).await.vote;
        assert!(matches!(vote, Vote::Failed(_)), "{vote:?}");
    });
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        taken(&*node, &member, &claim).await;
        member.says([lease(TTL), silent()]);
        let renewal = node.keep(&claim.renewal(Fence::new(7).unwrap())).await;
        assert!(matches!(renewal, Renewal::Failed(_)), "{renewal:?}");
    });
}

#[test]
fn an_entry_that_came_before_keeps_a_client_out_that_leaves_nothing() {
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        let made = txn(origin(1, 1, OURS), true, &[other()]);
        member.says([lease(TTL), made, range(origin(1, 1, OURS), other()), done()]);
        let vote = node.acquire(&claim).await.vote;
        assert!(matches!(vote, Vote::Blocked(_)), "{vote:?}");
        let (names, _) = member.heard();
        assert_eq!(names, ["LeaseGrant", "Txn", "Range", "LeaseRevoke"]);
    });
}

/// Lets a waiter's turn come, and takes it: the member answers the first read with `header`, and
/// then makes a proof. Returns the calls, and the end of the tenure.
fn turn(header: ResponseHeader, told: impl Fn(&[String], Instant, Instant) + 'static) {
    with("etcd://a", |node, member| async move {
        let claim = claim(true);
        let made = txn(origin(1, 1, OURS), true, &[other()]);
        let seen = range(origin(1, 1, OURS), other());
        // It has gone when the waiter looks what to wait for.
        member.says([lease(TTL), made, seen, txn(origin(1, 1, 8), true, &[])]);
        let answer = node.acquire(&claim).await;
        assert!(matches!(answer.vote, Vote::Blocked(_)), "{:?}", answer.vote);
        assert!(matches!(
            node.next().await,
            Hint::Woken(crate::store::Wake::YourTurn)
        ));
        let (_, entered) = member.heard();
        let ours = [own(claim.token, OURS)];
        member.says([txn(header, true, &ours), lease(TTL)]);
        member.says([txn(origin(1, 1, 12), true, &ours)]);
        match node.acquire(&claim).await.vote {
            Vote::Granted { fence, until, .. } => {
                assert_eq!(fence.get(), 12);
                told(&member.heard().0, entered, until);
            }
            vote => panic!("{vote:?}"),
        }
    });
}

#[test]
fn a_turn_is_taken_with_a_read_and_counts_from_the_last_keepalive() {
    turn(origin(1, 1, 12), |calls, entered, until| {
        assert_eq!(calls, ["Txn"]);
        assert!(
            until <= term().end(entered),
            "from the request of the lease"
        );
    });
}

#[test]
fn a_turn_that_another_leader_or_member_gives_begins_with_a_keepalive() {
    for header in [origin(1, 2, 12), origin(2, 1, 12)] {
        turn(header, |calls, entered, until| {
            assert_eq!(calls, ["Txn", "LeaseKeepAlive", "Txn"]);
            assert!(until > term().end(entered), "from the keepalive");
        });
    }
}

#[test]
fn a_waiter_whose_turn_comes_has_proved_it_already() {
    with("etcd://a", |node, member| async move {
        let claim = claim(true);
        let made = txn(origin(1, 1, OURS), true, &[other()]);
        let seen = range(origin(1, 1, OURS), other());
        let ours = own(claim.token, OURS);
        // Another one waits before it, and goes too.
        let ahead = [other(), own(Token::fresh(), 5)].concat();
        let proved = txn(origin(1, 1, 12), true, std::slice::from_ref(&ours));
        member.says([lease(TTL), made, seen]);
        member.says([txn(origin(1, 1, OURS), true, &[ahead]), proved]);
        let gone = WatchResponse {
            events: vec![Event { kind: 1 }],
            ..WatchResponse::default()
        };
        held(&member.news).push_back(Said::Message(gone.encode_to_vec()));
        let answer = node.acquire(&claim).await;
        assert!(matches!(answer.vote, Vote::Blocked(_)), "{:?}", answer.vote);
        assert!(matches!(
            node.next().await,
            Hint::Woken(crate::store::Wake::YourTurn)
        ));
        let vote = node.acquire(&claim).await.vote;
        let (calls, entered) = member.heard();
        let expected = ["LeaseGrant", "Txn", "Range", "Txn", "Watch", "Txn"];
        assert_eq!(calls, expected);
        match vote {
            Vote::Granted { fence, until, .. } => {
                assert_eq!(fence.get(), 12);
                assert!(
                    until <= term().end(entered),
                    "from the request of the lease"
                );
            }
            vote => panic!("{vote:?}"),
        }
        // It serves once.
        member.says([txn(origin(1, 1, 13), true, &[ours])]);
        let vote = node.acquire(&claim).await.vote;
        assert!(
            matches!(vote, Vote::Granted { fence, .. } if fence.get() == 13),
            "{vote:?}"
        );
    });
}

#[test]
fn a_client_that_gives_up_while_it_asks_for_a_lease_makes_no_entry() {
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        member.says([lease(TTL), done(), done()]);
        let entering = node.acquire(&claim);
        let release = claim.release(QueueAction::None);
        while held(&member.heard).is_empty() {
            tokio::task::yield_now().await;
        }
        let (released, entered) = tokio::join!(node.release(&release), entering);
        assert!(matches!(released, ReleaseReply::NotOurs(_)), "{released:?}");
        assert!(
            matches!(entered.vote, Vote::Failed(_)),
            "{:?}",
            entered.vote
        );
        assert!(!member.heard().0.contains(&"Txn".to_owned()));
    });
}

#[test]
fn a_waiter_is_told_that_its_lease_is_over() {
    with("etcd://a", |node, member| async move {
        let short = ScheduleOptions {
            ttl: Duration::from_millis(900),
            node_timeout: Some(Duration::from_millis(50)),
            ..options()
        };
        let term = Schedule::new(short).unwrap().term();
        let claim = Claim::example(term, Some(Waiter::example(1)));
        let ahead = txn(origin(1, 1, OURS), true, &[other()]);
        let seen = range(origin(1, 1, OURS), other());
        // The waiter looks who is before it, and does so again while its lease is kept.
        member.says([lease(TTL), ahead.clone(), seen, ahead.clone(), ahead]);
        held(&member.keepalives).push_back(lease(0));
        let answer = node.acquire(&claim).await;
        assert!(matches!(answer.vote, Vote::Blocked(_)), "{:?}", answer.vote);
        let told = clock::until(clock::now() + LIMIT, node.next()).await;
        let is_told = matches!(told, Some(Hint::Woken(crate::store::Wake::Recheck)));
        assert!(is_told, "{told:?} {:?}", member.heard().0);
    });
}

#[test]
fn a_release_from_outside_finds_the_entry_whatever_its_kind() {
    with("etcd://a", |node, member| async move {
        let at = |succeeded| txn(origin(1, 1, OURS + 1), succeeded, &[]);
        member.says([at(false), at(true), done()]);
        let release = Release::of(Token::fresh());
        let released = node.release(&release).await;
        assert!(matches!(released, ReleaseReply::Released), "{released:?}");
    });
}

/// Returns a release that writes a success.
fn of_success(claim: &Claim) -> Release {
    let fence = Fence::new(OURS.unsigned_abs()).unwrap();
    let note = Note {
        success: Some(Duration::from_secs(3600)),
        ..Note::of(Run::default(), fence, claim.token)
    };
    Release {
        note: Some(note),
        ..claim.release(QueueAction::None)
    }
}

/// The request for it may have been carried out though its answer was lost.
#[test]
fn a_success_is_written_though_its_lease_is_known_already() {
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        taken(&*node, &member, &claim).await;
        let known = Said::Refusal("9", "etcdserver: lease already exists");
        let gone = txn(origin(1, 1, OURS + 1), true, &[]);
        member.says([known, lease(TTL), gone, done()]);
        let released = node.release(&of_success(&claim)).await;
        assert!(matches!(released, ReleaseReply::Released), "{released:?}");
        let (heard, _) = member.heard();
        assert_eq!(heard[2..5], ["LeaseGrant", "LeaseKeepAlive", "Txn"]);
    });
}

#[test]
fn rlock_waits_until_a_lease_of_days_without_a_key_is_ended() {
    with("etcd://a", |node, member| async move {
        let claim = claim(false);
        taken(&*node, &member, &claim).await;
        let replaced = vec![KeyValue {
            lease: 99,
            ..KeyValue::default()
        }];
        let gone = txn(origin(1, 1, OURS + 1), true, &[replaced]);
        member.says([lease(TTL), gone, done(), done()]);
        let released = node.release(&of_success(&claim)).await;
        assert!(matches!(released, ReleaseReply::Released), "{released:?}");
        assert!(node.settled(LIMIT).await);
        let answered = clock::now();
        let heard = held(&member.heard);
        let ends: Vec<&Heard> = heard
            .iter()
            .filter(|call| call.name == "LeaseRevoke")
            .collect();
        assert_eq!(ends.len(), 2, "its own and the other");
        assert!(ends.iter().any(|call| answered >= call.at + WORK));
    });
}

/// A lease of 30 s has 20 s left. The run was over an hour ago, by the hosts' clocks.
#[test]
fn a_success_is_as_old_as_its_lease_and_under_a_later_leader_as_the_hosts_say() {
    let an_hour_ago = clock::unix_millis(SystemTime::now()) - 3_600_000;
    for (raft_term, ttl, is_there, seconds) in [
        (1, TTL, true, Some(0)),
        (1, 20, true, Some(9)),
        (1, 0, true, Some(29)),
        (1, -1, false, None),
        (2, 20, true, Some(3600)),
        // A leader that does not lead any more knows nothing of the lease, or lets it last for ever.
        (1, -1, true, Some(3600)),
        (1, 9_223_372_036, true, Some(3600)),
    ] {
        with("etcd://a", |node, member| async move {
            let token = Token::fresh();
            let run = Note::of(Run::default(), Fence::FIRST, token).entry;
            let mark = KeyValue {
                key: b"rlock:once:job".to_vec(),
                lease: 99,
                value: format!("1 {}", run.line(an_hour_ago)).into_bytes(),
                ..KeyValue::default()
            };
            let age = LeaseResponse {
                // Of a member that lags.
                header: Some(origin(1, 1, 9)),
                ttl,
                granted_ttl: TTL,
            };
            let found = if is_there {
                vec![mark.clone()]
            } else {
                Vec::new()
            };
            member.says([
                txn(origin(1, 1, 9), true, &[Vec::new(), vec![mark]]),
                Said::Message(age.encode_to_vec()),
                range(origin(1, raft_term, 9), found),
            ]);
            let look = Look {
                max_waiters: 0,
                token: None,
            };
            let seen = node.look(look).await.unwrap();
            let told = seen.last.success.map(|success| success.age.as_secs());
            assert_eq!(told, seconds, "{raft_term} {ttl}");
        });
    }
}

#[test]
fn a_time_that_is_left_counts_while_one_leader_leads() {
    for (raft_term, is_told) in [(1, true), (2, false)] {
        with("etcd://a", |node, member| async move {
            let token = Token::fresh();
            let found = [own(token, OURS), Vec::new(), own(token, OURS)];
            member.says([
                txn(origin(1, 1, 9), true, &found),
                range(origin(1, 1, 9), own(token, OURS)),
                lease(5),
                range(origin(1, raft_term, 9), Vec::new()),
            ]);
            let seen = node.look(Look::of(token)).await;
            assert_eq!(seen.is_ok(), is_told, "{seen:?}");
        });
    }
}

#[test]
fn a_member_without_a_leader_is_followed_by_the_next() {
    with("etcd://a,b", |node, member| async move {
        member.says([Said::Refusal("14", "etcdserver: no leader")]);
        taken(&*node, &member, &claim(false)).await;
        assert_eq!(member.heard().0, ["LeaseGrant", "LeaseGrant", "Txn"]);
    });
}

fn login(token: &str) -> Said {
    let token = token.to_owned();
    Said::Message(AuthenticateResponse { token }.encode_to_vec())
}

#[test]
fn doctor_quotes_a_member_without_the_password() {
    with_store("etcd://u:p@a", |store, member| async move {
        let status = StatusResponse {
            version: "3.5.13 p\x1b".to_owned(),
            errors: vec!["alarm p".to_owned()],
            ..StatusResponse::default()
        };
        let members = MemberListResponse::default();
        member.says([
            login("one"),
            Said::Message(status.encode_to_vec()),
            lease(0),
            login("two"),
            range(origin(1, 1, 1), Vec::new()),
            Said::Message(members.encode_to_vec()),
        ]);
        let plan = Plan {
            role: Role::Job,
            keys: Vec::new(),
            nodes: 1,
            schedule: Schedule::new(options()).unwrap(),
            options: options(),
            guard: RestartGuard::Auto,
        };
        let told = store.examine(&plan).await.unwrap();
        assert_eq!(told.version.as_deref(), Some("3.5.13 ***\\x1b"));
        let words = format!("{:?}{:?}{:?}", told.lines, told.findings, told.fields);
        assert!(words.contains("alarm ***"), "{words}");
        assert!(
            !words.contains("13 p") && !words.contains("alarm p"),
            "{words}"
        );
    });
}

#[test]
fn a_login_that_is_over_is_made_anew() {
    with("etcd://u:p@a", |node, member| async move {
        let over = Said::Refusal("16", "etcdserver: invalid auth token");
        member.says([login("one"), over, login("two")]);
        taken(&*node, &member, &claim(false)).await;
        let heard = std::mem::take(&mut *held(&member.heard));
        let logins: Vec<_> = heard.into_iter().map(|heard| heard.login).collect();
        let [one, two] = ["one", "two"].map(|token| Some(token.to_owned()));
        assert_eq!(logins, [None, one, None, two.clone(), two]);
    });
}
