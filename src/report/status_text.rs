//! The sentences of status lines, and the words for what blocks a waiter, which events and failures
//! contain too.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::clock;
use crate::lock::blocker::Blocker;
use crate::lock::fault::Faults;
use crate::lock::mode::Mode;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::waiting::Blocked;
use crate::text::duration;

/// Returns the data of a blocked wait in `--log json`: the holder, and what failed at which node.
pub(super) fn fields_of(blocked: &Blocked) -> Map<String, Value> {
    let (mut fields, faults) = match blocked {
        Blocked::Busy(party) => (holder_of(party), None),
        Blocked::Split(party, faults) => (holder_of(party), Some(faults)),
        Blocked::Unreachable(faults, _) => (Map::new(), Some(faults)),
        Blocked::TooLate => (Map::new(), None),
    };
    fields.extend(faults.map(fields_of_faults).unwrap_or_default());
    fields
}

/// Returns `faults`, if there are any: `node` and `reason` of each.
pub(super) fn fields_of_faults(faults: &Faults) -> Map<String, Value> {
    let faults = faults
        .iter()
        .map(|there| Value::Object(at_node(&there.name, &there.fault.why)));
    let faults: Vec<Value> = faults.collect();
    if faults.is_empty() {
        Map::new()
    } else {
        Map::from_iter([("faults".to_owned(), faults.into())])
    }
}

/// Returns `node` and `reason`.
pub(super) fn at_node(node: &str, why: &str) -> Map<String, Value> {
    Map::from_iter([
        ("node".to_owned(), node.into()),
        ("reason".to_owned(), why.into()),
    ])
}

/// Returns what blocks a wait, for people.
pub(super) fn told(blocked: &Blocked) -> String {
    in_words(blocked, |blocker| blocker.told(now()))
}

fn in_words(cause: &Blocked, named: impl Fn(&Blocker) -> String) -> String {
    match cause {
        Blocked::Busy(party) => named(party),
        Blocked::Split(party, faults) if faults.is_empty() => {
            format!("no majority is free: {}", named(party))
        }
        Blocked::Split(party, faults) => format!("no majority is free: {}; {faults}", named(party)),
        Blocked::Unreachable(faults, quorum) => faults.no_majority(*quorum),
        Blocked::TooLate => "the grant came too late to be of use".to_owned(),
    }
}

/// Returns an occupant for people.
pub fn occupied(occupant: &Occupant) -> String {
    occupant.told(now())
}

/// Returns the unix time in ms.
pub(super) fn now() -> u64 {
    clock::unix_millis(SystemTime::now())
}

/// Something that takes long.
#[derive(Clone, Copy, Debug)]
pub enum Status<'a> {
    /// A wait for a lock. `blocked`: `None` while the nodes are asked for the first time, or do not
    /// answer. `left`: time until the wait ends without the lock. `now`: unix time in ms.
    Wait {
        waited: Duration,
        ahead: Option<u32>,
        blocked: Option<&'a Blocked>,
        left: Option<Duration>,
        now: u64,
    },
    /// `break` waits for the holder to stop its command.
    Break { waited: Duration, limit: Duration },
    /// A scan for locks.
    Scan { seen: u64, of: u64 },
}

impl Status<'_> {
    /// Returns the text of the redrawn line, and of a plain one:
    /// `waiting 1m 12s, 2 ahead; held for 3m 40s by …; gives up in 18m`.
    pub fn line(&self) -> String {
        match self {
            Self::Wait {
                waited,
                ahead: rank,
                blocked,
                left,
                now,
            } => {
                let cause = blocked.map_or_else(
                    || "no majority of the nodes has answered yet".to_owned(),
                    |blocked| in_words(blocked, |blocker| blocker.brief(*now)),
                );
                let waited = duration::show_seconds(*waited);
                let left = left.map_or_else(String::new, |left| {
                    format!("; gives up in {}", duration::show_seconds(left))
                });
                format!("waiting {waited}{}; {cause}{left}", ahead(*rank))
            }
            Self::Break { waited, limit } => {
                let [waited, limit] = [waited, limit].map(|span| duration::show_seconds(*span));
                format!("waiting for the holder to stop its command: {waited} of {limit} at most")
            }
            Self::Scan { seen, of } => format!("scanning: {} of {of} keys", seen.min(of)),
        }
    }

    /// Returns a text that changes with what is worth a new plain line.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Wait {
                ahead: rank,
                blocked: Some(blocked),
                ..
            } => {
                let cause = match blocked {
                    Blocked::Busy(party) | Blocked::Split(party, _) => party.named(),
                    // The reasons have times in them.
                    Blocked::Unreachable(..) | Blocked::TooLate => String::new(),
                };
                format!("{}{cause}", ahead(*rank))
            }
            _ => String::new(),
        }
    }

    /// Returns the data in `--log json`.
    pub(super) fn fields(&self) -> Map<String, Value> {
        match self {
            Self::Wait {
                waited,
                ahead,
                blocked,
                ..
            } => {
                let mut fields = blocked.map(fields_of).unwrap_or_default();
                fields.extend(ahead.map(|ahead| ("ahead".to_owned(), ahead.into())));
                fields.insert("wait_ms".to_owned(), duration::millis(*waited).into());
                fields
            }
            Self::Break { waited, .. } => {
                Map::from_iter([("wait_ms".to_owned(), duration::millis(*waited).into())])
            }
            Self::Scan { .. } => Map::new(),
        }
    }
}

/// `, 2 ahead`; nothing for the first in the queue.
pub(super) fn ahead(rank: Option<u32>) -> String {
    rank.filter(|rank| *rank > 0)
        .map_or_else(String::new, |rank| format!(", {rank} ahead"))
}

/// `holder`, if the occupant says who it is; and `members`, the number of them, if there may be
/// several.
pub(super) fn holder(occupant: &Occupant) -> Map<String, Value> {
    let mut fields = Map::new();
    let details = match &occupant.who {
        OccupantKind::Holder(_, details) => Some(details),
        OccupantKind::Members(members) => {
            fields.insert("members".to_owned(), members.count.into());
            members.shown.as_ref().map(|(_, details)| details)
        }
        OccupantKind::Foreign(_) | OccupantKind::InLine(_) | OccupantKind::Unnamed => None,
    };
    if let Some(details) = details {
        fields.insert("holder".to_owned(), details.fields().into());
    }
    fields
}

/// `newer`: the waiter that came later, if it says who it is.
pub(super) fn newer_waiter(blocker: &Blocker) -> Map<String, Value> {
    let Blocker::Newer(Some(waiter)) = blocker else {
        return Map::new();
    };
    let newer = json!({ "host": waiter.host, "user": waiter.user(), "pid": waiter.pid, "note": waiter.note, "since": waiter.since });
    Map::from_iter([("newer".to_owned(), newer)])
}

fn holder_of(blocker: &Blocker) -> Map<String, Value> {
    blocker.occupant().map(holder).unwrap_or_default()
}

/// Returns the end of a busy line for a run that asks for `wanted`; nothing where the holder's name
/// says it all.
pub(super) fn of_kinds(blocked: &Blocked, wanted: Mode) -> String {
    let (Blocked::Busy(party) | Blocked::Split(party, _)) = blocked else {
        return String::new();
    };
    let Some(theirs) = party.occupant().and_then(Occupant::mode) else {
        return String::new();
    };
    match (theirs, wanted) {
        // A wrong number looks like a lock that is full.
        (Mode::Slots(theirs), Mode::Slots(ours)) if theirs != ours => {
            format!(
                "; {theirs} slots and {ours} exclude each other: give each run of the lock the same --slots"
            )
        }
        (Mode::Exclusive, _) if theirs != wanted => {
            format!(
                "; it is held exclusive, and this run asks for {}",
                asked_for(wanted)
            )
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

/// Whether members hold the lock and leave a place. Members that cannot be read were evicted in
/// part, and none joins them.
fn has_room(party: &Blocker) -> bool {
    let Some(OccupantKind::Members(members)) = party.occupant().map(|occupant| &occupant.who)
    else {
        return false;
    };
    let is_whole = members.count > 0 && members.shown.is_some();
    is_whole
        && members
            .marker
            .mode
            .number()
            .is_none_or(|number| members.count < u64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::details::Details;
    use crate::lock::fault::{Fault, FaultKind};
    use crate::lock::occupant::{Marker, Members};
    use crate::lock::quorum::Quorum;
    use crate::lock::token::Token;
    use crate::text::escape::cut;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn held() -> Blocked {
        let [user, host, cmd, note] =
            ["ci", "runner4", "deploy.sh", "https://ci/job/7"].map(str::to_owned);
        let details = Details {
            user,
            host,
            cmd,
            note: Some(note),
            pid: Some(7),
            since: 1,
            ttl: 30_000,
            ..Details::default()
        };
        let who = OccupantKind::Holder(Token::fresh(), details);
        Blocked::Busy(Box::new(Blocker::Occupant(Occupant::new(
            who,
            Some(seconds(25)),
        ))))
    }

    fn wait(
        blocked: Option<&Blocked>,
        waited: u64,
        ahead: Option<u32>,
        left: Option<u64>,
    ) -> Status<'_> {
        Status::Wait {
            waited: seconds(waited),
            ahead,
            blocked,
            left: left.map(seconds),
            now: 220_001,
        }
    }

    #[test]
    fn a_wait_tells_the_holder_the_place_and_its_end() {
        let held = held();
        let status = wait(Some(&held), 72, Some(2), Some(1080));
        let line = "waiting 1m 12s, 2 ahead; held for 3m 40s by ci@runner4, deploy.sh (https://ci/job/7); gives up in 18m";
        assert_eq!(status.line(), line);
        assert_eq!(cut(&status.line(), 30), "waiting 1m 12s, 2 ahead; held…");
        let status = wait(Some(&held), 120, Some(0), None);
        assert_eq!(
            status.line(),
            "waiting 2m; held for 3m 40s by ci@runner4, deploy.sh (https://ci/job/7)"
        );
        assert_eq!(
            wait(None, 3, None, None).line(),
            "waiting 3s; no majority of the nodes has answered yet"
        );
        assert_eq!(status.fields()["wait_ms"], 120_000);
    }

    #[test]
    fn another_holder_or_place_is_news_and_a_later_time_is_none() {
        let (held, other) = (held(), Blocked::TooLate);
        let subject = |blocked, waited, ahead| wait(Some(blocked), waited, ahead, None).subject();
        assert_eq!(subject(&held, 1, Some(2)), subject(&held, 9, Some(2)));
        assert_ne!(subject(&held, 1, Some(2)), subject(&held, 1, Some(1)));
        assert_ne!(subject(&held, 1, None), subject(&other, 1, None));
        let restarted = |ago| {
            let mut faults = Faults::default();
            faults.push(
                0,
                "redis1",
                Fault::new(FaultKind::Unavailable, format!("it restarted {ago}s ago")),
            );
            Blocked::Unreachable(faults, Quorum::of(1))
        };
        let (one, two) = (restarted(1), restarted(2));
        assert!(
            wait(Some(&one), 1, None, None)
                .line()
                .ends_with("redis1: it restarted 1s ago")
        );
        assert_eq!(subject(&one, 1, None), subject(&two, 2, None));
    }

    fn party(who: OccupantKind) -> Box<Blocker> {
        Box::new(Blocker::Occupant(Occupant::new(who, None)))
    }

    fn holder() -> Box<Blocker> {
        party(OccupantKind::Holder(Token::fresh(), Details::default()))
    }

    fn members(mode: Mode, members: u64, is_readable: bool) -> Box<Blocker> {
        let marker = Marker {
            mode,
            nodes: 1,
            ttl: Duration::ZERO,
        };
        let shown = is_readable.then(|| (Token::fresh(), Details::default()));
        party(OccupantKind::Members(Box::new(Members {
            marker,
            count: members,
            shown,
        })))
    }

    #[test]
    fn a_lock_that_is_held_as_another_kind_says_so() {
        for (party, wanted, wanted_text) in [
            (holder(), Mode::Exclusive, ""),
            (
                holder(),
                Mode::Slots(3),
                "; it is held exclusive, and this run asks for one of 3 slots",
            ),
            (
                members(Mode::Shared, 1, true),
                Mode::Exclusive,
                "; this run asks for an exclusive lock",
            ),
            (
                members(Mode::Slots(4), 1, true),
                Mode::Shared,
                "; this run asks for a shared lock",
            ),
            (
                members(Mode::Slots(4), 1, true),
                Mode::Slots(3),
                "; 4 slots and 3 exclude each other: give each run of the lock the same --slots",
            ),
            (party(OccupantKind::Unnamed), Mode::Shared, ""),
            (
                party(OccupantKind::Foreign("a hash".to_owned())),
                Mode::Shared,
                "",
            ),
        ] {
            assert_eq!(
                of_kinds(&Blocked::Split(party.clone(), Faults::default()), wanted),
                wanted_text
            );
            assert_eq!(of_kinds(&Blocked::Busy(party), wanted), wanted_text);
        }
    }

    #[test]
    fn a_waiter_goes_first_where_members_of_the_same_kind_leave_room() {
        let first = |mode, number, is_readable| {
            let party = members(mode, number, is_readable);
            let is_told = |blocked| {
                of_kinds(&blocked, mode).contains("a waiter that came earlier goes first")
            };
            assert!(
                !is_told(Blocked::Split(party.clone(), Faults::default())),
                "nodes differ"
            );
            is_told(Blocked::Busy(party))
        };
        assert!(first(Mode::Shared, 1, true) && first(Mode::Slots(4), 3, true));
        assert!(!first(Mode::Slots(4), 4, true), "it is full");
        assert!(
            !first(Mode::Shared, 0, true) && !first(Mode::Shared, 2, false),
            "members were evicted"
        );
    }
}
