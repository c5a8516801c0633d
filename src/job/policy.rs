//! What the state of the lease means for the command: pure, event and state in, actions out. DESIGN.md §5 and §8.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::event::{CaughtSignal, ExitStatus, Foreground, OnLost};
use crate::exit::Outcome;
use crate::lock::instant::Instant;
use crate::lock::lease::Loss;
use crate::lock::schedule::{Schedule, Terms};

mod nested;

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The lease lasts until then.
    Extended(Instant),
    /// The outer rlock, which keeps the lease of a nested run, says when the command must be signalled and killed.
    Told(Terms),
    /// The lease is lost, for good.
    Lost(Loss),
    /// After a loss: the place is kept until then.
    Shielded(Instant),
    /// After a loss: the place could not be kept.
    Unshielded,
    /// rlock got a signal.
    CaughtSignal(CaughtSignal),
    /// The command's first process was stopped by this signal, when the terminal was this one's.
    Stopped(Signal, Foreground),
    /// rlock, told to stop itself, goes on: continued by somebody, or never stopped, since the kernel stops no job that
    /// nobody could continue. The terminal is this one's now.
    Resumed(Foreground, Continued),
    /// The command's first process has ended, when the terminal was this one's.
    Ended(ExitStatus, Foreground),
    /// [`Policy::wake_at`] has come, or may have.
    Tick,
    /// No process of the command can run any more.
    Gone,
    /// Whether nested runs rely on the lease.
    Nested(bool),
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this to the command.
    Send(Signal),
    /// The same, and let stopped processes go on so that they get it.
    SendAndContinue(Signal),
    /// Kill all that belongs to the command.
    Kill,
    /// Give the command the terminal.
    GiveTerminal,
    /// Take the terminal back, and stop the job that rlock is part of, as the command was stopped.
    SuspendJob(Signal),
    /// Stop rlock alone, as the command was: the terminal, or the shell, has stopped the rest of its job.
    Suspend(Signal),
    /// Let the command go on.
    Continue,
    /// Interrupt the job that rlock is part of, as the terminal did the command.
    InterruptJob(Signal),
    /// Say that the lock is lost and what is being done.
    SayLost(Reaction),
    /// Say that the time is up.
    SayTimeIsUp,
    /// Say that the command has ended and that the lock is kept for nested runs.
    SayLingering,
    /// Give the lock back; nothing more will be done.
    Finish,
}

/// How rlock came to go on after it was told to stop itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Continued {
    /// Somebody continued it.
    BySomebody,
    /// It never stopped: in a job without a shell above it (`ssh -t`) the kernel discards the signal.
    NeverStopped,
}

/// What is done about a loss, for the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// The first signal was sent.
    Signalled,
    /// Killed at once.
    Killed,
    /// `--on-lost warn`: nothing.
    Ignored,
}

/// What the user chose.
#[derive(Clone, Copy, Debug)]
pub struct PolicyOptions {
    /// The lease's schedule, with `--kill-after`.
    pub schedule: Schedule,
    /// `--on-lost`.
    pub on_lost: OnLost,
    /// `--signal`.
    pub first_signal: Signal,
    /// `--max-run`.
    pub max_run: Option<Duration>,
    /// `--contain`.
    pub contain: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// As the command pleases.
    Running,
    /// As the command pleases, once it is continued: rlock is stopped too.
    Suspended { gives_terminal: bool },
    /// It was sent the first signal, and is killed at `kill_at`. After a loss that may be moved to `grace_ends`, if the
    /// place is kept so long.
    Stopping { signalled: Instant, kill_at: Instant, grace_ends: Instant },
    /// It was sent SIGKILL, and is watched until it is gone.
    Killed,
    /// Nothing is left to do.
    Over,
}

/// What has become of the lease while the command ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseStatus {
    Kept,
    /// It ended, and the command had ended by itself before that could be noticed.
    LostUnnoticed,
    /// It was lost, or about to be, and the command was stopped for it.
    LostAndStopped,
    /// It was lost and the command went on (`--on-lost warn`).
    LostAndIgnored,
}

/// The state.
#[derive(Clone, Debug)]
pub struct Policy {
    wishes: PolicyOptions,
    /// What the lease means for the command, as last heard.
    terms: Terms,
    /// `--max-run`: stopped then.
    run_deadline: Instant,
    phase: Phase,
    lease: LeaseStatus,
    timed_out: bool,
    ending: Option<ExitStatus>,
    /// The terminal interrupted rlock with this.
    interrupted: Option<Signal>,
    /// The last signal that was passed on and is to end the command.
    asked: Option<Signal>,
    /// It was passed a SIGTSTP that nothing has taken back yet.
    tstp_forwarded: bool,
    nested: Nested,
}

/// Who relies on the lease beside the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nested {
    /// No nested run.
    None,
    /// Nested runs.
    Some,
    /// Nested runs alone: the command has ended by itself.
    Alone,
}

impl Policy {
    /// The command starts `now` under a lease that ends at `deadline`.
    pub fn new(wishes: PolicyOptions, deadline: Instant, now: Instant) -> Self {
        Self::under(wishes, wishes.schedule.terms(deadline), now)
    }

    fn under(wishes: PolicyOptions, terms: Terms, now: Instant) -> Self {
        Self {
            wishes,
            terms,
            run_deadline: wishes.max_run.map_or(Instant::NEVER, |span| now + span),
            phase: Phase::Running,
            lease: LeaseStatus::Kept,
            timed_out: false,
            ending: None,
            interrupted: None,
            asked: None,
            tstp_forwarded: false,
            nested: Nested::None,
        }
    }

    /// When to send [`Event::Tick`].
    pub fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Running | Phase::Suspended { .. } => self.lease_deadline().min(self.run_deadline),
            Phase::Stopping { kill_at, .. } => kill_at.min(self.kill_deadline()),
            Phase::Killed | Phase::Over => Instant::NEVER,
        }
    }

    /// What the guard is told: when to kill the command if rlock does not.
    pub fn guard_kills_at(&self) -> Instant {
        match self.phase {
            Phase::Stopping { .. } => self.wake_at(),
            _ => self.kill_deadline(),
        }
    }

    /// When the command must be dead if nothing more is heard of the lease.
    fn kill_deadline(&self) -> Instant {
        match self.wishes.on_lost {
            OnLost::Kill => self.terms.kill_at,
            OnLost::Warn => Instant::NEVER,
        }
    }

    fn lease_deadline(&self) -> Instant {
        match (self.wishes.on_lost, self.lease) {
            (OnLost::Warn, LeaseStatus::LostAndIgnored) => Instant::NEVER,
            // Until D itself nobody else can have the lock, so there is nothing to warn of.
            (OnLost::Warn, _) => self.terms.ends,
            (OnLost::Kill, _) => self.terms.signal_at,
        }
    }

    /// Whether the end of all the command's processes is looked out for, and [`Event::Gone`] told.
    pub fn waits_for_the_end(&self) -> bool {
        match self.phase {
            // What else the command left is free to go on.
            _ if self.lingers() => false,
            Phase::Killed => true,
            Phase::Stopping { .. } => self.ending.is_some(),
            _ => false,
        }
    }

    /// Whether there is nothing left to do.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// What to do now that `event` has happened.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        if self.is_over() {
            return vec![];
        }
        // The clock comes first: whatever else has happened, a command whose time is over is not left or let run on.
        let mut actions = match event {
            Event::Extended(_) | Event::Told(_) | Event::Ended(..) | Event::Gone => vec![],
            _ => self.tick(now),
        };
        if self.phase != Phase::Killed || matches!(event, Event::Ended(..) | Event::Gone | Event::Nested(_)) {
            actions.extend(self.own(event, now));
        }
        if self.lingers() {
            actions.retain(|action| nested::is_for_rlock(*action));
        }
        actions
    }

    fn own(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::Tick => vec![],
            Event::Extended(deadline) => self.extended(deadline),
            Event::Told(terms) => self.told(terms),
            Event::Nested(some) => self.has_nested(some),
            Event::CaughtSignal(caught) if self.lingers() => self.caught_lingering(caught, now),
            Event::Lost(loss) => self.lose(loss, now),
            Event::Shielded(until) => self.shielded(until),
            Event::Unshielded => self.unshielded(),
            Event::CaughtSignal(caught) => self.caught(caught),
            Event::Stopped(signal, foreground) => self.stopped(signal, foreground),
            Event::Resumed(foreground, continued) => self.resumed(foreground, continued),
            Event::Ended(ending, foreground) => self.ended(ending, foreground, now),
            Event::Gone => self.gone(),
        }
    }

    fn extended(&mut self, deadline: Instant) -> Vec<Action> {
        // After the first signal a renewal covers the kill and changes nothing else.
        self.terms = self.wishes.schedule.terms(deadline);
        vec![]
    }

    fn lose(&mut self, loss: Loss, now: Instant) -> Vec<Action> {
        if self.wishes.on_lost == OnLost::Warn {
            return self.warn();
        }
        let grace_ends = now + self.wishes.schedule.grace();
        // How long an absent lock leaves depends on whether the place can be kept, which a node has one timeout to say.
        let soon = grace_ends.min(now + self.wishes.schedule.node_timeout());
        match (self.phase, loss) {
            (Phase::Killed | Phase::Over, _) => vec![],
            (_, Loss::TakenOver) => self.lose_and_kill(),
            // The place is kept as long as the lease was going to last, and the kill comes before its end (`tick`).
            (Phase::Running | Phase::Suspended { .. }, Loss::Broken) => self.lose_and_stop(now, grace_ends),
            (Phase::Running | Phase::Suspended { .. }, Loss::Absent) => self.lose_and_stop(now, soon),
            // From here on the grace of a loss counts, if what is left of the other is longer.
            (Phase::Stopping { signalled, kill_at, grace_ends: before }, Loss::Broken | Loss::Absent) => {
                let grace_ends = before.min(grace_ends);
                let limit = if loss == Loss::Absent { soon } else { grace_ends };
                self.phase = Phase::Stopping { signalled, kill_at: kill_at.min(limit), grace_ends };
                self.now_lost(Reaction::Signalled)
            }
        }
    }

    fn shielded(&mut self, until: Instant) -> Vec<Action> {
        self.terms = self.wishes.schedule.terms(until);
        if let Phase::Stopping { kill_at, grace_ends, .. } = &mut self.phase {
            *kill_at = *grace_ends;
        }
        vec![]
    }

    fn unshielded(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Stopping { .. } => self.lose_and_kill(),
            _ => vec![],
        }
    }

    fn caught(&mut self, caught: CaughtSignal) -> Vec<Action> {
        let CaughtSignal { signal, from_terminal } = caught;
        match signal {
            // Continued by somebody: if we had stopped ourselves, `Resumed` has said so already. Without a terminal we had
            // not, and who stopped the command through us lets it go on through us.
            Signal::SIGCONT if std::mem::take(&mut self.tstp_forwarded) => vec![Action::Continue],
            Signal::SIGCONT => vec![],
            Signal::SIGTSTP => {
                self.tstp_forwarded = true;
                vec![Action::Send(signal)]
            }
            Signal::SIGWINCH | Signal::SIGUSR1 | Signal::SIGUSR2 => vec![Action::Send(signal)],
            _ => {
                if from_terminal {
                    self.interrupted = Some(signal);
                }
                self.asked = Some(signal);
                // As timeout(1) does: a stopped process gets it when it goes on.
                vec![Action::SendAndContinue(signal)]
            }
        }
    }

    fn stopped(&mut self, signal: Signal, foreground: Foreground) -> Vec<Action> {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        match (foreground, self.phase) {
            (Foreground::Ours, Phase::Running | Phase::Stopping { .. }) if wants_terminal => {
                vec![Action::GiveTerminal, Action::Continue]
            }
            // It was given the terminal while it stopped for want of it.
            (Foreground::Commands, Phase::Running | Phase::Stopping { .. }) if wants_terminal => vec![Action::Continue],
            (Foreground::Anothers, Phase::Running) if wants_terminal => {
                self.phase = Phase::Suspended { gives_terminal: true };
                vec![Action::SuspendJob(signal)]
            }
            // With SIGSTOP too, as some editors stop themselves: nobody else can use the terminal until we give it up.
            (Foreground::Commands, Phase::Running) => {
                self.phase = Phase::Suspended { gives_terminal: true };
                vec![Action::SuspendJob(signal)]
            }
            (Foreground::Ours | Foreground::Anothers, Phase::Running) if signal == Signal::SIGTSTP => {
                self.phase = Phase::Suspended { gives_terminal: false };
                vec![Action::Suspend(signal)]
            }
            // Stopped by somebody's kill(1), or without a terminal on which anybody could say `fg`: we go on.
            _ => vec![],
        }
    }

    fn resumed(&mut self, foreground: Foreground, continued: Continued) -> Vec<Action> {
        let Phase::Suspended { gives_terminal } = self.phase else { return vec![] };
        self.tstp_forwarded = false;
        self.phase = Phase::Running;
        match (foreground, gives_terminal) {
            (Foreground::Ours, true) => vec![Action::GiveTerminal, Action::Continue],
            // Stopped for want of a terminal that nobody could ever give it: without us its read would fail (EIO), with
            // us it would stop again at once. What the kernel does to stopped jobs that are left alone (setpgid(2)).
            (Foreground::Anothers, true) if continued == Continued::NeverStopped => {
                vec![Action::SendAndContinue(Signal::SIGHUP)]
            }
            // In the background (`bg`) the terminal stays where it is.
            _ => vec![Action::Continue],
        }
    }

    fn tick(&mut self, now: Instant) -> Vec<Action> {
        match self.phase {
            Phase::Running | Phase::Suspended { .. } => self.tick_running(now),
            Phase::Stopping { .. } if now >= self.kill_deadline() => self.lose_and_kill(),
            Phase::Stopping { kill_at, .. } if now >= kill_at => self.kill(),
            _ => vec![],
        }
    }

    fn tick_running(&mut self, now: Instant) -> Vec<Action> {
        if now >= self.kill_deadline() {
            // Woken late: there is no time left for a first signal.
            self.lose_and_kill()
        } else if now >= self.lease_deadline() {
            match self.wishes.on_lost {
                OnLost::Warn => self.warn(),
                OnLost::Kill => self.lose_and_stop(now, self.kill_deadline()),
            }
        } else if now >= self.run_deadline {
            self.timed_out = true;
            let mut actions = self.stop_unhurried(now);
            actions.push(Action::SayTimeIsUp);
            actions
        } else {
            vec![]
        }
    }

    fn ended(&mut self, ending: ExitStatus, foreground: Foreground, now: Instant) -> Vec<Action> {
        if self.lingers() {
            return vec![];
        }
        self.ending = Some(ending);
        if matches!(self.phase, Phase::Stopping { .. } | Phase::Killed) {
            // We are stopping it: what it has started must be gone too.
            return vec![];
        }
        let mut actions = self.interrupt(ending, foreground);
        // Stopped in the very moment before it looked at the clock, rlock hears of the end that its guard has made first.
        if now >= self.kill_deadline()
            && self.lease == LeaseStatus::Kept
            && ending == ExitStatus::Killed(Signal::SIGKILL as i32)
        {
            self.lease = LeaseStatus::LostAndStopped;
            actions.push(Action::SayLost(Reaction::Killed));
        }
        if now >= self.terms.ends && self.lease == LeaseStatus::Kept {
            self.lease = LeaseStatus::LostUnnoticed;
        }
        actions.extend(match self.wishes.contain {
            false if self.nested == Nested::Some => self.linger(ending, now),
            false => self.finish(),
            true if now >= self.kill_deadline() => self.kill(),
            true => self.stop_unhurried(now),
        });
        actions
    }

    /// With the terminal, the command alone was interrupted by it; the rest of the job would have been too.
    fn interrupt(&mut self, ending: ExitStatus, foreground: Foreground) -> Vec<Action> {
        let by_terminal =
            [Signal::SIGINT, Signal::SIGQUIT].into_iter().find(|s| ending == ExitStatus::Killed(*s as i32));
        match by_terminal {
            Some(signal) if foreground == Foreground::Commands => {
                self.interrupted = Some(signal);
                vec![Action::InterruptJob(signal)]
            }
            _ => vec![],
        }
    }

    fn gone(&mut self) -> Vec<Action> {
        let is_over = self.waits_for_the_end() && self.ending.is_some() && self.nested == Nested::None;
        if is_over { self.finish() } else { vec![] }
    }

    fn warn(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.lease, LeaseStatus::LostAndIgnored) {
            LeaseStatus::LostAndIgnored => vec![],
            _ => vec![Action::SayLost(Reaction::Ignored)],
        }
    }

    fn stop(&mut self, now: Instant, kill_at: Instant, grace_ends: Instant) -> Vec<Action> {
        self.phase = Phase::Stopping { signalled: now, kill_at, grace_ends };
        vec![Action::SendAndContinue(self.wishes.first_signal)]
    }

    /// The lock is not being lost: the lease is renewed meanwhile, so that the grace need not fit into it.
    fn stop_unhurried(&mut self, now: Instant) -> Vec<Action> {
        let grace_ends = now + self.wishes.schedule.kill_after();
        self.stop(now, grace_ends, grace_ends)
    }

    fn lose_and_stop(&mut self, now: Instant, kill_at: Instant) -> Vec<Action> {
        let mut actions = self.stop(now, kill_at, now + self.wishes.schedule.grace());
        actions.extend(self.now_lost(Reaction::Signalled));
        actions
    }

    fn kill(&mut self) -> Vec<Action> {
        self.phase = Phase::Killed;
        vec![Action::Kill]
    }

    fn lose_and_kill(&mut self) -> Vec<Action> {
        let mut actions = self.kill();
        actions.extend(self.now_lost(Reaction::Killed));
        actions
    }

    fn now_lost(&mut self, measure: Reaction) -> Vec<Action> {
        // A command that had ended by itself before is not one that was stopped for a loss.
        let fate = if self.ending.is_some() && !self.timed_out {
            LeaseStatus::LostUnnoticed
        } else {
            LeaseStatus::LostAndStopped
        };
        match std::mem::replace(&mut self.lease, fate) {
            LeaseStatus::Kept => vec![Action::SayLost(measure)],
            said => {
                self.lease = said;
                vec![]
            }
        }
    }

    fn finish(&mut self) -> Vec<Action> {
        self.phase = Phase::Over;
        vec![Action::Finish]
    }

    /// Whether, as far as could be seen from here, the lease lasted as long as the command.
    pub fn was_kept(&self) -> bool {
        self.lease == LeaseStatus::Kept
    }

    /// What came of it. `held` tells whether the lock was still ours when it was given back.
    pub fn outcome(&self, held: bool) -> Outcome {
        match (self.lease, self.ending) {
            (LeaseStatus::LostAndStopped | LeaseStatus::LostAndIgnored, _) => Outcome::Lost,
            (_, None) => Outcome::Bug,
            _ if self.timed_out => Outcome::TimeIsUp,
            // A job that says it succeeded, but may not have been alone, did not. Its own complaint says more than ours.
            (fate, Some(ExitStatus::Exited(0))) if fate == LeaseStatus::LostUnnoticed || !held => Outcome::Lost,
            (_, Some(ExitStatus::Exited(code))) => Outcome::Exited(code),
            (_, Some(ExitStatus::Killed(number))) => match self.interrupted {
                Some(signal) if signal as i32 == number => Outcome::Interrupted(number),
                _ => Outcome::Killed(number),
            },
        }
    }
}

#[cfg(test)]
mod tests;
