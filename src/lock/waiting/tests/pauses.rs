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
    assert_eq!(w.wake_at(), at(700));
    fail(&mut w, &tried(Tally::Busy(reserved())), at(700));
    assert_eq!(w.wake_at(), at(1301));
    fail(&mut w, &tried(Tally::Busy(reserved())), at(1301));
    assert_eq!(w.wake_at(), at(1902), "it goes on");
    fail(&mut w, &tried(busy()), at(1902));
    assert_eq!(w.wake_at(), at(8903), "and then the holder's end");
    fail(&mut w, &tried(busy()), at(8903));
    assert_eq!(w.wake_at(), at(15_904), "which a renewal has moved");
    fail(&mut w, &tried(Tally::Busy(reserved())), at(15_904));
    assert_eq!(w.wake_at(), at(16_505), "its successor is checked too");
    let other = tried(Tally::Busy(holder(token(3), ms(7000))));
    fail(&mut w, &other, at(16_505));
    assert_eq!(w.wake_at(), at(23_706), "another holder has standbys of its own");
    fail(&mut w, &tried(Tally::Busy(reserved())), at(23_706));
    assert_eq!(w.wake_at(), at(24_507));
}

#[test]
fn a_standby_leaves_foreign_clients_to_the_first_waiter() {
    let mut w = paused(&tried(busy()));
    w.on(Event::Woken(0, Wake::StandBy), at(100), 0.5);
    fail(&mut w, &tried(Tally::Busy(foreign())), at(700));
    assert_eq!(w.wake_at(), at(700) + ms(10_000));
}

#[test]
fn a_turn_of_another_waiter_is_no_tie_and_is_waited_for() {
    let mut w = waiting(3, None);
    for round in 0..9 {
        let begin = 10_000 * round;
        let actions = fail(&mut w, &taken(Tally::Split(reserved(), Faults::default())), at(begin));
        assert!(!actions.contains(&Action::Undo(Place::Left)), "{round}: {actions:?}");
        assert_eq!(w.wake_at(), at(begin + 801), "its end, and 0.1 s for each waiter ahead");
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
