//! Every short history of a wait, long random ones, and the rules one by one. Nothing here waits
//! for real.

mod again;
mod model;
mod pauses;
mod reports;
mod rules;
mod superseding;

use proptest::prelude::*;

use super::*;
use crate::lock::backoff;
use crate::lock::ballot::Tally;
use crate::lock::blocker::{Blocker, Reservation};
use crate::lock::details::Details;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::fence::Fence;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::outer::OuterLocks;
use crate::lock::queue::Wake;
use crate::lock::quorum::Quorum;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use model::Model;

const TTL: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Instant {
    Instant::from_nanos((1_000_000 + millis) * 1_000_000)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn schedule() -> Schedule {
    Schedule::new(ScheduleOptions {
        ttl: TTL,
        drift: 0.01,
        node_timeout: None,
        kill_after: None,
    })
    .unwrap()
}

fn token(number: u128) -> Token {
    uuid::Uuid::from_u128(number).to_string().parse().unwrap()
}

/// The lock of this token is an outer rlock's.
fn outer() -> Token {
    token(7)
}

fn options(nodes: usize, wait: Option<Duration>) -> WaitOptions {
    WaitOptions {
        wait,
        outer: OuterLocks::read(&format!("{}:7", outer()), &token(8).to_string()),
        ..WaitOptions::new(Quorum::of(nodes), schedule())
    }
}

fn waiter() -> Waiter {
    Waiter {
        host: "web1".to_owned(),
        ..Waiter::example(1)
    }
}

fn waiting(nodes: usize, wait: Option<Duration>) -> Waiting {
    Waiting::new(options(nodes, wait), waiter(), at(0))
}

/// A wait with `--supersede`.
fn superseding(nodes: usize, wait: Option<Duration>) -> Waiting {
    Waiting::new(
        WaitOptions {
            supersede: true,
            ..options(nodes, wait)
        },
        waiter(),
        at(0),
    )
}

fn holder(token: Token, ttl: Duration) -> Box<Blocker> {
    let details = Details {
        ttl: 90_000,
        ..Details::default()
    };
    Box::new(Blocker::Occupant(Occupant::new(
        OccupantKind::Holder(token, details),
        Some(ttl),
    )))
}

fn foreign() -> Box<Blocker> {
    Box::new(Blocker::Occupant(Occupant::new(
        OccupantKind::Foreign("x".to_owned()),
        None,
    )))
}

fn reserved() -> Box<Blocker> {
    Box::new(Blocker::Reserved(Reservation {
        waiter: Some(waiter()),
        left: ms(500),
    }))
}

fn faults(nodes: &[usize]) -> Faults {
    let mut faults = Faults::default();
    for node in nodes {
        faults.push(*node, "redis", Fault::new(FaultKind::Unknown, "no answer"));
    }
    faults
}

fn away() -> Tally {
    Err(Reason::Blocked(Blocked::Unreachable(
        faults(&[0, 1]),
        Quorum::of(3),
    )))
}

/// An attempt without enough votes. `answered`: a majority answers, and does not count yet.
fn gone(answered: bool) -> Tried {
    Tried {
        voted: if answered { 3 } else { 0 },
        ..tried(away())
    }
}

fn tie() -> Tally {
    Err(Reason::Blocked(Blocked::Split(
        holder(token(2), ms(7000)),
        Faults::default(),
    )))
}

fn tried(tally: Tally) -> Tried {
    Tried {
        tally,
        is_complete: true,
        by_majority: true,
        voted: 3,
        counts_in: None,
        has_taken_any: false,
        entered: Some(1000),
        rank: Some(2),
        longest_ttl: TTL,
        refusals: Faults::default(),
        unguarded: None,
        no_queue: None,
        no_wakeups: None,
    }
}

fn event(tried: Tried) -> WaitEvent {
    WaitEvent::Tried(Box::new(tried))
}

fn busy() -> Tally {
    Err(Reason::Blocked(Blocked::Busy(holder(token(2), ms(7000)))))
}

fn taken(tally: Tally) -> Tried {
    Tried {
        has_taken_any: true,
        ..tried(tally)
    }
}

/// Every kind of attempt, with the values that could matter.
fn every_attempt() -> Vec<Tried> {
    let refusing = || Tried {
        refusals: faults(&[2]),
        ..tried(busy())
    };
    vec![
        tried(Ok(Fence::FIRST)),
        Tried {
            longest_ttl: TTL * 3,
            ..tried(busy())
        },
        Tried {
            rank: Some(0),
            entered: None,
            ..refusing()
        },
        Tried {
            is_complete: false,
            ..tried(tie())
        },
        Tried {
            rank: Some(0),
            ..tried(Err(Reason::Blocked(Blocked::Busy(foreign()))))
        },
        Tried {
            no_queue: Some(("redis".to_owned(), "NOPERM".to_owned())),
            ..tried(Err(Reason::Blocked(Blocked::Busy(reserved()))))
        },
        tried(Err(Reason::Blocked(Blocked::Busy(holder(
            outer(),
            ms(7000),
        ))))),
        Tried {
            by_majority: false,
            ..tried(Err(Reason::Blocked(Blocked::Busy(holder(
                outer(),
                ms(7000),
            )))))
        },
        taken(tie()),
        Tried {
            no_wakeups: Some("redis".to_owned()),
            ..tried(tie())
        },
        tried(Err(Reason::Blocked(Blocked::Split(
            holder(token(2), ms(7000)),
            faults(&[1, 2]),
        )))),
        gone(false),
        gone(true),
        Tried {
            unguarded: Some(("redis".to_owned(), "NOPERM".to_owned())),
            ..tried(Err(Reason::Blocked(Blocked::TooLate)))
        },
        tried(Err(Reason::Unfit(
            "redis".to_owned(),
            Fault::new(FaultKind::Unfit, "why"),
        ))),
        tried(Err(Reason::Refused(faults(&[0, 1])))),
        tried(Err(Reason::Superseded(Box::new(Blocker::Newer(Some(
            Box::new(waiter()),
        )))))),
    ]
}

/// Every kind of event.
fn every_event() -> Vec<WaitEvent> {
    let mut all: Vec<WaitEvent> = every_attempt().into_iter().map(event).collect();
    all.extend([WaitEvent::Tick, WaitEvent::Changed, WaitEvent::Interrupted]);
    all.extend([0, 3].map(|subscribed| WaitEvent::Undone { subscribed }));
    all.extend([Unjoined::Silent, Unjoined::Refused].map(WaitEvent::NotJoined));
    all.push(WaitEvent::Woken(0, Wake::StandBy));
    all.push(WaitEvent::Woken(0, Wake::Recheck));
    all.extend((0..2).map(|node| WaitEvent::Woken(node, Wake::YourTurn)));
    all
}

fn waits() -> [Option<Duration>; 3] {
    [None, Some(Duration::ZERO), Some(ms(1500))]
}

#[test]
fn the_promise_holds_after_every_short_history() {
    let events = every_event();
    for wait in waits() {
        let mut model = Model::new(waiting(3, wait), at(0));
        model.step(&WaitEvent::Tick, at(0), 0.5);
        explore(&model, &events, 5);
    }
    let mut model = Model::new(superseding(3, None), at(0));
    model.step(&WaitEvent::Tick, at(0), 0.5);
    explore(&model, &events, 5);
}

fn explore(model: &Model, events: &[WaitEvent], depth: u32) {
    if depth == 0 {
        return;
    }
    for event in events.iter().filter(|event| model.expects(event)) {
        for now in model.instants(event) {
            let mut next = model.clone();
            next.step(event, now, 0.5);
            explore(&next, events, depth - 1);
        }
    }
}

proptest! {
    #[test]
    fn the_promise_holds_after_any_long_history(
        history in proptest::collection::vec((0usize..100, 0u64..400, 0.0f64..1.0), 0..80),
        wait in proptest::sample::select(waits().to_vec()),
        to_the_point: bool,
        supersedes: bool,
    ) {
        let events = every_event();
        let mut model = Model::new(if supersedes { superseding(3, wait) } else { waiting(3, wait) }, at(0));
        let mut now = at(0);
        for (choice, pause, random) in history {
            let expected: Vec<&WaitEvent> = events.iter().filter(|event| !to_the_point || model.expects(event)).collect();
            let Some(event) = expected.get(choice % expected.len().max(1)) else { break };
            let next = now + ms(pause);
            // A driver ticks when it is time.
            now = if matches!(event, WaitEvent::Tick) && to_the_point { model.tick_at(now) } else { next };
            model.step(event, now, random);
        }
    }
}

/// Lets an attempt fail, and undoes it, so that a pause begins. The first takes the ticket.
fn fail(waiting: &mut Waiting, attempt: &Tried, now: Instant) -> Vec<WaitAction> {
    waiting.on(WaitEvent::Tick, now.max(waiting.wake_at()), 0.5);
    let mut actions = vec![];
    for _ in 0..2 {
        actions.extend(waiting.on(event(attempt.clone()), now, 0.5));
        actions.extend(waiting.on(WaitEvent::Undone { subscribed: 3 }, now, 0.5));
        if waiting.step != Step::Trying {
            return actions;
        }
    }
    panic!("no pause after two attempts: {waiting:?}");
}

fn said(actions: &[WaitAction]) -> Vec<&Notice> {
    actions
        .iter()
        .filter_map(|action| {
            if let WaitAction::Say(notice) = action {
                Some(notice)
            } else {
                None
            }
        })
        .collect()
}
