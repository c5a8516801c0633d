//! The state of the model: nodes, clients, and the requests between them.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use rlock::lock::ballot::{self, Ballot};
use rlock::lock::fence::Fence;
use rlock::lock::instant::Instant;
use rlock::lock::lease::{Lease, Revoked};
use rlock::lock::occupant::{Occupant, OccupantKind};
use rlock::lock::reply::Vote;
use rlock::lock::restart::RestartGuard;
use rlock::lock::schedule::{Schedule, ScheduleOptions};
use rlock::lock::token;

use super::rules::Bounds;

pub(super) const NODES: usize = 3;

pub(super) type Token = (usize, u8);

#[derive(Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) key: Option<(Token, u64)>,
    pub(super) counter: u64,
    /// None if before all leases.
    pub(super) started: Option<u64>,
}

#[derive(Clone)]
pub(super) enum Request {
    Acquire { token: Token, asked: u64 },
    Renew { token: Token, asked: u64, fence: Fence },
    Heal { token: Token, asked: u64, fence: Fence, told: Option<u64> },
}

#[derive(Clone)]
pub(super) enum Reply {
    Granted(Fence),
    /// Whether the key is held; otherwise the node has restarted.
    Denied(bool),
    /// The counter, as it was before the request.
    Renewed(u64),
    Healed(u64),
    Revoked(Revoked, u64),
}

#[derive(Clone)]
pub(super) enum Phase {
    Idle,
    Asking { begun: u64, ballot: Box<Ballot>, confirming: Option<Fence> },
    Holding { fence: Fence, lease: Lease },
}

#[derive(Clone)]
pub(super) struct Client {
    pub(super) attempts: u8,
    pub(super) upkeep: u8,
    pub(super) phase: Phase,
    pub(super) requests: [VecDeque<Request>; NODES],
    /// Counters of the nodes that had no key.
    pub(super) told: [Option<u64>; NODES],
    /// Copies of what ballot and lease know of each node, for the fingerprint: their own are private.
    pub(super) known: [Known; NODES],
}

/// The vote of a node (0: open, 1: missing, else the fence), the end of the tenure, when the tenure was revoked, and since when it
/// lacks proof.
#[derive(Clone, Copy, Hash, Default)]
pub(super) struct Known {
    pub(super) vote: u64,
    pub(super) end: u64,
    pub(super) revoked: Option<(Revoked, u64)>,
    pub(super) unproven: Option<u64>,
    pub(super) vouched: u64,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) nodes: [Node; NODES],
    pub(super) clients: Vec<Client>,
    pub(super) last_fence: u64,
    pub(super) restarts: u8,
    pub(super) ttl: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    TwoHolders,
    FenceNotAbove,
}

pub(super) fn at(second: u64) -> Instant {
    Instant::from_nanos(second * 1_000_000_000)
}

/// Returns the terms of every attempt. The model has restarts of its own, so the ballot's guard is off.
pub(super) fn terms() -> ballot::Rules {
    static TERMS: OnceLock<ballot::Rules> = OnceLock::new();
    *TERMS.get_or_init(|| {
        let options =
            ScheduleOptions { ttl: Duration::from_secs(30), drift: 0.01, node_timeout: None, kill_after: None };
        let schedule = Schedule::new(options).expect("a schedule that fits");
        ballot::Rules { token: token::Token::fresh(), schedule, guard: RestartGuard::Off, min_uptime: Duration::ZERO }
    })
}

/// Returns a refusal: the key is held, or the node has restarted.
pub(super) fn denied(held: bool) -> Vote {
    if held { Vote::Held(Box::new(Occupant { who: OccupantKind::Unnamed, ttl: None })) } else { Vote::Restarted }
}

impl Client {
    pub(super) fn token(&self, index: usize) -> Token {
        (index, self.attempts)
    }
}

impl Reply {
    /// Returns the counter of a node that has the client's key.
    pub(super) fn counter(&self) -> Option<u64> {
        match self {
            Self::Granted(fence) => Some(fence.get()),
            Self::Renewed(counter) | Self::Healed(counter) => Some(*counter),
            Self::Denied(_) | Self::Revoked(..) => None,
        }
    }
}

impl Known {
    pub(super) fn learn(&mut self, node: usize, phase: &Phase, [asked, now, end]: [u64; 3], reply: &Reply) {
        let confirming = matches!(phase, Phase::Asking { confirming: Some(_), .. });
        let asking = matches!(phase, Phase::Asking { .. });
        match reply {
            Reply::Granted(_) | Reply::Renewed(_) | Reply::Healed(_) => {
                self.vouched = self.vouched.max(asked + 1);
                if let (Some(counter), Phase::Holding { fence, lease }) = (reply.counter(), phase)
                    && counter > fence.get()
                    && lease.wants_healing(node)
                {
                    self.unproven = Some(now);
                }
                self.end = self.end.max(end);
                self.revoked = None;
                match reply {
                    Reply::Granted(fence) if asking && !confirming => self.vote = fence.get() + 2,
                    Reply::Renewed(_) if asking => self.vote = 2,
                    _ => {}
                }
            }
            Reply::Denied(_) | Reply::Revoked(..) => {
                self.vote = u64::from(asking);
                if let Reply::Revoked(how, _) = reply {
                    *self = Self { end: 0, revoked: Some((*how, now)), unproven: None, ..*self };
                }
            }
        }
    }
}

impl World {
    pub(super) fn new(bounds: Bounds) -> Self {
        let client = Client {
            attempts: 0,
            upkeep: bounds.upkeep,
            phase: Phase::Idle,
            requests: Default::default(),
            told: Default::default(),
            known: Default::default(),
        };
        Self {
            now: 0,
            nodes: bounds.counters.map(|counter| Node { counter, ..Node::default() }),
            clients: vec![client; bounds.clients],
            last_fence: 0,
            restarts: bounds.restarts,
            ttl: bounds.ttl,
        }
    }
}
