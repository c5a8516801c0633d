//! Troubles of a database, and their ends.

use std::time::Duration;

use super::cluster::{Database, Step};
use crate::kernel::{Event, Kernel};
use crate::node::State;

/// A trouble of the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// SIGSTOP.
    Stop,
    /// SIGKILL. It starts again with its data.
    Kill,
    /// No commit comes to its end: the disk stands still, or the standby is away.
    Stall,
    /// `default_transaction_read_only` is on.
    ReadOnly,
    /// Its clock is set by so many microseconds.
    SetClock(i64),
    /// Its standby takes over, after this time. An asynchronous one may be as late as that too.
    Switch(Takeover, Duration),
}

/// The end of the primary that a standby takes over from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takeover {
    /// It is shut down first, and all of it reaches the standby.
    Orderly,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// It is cut off from the standby, and not from its clients.
    CutOff,
}

/// Longest time for which a primary that was replaced goes on.
const STALE: Duration = Duration::from_secs(11);

/// Returns the time by which a clock may be set forward: the drift allows for that.
pub fn within(ttl: Duration) -> Duration {
    ttl / 200
}

impl Database {
    /// Lets a trouble hit. Returns the server that it has hit.
    pub fn strike(&mut self, trouble: Trouble, kernel: &mut Kernel) -> Option<usize> {
        let number = self.primary;
        let primary = &mut self.servers[number];
        if primary.state != State::Up || primary.stalled.is_some() {
            return None;
        }
        match trouble {
            Trouble::Stop => primary.state = State::Stopped,
            Trouble::Kill => primary.crash(kernel),
            Trouble::Stall => primary.stalled = Some(kernel.now),
            Trouble::ReadOnly => primary.is_read_only = true,
            Trouble::SetClock(micros) => return self.set_clock(micros, kernel).then_some(number),
            Trouble::Switch(takeover, after) => {
                if !self.can_switch() {
                    return None;
                }
                self.take_over(takeover, after, kernel);
            }
        }
        Some(number)
    }

    fn take_over(&mut self, takeover: Takeover, after: Duration, kernel: &mut Kernel) {
        let number = self.primary;
        self.lag = after;
        match takeover {
            Takeover::Orderly => {
                self.disconnect_all(number, kernel);
                self.servers[number].flush(kernel.now);
                self.promote(kernel, true);
                return self.demote(kernel, number);
            }
            Takeover::Kill => self.servers[number].crash(kernel),
            Takeover::Stop => self.servers[number].state = State::Stopped,
            Takeover::CutOff if self.waits(number) => {
                self.servers[number].stalled = Some(kernel.now);
            }
            Takeover::CutOff => {}
        }
        self.takeovers += 1;
        kernel.after(after, Event::Database(Step::Promote(self.takeovers)));
    }

    /// Ends a trouble that has hit this server.
    pub fn mend(&mut self, trouble: Trouble, number: usize, kernel: &mut Kernel) {
        match trouble {
            Trouble::Stop => self.resume(number, kernel),
            Trouble::Kill => self.servers[number].state = State::Up,
            Trouble::Stall => self.go_on_committing(number, kernel),
            Trouble::ReadOnly => self.servers[number].is_read_only = false,
            Trouble::SetClock(_) | Trouble::Switch(Takeover::Orderly, _) => {}
            Trouble::Switch(takeover, _) => {
                // A primary that is there again in time stays it.
                self.takeovers += 1;
                let is_replaced = number != self.primary;
                match takeover {
                    Takeover::Kill if is_replaced => self.demote(kernel, number),
                    Takeover::Kill => self.servers[number].state = State::Up,
                    Takeover::Stop => self.resume(number, kernel),
                    _ if is_replaced => {}
                    _ => self.go_on_committing(number, kernel),
                }
                if is_replaced {
                    let longest = kernel.random.weighted(&[(1, self.ttl), (1, STALE)]);
                    let stays = kernel.random.time(Duration::ZERO, longest);
                    kernel.after(stays, Event::Database(Step::Demote(number)));
                }
            }
        }
    }

    fn go_on_committing(&mut self, number: usize, kernel: &mut Kernel) {
        let server = &mut self.servers[number];
        server.stalled = None;
        for step in std::mem::take(&mut server.held) {
            kernel.after(Duration::ZERO, Event::Database(step));
        }
    }

    /// Sets the primary's clock. Forward by little, it is not set again until no lease remembers that.
    fn set_clock(&mut self, micros: i64, kernel: &mut Kernel) -> bool {
        let now = kernel.now;
        let span = Duration::from_micros(micros.unsigned_abs());
        let is_within = span <= within(self.ttl);
        let last = self.set_forward.filter(|_| is_within && micros > 0);
        if last.is_some_and(|last| now.since(last) < self.ttl * 2) {
            return false;
        }
        let primary = &mut self.servers[self.primary];
        let (before, rows) = (primary.clock, primary.visible.clone());
        primary.clock.ahead += micros;
        if micros < 0 {
            primary.set_back = Some(now);
            return true;
        }
        self.set_forward = Some(now);
        if !is_within {
            self.judge_losses(kernel, &rows, before);
        }
        true
    }
}
