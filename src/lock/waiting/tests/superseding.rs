//! `--supersede`.

use super::*;

fn superseding() -> Waiting {
    Waiting::new(
        WaitOptions {
            supersede: true,
            ..options(3, None)
        },
        waiter(),
        at(0),
    )
}

/// Returns the tickets with which attempts are made: their numbers, and when the waiter came.
fn tickets(actions: &[WaitAction]) -> Vec<Option<(u64, Option<u64>)>> {
    let ticket = |action: &WaitAction| match action {
        WaitAction::Try { ticket, .. } => Some(
            ticket
                .as_ref()
                .map(|ticket| (ticket.number, ticket.supersedes)),
        ),
        _ => None,
    };
    actions.iter().filter_map(ticket).collect()
}

fn entered(micros: u64, tally: Tally) -> Tried {
    Tried {
        entered: Some(micros),
        ..taken(tally)
    }
}

#[test]
fn a_waiter_that_ties_gets_another_place_and_has_come_when_it_came() {
    let mut w = superseding();
    let mut asked = tickets(&w.on(WaitEvent::Tick, at(0), 0.5));
    for micros in [1000, 2000, 3000, 4000] {
        w.on(
            event(entered(micros, tie())),
            w.wake_at().min(at(micros)),
            0.5,
        );
        asked.extend(tickets(&w.on(
            WaitEvent::Undone { subscribed: 3 },
            at(micros),
            0.5,
        )));
        asked.extend(tickets(&w.on(
            WaitEvent::Tick,
            w.wake_at().min(at(micros + 900)),
            0.5,
        )));
    }
    let came = Some(1000);
    assert_eq!(asked[..3], [None, Some((1000, came)), Some((1000, came))]);
    let again = asked[3..]
        .iter()
        .all(|ticket| ticket.is_some_and(|(number, told)| number > 1000 && told == came));
    assert!(again && asked.len() > 3, "{asked:?}");
}

#[test]
fn a_lock_that_is_won_at_once_is_announced_before_it_is_held() {
    for (mut w, announces) in [(superseding(), true), (waiting(3, None), false)] {
        w.on(WaitEvent::Tick, at(0), 0.5);
        let actions = w.on(event(entered(1000, Ok(Fence::FIRST))), at(1), 0.5);
        let announced = matches!(&actions[..], [WaitAction::Announce(ticket), WaitAction::Hold(_)] if ticket.supersedes == Some(1000));
        assert_eq!(announced, announces, "{actions:?}");
    }
    let mut w = superseding();
    w.on(WaitEvent::Tick, at(0), 0.5);
    w.on(event(entered(1000, busy())), at(1), 0.5);
    w.on(WaitEvent::Undone { subscribed: 3 }, at(1), 0.5);
    assert_eq!(
        w.on(event(entered(2000, Ok(Fence::FIRST))), at(2), 0.5),
        [WaitAction::Hold(Fence::FIRST)]
    );
}

#[test]
fn a_superseded_waiter_leaves_the_queues_and_gives_back_what_it_had_taken() {
    let mut w = superseding();
    fail(&mut w, &tried(busy()), at(0));
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    let by = Box::new(Blocker::Newer(Some(Box::new(waiter()))));
    let actions = w.on(
        event(tried(Err(Reason::Superseded(by.clone())))),
        at(9000),
        0.5,
    );
    assert_eq!(
        actions,
        [
            WaitAction::Undo(QueueEntry::Left),
            WaitAction::GiveUp(Reason::Superseded(by))
        ]
    );
}
