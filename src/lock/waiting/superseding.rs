//! `--supersede` and `--replace`: of the waiters with these options the last that came ends the others, and `--replace` ends the
//! holders that it meets.
//!
//! 1. The time at which a waiter came is told with its ticket, and stays when it gets another ticket.
//! 2. From then on it asks with its ticket only, so that each attempt tells whether a newer waiter has come.
//! 3. A run that got the lock at once tells its time too: an older waiter must not run after it.

use super::phase::{Next, Phase};
use super::{Action, Notice, Tried, Waiting};
use crate::lock::ballot::Tally;
use crate::lock::queue::Ticket;

impl Waiting {
    /// Returns a ticket if the waiter has none and a node has told the time. `--no-wait` takes none.
    pub(super) fn new_ticket(&mut self, entered: Option<u64>) -> Option<Ticket> {
        let entered = entered.filter(|_| self.ticket.is_none() && self.gives_up > self.begin)?;
        Some(self.ticket_of(entered))
    }

    fn ticket_of(&mut self, entered: u64) -> Ticket {
        let number = self.options.order.ticket(entered);
        let supersedes = self.options.supersede.then(|| *self.came.get_or_insert(entered));
        Ticket { waiter: self.waiter.clone(), number, supersedes }
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

    /// After an attempt as one that stands in line, which goes on: lets the holders be told to stop that a majority named.
    pub(super) fn replace_once_undone(&mut self, tried: &Tried) {
        let is_held = matches!(&tried.tally, Tally::Busy(by) if by.occupant().is_some()) && tried.by_majority;
        let stands_in_line = self.ticket.is_some() && self.phase == Phase::Undoing(Next::Pause);
        if self.replaces && is_held && stands_in_line {
            self.phase = Phase::Undoing(Next::Replace);
        }
    }

    /// Notes whether `is_complete`: all holders were told that `--replace` has met. Later ones stood in line before this waiter, and
    /// are not told. Returns what of `said` is new.
    pub fn has_replaced(&mut self, said: Vec<Notice>, is_complete: bool) -> Vec<Notice> {
        self.replaces = !is_complete;
        let is_repeated = |notice: &Notice| matches!(notice, Notice::NotReplaced(_));
        let new = |notice| if is_repeated(&notice) { self.notices.once(notice) } else { Some(notice) };
        said.into_iter().filter_map(new).collect()
    }
}
