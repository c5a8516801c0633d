//! A wait that goes on with the next lock of its run, or begins anew.

use super::*;

fn another() -> Waiter {
    Waiter { id: uuid::Uuid::from_u128(2), ..waiter() }
}

fn numbers(actions: &[Action]) -> Vec<Option<i64>> {
    let number = |action: &Action| match action {
        Action::Try { ticket, .. } => Some(ticket.as_ref().map(|ticket| ticket.number)),
        _ => None,
    };
    actions.iter().filter_map(number).collect()
}

/// A wait that has won its first lock from a place in the queue with the number 1000.
fn won_one(wait: Option<Duration>) -> Waiting {
    let mut w = waiting(3, wait);
    w.on(Event::Tick, at(0), 0.5);
    w.on(event(tried(busy())), at(0), 0.5);
    assert_eq!(numbers(&w.on(Event::Undone { subscribed: 3 }, at(0), 0.5)), [Some(1000)]);
    assert_eq!(w.on(event(tried(Tally::Won(Fence::FIRST))), at(1), 0.5), [Action::Hold(Fence::FIRST)]);
    w
}

#[test]
fn the_next_lock_is_tried_without_a_place_and_waited_for_with_the_number_of_the_first() {
    let mut w = won_one(None);
    w.go_on(another(), false, at(5));
    assert_eq!(w.wake_at(), at(5));
    assert_eq!(numbers(&w.on(Event::Tick, at(5), 0.5)), [None]);
    w.on(event(Tried { entered: Some(9000), ..tried(busy()) }), at(6), 0.5);
    let tries = w.on(Event::Undone { subscribed: 3 }, at(6), 0.5);
    assert_eq!(numbers(&tries), [Some(1000)]);
    assert!(matches!(&tries[..], [Action::Try { ticket: Some(ticket), .. }] if ticket.waiter == another()));
}

#[test]
fn an_attempt_for_the_next_lock_that_is_under_way_is_counted() {
    let mut w = won_one(None);
    w.go_on(another(), true, at(5));
    assert_eq!(w.on(Event::Tick, at(5), 0.5), []);
    assert_eq!(w.on(event(tried(Tally::Won(Fence::FIRST))), at(6), 0.5), [Action::Hold(Fence::FIRST)]);
    // After a failure it pauses as any other does.
    let mut w = won_one(None);
    w.go_on(another(), true, at(5));
    fail(&mut w, &tried(busy()), at(6));
    assert!(w.wake_at() > at(6));
}

#[test]
fn the_patience_is_the_runs() {
    let mut w = won_one(Some(ms(500)));
    w.go_on(another(), false, at(400));
    w.on(Event::Tick, at(400), 0.5);
    w.on(event(tried(busy())), at(401), 0.5);
    w.on(Event::Undone { subscribed: 3 }, at(401), 0.5);
    w.on(event(tried(busy())), at(402), 0.5);
    w.on(Event::Undone { subscribed: 3 }, at(402), 0.5);
    assert!(w.wake_at() <= at(500));
    w.on(Event::Tick, w.wake_at(), 0.5);
    let actions = w.on(event(tried(busy())), at(500), 0.5);
    assert!(matches!(actions[..], [Action::Leave | Action::Undo(_), Action::GiveUp(_)]), "{actions:?}");
    // A majority has granted, so nodes that are away are waited for as long as the user said.
    let mut w = won_one(None);
    w.go_on(another(), false, at(0));
    w.on(Event::Tick, at(0), 0.5);
    w.on(event(tried(away(false))), at(20_000), 0.5);
    assert_ne!(w.wake_at(), at(20_000));
    assert!(numbers(&w.on(Event::Undone { subscribed: 3 }, at(20_000), 0.5)).len() <= 1);
}

#[test]
fn the_next_lock_has_a_blocker_of_its_own_to_report() {
    let says = |w: &mut Waiting| {
        w.on(Event::Tick, at(5), 0.5);
        w.on(event(tried(busy())), at(6), 0.5);
        w.on(Event::Undone { subscribed: 3 }, at(6), 0.5);
        let said = w.on(event(tried(busy())), at(7), 0.5);
        said.iter().filter(|action| matches!(action, Action::Say(Notice::Waiting { .. }))).count()
    };
    let mut w = waiting(3, None);
    assert_eq!(says(&mut w), 1);
    w.on(Event::Undone { subscribed: 3 }, at(7), 0.5);
    w.on(Event::Tick, w.wake_at(), 0.5);
    w.on(event(tried(Tally::Won(Fence::FIRST))), at(8), 0.5);
    w.go_on(another(), false, at(5));
    assert_eq!(says(&mut w), 1, "the same party holds the next lock too");
}

#[test]
fn a_run_that_begins_anew_has_another_number() {
    let mut w = won_one(None);
    w.go_on(another(), false, at(5));
    w.on(Event::Interrupted, at(6), 0.5);
    w.begin_anew(another(), at(7));
    assert_eq!(numbers(&w.on(Event::Tick, at(7), 0.5)), [None]);
    w.on(event(Tried { entered: Some(9000), ..tried(busy()) }), at(8), 0.5);
    assert_eq!(numbers(&w.on(Event::Undone { subscribed: 3 }, at(8), 0.5)), [Some(9000)]);
    assert_eq!(w.waited(at(8)), ms(8), "the patience goes on");
}
