//! Transactions: each message of a client is one.
//!
//! 1. Its time is that of its begin, however long it waits afterwards.
//! 2. A statement that finds its row locked waits, for `lock_timeout` at most, and looks at the row
//!    anew.
//! 3. A commit is on the disk first, then at the standby if one is waited for. Until then no other
//!    transaction sees it, and its rows are locked.
//! 4. A session goes through all messages that have come, though its client is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::{Database, Step, WorkId};
use super::connection::{self, Message, answered};
use super::rows::{Answer, Context, Effect, Row, Rows, execute, line_call};
use super::server::{Phase, Session, Work, holder};
use super::syntax::{Statement, statements};
use super::value::{SqlError, Value};
use crate::kernel::{Event, Kernel};
use crate::network::{self, Packet, SocketId, Way};
use crate::node::State;
use crate::witness::Violation;

/// Longest time from a message to its first statement.
const BEGINS: Duration = Duration::from_micros(200);

/// Longest time that each half of a commit takes.
const COMMIT: Duration = Duration::from_millis(3);

/// Longest time for which a commit that is not waited for is not on the disk
/// (three times `wal_writer_delay`).
const LATE: Duration = Duration::from_millis(600);

/// Longest time after which a session that waits in a line notices that its client is gone
/// (`client_connection_check_interval`).
const CHECKS: Duration = Duration::from_secs(1);

/// Parts per million by which clocks may differ.
const RATES: f64 = 0.008;

/// A word of the first request of a session, whose facts about the table are not computed.
const GREETING: &str = "pg_attribute";

impl Database {
    /// Serves a packet that came at `arrived`.
    pub(super) fn serve(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        (socket, packet, arrived): (SocketId, Packet, rlock::lock::instant::Instant),
    ) {
        let server = &mut self.servers[number];
        match packet {
            Packet::Open => {
                server.sessions.insert(socket, Session::new(kernel.now));
            }
            Packet::Bytes(bytes) => {
                let Some(session) = server.sessions.get_mut(&socket) else {
                    return;
                };
                let mut is_started = false;
                for message in session.incoming.receive(&bytes) {
                    match message {
                        Message::Startup => is_started = true,
                        Message::Query(text) => session.queries.push_back((arrived, text)),
                        Message::Terminate => session.is_over = true,
                    }
                }
                if is_started {
                    let greeting = connection::greeting(process_of(socket));
                    network::send(kernel, socket, Way::Down, Packet::Bytes(greeting));
                }
                self.go_on(kernel, number, socket);
            }
            Packet::End | Packet::Reset => {
                let Some(session) = server.sessions.get_mut(&socket) else {
                    return;
                };
                session.is_over = true;
                let is_in_line = |work: &Work| matches!(work.phase, Phase::InLine(_));
                if session.work.as_ref().is_some_and(is_in_line) {
                    let notices = kernel.random.time(Duration::ZERO, CHECKS);
                    kernel.after(notices, Event::Database(Step::Close(number, socket)));
                }
                self.go_on(kernel, number, socket);
            }
        }
    }

    /// Begins the next query of a session that does nothing. Ends one whose client is gone.
    fn go_on(&mut self, kernel: &mut Kernel, number: usize, socket: SocketId) {
        loop {
            let process = self.process_told(socket);
            let (begun, default) = (self.begun, self.commit);
            let server = &mut self.servers[number];
            let now = server.clock.at(kernel.now).0;
            let is_read_only = server.is_standby || server.is_read_only;
            let Some(session) = server.sessions.get_mut(&socket) else {
                return;
            };
            if session.work.is_some() {
                return;
            }
            let Some((arrived, text)) = session.queries.pop_front() else {
                if session.is_over {
                    self.close(kernel, number, socket);
                }
                return;
            };
            self.begun += 1;
            let context = Context {
                now,
                clock: now,
                process,
                is_read_only,
                lock_timeout: Duration::ZERO,
                synchronous_commit: default.to_owned(),
            };
            let answer = if text.contains(GREETING) {
                answered(&[greeted(&context)], None)
            } else {
                match statements(&text) {
                    Ok(statements) => {
                        session.work = Some(Work {
                            number: begun,
                            arrived,
                            statements,
                            done: 0,
                            answers: Vec::new(),
                            writes: Rows::new(),
                            context,
                            phase: Phase::Running,
                        });
                        let id = WorkId(number, socket, begun);
                        let takes = kernel.random.time(Duration::ZERO, BEGINS);
                        return kernel.after(takes, Event::Database(Step::Run(id)));
                    }
                    Err(error) => answered(&[], Some(&error)),
                }
            };
            network::send(kernel, socket, Way::Down, Packet::Bytes(answer));
        }
    }

    /// Goes on with a transaction.
    pub(super) fn run(&mut self, kernel: &mut Kernel, id @ WorkId(number, ..): WorkId) {
        let Some(mut work) = self.take_work(id) else {
            return;
        };
        work.phase = Phase::Running;
        work.context.clock = self.servers[number].clock.at(kernel.now).0;
        while let Some(statement) = work.statements.get(work.done).cloned() {
            let answer = match self.executed(kernel, id, &mut work, &statement) {
                Ok(Some(answer)) => answer,
                Ok(None) => {
                    if let Phase::Blocked(_) = work.phase
                        && !work.context.lock_timeout.is_zero()
                    {
                        let limit = work.context.lock_timeout;
                        kernel.after(limit, Event::Database(Step::LockTimeout(id)));
                    }
                    return self.put_back(id, work);
                }
                Err(error) => return self.end(kernel, id, &work, Some(&error)),
            };
            work.answers.push(answer);
            work.done += 1;
        }
        if work.writes.is_empty() {
            return self.end(kernel, id, &work, None);
        }
        let takes = kernel.random.time(Duration::ZERO, COMMIT);
        if work.context.synchronous_commit == "off" {
            let server = &mut self.servers[number];
            server.log.extend(work.writes.clone());
            self.shows(kernel, number, &work.writes);
            kernel.after(takes * 200, Event::Database(Step::FlushLate(number)));
            debug_assert!(takes * 200 <= LATE);
            return self.end(kernel, id, &work, None);
        }
        work.phase = Phase::Committing;
        self.put_back(id, work);
        kernel.after(takes, Event::Database(Step::Flush(id)));
    }

    /// Executes the next statement; `None`: it waits.
    fn executed(
        &mut self,
        kernel: &mut Kernel,
        WorkId(number, socket, _): WorkId,
        work: &mut Work,
        statement: &Statement,
    ) -> Result<Option<Answer>, SqlError> {
        if let Some((call, line)) = line_call(statement, &mut work.context)? {
            let value = self.in_line(kernel, number, socket, &call, line);
            if value.is_none() {
                work.phase = Phase::InLine(line);
            }
            return Ok(value.map(|value| Answer::Rows(1, vec![vec![value.shown()]])));
        }
        let server = &mut self.servers[number];
        let mut rows = server.visible.clone();
        rows.extend(work.writes.clone());
        let is_locked = |name: &str| server.locks.get(name).is_some_and(|by| *by != socket);
        match execute(statement, &rows, &mut work.context, is_locked)? {
            Effect::Blocked(name) => {
                work.phase = Phase::Blocked(name);
                Ok(None)
            }
            Effect::Done {
                answer,
                writes,
                locks,
            } => {
                for name in locks {
                    server.locks.insert(name, socket);
                }
                for row in writes {
                    self.judge_grant(kernel, number, socket, work, rows.get(&row.name), &row);
                    judge_free(kernel, work.context.now, &row);
                    work.writes.insert(row.name.clone(), row);
                }
                Ok(Some(answer))
            }
        }
    }

    /// Judges that no request grants the lock later than the node timeout after it came, which was
    /// after it was sent.
    fn judge_grant(
        &self,
        kernel: &mut Kernel,
        number: usize,
        socket: SocketId,
        work: &Work,
        before: Option<&Row>,
        row: &Row,
    ) {
        let Some(token) = holder(row) else { return };
        let server = &self.servers[number];
        let Some(session) = server.sessions.get(&socket) else {
            return;
        };
        let is_set_back = server.set_back.is_some_and(|at| at >= session.begun);
        if is_set_back || before.and_then(holder) == Some(token) {
            return;
        }
        let late = kernel.now.since(work.arrived);
        let most = self.limit + kernel.now.since(session.begun).mul_f64(RATES);
        if late > most {
            let why = format!("a request of {token} grants the lock {late:?} after it came");
            kernel.witness.violated(Violation::Late(why));
        }
    }

    /// Answers a call about the advisory lock of a line; `None`: the session waits.
    fn in_line(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        socket: SocketId,
        call: &str,
        line: i64,
    ) -> Option<Value> {
        let queue = self.servers[number].lines.entry(line).or_default();
        let is_first = queue.front() == Some(&socket);
        match call {
            "pg_advisory_lock" => {
                if !queue.contains(&socket) {
                    queue.push_back(socket);
                }
                (queue.front() == Some(&socket)).then_some(Value::Void)
            }
            "pg_try_advisory_lock" => {
                if queue.is_empty() {
                    queue.push_back(socket);
                }
                Some(Value::Bool(queue.front() == Some(&socket)))
            }
            _ => {
                if is_first {
                    queue.pop_front();
                    self.wake_first(kernel, number, line);
                }
                Some(Value::Bool(is_first))
            }
        }
    }

    fn wake_first(&mut self, kernel: &mut Kernel, number: usize, line: i64) {
        let server = &mut self.servers[number];
        let queue = server.lines.get(&line);
        let Some(first) = queue.and_then(|queue| queue.front().copied()) else {
            return;
        };
        let work = server
            .sessions
            .get(&first)
            .and_then(|session| session.work.as_ref());
        if let Some(work) = work.filter(|work| work.phase == Phase::InLine(line)) {
            let id = WorkId(number, first, work.number);
            kernel.after(Duration::ZERO, Event::Database(Step::Run(id)));
        }
    }

    /// A statement has waited for the lock of a row for as long as it may.
    pub(super) fn time_out(&mut self, kernel: &mut Kernel, id: WorkId) {
        let Some(work) = self.take_work(id) else {
            return;
        };
        if matches!(work.phase, Phase::Blocked(_)) {
            let why = "canceling statement due to lock timeout".to_owned();
            self.end(kernel, id, &work, Some(&SqlError("55P03", why)));
        } else {
            self.put_back(id, work);
        }
    }

    /// A commit comes to the disk.
    pub(super) fn flush(&mut self, kernel: &mut Kernel, id @ WorkId(number, socket, work): WorkId) {
        let waits = self.waits(number);
        let server = &mut self.servers[number];
        let Some(Work { writes, .. }) = server.work(socket, work) else {
            return;
        };
        let writes = writes.clone();
        if server.stalled.is_some() && !waits {
            return server.held.push(Step::Flush(id));
        }
        server.log.extend(writes);
        server.flush(kernel.now);
        let step = Step::Confirm(id, server.sent.len());
        let takes = if waits {
            kernel.random.time(Duration::ZERO, COMMIT)
        } else {
            Duration::ZERO
        };
        kernel.after(takes, Event::Database(step));
    }

    /// A commit is where it is waited for.
    pub(super) fn confirm(&mut self, kernel: &mut Kernel, id: WorkId, sent: usize) {
        let WorkId(number, socket, work) = id;
        let waits = self.waits(number);
        let server = &mut self.servers[number];
        if server.work(socket, work).is_none() {
            return;
        }
        if waits && (server.stalled.is_some() || number != self.primary) {
            return server.held.push(Step::Confirm(id, sent));
        }
        server.confirmed = sent.max(server.confirmed);
        if let Some(work) = self.take_work(id) {
            self.shows(kernel, number, &work.writes);
            self.end(kernel, id, &work, None);
        }
    }

    /// Lets other transactions see what was committed.
    pub(super) fn shows(&mut self, kernel: &mut Kernel, number: usize, writes: &Rows) {
        self.servers[number].visible.extend(writes.clone());
        self.judge_promises(kernel, number, writes);
    }

    /// Ends a transaction, which has committed unless there is an error.
    fn end(
        &mut self,
        kernel: &mut Kernel,
        WorkId(number, socket, _): WorkId,
        work: &Work,
        error: Option<&SqlError>,
    ) {
        let bytes = answered(&work.answers, error);
        network::send(kernel, socket, Way::Down, Packet::Bytes(bytes));
        self.unlock(kernel, number, socket);
        self.go_on(kernel, number, socket);
    }

    /// Gives back the rows that a session has locked, and lets those go on that wait for them.
    fn unlock(&mut self, kernel: &mut Kernel, number: usize, socket: SocketId) {
        let server = &mut self.servers[number];
        let locks = std::mem::take(&mut server.locks);
        let (own, others): (BTreeMap<_, _>, _) =
            locks.into_iter().partition(|(_, by)| *by == socket);
        server.locks = others;
        let works = server.sessions.iter().filter_map(|(socket, session)| {
            let work = session.work.as_ref()?;
            let Phase::Blocked(name) = &work.phase else {
                return None;
            };
            let is_free = own.contains_key(name);
            is_free.then_some(WorkId(number, *socket, work.number))
        });
        let mut waiting: Vec<WorkId> = works.collect();
        waiting.sort_by_key(|WorkId(_, _, number)| *number);
        for id in waiting {
            kernel.after(Duration::ZERO, Event::Database(Step::Run(id)));
        }
    }

    /// Ends a session.
    pub(super) fn close(&mut self, kernel: &mut Kernel, number: usize, socket: SocketId) {
        let server = &mut self.servers[number];
        let is_over = |session: &Session| session.is_over;
        if !server.sessions.get(&socket).is_some_and(is_over) {
            return;
        }
        server.sessions.remove(&socket);
        let mut lines = Vec::new();
        for (line, queue) in &mut server.lines {
            if queue.contains(&socket) {
                queue.retain(|other| *other != socket);
                lines.push(*line);
            }
        }
        for line in lines {
            self.wake_first(kernel, number, line);
        }
        self.unlock(kernel, number, socket);
    }

    fn take_work(&mut self, WorkId(number, socket, work): WorkId) -> Option<Work> {
        let server = &mut self.servers[number];
        if server.state != State::Up {
            return None;
        }
        server.work(socket, work)?;
        server.sessions.get_mut(&socket)?.work.take()
    }

    fn put_back(&mut self, WorkId(number, socket, _): WorkId, work: Work) {
        if let Some(session) = self.servers[number].sessions.get_mut(&socket) {
            session.work = Some(work);
        }
    }

    /// Returns the number of the session's process, as a statement tells it. A pooler is no session.
    fn process_told(&self, socket: SocketId) -> u32 {
        process_of(socket) + u32::from(self.is_pooled)
    }
}

/// Judges that a lock that was given back or taken away is free at once.
fn judge_free(kernel: &mut Kernel, now: i64, row: &Row) {
    let is_free = ["rlock free ", "rlock gone "].map(|state| row.by.starts_with(state));
    if is_free.contains(&true) && row.until > now {
        let why = format!("the row of {} is free, and ends later", row.name);
        kernel.witness.violated(Violation::LeftKey(why));
    }
}

/// Returns the number of the process of a session, as its login tells it.
fn process_of(SocketId(number): SocketId) -> u32 {
    2 * u32::try_from(number).unwrap_or(0) + 2
}

/// Returns the answer to the first request of a session.
pub fn greeted(context: &Context) -> Answer {
    let read_only = if context.is_read_only { "on" } else { "off" };
    let time = "timestamp without time zone";
    let columns = format!(
        "name character varying(64)\nlock_until {time}\nlocked_at {time}\nlocked_by character varying(255)"
    );
    let cells = [
        Value::whole(context.now),
        Value::whole(context.process.into()),
        Value::Text(read_only.to_owned()),
        Value::Bool(true),
        Value::Text("p".to_owned()),
        Value::Text(columns),
    ];
    Answer::Rows(6, vec![cells.iter().map(Value::shown).collect()])
}
