//! Standing in line: what the nodes tell one who waits, until it is time to try again.

use std::future::pending;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Nodes;
use crate::clock::{self, Alarm};
use crate::lock::instant::Instant;
use crate::node::{Pending, Wake};

/// How long the first node that says "go" waits for the others of a majority: they hear of a release one after another.
const SETTLING: Duration = Duration::from_millis(10);

/// How long one whose turn it is has to go before the one behind it looks.
const WATCHED: Duration = Duration::from_secs(1);

/// The ears of one who waits.
pub struct Wakeups {
    nodes: Nodes,
    wakes: Vec<Pending<Wake>>,
    broken: Vec<Pending<()>>,
    /// The nodes that have said "go".
    gone: Vec<bool>,
    /// When to try again.
    until: Instant,
    /// The longest pause before that once a connection is lost.
    retry: Duration,
    /// Whether a node has said that we are to see to it that whoever's turn it is goes.
    watches: bool,
    /// The pause once it is our turn.
    doubt: Duration,
}

impl Wakeups {
    /// Listens from now on. `retry`: the longest pause once a connection is lost, `doubt`: how long not to believe it that it
    /// is our turn.
    pub fn new(nodes: &Nodes, retry: Duration, doubt: Duration) -> Self {
        Self {
            wakes: nodes.iter().map(|node| node.wake()).collect(),
            broken: nodes.iter().map(|_| -> Pending<()> { Box::pin(pending()) }).collect(),
            gone: vec![false; nodes.len()],
            nodes: nodes.clone(),
            until: Instant::NEVER,
            retry,
            watches: false,
            doubt,
        }
    }

    /// Whether a node has said that it is our turn.
    pub fn has_turn(&self) -> bool {
        self.gone.contains(&true)
    }

    /// Whether a majority will tell when the lock is free.
    pub fn is_heard(nodes: &Nodes) -> bool {
        nodes.iter().filter(|node| node.listens()).count() >= nodes.quorum().needed()
    }

    /// The next node that says "go" while an attempt is under way. May be dropped and called again.
    pub async fn called(&mut self) -> usize {
        loop {
            let (node, wake) = std::future::poll_fn(|cx| self.poll_wakes(cx)).await;
            let is_called = matches!(wake, Wake::YourTurn);
            self.woken(node, wake);
            if is_called {
                return node;
            }
        }
    }

    /// The attempt is over, and the next is due at `until`, unless a node says or has said that it is sooner, or a connection
    /// is lost.
    pub fn begin(&mut self, until: Instant) {
        self.until = self.until.min(until);
        // A node that was lost already has just been tried, and may be gone for a day; the others will tell.
        self.broken = self.nodes.iter().map(|n| if n.listens() { n.broken() } else { Box::pin(pending()) }).collect();
    }

    /// Waits, but not beyond `stop`. True if it is time to try again. May be dropped and called again.
    pub async fn stand(&mut self, alarm: &mut Alarm, stop: Instant) -> bool {
        loop {
            if clock::now() >= self.until.min(stop) {
                return clock::now() >= self.until;
            }
            let until = self.until.min(stop);
            let news = std::future::poll_fn(|cx| {
                if let Poll::Ready((node, wake)) = self.poll_wakes(cx) {
                    return Poll::Ready((node, Some(wake)));
                }
                let lost = (0..self.nodes.len()).find(|&node| self.broken[node].as_mut().poll(cx).is_ready());
                lost.map_or(Poll::Pending, |node| Poll::Ready((node, None)))
            });
            let news = tokio::select! {
                biased;
                news = news => Some(news),
                () = alarm.reached(until) => None,
            };
            match news {
                Some((node, Some(wake))) => self.woken(node, wake),
                Some((node, None)) => {
                    self.broken[node] = Box::pin(pending());
                    self.sooner(self.retry.mul_f64(fastrand::f64()));
                }
                None => {}
            }
        }
    }

    /// Whether to look again as long as it is the turn of somebody else who does not go.
    pub fn watches(&self) -> bool {
        self.watches
    }

    fn poll_wakes(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Wake)> {
        for (node, wake) in self.wakes.iter_mut().enumerate() {
            if let Poll::Ready(wake) = wake.as_mut().poll(cx) {
                return Poll::Ready((node, wake));
            }
        }
        Poll::Pending
    }

    fn woken(&mut self, node: usize, wake: Wake) {
        // One is told at a time: the next word is asked for only once this one is understood.
        self.wakes[node] = self.nodes[node].wake();
        match wake {
            Wake::StandBy => {
                self.watches = true;
                self.sooner(WATCHED);
            }
            Wake::Recheck => self.sooner(Duration::ZERO),
            Wake::YourTurn => {
                self.gone[node] = true;
                let enough = self.gone.iter().filter(|gone| **gone).count() >= self.nodes.quorum().needed();
                self.sooner(if enough { self.doubt } else { self.doubt.max(SETTLING) });
            }
        }
    }

    fn sooner(&mut self, span: Duration) {
        self.until = self.until.min(clock::now() + span);
    }
}
