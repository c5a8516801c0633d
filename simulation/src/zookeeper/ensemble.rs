//! The servers together: who leads, what is agreed on, and who has heard of it. It stands for Zab.
//!
//! 1. A leader proposes transactions to its followers, and commits what is on the disks of a
//!    majority. Messages between two servers keep their order, and wait while the two are cut off.
//! 2. A follower that does not hear its leader for `syncLimit` ticks closes its clients and looks
//!    for another one. So does a leader that no majority answers, a tick or two later.
//! 3. Of a majority that looks for a leader the one with the newest log leads, in a new epoch. What
//!    it has stays, and what the others have beyond that is lost.
//! 4. It gives each session its whole timeout anew, by its own clock.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rlock::lock::instant::Instant;

use super::frames;
use super::server::{
    Asker, Entry, Follower, Following, Input, Leading, Message, Origin, Role, Server, Wish,
};
use super::sessions::{SESSION_MOVED, Tracker};
use super::tree::{Answer, Command, Part, Transaction, Tree};
use crate::kernel::{Event, Kernel};
use crate::network::{Packet, SocketId};
use crate::node::{State, WallClock};
use rlock::store::zookeeper::jute::Request;

/// Longest time of a message between two servers, but for what a disk takes.
const PEER: Duration = Duration::from_millis(1);

/// Longest time that a disk takes for a transaction.
const DISK: Duration = Duration::from_millis(2);

/// Longest timeout of a session (`maxSessionTimeout`).
const LONGEST_SESSION: Duration = Duration::from_secs(60);

/// The probability that containers are swept in a tick.
const SWEEPS: f64 = 0.05;

/// Something that the ensemble does at its time.
#[derive(Clone, Debug)]
pub enum Step {
    /// Half a tick has passed by the clock of this server.
    Tick(usize),
    /// A server looks for a leader, unless it has found one since it began to, so often.
    Look(usize, u64),
    /// A message arrives: from and to these servers, over the connection of this number.
    Deliver {
        from: usize,
        to: usize,
        link: u64,
        message: Message,
    },
}

/// The way from one server to another.
#[derive(Debug, Default)]
struct Path {
    /// When the last message arrives.
    last: Option<Instant>,
    /// Messages that the two are cut off from.
    held: VecDeque<(u64, Message)>,
}

/// An ensemble.
#[derive(Debug)]
pub struct Ensemble {
    pub(super) servers: Vec<Server>,
    pub(super) tick: Duration,
    sync_limit: u32,
    paths: BTreeMap<(usize, usize), Path>,
    /// Number of connections between servers so far.
    links: u64,
    /// The zxids of all that is agreed on.
    agreed: Vec<i64>,
    /// Number of sessions so far.
    pub(super) sessions: i64,
    /// Number of transactions that clients have asked for.
    pub(super) wishes: u64,
    /// Number of requests of clients.
    pub(super) requests: u64,
    switches: u64,
}

impl Ensemble {
    /// An ensemble whose first server leads. `clocks`: of the servers; `sync_limit`: in ticks.
    pub fn new(clocks: &[WallClock], tick: Duration, sync_limit: u32, kernel: &mut Kernel) -> Self {
        let mut ensemble = Self {
            servers: clocks.iter().map(|clock| Server::new(*clock)).collect(),
            tick,
            sync_limit,
            paths: BTreeMap::new(),
            links: 0,
            agreed: Vec::new(),
            sessions: 0,
            wishes: 0,
            requests: 0,
            switches: 0,
        };
        let all: Vec<usize> = (0..clocks.len()).collect();
        ensemble.elect(&all, kernel);
        for number in all {
            ensemble.tick_later(number, kernel);
        }
        ensemble.switches = 0;
        ensemble
    }

    /// Number of leaders that have taken over.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of requests of clients.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The newest data that are agreed on.
    pub fn tree(&self) -> &Tree {
        let newest = self.servers.iter().max_by_key(|server| server.applied);
        newest.unwrap_or(&self.servers[0]).replica.tree()
    }

    fn is_majority(&self, count: usize) -> bool {
        count > self.servers.len() / 2
    }

    /// The time for which a leader and a follower do without each other.
    pub(super) fn patience(&self) -> Duration {
        self.tick * self.sync_limit
    }

    /// Returns the timeout that a client gets, in ms.
    pub(super) fn agreed_timeout(&self, wanted: i32) -> i32 {
        let ms = |span: Duration| i32::try_from(span.as_millis()).unwrap_or(i32::MAX);
        wanted.clamp(ms(self.tick * 2), ms(LONGEST_SESSION))
    }

    /// Whether two servers hear each other.
    fn hear(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.servers[one], &self.servers[other]);
        one.state == State::Up && other.state == State::Up && one.part == other.part
    }

    /// Returns the leader that a majority follows.
    pub(super) fn working(&self) -> Option<usize> {
        let all = 0..self.servers.len();
        all.filter(|number| self.is_followed(*number))
            .max_by_key(|number| self.servers[*number].epoch)
    }

    fn is_followed(&self, number: usize) -> bool {
        let Role::Leading(leading) = &self.servers[number].role else {
            return false;
        };
        let follows = |(other, follower): &(&usize, &Follower)| {
            let Role::Following(following) = &self.servers[**other].role else {
                return false;
            };
            following.link == follower.link && self.hear(number, **other)
        };
        let count = leading.followers.iter().filter(follows).count();
        self.servers[number].state == State::Up && self.is_majority(count + 1)
    }

    /// Does what is due.
    pub fn step(&mut self, step: Step, kernel: &mut Kernel) {
        match step {
            Step::Tick(number) => {
                self.tick_later(number, kernel);
                if self.servers[number].state == State::Up {
                    self.ticks(number, kernel);
                }
            }
            Step::Look(number, searches) => {
                if self.servers[number].searches == searches {
                    self.find(number, kernel);
                }
            }
            Step::Deliver {
                from,
                to,
                link,
                message,
            } => match self.servers[to].state {
                State::Up => self.hears(to, from, link, message, kernel),
                State::Stopped => {
                    let input = Input::Message(from, link, message);
                    self.servers[to].inbox.push(input);
                }
                State::Down => {}
            },
        }
    }

    fn tick_later(&self, number: usize, kernel: &mut Kernel) {
        let server = &self.servers[number];
        let (half, time) = (self.tick / 2, server.time(kernel.now));
        let passed = time.as_nanos() % half.as_nanos();
        let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or(0));
        let left = half.saturating_sub(passed);
        let left = left.div_f64(server.clock.speed()) + Duration::from_nanos(1);
        kernel.after(left, Event::ZooKeeper(Step::Tick(number)));
    }

    /// Does what a server does each half of a tick.
    pub(super) fn ticks(&mut self, number: usize, kernel: &mut Kernel) {
        let (now, patience) = (kernel.now, self.patience());
        let time = self.servers[number].time(now);
        let halves = time.as_nanos() / (self.tick / 2).as_nanos();
        let is_whole = halves.is_multiple_of(2);
        let speed = self.servers[number].clock.speed();
        let leading = match &mut self.servers[number].role {
            Role::Looking => return,
            Role::Following(following) => {
                if now.since(following.heard_at).mul_f64(speed) > patience {
                    self.look(number, kernel);
                }
                return;
            }
            Role::Leading(leading) => leading,
        };
        leading.ticks += u64::from(is_whole);
        let ticks = leading.ticks;
        let over = leading.tracker.over(time);
        // A follower whose disk stands still is none any more.
        let is_late = |follower: &Follower| {
            follower
                .behind_since
                .is_some_and(|since| now.since(since).mul_f64(speed) > patience)
        };
        let late = leading
            .followers
            .iter()
            .filter(|(_, follower)| is_late(follower));
        let late: Vec<(usize, u64)> = late.map(|(other, it)| (*other, it.link)).collect();
        for (other, link) in late {
            self.leave(number, other);
            self.tell(number, other, link, Message::Closed, kernel);
        }
        let Some(leading) = self.servers[number].leading() else {
            return;
        };
        let counts = |follower: &&Follower| follower.counts_until >= ticks;
        let count = leading.followers.values().filter(counts).count();
        let all = leading.followers.iter();
        let all: Vec<(usize, u64)> = all.map(|(other, it)| (*other, it.link)).collect();
        if is_whole && !self.is_majority(count + 1) {
            return self.look(number, kernel);
        }
        for (other, link) in all {
            self.tell(number, other, link, Message::Ping, kernel);
        }
        for session in over {
            self.ends(number, session, kernel);
        }
        if is_whole && kernel.random.chance(SWEEPS) {
            for path in self.servers[number].replica.tree().swept() {
                self.propose(number, 0, Command::Sweep(path), Asker::Leader, kernel);
            }
        }
    }

    /// A leader ends a session that is over.
    fn ends(&mut self, number: usize, session: i64, kernel: &mut Kernel) {
        if let Some(leading) = self.servers[number].leading() {
            leading.tracker.close(session);
            self.propose(number, session, Command::End, Asker::Leader, kernel);
        }
    }

    /// Sends a message to another server.
    pub(super) fn tell(
        &mut self,
        from: usize,
        to: usize,
        link: u64,
        message: Message,
        kernel: &mut Kernel,
    ) {
        let path = self.paths.entry((from, to)).or_default();
        if self.servers[from].part != self.servers[to].part {
            path.held.push_back((link, message));
            return;
        }
        let mut takes = kernel.random.time(PEER / 20, PEER);
        if matches!(message, Message::Logged(_)) {
            takes += kernel.random.time(Duration::ZERO, DISK);
        } else {
            takes += self.servers[to].lag;
        }
        let at = path
            .last
            .map_or(kernel.now + takes, |last| last.max(kernel.now + takes));
        path.last = Some(at);
        let step = Step::Deliver {
            from,
            to,
            link,
            message,
        };
        kernel.at(at, Event::ZooKeeper(step));
    }

    /// Lets what was held back between servers go on.
    pub(super) fn join_parts(&mut self, kernel: &mut Kernel) {
        let all: Vec<(usize, usize)> = self.paths.keys().copied().collect();
        for (from, to) in all {
            let held = self.paths.get_mut(&(from, to));
            for (link, message) in held
                .map(|path| std::mem::take(&mut path.held))
                .unwrap_or_default()
            {
                self.tell(from, to, link, message, kernel);
            }
        }
    }

    /// A server takes no leader for its own any more, and serves none of its clients.
    pub(super) fn look(&mut self, number: usize, kernel: &mut Kernel) {
        let server = &mut self.servers[number];
        server.disconnect(kernel, &Packet::End);
        server.searches += 1;
        let role = std::mem::replace(&mut server.role, Role::Looking);
        kernel.tell(|| format!("server {number} looks for a leader"));
        let peers = match role {
            Role::Looking => Vec::new(),
            Role::Following(following) => vec![(following.leader, following.link)],
            Role::Leading(leading) => {
                let all = leading.followers.iter();
                all.map(|(other, it)| (*other, it.link)).collect()
            }
        };
        for (other, link) in peers {
            self.tell(number, other, link, Message::Closed, kernel);
        }
        self.look_later(number, kernel);
    }

    pub(super) fn look_later(&self, number: usize, kernel: &mut Kernel) {
        let later = kernel.random.time(self.tick / 20, self.tick);
        let step = Step::Look(number, self.servers[number].searches);
        kernel.after(later, Event::ZooKeeper(step));
    }

    /// A server finds a leader, or leads, or goes on looking.
    fn find(&mut self, number: usize, kernel: &mut Kernel) {
        let is_looking = |server: &Server| matches!(server.role, Role::Looking);
        if !is_looking(&self.servers[number]) || self.servers[number].state == State::Down {
            return;
        }
        if !self.servers[number].is_able() {
            return self.look_later(number, kernel);
        }
        let working = self.working().filter(|leader| self.hear(number, *leader));
        if let Some(leader) = working {
            self.follow(number, leader, kernel);
            return self.advance(leader, kernel);
        }
        let with = |other: &usize| {
            let there = &self.servers[*other];
            self.hear(number, *other) && there.is_able() && is_looking(there)
        };
        let all: Vec<usize> = (0..self.servers.len()).filter(with).collect();
        if self.is_majority(all.len()) {
            self.elect(&all, kernel);
        } else {
            self.look_later(number, kernel);
        }
    }

    /// Lets the one with the newest log lead the others.
    fn elect(&mut self, all: &[usize], kernel: &mut Kernel) {
        let newest = |number: &&usize| {
            let server = &self.servers[**number];
            (server.epoch, server.newest(), **number)
        };
        let Some(leader) = all.iter().max_by_key(newest).copied() else {
            return;
        };
        let epoch = self.servers.iter().map(|server| server.epoch).max();
        let server = &mut self.servers[leader];
        server.epoch = epoch.unwrap_or(0) + 1;
        server.searches += 1;
        let committed = server.applied;
        kernel.tell(|| format!("server {leader} leads in epoch {}", server.epoch));
        server.role = Role::Leading(Leading {
            tracker: Tracker::of(&BTreeMap::new(), self.tick, Duration::ZERO),
            ticks: 0,
            followers: BTreeMap::new(),
            committed,
            proposed: 0,
        });
        self.switches += 1;
        for number in all.iter().filter(|number| **number != leader) {
            self.follow(*number, leader, kernel);
        }
        self.advance(leader, kernel);
        let server = &mut self.servers[leader];
        let time = server.time(kernel.now);
        let tracker = Tracker::of(server.replica.tree().sessions(), self.tick, time);
        if let Some(leading) = server.leading() {
            leading.tracker = tracker;
        }
    }

    /// A server follows a leader, and gets its log.
    fn follow(&mut self, number: usize, leader: usize, kernel: &mut Kernel) {
        self.links += 1;
        let link = self.links;
        let (log, epoch) = (self.servers[leader].log.clone(), self.servers[leader].epoch);
        let server = &mut self.servers[number];
        let zxid = |entry: &Rc<Entry>| entry.transaction.zxid;
        let pairs = server.log.iter().map(zxid).zip(log.iter().map(zxid));
        let common = pairs.take_while(|(own, other)| own == other).count();
        assert!(
            common >= server.applied,
            "server {number} has what is not agreed on"
        );
        server.log.truncate(common);
        server.log.extend_from_slice(&log[common..]);
        (server.logged, server.epoch) = (log.len(), epoch);
        server.searches += 1;
        server.role = Role::Following(Following {
            leader,
            link,
            heard_at: kernel.now,
            heard: BTreeMap::new(),
        });
        let (logged, sync_limit) = (log.len(), u64::from(self.sync_limit));
        let mut committed = 0;
        if let Some(leading) = self.servers[leader].leading() {
            let follower = Follower {
                link,
                counts_until: leading.ticks + sync_limit,
                logged,
                behind_since: None,
            };
            leading.followers.insert(number, follower);
            committed = leading.committed;
        }
        self.apply(number, committed, kernel);
    }

    /// A leader has lost a follower.
    fn leave(&mut self, leader: usize, follower: usize) {
        if let Some(leading) = self.servers[leader].leading() {
            leading.followers.remove(&follower);
        }
    }

    /// A server hears a message of another one.
    pub(super) fn hears(
        &mut self,
        number: usize,
        from: usize,
        link: u64,
        message: Message,
        kernel: &mut Kernel,
    ) {
        match &mut self.servers[number].role {
            Role::Leading(leading) => {
                let limit = leading.ticks + u64::from(self.sync_limit);
                if let Some(follower) = leading.followers.get_mut(&from)
                    && follower.link == link
                {
                    follower.counts_until = limit;
                    self.hears_follower(number, from, link, message, kernel);
                }
            }
            Role::Following(following) if following.link == link => {
                following.heard_at = kernel.now;
                self.hears_leader(number, from, link, message, kernel);
            }
            _ => {}
        }
    }

    fn hears_follower(
        &mut self,
        number: usize,
        from: usize,
        link: u64,
        message: Message,
        kernel: &mut Kernel,
    ) {
        let time = self.servers[number].time(kernel.now);
        let Some(leading) = self.servers[number].leading() else {
            return;
        };
        match message {
            Message::Wish(session, wish, origin) => {
                self.wishes(number, session, wish, origin, kernel);
            }
            Message::Attach(socket, session, timeout) => {
                let is_there = leading.tracker.touch(session, timeout, time);
                if is_there {
                    leading.tracker.attach(session, from);
                }
                let attached = Message::Attached(socket, session, is_there);
                self.tell(number, from, link, attached, kernel);
            }
            Message::Heard(sessions) => {
                for (session, timeout) in sessions {
                    leading.tracker.touch(session, timeout, time);
                }
            }
            Message::Logged(logged) => {
                let all = self.servers[number].log.len();
                if let Some(leading) = self.servers[number].leading()
                    && let Some(follower) = leading.followers.get_mut(&from)
                {
                    follower.logged = logged;
                    follower.behind_since = (logged < all).then_some(kernel.now);
                }
                self.advance(number, kernel);
            }
            Message::Closed => self.leave(number, from),
            _ => {}
        }
    }

    fn hears_leader(
        &mut self,
        number: usize,
        from: usize,
        link: u64,
        message: Message,
        kernel: &mut Kernel,
    ) {
        let server = &mut self.servers[number];
        match message {
            Message::Propose(entry) => {
                server.log.push(entry);
                if !server.is_stalled {
                    self.logs(number, kernel);
                }
            }
            Message::Commit(count) => self.apply(number, count, kernel),
            Message::Attached(socket, session, is_there) => {
                self.attached(number, socket, session, is_there, kernel);
            }
            Message::Ping => {
                if let Role::Following(following) = &mut server.role {
                    let heard = std::mem::take(&mut following.heard);
                    self.tell(number, from, link, Message::Heard(heard), kernel);
                }
            }
            Message::Closed => self.look(number, kernel),
            _ => {}
        }
    }

    /// All that a server has taken is on its disk.
    pub(super) fn logs(&mut self, number: usize, kernel: &mut Kernel) {
        let server = &mut self.servers[number];
        server.logged = server.log.len();
        match server.role {
            Role::Following(Following { leader, link, .. }) => {
                let logged = Message::Logged(server.logged);
                self.tell(number, leader, link, logged, kernel);
            }
            Role::Leading(_) => self.advance(number, kernel),
            Role::Looking => {}
        }
    }

    /// A leader hears what a client at `origin` wants, for its session.
    pub(super) fn wishes(
        &mut self,
        number: usize,
        session: i64,
        wish: Wish,
        origin: Origin,
        kernel: &mut Kernel,
    ) {
        let time = self.servers[number].time(kernel.now);
        let Some(leading) = self.servers[number].leading() else {
            return;
        };
        let command = match wish {
            Wish::Begin(timeout) => {
                leading
                    .tracker
                    .begin(session, timeout, Some(origin.server), time);
                Command::Begin(timeout)
            }
            // Any connection may end its session (`PrepRequestProcessor.java`, closeSession).
            Wish::Request(Request::Close) => {
                leading.tracker.close(session);
                Command::End
            }
            Wish::Request(request) => {
                match (leading.tracker.check(session, origin.server), request) {
                    (Ok(()), Request::Multi(parts)) => Command::Multi(parts),
                    (Ok(()), Request::Container(path)) => Command::Container(path),
                    // A leader's own client is hung up on. A follower knows the parts' codes alone.
                    (Err(SESSION_MOVED), _) if origin.server == number => {
                        Command::Refused(SESSION_MOVED, None)
                    }
                    (Err(code), Request::Multi(parts)) => Command::Refused(code, Some(parts.len())),
                    (Err(code), _) => Command::Refused(code, None),
                    (Ok(()), _) => return,
                }
            }
        };
        self.propose(number, session, command, Asker::Client(origin), kernel);
    }

    /// A leader proposes a transaction.
    pub(super) fn propose(
        &mut self,
        number: usize,
        session: i64,
        command: Command,
        asker: Asker,
        kernel: &mut Kernel,
    ) {
        let server = &mut self.servers[number];
        let (epoch, time) = (server.epoch, server.clock.at(kernel.now).0 / 1_000);
        let Some(leading) = server.leading() else {
            return;
        };
        leading.proposed += 1;
        let transaction = Transaction {
            zxid: epoch << 32 | leading.proposed,
            time,
            session,
            command,
        };
        let entry = Rc::new(Entry { transaction, asker });
        server.log.push(Rc::clone(&entry));
        if !server.is_stalled {
            server.logged = server.log.len();
        }
        let mut all = Vec::new();
        if let Some(leading) = server.leading() {
            for (other, follower) in &mut leading.followers {
                follower.behind_since.get_or_insert(kernel.now);
                all.push((*other, follower.link));
            }
        }
        for (other, link) in all {
            self.tell(
                number,
                other,
                link,
                Message::Propose(Rc::clone(&entry)),
                kernel,
            );
        }
        self.advance(number, kernel);
    }

    /// A leader commits what is on the disks of a majority.
    fn advance(&mut self, number: usize, kernel: &mut Kernel) {
        let count = self.servers.len();
        let server = &mut self.servers[number];
        let own = server.logged;
        let Some(leading) = server.leading() else {
            return;
        };
        let others = leading.followers.values().map(|follower| follower.logged);
        let mut logged: Vec<usize> = others.chain([own]).collect();
        logged.sort_unstable_by(|one, other| other.cmp(one));
        let committed = logged.get(count / 2).copied().unwrap_or(0);
        if committed <= leading.committed {
            return;
        }
        leading.committed = committed;
        let all = leading.followers.iter();
        let all: Vec<(usize, u64)> = all.map(|(other, it)| (*other, it.link)).collect();
        self.apply(number, committed, kernel);
        for (other, link) in all {
            self.tell(number, other, link, Message::Commit(committed), kernel);
        }
    }

    /// A server executes the first `count` transactions of its log.
    fn apply(&mut self, number: usize, count: usize, kernel: &mut Kernel) {
        while self.servers[number].applied < count {
            let server = &mut self.servers[number];
            let entry = Rc::clone(&server.log[server.applied]);
            server.applied += 1;
            let Transaction { zxid, session, .. } = entry.transaction;
            let is_first = server.applied > self.agreed.len();
            if is_first {
                self.agreed.push(zxid);
            }
            assert_eq!(self.agreed[server.applied - 1], zxid, "servers differ");
            let (answer, told) = server.replica.execute(&entry.transaction);
            if is_first {
                Self::did_by_hand(&entry, &answer, kernel);
            }
            for (socket, happening, path) in told {
                if server.connections.contains_key(&socket) {
                    Server::write(kernel, socket, frames::event(happening, &path));
                }
            }
            let own = match entry.asker {
                Asker::Client(origin) if origin.server == number => Some(origin),
                _ => None,
            };
            if entry.transaction.command == Command::End {
                if let Some(leading) = server.leading() {
                    leading.tracker.forget(session);
                }
                let is_other = |socket: &SocketId| own.is_none_or(|own| own.socket != *socket);
                let attached = server.connections.iter();
                let attached = attached.filter(|(_, connection)| connection.session == session);
                let over: Vec<SocketId> = attached
                    .map(|(socket, _)| *socket)
                    .filter(is_other)
                    .collect();
                for socket in over {
                    server.hang_up(kernel, socket);
                }
            }
            if let Some(own) = own {
                self.done(
                    &own,
                    session,
                    &entry.transaction.command,
                    answer,
                    zxid,
                    kernel,
                );
            }
        }
    }

    /// Tells the witness of a lock that a hand has taken away.
    fn did_by_hand(entry: &Entry, answer: &Answer, kernel: &mut Kernel) {
        let Asker::Hand(token, timeout) = entry.asker else {
            return;
        };
        let is_done = match answer {
            Answer::Multi(parts) => parts.iter().all(|part| !matches!(part, Part::Failed(_))),
            _ => true,
        };
        if is_done {
            kernel.tell(|| format!("the lock of {token} is taken away by hand"));
            let now = kernel.now;
            kernel.witness.takes_away(token, now + timeout, now);
        }
    }
}
