//! Pauses of standbys, behind another waiter's turn, and while nodes are under their restart guard.

use super::*;

fn paused(attempt: &Tried) -> Waiting {
    let mut waiting = waiting(3, None);
    fail(&mut waiting, attempt, at(0));
    waiting
}

#[test]
fn a_standby_looks_when_the_turn_should_be_taken_and_as_the_first_does_while_it_is_not() {
    let mut w = paused(&tried(busy()));
    w.on(Event::Woken(0, Wake::StandBy), at(100), 0.5);
    assert_eq!(w.wake_at(), at(600));
    fail(&mut w, &tried(Tally::Busy(reserved())), at(600));
    assert_eq!(w.wake_at(), at(1101));
    fail(&mut w, &tried(Tally::Busy(reserved())), at(1101));
    assert_eq!(w.wake_at(), at(1602), "it goes on");
    fail(&mut w, &tried(busy()), at(1602));
    assert_eq!(w.wake_at(), at(8603), "and then the holder's end");
    fail(&mut w, &tried(busy()), at(8603));
    assert_eq!(w.wake_at(), at(15_604), "which a renewal has moved");
    fail(&mut w, &tried(Tally::Busy(reserved())), at(15_604));
    assert_eq!(w.wake_at(), at(16_105), "its successor is checked too");
    let other = tried(Tally::Busy(holder(token(3), ms(7000))));
    fail(&mut w, &other, at(16_105));
    assert_eq!(w.wake_at(), at(23_306), "another holder has standbys of its own");
    fail(&mut w, &tried(Tally::Busy(reserved())), at(23_306));
    assert_eq!(w.wake_at(), at(24_007));
}

#[test]
fn a_standby_leaves_foreign_clients_to_the_first_waiter() {
    let mut w = paused(&tried(busy()));
    w.on(Event::Woken(0, Wake::StandBy), at(100), 0.5);
    fail(&mut w, &tried(Tally::Busy(foreign())), at(600));
    assert_eq!(w.wake_at(), at(600) + ms(10_000));
}

#[test]
fn a_turn_of_another_waiter_is_no_tie_and_is_waited_for() {
    let mut w = waiting(3, None);
    for round in 0..9 {
        let begin = 10_000 * round;
        let actions = fail(&mut w, &taken(Tally::Split(reserved(), Faults::default())), at(begin));
        assert!(!actions.contains(&Action::Undo(Place::Left)), "{round}: {actions:?}");
        assert_eq!(w.wake_at(), at(begin + 701), "its end, and 0.1 s for each waiter ahead");
    }
}

#[test]
fn nodes_that_restarted_are_asked_when_they_count_again() {
    let mut w = waiting(3, None);
    let attempt = Tried { voted: 3, counts_in: Some(ms(9000)), rank: Some(2), ..tried(away(true)) };
    fail(&mut w, &attempt, at(0));
    assert_eq!(w.wake_at(), at(9200) + backoff::retry(schedule().retry(), 0.5));
    fail(&mut w, &Tried { counts_in: None, rank: None, ..attempt }, at(20_000));
    assert_eq!(w.wake_at(), at(20_000) + backoff::retry(schedule().retry(), 0.5), "others are missing too");
}
