//! The client that waits, as `command::acquisition` is one.

use std::convert::Infallible;
use std::time::Duration;

use rlock::hold::wait::Claimant;
use rlock::lock::fence;
use rlock::lock::instant::Instant;
use rlock::lock::occupant::Occupant;
use rlock::lock::queue::{self, Ticket};
use rlock::lock::token::Token;
use rlock::lock::waiting::{Notice, Unjoined, Waiting};
use rlock::store::Claim;

use super::{Client, random_token};
use crate::{command, kernel};

/// A client's word to its wait.
pub(super) struct Waiter<'a> {
    pub(super) client: &'a Client,
    /// The place of the lock that is waited for among the client's locks.
    pub(super) lock: usize,
    /// Whether a command is to run under the lock, with a guard that gives it back.
    pub(super) for_command: bool,
}

impl Claimant for Waiter<'_> {
    type Outer = Infallible;

    fn turn_to(&mut self, lock: usize) {
        self.lock = lock;
    }

    fn claim(
        &mut self,
        ticket: Option<Ticket>,
        guarded: Option<Duration>,
        kept: Option<Token>,
    ) -> Claim {
        let token = kept.unwrap_or_else(random_token);
        let number = self.client.locks[self.lock];
        if self.for_command {
            command::gives_back(self.lock, Some(token));
        }
        let client = self.client;
        kernel::with(|kernel| {
            let (process, place) = (kernel.current, ticket.as_ref().map(|ticket| ticket.number));
            let now = kernel.now;
            kernel
                .witness
                .asks(process, number, place, client.wait, now);
            if client.supersedes {
                kernel.witness.newest.asks(
                    process,
                    ticket.as_ref().and_then(|ticket| ticket.supersedes),
                    now,
                );
            }
            kernel
                .tell(|| format!("{process}: asks for lock {number} as {token}, ticket {place:?}"));
        });
        Claim {
            token,
            details: client.details(self.for_command),
            fence_hint: fence::hint(client.wall()),
            term: client.settings.schedule.term(),
            guarded,
            ticket,
            index: client
                .mode
                .number()
                .map_or(0, |slots| fastrand::u16(1..=slots)),
            is_exact: false,
            outer: Vec::new(),
        }
    }

    fn undone(&mut self) {
        if self.for_command {
            command::gives_back(self.lock, None);
        }
    }

    fn waiter(&mut self) -> queue::Waiter {
        self.client.waiter()
    }

    async fn join(
        &mut self,
        _: Token,
        _: &Occupant,
    ) -> anyhow::Result<Result<Infallible, Unjoined>> {
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
