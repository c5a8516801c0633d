//! `--supersede`: of the waiters with this option the last that came ends the others.
//!
//! 1. The time at which a waiter came is told with its ticket, and stays when it gets another ticket.
//! 2. From then on it asks with its ticket only, so that each attempt tells whether a newer waiter has come.
//! 3. A run that got the lock at once tells its time too: an older waiter must not run after it.

use super::{Action, Waiting};
use crate::lock::queue::Ticket;

impl Waiting {
    /// Returns a ticket if the waiter has none and a node has told the time. `--no-wait` takes none.
    pub(super) fn new_ticket(&mut self, entered: Option<u64>) -> Option<Ticket> {
        let entered = entered.filter(|_| self.ticket.is_none() && self.gives_up > self.begin)?;
        Some(self.ticket_of(entered))
    }

    fn ticket_of(&mut self, entered: u64) -> Ticket {
        let supersedes = self.options.supersede.then(|| *self.came.get_or_insert(entered));
        Ticket { waiter: self.waiter.clone(), number: entered, supersedes }
    }

    /// Returns what ends the older waiters when the lock was won without a ticket.
    pub(super) fn announcement(&mut self, entered: Option<u64>) -> Option<Action> {
        let entered = entered.filter(|_| self.options.supersede && self.ticket.is_none())?;
        Some(Action::Announce(self.ticket_of(entered)))
    }

    /// Gives a waiter that has left the queue, and comes back, the place of one that comes now.
    pub(super) fn come_again(&mut self, entered: Option<u64>) {
        if let (Some(_), Some(entered)) = (&self.again, entered) {
            self.again = Some(self.ticket_of(entered));
        }
    }
}
