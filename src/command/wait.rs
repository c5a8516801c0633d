//! Waiting for the lock: attempt after attempt until it is ours, the time is up, or a signal comes.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use super::run::joining::{Joined, Joining};
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::job::event::CaughtSignal;
use crate::job::guard::Guard;
use crate::job::nested::outer::OuterRun;
use crate::job::signals::Signals;
use crate::lock::backoff::{self, Absence};
use crate::lock::ballot::Tally;
use crate::lock::blocker::Blocker;
use crate::lock::details::Details;
use crate::lock::fault::{Fault, Faults};
use crate::lock::fence;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::quorum::Quorum;
use crate::lock::token::Token;
use crate::node::Claim;
use crate::redlock::attempt::Attempt;
use crate::redlock::holding::Holding;
use crate::redlock::wakeups::Wakeups;
use crate::redlock::{self, Nodes};
use crate::report::StatusLine;
use crate::settings::{LockSettings, file_name};
use crate::text::duration;

/// How long nodes that have never answered are tried.
const UNREACHABLE: Duration = Duration::from_secs(10);

/// After so many ties without any other attempt between a waiter gives up its place for another.
const TIES: u32 = 3;

/// So often in a row a waiter that is told to go and finds the lock held goes at once; then it takes its time, this long and
/// twice as long after each further word: a server that says so without end would have it ask without end, while a lock that
/// reaches several nodes by and by says so a few times too often.
const FALSE_WAKE_LIMIT: u32 = 5;
const FALSE_WAKE_PAUSE: Duration = Duration::from_millis(20);

/// How often the line on a terminal is drawn.
const EVERY: Duration = Duration::from_secs(1);

/// So long before its time is over a waiter looks once more: who took the key away by hand told nobody.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How the waiting ended.
pub(super) enum Acquired {
    /// The lock is ours.
    Won(Box<Holding>),
    /// An rlock above us holds it, and lets us run under it. Who that is, for people.
    Nested(Box<OuterRun>, String),
    /// It is not, and all has been said.
    Over(Outcome),
}

/// What the lock is taken for, as others are told.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A command, which ends before the lock can pass on. If rlock dies, the guard gives back what it had asked for.
    Command(&'a OsStr, &'a Guard),
    /// Work that no process of ours knows of (`acquire`).
    Steps,
}

/// What the last attempt found, for the message when the time is up.
enum Blocked {
    Busy(Box<Blocker>),
    /// Nobody has it for certain.
    Split(Box<Blocker>, Faults),
    /// Too few of the nodes gave a vote.
    Unreachable(Faults, Quorum),
    /// A majority granted, too late for the lease to be of use.
    TooLate,
}

/// Waits for the lock as `--wait` says. However that ends, unless with the lock, nothing of the wait is left on the nodes.
pub(super) async fn for_lock(
    nodes: &Nodes,
    lock: &LockSettings,
    purpose: Purpose<'_>,
    signals: &mut Signals,
) -> anyhow::Result<Acquired> {
    let mut wait = Wait::new(nodes, lock, purpose)?;
    let waited = wait.until_over(signals).await;
    if !matches!(waited, Ok(Acquired::Won(_))) {
        wait.leave().await;
    }
    waited
}

/// A wait that is under way.
struct Wait<'a> {
    nodes: &'a Nodes,
    lock: &'a LockSettings,
    purpose: Purpose<'a>,
    begin: Instant,
    gives_up: Instant,
    /// With `--no-wait` the first attempt may take its full time, so that it works over a slow line too.
    at_least: Instant,
    alarm: Alarm,
    /// A majority has answered once.
    answered: bool,
    /// The nodes that gave the last attempt no answer in time.
    silent: Vec<bool>,
    /// So many attempts in a row have come to nothing because votes were split.
    splits: u32,
    /// So many of these were ties of ours: we kept a node from the others, as they kept others from us.
    ties: u32,
    /// So many times in a row it was said to be our turn and was not.
    false_wakes: u32,
    /// Attempts in a row to which no majority gave a vote.
    away: Absence,
    longest_ttl: Duration,
    /// Who we are to those who wait, from the first ticket on: the connections listen for this name.
    waiter: Option<Waiter>,
    /// Our place among those who wait, with the token of the last attempt.
    ticket: Option<(Ticket, Token)>,
    rank: Option<u32>,
    /// Whether we are to see to it that whoever's turn it is goes.
    watches: bool,
    joining: Joining,
    told: Announced,
    status: StatusLine,
}

impl<'a> Wait<'a> {
    fn new(nodes: &'a Nodes, lock: &'a LockSettings, purpose: Purpose<'a>) -> std::io::Result<Self> {
        let begin = clock::now();
        let patient = lock.wait.is_none_or(|wait| !wait.is_zero());
        Ok(Self {
            nodes,
            lock,
            purpose,
            begin,
            gives_up: lock.wait.map_or(Instant::NEVER, |wait| begin + wait),
            at_least: if patient { begin } else { begin + lock.schedule.node_timeout() },
            alarm: Alarm::new()?,
            answered: false,
            silent: Vec::new(),
            splits: 0,
            ties: 0,
            false_wakes: 0,
            away: Absence::default(),
            longest_ttl: lock.schedule.ttl(),
            waiter: None,
            ticket: None,
            rank: None,
            watches: false,
            joining: Joining::default(),
            told: Announced::default(),
            status: StatusLine::new(lock.report.allows_status_line(), EVERY),
        })
    }

    async fn until_over(&mut self, signals: &mut Signals) -> anyhow::Result<Acquired> {
        let mut last = None;
        loop {
            let mut attempt = self.attempt()?;
            let mut line = self.line();
            let (tally, complete) = loop {
                tokio::select! {
                    biased;
                    caught = terminating(signals) => {
                        self.give_up(attempt, true).await;
                        return Ok(Acquired::Over(ended_by(caught)));
                    }
                    tally = attempt.tally() => break (tally, true),
                    node = line.called() => attempt.offered(node),
                    () = self.alarm.reached(self.gives_up.max(self.at_least)) => break (attempt.tally_so_far(), false),
                }
            };
            if let Some((node, why)) = attempt.ballot().unguarded() {
                let node = self.nodes[node].name();
                let text = format_args!("{node}: INFO is refused, so a restart of it cannot be seen: {why}");
                self.told.once("unguarded", text, self.lock, &self.status);
            }
            // Any other end of the attempt names the nodes that gave no vote.
            if matches!(tally, Tally::Won(_) | Tally::Busy(_)) {
                self.told.refusals(self.nodes, &attempt, self.lock, &self.status);
            }
            let found = match tally {
                Tally::Won(fence) => {
                    let after = duration::show_rounded(clock::now().since(self.begin));
                    self.lock.report.step("acquired", format_args!("acquired, fence {fence}, after {after}"));
                    let mut holding = attempt.hold(fence);
                    holding.has_told_refusals(&self.told.refused);
                    return Ok(Acquired::Won(Box::new(holding)));
                }
                Tally::Refused(faults) => {
                    self.give_up(attempt, true).await;
                    let why = faults.no_majority(self.nodes.quorum());
                    return Err(Failure::new(Outcome::Refused, format!("{}: {why}", self.lock.key)).into());
                }
                Tally::Unfit(node, fault) => {
                    self.give_up(attempt, true).await;
                    return Err(unfit(self.lock, &node, &fault).into());
                }
                Tally::Busy(blocker) => {
                    let joins =
                        attempt.ballot().holder().and_then(|holder| Some((holder.clone(), self.outer(holder)?)));
                    if let Some((occupant, token)) = joins {
                        self.give_up(attempt, true).await;
                        match self.join(&occupant, token, signals).await? {
                            Some(waited) => return Ok(waited),
                            None => continue,
                        }
                    }
                    Blocked::Busy(blocker)
                }
                Tally::Split(blocker, faults) => Blocked::Split(blocker, faults),
                Tally::TooLate => {
                    self.answered = true;
                    Blocked::TooLate
                }
                Tally::Unreachable { faults, answered } => {
                    self.answered |= answered;
                    Blocked::Unreachable(faults, self.nodes.quorum())
                }
            };
            self.joining.forget();
            self.remember(&attempt, &found);
            // An attempt that was cut short says less than the one before it.
            let last = if complete { last.insert(found) } else { last.get_or_insert(found) };
            let patience = self.patience(last);
            if clock::now() >= patience {
                self.give_up(attempt, true).await;
                return last.give_up(self.lock);
            }
            let entered = attempt.ballot().queue_entry_time();
            self.give_up(attempt, false).await;
            if self.ticket.is_none() && self.take_ticket(entered) {
                continue;
            }
            self.tell(last);
            if self.ties >= TIES {
                // Our place is perhaps what blocks the others: another comes first then, and we behind it.
                self.leave().await;
                (self.splits, self.ties) = (0, 0);
            }
            if let Some(caught) = self.stand(line, last, patience, signals).await {
                return Ok(Acquired::Over(ended_by(caught)));
            }
            if clock::now() >= patience {
                return last.give_up(self.lock);
            }
        }
    }

    /// The token of `occupant`, if it is an rlock above us, for which it is no use to wait. What `acquire` took ends by
    /// itself.
    fn outer(&self, occupant: &Occupant) -> Option<Token> {
        let (token, details) = occupant.holder()?;
        let waits_for_itself = matches!(self.purpose, Purpose::Command(..)) || !details.acquired;
        (waits_for_itself && self.lock.outer.claim(token)).then_some(token)
    }

    /// The end of the wait, if the rlock above us that holds the lock has one for us; else a pause.
    async fn join(
        &mut self,
        occupant: &Occupant,
        token: Token,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<Acquired>> {
        let joined = tokio::select! {
            biased;
            caught = terminating(signals) => return Ok(Some(Acquired::Over(ended_by(caught)))),
            joined = self.joining.join(self.lock, self.purpose, occupant, token) => joined?,
        };
        match joined {
            Joined::Over(waited) => return Ok(Some(waited)),
            Joined::Refused => {}
            Joined::Silent => {
                let text = format_args!("waiting: the outer rlock does not answer: {}", occupant.named());
                self.told.once("silent", text, self.lock, &self.status);
            }
        }
        self.answered = true;
        let until = self.gives_up.min(clock::now() + self.soon());
        tokio::select! {
            biased;
            caught = terminating(signals) => return Ok(Some(Acquired::Over(ended_by(caught)))),
            () = self.alarm.reached(until) => {}
        }
        // Another attempt would be cut short, and say less.
        let is_over = clock::now() >= self.gives_up;
        if is_over {
            Blocked::Busy(Box::new(Blocker::Occupant(occupant.clone()))).give_up(self.lock).map(Some)
        } else {
            Ok(None)
        }
    }

    fn soon(&self) -> Duration {
        backoff::retry(self.lock.schedule.retry(), fastrand::f64())
    }

    fn attempt(&mut self) -> std::io::Result<Attempt> {
        let inquiry = inquiry(self.lock, self.nodes.len(), self.longest_ttl);
        let ticket = self.ticket.as_ref().map(|(ticket, _)| ticket.clone());
        let claim = claim(self.lock, self.purpose, self.nodes.len(), inquiry, ticket);
        if let Some((_, token)) = &mut self.ticket {
            *token = claim.token;
        }
        // The key may be set from here on. If rlock dies, its guard gives it back.
        if let Purpose::Command(_, guard) = self.purpose {
            guard.may_hold(claim.token.as_uuid());
        }
        Attempt::start(self.nodes, claim, self.lock.schedule, self.lock.restart_guard, &self.silent)
    }

    fn line(&self) -> Wakeups {
        let retry = self.lock.schedule.retry();
        let doubt =
            self.false_wakes.checked_sub(FALSE_WAKE_LIMIT).map(|more| backoff::doubled(FALSE_WAKE_PAUSE, more, retry));
        Wakeups::new(self.nodes, retry, doubt.unwrap_or_default())
    }

    /// What is to be remembered of an attempt that did not win, and what is to be said of it once.
    fn remember(&mut self, attempt: &Attempt, found: &Blocked) {
        if let Some((node, why)) = attempt.ballot().unqueued() {
            let node = self.nodes[node].name();
            let text = format_args!("{node}: waiting without a place in the queue, which is refused: {why}");
            self.told.once("unqueued", text, self.lock, &self.status);
        } else if let Some(node) =
            (0..self.nodes.len()).find(|node| attempt.ballot().has_voted(*node) && self.nodes[*node].is_deaf())
        {
            let name = self.nodes[node].name();
            let text =
                format_args!("{name}: we may not listen there (SUBSCRIBE to rlock:wake:*), and look every 250 ms");
            self.told.once("unheard", text, self.lock, &self.status);
        }
        // If too few nodes count, who wants the rest is no matter: it is no tie, and no other order would mend it.
        let quorum = self.nodes.quorum();
        let is_away = matches!(found, Blocked::Unreachable(..) | Blocked::TooLate);
        self.away.note(if is_away { attempt.ballot().votes() } else { quorum.needed() }, quorum.needed());
        let tied = matches!(found, Blocked::Split(_, faults) if faults.len() <= quorum.tolerated());
        let taken = u32::from(attempt.ballot().has_taken_any());
        (self.splits, self.ties) = if tied { (self.splits + 1, self.ties + taken) } else { (0, 0) };
        self.answered |= !matches!(found, Blocked::Unreachable(..));
        self.silent = attempt.ballot().silent();
        self.longest_ttl = self.longest_ttl.max(attempt.ballot().longest_ttl());
        self.rank = attempt.ballot().rank();
    }

    /// Says what holds the wait up, where that is news.
    fn tell(&mut self, last: &Blocked) {
        let (lock, text) = (self.lock, last.described());
        match last {
            Blocked::Busy(blocker) => {
                if !self.told.holder.as_ref().is_some_and(|told| told.is_same(blocker)) {
                    lock.report.step("waiting", format_args!("waiting{}: {text}", ahead(self.rank)));
                    self.told.holder = Some((**blocker).clone());
                }
                // Nobody reading cron's mail would otherwise learn why the job never ran again.
                if blocker.left().is_none() && blocker.is_foreign() {
                    self.told.once("waiting", format_args!("waiting: {text}"), lock, &self.status);
                }
            }
            Blocked::Split(..) if self.splits == 1 => lock.report.step("waiting", format_args!("waiting: {text}")),
            Blocked::Split(..) if self.splits > 1 => {}
            // With a majority there the wait has no end of its own, so whoever waits is told.
            // `--no-wait` has one line to say, and this is not it.
            Blocked::Split(..) | Blocked::Unreachable(..) | Blocked::TooLate
                if self.answered && lock.wait != Some(Duration::ZERO) =>
            {
                self.told.once("unreachable", format_args!("{text}; trying again"), lock, &self.status);
            }
            Blocked::Split(..) | Blocked::Unreachable(..) | Blocked::TooLate => {
                lock.report.step("unreachable", format_args!("{text}; trying again"));
            }
        }
    }

    /// When there is no more waiting.
    fn patience(&self, last: &Blocked) -> Instant {
        let patience = if self.answered { self.gives_up } else { self.gives_up.min(self.begin + UNREACHABLE) };
        // Of those who tie without waiting, one should win.
        if matches!(last, Blocked::Split(..)) { patience.max(self.at_least) } else { patience }
    }

    /// Takes a place in the line, if a node has told the time; whether there is one now. `--no-wait` stands in no line.
    fn take_ticket(&mut self, entered: Option<u64>) -> bool {
        let (Some(entered), true) = (entered, self.gives_up > self.begin) else { return false };
        let fresh = || Waiter {
            id: Token::fresh().as_uuid(),
            host: host(),
            pid: std::process::id(),
            since: clock::unix_millis(SystemTime::now()),
        };
        let waiter = self.waiter.get_or_insert_with(fresh).clone();
        self.ticket = Some((Ticket { waiter, number: self.lock.order.ticket(entered) }, Token::fresh()));
        true
    }

    /// Waits until it is time for another attempt. The signal that ends the wait, if one comes.
    async fn stand(
        &mut self,
        mut line: Wakeups,
        last: &Blocked,
        patience: Instant,
        signals: &mut Signals,
    ) -> Option<CaughtSignal> {
        let heard = self.ticket.is_some() && Wakeups::is_heard(self.nodes);
        let now = clock::now();
        let last_look = patience.before(LAST_LOOK);
        let stop = if now < last_look { last_look } else { patience };
        self.watches &= last.is_somebodys_turn();
        // Whoever watches looks when the first would.
        let rank = if self.watches { Some(0) } else { self.rank };
        let pause = match last {
            // We would wait for ourselves: it is joined once a majority says that it has the lock.
            Blocked::Busy(blocker) if blocker.occupant().is_some_and(|occupant| self.outer(occupant).is_some()) => {
                self.soon()
            }
            _ => last.pause(rank, heard, self.splits, &self.away, self.lock),
        };
        let until = stop.min(now + pause);
        line.begin(until);
        loop {
            let (rank, begin) = (self.rank, self.begin);
            self.status.draw(|| last.status(rank, begin, self.lock));
            tokio::select! {
                biased;
                caught = terminating(signals) => return Some(caught),
                over = line.stand(&mut self.alarm, self.status.due()) => if over {
                    self.watches |= line.watches();
                    self.false_wakes = if line.has_turn() { self.false_wakes.saturating_add(1) } else { 0 };
                    return None;
                },
            }
        }
    }

    async fn give_up(&mut self, attempt: Attempt, leaves: bool) {
        attempt.give_up(leaves).await;
        if let Purpose::Command(_, guard) = self.purpose {
            guard.holds_nothing();
        }
        if leaves {
            self.ticket = None;
        }
    }

    async fn leave(&mut self) {
        if let Some((ticket, token)) = self.ticket.take() {
            redlock::leave(self.nodes, &self.lock.key, token, &ticket.waiter).await;
        }
    }
}

/// Whether the nodes are asked what they are, and how long they must have been up: one node has nobody to differ from.
fn inquiry(lock: &LockSettings, nodes: usize, longest_ttl: Duration) -> Option<Duration> {
    let span = lock.restart_guard.span(nodes, longest_ttl);
    (nodes > 1 || !span.is_zero()).then_some(span)
}

fn unfit(lock: &LockSettings, node: &str, fault: &Fault) -> Failure {
    Failure::new(Outcome::Config, format!("{}: {node}: {fault}", lock.key))
}

/// The next signal that ends a wait: all that would be passed on to a command.
pub(super) async fn terminating(signals: &mut Signals) -> CaughtSignal {
    loop {
        let caught = signals.next().await;
        if caught.signal != Signal::SIGCHLD {
            return caught;
        }
    }
}

/// Interrupted at the terminal, rlock dies as the rest of the job does; by anybody else's signal it exits in order.
pub(super) fn ended_by(caught: CaughtSignal) -> Outcome {
    let number = caught.signal as i32;
    if caught.from_terminal { Outcome::Interrupted(number) } else { Outcome::Signalled(number) }
}

/// What this attempt asks for: a token of its own, and who we are.
fn claim(
    lock: &LockSettings,
    purpose: Purpose,
    nodes: usize,
    inquiry: Option<Duration>,
    ticket: Option<Ticket>,
) -> Claim {
    let now = SystemTime::now();
    let token = Token::fresh();
    let (cmd, acquired) = match purpose {
        Purpose::Command(name, _) => (file_name(name), false),
        Purpose::Steps => ("acquire".to_owned(), true),
    };
    let details = Details {
        host: host(),
        pid: if acquired { 0 } else { std::process::id() },
        user: user(),
        since: clock::unix_millis(now),
        cmd,
        note: lock.note.clone(),
        acquired,
        broken: None,
        fence: None,
        ttl: duration::millis(lock.schedule.ttl()),
        n: nodes,
        v: 0,
    };
    Claim {
        key: lock.key.clone(),
        token,
        details: details.fitted(),
        fence_hint: fence::hint(now),
        term: lock.schedule.term(),
        min_uptime: inquiry,
        ticket,
    }
}

/// This machine's name.
pub(super) fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The user's name as the environment has it, else the number. Not getpwuid(3): a directory service that hangs must not
/// keep a job from running.
pub(super) fn user() -> String {
    ["LOGNAME", "USER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| format!("uid {}", nix::unistd::Uid::effective()))
}

impl Blocked {
    fn give_up(&self, lock: &LockSettings) -> anyhow::Result<Acquired> {
        match self {
            Self::Busy(_) | Self::Split(..) if lock.report.quiet => Ok(Acquired::Over(Outcome::Busy(lock.busy_code))),
            Self::Busy(_) | Self::Split(..) => {
                Err(Failure::new(Outcome::Busy(lock.busy_code), format!("{}: busy: {}", lock.key, self.described()))
                    .into())
            }
            Self::Unreachable(..) | Self::TooLate => {
                let hint = if lock.node_is_default {
                    "; name a server with --node or RLOCK_NODE, or use --node local for a lock on this machine alone"
                } else {
                    ""
                };
                Err(Failure::new(Outcome::Unreachable, format!("{}: {}{hint}", lock.key, self.described())).into())
            }
        }
    }

    fn described(&self) -> String {
        match self {
            Self::Busy(blocker) => blocker.to_string(),
            Self::Split(blocker, faults) if faults.is_empty() => format!("too few votes are free: {blocker}"),
            Self::Split(blocker, faults) => format!("too few votes are free: {blocker}; {faults}"),
            Self::Unreachable(faults, quorum) => faults.no_majority(*quorum),
            Self::TooLate => "the grant came too late to be of use".to_owned(),
        }
    }

    /// For the line on a terminal.
    fn status(&self, rank: Option<u32>, begin: Instant, lock: &LockSettings) -> String {
        let waited = Duration::from_secs(clock::now().since(begin).as_secs());
        let (key, waited, ahead) = (&lock.key, duration::show(waited), ahead(rank));
        match self {
            Self::Busy(blocker) => format!("rlock: {key}: waiting {waited}{ahead}: {}", blocker.named()),
            _ => format!("rlock: {key}: waiting {waited}{ahead}: {}", self.described()),
        }
    }

    /// Nobody has the lock, and one of those who wait is to take it.
    fn is_somebodys_turn(&self) -> bool {
        matches!(self, Self::Busy(blocker) if matches!(**blocker, Blocker::Reserved(_)))
    }

    fn pause(&self, rank: Option<u32>, heard: bool, splits: u32, away: &Absence, lock: &LockSettings) -> Duration {
        match self {
            Self::Busy(blocker) => backoff::recheck(blocker, rank, heard, fastrand::f64()),
            Self::Split(..) if splits > 0 => backoff::split(splits, fastrand::f64()),
            Self::Split(..) | Self::Unreachable(..) | Self::TooLate => {
                away.pause(lock.schedule.retry(), fastrand::f64()) + backoff::by_rank(rank)
            }
        }
    }
}

fn ahead(rank: Option<u32>) -> String {
    rank.filter(|rank| *rank > 0).map_or_else(String::new, |rank| format!(", {rank} ahead"))
}

/// What has been said of the wait, so that it is said once.
#[derive(Default)]
struct Announced {
    holder: Option<Blocker>,
    once: Vec<&'static str>,
    /// The nodes whose refusal has been told.
    refused: Vec<usize>,
}

impl Announced {
    fn once(&mut self, event: &'static str, text: std::fmt::Arguments<'_>, lock: &LockSettings, status: &StatusLine) {
        if !self.once.contains(&event) {
            self.once.push(event);
            status.clear();
            lock.report.note(event, text);
        }
    }
    /// One warning for each node that refuses us.
    fn refusals(&mut self, nodes: &Nodes, attempt: &Attempt, lock: &LockSettings, status: &StatusLine) {
        for (node, fault) in attempt.ballot().refusals() {
            if !self.refused.contains(&node) {
                self.refused.push(node);
                status.clear();
                lock.report.note("refused", format_args!("{}: {}", nodes[node].name(), fault.as_missing_vote()));
            }
        }
    }
}
