//! The requests of one lock at one server: sent in the order in which they were made, whether or
//! not the caller still waits.
//!
//! A task of its own sends them and retries none. A release may go to several connections (`pool`).
//! What a server has not executed may go on in another form (`exchange`).

use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::call::{Call, ForYoung};
use super::connection::ConnectionEnd;
use super::exchange::Exchange;
use super::pool::{Link, Pool, ReleaseRoute, Route};
use super::replicas::Copies;
use super::state::{Effect, LockId};
use super::{replicas, reply};
use crate::clock;
use crate::lock::instant::Instant;
use crate::store::redis::locator::{HashSlot, Site, Source};
use crate::store::{Fault, FaultKind};

/// Takes the requests of one lock.
#[derive(Clone)]
pub(super) struct Requests {
    /// Leads to the task that sends them, which the first request starts.
    inbox: Arc<OnceLock<mpsc::UnboundedSender<Request>>>,
    progress: Arc<watch::Sender<RequestProgress>>,
    pub(super) pool: Arc<Pool>,
    lock: LockId,
    /// Copies of each write without which it does not count.
    pub(super) copies: Option<Copies>,
}

/// How far the requests of one lock have come.
#[derive(Default)]
pub(super) struct RequestProgress {
    /// Number of requests accepted.
    accepted: usize,
    /// Number of those that were handed to a connection, or answered without one.
    served: usize,
    /// Number of the last request that no connection took.
    unsent: Option<usize>,
    /// Number of requests accepted before the last release. Any of them that is still unsent is
    /// cancelled if it would set a key.
    pub(super) cancelled: usize,
    /// Whether a request was sent that may have set a key.
    has_set: bool,
    /// Number of requests that would set or delete the key and are not left to the kernel once they
    /// are written. A member of a cluster has sent them away, or they count once they are answered.
    pub(super) away: usize,
    /// The connection on which the server answered last.
    heard: Option<Heard>,
}

/// A connection on which the server has answered.
#[derive(Clone)]
struct Heard {
    end: ConnectionEnd,
    site: Arc<Site>,
    slot: Option<HashSlot>,
    /// Whether the caller knows that it is of no use any more.
    told: bool,
}

/// A request that is not yet sent.
struct Request {
    number: usize,
    call: Call,
    /// Sent in its place to a server that has just become the primary.
    for_young: Option<ForYoung>,
    route: Route,
    effect: Effect,
    /// Copies of what it writes without which that does not count.
    copies: Option<Copies>,
    /// The channel on which the caller waits.
    channel: Option<String>,
    answer: oneshot::Sender<Reply>,
}

/// A reply, when its request was about to be sent, and to which server, if it was.
pub(super) struct Reply {
    pub(super) sent: Instant,
    pub(super) source: Option<Source>,
    pub(super) result: Result<Value, Fault>,
    /// Why what the request has written does not count, if it does not.
    pub(super) lacking: Option<Fault>,
}

/// A reply that may come.
pub(super) struct PendingReply(oneshot::Receiver<Reply>);

impl PendingReply {
    pub(super) async fn received(self) -> Reply {
        let lost = |_| {
            let why = Fault::new(FaultKind::Unknown, "the connection was given up");
            Reply {
                sent: clock::now(),
                source: None,
                result: Err(why),
                lacking: None,
            }
        };
        self.0.await.unwrap_or_else(lost)
    }
}

impl Requests {
    /// Those of a lock that nothing was asked about yet.
    pub(super) fn new(pool: Arc<Pool>, copies: Option<Copies>) -> Self {
        Self {
            inbox: Arc::default(),
            progress: Arc::default(),
            lock: pool.new_lock(),
            pool,
            copies,
        }
    }

    /// Returns what leads to the task that sends them. That ends when no caller is left.
    fn inbox(&self) -> &mpsc::UnboundedSender<Request> {
        self.inbox.get_or_init(|| {
            let (inbox, requests) = mpsc::unbounded_channel();
            let worker = Worker {
                pool: Arc::clone(&self.pool),
                lock: self.lock,
                progress: Arc::clone(&self.progress),
            };
            tokio::spawn(worker.work(requests));
            inbox
        })
    }

    /// Sends a request that sets no key.
    pub(super) fn ask(&self, call: Call) -> PendingReply {
        self.accept(call, None, Route::Newest, Effect::None, None, None)
    }

    /// Sends a request that extends the key, which must have reached as many replicas as is wanted.
    pub(super) fn extend(&self, call: Call) -> PendingReply {
        self.accept(call, None, Route::Newest, Effect::None, self.copies, None)
    }

    /// Sends a request that may set the lock's key. `channel`: the caller waits, and listens there.
    pub(super) fn set(
        &self,
        call: Call,
        for_young: Option<ForYoung>,
        channel: Option<String>,
    ) -> PendingReply {
        self.accept(
            call,
            for_young,
            Route::Newest,
            Effect::Sets(self.lock),
            self.copies,
            channel,
        )
    }

    /// Sends a release, and cancels each unsent request that would set the key. `channel`: the
    /// caller goes on waiting. `is_final`: a waiter leaves the queue by it.
    pub(super) fn release(
        &self,
        call: Call,
        channel: Option<String>,
        is_final: bool,
    ) -> PendingReply {
        self.progress
            .send_modify(|progress| progress.cancelled = progress.accepted);
        self.release_again(call, channel, is_final)
    }

    /// The same, but cancels nothing.
    pub(super) fn release_again(
        &self,
        call: Call,
        channel: Option<String>,
        is_final: bool,
    ) -> PendingReply {
        let route = if is_final {
            Route::Final
        } else {
            Route::AfterPending
        };
        // What parks the lock or leaves a success counts as a grant does.
        let copies = self.copies.filter(|_| call.least.is_none());
        self.accept(call, None, route, Effect::Frees(self.lock), copies, channel)
    }

    /// Sends a request by which a waiter leaves the queue and which frees no key, behind all that
    /// may still enter it.
    pub(super) fn leave(&self, call: Call) -> PendingReply {
        self.accept(call, None, Route::Final, Effect::None, None, None)
    }

    fn accept(
        &self,
        call: Call,
        for_young: Option<ForYoung>,
        route: Route,
        effect: Effect,
        copies: Option<Copies>,
        channel: Option<String>,
    ) -> PendingReply {
        let (answer, reply) = oneshot::channel();
        let mut number = 0;
        self.progress.send_modify(|progress| {
            number = progress.accepted;
            progress.accepted += 1;
        });
        // The task ends with the runtime only; an answer that never comes is an unknown one.
        let _ = self.inbox().send(Request {
            number,
            call,
            for_young,
            route,
            effect,
            copies,
            channel,
            answer,
        });
        PendingReply(reply)
    }

    /// Returns when the connection on which the server answered last breaks, or another server
    /// takes the requests of `slot`. Each is told once.
    pub(super) fn changed(&self, slot: Option<HashSlot>) -> impl Future<Output = ()> + use<> {
        let (progress, pool) = (Arc::clone(&self.progress), Arc::clone(&self.pool));
        async move {
            let mut news = progress.subscribe();
            loop {
                let heard = news
                    .borrow_and_update()
                    .heard
                    .clone()
                    .filter(|heard| !heard.told);
                let slot = heard.as_ref().map_or(slot, |heard| heard.slot);
                let moved = pool.locator.moved(slot);
                let ended = async {
                    match heard {
                        Some(heard) if pool.locator.is_current(&heard.site, slot) => {
                            heard.end.broke().await
                        }
                        Some(_) => true,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    broke = ended => match pool.newest(slot).filter(|_| !broke) {
                        // The connection gave way to this one, perhaps for another lock, and its
                        // end tells nothing.
                        Some(newest) => note_heard(&progress, &newest, slot),
                        None => break,
                    },
                    () = moved => break,
                    _ = news.changed() => {}
                }
            }
            progress.send_if_modified(|progress| {
                progress
                    .heard
                    .iter_mut()
                    .for_each(|heard| heard.told = true);
                false
            });
        }
    }

    /// Opens a connection that listens on `channel`, if there is none.
    pub(super) fn listen(&self, channel: Option<String>, slot: Option<HashSlot>) {
        let (progress, pool) = (Arc::clone(&self.progress), Arc::clone(&self.pool));
        tokio::spawn(async move {
            if let Ok(link) = pool
                .connection(Route::Newest, channel.as_deref(), slot)
                .await
            {
                note_heard(&progress, &link, slot);
            }
        });
    }

    /// Waits until all requests accepted so far are with the kernel or can no longer be sent.
    /// Returns at once if none could have set a key, and `false` if the last one is not with the
    /// kernel, or its connection is broken.
    pub(super) fn written(&self, limit: Duration) -> impl Future<Output = bool> + use<> {
        let (due, has_set) = {
            let progress = self.progress.borrow();
            (progress.accepted, progress.has_set)
        };
        let (mut progress, pool) = (self.progress.subscribe(), Arc::clone(&self.pool));
        async move {
            if !has_set {
                return true;
            }
            let all_flushed = async {
                let _ = progress
                    .wait_for(|progress| progress.served >= due && progress.away == 0)
                    .await;
                let mut is_sent = progress
                    .borrow()
                    .unsent
                    .is_none_or(|unsent| unsent + 1 != due);
                for connection in pool.all() {
                    is_sent &= connection.flushed().await;
                }
                is_sent
            };
            // A server that reads nothing cannot keep rlock from exiting. What it did not take dies
            // with the connection.
            clock::until(clock::now() + limit, all_flushed)
                .await
                .unwrap_or(false)
        }
    }
}

/// Sends the requests of one lock.
struct Worker {
    pool: Arc<Pool>,
    lock: LockId,
    progress: Arc<watch::Sender<RequestProgress>>,
}

impl Worker {
    async fn work(self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        while let Some(request) = inbox.recv().await {
            self.serve(request).await;
            self.progress.send_modify(|progress| progress.served += 1);
        }
    }

    async fn serve(&self, request: Request) {
        let Request {
            number,
            call,
            for_young,
            route,
            effect,
            copies,
            channel,
            answer,
        } = request;
        let slot = call.slot;
        // The time of the exchange begins before a connection is opened for it.
        let copies = copies.map(|copies| (copies, clock::now() + self.pool.limit));
        let call = Arc::new(call);
        let sets = matches!(effect, Effect::Sets(_));
        let mut is_for_the_queue = false;
        if route != Route::Newest {
            let release = self
                .pool
                .for_release(self.lock, route, channel.is_some(), slot);
            let others;
            ReleaseRoute {
                others,
                is_for_the_queue,
            } = release;
            for connection in others {
                // What another member says is not followed.
                let call = Arc::new(Call {
                    slot: None,
                    ..Call::clone(&call)
                });
                send(
                    connection,
                    self.exchange(number, call, effect, None),
                    None,
                    None,
                )
                .await;
            }
        }
        let connection = async {
            let connection = self
                .pool
                .connection(route, channel.as_deref(), slot)
                .await?;
            if sets {
                self.pool.settled(&connection, self.lock).await?;
                self.all_back(slot).await?;
            }
            Ok(connection)
        };
        let connection = tokio::select! {
            biased;
            () = self.cancelled(number), if sets || is_for_the_queue => Err(given_up()),
            connection = connection => connection,
        };
        let fault = match connection {
            // A release is unanswered there, with no SET behind it.
            Ok(connection)
                if route == Route::AfterPending
                    && connection.state().last_effect(self.lock)
                        == Some(Effect::Frees(self.lock)) =>
            {
                Fault::timeout(self.pool.limit)
            }
            Ok(connection) => {
                self.progress.send_if_modified(|progress| {
                    progress.has_set |= sets;
                    false
                });
                let for_young = for_young.filter(|young| young.is_for(&connection.site));
                let call = for_young.map_or(call, |young| {
                    Arc::new(Call {
                        command: young.command,
                        slot,
                        least: None,
                    })
                });
                let exchange = self.exchange(number, call, effect, channel);
                return send(connection, exchange, copies, Some(answer)).await;
            }
            Err(fault) => fault,
        };
        self.progress.send_if_modified(|progress| {
            progress.unsent = Some(number);
            false
        });
        let _ = answer.send(Reply {
            sent: clock::now(),
            source: None,
            result: Err(fault),
            lacking: None,
        });
    }

    fn exchange(
        &self,
        number: usize,
        call: Arc<Call>,
        effect: Effect,
        channel: Option<String>,
    ) -> Exchange {
        let (pool, progress) = (Arc::clone(&self.pool), Arc::clone(&self.progress));
        Exchange {
            pool,
            progress,
            lock: self.lock,
            number,
            call,
            effect,
            channel,
        }
    }

    /// Waits until no SET or release is on its way from one member of a cluster to another: one
    /// that is behind would be overtaken.
    async fn all_back(&self, slot: Option<HashSlot>) -> Result<(), Fault> {
        if slot.is_none() {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        let back = async {
            let _ = progress.wait_for(|progress| progress.away == 0).await;
        };
        let limit = self.pool.limit;
        let too_slow = || Fault {
            kind: FaultKind::Unavailable,
            ..Fault::timeout(limit)
        };
        clock::until(clock::now() + limit, back)
            .await
            .ok_or_else(too_slow)
    }

    /// Waits until request `number` is cancelled.
    async fn cancelled(&self, number: usize) {
        let _ = self
            .progress
            .subscribe()
            .wait_for(|progress| number < progress.cancelled)
            .await;
    }
}

/// The fault of a request that would have set the key, and was not sent before a release.
pub(super) fn given_up() -> Fault {
    Fault::new(
        FaultKind::Unavailable,
        "it was not yet asked when the lock was given up",
    )
}

/// Records that the server is heard on this connection.
fn note_heard(progress: &watch::Sender<RequestProgress>, link: &Link, slot: Option<HashSlot>) {
    progress.send_if_modified(|progress| {
        let is_known = progress
            .heard
            .as_ref()
            .is_some_and(|heard| link.is_of(&heard.end));
        if !is_known {
            progress.heard = Some(Heard {
                end: link.end(),
                site: Arc::clone(&link.site),
                slot,
                told: false,
            });
        }
        !is_known
    });
}

/// Sends a request in a task of its own: it is written, and its reply awaited, whether or not the
/// caller still waits. `copies`: those without which what it writes does not count, and the end of
/// the exchange.
async fn send(
    link: Link,
    exchange: Exchange,
    copies: Option<(Copies, Instant)>,
    answer: Option<oneshot::Sender<Reply>>,
) {
    let sent = clock::now();
    let abandoned = link.abandoned();
    let mut exchange = Box::pin(async move {
        let (link, source, result) = exchange.run(link, sent).await;
        if result.is_ok() {
            note_heard(&exchange.progress, &link, source.slot);
        }
        let lacking = match copies.filter(|_| result.as_ref().is_ok_and(reply::has_written)) {
            Some((copies, ends)) => replicas::lacking(copies, &link, ends).await,
            None => None,
        };
        (source, result, lacking)
    });
    let deliver = move |(source, result, lacking)| {
        if let Some(answer) = answer {
            let _ = answer.send(Reply {
                sent,
                source: Some(source),
                result,
                lacking,
            });
        }
    };
    // Polled once here, so that requests reach the connection in the order in which they were made.
    match futures_util::poll!(&mut exchange) {
        Poll::Ready(result) => deliver(result),
        Poll::Pending => drop(tokio::spawn(async move {
            tokio::select! {
                biased;
                result = exchange => deliver(result),
                () = abandoned => {}
            }
        })),
    }
}
