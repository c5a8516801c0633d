//! A node that is a server: Redis, Valkey, or what speaks their protocol with EVAL.
//!
//! A task of its own owns the connections, so that requests keep their order and outlive those who asked. It
//! reconnects when it must, and by nobody's leave but the caller's: nothing below `redlock` repeats a request, since a
//! repeated SET NX would lose to itself.

pub mod acl;
pub mod client;
pub mod connection;
mod dial;
pub mod probe;
pub mod reply;
pub mod scan;
mod script;
pub mod tls;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    Answer, Claim, Fault, FaultKind, ForceUnlock, Heal, Node, Pending, QueueAction, Release, ReleaseReply, Renew,
    Renewal, Vote, Wake,
};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::key::{Derived, Key};
use crate::lock::lease::Revoked;
use crate::lock::observation::Observation;
use crate::lock::queue::Waiter;
use crate::lock::restart;
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use connection::{Access, Connection, Effect, REPLY_LIMIT, is_from_a_replica, wait_for};

/// How long a fence counter is kept after its last use, at least.
const FENCE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a queue is kept after a waiter last looked. Waiters look every minute.
const QUEUE_LIFE: Duration = Duration::from_secs(600);

/// So many bytes of those who wait are told for a look, at most, for each who is asked for.
const WAITER_ROOM: usize = 128;

/// What there is to read of a look: a value of a KiB, whatever it is, and some who wait.
const LOOK_ROOM: usize = 40 * 1024;

/// Connections without an answer that are kept for their late replies; the oldest beyond that is closed, or a node that
/// accepts connections and never answers would use up our descriptors.
const KEPT_LINKS: usize = 4;

/// Words to one who waits that are kept until they are heeded: each is followed by a look, which the rest would only repeat.
const KEPT_WAKES: usize = 16;

/// The files of `scripts/`, one after the other, without what only people read.
macro_rules! script {
    ($($name:literal),+) => {{
        const FILES: &str = concat!($(include_str!(concat!("scripts/", $name)), "
"),+);
        const CODE: [u8; script::length(FILES)] = script::code(FILES);
        script::text(&CODE)
    }};
}

const ACQUIRE: &str = script!("peek.lua", "queue.lua", "turn.lua", "acquire.lua");
const RENEW: &str = script!("peek.lua", "renew.lua");
const HEAL: &str = script!("peek.lua", "heal.lua");
const ENTOMB: &str = script!("peek.lua", "tombstone.lua");
const REMOVE: &str = script!("peek.lua", "queue.lua", "force_delete.lua");
const CLEAR: &str = script!("peek.lua", "queue.lua", "delete_foreign.lua");
const LOOK: &str = script!("peek.lua", "observe.lua");
const RELEASE: &str = script!("peek.lua", "queue.lua", "release.lua");

/// A server.
pub struct RedisNode {
    name: String,
    limit: Duration,
    desk: Desk,
    /// Word for one who waits.
    wakes: Arc<tokio::sync::Mutex<mpsc::Receiver<Wake>>>,
}

/// Hands requests to the node's task.
#[derive(Clone)]
struct Desk {
    requests: mpsc::UnboundedSender<Request>,
    links: Arc<Pool>,
}

/// The connections that the node's task has, newest last.
#[derive(Default)]
struct Pool {
    open: Mutex<Vec<Connection>>,
    /// Requests accepted so far.
    accepted: AtomicUsize,
    /// Of these, the ones handed to a connection or answered without one.
    served: AtomicUsize,
    /// How many had been accepted when the lock was last released: of them, those not yet sent must set nothing any more.
    void: AtomicUsize,
    /// Whether anything was sent that may have set a key.
    has_set: AtomicBool,
    /// Told whenever `served` or `void` changes.
    changed: Notify,
}

struct Request {
    number: usize,
    command: Cmd,
    route: Route,
    effect: Effect,
    /// The channel that must be listened to before.
    channel: Option<String>,
    answer: oneshot::Sender<Reply>,
}

/// Which connection a request takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// The newest that works, else a new one.
    Usual,
    /// A new one: the newest has not answered.
    Anew,
    /// Behind every request that may still set a key, and on the newest; nowhere where such a one is on its way already.
    Behind,
    /// The same, and as the last word there.
    Last,
}

impl Route {
    fn usual_or(anew: bool) -> Self {
        if anew { Self::Anew } else { Self::Usual }
    }

    fn is_behind(self) -> bool {
        matches!(self, Self::Behind | Self::Last)
    }
}

/// A reply, and when its request was about to be sent.
struct Reply {
    sent: Instant,
    result: Result<Value, Fault>,
}

impl RedisNode {
    /// A node that connects when it is first asked. `limit` bounds each exchange, connecting included.
    pub fn new(access: Access, limit: Duration) -> Self {
        Self::with_room(access, limit, REPLY_LIMIT)
    }

    /// The same, for `looks` at once at locks and at few who wait for them, or one at many.
    pub fn for_looks(access: Access, limit: Duration, looks: usize) -> Self {
        Self::with_room(access, limit, looks * LOOK_ROOM)
    }

    fn with_room(access: Access, limit: Duration, room: usize) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel();
        let links = Arc::new(Pool::default());
        let name = access.server.to_string();
        let (told, wakes) = mpsc::channel(KEPT_WAKES);
        tokio::spawn(Worker { access, limit, room, links: Arc::clone(&links), told }.work(inbox));
        Self { name, limit, desk: Desk { requests, links }, wakes: Arc::new(tokio::sync::Mutex::new(wakes)) }
    }

    fn ask(&self, command: Cmd, route: Route, effect: Effect) -> oneshot::Receiver<Reply> {
        self.desk.ask(command, route, effect, None)
    }

    fn newest(&self) -> Option<Connection> {
        self.desk.links.lock().last().cloned()
    }
}

impl Desk {
    fn ask(&self, command: Cmd, route: Route, effect: Effect, channel: Option<String>) -> oneshot::Receiver<Reply> {
        let (answer, reply) = oneshot::channel();
        let number = self.links.accepted.fetch_add(1, Ordering::Relaxed);
        // The task ends with the runtime only; an answer that never comes is an unknown one.
        let _ = self.requests.send(Request { number, command, route, effect, channel, answer });
        reply
    }
}

impl Pool {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections on which a release must be written besides the one that it will take; and whether that is yet to be
    /// opened though there is one that works, which does not serve one who `waits` since it does not listen. Nothing of ours was
    /// asked on that then but what has its release already, and a place given to us there would be a turn that we do not hear of.
    fn behind(&self, waits: bool) -> (Vec<Connection>, bool) {
        let open = self.lock();
        let takes_it = open.last().is_some_and(|link| link.serves(waits));
        let is_for_the_place = !takes_it && open.last().is_some_and(Connection::works);
        let behind = |link: &&Connection| link.owes_a_release() || link.may_still_set() && link.serves(waits);
        (open.iter().rev().skip(usize::from(takes_it)).filter(behind).cloned().collect(), is_for_the_place)
    }

    /// Comes true when request `number` must set nothing any more.
    async fn voided(&self, number: usize) {
        wait_for(&self.changed, || number < self.void.load(Ordering::Relaxed)).await;
    }

    /// Comes true when so many requests have been served.
    async fn served(&self, due: usize) {
        wait_for(&self.changed, || self.served.load(Ordering::Relaxed) >= due).await;
    }
}

struct Worker {
    access: Access,
    limit: Duration,
    /// The most that may be read between two requests.
    room: usize,
    links: Arc<Pool>,
    told: mpsc::Sender<Wake>,
}

impl Worker {
    async fn work(self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        while let Some(request) = inbox.recv().await {
            self.serve(request).await;
            self.links.served.fetch_add(1, Ordering::Relaxed);
            self.links.changed.notify_waiters();
        }
    }

    async fn serve(&self, request: Request) {
        let Request { number, command, route, effect, channel, answer } = request;
        let command = Arc::new(command);
        let (sets, waits) = (effect == Effect::Sets, channel.is_some());
        let mut is_for_the_place = false;
        if route.is_behind() {
            let behind;
            (behind, is_for_the_place) = self.links.behind(waits);
            for link in behind {
                send(link.clone(), Arc::clone(&command), effect, None).await;
                link.released();
            }
        }
        let link = async {
            let link = self.link(route, channel.as_deref()).await?;
            if sets {
                self.settled(&link).await?;
            }
            Ok(link)
        };
        let link = tokio::select! {
            biased;
            () = self.links.voided(number), if sets || is_for_the_place => {
                Err(Fault::new(FaultKind::Unavailable, "it was not yet asked when the lock was given up"))
            }
            link = link => link,
        };
        let refused = match link {
            // It hangs, and nothing was asked since the release that it has not answered. Of a pile of them it would not read
            // the last one, by which we leave (see `settled`).
            Ok(link) if route == Route::Behind && link.is_being_released() => Fault::timeout(self.limit),
            Ok(link) => {
                self.links.has_set.fetch_or(sets, Ordering::Relaxed);
                send(link.clone(), command, effect, Some(answer)).await;
                if route.is_behind() {
                    link.released();
                }
                return;
            }
            Err(fault) => fault,
        };
        let _ = answer.send(Reply { sent: clock::now(), result: Err(refused) });
    }

    async fn link(&self, route: Route, channel: Option<&str>) -> Result<Connection, Fault> {
        if route != Route::Anew
            && let Some(newest) = self.links.lock().last().filter(|link| link.serves(channel.is_some()))
        {
            return Ok(newest.clone());
        }
        if let Some(newest) = self.too_many() {
            return Ok(newest);
        }
        let ends = clock::now() + self.limit;
        let link = match channel {
            None => self.open(None, ends).await?,
            Some(channel) => match self.open(Some(self.told.clone()), ends).await {
                Ok(link) => {
                    link.subscribe(channel).await;
                    link
                }
                // An ACL without HELLO, or a server that does not know it: then the waiter looks for itself.
                Err(Fault { kind: FaultKind::Refused | FaultKind::Unfit, .. }) => self.open(None, ends).await?.deaf(),
                Err(fault) => return Err(fault),
            },
        };
        let mut open = self.links.lock();
        open.retain(|link| link.may_still_set() || channel.is_none() && link.works());
        if open.len() >= KEPT_LINKS
            && let Some(settled) = open.iter().position(|link| !link.owes_a_release())
        {
            open.remove(settled).give_up();
        }
        open.push(link.clone());
        Ok(link)
    }

    /// Waits until no request that may set the key, and no release, is unanswered on `link`: of more than one of the former and
    /// its release, a server that hangs would not read all when it wakes. It reads so much at a time (Redis 6.2: 16 KiB), and
    /// no further once it finds that it cannot answer, which is so when we have ended. A SET at the end of what was read would
    /// stay, or our place in the queue.
    async fn settled(&self, link: &Connection) -> Result<(), Fault> {
        let unsettled = || Err(Fault { kind: FaultKind::Unavailable, ..Fault::timeout(self.limit) });
        clock::until(clock::now() + self.limit, link.settled()).await.map_or_else(unsettled, Ok)
    }

    /// The newest connection, if there are as many as are kept and none may be closed: on each of them a key may still be
    /// set that only a release on the same connection would undo.
    fn too_many(&self) -> Option<Connection> {
        let open = self.links.lock();
        let full = open.len() >= KEPT_LINKS && open.iter().all(Connection::owes_a_release);
        open.last().filter(|_| full).cloned()
    }

    async fn open(&self, told: Option<mpsc::Sender<Wake>>, ends: Instant) -> Result<Connection, Fault> {
        // Boxed: opening is rare and its state large, and would be part of every future above it.
        // Nothing was sent yet, so a connection that is slow to open leaves nothing unknown behind.
        let slow = || Err(Fault { kind: FaultKind::Unavailable, ..Fault::timeout(self.limit) });
        clock::until(ends, Box::pin(Connection::open(&self.access, self.room, self.limit, told)))
            .await
            .unwrap_or_else(slow)
    }
}

/// Sends `command` in a task of its own: it is written, and its reply awaited, whether or not anybody still listens.
async fn send(link: Connection, command: Arc<Cmd>, effect: Effect, answer: Option<oneshot::Sender<Reply>>) {
    let sent = clock::now();
    let given_up = link.given_up();
    let mut exchange = Box::pin(async move { link.send(&command, effect).await });
    let deliver = move |result| {
        if let Some(answer) = answer {
            let _ = answer.send(Reply { sent, result });
        }
    };
    // Polled once here, so that requests reach the connection in the order in which they were made.
    match futures_util::poll!(&mut exchange) {
        Poll::Ready(result) => deliver(result),
        Poll::Pending => drop(tokio::spawn(async move {
            tokio::select! {
                biased;
                result = exchange => deliver(result),
                () = given_up => {}
            }
        })),
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim, anew: bool) -> Pending<Answer> {
        let (fence, [queue, offer, watch]) = (claim.key.derived(Derived::Fence), line(&claim.key));
        let mut command = eval(ACQUIRE, &[claim.key.stored(), &fence, &queue, &offer, &watch]);
        command
            .arg(claim.details.value(claim.token))
            .arg(millis(claim.term.ttl()))
            .arg(claim.fence_hint)
            .arg(fence_life(claim.term));
        command.arg(claim.min_uptime.map_or_else(String::new, |span| restart::least_uptime(span).to_string()));
        command
            .arg(in_queue(claim.ticket.as_ref().map(|ticket| &ticket.waiter)))
            .arg(claim.ticket.as_ref().map_or(0, |ticket| ticket.number))
            .arg(millis(QUEUE_LIFE));
        command.arg(if claim.details.n == 1 { "1" } else { "" });
        let channel = claim.ticket.as_ref().map(|ticket| ticket.waiter.channel());
        let reply = self.desk.ask(command, Route::usual_or(anew), Effect::Sets, channel);
        let term = claim.term;
        Box::pin(async move {
            let Reply { sent, result } = received(reply).await;
            let answer = result.and_then(|value| reply::answer(&value, term.end(sent)));
            answer.unwrap_or_else(|fault| Vote::Failed(fault).into())
        })
    }

    fn renew(&self, renew: &Renew, anew: bool) -> Pending<Renewal> {
        let mut command = eval(RENEW, &[renew.key.stored(), &renew.key.derived(Derived::Fence)]);
        command.arg(renew.token.to_string()).arg(millis(renew.term.ttl()));
        command.arg(renew.fence.get()).arg(fence_life(renew.term));
        renewal(renew.term, self.ask(command, Route::usual_or(anew), Effect::None), false)
    }

    fn heal(&self, heal: &Heal, anew: bool) -> Pending<Renewal> {
        let Renew { key, token, fence, term } = &heal.renew;
        let [counter, queue] = [Derived::Fence, Derived::Queue].map(|kind| key.derived(kind));
        let mut command = eval(HEAL, &[key.stored(), &counter, &queue]);
        command.arg(token.to_string()).arg(heal.details.value(*token)).arg(millis(term.ttl()));
        command.arg(fence.get()).arg(fence_life(*term)).arg(in_queue(heal.waiter.as_ref()));
        command.arg(heal.told.map_or_else(String::new, |counter| counter.to_string()));
        renewal(*term, self.ask(command, Route::usual_or(anew), Effect::Sets), true)
    }

    fn observe(&self, key: &Key, max_waiters: usize) -> Pending<Result<Observation, Fault>> {
        let mut command = eval(LOOK, &[key.stored(), &key.derived(Derived::Fence), &key.derived(Derived::Queue)]);
        command.arg(max_waiters).arg(max_waiters * WAITER_ROOM);
        let reply = self.ask(command, Route::Usual, Effect::None);
        Box::pin(async move {
            let Reply { sent, result } = received(reply).await;
            result.and_then(|value| reply::observation(&value, sent))
        })
    }

    fn force_unlock(&self, key: &Key, how: ForceUnlock) -> Pending<Result<Option<Revoked>, Fault>> {
        let [queue, offer, watch] = line(key);
        let command = match how {
            ForceUnlock::Tombstone(token, tombstone) => {
                let mut command = eval(ENTOMB, &[key.stored()]);
                command.arg(token.to_string()).arg(tombstone);
                command
            }
            ForceUnlock::Delete(token, fence) => {
                let mut command = eval(REMOVE, &[key.stored(), &key.derived(Derived::Fence), &queue, &offer, &watch]);
                command.arg(token.to_string()).arg(fence).arg(millis(FENCE_LIFE));
                command
            }
            ForceUnlock::DeleteForeign(seen) => {
                let mut command = eval(CLEAR, &[key.stored(), &queue, &offer, &watch]);
                command.arg(&seen.kind).arg(seen.length).arg(&seen.head);
                command
            }
        };
        let reply = self.ask(command, Route::Usual, Effect::None);
        Box::pin(async move { received(reply).await.result.and_then(|value| reply::standing(&value, "forced")) })
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        let command = release_command(&release.key, Some(release.token), &release.queue);
        self.desk.links.void.store(self.desk.links.accepted.load(Ordering::Relaxed), Ordering::Relaxed);
        self.desk.links.changed.notify_waiters();
        let channel = if let QueueAction::Keep(ticket) = &release.queue { Some(ticket.waiter.channel()) } else { None };
        let route = if let QueueAction::Leave(_) = release.queue { Route::Last } else { Route::Behind };
        let desk = self.desk.clone();
        let ask = move || desk.ask(command.clone(), route, Effect::Frees, channel.clone());
        let reply = ask();
        Box::pin(async move {
            let mut result = received(reply).await.result;
            if is_from_a_replica(&result) {
                // The key is on the new primary. No caller repeats a release, and a second one does no harm.
                result = received(ask()).await.result;
            }
            match result.and_then(|value| reply::standing(&value, "released")) {
                Ok(None) => ReleaseReply::Released,
                Ok(Some(revoked)) => ReleaseReply::NotOurs(revoked),
                Err(fault) => ReleaseReply::Failed(fault),
            }
        })
    }

    fn leave(&self, key: &Key, waiter: &Waiter) -> Pending<()> {
        let command = release_command(key, None, &QueueAction::Leave(waiter.clone()));
        let reply = self.ask(command, Route::Usual, Effect::None);
        Box::pin(async move { drop(received(reply).await) })
    }

    fn wake(&self) -> Pending<Wake> {
        let wakes = Arc::clone(&self.wakes);
        Box::pin(async move {
            match wakes.lock().await.recv().await {
                Some(wake) => wake,
                None => std::future::pending().await,
            }
        })
    }

    fn listens(&self) -> bool {
        self.newest().is_some_and(|link| link.listens() && link.works())
    }

    fn is_deaf(&self) -> bool {
        self.newest().is_some_and(|link| link.is_for_waiting() && !link.listens())
    }

    fn broken(&self) -> Pending<()> {
        match self.newest() {
            Some(link) => Box::pin(link.broken()),
            None => Box::pin(std::future::pending()),
        }
    }

    fn written(&self) -> Pending<()> {
        let links = Arc::clone(&self.desk.links);
        let limit = self.limit;
        let due = links.accepted.load(Ordering::Relaxed);
        if !links.has_set.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(async move {
            let all_written = async {
                links.served(due).await;
                let open: Vec<Connection> = links.lock().clone();
                for link in open {
                    link.written().await;
                }
            };
            // A peer that takes nothing cannot hold rlock back for ever; what it did not take dies with the connection.
            clock::until(clock::now() + limit, all_written).await;
        })
    }
}

/// Where those who wait for the lock stand, whose turn it is, and who sees to it that it goes.
fn line(key: &Key) -> [String; 3] {
    [Derived::Queue, Derived::Offer, Derived::Standby].map(|kind| key.derived(kind))
}

fn eval(script: &'static str, keys: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys);
    command
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the waiter's entry in the queue; empty if there is no waiter.
fn in_queue(waiter: Option<&Waiter>) -> String {
    waiter.map_or_else(String::new, Waiter::to_string)
}

/// `token`: `None` if only the queue is left.
fn release_command(key: &Key, token: Option<Token>, queue: &QueueAction) -> Cmd {
    let [entries, offer, watch] = line(key);
    let mut command = eval(RELEASE, &[key.stored(), &entries, &offer, &watch]);
    command.arg(token.map_or_else(String::new, |token| token.to_string()));
    match queue {
        QueueAction::None => command.arg("").arg(""),
        QueueAction::Leave(waiter) => command.arg(in_queue(Some(waiter))).arg(""),
        QueueAction::Keep(ticket) => command.arg(in_queue(Some(&ticket.waiter))).arg(ticket.number),
    };
    command.arg(millis(QUEUE_LIFE));
    command
}

fn fence_life(term: Term) -> u64 {
    millis(FENCE_LIFE.max(term.ttl() * 2))
}

async fn received(reply: oneshot::Receiver<Reply>) -> Reply {
    let gone =
        |_| Reply { sent: clock::now(), result: Err(Fault::new(FaultKind::Unknown, "the connection was given up")) };
    reply.await.unwrap_or_else(gone)
}

/// What came of a renewal; `keeps`: it extends a tombstone too.
fn renewal(term: Term, reply: oneshot::Receiver<Reply>, keeps: bool) -> Pending<Renewal> {
    Box::pin(async move {
        let Reply { sent, result } = received(reply).await;
        let until = term.end(sent);
        result.map_or_else(Renewal::Failed, |value| reply::renewal(&value, until, keeps))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a waiter may write to a server that hangs: a request for the lock, the release behind it, and the release by which
    /// it leaves. Redis 6.2 reads 16 KiB of that, and no more of a client that has gone. The rest is for a key and a note of
    /// usual length.
    #[test]
    fn a_request_and_both_releases_fit_into_what_a_server_reads_at_once() {
        const ARGUMENTS: usize = 1536;
        let size = ACQUIRE.len() + 2 * RELEASE.len() + ARGUMENTS;
        assert!(size <= 16 * 1024, "{size} bytes");
    }
}
