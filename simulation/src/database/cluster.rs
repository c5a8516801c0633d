//! The servers together: the primary, its standby, and which commit each of them knows.
//!
//! 1. A synchronous standby has every commit that was confirmed, and perhaps later ones. An
//!    asynchronous one lacks the last commits.
//! 2. A primary that was replaced goes on until it hears of it. Where it waits for a standby none of
//!    its commits comes to an end; else it takes writes that are lost.
//! 3. The promise is then broken for those leases alone that the new primary lacks or ends early. The
//!    witness is told of each.

use std::time::Duration;

use rlock::lock::instant::Instant;

use super::rows::{Row, Rows};
use super::server::{Server, believer, end_of};
use crate::kernel::{Event, Kernel};
use crate::network::{Packet, SocketId};
use crate::node::{State, WallClock};

/// A transaction: its server, its session and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkId(pub(super) usize, pub(super) SocketId, pub(super) u64);

/// Something that a server does at its time.
#[derive(Clone, Debug)]
pub enum Step {
    /// A transaction goes on.
    Run(WorkId),
    /// It has waited for the lock of a row for as long as it may.
    LockTimeout(WorkId),
    /// Its commit comes to the disk.
    Flush(WorkId),
    /// Its commit is at the standby, with so many states of the disk.
    Confirm(WorkId, usize),
    /// Commits that are not waited for come to the disk of this server.
    FlushLate(usize),
    /// A session notices that its client is gone.
    Close(usize, SocketId),
    /// The standby takes over, unless the takeover of this number is off.
    Promote(u64),
    /// A server that was replaced becomes a standby.
    Demote(usize),
}

impl Step {
    fn server(&self) -> Option<usize> {
        match self {
            Self::Run(WorkId(number, ..))
            | Self::LockTimeout(WorkId(number, ..))
            | Self::Flush(WorkId(number, ..))
            | Self::Confirm(WorkId(number, ..), _)
            | Self::FlushLate(number)
            | Self::Close(number, _) => Some(*number),
            Self::Promote(_) | Self::Demote(_) => None,
        }
    }
}

/// Traits of a database that do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nature {
    /// Whether it has a standby, and if so whether a commit waits for it.
    pub standby: Option<bool>,
    /// Whether clients reach it through a pooler.
    pub is_pooled: bool,
    /// Whether `synchronous_commit` is off for those that do not ask for it.
    pub commits_late: bool,
}

/// A database.
#[derive(Debug)]
pub struct Database {
    pub(super) servers: Vec<Server>,
    pub(super) primary: usize,
    waits_for_standby: bool,
    pub(super) is_pooled: bool,
    /// `synchronous_commit` of the server.
    pub(super) commit: &'static str,
    /// `--node-timeout`.
    pub(super) limit: Duration,
    /// `--ttl`.
    pub(super) ttl: Duration,
    /// Number of transactions so far.
    pub(super) begun: u64,
    /// Number of takeovers that were begun or given up.
    pub(super) takeovers: u64,
    /// Longest time by which an asynchronous standby is late.
    pub(super) lag: Duration,
    /// When the clock was last set forward.
    pub(super) set_forward: Option<Instant>,
    switches: u64,
    stale: u64,
}

impl Database {
    /// A database whose first server is the primary. `limit`: `--node-timeout`.
    pub fn new(
        nature: Nature,
        clocks: &[WallClock],
        (limit, ttl): (Duration, Duration),
        now: Instant,
    ) -> Self {
        let mut servers: Vec<Server> = clocks
            .iter()
            .map(|clock| Server::new(*clock, now))
            .collect();
        for standby in servers.iter_mut().skip(1) {
            standby.is_standby = true;
        }
        servers[0].has_standby = nature.standby.is_some();
        Self {
            servers,
            primary: 0,
            waits_for_standby: nature.standby == Some(true),
            is_pooled: nature.is_pooled,
            commit: if nature.commits_late { "off" } else { "on" },
            limit,
            ttl,
            begun: 0,
            takeovers: 0,
            lag: Duration::ZERO,
            set_forward: None,
            switches: 0,
            stale: 0,
        }
    }

    /// Number of standbys that have taken over.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of commits of a primary that had been replaced.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Number of transactions.
    pub fn requests(&self) -> u64 {
        self.begun
    }

    /// Returns the name of a row that is not free when this time has passed.
    pub fn left_behind(&self, later: Duration, now: Instant) -> Option<&str> {
        let primary = &self.servers[self.primary];
        let mut rows = primary.visible.values();
        let row = rows.find(|row| end_of(row, primary.clock, now) > now + later)?;
        Some(&row.name)
    }

    /// Takes a packet from the network.
    pub fn take(&mut self, kernel: &mut Kernel, socket: SocketId, packet: Packet) {
        let number = kernel.network.node(socket);
        let server = &mut self.servers[number];
        server.state.answer(kernel, socket, &packet);
        let arrived = (socket, packet, kernel.now);
        match server.state {
            State::Down => {}
            State::Stopped => server.inbox.push(arrived),
            State::Up => self.serve(kernel, number, arrived),
        }
    }

    /// Does what is due.
    pub fn step(&mut self, step: &Step, kernel: &mut Kernel) {
        if let Some(number) = step.server() {
            let server = &mut self.servers[number];
            match server.state {
                State::Down => return,
                State::Stopped => return server.postponed.push(step.clone()),
                State::Up => {}
            }
        }
        match step {
            Step::Run(id) => self.run(kernel, *id),
            Step::LockTimeout(id) => self.time_out(kernel, *id),
            Step::Flush(id) => self.flush(kernel, *id),
            Step::Confirm(id, sent) => self.confirm(kernel, *id, *sent),
            Step::FlushLate(number) => self.servers[*number].flush(kernel.now),
            Step::Close(number, socket) => self.close(kernel, *number, *socket),
            Step::Promote(takeover) => {
                if *takeover == self.takeovers {
                    self.promote(kernel, false);
                }
            }
            Step::Demote(number) => self.demote(kernel, *number),
        }
    }

    /// Whether a server's commits wait for a standby.
    pub(super) fn waits(&self, number: usize) -> bool {
        self.waits_for_standby && self.servers[number].has_standby
    }

    /// Whether there is a standby that can take over.
    pub(super) fn can_switch(&self) -> bool {
        self.servers[self.primary].has_standby
            && self.servers[self.other()].state == State::Up
            && self.servers[self.other()].is_standby
    }

    fn other(&self) -> usize {
        (self.primary + 1) % self.servers.len()
    }

    /// Lets the standby take over. `is_whole`: with all that the primary has.
    pub(super) fn promote(&mut self, kernel: &mut Kernel, is_whole: bool) {
        if !self.can_switch() {
            return;
        }
        let (old, new) = (self.primary, self.other());
        let rows = self.standby_rows(kernel, is_whole);
        kernel.tell(|| format!("server {new} takes over from {old}"));
        let before = self.servers[old].visible.clone();
        let now = kernel.now;
        let server = &mut self.servers[new];
        (server.is_standby, server.has_standby) = (false, false);
        server.holds(rows, now);
        self.primary = new;
        self.switches += 1;
        if !self.waits_for_standby {
            kernel.witness.forgets(now);
            let known = self.servers[new].visible.values().map(|row| row.at);
            let highest = known.max().and_then(|at| u64::try_from(at).ok());
            kernel.witness.knows_fences_up_to(highest.unwrap_or(0));
            self.judge_losses(kernel, &before, self.servers[old].clock);
        }
    }

    /// Returns the rows that the standby knows.
    fn standby_rows(&self, kernel: &mut Kernel, is_whole: bool) -> Rows {
        let primary = &self.servers[self.primary];
        let known = if is_whole {
            primary.sent.len()
        } else if self.waits_for_standby {
            // What was written since the standby was cut off has not reached it.
            let reached =
                |(at, _): &&(Instant, Rows)| primary.stalled.is_none_or(|stalled| *at <= stalled);
            let all = primary.sent.iter().take_while(reached).count();
            let later = all.saturating_sub(primary.confirmed);
            primary.confirmed + kernel.random.below(later + 1)
        } else {
            let late = kernel.random.time(Duration::ZERO, self.lag);
            let has = |(at, _): &&(Instant, Rows)| *at + late <= kernel.now;
            primary.sent.iter().take_while(has).count()
        };
        primary.sent[known.max(1) - 1].1.clone()
    }

    /// Makes a server that was replaced a standby.
    pub(super) fn demote(&mut self, kernel: &mut Kernel, number: usize) {
        if number == self.primary || self.servers[number].is_standby {
            return;
        }
        let server = &mut self.servers[number];
        server.disconnect(kernel, &[], &Packet::Reset);
        (server.state, server.is_standby, server.stalled) = (State::Up, true, None);
        let primary = &mut self.servers[self.primary];
        primary.has_standby = true;
        primary.confirmed = primary.sent.len();
        kernel.tell(|| format!("server {number} is a standby"));
    }

    /// Judges what becomes of leases that were promised with the rows `before`, by that clock: some
    /// may be lost, or end early.
    pub(super) fn judge_losses(&self, kernel: &mut Kernel, before: &Rows, clock: WallClock) {
        let now = kernel.now;
        let primary = &self.servers[self.primary];
        for row in before.values() {
            let Some(token) = believer(row) else { continue };
            let until = end_of(row, clock, now);
            let kept = primary.visible.get(&row.name);
            let is_kept = |kept: &Row| {
                believer(kept) == Some(token) && end_of(kept, primary.clock, now) >= until
            };
            if !kept.is_some_and(is_kept) {
                kernel.witness.lapses(token, until);
            }
        }
    }

    /// Judges rows that were committed: a primary that was replaced promises what is lost, and the
    /// other one what stays.
    pub(super) fn judge_promises(&mut self, kernel: &mut Kernel, number: usize, rows: &Rows) {
        self.stale += u64::from(number != self.primary);
        let clock = self.servers[number].clock;
        for row in rows.values() {
            let Some(token) = believer(row) else { continue };
            let until = end_of(row, clock, kernel.now);
            if number == self.primary {
                kernel.witness.keeps(token, until);
            } else {
                kernel.witness.lapses(token, until);
            }
        }
    }

    /// Ends all sessions of a server, as an administrator does. Commits that wait for a standby stay.
    pub fn disconnect_all(&mut self, number: usize, kernel: &mut Kernel) {
        if self.servers[number].state != State::Up {
            return;
        }
        let held = std::mem::take(&mut self.servers[number].held);
        for step in held {
            if let Step::Confirm(WorkId(_, socket, work), _) = step
                && let Some(work) = self.servers[number].work(socket, work)
            {
                let writes = work.writes.clone();
                self.servers[number].visible.extend(writes);
            }
        }
        let why = "terminating connection due to administrator command".to_owned();
        let word = super::connection::fatal(&super::value::SqlError("57P01", why));
        self.servers[number].disconnect(kernel, &word, &Packet::End);
    }

    /// Resumes a server that was stopped. What came due meanwhile happens in any order.
    pub(super) fn resume(&mut self, number: usize, kernel: &mut Kernel) {
        let server = &mut self.servers[number];
        if server.state != State::Stopped {
            return;
        }
        server.state = State::Up;
        let mut steps = std::mem::take(&mut server.postponed);
        let inbox = std::mem::take(&mut server.inbox);
        while !steps.is_empty() {
            let next = kernel.random.below(steps.len());
            let step = steps.remove(next);
            kernel.after(Duration::ZERO, Event::Database(step));
        }
        for arrived in inbox {
            self.serve(kernel, number, arrived);
        }
    }
}
