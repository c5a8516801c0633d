//! The client that waits, as `command::acquisition` is one.

use std::convert::Infallible;
use std::time::Duration;

use rlock::lock::fence;
use rlock::lock::instant::Instant;
use rlock::lock::occupant::Occupant;
use rlock::lock::queue::Ticket;
use rlock::lock::token::Token;
use rlock::lock::waiting::{Notice, Unjoined, Waiting};
use rlock::node::Claim;
use rlock::redlock::wait::Claimant;

use super::{Client, random_token};
use crate::{command, kernel};

/// A client's word to its wait.
pub(super) struct Waiter<'a> {
    pub(super) client: &'a Client,
    /// Whether a command is to run under the lock, with a guard that gives it back.
    pub(super) for_command: bool,
}

impl Claimant for Waiter<'_> {
    type Outer = Infallible;

    fn claim(&mut self, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> Claim {
        let token = random_token();
        if self.for_command {
            command::gives_back(Some(token));
        }
        kernel::with(|kernel| {
            let (process, number) = (kernel.current, ticket.as_ref().map(|ticket| ticket.number));
            let now = kernel.now;
            kernel.witness.asks(process, 0, number, now);
            kernel.tell(|| format!("{process}: asks for the lock as {token}, ticket {number:?}"));
        });
        let client = self.client;
        Claim {
            key: client.settings.key.clone(),
            token,
            details: client.details(self.for_command),
            fence_hint: fence::hint(client.wall()),
            term: client.settings.schedule.term(),
            min_uptime,
            ticket,
        }
    }

    fn undone(&mut self) {
        if self.for_command {
            command::gives_back(None);
        }
    }

    async fn join(&mut self, _: Token, _: &Occupant) -> anyhow::Result<Result<Infallible, Unjoined>> {
        Ok(Err(Unjoined::Refused))
    }

    fn say(&mut self, notice: &Notice) {
        kernel::tell_of_current(|| format!("{notice:?}"));
    }

    fn redraw_at(&self) -> Instant {
        Instant::NEVER
    }

    fn redraw(&mut self, _: &Waiting) {}

    fn random(&mut self) -> f64 {
        fastrand::f64()
    }
}
