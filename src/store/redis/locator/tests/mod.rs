//! Failovers at simulated servers, which a simulated sentinel names: where requests and releases
//! go, and what counts.

mod members;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader, DuplexStream, duplex};

use super::{Locator, Sentinels};
use crate::clock::{self, virtual_time};
use crate::lock::key::Key;
use crate::lock::messages::{Claim, QueueAction};
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::store::net::dial::Stream;
use crate::store::net::hosts::Endpoint;
use crate::store::redis::RedisServer;
use crate::store::redis::connect::{Connector, Dial};
use crate::store::redis::connection::REPLY_LIMIT;
use crate::store::redis::script::FREE;
use crate::store::redis::tests::request;
use crate::store::{FaultKind, Node, ReleaseReply, Renewal, Store, Vote};

const LIMIT: Duration = Duration::from_secs(1);

const GRANTED: &str =
    "*3\r\n*3\r\n$7\r\ngranted\r\n$1\r\n7\r\n$1\r\n0\r\n*0\r\n*3\r\n:-1\r\n$1\r\n9\r\n$0\r\n\r\n";

/// A server or a sentinel: its replies to scripts, the last of which is given again and again; an
/// empty one is none.
#[derive(Clone, Default)]
struct SimulatedServer {
    replies: Arc<Mutex<VecDeque<&'static str>>>,
    /// The scripts that it was asked for.
    asked: Arc<Mutex<Vec<String>>>,
    /// The port and the epoch of the primary that it names.
    names: Arc<Mutex<(u16, u64)>>,
    /// The ports of the primaries of all slots in the maps that it tells, the last of which is told
    /// again and again.
    maps: Arc<Mutex<VecDeque<u16>>>,
    /// Number of connections to it so far, and of questions to a sentinel.
    opened: Arc<AtomicUsize>,
    questions: Arc<AtomicUsize>,
}

impl SimulatedServer {
    fn replying(replies: &[&'static str]) -> Self {
        Self {
            replies: Arc::new(Mutex::new(replies.iter().copied().collect())),
            ..Self::default()
        }
    }

    fn connector(&self, port: u16) -> Connector {
        let simulated = self.clone();
        let dial: Dial = Arc::new(move |_, _| {
            simulated.opened.fetch_add(1, Ordering::Relaxed);
            let (ours, theirs) = duplex(1 << 20);
            tokio::spawn(serve(simulated.clone(), theirs));
            Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
        });
        let endpoint = Endpoint::Tcp {
            host: "h".to_owned(),
            port,
            tls: false,
        };
        Connector::over(endpoint.into(), dial)
    }

    fn reply(&self, words: &[String]) -> String {
        match (words[0].as_str(), words.get(1).map_or("", String::as_str)) {
            // What a release carries along. Its own reply counts.
            ("EVAL", script) if script == FREE.text && !self.is_asking() => {
                "*1\r\n$6\r\nabsent\r\n".to_owned()
            }
            ("EVALSHA" | "EVAL", _) => {
                self.asked.lock().unwrap().push(words[3..].join(" "));
                next(&self.replies).unwrap_or_default().to_owned()
            }
            ("ASKING", _) => {
                self.asked.lock().unwrap().push("ASKING".to_owned());
                "+OK\r\n".to_owned()
            }
            ("CLUSTER", "SLOTS") => next(&self.maps).map_or_else(String::new, members::map),
            ("SENTINEL", question) => {
                self.questions.fetch_add(1, Ordering::Relaxed);
                let (port, epoch) = *self.names.lock().unwrap();
                if question == "MASTER" {
                    let fields = [
                        "ip",
                        "h",
                        "port",
                        &port.to_string(),
                        "config-epoch",
                        &epoch.to_string(),
                    ];
                    array(&fields)
                } else {
                    array(&["h", &port.to_string()])
                }
            }
            ("HELLO", _) => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            ("SUBSCRIBE", channel) => format!(
                ">3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n",
                channel.len()
            ),
            _ => "+OK\r\n".to_owned(),
        }
    }

    /// Whether the last request was ASKING.
    fn is_asking(&self) -> bool {
        self.asked
            .lock()
            .unwrap()
            .last()
            .is_some_and(|asked| asked == "ASKING")
    }

    fn was_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// Takes the next of these; the last one stays.
fn next<T: Copy>(of: &Mutex<VecDeque<T>>) -> Option<T> {
    let mut of = of.lock().unwrap();
    if of.len() > 1 {
        of.pop_front()
    } else {
        of.front().copied()
    }
}

fn array(words: &[&str]) -> String {
    let begin = format!("*{}\r\n", words.len());
    words.iter().fold(begin, |reply, word| {
        reply + &format!("${}\r\n{word}\r\n", word.len())
    })
}

async fn serve(simulated: SimulatedServer, stream: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    while let Some(words) = request(&mut reader).await {
        if writer
            .write_all(simulated.reply(&words).as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
}

/// A lock at the servers on the ports 1 and 2, of which `sentinel` names the first.
fn node(servers: [&SimulatedServer; 2], sentinel: &SimulatedServer) -> Box<dyn Node> {
    *sentinel.names.lock().unwrap() = (1, 7);
    let servers = servers.map(Clone::clone);
    let named = [("s".to_owned(), sentinel.connector(26379))];
    let server_at = Box::new(move |location: &super::Location| {
        servers[usize::from(location.port) - 1].connector(location.port)
    });
    let sentinels = Sentinels::new("svc".to_owned(), named, server_at, LIMIT);
    RedisServer::at(
        "svc".to_owned(),
        Locator::Sentinel(Arc::new(sentinels)),
        LIMIT,
        REPLY_LIMIT,
    )
    .open(&key())
}

fn key() -> Key {
    Key::new("", "job").unwrap()
}

fn claim() -> Claim {
    let options = ScheduleOptions {
        node_timeout: Some(LIMIT),
        ..ScheduleOptions::new(Duration::from_secs(30))
    };
    Claim::example(Schedule::new(options).unwrap().term(), None)
}

#[test]
fn a_grant_and_a_renewal_count_while_the_sentinel_names_the_server() {
    virtual_time::run(async {
        let (old, new) = (
            SimulatedServer::replying(&[GRANTED, "*2\r\n$7\r\nrenewed\r\n$1\r\n7\r\n"]),
            SimulatedServer::default(),
        );
        let sentinel = SimulatedServer::default();
        let (node, claim) = (node([&old, &new], &sentinel), claim());
        let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
            panic!()
        };
        assert!(matches!(
            node.keep(&claim.renewal(fence)).await,
            Renewal::Renewed(..)
        ));
        let late = node.keep(&claim.renewal(fence));
        *sentinel.names.lock().unwrap() = (2, 8);
        assert!(
            matches!(late.await, Renewal::Failed(_)),
            "it was replaced by the time of its answer"
        );
        assert_eq!((old.was_asked(), new.was_asked()), (3, 0));
    });
}

#[test]
fn a_grant_of_a_server_that_was_replaced_is_left_to_be_released_at_the_new_one() {
    virtual_time::run(async {
        let (old, new) = (
            SimulatedServer::replying(&[GRANTED]),
            SimulatedServer::replying(&["*1\r\n$6\r\nabsent\r\n"]),
        );
        let sentinel = SimulatedServer::default();
        let (node, claim) = (node([&old, &new], &sentinel), claim());
        let answer = node.acquire(&claim);
        // It was found before, and asked after.
        tokio::task::yield_now().await;
        while old.was_asked() == 0 {
            tokio::task::yield_now().await;
        }
        *sentinel.names.lock().unwrap() = (2, 8);
        let Vote::Failed(fault) = answer.await.vote else {
            panic!()
        };
        assert!(
            fault.kind == FaultKind::Unknown && fault.why.contains("replaced by h:2 in epoch 8"),
            "{fault}"
        );
        assert!(matches!(
            node.release(&claim.release(QueueAction::None)).await,
            ReleaseReply::NotOurs(_)
        ));
        assert_eq!((old.was_asked(), new.was_asked()), (1, 1));
    });
}

#[test]
fn a_release_goes_behind_a_request_that_may_still_set_the_key_and_to_the_present_server() {
    virtual_time::run(async {
        let (old, new) = (
            SimulatedServer::replying(&[""]),
            SimulatedServer::replying(&["*1\r\n$6\r\nabsent\r\n"]),
        );
        let sentinel = SimulatedServer::default();
        let (node, claim) = (node([&old, &new], &sentinel), claim());
        drop(node.acquire(&claim));
        tokio::time::sleep(LIMIT).await;
        *sentinel.names.lock().unwrap() = (2, 8);
        drop(node.release(&claim.release(QueueAction::None)));
        tokio::time::sleep(LIMIT).await;
        assert_eq!(
            (old.was_asked(), new.was_asked()),
            (2, 0),
            "nothing has told of the switch yet"
        );
        drop(node.look(crate::store::Look::default()));
        tokio::time::sleep(LIMIT).await;
        drop(node.release(&claim.release(QueueAction::None)));
        tokio::time::sleep(LIMIT).await;
        let told = |server: &SimulatedServer| {
            server
                .asked
                .lock()
                .unwrap()
                .iter()
                .filter(|asked| asked.contains(&claim.token.to_string()))
                .count()
        };
        assert!(
            told(&old) >= 2 && told(&new) == 1,
            "{:?}",
            new.asked.lock().unwrap()
        );
    });
}

#[test]
fn a_renewal_that_is_waited_for_no_more_delays_no_release() {
    virtual_time::run(async {
        let primary = SimulatedServer::replying(&[
            GRANTED,
            "*2\r\n$7\r\nrenewed\r\n$1\r\n7\r\n",
            "*1\r\n$8\r\nreleased\r\n",
        ]);
        let (other, sentinel) = (SimulatedServer::default(), SimulatedServer::default());
        let (node, claim) = (node([&primary, &other], &sentinel), claim());
        let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
            panic!()
        };
        let questions = || sentinel.questions.load(Ordering::Relaxed);
        let (mut renewal, before) = (node.keep(&claim.renewal(fence)), questions());
        let is_confirmed = async {
            while questions() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; () = is_confirmed => {} _ = &mut renewal => panic!("it is being confirmed") }
        let released = clock::until(
            clock::now() + LIMIT,
            node.release(&claim.release(QueueAction::None)),
        )
        .await;
        assert!(
            matches!(released, Some(ReleaseReply::Released)),
            "{released:?}"
        );
        drop(renewal);
    });
}
