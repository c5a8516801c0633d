//! A wait for the next lock of its run, or for the first one anew.

use super::*;

fn another() -> Waiter {
    Waiter {
        id: uuid::Uuid::from_u128(2),
        ..waiter()
    }
}

fn tickets(actions: &[WaitAction]) -> Vec<Option<Ticket>> {
    let ticket = |action: &WaitAction| {
        if let WaitAction::Try { ticket, .. } = action {
            Some(ticket.clone())
        } else {
            None
        }
    };
    actions.iter().filter_map(ticket).collect()
}

#[test]
fn it_takes_a_place_of_its_own() {
    let mut w = waiting(3, None);
    w.on(WaitEvent::Tick, at(0), 0.5);
    w.on(event(tried(Ok(Fence::FIRST))), at(1), 0.5);
    let mut w = w.again(another(), at(5));
    assert_eq!(tickets(&w.on(WaitEvent::Tick, at(5), 0.5)), [None]);
    w.on(
        event(Tried {
            entered: Some(9000),
            ..tried(busy())
        }),
        at(6),
        0.5,
    );
    let tries = tickets(&w.on(WaitEvent::Undone { subscribed: 3 }, at(6), 0.5));
    assert!(
        matches!(&tries[..], [Some(ticket)] if ticket.waiter == another() && ticket.number == 9000)
    );
    assert_eq!(w.waited(at(8)), ms(8), "the time of the whole run");
}

#[test]
fn the_patience_is_the_runs() {
    let mut w = waiting(3, Some(ms(500))).again(another(), at(400));
    w.on(WaitEvent::Tick, at(400), 0.5);
    fail(&mut w, &tried(busy()), at(401));
    assert!(w.wake_at() <= at(500));
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    let actions = w.on(event(tried(busy())), at(500), 0.5);
    assert!(
        matches!(
            actions[..],
            [
                WaitAction::Leave | WaitAction::Undo(_),
                WaitAction::GiveUp(_)
            ]
        ),
        "{actions:?}"
    );
    // A majority has granted, so nodes that are away are waited for as long as the user said.
    let mut w = waiting(3, None).again(another(), at(0));
    w.on(WaitEvent::Tick, at(0), 0.5);
    fail(&mut w, &gone(false), at(20_000));
    assert_ne!(w.wake_at(), at(20_000));
}

#[test]
fn without_patience_each_lock_is_tried_for_a_node_timeout() {
    let mut w = waiting(3, Some(Duration::ZERO)).again(another(), at(5000));
    w.on(WaitEvent::Tick, at(5000), 0.5);
    assert!(w.wake_at() > at(5000));
}

#[test]
fn it_has_a_blocker_of_its_own_to_report() {
    let says = |w: &mut Waiting| {
        w.on(WaitEvent::Tick, at(5), 0.5);
        w.on(event(tried(busy())), at(6), 0.5);
        w.on(WaitEvent::Undone { subscribed: 3 }, at(6), 0.5);
        let said = w.on(event(tried(busy())), at(7), 0.5);
        said.iter()
            .filter(|action| matches!(action, WaitAction::Say(Notice::Waiting { .. })))
            .count()
    };
    let mut w = waiting(3, None);
    assert_eq!(says(&mut w), 1);
    assert_eq!(
        says(&mut w.again(another(), at(5))),
        1,
        "the same party holds the next lock too"
    );
}
