//! What one node has at a key, as it was seen from here.

use super::fence::Fence;
use super::instant::Instant;
use super::occupant::{Occupant, OccupantKind, RawValue};
use super::queue::Ticket;
use super::schedule;
use super::token::Token;

/// A look at one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// Who has the key; `None` if nobody has.
    pub occupant: Option<Occupant>,
    /// The value itself, if it is none of rlock's.
    pub foreign: Option<RawValue>,
    /// The fence counter; `None` if there is none.
    pub fence: Option<Fence>,
    /// Those who wait, as far as they were asked for.
    pub queue: Vec<Ticket>,
    /// Whether there are more of them.
    pub more: bool,
    /// When the node was about to be asked: what it told of time counts from then.
    pub asked: Instant,
}

impl Observation {
    /// A node that has nothing, asked then.
    pub fn of_nothing(asked: Instant) -> Self {
        Self { occupant: None, foreign: None, fence: None, queue: Vec::new(), more: false, asked }
    }

    /// Bytes that it takes, about: what a node tells is kept, and must have a limit where there are many of these.
    pub fn size(&self) -> usize {
        let occupant = match self.occupant.as_ref().map(|occupant| &occupant.who) {
            Some(OccupantKind::Holder(_, details)) => details.size(),
            Some(OccupantKind::Foreign(text)) => text.len(),
            Some(OccupantKind::Unnamed) | None => 0,
        };
        let foreign = self.foreign.as_ref().map_or(0, |foreign| foreign.head.len());
        let waiters = self.queue.iter().map(|ticket| size_of::<Ticket>() + ticket.waiter.host.len()).sum::<usize>();
        size_of::<Self>() + occupant + foreign + waiters
    }

    /// Whether `token` has the key here, and nobody broke its lock.
    pub fn is(&self, token: Token) -> bool {
        let holder = self.occupant.as_ref().and_then(Occupant::holder);
        holder.is_some_and(|(holder, details)| holder == token && details.broken.is_none())
    }

    /// Whether the key is still `token`'s here, broken or not.
    pub fn is_kept_for(&self, token: Token) -> bool {
        self.occupant.as_ref().and_then(Occupant::holder).is_some_and(|(holder, _)| holder == token)
    }

    /// Until when the key certainly stays whose it is, with clocks whose rates differ by `drift`; never, if it has no end.
    pub fn valid_until(&self, drift: f64) -> Instant {
        match self.occupant.as_ref().map(|occupant| occupant.ttl) {
            None => self.asked,
            Some(None) => Instant::NEVER,
            Some(Some(ttl)) => self.asked + ttl.saturating_sub(schedule::drift(ttl, drift)),
        }
    }
}
