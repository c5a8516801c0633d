//! Why a lock is busy that holders of its kind do not fill: it is held as another kind, or a waiter goes first.

use crate::lock::blocker::Blocker;
use crate::lock::mode::Mode;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::waiting::Blocked;

/// Returns the end of a busy line for a run that asks for `wanted`; nothing where the holder's name says it all.
pub(super) fn told(blocked: &Blocked, wanted: Mode) -> String {
    let (Blocked::Busy(party) | Blocked::Split(party, _)) = blocked else { return String::new() };
    let Some(theirs) = party.occupant().and_then(Occupant::mode) else { return String::new() };
    match (theirs, wanted) {
        // A wrong number looks like a lock that is full.
        (Mode::Slots(theirs), Mode::Slots(ours)) if theirs != ours => {
            format!("; {theirs} slots and {ours} exclude each other: give each run of the lock the same --slots")
        }
        (Mode::Exclusive, _) if theirs != wanted => {
            format!("; it is held exclusive, and this run asks for {}", asked_for(wanted))
        }
        // The names of members begin with their kind.
        _ if theirs != wanted => format!("; this run asks for {}", asked_for(wanted)),
        _ if matches!(blocked, Blocked::Busy(_)) && has_room(party) => {
            "; there is room beside them, but a waiter that came earlier goes first".to_owned()
        }
        _ => String::new(),
    }
}

fn asked_for(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "an exclusive lock".to_owned(),
        Mode::Shared => "a shared lock".to_owned(),
        Mode::Slots(number) => format!("one of {number} slots"),
    }
}

/// Whether members hold the lock and leave a place. Members that cannot be read were evicted in part, and none joins them.
fn has_room(party: &Blocker) -> bool {
    let Some(OccupantKind::Group(group)) = party.occupant().map(|occupant| &occupant.who) else { return false };
    let is_whole = group.members > 0 && group.shown.is_some();
    is_whole && group.marker.mode.number().is_none_or(|number| group.members < u64::from(number))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::details::Details;
    use crate::lock::fault::Faults;
    use crate::lock::group::{Group, Marker};
    use crate::lock::token::Token;

    fn party(who: OccupantKind) -> Box<Blocker> {
        Box::new(Blocker::Occupant(Occupant::new(who, None)))
    }

    fn holder() -> Box<Blocker> {
        party(OccupantKind::Holder(Token::fresh(), Details::default()))
    }

    fn members(mode: Mode, members: u64, is_readable: bool) -> Box<Blocker> {
        let marker = Marker { mode, nodes: 1, ttl: Duration::ZERO };
        let shown = is_readable.then(|| (Token::fresh(), Details::default()));
        party(OccupantKind::Group(Box::new(Group { marker, members, shown })))
    }

    #[test]
    fn a_lock_that_is_held_as_another_kind_says_so() {
        for (party, wanted, wanted_text) in [
            (holder(), Mode::Exclusive, ""),
            (holder(), Mode::Slots(3), "; it is held exclusive, and this run asks for one of 3 slots"),
            (members(Mode::Shared, 1, true), Mode::Exclusive, "; this run asks for an exclusive lock"),
            (members(Mode::Slots(4), 1, true), Mode::Shared, "; this run asks for a shared lock"),
            (
                members(Mode::Slots(4), 1, true),
                Mode::Slots(3),
                "; 4 slots and 3 exclude each other: give each run of the lock the same --slots",
            ),
            (party(OccupantKind::Unnamed), Mode::Shared, ""),
            (party(OccupantKind::Foreign("a hash".to_owned())), Mode::Shared, ""),
        ] {
            assert_eq!(told(&Blocked::Split(party.clone(), Faults::default()), wanted), wanted_text);
            assert_eq!(told(&Blocked::Busy(party), wanted), wanted_text);
        }
    }

    #[test]
    fn a_waiter_goes_first_where_members_of_the_same_kind_leave_room() {
        let first = |mode, number, is_readable| {
            let party = members(mode, number, is_readable);
            let is_told = |blocked| told(&blocked, mode).contains("a waiter that came earlier goes first");
            assert!(!is_told(Blocked::Split(party.clone(), Faults::default())), "nodes differ");
            is_told(Blocked::Busy(party))
        };
        assert!(first(Mode::Shared, 1, true) && first(Mode::Slots(4), 3, true));
        assert!(!first(Mode::Slots(4), 4, true), "it is full");
        assert!(!first(Mode::Shared, 0, true) && !first(Mode::Shared, 2, false), "members were evicted");
    }
}
