//! Locks as a table, with remarks below it.

use std::time::{Duration, SystemTime};

use crate::clock;
use crate::hold::observe::Observations;
use crate::lock::census::{Census, State};
use crate::lock::details::Details;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::mode::Mode;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::queue::Ticket;
use crate::report::occupied;
use crate::store::Store;
use crate::text::duration;
use crate::text::escape;
use crate::text::table::{self, Column};

/// Excess of a key's TTL over its lease from which on the server's clock was probably set back.
const TOO_LONG: Duration = Duration::from_secs(2);

const COLUMNS: [Column; 9] = [
    Column {
        title: "KEY",
        yields: true,
        rank: 0,
    },
    Column {
        title: "HOLDER",
        yields: true,
        rank: 1,
    },
    Column {
        title: "PID",
        yields: false,
        rank: 4,
    },
    Column {
        title: "COMMAND",
        yields: true,
        rank: 5,
    },
    Column {
        title: "SINCE",
        yields: false,
        rank: 3,
    },
    Column {
        title: "LEFT",
        yields: false,
        rank: 2,
    },
    Column {
        title: "FENCE",
        yields: false,
        rank: 8,
    },
    Column {
        title: "VOTES",
        yields: false,
        rank: 6,
    },
    Column {
        title: "NOTE",
        yields: true,
        rank: 7,
    },
];

/// Returns the table, and below it the remarks, each line at most `width` wide.
pub(super) fn of(
    locks: &[(Key, Observations)],
    unreadable: usize,
    stores: &[Box<dyn Store>],
    unread: &Faults,
    width: Option<usize>,
) -> String {
    let now = clock::unix_millis(SystemTime::now());
    let rows: Vec<Vec<String>> = locks
        .iter()
        .flat_map(|(key, observations)| rows(key, &observations.census(), now))
        .collect();
    let mut lines = if !rows.is_empty() {
        table::fit(&COLUMNS, &rows, width)
    } else if unreadable == 0 {
        vec!["no lock is held".to_owned()]
    } else {
        Vec::new()
    };
    let forbidden = match unreadable {
        0 => None,
        1 => Some("1 lock that this user may not read".to_owned()),
        more => Some(format!("{more} locks that this user may not read")),
    };
    let mut remarks = remarks(locks, stores, unread);
    remarks.extend(forbidden);
    let fitted = remarks
        .iter()
        .map(|remark| width.map_or_else(|| remark.clone(), |width| table::cut(remark, width)));
    lines.extend(fitted);
    lines.join("\n") + "\n"
}

/// Returns the rows of a lock: one, or with members one for all of them and one for each.
fn rows(key: &Key, census: &Census, now: u64) -> Vec<Vec<String>> {
    let votes_of_all = |votes: usize| format!("{votes}/{}", census.quorum().total());
    let holders = census.holders();
    let mode = holders
        .first()
        .and_then(|(first, _)| first.mode())
        .filter(|mode| mode.has_members());
    let Some(mode) = mode else {
        let votes = votes_of_all(census.leading().map_or(0, |(_, votes)| votes));
        let state = if census.state() == State::Free {
            "(free)"
        } else {
            "(unknown)"
        };
        let cells = match census.holder() {
            Some(occupant) => of_holder(occupant, census, votes, now),
            None => only(state, votes, Default::default()),
        };
        return vec![row(key.to_string(), cells)];
    };
    let number = holders.len() as u64 + census.unlisted();
    let kind = mode.number().map_or_else(
        || format!("shared {number}"),
        |slots| format!("slots {number}/{slots}"),
    );
    let mut rows = vec![row(
        key.to_string(),
        only(&kind, String::new(), Default::default()),
    )];
    for (occupant, votes) in holders {
        let slot = match occupant.seat.index {
            0 => String::new(),
            index => format!("  slot {index}"),
        };
        rows.push(row(
            slot,
            of_holder(occupant, census, votes_of_all(votes), now),
        ));
    }
    rows
}

fn row(name: String, cells: [String; 8]) -> Vec<String> {
    [name].into_iter().chain(cells).collect()
}

/// Returns the cells of a holder behind the first.
fn of_holder(occupant: &Occupant, census: &Census, votes: String, now: u64) -> [String; 8] {
    let left = match (census.ttl_of(occupant), &occupant.who) {
        (Some(ttl), _) => duration::show_until(brief(ttl), now),
        // It has one, and no look tells what is left of it.
        (None, OccupantKind::InLine(_)) => "?".to_owned(),
        (None, _) if occupant.lease_length().is_some() => "?".to_owned(),
        (None, _) => "for ever".to_owned(),
    };
    match &occupant.who {
        OccupantKind::Holder(token, details) => {
            let fence = census
                .fence(*token)
                .map_or_else(String::new, |fence| fence.to_string());
            let [pid, command] = process(details);
            let remark = details
                .note
                .as_deref()
                .map(escape::text)
                .unwrap_or_default();
            let holder = format!(
                "{}@{}",
                escape::text(&details.user),
                escape::text(&details.host)
            );
            [
                holder,
                pid,
                command,
                ago(details.since, now),
                left,
                fence,
                votes,
                remark,
            ]
        }
        OccupantKind::Foreign(what) | OccupantKind::InLine(what) => {
            only("(not rlock)", votes, [left, what.clone()])
        }
        OccupantKind::Members(members) => {
            only("(members unknown)", votes, [left, members.to_string()])
        }
        OccupantKind::Unnamed => only("(unnamed)", votes, Default::default()),
    }
}

/// Returns the cells where no more is known than these.
fn only(holder: &str, votes: String, [left, note]: [String; 2]) -> [String; 8] {
    let [pid, command, since, fence] = Default::default();
    [
        holder.to_owned(),
        pid,
        command,
        since,
        left,
        fence,
        votes,
        note,
    ]
}

/// Returns pid and command; a lock that was acquired has neither, and a parked one no pid.
fn process(details: &Details) -> [String; 2] {
    if details.parked {
        return [
            "-".to_owned(),
            format!("{} (parked)", escape::text(&details.cmd)),
        ];
    }
    if !details.kept {
        return ["-".to_owned(), "(acquire)".to_owned()];
    }
    let pid = details
        .pid
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    [pid, escape::text(&details.cmd)]
}

/// Leaves tenths only of a few seconds.
fn brief(span: Duration) -> Duration {
    if span < Duration::from_secs(10) {
        span
    } else {
        Duration::from_secs(span.as_secs())
    }
}

fn ago(since: u64, now: u64) -> String {
    duration::show_rounded(Duration::from_secs(now.saturating_sub(since) / 1000))
}

/// Returns the nodes that fail, once each; and for each lock the nodes that contradict the
/// majority, and its waiters.
fn remarks(
    locks: &[(Key, Observations)],
    stores: &[Box<dyn Store>],
    unread: &Faults,
) -> Vec<String> {
    let mut remarks = Vec::new();
    for (node, there) in stores.iter().enumerate() {
        let mut faults = locks
            .iter()
            .map(|(_, observations)| &observations.faults)
            .chain([unread]);
        let fault = faults.find_map(|faults| faults.of(node));
        remarks.extend(fault.map(|fault| format!("{}: {fault}", there.name())));
        let mut primaries: Vec<String> = locks
            .iter()
            .filter_map(|(_, seen)| Some(seen.servers[node].as_ref()?.to_string()))
            .collect();
        primaries.sort_unstable();
        primaries.dedup();
        remarks.extend(
            primaries
                .iter()
                .map(|primary| format!("{}: {primary}", there.name())),
        );
    }
    for (key, observations) in locks {
        let census = observations.census();
        for (node, there) in stores.iter().enumerate() {
            let remark = observations.of_nodes[node]
                .as_ref()
                .and_then(|_| remark(node, observations, &census));
            remarks.extend(remark.map(|remark| format!("{key}: {}: {remark}", there.name())));
        }
        if let Some((node, why)) = census.other_list() {
            remarks.push(format!("{key}: {}: {why}", stores[node].name()));
        }
        for by in census
            .holders()
            .iter()
            .filter_map(|(occupant, _)| occupant.holder()?.1.broken.as_ref())
        {
            remarks.push(format!(
                "{key}: {by}; its holder must stop its command and release it"
            ));
        }
        let [last, success] = census.last();
        let is_free = census.holder().is_none();
        remarks.extend(
            last.filter(|_| is_free)
                .map(|last| format!("{key}: last: {}", last.told())),
        );
        let other = success.filter(|success| last.is_none_or(|last| last.token != success.token));
        remarks.extend(other.map(|success| format!("{key}: {}", success.success())));
        remarks.extend(waiters(key, &census, locks.len() == 1));
    }
    remarks
}

/// Returns what is unusual about a lock at a node that answered.
fn remark(node: usize, observations: &Observations, census: &Census) -> Option<String> {
    let observation = observations.of_nodes[node].as_ref()?;
    let there = observation.occupant();
    let holders = census.holders();
    if holders
        .iter()
        .any(|(holder, _)| holder.mode().is_some_and(Mode::has_members))
    {
        let lacks = |(holder, _): &&(&Occupant, usize)| {
            !observation
                .holders
                .iter()
                .any(|other| other.is_same(holder))
        };
        let lacking = holders.iter().filter(lacks).count();
        // Of many members, a node tells a part.
        return (lacking > 0 && census.unlisted() == 0)
            .then(|| format!("it lacks {lacking} of the {} holders", holders.len()));
    }
    if census.holder().is_none() {
        return there.map(|left| {
            format!(
                "left over, at too few nodes to hold the lock: {}",
                occupied(left)
            )
        });
    }
    match census.agrees_with_leading(node) {
        Some(true) => {
            let (ttl, lease) = there.and_then(|there| Some((there.ttl?, there.lease_length()?)))?;
            let kept = matches!(there.map(|there| &there.who), Some(OccupantKind::Holder(_, details)) if details.kept);
            (ttl > lease + TOO_LONG && kept).then(|| {
                let (ttl, lease) = (duration::show_rounded(ttl), duration::show(lease));
                format!("it keeps the key for {ttl}, longer than its TTL of {lease}; was the server's clock set back?")
            })
        }
        Some(false) => there.map(occupied),
        None => census.leading().map(|_| "free".to_owned()),
    }
}

/// Returns the number of waiters, and for a single lock each of them on a line, the next one first.
fn waiters(key: &Key, census: &Census, alone: bool) -> Vec<String> {
    let queue = census.queue();
    let Some(number) = Some(queue.len()).filter(|number| *number > 0) else {
        return Vec::new();
    };
    let more = if census.has_more_waiters() {
        " or more"
    } else {
        ""
    };
    let wait = if number == 1 && more.is_empty() {
        "waits"
    } else {
        "wait"
    };
    let now = clock::unix_millis(SystemTime::now());
    let one = |(place, ticket): (usize, &&Ticket)| {
        let waiter = &ticket.waiter;
        let note = waiter
            .note
            .as_ref()
            .map_or_else(String::new, |note| format!(" ({})", escape::short(note)));
        format!(
            "  {}. {}, pid {}, for {}{note}",
            place + 1,
            waiter.person(),
            waiter.pid,
            ago(waiter.since, now)
        )
    };
    let named = queue.iter().enumerate().map(one).filter(|_| alone);
    std::iter::once(format!("{key}: {number}{more} {wait}"))
        .chain(named)
        .collect()
}
