//! A server: its sessions, its rows, and who has locked them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rlock::lock::instant::Instant;

use super::cluster::Step;
use super::connection::Incoming;
use super::rows::{Answer, Context, Row, Rows};
use super::syntax::Statement;
use crate::kernel::Kernel;
use crate::network::{self, Packet, SocketId, Way};
use crate::node::{State, WallClock};

/// The work of a session on one message, which is one transaction.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) number: u64,
    /// When its message came.
    pub(super) arrived: Instant,
    pub(super) statements: Vec<Statement>,
    /// Number of statements that are done.
    pub(super) done: usize,
    pub(super) answers: Vec<Answer>,
    pub(super) writes: Rows,
    pub(super) context: Context,
    pub(super) phase: Phase,
}

/// How far a transaction is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Running,
    /// It waits for the lock of a row.
    Blocked(String),
    /// It waits in the line of this number.
    InLine(i64),
    Committing,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) incoming: Incoming,
    /// Queries that wait for the one before them, and when they came.
    pub(super) queries: VecDeque<(Instant, String)>,
    pub(super) work: Option<Work>,
    /// Whether its client has gone.
    pub(super) is_over: bool,
    pub(super) begun: Instant,
}

impl Session {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            incoming: Incoming::default(),
            queries: VecDeque::new(),
            work: None,
            is_over: false,
            begun: now,
        }
    }
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) state: State,
    pub(super) clock: WallClock,
    /// When its clock was last set back.
    pub(super) set_back: Option<Instant>,
    pub(super) is_standby: bool,
    /// `default_transaction_read_only`.
    pub(super) is_read_only: bool,
    /// Since when no commit of it comes to its end.
    pub(super) stalled: Option<Instant>,
    /// Whether it waits for a standby, where the deployment says so.
    pub(super) has_standby: bool,
    pub(super) sessions: BTreeMap<SocketId, Session>,
    /// Packets that came while it was stopped.
    pub(super) inbox: Vec<(SocketId, Packet, Instant)>,
    /// Steps that came due while it was stopped.
    pub(super) postponed: Vec<Step>,
    /// Commits that are stalled.
    pub(super) held: Vec<Step>,
    /// The rows as transactions see them.
    pub(super) visible: Rows,
    /// The rows as the log says, and as much of it as is on the disk.
    pub(super) log: Rows,
    pub(super) durable: Rows,
    /// States of the disk, with their times. A standby has one of them.
    pub(super) sent: Vec<(Instant, Rows)>,
    /// Number of them that the standby has confirmed.
    pub(super) confirmed: usize,
    /// The sessions that have locked rows.
    pub(super) locks: BTreeMap<String, SocketId>,
    /// The sessions in each line; the first has the advisory lock.
    pub(super) lines: BTreeMap<i64, VecDeque<SocketId>>,
}

impl Server {
    pub(super) fn new(clock: WallClock, now: Instant) -> Self {
        Self {
            state: State::Up,
            clock,
            set_back: None,
            is_standby: false,
            is_read_only: false,
            stalled: None,
            has_standby: false,
            sessions: BTreeMap::new(),
            inbox: Vec::new(),
            postponed: Vec::new(),
            held: Vec::new(),
            visible: Rows::new(),
            log: Rows::new(),
            durable: Rows::new(),
            sent: vec![(now, Rows::new())],
            confirmed: 1,
            locks: BTreeMap::new(),
            lines: BTreeMap::new(),
        }
    }

    /// Returns the work of a session, if it is still this one.
    pub(super) fn work(&mut self, socket: SocketId, number: u64) -> Option<&mut Work> {
        let session = self.sessions.get_mut(&socket)?;
        session.work.as_mut().filter(|work| work.number == number)
    }

    /// Takes these rows for all that it knows.
    pub(super) fn holds(&mut self, rows: Rows, now: Instant) {
        self.visible.clone_from(&rows);
        self.log.clone_from(&rows);
        self.durable.clone_from(&rows);
        self.sent = vec![(now, rows)];
        self.confirmed = 1;
    }

    /// Writes all to the disk that the log has.
    pub(super) fn flush(&mut self, now: Instant) {
        self.durable.clone_from(&self.log);
        self.sent.push((now, self.durable.clone()));
    }

    /// Ends all sessions, and what they do. `word`: the last one to each client.
    pub(super) fn disconnect(&mut self, kernel: &mut Kernel, word: &[u8], packet: &Packet) {
        let pending = std::mem::take(&mut self.inbox).into_iter();
        let sockets: BTreeSet<SocketId> = pending
            .map(|(socket, ..)| socket)
            .chain(self.sessions.keys().copied())
            .collect();
        self.sessions.clear();
        self.locks.clear();
        self.lines.clear();
        self.held.clear();
        self.postponed.clear();
        for socket in sockets {
            if !word.is_empty() {
                let word = Packet::Bytes(word.to_vec());
                network::send(kernel, socket, Way::Down, word);
            }
            network::send(kernel, socket, Way::Down, packet.clone());
        }
    }

    /// Crashes: what is not on the disk is lost.
    pub(super) fn crash(&mut self, kernel: &mut Kernel) {
        self.disconnect(kernel, &[], &Packet::Reset);
        self.state = State::Down;
        self.visible.clone_from(&self.durable);
        self.log.clone_from(&self.durable);
    }
}

/// Returns the token of a row that a client of rlock holds.
pub(super) fn holder(row: &Row) -> Option<&str> {
    row.by.strip_prefix("rlock held ")?.split(' ').next()
}

/// Returns the token of a row whose holder may believe in it: it is held, or broken.
pub(super) fn believer(row: &Row) -> Option<&str> {
    let of = |state| row.by.strip_prefix(state)?.split(' ').next();
    of("rlock held ").or_else(|| of("rlock dead "))
}

/// Returns the true time at which a row ends by this clock.
pub(super) fn end_of(row: &Row, clock: WallClock, now: Instant) -> Instant {
    let left = row.until.saturating_sub(clock.at(now).0);
    let span = Duration::from_micros(left.unsigned_abs());
    if left < 0 {
        now.before(span)
    } else {
        now + span
    }
}
