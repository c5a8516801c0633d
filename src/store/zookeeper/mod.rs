//! A lock in a ZooKeeper ensemble, in one line with Curator's and kazoo's locks at its path.
//!
//! 1. A lock is a line of znodes (`line`), each of which ends with the session of its client. A
//!    place in the line becomes the lock.
//! 2. Each lock has a session of its own, over one connection (`wire`) to one server of the ensemble
//!    (`ensemble`). `enter` begins it, `place` keeps and proves it, `wait` listens, `release` ends it,
//!    and `remains` leaves something behind.
//! 3. Runs with slots stand in that line too, and share the leases of Curator's semaphore (`view`,
//!    `slots`).
//! 4. `visit` looks at a lock, and changes entries of other clients. `listing` finds the locks.
//!
//! An answered ping proves nothing: a follower that is cut off from its leader answers pings. So a
//! tenure counts from an exchange that the leader took part in (docs/zookeeper.md, The lease).

pub(in crate::store) mod address;
pub mod ensemble;
mod enter;
mod examine;
mod inbox;
pub mod jute;
mod line;
mod listing;
mod path;
mod place;
mod release;
mod remains;
mod second;
mod slots;
mod supersede;
mod view;
mod visit;
mod wait;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::ensemble::Ensemble;
use self::inbox::Command;
use self::path::LockPath;
use self::place::Keeper;
use super::{
    Answer, Claim, Denied, Examination, Fault, FaultKind, Feature, Hint, Keep, Lacking, Listing,
    Look, Node, Pages, Pending, Plan, Queue, QueueAction, Release, ReleaseReply, Renewal, Store,
    TakeAway, Vote, Wakes, ready,
};
use crate::clock;
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::messages::Observation;
use crate::lock::queue::Waiter;
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::net::dial::HostDial;
use crate::store::net::hint_queue::HintQueue;
use crate::store::net::quorum::{QuorumAccess, QuorumAddress};
use crate::store::net::unwritten::Writes;
use crate::text::duration;

/// The features that ZooKeeper lacks, so far.
pub const LACKING: Lacking = &[
    (
        Feature::TimeLeft,
        "needs Redis or etcd: ZooKeeper does not tell how long a session has; use renew",
    ),
    (Feature::Copies, FOR_REDIS),
    (Feature::OtherForms, FOR_REDIS),
    (
        Feature::RestartGuard,
        "is for Redis: the servers of an ensemble forget nothing",
    ),
];

const FOR_REDIS: &str = "is for Redis";

/// An ensemble.
pub struct ZooKeeperStore {
    name: String,
    address: QuorumAddress,
    ensemble: Arc<Ensemble>,
}

impl ZooKeeperStore {
    /// An ensemble that is connected to when it is first asked. Each exchange takes `limit` at
    /// most.
    pub fn new(address: &QuorumAddress, access: QuorumAccess, limit: Duration) -> Self {
        let dial = ensemble::dial(access.trust.as_ref());
        Self::over(address, access, dial, limit)
    }

    /// The same, over streams that `dial` opens.
    pub fn over(
        address: &QuorumAddress,
        access: QuorumAccess,
        dial: HostDial,
        limit: Duration,
    ) -> Self {
        Self {
            name: address.to_string(),
            address: address.clone(),
            ensemble: Arc::new(Ensemble::new(access, dial, limit)),
        }
    }
}

/// Checks the name of a lock at `address`. Errors are for people.
pub fn check_key(address: &QuorumAddress, key: &Key) -> Result<(), String> {
    LockPath::of(&address.path, key).map(drop)
}

impl Store for ZooKeeperStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &Key) -> Box<dyn Node> {
        Box::new(ZooKeeperNode {
            name: self.name.clone(),
            path: LockPath::of(&self.address.path, key),
            ensemble: Arc::clone(&self.ensemble),
            shared: Arc::default(),
            commands: Mutex::default(),
        })
    }

    fn listing(&self) -> Option<&dyn Listing> {
        Some(self)
    }

    fn examine(&self, plan: &Plan) -> Pending<Result<Examination, Fault>> {
        let (ensemble, address) = (Arc::clone(&self.ensemble), self.address.clone());
        let plan = plan.clone();
        Box::pin(async move { examine::examination(&ensemble, &address, &plan).await })
    }
}

impl Listing for ZooKeeperStore {
    fn pages(&self, prefix: &str) -> Pages {
        listing::pages(Arc::clone(&self.ensemble), &self.address.path, prefix)
    }
}

/// State that a node and its keeper share.
#[derive(Default)]
struct Shared {
    hints: HintQueue,
    /// Releases, and what takes a lock away.
    writes: Writes,
    /// Whether the server tells the waiter or the holder when it is to ask again.
    wakes: AtomicBool,
}

/// A lock of an ensemble.
struct ZooKeeperNode {
    name: String,
    path: Result<LockPath, String>,
    ensemble: Arc<Ensemble>,
    shared: Arc<Shared>,
    /// To the keeper of the place, from the first command on.
    commands: Mutex<Option<mpsc::UnboundedSender<Command>>>,
}

impl ZooKeeperNode {
    /// Sends the keeper a command, and returns its reply. It is on its way when this returns.
    fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Pending<Result<T, Fault>> {
        let (reply, answer) = oneshot::channel();
        let path = match &self.path {
            Ok(path) => path.clone(),
            Err(why) => return ready(Err(unfit_name(why))),
        };
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = commands.get_or_insert_with(|| {
            let (sender, inbox) = mpsc::unbounded_channel();
            let keeper = Keeper::new(Arc::clone(&self.ensemble), path, Arc::clone(&self.shared));
            tokio::spawn(keeper.run(inbox));
            sender
        });
        // The keeper lives as long as the runtime.
        let _ = sender.send(command(reply));
        let limit = self.ensemble.limit();
        // The keeper answers no more once the limit is over, or a release has come.
        Box::pin(async move { answer.await.map_err(|_| Fault::timeout(limit)) })
    }

    /// Begins a visit, whose outcome may be waited for or not.
    fn visit<T: Send + 'static>(
        &self,
        visit: impl FnOnce(
            Arc<Ensemble>,
            LockPath,
        ) -> futures_util::future::BoxFuture<'static, Result<T, Fault>>,
    ) -> Pending<Result<T, Fault>> {
        let path = match &self.path {
            Ok(path) => path.clone(),
            Err(why) => return ready(Err(unfit_name(why))),
        };
        let limit = self.ensemble.limit();
        let ensemble = Arc::clone(&self.ensemble);
        let visit = visit(Arc::clone(&ensemble), path);
        let task = tokio::spawn(async move {
            let visited = clock::until(clock::now() + limit, visit).await;
            visited.unwrap_or_else(|| {
                ensemble.turn();
                Err(Fault::timeout(limit))
            })
        });
        Box::pin(async move {
            let ended = |_| Err(Fault::timeout(limit));
            task.await.unwrap_or_else(ended)
        })
    }
}

impl Node for ZooKeeperNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let answer = self.ask(|reply| Command::Acquire(Box::new(claim.clone()), reply));
        Box::pin(async move {
            answer
                .await
                .unwrap_or_else(|fault| Vote::Failed(fault).into())
        })
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        let renewal = self.ask(|reply| Command::Keep(keep.token, keep.term, reply));
        Box::pin(async move { renewal.await.unwrap_or_else(Renewal::Failed) })
    }

    fn look(&self, look: Look) -> Pending<Result<Observation, Fault>> {
        self.visit(move |ensemble, path| {
            Box::pin(async move { visit::look(&ensemble, &path, look).await })
        })
    }

    fn take_away(&self, how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        let unwritten = self.shared.writes.begin();
        self.visit(move |ensemble, path| {
            Box::pin(async move {
                let _unwritten = unwritten;
                visit::take_away(&ensemble, &path, &how).await
            })
        })
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        // The token is the place's, so an attempt that failed has left nothing else.
        if matches!(release.queue, QueueAction::Keep(_)) {
            return ready(ReleaseReply::NotOurs(Revoked::Missing));
        }
        let (release, unwritten) = (Box::new(release.clone()), self.shared.writes.begin());
        let released = self.ask(|reply| Command::Release(release, unwritten, reply));
        Box::pin(async move { released.await.unwrap_or_else(ReleaseReply::Failed) })
    }

    fn next(&self) -> Pending<Hint> {
        self.shared.hints.next()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn settled(&self, limit: Duration) -> Pending<bool> {
        self.shared.writes.written(limit)
    }
}

impl Queue for ZooKeeperNode {
    fn leave(&self, _waiter: &Waiter) -> Pending<()> {
        let unwritten = self.shared.writes.begin();
        let left = self.ask(|reply| Command::Leave(unwritten, reply));
        Box::pin(async move { drop(left.await) })
    }

    fn becomes_the_lock(&self) -> bool {
        true
    }

    fn listen(&self, token: Token) {
        drop(self.ask(|reply| Command::Listen(token, reply)));
    }

    fn wakes(&self) -> Wakes {
        if self.shared.wakes.load(Ordering::Relaxed) {
            Wakes::Yes
        } else {
            Wakes::No
        }
    }
}

/// The fault of a name that no znode can have.
fn unfit_name(why: &str) -> Fault {
    Fault::unfit(format!("the name {why}"), "choose another one")
}

/// The way to the rights. ZooKeeper gives a wrong password none, and does not refuse it.
const RIGHTS: &str = "give the user the rights cdrwa on the lock's znode and on the one above it, and see the password: ZooKeeper does not tell that it is wrong";

/// The fault of an error's code.
fn refused(code: i32) -> Fault {
    use jute::error::{
        AUTH_FAILED, NO_AUTH, NO_CHILDREN_FOR_EPHEMERALS, NO_NODE, SESSION_EXPIRED, UNIMPLEMENTED,
    };
    match code {
        NO_AUTH => Fault::denied(
            Denied::Key,
            "NoAuth: the lock's znode does not allow this user to use it",
            RIGHTS,
        ),
        AUTH_FAILED => Fault::denied(
            Denied::Login,
            "AuthFailed: the server refuses the user and the password",
            "give the right user and password, as in zookeeper://user@host and --password-file",
        ),
        NO_CHILDREN_FOR_EPHEMERALS => Fault::unfit(
            "a znode above the lock's ends with a session, and has no children",
            "give another name, or another chroot",
        ),
        UNIMPLEMENTED => Fault::unfit(
            "it knows no containers, which came with ZooKeeper 3.5",
            "upgrade it",
        ),
        SESSION_EXPIRED => Fault::new(FaultKind::Unavailable, "the session is over"),
        NO_NODE => Fault::new(
            FaultKind::Unavailable,
            "the lock's znode was deleted meanwhile",
        ),
        _ => Fault::new(FaultKind::Unavailable, format!("ZooKeeper's error {code}")),
    }
}

/// The fault of an ensemble whose sessions are too short.
fn unfit_session(longest: Duration, term: Term) -> Fault {
    let (longest, needed) = (duration::show(longest), duration::show(term.ttl()));
    Fault::unfit(
        format!("its longest session is {longest}, and the lock needs {needed}"),
        "give a shorter --ttl or --lock-delay, or raise maxSessionTimeout",
    )
}
