//! The client that waits, as `command::acquisition` is one.

use std::convert::Infallible;
use std::time::Duration;

use rlock::lock::fence;
use rlock::lock::instant::Instant;
use rlock::lock::occupant::Occupant;
use rlock::lock::queue::{self, Ticket};
use rlock::lock::token::Token;
use rlock::lock::waiting::{Notice, Unjoined, Waiting};
use rlock::node::Claim;
use rlock::redlock::claimant::Claimant;
use rlock::redlock::holding::Change;

use super::{Client, Ends, random_token};
use crate::{command, kernel};

/// A client's word to its wait.
pub(super) struct Waiter<'a> {
    pub(super) client: &'a Client,
    /// Whether a command is to run under the lock, with a guard that gives it back.
    pub(super) for_command: bool,
}

impl Claimant for Waiter<'_> {
    type Outer = Infallible;

    fn claim(&mut self, lock: usize, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> Claim {
        let token = random_token();
        let number = self.client.locks[lock];
        if self.for_command {
            command::gives_back(lock, Some(token));
        }
        let client = self.client;
        kernel::with(|kernel| {
            let (process, place) = (kernel.current, ticket.as_ref().map(|ticket| ticket.number));
            let now = kernel.now;
            kernel.witness.asks(process, number, place, client.wait, now);
            if client.ends != Ends::None {
                kernel.witness.newest.asks(process, ticket.as_ref().and_then(|ticket| ticket.supersedes), now);
            }
            kernel.tell(|| format!("{process}: asks for lock {number} as {token}, ticket {place:?}"));
        });
        Claim {
            key: client.settings.keys[number].clone(),
            token,
            details: client.details(self.for_command),
            fence_hint: fence::hint(client.wall()),
            term: client.settings.schedule.term(),
            min_uptime,
            ticket,
            index: client.mode.number().map_or(0, |slots| fastrand::u16(1..=slots)),
            is_exact: false,
            outer: Vec::new(),
        }
    }

    fn undone(&mut self, lock: usize) {
        if self.for_command {
            command::gives_back(lock, None);
        }
    }

    fn name(&self) -> String {
        format!("user@host{}", self.client.host)
    }

    fn waiter(&mut self) -> queue::Waiter {
        self.client.waiter()
    }

    async fn join(&mut self, _: usize, _: Token, _: &Occupant) -> anyhow::Result<Result<Infallible, Unjoined>> {
        Ok(Err(Unjoined::Refused))
    }

    fn say(&mut self, _: usize, notice: &Notice) {
        kernel::tell_of_current(|| format!("{notice:?}"));
    }

    fn changed(&mut self, _: usize, change: &Change) {
        kernel::tell_of_current(|| format!("{change:?}"));
    }

    fn redraw_at(&self) -> Instant {
        Instant::NEVER
    }

    fn redraw(&mut self, _: usize, _: &Waiting) {}

    fn random(&mut self) -> f64 {
        fastrand::f64()
    }
}
