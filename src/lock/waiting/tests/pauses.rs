//! Pauses of standbys, behind another waiter's turn, and while nodes are under their restart guard.

use super::*;

fn paused(attempt: &Tried) -> Waiting {
    let mut waiting = waiting(3, None);
    fail(&mut waiting, attempt, at(0));
    waiting
}

#[test]
fn a_standby_looks_when_the_turn_should_be_taken() {
    let mut w = paused(&Tried {
        rank: Some(1),
        ..tried(busy())
    });
    w.on(WaitEvent::Woken(0, Wake::StandBy), at(100), 0.5);
    assert_eq!(w.wake_at(), at(600));
    fail(
        &mut w,
        &Tried {
            rank: Some(1),
            ..tried(Err(Reason::Blocked(Blocked::Busy(reserved()))))
        },
        at(600),
    );
    assert_eq!(
        w.wake_at(),
        at(1201),
        "it waits for the end of a turn that has begun meanwhile"
    );
    fail(
        &mut w,
        &Tried {
            rank: Some(0),
            ..tried(busy())
        },
        at(1201),
    );
    assert_eq!(
        w.wake_at(),
        at(8202),
        "and then for the end of the new holder, since it is the first now"
    );
}

#[test]
fn a_turn_of_another_waiter_is_no_tie_and_is_waited_for() {
    let mut w = waiting(3, None);
    for round in 0..9 {
        let begin = 10_000 * round;
        let actions = fail(
            &mut w,
            &taken(Err(Reason::Blocked(Blocked::Split(
                reserved(),
                Faults::default(),
            )))),
            at(begin),
        );
        assert!(
            !actions.contains(&WaitAction::Undo(QueueEntry::Left)),
            "{round}: {actions:?}"
        );
        assert_eq!(
            w.wake_at(),
            at(begin + 701),
            "its end, and 0.1 s for each waiter ahead"
        );
    }
}

#[test]
fn nodes_that_restarted_are_asked_when_they_count_again() {
    let mut w = waiting(3, None);
    let attempt = Tried {
        voted: 3,
        counts_in: Some(ms(9000)),
        rank: Some(2),
        ..gone(true)
    };
    fail(&mut w, &attempt, at(0));
    assert_eq!(
        w.wake_at(),
        at(9200) + backoff::retry(schedule().retry(), 0.5)
    );
    fail(
        &mut w,
        &Tried {
            counts_in: None,
            rank: None,
            ..attempt
        },
        at(20_000),
    );
    assert_eq!(
        w.wake_at(),
        at(20_000) + backoff::retry(schedule().retry(), 0.5),
        "others are missing too"
    );
}
