//! The servers and contenders that faults are injected into, and the mends of those faults.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::contender::Ending;
use crate::fault::{Event, Fault};
use crate::loss::{Loss, NOTICED, SETTLED, Time};
use crate::network::Cut;
use crate::operator::Operators;
use crate::server::{Direction, Server};
use crate::share::KEYS;
use crate::{Plan, TTL};
use testkit::now;
use testkit::processes::{child_named, try_signal};

/// Number of draws until a fault is found that is possible now.
const DRAWS: usize = 30;

/// Longest wait for a lock to break, and rest of a server on which all contenders depend.
const BREATH: Duration = Duration::from_millis(500);

/// Time for which a server's writes are paused.
const PAUSE: Duration = Duration::from_millis(500);

/// The end of a fault, or what follows it.
pub(crate) enum Mend {
    Continue(i32),
    ContinueServer(usize),
    RightClock(usize),
    Quicken(usize, Direction),
    Heal(Cut),
    ComeBack(usize),
    Lose(Loss),
}

/// The servers and contenders, and the faults they suffer.
pub(crate) struct World {
    servers: Vec<Server>,
    contenders: Arc<Vec<AtomicI32>>,
    operators: Operators,
    faults: Vec<Fault>,
    /// Whether packets can be dropped.
    cuts: bool,
    /// Names of the locks.
    keys: &'static [&'static str],
    /// Whether only the holder is hurt.
    planted: bool,
    mends: Vec<(Instant, Mend)>,
    /// End of the time for which each server counts as hurt.
    hurt: Vec<Instant>,
    /// Time for which a server that is back grants nothing.
    guard: Duration,
    /// Rest of a server after each fault: until earlier leases are over, and it surely answers
    /// again.
    rest: Duration,
    /// End of the time for which each contender's rlock is stopped, or its guard may be missing:
    /// not both at once.
    frail: Vec<Instant>,
    /// End of the leases of locks that were released while a server's writes were paused: it drops
    /// the release when the client exits.
    unreleased: Option<Instant>,
    events: Vec<Event>,
    /// The events and their targets, for the analysis of a failure.
    log: File,
}

impl World {
    /// `cuts` is whether packets can be dropped; `log` gets the events.
    pub(crate) fn new(
        servers: Vec<Server>,
        contenders: Arc<Vec<AtomicI32>>,
        operators: Operators,
        plan: &Plan,
        cuts: bool,
        log: File,
    ) -> Self {
        let now = Instant::now();
        let (hurt, frail) = (vec![now; servers.len()], vec![now; contenders.len()]);
        let faults = plan
            .faults()
            .filter(|fault| cuts || !matches!(fault, Fault::Partition | Fault::LoseReplies));
        Self {
            faults: faults.collect(),
            guard: plan.restart_guard().unwrap_or_default(),
            rest: if servers.len() > 1 { TTL } else { BREATH },
            cuts,
            keys: plan.keys(),
            planted: plan.planted,
            mends: vec![],
            unreleased: None,
            events: vec![],
            servers,
            contenders,
            operators,
            hurt,
            frail,
            log,
        }
    }

    /// Returns the servers.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the faults that were injected, and `others`, in their order.
    pub(crate) fn into_events(self, others: Vec<Event>) -> Vec<Event> {
        let mut all = self.events;
        all.extend(others);
        all.sort_by_key(|event| event.at);
        all
    }

    /// Lets an operator take each lock and give it back.
    pub(crate) fn take_each_lock(&self) -> Result<()> {
        self.keys
            .iter()
            .try_for_each(|key| self.operators.take_lock(key))
    }

    /// Waits for the end of the leases that no release has ended.
    pub(crate) fn await_unreleased(&self) {
        let left = self
            .unreleased
            .map(|until| until.saturating_duration_since(Instant::now()));
        std::thread::sleep(left.unwrap_or_default());
    }

    /// Injects a random fault that is possible now. Those of a deployment are injected by itself.
    pub(crate) fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        for _ in 0..DRAWS {
            let fault = self.faults[random.usize(..self.faults.len())];
            let server = random.usize(..self.servers.len().max(1));
            // Most contenders wait; the holder is drawn as often as all others.
            let any = random.usize(..self.contenders.len());
            let contender = if self.planted || random.bool() {
                self.holder().unwrap_or(any)
            } else {
                any
            };
            let at = now();
            if self.inject(fault, server, contender, random)? {
                let target = format!("server {server}, contender {contender}");
                return self.note(at, fault, target);
            }
        }
        Ok(())
    }

    /// Records a fault that began `at`.
    fn note(&mut self, at: Duration, fault: Fault, target: String) -> Result<()> {
        writeln!(self.log, "{} {} ({target})", at.as_nanos(), fault.name())?;
        self.events.push(Event { at, fault, target });
        Ok(())
    }

    /// Injects `fault` if that server or contender may suffer it now.
    fn inject(
        &mut self,
        fault: Fault,
        server: usize,
        contender: usize,
        random: &mut fastrand::Rng,
    ) -> Result<bool> {
        let short = Duration::from_millis(random.u64(50..2000));
        let long = TTL + Duration::from_millis(random.u64(100..1500));
        let either = if random.bool() { short } else { long };
        match fault {
            Fault::Forget | Fault::Restart | Fault::RightClock => {
                self.hurt(server, self.guard, |it| {
                    it.restart();
                    Ok(())
                })
            }
            Fault::Flush => self.hurt(server, self.guard, |it| it.ask(&["FLUSHALL"]).map(drop)),
            Fault::ClockJump => {
                let jump = if random.bool() { 60 } else { -120 };
                self.hurt_until_mended(server, short, Mend::RightClock(server), |it| {
                    it.set_clock(jump);
                    Ok(())
                })
            }
            Fault::StopServer => {
                self.hurt_until_mended(server, short, Mend::ContinueServer(server), |it| {
                    it.freeze();
                    Ok(())
                })
            }
            Fault::SlowRequests => self.slow(server, either, Direction::Requests),
            Fault::SlowReplies => self.slow(server, either, Direction::Replies),
            Fault::PauseWrites => {
                let pauses =
                    |it: &mut Server| it.ask(&["CLIENT", "PAUSE", "500", "WRITE"]).map(drop);
                let done = self.hurt(server, PAUSE, pauses)?;
                if done {
                    self.unreleased = self.unreleased.max(Some(Instant::now() + PAUSE + TTL));
                }
                Ok(done)
            }
            // A stopped server would not answer.
            Fault::KillConnections if self.is_hurt(server, Instant::now()) => Ok(false),
            Fault::KillConnections => {
                for kind in ["normal", "pubsub"] {
                    self.servers[server].ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
                }
                Ok(true)
            }
            Fault::Partition => {
                self.later(either, Mend::Heal(Cut::partition(contender)?));
                Ok(true)
            }
            Fault::LoseReplies => {
                self.later(short, Mend::Heal(Cut::replies(contender)?));
                Ok(true)
            }
            Fault::StopRlock => Ok(self.stop_rlock(contender, short)),
            Fault::StopRlockLong => Ok(self.stop_rlock(contender, long)),
            Fault::KillRlock => Ok(self
                .sound(contender)
                .is_some_and(|pid| try_signal(pid, Signal::SIGKILL).is_ok())),
            Fault::KillGuard => Ok(self.kill_guard(contender)),
            Fault::Break => self.break_lock(random),
            Fault::Away => self.take_away(server, short, random),
            // They follow `Away`, or are injected by a deployment.
            _ => Ok(false),
        }
    }

    /// Takes a server away while no other is hurt. Another one loses the key after `span`: before
    /// the first is back, or once it has been back for long enough.
    fn take_away(
        &mut self,
        away: usize,
        span: Duration,
        random: &mut fastrand::Rng,
    ) -> Result<bool> {
        let now = Instant::now();
        if (0..self.servers.len()).any(|server| self.is_hurt(server, now)) {
            return Ok(false);
        }
        let (back, rest) = match random.u8(..5) {
            // Less often, because of the long restart guard.
            0 => {
                self.servers[away].crash();
                (Mend::ComeBack(away), self.guard + SETTLED)
            }
            1 | 2 if self.cuts => (Mend::Heal(Cut::server(self.servers[away].port())?), SETTLED),
            _ => {
                self.servers[away].freeze();
                (Mend::ContinueServer(away), SETTLED)
            }
        };
        let count = self.servers.len();
        let server = (away + random.usize(1..count)) % count;
        let words: &[_] = if random.bool() {
            &["DEL", KEYS[0]]
        } else {
            &["FLUSHALL"]
        };
        let mut loss = Loss::new(server, words, away, back, rest, now + span);
        if random.bool() {
            // Due before the loss, which waits from the same time on.
            self.mends
                .extend(loss.back.take().map(|back| (now + span, *back)));
        }
        let rest = loss.ends() + NOTICED + rest;
        self.hurt[away] = rest;
        self.hurt[server] = rest;
        self.mends.push((now + span, Mend::Lose(loss)));
        Ok(true)
    }

    /// Takes the key from a server once a command has run for long enough.
    fn lose(&mut self, mut loss: Loss) -> Result<()> {
        let command = self.command().map(|(_, command)| command);
        let gone = loss.back.is_some().then_some(loss.away);
        let time = loss.time(command, Instant::now(), || self.have_one_holder(gone));
        if matches!(time, Time::NotYet) {
            self.later(Duration::ZERO, Mend::Lose(loss));
            return Ok(());
        }
        let (server, away) = (loss.server, loss.away);
        if matches!(time, Time::Now) {
            let at = now();
            self.servers[server].ask(loss.words)?;
            self.note(
                at,
                loss.fault(),
                format!("{} on server {server}, beside server {away}", loss.words[0]),
            )?;
        }
        let mut rest = Instant::now() + loss.rest;
        if let Some(back) = loss.back {
            self.later(NOTICED, *back);
            rest += NOTICED;
        }
        self.hurt[away] = rest;
        self.hurt[server] = rest;
        Ok(())
    }

    /// Whether all servers but `gone` have the key of one holder.
    fn have_one_holder(&self, gone: Option<usize>) -> bool {
        let there = self
            .servers
            .iter()
            .enumerate()
            .filter(|(server, _)| Some(*server) != gone);
        // A value is `TOKEN DETAILS`, and a server without the key answers nothing.
        let token = |value: String| value.split_once(' ').map(|(token, _)| token.to_owned());
        let mut tokens =
            there.map(|(_, server)| server.ask(&["GET", KEYS[0]]).ok().and_then(token));
        let Some(Some(first)) = tokens.next() else {
            return false;
        };
        tokens.all(|other| other.as_ref() == Some(&first))
    }

    fn stop_rlock(&mut self, contender: usize, span: Duration) -> bool {
        let Some(pid) = self
            .sound(contender)
            .filter(|pid| try_signal(*pid, Signal::SIGSTOP).is_ok())
        else {
            return false;
        };
        self.frail[contender] = Instant::now() + span + Duration::from_millis(200);
        self.later(span, Mend::Continue(pid));
        true
    }

    fn kill_guard(&mut self, contender: usize) -> bool {
        let Some(guard) = self
            .sound(contender)
            .and_then(|pid| child_named(pid, "rlock-guard"))
        else {
            return false;
        };
        // If its rlock can run, it starts another one in milliseconds.
        self.frail[contender] = Instant::now() + Duration::from_secs(1);
        try_signal(guard, Signal::SIGKILL).is_ok()
    }

    /// Breaks a lock as soon as a command runs, if that is soon.
    fn break_lock(&mut self, random: &mut fastrand::Rng) -> Result<bool> {
        let begin = Instant::now();
        while self.holder().is_none() {
            if begin.elapsed() > BREATH {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.operators
            .break_lock(self.keys[random.usize(..self.keys.len())])
            .map(|()| true)
    }

    fn slow(&mut self, server: usize, span: Duration, direction: Direction) -> Result<bool> {
        self.hurt_until_mended(server, span, Mend::Quicken(server, direction), |it| {
            it.set_slow(direction, true);
            Ok(())
        })
    }

    /// Returns a contender whose command runs.
    fn holder(&self) -> Option<usize> {
        self.command().map(|(contender, _)| contender)
    }

    /// Returns a command that runs, and its contender.
    fn command(&self) -> Option<(usize, i32)> {
        let command = |pid: &AtomicI32| child_named(pid.load(Ordering::Relaxed), "soak");
        self.contenders
            .iter()
            .enumerate()
            .find_map(|(contender, pid)| Some((contender, command(pid)?)))
    }

    /// Returns the contender's rlock, if it runs and its guard is there.
    fn sound(&self, contender: usize) -> Option<i32> {
        let pid = self.contenders[contender].load(Ordering::Relaxed);
        (pid > 0 && self.frail[contender] < Instant::now()).then_some(pid)
    }

    /// Does `what` to a server, which is hurt for `span` and some rest. Of several servers only a
    /// minority is hurt at a time.
    fn hurt(
        &mut self,
        server: usize,
        span: Duration,
        what: impl FnOnce(&mut Server) -> Result<()>,
    ) -> Result<bool> {
        let now = Instant::now();
        let others = (0..self.servers.len())
            .filter(|other| *other != server && self.hurt[*other] > now)
            .count();
        if self.is_hurt(server, now)
            || (self.servers.len() > 1 && others >= (self.servers.len() - 1) / 2)
        {
            return Ok(false);
        }
        self.hurt[server] = now + span + self.rest;
        what(&mut self.servers[server])?;
        Ok(true)
    }

    /// Whether the server counts as hurt, or is not mended yet: on a busy machine a mend comes
    /// late.
    fn is_hurt(&self, server: usize, now: Instant) -> bool {
        let mends_it = |mend: &Mend| match mend {
            Mend::ContinueServer(hurt) | Mend::RightClock(hurt) | Mend::ComeBack(hurt) => {
                *hurt == server
            }
            _ => false,
        };
        self.hurt[server] > now || self.mends.iter().any(|(_, mend)| mends_it(mend))
    }

    fn hurt_until_mended(
        &mut self,
        server: usize,
        span: Duration,
        mend: Mend,
        what: impl FnOnce(&mut Server) -> Result<()>,
    ) -> Result<bool> {
        let done = self.hurt(server, span, what)?;
        if done {
            self.later(span, mend);
        }
        Ok(done)
    }

    fn later(&mut self, span: Duration, mend: Mend) {
        self.mends.push((Instant::now() + span, mend));
    }

    /// Waits, and mends the faults that are due meanwhile.
    pub(crate) fn wait(&mut self, span: Duration) -> Result<()> {
        let ends = Instant::now() + span;
        while Instant::now() < ends {
            let now = Instant::now();
            let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.mends)
                .into_iter()
                .partition(|(at, _)| *at <= now);
            self.mends = rest;
            for (_, mend) in due {
                self.mend(mend)?;
            }
            self.operators.reap()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Mends all faults, and returns how the breaks ended.
    pub(crate) fn heal(&mut self) -> Result<Vec<Ending>> {
        for (at, mend) in std::mem::take(&mut self.mends) {
            if let Mend::Lose(loss) = mend {
                // The key is not lost any more, and the other server comes back.
                loss.back.map_or(Ok(()), |back| self.mend(*back))?;
                continue;
            }
            // Not sooner: a server that is back too soon after a loss would be a second one without
            // the key.
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            self.mend(mend)?;
        }
        self.operators.finish()
    }

    fn mend(&mut self, mend: Mend) -> Result<()> {
        match mend {
            // It may have been killed meanwhile.
            Mend::Continue(pid) => drop(try_signal(pid, Signal::SIGCONT)),
            Mend::ContinueServer(server) => self.servers[server].thaw(),
            Mend::RightClock(server) => {
                let at = now();
                self.servers[server].restart();
                self.hurt[server] = Instant::now() + self.guard + self.rest;
                self.note(at, Fault::RightClock, format!("server {server}"))?;
            }
            Mend::Quicken(server, direction) => self.servers[server].set_slow(direction, false),
            Mend::Heal(cut) => cut.mend()?,
            Mend::ComeBack(server) => self.servers[server].come_back_in_time(),
            Mend::Lose(loss) => self.lose(loss)?,
        }
        Ok(())
    }
}
