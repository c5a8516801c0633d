//! The rules of waiting, one by one.

use super::*;

fn paused(attempt: &Tried) -> Waiting {
    let mut waiting = waiting(3, None);
    fail(&mut waiting, attempt, at(0));
    waiting
}

fn tickets(actions: &[WaitAction]) -> Vec<Option<u64>> {
    let ticket = |action: &WaitAction| match action {
        WaitAction::Try { ticket, .. } => Some(ticket.as_ref().map(|ticket| ticket.number)),
        _ => None,
    };
    actions.iter().filter_map(ticket).collect()
}

#[test]
fn the_first_failure_takes_the_ticket_and_the_next_attempt_follows_at_once() {
    let mut w = waiting(3, None);
    assert_eq!(tickets(&w.on(WaitEvent::Tick, at(0), 0.5)), [None]);
    assert_eq!(
        w.on(event(tried(busy())), at(1), 0.5),
        [WaitAction::Undo(QueueEntry::Kept)],
        "what is not news is not said"
    );
    assert_eq!(
        tickets(&w.on(WaitEvent::Undone { subscribed: 3 }, at(2), 0.5)),
        [Some(1000)]
    );
    let actions = w.on(
        event(Tried {
            entered: Some(2000),
            ..tried(busy())
        }),
        at(3),
        0.5,
    );
    assert_eq!(said(&actions).len(), 1);
    assert_eq!(w.on(WaitEvent::Undone { subscribed: 3 }, at(4), 0.5), []);
    assert_eq!(
        tickets(&w.on(WaitEvent::Tick, w.wake_at(), 0.5)),
        [Some(1000)],
        "the ticket stays"
    );
}

#[test]
fn a_waiter_without_the_time_of_a_node_waits_without_a_place_and_polls() {
    let w = paused(&Tried {
        entered: None,
        ..tried(busy())
    });
    assert_eq!(w.wake_at(), at(175));
    assert_eq!(
        paused(&tried(busy())).wake_at(),
        at(7201),
        "with a place it is woken"
    );
}

#[test]
fn a_waiter_that_a_majority_would_not_wake_polls() {
    for (subscribed, due) in [(1, 175), (2, 7201)] {
        let mut w = waiting(3, None);
        w.on(WaitEvent::Tick, at(0), 0.5);
        w.on(event(tried(busy())), at(0), 0.5);
        w.on(WaitEvent::Undone { subscribed }, at(0), 0.5);
        w.on(event(tried(busy())), at(0), 0.5);
        w.on(WaitEvent::Undone { subscribed }, at(0), 0.5);
        assert_eq!(w.wake_at(), at(due));
    }
}

#[test]
fn three_ties_with_a_node_in_hand_give_the_place_up_for_a_later_one() {
    let mut w = waiting(3, None);
    for round in 0..3 {
        let actions = fail(&mut w, &taken(tie()), at(round * 1000));
        // The first attempt is a tie, and takes the ticket.
        let left = actions.contains(&WaitAction::Undo(QueueEntry::Left));
        assert_eq!(left, round == 1, "{round}: {actions:?}");
    }
    let mut w = waiting(3, None);
    for round in 0..9 {
        let actions = fail(&mut w, &tried(tie()), at(round * 1000));
        assert!(
            !actions.contains(&WaitAction::Undo(QueueEntry::Left)),
            "it keeps no node from the others"
        );
    }
    let mut w = waiting(3, None);
    for round in 0..9 {
        let attempt = taken(Err(Reason::Blocked(Blocked::Split(
            holder(token(2), ms(7000)),
            faults(&[1, 2]),
        ))));
        let actions = fail(&mut w, &attempt, at(round * 1000));
        assert!(
            !actions.contains(&WaitAction::Undo(QueueEntry::Left)),
            "another order would not mend it"
        );
    }
}

#[test]
fn a_place_given_up_is_taken_again_only_after_a_pause_and_with_a_new_ticket() {
    let mut w = waiting(3, None);
    fail(&mut w, &taken(tie()), at(0));
    fail(&mut w, &taken(tie()), at(1000));
    assert!(w.wake_at() > at(1000));
    assert_eq!(tickets(&w.on(WaitEvent::Tick, w.wake_at(), 0.5)), [None]);
    w.on(
        event(Tried {
            entered: Some(3000),
            ..tried(busy())
        }),
        at(2000),
        0.5,
    );
    assert_eq!(
        tickets(&w.on(WaitEvent::Undone { subscribed: 3 }, at(2000), 0.5)),
        [Some(3000)]
    );
}

#[test]
fn pauses_after_ties_grow_and_start_again_after_another_result() {
    let mut w = waiting(3, None);
    let mut pause = |attempt: &Tried, now: u64| {
        fail(&mut w, attempt, at(now));
        w.wake_at().since(at(now))
    };
    // The first two attempts are ties.
    assert_eq!(pause(&tried(tie()), 0), backoff::split(2, 0.5));
    assert_eq!(pause(&tried(tie()), 1000), backoff::split(3, 0.5));
    pause(&tried(busy()), 2000);
    assert_eq!(pause(&tried(tie()), 20_000), backoff::split(1, 0.5));
}

#[test]
fn nodes_that_are_away_are_asked_less_and_less_and_later_by_those_behind() {
    let attempt = |rank, voted| Tried {
        rank,
        voted,
        entered: None,
        ..gone(false)
    };
    let mut w = waiting(3, None);
    w.answered = true;
    let mut pause = |attempt: &Tried, now: u64| {
        fail(&mut w, attempt, at(now));
        w.wake_at().since(at(now))
    };
    let retry = backoff::retry(schedule().retry(), 0.5);
    assert_eq!(pause(&attempt(None, 0), 0), retry);
    assert_eq!(pause(&attempt(None, 0), 10_000), retry * 2);
    assert_eq!(pause(&attempt(Some(3), 0), 20_000), retry * 4 + ms(300));
    assert_eq!(pause(&attempt(None, 1), 30_000), retry, "one is back");
    assert_eq!(pause(&attempt(None, 1), 40_000), retry, "no other is");
    assert_eq!(pause(&attempt(None, 1), 50_000), retry * 2);
    assert_eq!(
        pause(
            &Tried {
                voted: 0,
                entered: None,
                ..tried(Err(Reason::Blocked(Blocked::TooLate)))
            },
            60_000
        ),
        retry * 4 + ms(200)
    );
    pause(
        &Tried {
            voted: 0,
            entered: None,
            ..tried(busy())
        },
        70_000,
    );
    assert_eq!(
        pause(&attempt(None, 0), 80_000),
        retry,
        "a majority was there"
    );
}

#[test]
fn an_offer_of_a_majority_is_taken_at_once_and_one_of_a_single_node_settles() {
    let mut w = paused(&tried(busy()));
    w.on(WaitEvent::Woken(0, Wake::YourTurn), at(100), 0.5);
    assert_eq!(w.wake_at(), at(110));
    w.on(WaitEvent::Woken(0, Wake::YourTurn), at(102), 0.5);
    assert_eq!(w.wake_at(), at(110), "the same node is no majority");
    w.on(WaitEvent::Woken(1, Wake::YourTurn), at(103), 0.5);
    assert_eq!(w.wake_at(), at(103));
}

#[test]
fn a_word_that_comes_during_an_attempt_counts_for_the_pause_behind_it() {
    for (wake, due) in [
        (Wake::YourTurn, 15),
        (Wake::StandBy, 505),
        (Wake::Recheck, 5),
    ] {
        let mut w = paused(&tried(busy()));
        w.on(WaitEvent::Tick, w.wake_at(), 0.5);
        w.on(WaitEvent::Woken(0, wake), at(5), 0.5);
        w.on(event(tried(busy())), at(6), 0.5);
        w.on(WaitEvent::Undone { subscribed: 3 }, at(7), 0.5);
        assert_eq!(w.wake_at(), at(due), "{wake:?}");
    }
}

#[test]
fn false_wake_ups_are_followed_ever_later_after_the_fifth() {
    let mut w = paused(&tried(busy()));
    let mut pauses = vec![];
    let mut now = at(0);
    for _ in 0..10 {
        w.on(WaitEvent::Woken(0, Wake::YourTurn), now, 0.5);
        w.on(WaitEvent::Woken(1, Wake::YourTurn), now, 0.5);
        pauses.push(w.wake_at().since(now).as_millis());
        now = w.wake_at();
        fail(&mut w, &tried(busy()), now);
    }
    assert_eq!(pauses, [0, 0, 0, 0, 0, 20, 40, 80, 160, 250]);
    now = w.wake_at();
    fail(&mut w, &tried(busy()), now);
    w.on(WaitEvent::Woken(0, Wake::YourTurn), now, 0.5);
    assert_eq!(
        w.wake_at(),
        now + ms(10),
        "a look without an offer starts anew"
    );
}

#[test]
fn a_broken_connection_is_followed_by_an_attempt_within_the_retry_pause() {
    for random in [0.0, 0.5, 0.99] {
        let mut w = paused(&tried(busy()));
        w.on(WaitEvent::Changed, at(100), random);
        assert_eq!(w.wake_at(), at(100) + schedule().retry().mul_f64(random));
    }
}

#[test]
fn the_last_look_comes_shortly_before_the_patience_ends_and_the_end_in_time() {
    let mut w = waiting(3, Some(ms(2000)));
    fail(&mut w, &tried(busy()), at(0));
    assert_eq!(w.wake_at(), at(1950));
    fail(&mut w, &tried(busy()), at(1950));
    assert_eq!(w.wake_at(), at(2000));
    let actions = w.on(WaitEvent::Tick, at(2000), 0.5);
    assert!(
        matches!(
            actions[..],
            [
                WaitAction::Leave,
                WaitAction::GiveUp(Reason::Blocked(Blocked::Busy(_)))
            ]
        ),
        "{actions:?}"
    );
}

#[test]
fn an_attempt_that_is_under_way_at_the_end_is_counted_and_tells_less_than_the_one_before() {
    let mut w = waiting(3, Some(ms(2000)));
    fail(&mut w, &tried(busy()), at(0));
    w.on(WaitEvent::Tick, at(1950), 0.5);
    assert_eq!(w.on(WaitEvent::Tick, at(1999), 0.5), []);
    assert_eq!(w.wake_at(), at(2000));
    assert_eq!(w.on(WaitEvent::Tick, at(2000), 0.5), [WaitAction::CountNow]);
    let actions = w.on(
        event(Tried {
            is_complete: false,
            ..gone(true)
        }),
        at(2000),
        0.5,
    );
    assert!(
        matches!(
            actions[..],
            [
                WaitAction::Undo(QueueEntry::Left),
                WaitAction::GiveUp(Reason::Blocked(Blocked::Busy(_)))
            ]
        ),
        "{actions:?}"
    );
    let mut w = waiting(3, Some(ms(2000)));
    w.on(WaitEvent::Tick, at(0), 0.5);
    let actions = w.on(
        event(Tried {
            is_complete: false,
            ..gone(false)
        }),
        at(2000),
        0.5,
    );
    assert!(
        matches!(
            actions[1],
            WaitAction::GiveUp(Reason::Blocked(Blocked::Unreachable(..)))
        ),
        "{actions:?}"
    );
}

#[test]
fn no_wait_takes_no_ticket_and_one_attempt_of_a_whole_node_timeout() {
    let mut w = waiting(3, Some(Duration::ZERO));
    assert_eq!(tickets(&w.on(WaitEvent::Tick, at(0), 0.5)), [None]);
    assert_eq!(w.wake_at(), at(0) + schedule().node_timeout());
    let actions = w.on(event(tried(busy())), at(300), 0.5);
    assert!(
        matches!(
            actions[..],
            [WaitAction::Undo(QueueEntry::Left), WaitAction::GiveUp(_)]
        ),
        "{actions:?}"
    );
}

#[test]
fn of_clients_that_tie_with_no_wait_one_may_win() {
    let mut w = waiting(3, Some(Duration::ZERO));
    w.on(WaitEvent::Tick, at(0), 0.5);
    assert_eq!(
        w.on(event(taken(tie())), at(1), 0.5).last(),
        Some(&WaitAction::Undo(QueueEntry::Kept))
    );
    w.on(WaitEvent::Undone { subscribed: 0 }, at(2), 0.5);
    assert_eq!(tickets(&w.on(WaitEvent::Tick, w.wake_at(), 0.5)), [None]);
    let ends = at(0) + schedule().node_timeout();
    let actions = w.on(event(taken(tie())), ends, 0.5);
    assert!(
        matches!(actions.last(), Some(WaitAction::GiveUp(_))),
        "{actions:?}"
    );
}

#[test]
fn nodes_that_never_answer_are_tried_for_the_wait_or_ten_seconds() {
    let mut w = waiting(3, Some(ms(60_000)));
    fail(&mut w, &gone(false), at(11_000));
    assert!(
        w.wake_at() > at(11_000) && w.step == Step::Paused,
        "--wait is longer"
    );
    let mut w = waiting(3, None);
    fail(&mut w, &gone(false), at(9_990));
    assert_eq!(w.wake_at(), at(10_000));
    assert!(matches!(
        w.on(WaitEvent::Tick, at(10_000), 0.5).last(),
        Some(WaitAction::GiveUp(_))
    ));
    for once in [
        gone(true),
        tried(Err(Reason::Blocked(Blocked::TooLate))),
        tried(busy()),
    ] {
        let mut w = waiting(3, None);
        fail(&mut w, &once, at(0));
        fail(&mut w, &gone(false), at(11_000));
        assert!(
            w.wake_at() > at(11_000) && w.step == Step::Paused,
            "a majority was there"
        );
    }
}

#[test]
fn an_outer_lock_is_joined_and_never_waited_for_in_the_queue() {
    let attempt = tried(Err(Reason::Blocked(Blocked::Busy(holder(
        outer(),
        ms(7000),
    )))));
    let mut w = paused(&tried(busy()));
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    assert_eq!(
        w.on(event(attempt.clone()), at(1), 0.5),
        [WaitAction::Undo(QueueEntry::Left)]
    );
    let joins = w.on(WaitEvent::Undone { subscribed: 3 }, at(2), 0.5);
    assert!(
        matches!(&joins[..], [WaitAction::Join(token, _)] if *token == outer()),
        "{joins:?}"
    );
    w.on(WaitEvent::NotJoined(Unjoined::Refused), at(3), 0.5);
    assert_eq!(w.wake_at(), at(3) + backoff::retry(schedule().retry(), 0.5));
    assert!(
        matches!(w.pausing(), Some((Blocked::Busy(_), None))),
        "without a place in the queue"
    );
    // A minority that names it may be behind.
    let w = paused(&Tried {
        by_majority: false,
        ..attempt
    });
    assert_eq!(w.wake_at(), at(0) + backoff::retry(schedule().retry(), 0.5));
}

#[test]
fn acquire_waits_for_a_lock_that_acquire_took_and_run_does_not() {
    let details = Details {
        kept: false,
        ..Details::default()
    };
    let who = OccupantKind::Holder(token(8), details);
    let attempt = tried(Err(Reason::Blocked(Blocked::Busy(Box::new(
        Blocker::Occupant(Occupant::new(who, Some(ms(7000)))),
    )))));
    for (for_command, next) in [(true, QueueEntry::Left), (false, QueueEntry::Kept)] {
        let mut w = Waiting::new(
            WaitOptions {
                for_command,
                ..options(3, None)
            },
            waiter(),
            at(0),
        );
        w.on(WaitEvent::Tick, at(0), 0.5);
        assert_eq!(
            w.on(event(attempt.clone()), at(1), 0.5),
            [WaitAction::Undo(next)]
        );
    }
}

#[test]
fn an_outer_rlock_that_cannot_be_reached_for_two_seconds_ends_the_wait() {
    let by = |token| tried(Err(Reason::Blocked(Blocked::Busy(holder(token, ms(7000))))));
    let attempt = by(outer());
    let refused = |w: &mut Waiting, why, now| {
        w.on(WaitEvent::Tick, at(now), 0.5);
        w.on(event(attempt.clone()), at(now), 0.5);
        w.on(WaitEvent::Undone { subscribed: 3 }, at(now), 0.5);
        w.on(WaitEvent::NotJoined(why), at(now), 0.5)
    };
    let mut w = waiting(3, None);
    assert_eq!(refused(&mut w, Unjoined::Refused, 0), []);
    assert_eq!(refused(&mut w, Unjoined::Refused, 1000), []);
    let mut other = w.clone();
    let mut next = w.clone();
    next.on(WaitEvent::Tick, at(2000), 0.5);
    next.on(event(by(token(8))), at(2000), 0.5);
    next.on(WaitEvent::Undone { subscribed: 3 }, at(2000), 0.5);
    assert_eq!(
        next.on(WaitEvent::NotJoined(Unjoined::Refused), at(2000), 0.5),
        [],
        "it is another one"
    );
    assert!(matches!(
        refused(&mut w, Unjoined::Refused, 2000)[..],
        [WaitAction::GiveUp(Reason::OuterUnreachable(_))]
    ));
    assert_eq!(said(&refused(&mut other, Unjoined::Silent, 2000)).len(), 1);
    assert_eq!(
        refused(&mut other, Unjoined::Refused, 3000),
        [],
        "it was there"
    );
    fail(&mut other, &tried(busy()), at(4000));
    assert_eq!(
        refused(&mut other, Unjoined::Refused, 20_000),
        [],
        "another had it"
    );
}

#[test]
fn an_outer_rlock_that_does_not_answer_is_waited_for_as_long_as_any_other() {
    let mut w = waiting(3, Some(ms(500)));
    w.on(WaitEvent::Tick, at(0), 0.5);
    w.on(
        event(tried(Err(Reason::Blocked(Blocked::Busy(holder(
            outer(),
            ms(7000),
        )))))),
        at(1),
        0.5,
    );
    w.on(WaitEvent::Undone { subscribed: 3 }, at(2), 0.5);
    w.on(WaitEvent::NotJoined(Unjoined::Silent), at(499), 0.5);
    let actions = w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    assert!(
        matches!(
            actions[..],
            [WaitAction::GiveUp(Reason::Blocked(Blocked::Busy(_)))]
        ),
        "{actions:?}"
    );
    // A majority has named it, so the nodes are there.
    let mut w = waiting(3, None);
    w.on(WaitEvent::Tick, at(0), 0.5);
    w.on(
        event(tried(Err(Reason::Blocked(Blocked::Busy(holder(
            outer(),
            ms(7000),
        )))))),
        at(1),
        0.5,
    );
    w.on(WaitEvent::Undone { subscribed: 3 }, at(2), 0.5);
    w.on(WaitEvent::NotJoined(Unjoined::Silent), at(10_500), 0.5);
    assert_eq!(tickets(&w.on(WaitEvent::Tick, w.wake_at(), 0.5)), [None]);
}

#[test]
fn nodes_must_have_been_up_for_the_longest_lease_that_was_met() {
    let asked = |actions: &[WaitAction]| match actions.last() {
        Some(WaitAction::Try { guarded, .. }) => *guarded,
        other => panic!("{other:?}"),
    };
    let mut w = waiting(3, None);
    assert_eq!(asked(&w.on(WaitEvent::Tick, at(0), 0.5)), Some(TTL));
    w.on(
        event(Tried {
            longest_ttl: TTL * 3,
            ..tried(busy())
        }),
        at(0),
        0.5,
    );
    assert_eq!(
        asked(&w.on(WaitEvent::Undone { subscribed: 3 }, at(0), 0.5)),
        Some(TTL * 3)
    );
    w.on(event(tried(busy())), at(0), 0.5);
    w.on(WaitEvent::Undone { subscribed: 3 }, at(0), 0.5);
    assert_eq!(
        asked(&w.on(WaitEvent::Tick, w.wake_at(), 0.5)),
        Some(TTL * 3),
        "it is not forgotten"
    );
    assert_eq!(
        asked(&waiting(1, None).on(WaitEvent::Tick, at(0), 0.5)),
        None,
        "a single node is not asked"
    );
    let off = WaitOptions {
        restart_guard: RestartGuard::Off,
        ..options(3, None)
    };
    assert_eq!(
        asked(&Waiting::new(off, waiter(), at(0)).on(WaitEvent::Tick, at(0), 0.5)),
        Some(Duration::ZERO)
    );
    let on = WaitOptions {
        restart_guard: RestartGuard::For(TTL),
        ..options(1, None)
    };
    assert_eq!(
        asked(&Waiting::new(on, waiter(), at(0)).on(WaitEvent::Tick, at(0), 0.5)),
        Some(TTL)
    );
}

#[test]
fn a_signal_leaves_nothing_behind_at_any_time() {
    let ends = |w: &mut Waiting| w.on(WaitEvent::Interrupted, at(9), 0.5);
    let mut w = waiting(3, None);
    assert_eq!(ends(&mut w.clone()), []);
    w.on(WaitEvent::Tick, at(0), 0.5);
    assert_eq!(ends(&mut w.clone()), [WaitAction::Undo(QueueEntry::Left)]);
    w.on(event(tried(busy())), at(0), 0.5);
    assert_eq!(ends(&mut w.clone()), [], "not yet in a queue");
    assert_eq!(ends(&mut paused(&tried(busy()))), [WaitAction::Leave]);
    let mut w = waiting(3, None);
    w.on(WaitEvent::Tick, at(0), 0.5);
    w.on(
        event(tried(Err(Reason::Blocked(Blocked::Busy(holder(
            outer(),
            ms(7000),
        )))))),
        at(0),
        0.5,
    );
    w.on(WaitEvent::Undone { subscribed: 3 }, at(0), 0.5);
    assert_eq!(ends(&mut w), []);
    let mut w = paused(&tried(busy()));
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    w.on(event(tried(Ok(Fence::FIRST))), at(0), 0.5);
    assert_eq!(
        ends(&mut w),
        [],
        "a lock that is held is left to its holder"
    );
}

#[test]
fn a_pause_shows_the_party_that_blocks_and_the_waiters_ahead() {
    let mut w = waiting(3, None);
    assert!(w.pausing().is_none());
    fail(&mut w, &tried(busy()), at(0));
    assert!(matches!(w.pausing(), Some((Blocked::Busy(_), Some(2)))));
    assert_eq!(w.waited(at(3000)), ms(3000));
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    assert!(w.pausing().is_none());
}

#[test]
fn a_lock_that_an_outer_rlock_has_parked_is_waited_for() {
    let occupant = |parked| {
        let details = Details {
            parked,
            ..Details::default()
        };
        Occupant::new(OccupantKind::Holder(outer(), details), Some(ms(800)))
    };
    let w = waiting(1, None);
    assert_eq!(
        [w.outer(&occupant(false)), w.outer(&occupant(true))],
        [Some(outer()), None]
    );
}
