//! The loss of a key on one server while another server is away, or soon after.

use std::time::{Duration, Instant};

use crate::TTL;
use crate::fault::Fault;
use crate::world::Mend;

/// Time after a loss for which the other server stays away: a renewal, the default `--kill-after`,
/// and some slack. By then the holder has healed the loss, or its command is dead. A server that
/// came back sooner without the key would be a second vote for a waiter, which no quorum of three
/// can prevent.
pub(crate) const NOTICED: Duration = TTL.saturating_mul(2).checked_div(3).expect("not 0");

/// Time after which the lock of a command is on all servers that are there: a renewal, and some
/// slack. An earlier holder's key, which that one could not take back from a server that was away,
/// delays this by a lease at most. A lock on two servers only, which is enough for a grant, could
/// not survive the loss of one.
pub(crate) const SETTLED: Duration = TTL.checked_div(2).expect("not 0");

/// Longest wait for a command that has run for that time.
const PATIENCE: Duration = Duration::from_secs(8);

/// A loss that waits for its time.
pub(crate) struct Loss {
    /// The server that loses the key.
    pub(crate) server: usize,
    /// The command that makes it lose the key.
    pub(crate) words: &'static [&'static str],
    /// The server that is away, or was.
    pub(crate) away: usize,
    /// The mend that brings that one back; none once it is back.
    pub(crate) back: Option<Box<Mend>>,
    /// Time for which both count as hurt after the loss.
    pub(crate) rest: Duration,
    ends: Instant,
    /// The command that runs, and when it was first seen.
    seen: Option<(i32, Instant)>,
}

/// Verdict on the time of a loss.
pub(crate) enum Time {
    Now,
    NotYet,
    /// No command ran for long enough in time.
    Never,
}

impl Loss {
    /// Makes a loss of `words` on `server` that may happen from `begin` on, while `away` is away.
    pub(crate) fn new(
        server: usize,
        words: &'static [&'static str],
        away: usize,
        back: Mend,
        rest: Duration,
        begin: Instant,
    ) -> Self {
        Self {
            server,
            words,
            away,
            back: Some(Box::new(back)),
            rest,
            ends: begin + PATIENCE,
            seen: None,
        }
    }

    /// Returns the fault that this loss is.
    pub(crate) fn fault(&self) -> Fault {
        if self.back.is_some() {
            Fault::LoseMeanwhile
        } else {
            Fault::LoseThereafter
        }
    }

    /// Returns the end of the wait.
    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// Whether it is time for the loss, where `command` is the one that runs at `now`.
    /// `is_everywhere`: its lock is on all servers that are there.
    pub(crate) fn time(
        &mut self,
        command: Option<i32>,
        now: Instant,
        is_everywhere: impl FnOnce() -> bool,
    ) -> Time {
        let known = self.seen.filter(|(pid, _)| Some(*pid) == command);
        self.seen = known.or_else(|| command.map(|pid| (pid, now)));
        match self.seen {
            Some((_, since)) if now >= since + SETTLED && is_everywhere() => Time::Now,
            _ if now > self.ends => Time::Never,
            _ => Time::NotYet,
        }
    }
}
