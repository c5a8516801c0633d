//! Reports of a wait, and how often each is made.

use super::*;

#[test]
fn a_holder_is_reported_when_it_is_another_one() {
    let mut w = waiting(3, None);
    let mut said_of = |attempt: &Tried, now| said(&fail(&mut w, attempt, at(now))).len();
    assert_eq!(said_of(&tried(busy()), 0), 1);
    assert_eq!(said_of(&tried(busy()), 10_000), 0);
    assert_eq!(
        said_of(
            &tried(Err(Reason::Blocked(Blocked::Busy(holder(
                token(3),
                ms(7000)
            ))))),
            20_000
        ),
        1
    );
    assert_eq!(
        said_of(
            &tried(Err(Reason::Blocked(Blocked::Busy(foreign())))),
            30_000
        ),
        2,
        "and that it has no end"
    );
    assert_eq!(said_of(&tried(busy()), 40_000), 1);
    assert_eq!(
        said_of(
            &tried(Err(Reason::Blocked(Blocked::Busy(foreign())))),
            50_000
        ),
        1
    );
    let who = OccupantKind::Foreign("y".to_owned());
    let ends = Box::new(Blocker::Occupant(Occupant::new(who, Some(ms(7000)))));
    let actions = fail(
        &mut waiting(3, None),
        &tried(Err(Reason::Blocked(Blocked::Busy(ends)))),
        at(0),
    );
    assert_eq!(said(&actions).len(), 1, "this one ends by itself");
}

#[test]
fn split_votes_are_reported_once_in_a_row_and_their_rank_is_not() {
    let mut w = waiting(3, None);
    w.on(WaitEvent::Tick, at(0), 0.5);
    let attempt = Tried {
        entered: None,
        ..tried(tie())
    };
    let actions = fail(&mut w, &attempt, at(0));
    assert!(
        matches!(said(&actions)[..], [Notice::Waiting { ahead: None, .. }]),
        "{actions:?}"
    );
    assert_eq!(said(&fail(&mut w, &attempt, at(1000))).len(), 0);
}

#[test]
fn nodes_that_went_away_are_a_warning_once_and_before_that_a_step_each_time() {
    let mut w = waiting(3, None);
    for now in [0, 1000] {
        let actions = fail(&mut w, &gone(false), at(now));
        assert!(
            matches!(said(&actions)[..], [Notice::TryingAgain(_)]),
            "{actions:?}"
        );
    }
    let actions = fail(&mut w, &gone(true), at(2000));
    assert!(
        matches!(said(&actions)[..], [Notice::MajorityGone(_)]),
        "{actions:?}"
    );
    assert_eq!(said(&fail(&mut w, &gone(false), at(3000))).len(), 0);
    // One line is all that --no-wait says.
    let mut w = waiting(3, Some(Duration::ZERO));
    w.on(WaitEvent::Tick, at(0), 0.5);
    let actions = w.on(
        event(tried(Err(Reason::Blocked(Blocked::Split(
            holder(token(2), ms(7)),
            faults(&[1, 2]),
        ))))),
        at(1),
        0.5,
    );
    assert!(
        matches!(said(&actions)[..], [Notice::TryingAgain(_)]),
        "{actions:?}"
    );
}

#[test]
fn a_node_that_refuses_is_reported_once_unless_the_failure_names_it() {
    let refusing = |tally, nodes: &[usize]| Tried {
        refusals: faults(nodes),
        ..tried(tally)
    };
    let refusals = |actions: &[WaitAction]| {
        let of = said(actions);
        of.iter()
            .filter(|notice| matches!(notice, Notice::Refused(_)))
            .count()
    };
    let mut w = waiting(3, None);
    assert_eq!(refusals(&fail(&mut w, &refusing(away(), &[2]), at(0))), 0);
    assert_eq!(
        refusals(&fail(&mut w, &refusing(busy(), &[2]), at(10_000))),
        1
    );
    assert_eq!(
        refusals(&fail(&mut w, &refusing(busy(), &[1, 2]), at(20_000))),
        1
    );
    // A split vote tells its refusals too, unless the wait is over: its end names them.
    let split = |refusing: &[usize]| {
        Err(Reason::Blocked(Blocked::Split(
            holder(token(2), ms(7)),
            faults(refusing),
        )))
    };
    assert_eq!(
        refusals(&fail(
            &mut w.clone(),
            &refusing(split(&[2]), &[2]),
            at(30_000)
        )),
        0
    );
    assert_eq!(
        refusals(&fail(
            &mut w.clone(),
            &refusing(split(&[0]), &[0]),
            at(30_000)
        )),
        1
    );
    let mut impatient = waiting(3, Some(Duration::ZERO));
    impatient.on(WaitEvent::Tick, at(0), 0.5);
    assert_eq!(
        refusals(&impatient.on(event(refusing(split(&[2]), &[2])), at(10_000), 0.5)),
        0
    );
    assert_eq!(w.refused(), [2, 1]);
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    assert_eq!(
        refusals(&w.on(event(refusing(Ok(Fence::FIRST), &[0])), at(30_000), 0.5)),
        1
    );
}

#[test]
fn rights_that_are_missing_are_reported_once_and_the_queue_before_the_wake_ups() {
    let named = || Some(("redis".to_owned(), "NOPERM".to_owned()));
    let attempt = Tried {
        no_queue: named(),
        no_wakeups: Some("redis".to_owned()),
        unguarded: named(),
        ..gone(true)
    };
    let kinds = |actions: &[WaitAction]| -> Vec<bool> {
        let of = said(actions);
        [
            of.iter()
                .any(|notice| matches!(notice, Notice::Unguarded { .. })),
            of.iter()
                .any(|notice| matches!(notice, Notice::NoQueue { .. })),
            of.iter()
                .any(|notice| matches!(notice, Notice::NoWakeups { .. })),
        ]
        .into()
    };
    let mut w = waiting(3, None);
    assert_eq!(kinds(&w.on(WaitEvent::Tick, at(0), 0.5)), [false; 3]);
    let refused = Tried {
        tally: Err(Reason::Refused(faults(&[0, 1]))),
        unguarded: None,
        ..attempt.clone()
    };
    assert_eq!(
        kinds(&w.clone().on(event(refused), at(0), 0.5)),
        [false; 3],
        "the failure names them"
    );
    assert_eq!(
        kinds(&w.on(event(attempt.clone()), at(0), 0.5)),
        [true, true, false]
    );
    w.on(WaitEvent::Undone { subscribed: 0 }, at(0), 0.5);
    assert_eq!(kinds(&w.on(event(attempt.clone()), at(0), 0.5)), [false; 3]);
    w.on(WaitEvent::Undone { subscribed: 0 }, at(0), 0.5);
    w.on(WaitEvent::Tick, w.wake_at(), 0.5);
    assert_eq!(
        kinds(&w.on(
            event(Tried {
                no_queue: None,
                ..attempt
            }),
            at(9000),
            0.5
        )),
        [false, false, true]
    );
}
