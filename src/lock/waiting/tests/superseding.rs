//! `--supersede` and `--replace`.

use super::*;

fn superseding() -> Waiting {
    Waiting::new(Options { supersede: true, ..options(3, None) }, waiter(), at(0))
}

/// Returns the tickets with which attempts are made: their numbers, and when the waiter came.
fn tickets(actions: &[Action]) -> Vec<Option<(i64, Option<u64>)>> {
    let ticket = |action: &Action| match action {
        Action::Try { ticket, .. } => Some(ticket.as_ref().map(|ticket| (ticket.number, ticket.supersedes))),
        _ => None,
    };
    actions.iter().filter_map(ticket).collect()
}

fn entered(micros: u64, tally: Tally) -> Tried {
    Tried { entered: Some(micros), ..taken(tally) }
}

#[test]
fn a_waiter_that_ties_gets_another_place_and_has_come_when_it_came() {
    let mut w = superseding();
    let mut asked = tickets(&w.on(Event::Tick, at(0), 0.5));
    for micros in [1000, 2000, 3000, 4000] {
        w.on(event(entered(micros, tie())), w.wake_at().min(at(micros)), 0.5);
        asked.extend(tickets(&w.on(Event::Undone { subscribed: 3 }, at(micros), 0.5)));
        asked.extend(tickets(&w.on(Event::Tick, w.wake_at().min(at(micros + 900)), 0.5)));
    }
    let came = Some(1000);
    assert_eq!(asked[..3], [None, Some((1000, came)), Some((1000, came))]);
    let again = asked[3..].iter().all(|ticket| ticket.is_some_and(|(number, told)| number > 1000 && told == came));
    assert!(again && asked.len() > 3, "{asked:?}");
}

#[test]
fn a_lock_that_is_won_at_once_is_announced_before_it_is_held() {
    for (mut w, announces) in [(superseding(), true), (waiting(3, None), false)] {
        w.on(Event::Tick, at(0), 0.5);
        let actions = w.on(event(entered(1000, Tally::Won(Fence::FIRST))), at(1), 0.5);
        let announced =
            matches!(&actions[..], [Action::Announce(ticket), Action::Hold(_)] if ticket.supersedes == Some(1000));
        assert_eq!(announced, announces, "{actions:?}");
    }
    let mut w = superseding();
    w.on(Event::Tick, at(0), 0.5);
    w.on(event(entered(1000, busy())), at(1), 0.5);
    w.on(Event::Undone { subscribed: 3 }, at(1), 0.5);
    assert_eq!(w.on(event(entered(2000, Tally::Won(Fence::FIRST))), at(2), 0.5), [Action::Hold(Fence::FIRST)]);
}

#[test]
fn a_superseded_waiter_leaves_the_queues_and_gives_back_what_it_had_taken() {
    let mut w = superseding();
    fail(&mut w, &tried(busy()), at(0));
    w.on(Event::Tick, w.wake_at(), 0.5);
    let by = Box::new(Blocker::Newer(Some(Box::new(waiter()))));
    let actions = w.on(event(tried(Tally::Superseded(by.clone()))), at(9000), 0.5);
    assert_eq!(actions, [Action::Undo(Place::Left), Action::GiveUp(Reason::Superseded(by))]);
}

#[test]
fn holders_are_told_once_a_waiter_stands_in_line_and_not_again() {
    let mut w = replacing(3, None);
    let replaces = |actions: Vec<Action>| actions.contains(&Action::Replace);
    assert!(replaces(fail(&mut w, &tried(busy()), at(0))), "the second attempt has a place");
    assert!(replaces(fail(&mut w, &tried(busy()), at(9000))), "not all were told");
    w.has_replaced(vec![], true);
    assert!(!replaces(fail(&mut w, &tried(busy()), at(20_000))));
}

#[test]
fn holders_that_no_majority_names_are_not_told() {
    for attempt in [Tried { by_majority: false, ..tried(busy()) }, tried(tie()), tried(Tally::Busy(reserved()))] {
        let mut w = replacing(3, None);
        assert!(!fail(&mut w, &attempt, at(0)).contains(&Action::Replace), "{attempt:?}");
    }
}

#[test]
fn a_holder_that_is_not_ended_is_said_once_and_each_that_is() {
    let mut w = replacing(3, None);
    let occupant = || Box::new(Occupant::new(OccupantKind::Unnamed, None));
    let notices = || vec![Notice::Replaced(occupant()), Notice::Replaced(occupant()), Notice::NotReplaced(occupant())];
    assert_eq!(w.has_replaced(notices(), false).len(), 3);
    assert_eq!(w.has_replaced(notices(), false).len(), 2);
}
