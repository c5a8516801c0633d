//! The kernel of the simulated machines: one clock, one list of events, the sockets and the
//! commands.
//!
//! One thread has one kernel. Processes reach it through the functions of this crate that stand for
//! system calls; the world (`world`) takes the events out in the order of their time. Nothing else
//! moves the clock.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::task::Waker;
use std::time::Duration;

use rlock::clock::{self, SimulatedTime};
use rlock::lock::instant::Instant;

use crate::command::{Commands, Moment};
use crate::network::{Network, Packet, SocketId};
use crate::random::Random;
use crate::server::Wait;
use crate::story::Story;
use crate::witness::Witness;
use crate::{cluster, database, etcd, service, zookeeper};

/// A process: what a client does in one round, or the release that its guard executes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ProcessId {
    /// Number of the client.
    pub client: usize,
    /// Number of its round.
    pub round: usize,
    /// Whether the guard executes it.
    pub is_guards: bool,
}

impl ProcessId {
    /// Returns a number that no other process has.
    pub fn number(self) -> u64 {
        (self.client as u64) << 16 | (self.round as u64) << 1 | u64::from(self.is_guards)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            round,
            is_guards,
        } = self;
        let of = if *is_guards { "guard of " } else { "" };
        write!(f, "{of}client {client} (round {round})")
    }
}

/// Something that happens at its time.
#[derive(Debug)]
pub enum Event {
    /// An alarm of a process is due.
    Alarm(ProcessId, Waker),
    /// A packet reaches the server of its socket.
    ToServer(SocketId, Packet),
    /// A packet reaches the client of its socket.
    ToClient(SocketId, Packet),
    /// Something becomes of the command of a process.
    Command(ProcessId, Moment),
    /// The scenario's client with this number begins its next round.
    Round(usize),
    /// The scenario's fault with this number begins.
    Fault(usize),
    /// The second half of the fault with this number begins.
    Meanwhile(usize),
    /// The fault with this number ends.
    Mend(usize),
    /// The service of this node does something.
    Service(usize, service::Step),
    /// The cluster of this node does something.
    Cluster(usize, cluster::Step),
    /// The etcd cluster does something.
    Etcd(etcd::Step),
    /// The ZooKeeper ensemble does something.
    ZooKeeper(zookeeper::Step),
    /// The database does something.
    Database(database::Step),
    /// A message reaches this machine from another member of its cluster, as channel and text.
    Bus(usize, Vec<u8>, Vec<u8>),
    /// A client of this machine's server has waited for replicas.
    Waited(usize, Wait),
    /// The lock of a dead rlock is given back by its guard.
    HandBack(ProcessId),
    /// The locks are looked at.
    Look,
}

/// The state that all processes of one world share.
#[derive(Debug)]
pub struct Kernel {
    /// The time.
    pub now: Instant,
    events: BinaryHeap<Reverse<Entry>>,
    /// Number of events so far: of two at the same time, the earlier made comes first.
    made: u64,
    /// The process that runs.
    pub current: ProcessId,
    /// Sockets and paths.
    pub network: Network,
    /// Commands that the processes run under their locks.
    pub commands: Commands,
    /// Holders and waiters, as seen from outside.
    pub witness: Witness,
    /// Lines that tell of a failure.
    pub story: Story,
    /// Draws of what concerns no single process.
    pub random: Random,
    /// A number that depends on every event so far.
    digest: u64,
    /// How often the time was asked for since the last event.
    asked: u64,
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// More often than this the time is not asked for in one instant.
const MOST_ASKED: u64 = 200_000;

/// The time at which every world begins: not zero, so that a time before it can be named.
pub const BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);

/// Boots a kernel on this thread, whose clock is the simulated one from now on.
pub fn boot(kernel: Kernel) {
    KERNEL.set(Some(kernel));
    clock::simulate(Some(SimulatedTime { now, wake_at }));
}

/// Ends the simulated time of this thread.
pub fn halt() -> Option<Kernel> {
    clock::simulate(None);
    KERNEL.take()
}

/// Whether a kernel runs on this thread. The streams of a world that was dropped find none.
pub fn is_running() -> bool {
    KERNEL.with_borrow(Option::is_some)
}

/// Calls the kernel of this thread.
pub fn with<T>(call: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(|kernel| call(kernel.as_mut().expect("a kernel on this thread")))
}

/// Returns the time. A process that asks for it without end would never let it go on.
pub fn now() -> Instant {
    with(|kernel| {
        kernel.asked += 1;
        assert!(
            kernel.asked < MOST_ASKED,
            "{} runs without end",
            kernel.current
        );
        kernel.now
    })
}

fn wake_at(at: Instant, waker: Waker) {
    with(|kernel| {
        let event = Event::Alarm(kernel.current, waker);
        kernel.at(at, event);
    });
}

impl Kernel {
    /// A kernel at the begin of its world.
    pub fn new(
        random: Random,
        network: Network,
        commands: Commands,
        witness: Witness,
        story: Story,
    ) -> Self {
        Self {
            now: BEGIN,
            events: BinaryHeap::new(),
            made: 0,
            current: ProcessId::default(),
            network,
            commands,
            witness,
            story,
            random,
            digest: 0,
            asked: 0,
        }
    }

    /// Lets `event` happen at `at`, or now if that is over.
    pub fn at(&mut self, at: Instant, event: Event) {
        self.made += 1;
        self.events.push(Reverse(Entry {
            at: at.max(self.now),
            number: self.made,
            event,
        }));
    }

    /// Lets `event` happen after `span`.
    pub fn after(&mut self, span: Duration, event: Event) {
        self.at(self.now + span, event);
    }

    /// Moves the clock to the next event and returns it; `None` if none is left before `end`.
    pub fn next(&mut self, end: Instant) -> Option<Event> {
        if self
            .events
            .peek()
            .is_none_or(|Reverse(entry)| entry.at > end)
        {
            return None;
        }
        let Reverse(entry) = self.events.pop()?;
        self.asked = if self.now == entry.at { self.asked } else { 0 };
        self.now = entry.at;
        let mixed = self.digest ^ entry.at.as_nanos() ^ entry.number;
        self.digest = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        Some(entry.event)
    }

    /// Returns a number that differs if any event came at another time.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        self.story.tell(now, line);
    }
}

/// Adds a line about the process that runs to the story.
pub fn tell_of_current(line: impl FnOnce() -> String) {
    with(|kernel| {
        let process = kernel.current;
        kernel.tell(|| format!("{process}: {}", line()));
    });
}
