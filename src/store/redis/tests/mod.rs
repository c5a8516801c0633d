//! Two locks on one server, which is simulated below the reply parser: what concerns one must not
//! touch the other.

mod members;
mod memory;
mod newest;
mod redisson;
mod remains;
mod scripts;
mod unscripted;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::Cmd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::connect::{Connector, Dial};
use super::connection::REPLY_LIMIT;
use super::*;
use crate::clock::{self, virtual_time};
use crate::lock::details::Details;
use crate::lock::fence::Fence;
use crate::lock::mode::Mode;
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::lock::token::Token;
use crate::store::net::dial::Stream;
use crate::store::net::hosts::Endpoint;
use crate::store::redis::locator::Locator;
use crate::store::redis::names::{Derived, Names};
use crate::store::{FaultKind, Wake};

const LIMIT: Duration = Duration::from_secs(1);

const TTL: Duration = Duration::from_secs(30);

fn key() -> Key {
    named("job")
}

fn derived(kind: Derived) -> String {
    Names::of(&key()).derived(kind)
}

fn named(name: &str) -> Key {
    Key::new("", name).unwrap()
}

fn term() -> Term {
    let options = ScheduleOptions {
        ttl: TTL,
        drift: 0.01,
        node_timeout: Some(LIMIT),
        kill_after: None,
    };
    Schedule::new(options).unwrap().term()
}

fn server_over(dial: Dial) -> RedisServer {
    let connector = Connector::over(Endpoint::Unix("/simulated".into()).into(), dial);
    RedisServer::at(
        "simulated".to_owned(),
        Locator::fixed(connector),
        LIMIT,
        REPLY_LIMIT,
    )
}

/// A server that takes connections once it is let, answers every script with a grant, and says what
/// it is told to.
#[derive(Clone, Default)]
struct Simulated {
    lets_in: Arc<Notify>,
    /// The token or the channel of each EVAL and SUBSCRIBE so far.
    asked: Arc<Mutex<Vec<String>>>,
    said: Arc<Mutex<Vec<mpsc::UnboundedSender<Vec<u8>>>>>,
    /// Whether scripts are read and not answered.
    hangs: Arc<AtomicBool>,
}

impl Simulated {
    fn server(&self) -> RedisServer {
        let simulated = self.clone();
        let dial: Dial = Arc::new(move |_, _| {
            let simulated = simulated.clone();
            Box::pin(async move {
                simulated.lets_in.notified().await;
                // As many as come: the permit is for all.
                simulated.lets_in.notify_one();
                let (ours, theirs) = duplex(1 << 20);
                let (say, said) = mpsc::unbounded_channel();
                simulated.said.lock().unwrap().push(say);
                tokio::spawn(serve(simulated, theirs, said));
                Ok(Box::new(ours) as Box<dyn Stream>)
            })
        });
        server_over(dial)
    }

    fn say(&self, channel: &str, word: &str) {
        let (channels, words) = (channel.len(), word.len());
        let push =
            format!(">3\r\n$7\r\nmessage\r\n${channels}\r\n{channel}\r\n${words}\r\n{word}\r\n");
        self.say_bytes(&push);
    }

    fn say_bytes(&self, bytes: &str) {
        for connection in self.said.lock().unwrap().iter() {
            let _ = connection.send(bytes.as_bytes().to_vec());
        }
    }

    fn connections(&self) -> usize {
        self.said.lock().unwrap().len()
    }

    fn was_asked(&self, text: &str) -> bool {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .any(|asked| asked.contains(text))
    }
}

async fn serve(
    simulated: Simulated,
    stream: DuplexStream,
    mut said: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    loop {
        let reply = tokio::select! {
            Some(words) = said.recv() => words,
            request = request(&mut reader) => match request {
                None => return,
                Some(words) if words[0].starts_with("EVAL") && simulated.hangs.load(Ordering::Relaxed) => {
                    simulated.note(&words);
                    continue;
                }
                Some(words) => simulated.reply(&words).into_bytes(),
            },
        };
        if writer.write_all(&reply).await.is_err() {
            return;
        }
    }
}

/// Returns the operation that a call of lock.lua is for.
fn operation(words: &[String]) -> &str {
    &words[3 + words[2].parse::<usize>().unwrap()]
}

impl Simulated {
    fn note(&self, words: &[String]) {
        if words[0] == "EVALSHA" {
            self.asked.lock().unwrap().push(format!(
                "{} {}",
                operation(words),
                words[3..].join(" ")
            ));
        }
    }

    fn reply(&self, words: &[String]) -> String {
        self.note(words);
        match words[0].as_str() {
            "EVAL" => "*1\r\n$6\r\nabsent\r\n".to_owned(),
            "EVALSHA" => {
                if operation(words) == "release" {
                    return "*1\r\n$8\r\nreleased\r\n".to_owned();
                }
                "*3\r\n*3\r\n$7\r\ngranted\r\n$1\r\n7\r\n$1\r\n0\r\n*0\r\n*3\r\n:-1\r\n$1\r\n9\r\n$0\r\n\r\n".to_owned()
            }
            "SUBSCRIBE" => {
                self.asked
                    .lock()
                    .unwrap()
                    .push(format!("subscribe {}", words[1]));
                format!(
                    ">3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:1\r\n",
                    words[1].len(),
                    words[1]
                )
            }
            "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        }
    }
}

fn claim(waits: bool) -> Claim {
    let waiter = Waiter {
        id: Uuid::new_v4(),
        ..Waiter::example(1)
    };
    Claim::example(term(), waits.then_some(waiter))
}

/// Returns the word that has come to the waiter.
fn wake_of(node: &RedisNode) -> Option<Wake> {
    match futures_util::FutureExt::now_or_never(node.next())? {
        Hint::Woken(word) => Some(word),
        Hint::Changed => None,
    }
}

#[test]
fn a_release_that_no_connection_takes_is_not_written() {
    for is_gone in [false, true] {
        virtual_time::run(async {
            let opened: Arc<Mutex<Vec<tokio::task::AbortHandle>>> = Arc::default();
            let connections = Arc::clone(&opened);
            let dial: Dial = Arc::new(move |_, _| {
                let mut connections = connections.lock().unwrap();
                if !connections.is_empty() {
                    return Box::pin(async {
                        Err(Fault::new(FaultKind::Unavailable, "cannot connect"))
                    });
                }
                let (ours, theirs) = duplex(1 << 20);
                let serving = tokio::spawn(serve(
                    Simulated::default(),
                    theirs,
                    mpsc::unbounded_channel().1,
                ));
                connections.push(serving.abort_handle());
                Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
            });
            let (node, claim) = (server_over(dial).node(&key()), claim(false));
            assert!(matches!(
                node.acquire(&claim).await.vote,
                Vote::Granted { .. }
            ));
            if is_gone {
                opened.lock().unwrap()[0].abort();
                assert_eq!(node.next().await, Hint::Changed);
            }
            drop(node.release(&claim.release(QueueAction::None)));
            assert_eq!(node.settled(LIMIT).await, !is_gone);
        });
    }
}

#[test]
fn a_holder_whose_connection_gave_way_to_a_waiters_hears_the_end_of_that() {
    virtual_time::run(async {
        let opened: Arc<Mutex<Vec<tokio::task::AbortHandle>>> = Arc::default();
        let connections = Arc::clone(&opened);
        let dial: Dial = Arc::new(move |_, _| {
            let (ours, theirs) = duplex(1 << 20);
            let serving = tokio::spawn(serve(
                Simulated::default(),
                theirs,
                mpsc::unbounded_channel().1,
            ));
            connections.lock().unwrap().push(serving.abort_handle());
            Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
        });
        let server = server_over(dial);
        let (holder, waiter) = (server.node(&named("a")), server.node(&named("b")));
        let mut hint = holder.next();
        assert!(matches!(
            holder.acquire(&claim(false)).await.vote,
            Vote::Granted { .. }
        ));
        assert!(futures_util::poll!(&mut hint).is_pending());
        waiter.acquire(&claim(true)).await;
        assert_eq!(
            opened.lock().unwrap().len(),
            2,
            "the waiter has a connection that can be told something"
        );
        assert!(futures_util::poll!(&mut hint).is_pending());
        opened.lock().unwrap()[1].abort();
        assert_eq!(
            clock::until(clock::now() + LIMIT, hint).await,
            Some(Hint::Changed)
        );
    });
}

#[test]
fn a_holder_that_begins_to_listen_delays_no_release() {
    virtual_time::run(async {
        let simulated = Simulated::default();
        let (node, claim) = (simulated.server().node(&key()), claim(false));
        node.listen(claim.token);
        // The connection is being opened.
        tokio::task::yield_now().await;
        let released = node.release(&claim.release(QueueAction::None));
        simulated.lets_in.notify_one();
        assert!(matches!(released.await, ReleaseReply::Released));
    });
}

#[test]
fn a_release_of_one_lock_cancels_no_request_of_another_on_the_same_server() {
    virtual_time::run(async {
        let simulated = Simulated::default();
        let server = simulated.server();
        let ([a, b], [of_a, of_b]) = (
            [server.node(&named("a")), server.node(&named("b"))],
            [(); 2].map(|()| claim(false)),
        );
        // Neither is sent yet: there is no connection.
        let (acquired_a, acquired_b) = (a.acquire(&of_a), b.acquire(&of_b));
        tokio::task::yield_now().await;
        let released = a.release(&of_a.release(QueueAction::None));
        simulated.lets_in.notify_one();
        assert!(matches!(acquired_b.await.vote, Vote::Granted { .. }));
        let fault = match acquired_a.await.vote {
            Vote::Failed(fault) => fault,
            vote => panic!("{vote:?}"),
        };
        assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
        assert!(matches!(released.await, ReleaseReply::Released));
        let told = |what: &str| simulated.was_asked(what);
        assert!(told("take b ") && !told("take a ") && told("release a ") && !told("release b "));
        assert_eq!(simulated.connections(), 1, "both use one connection");
    });
}

#[test]
fn a_wake_up_reaches_the_waiter_on_whose_channel_it_comes_and_no_other() {
    virtual_time::run(async {
        let simulated = Simulated::default();
        simulated.lets_in.notify_one();
        let server = simulated.server();
        let ([a, b], [of_a, of_b]) = (
            [server.node(&named("a")), server.node(&named("b"))],
            [(); 2].map(|()| claim(true)),
        );
        for (node, claim) in [(&a, &of_a), (&b, &of_b)] {
            assert_ne!(node.wakes(), Wakes::Yes);
            assert!(matches!(
                node.acquire(claim).await.vote,
                Vote::Granted { .. }
            ));
            assert_eq!(node.wakes(), Wakes::Yes);
        }
        let channel = Names::of(&named("b")).wake_channel(of_b.ticket.as_ref().unwrap().waiter.id);
        assert!(simulated.was_asked(&format!("subscribe {channel}")));
        simulated.say(&channel, "go");
        assert_eq!(b.next().await, Hint::Woken(Wake::YourTurn));
        simulated.say("rlock:wake:{b}:of-none", "go");
        tokio::time::sleep(LIMIT).await;
        assert_eq!((wake_of(&a), wake_of(&b)), (None, None));
    });
}

#[test]
fn a_connection_whose_oldest_request_has_no_reply_in_time_is_not_asked_again() {
    virtual_time::run(async {
        let simulated = Simulated::default();
        simulated.lets_in.notify_one();
        let server = simulated.server();
        let (a, b) = (server.node(&named("a")), server.node(&named("b")));
        assert!(matches!(
            a.acquire(&claim(false)).await.vote,
            Vote::Granted { .. }
        ));
        simulated.hangs.store(true, Ordering::Relaxed);
        drop(b.acquire(&claim(false)));
        tokio::time::sleep(LIMIT / 2).await;
        drop(a.look(Look::default()));
        tokio::time::sleep(LIMIT / 4).await;
        assert_eq!(
            simulated.connections(),
            1,
            "the oldest request still has time"
        );
        tokio::time::sleep(LIMIT / 4).await;
        drop(a.look(Look::default()));
        tokio::time::sleep(LIMIT / 4).await;
        assert_eq!(simulated.connections(), 2);
    });
}

#[test]
fn a_release_goes_behind_its_set_though_other_requests_take_another_connection_by_now() {
    virtual_time::run(async {
        let simulated = Simulated::default();
        simulated.lets_in.notify_one();
        let node = simulated.server().node(&key());
        assert!(matches!(
            node.acquire(&claim(false)).await.vote,
            Vote::Granted { .. }
        ));
        simulated.hangs.store(true, Ordering::Relaxed);
        let again = claim(false);
        drop(node.acquire(&again));
        tokio::time::sleep(LIMIT).await;
        drop(node.look(Look::default()));
        tokio::time::sleep(LIMIT / 4).await;
        assert_eq!(simulated.connections(), 2);
        drop(node.release(&again.release(QueueAction::None)));
        tokio::time::sleep(LIMIT / 4).await;
        let asked = simulated.asked.lock().unwrap();
        let releases = asked
            .iter()
            .filter(|asked| asked.starts_with("release"))
            .count();
        assert_eq!(
            releases, 2,
            "one behind the SET, one on the connection that is used now: {asked:?}"
        );
    });
}

#[test]
fn a_waiter_leaves_behind_a_release_that_would_put_it_back_into_the_queue() {
    virtual_time::run(async {
        let simulated = Simulated::default();
        simulated.lets_in.notify_one();
        let (node, claim) = (simulated.server().node(&key()), claim(true));
        assert!(matches!(
            node.acquire(&claim).await.vote,
            Vote::Granted { .. }
        ));
        simulated.hangs.store(true, Ordering::Relaxed);
        let ticket = claim.ticket.clone().unwrap();
        drop(node.release(&claim.release(QueueAction::Keep(ticket.clone()))));
        tokio::time::sleep(LIMIT).await;
        drop(node.acquire(&claim));
        tokio::time::sleep(LIMIT / 4).await;
        assert_eq!(simulated.connections(), 2);
        drop(node.release(&claim.release(QueueAction::Leave(ticket.waiter))));
        tokio::time::sleep(LIMIT / 4).await;
        let asked = simulated.asked.lock().unwrap();
        let releases = asked
            .iter()
            .filter(|asked| asked.starts_with("release"))
            .count();
        assert_eq!(
            releases, 3,
            "the first one, one behind it, and one on the connection that is used now: {asked:?}"
        );
    });
}

#[test]
fn requests_behind_one_that_the_server_shut_out_are_refused_too() {
    virtual_time::run(async {
        let dial: Dial = Arc::new(|_, _| {
            Box::pin(async {
                let (ours, mut theirs) = duplex(1 << 20);
                tokio::spawn(async move {
                    let (mut said, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
                    while said.windows(7).filter(|word| *word == b"EVALSHA").count() < 2 {
                        let count = theirs.read(&mut buffer).await.unwrap();
                        said.extend_from_slice(&buffer[..count]);
                    }
                    theirs
                        .write_all(b"-ERR Protocol error: unauthenticated multibulk length\r\n")
                        .await
                        .unwrap();
                });
                Ok(Box::new(ours) as Box<dyn Stream>)
            })
        });
        let node = server_over(dial).node(&key());
        let renew = claim(false).renewal(Fence::new(7).unwrap());
        let replies = [node.keep(&renew), node.keep(&renew)];
        for reply in replies {
            let renewal = reply.await;
            assert!(
                matches!(&renewal, Renewal::Failed(fault) if fault.kind == FaultKind::Refused),
                "{renewal:?}"
            );
        }
    });
}

/// A server that reads a request, answers it late, and would lose what follows if the client were
/// gone by then.
#[test]
fn a_server_has_caught_up_once_what_went_before_the_release_is_answered() {
    // Whether the server has answered anything and whether it answers late; how long it takes to
    // catch up.
    const LATE: Duration = Duration::from_millis(80);
    for (answered, late, expected) in [
        (true, true, LATE),
        (true, false, Duration::from_millis(100)),
        (false, false, Duration::from_millis(20)),
    ] {
        virtual_time::run(async move {
            let simulated = Simulated::default();
            simulated.lets_in.notify_one();
            let server = simulated.server();
            let (node, claim) = (server.node(&key()), claim(false));
            if answered {
                assert!(matches!(
                    node.acquire(&claim).await.vote,
                    Vote::Granted { .. }
                ));
            }
            simulated.hangs.store(true, Ordering::Relaxed);
            let begun = clock::now();
            drop(node.acquire(&claim));
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(node.release(&claim.release(QueueAction::None)));
            let answer = async {
                tokio::time::sleep(LATE).await;
                if late {
                    simulated.say_bytes("$7\r\nrefused\r\n");
                }
                std::future::pending::<()>().await;
            };
            let caught_up = async {
                node.settled(LIMIT).await;
            };
            tokio::select! { () = caught_up => {} () = answer => {} }
            let took = clock::now().since(begun);
            assert!(
                took >= expected && took < expected + Duration::from_millis(2),
                "{took:?} in place of {expected:?}"
            );
        });
    }
}

/// Returns the words of the next request, as a simulated server reads it; `None` at the end.
pub(in crate::store) async fn request(
    reader: &mut (impl AsyncBufReadExt + Unpin),
) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..length(reader).await? {
        let mut word = vec![0; length(reader).await? + 2];
        reader.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn length(reader: &mut (impl AsyncBufReadExt + Unpin)) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}
