//! A client of one lock, as scenarios need it: a request at a time, and what its reply must be.

use std::time::{Duration, SystemTime};

use rlock::lock::blocker::Blocker;
use rlock::lock::details::Details;
use rlock::lock::fence::{self, Fence};
use rlock::lock::instant::Instant;
use rlock::lock::key::Key;
use rlock::lock::last::Run;
use rlock::lock::messages::Observation;
use rlock::lock::mode::Mode;
use rlock::lock::occupant::{Occupant, OccupantKind};
use rlock::lock::queue::{Ticket, Waiter};
use rlock::lock::remains::Remains;
use rlock::lock::schedule::{Schedule, ScheduleOptions, Term};
use rlock::lock::token::Token;
use rlock::store::{
    Claim, Fault, Hint, Look, Node, Pending, Queue, QueueAction, Release, ReleaseReply, Renewal,
    Vote, Wake,
};
use uuid::Uuid;

use super::{Wire, World};
use crate::{LIMIT, skipped};

/// TTL of a lease that ends in no test.
const LONG: Duration = Duration::from_secs(600);

/// Longest exchange of most clients, and of one that meets a fault.
pub(super) const PATIENT: Duration = Duration::from_secs(10);
pub(super) const IMPATIENT: Duration = Duration::from_millis(200);

/// Time for which a free lock is kept for the waiter whose turn it is.
const TURN: Duration = Duration::from_millis(500);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// A client: a node of its own, and what it asks for.
pub struct Client {
    /// Its node.
    pub node: Box<dyn Node>,
    /// Its last request for the lock.
    pub claim: Claim,
    /// The wire of its connections.
    pub wire: Wire,
    /// Longest time that it waits for a reply.
    limit: Duration,
    /// Fence and end of its last grant.
    grant: Option<(Fence, Instant)>,
}

impl Client {
    pub(super) fn new(world: &dyn World, key: &Key, mode: Mode, limit: Duration) -> Self {
        let wire = Wire::default();
        let node = world.open(&wire, limit).open(key);
        let details = Details {
            mode,
            host: "web1".to_owned(),
            cmd: "backup".to_owned(),
            n: 1,
            ..Details::default()
        };
        let claim = Claim {
            token: Token::fresh(),
            details,
            fence_hint: fence::hint(SystemTime::now()),
            term: term(LONG),
            guarded: None,
            ticket: None,
            index: u16::from(mode.number().is_some()),
            is_exact: false,
            outer: Vec::new(),
        };
        Self {
            node,
            claim,
            wire,
            limit,
            grant: None,
        }
        .with_ttl(LONG)
    }

    /// This client, whose lease is `ttl` long.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.claim.term = term(ttl);
        self.claim.details.ttl = u64::try_from(ttl.as_millis()).expect("a time");
        self
    }

    /// This client, which waits in the line at `place`.
    pub fn in_line(mut self, place: u8) -> Self {
        let waiter = Waiter {
            id: Uuid::new_v4(),
            host: format!("web{place}"),
            pid: 1,
            since: 1,
            mode: self.claim.details.mode,
            user: "deploy".to_owned(),
            note: None,
        };
        self.claim.ticket = Some(Ticket {
            waiter,
            number: u64::from(place),
            supersedes: None,
        });
        self
    }

    /// This client, which ends the waiters that came earlier.
    pub fn superseding(mut self) -> Self {
        let ticket = self.claim.ticket.as_mut().expect("a waiter");
        ticket.supersedes = Some(ticket.number);
        self
    }

    /// Returns its name among waiters.
    pub fn id(&self) -> Uuid {
        self.claim.ticket.as_ref().expect("a waiter").waiter.id
    }

    /// Returns its token.
    pub fn token(&self) -> Token {
        self.claim.token
    }

    /// Returns the fence of its last grant.
    pub fn fence(&self) -> Fence {
        self.grant.expect("a grant").0
    }

    /// Returns the end of its last grant.
    pub fn until(&self) -> Instant {
        self.grant.expect("a grant").1
    }

    /// Asks for the lock, with a token of its own as each attempt has, or with that of its place in
    /// the line if that becomes the lock.
    pub async fn vote(&mut self) -> Vote {
        if self.claim.ticket.is_none() || !self.node.queue().is_some_and(Queue::becomes_the_lock) {
            self.claim.token = Token::fresh();
        }
        let answer = self.in_time(self.node.acquire(&self.claim)).await;
        let vote = answer.map_or_else(Vote::Failed, |answer| answer.vote);
        if let Vote::Granted {
            until,
            fence,
            index,
        } = vote
        {
            self.claim.index = index;
            self.grant = Some((fence, until));
        }
        vote
    }

    /// Asks for the lock, and returns whether it has it.
    pub async fn is_granted(&mut self) -> bool {
        matches!(self.vote().await, Vote::Granted { .. })
    }

    /// Takes the lock, which must be free.
    #[track_caller]
    pub fn takes(&mut self) -> impl Future<Output = Fence> {
        let caller = std::panic::Location::caller();
        async move {
            let vote = self.vote().await;
            assert!(matches!(vote, Vote::Granted { .. }), "{caller}: {vote:?}");
            self.fence()
        }
    }

    /// Takes the lock as soon as it is free.
    pub async fn takes_in_time(&mut self) -> Fence {
        within("the lock is free", async {
            while !self.is_granted().await {
                // What was not answered may be granted yet.
                self.gives_back().await;
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
        self.fence()
    }

    /// Asks for the lock, which `holder` must have.
    pub async fn meets(&mut self, holder: &Self) {
        match self.vote().await {
            Vote::Blocked(Blocker::Occupant(met)) => {
                assert!(is_of(&met, holder.token()), "{met:?}");
            }
            vote => panic!("{vote:?}"),
        }
    }

    /// Asks for the lock, which was free from `since` on and is kept for `first`. Returns `false`
    /// if its time to take it is over.
    pub async fn is_behind(&mut self, first: &Self, since: Instant) -> bool {
        match self.vote().await {
            Vote::Blocked(Blocker::Reserved(reserved)) => {
                assert_eq!(reserved.waiter.map(|waiter| waiter.id), Some(first.id()));
            }
            // Where its place is the lock, it has it already, as others see it.
            Vote::Blocked(Blocker::Occupant(met))
                if self.node.queue().is_some_and(Queue::becomes_the_lock) =>
            {
                assert!(is_of(&met, first.token()), "{met:?}");
            }
            Vote::Granted { .. } if rlock::clock::now().since(since) >= TURN => {
                skipped("the machine took longer than a waiter's turn lasts");
                return false;
            }
            vote => panic!("{vote:?}"),
        }
        true
    }

    /// Renews the lock.
    pub async fn renews(&self) -> Renewal {
        self.in_time(self.node.keep(&self.claim.renewal(self.fence())))
            .await
            .unwrap_or_else(Renewal::Failed)
    }

    /// Renews the lock once the store answers.
    pub async fn renews_in_time(&self) -> Renewal {
        within("an answer to a renewal", async {
            loop {
                match self.renews().await {
                    Renewal::Failed(_) => tokio::time::sleep(PAUSE).await,
                    renewal => return renewal,
                }
            }
        })
        .await
    }

    /// Sets the lock again, which a renewal must find gone.
    pub async fn heals_after(&self, renewal: Renewal) -> Renewal {
        match renewal {
            Renewal::NotOurs(_, told, _) => {
                self.node
                    .keep(&self.claim.healing(self.fence(), told))
                    .await
            }
            renewal => panic!("{renewal:?}"),
        }
    }

    /// Gives the lock back.
    pub async fn gives_back(&self) -> ReleaseReply {
        self.in_time(self.node.release(&self.release()))
            .await
            .unwrap_or_else(ReleaseReply::Failed)
    }

    /// Gives the lock back once a command has ended under it; `once`: it counts as a success for so
    /// long.
    pub async fn ends(&self, once: Option<Duration>) -> ReleaseReply {
        let run = Some(Run {
            exit: Some(0),
            ..Run::default()
        });
        let release = self.claim.release_leaving(
            QueueAction::None,
            self.fence(),
            None,
            &Remains {
                run,
                once,
                ..Remains::default()
            },
        );
        self.in_time(self.node.release(&release))
            .await
            .unwrap_or_else(ReleaseReply::Failed)
    }

    /// Waits for a reply. Nodes wait for ever: how long a reply may take is their caller's to
    /// decide.
    async fn in_time<T>(&self, reply: Pending<T>) -> Result<T, Fault> {
        tokio::time::timeout(self.limit, reply)
            .await
            .map_err(|_| Fault::timeout(self.limit))
    }

    /// Gives the lock back, which it must have.
    pub async fn releases(&self) {
        let reply = self.gives_back().await;
        assert!(matches!(reply, ReleaseReply::Released), "{reply:?}");
    }

    /// Returns the request that gives the lock back.
    pub fn release(&self) -> Release {
        let leave = |ticket: &Ticket| QueueAction::Leave(ticket.waiter.clone());
        self.claim
            .release(self.claim.ticket.as_ref().map_or(QueueAction::None, leave))
    }

    /// Returns what there is to see of the lock.
    pub async fn looks(&self) -> Observation {
        let look = Look {
            max_waiters: 10,
            ..Look::default()
        };
        self.node.look(look).await.expect("an observation")
    }

    /// Returns the next word to the waiter.
    pub async fn hears(&self) -> Wake {
        let word = async {
            loop {
                if let Hint::Woken(word) = self.node.next().await {
                    return word;
                }
            }
        };
        within("a word to the waiter", word).await
    }
}

fn term(ttl: Duration) -> Term {
    Schedule::new(ScheduleOptions::new(ttl))
        .expect("a schedule")
        .term()
}

/// Whether the holder that was met is that of `token`, or of the member that is shown.
fn is_of(met: &Occupant, token: Token) -> bool {
    match &met.who {
        OccupantKind::Holder(holder, _) => *holder == token,
        OccupantKind::Members(members) => members
            .shown
            .as_ref()
            .is_some_and(|(shown, _)| *shown == token),
        OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => false,
    }
}

/// Waits for `event`; panics after [`LIMIT`] and names `what`.
pub async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, event)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"))
}
