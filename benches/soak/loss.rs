//! A key that a server is to lose, because another server is away or was.

use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::TTL;
use crate::fault::Fault;
use crate::world::Mend;

/// How long after a loss the other server stays away. By then the holder has mended the loss, or its command is dead: a
/// renewal, the default `--kill-after`, and some slack. A server that came back sooner without the key would be a second vote
/// for a waiter, which no quorum of three can prevent.
pub(crate) const NOTICED: Duration = TTL.saturating_mul(2).checked_div(3).expect("not 0");

/// How long a command runs before its lock must be on all servers that are there: a renewal, and some slack. A lock that is
/// on two servers only, which is enough at first, could not stand the loss of one.
pub(crate) const SETTLED: Duration = TTL.checked_div(2).expect("not 0");

/// How long a command that runs for so long is waited for.
const PATIENCE: Duration = Duration::from_secs(8);

/// What is waited for before the key is lost.
pub(crate) struct Loss {
    /// The server that loses the key.
    pub(crate) server: usize,
    /// The command that makes it lose the key.
    pub(crate) words: &'static [&'static str],
    /// The server that is away, or was.
    pub(crate) away: usize,
    /// What brings that one back. None: it is back.
    pub(crate) back: Option<Box<Mend>>,
    /// How long both count as hurt thereafter.
    pub(crate) rest: Duration,
    ends: Instant,
    /// The command that runs, and since when it was seen.
    seen: Option<(Pid, Instant)>,
}

/// Whether it is time for a loss.
pub(crate) enum Time {
    Now,
    NotYet,
    /// No command ran for long enough.
    Never,
}

impl Loss {
    /// Of `server`, to be asked about again and again from `begin` on, while `away` is away.
    pub(crate) fn new(
        server: usize,
        words: &'static [&'static str],
        away: usize,
        back: Mend,
        rest: Duration,
        begin: Instant,
    ) -> Self {
        Self { server, words, away, back: Some(Box::new(back)), rest, ends: begin + PATIENCE, seen: None }
    }

    pub(crate) fn fault(&self) -> Fault {
        if self.back.is_some() { Fault::LoseMeanwhile } else { Fault::LoseThereafter }
    }

    /// The latest end of the waiting.
    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// `command` is the one that runs at `now`.
    pub(crate) fn time(&mut self, command: Option<Pid>, now: Instant) -> Time {
        let known = self.seen.filter(|(pid, _)| Some(*pid) == command);
        self.seen = known.or_else(|| command.map(|pid| (pid, now)));
        match self.seen {
            Some((_, since)) if now >= since + SETTLED => Time::Now,
            _ if now > self.ends => Time::Never,
            _ => Time::NotYet,
        }
    }
}
