//! The nodes' answers, counted, case by case.

use super::*;
use crate::lock::details::Details;
use crate::lock::last::{Record, Run};
use crate::lock::occupant::OccupantKind;
use crate::lock::queue::Waiter;

#[expect(clippy::unnecessary_wraps, reason = "what a census counts is optional")]
fn observation(token: Option<Token>, ttl: u64, fence: u64) -> Option<Observation> {
    let holder = |token| OccupantKind::Holder(token, Details::default());
    let occupant = token.map(|token| Occupant::new(holder(token), Some(Duration::from_secs(ttl))));
    Some(Observation {
        holders: occupant.into_iter().collect(),
        fence: Fence::new(fence),
        ..Observation::of_nothing(Instant::from_nanos(0))
    })
}

#[test]
fn one_success_among_the_holders_nodes_is_one_and_a_majority_without_one_is_none() {
    let (ours, other) = (Token::fresh(), Token::fresh());
    let entry = |fence: u64, age: u64| {
        let (fence, age) = (Fence::new(fence).unwrap(), Duration::from_secs(age));
        Entry {
            fence,
            token: other,
            age,
            run: Run::default(),
        }
    };
    let node = |token, success: Option<Entry>| {
        let last = Record { run: None, success };
        observation(Some(token), 9, 7).map(|observation| Observation {
            last,
            ..observation
        })
    };
    let told = |of_nodes: &[Option<Observation>]| match Census::of(of_nodes)
        .success_before(ours, Duration::from_secs(60))
    {
        Success::Known(success) => Some((success.fence.get(), success.age.as_secs())),
        Success::None => Some((0, 0)),
        Success::Unknown => None,
    };
    let young = || Some(entry(5, 60));
    assert_eq!(
        told(&[node(ours, None), node(ours, None), None]),
        Some((0, 0))
    );
    assert_eq!(
        told(&[node(ours, None), None, None]),
        None,
        "the others may know one"
    );
    assert_eq!(
        told(&[node(ours, None), node(ours, young()), None]),
        Some((5, 60))
    );
    assert_eq!(told(&[node(ours, young()), None, None]), Some((5, 60)));
    assert_eq!(
        told(&[node(ours, Some(entry(5, 61))), node(ours, None), None]),
        Some((0, 0)),
        "too old"
    );
    assert_eq!(
        told(&[node(ours, Some(entry(5, 61))), node(ours, young()), None]),
        Some((5, 60)),
        "the youngest"
    );
    // The highest fence is the newest, whatever the nodes' clocks say.
    assert_eq!(
        told(&[
            node(ours, Some(entry(4, 1))),
            node(ours, Some(entry(5, 2))),
            None
        ]),
        Some((5, 2))
    );
    // A node that has lost our lock has perhaps lost its record as well.
    assert_eq!(
        told(&[node(ours, None), node(other, None), observation(None, 0, 7)]),
        None
    );
    assert_eq!(
        Census::of(&[None, node(other, young())]).last(),
        [None, young().as_ref()]
    );
}

#[test]
fn a_parked_lock_holds_and_is_the_runs_no_more() {
    let token = Token::fresh();
    let details = Details {
        parked: true,
        kept: false,
        ..Details::default()
    };
    let holder = Occupant::new(
        OccupantKind::Holder(token, details),
        Some(Duration::from_secs(9)),
    );
    let nothing = Observation::of_nothing(Instant::from_nanos(0));
    let of_nodes = [
        Some(Observation {
            holders: vec![holder],
            ..nothing.clone()
        }),
        Some(nothing),
    ];
    let census = Census::of(&of_nodes[..1]);
    assert_eq!(
        (
            census.state(),
            census.is_held_by(token),
            census.is_anywhere(token)
        ),
        (State::Held, Some(false), false)
    );
    assert_eq!(
        Census::of(&of_nodes).parked(token),
        Some(Duration::from_secs(9))
    );
}

#[test]
fn a_majority_holds_and_a_minority_does_not() {
    let (a, b) = (Token::fresh(), Token::fresh());
    let of_nodes = [
        observation(Some(a), 9, 7),
        observation(Some(a), 8, 7),
        observation(Some(b), 7, 6),
    ];
    let census = Census::of(&of_nodes);
    assert_eq!(census.state(), State::Held);
    assert_eq!(
        (census.is_held_by(a), census.is_held_by(b)),
        (Some(true), Some(false))
    );
    assert_eq!(census.fence(a), Fence::new(7));
    let until = census.valid_until(a, 0.0);
    assert_eq!(
        until,
        Some(Instant::from_nanos(0) + Duration::from_millis(7998))
    );
}

#[test]
fn a_silent_node_leaves_open_what_it_could_decide_and_nothing_else() {
    let a = Token::fresh();
    let one_of_three = [observation(Some(a), 9, 7), None, observation(None, 0, 7)];
    let census = Census::of(&one_of_three);
    assert_eq!(
        (census.state(), census.is_held_by(a), census.is_answered()),
        (State::Unknown, None, true)
    );
    let none_of_three = [observation(None, 0, 7), None, observation(None, 0, 7)];
    assert_eq!(Census::of(&none_of_three).state(), State::Free);
    assert!(!Census::of(&[observation(None, 0, 7), None, None]).is_answered());
}

#[test]
fn a_look_goes_on_until_the_holder_is_known_or_nobody_can_be() {
    let (ours, theirs) = (Token::fresh(), Token::fresh());
    let free = || observation(None, 0, 7);
    let tells = |of_nodes: &[Option<Observation>]| Census::of(of_nodes).tells_whose(ours);
    assert!(!tells(&[free(), None, None]));
    assert!(!tells(&[observation(Some(theirs), 9, 7), None, free()]));
    assert!(tells(&[
        observation(Some(theirs), 9, 7),
        None,
        observation(Some(theirs), 9, 7)
    ]));
    assert!(tells(&[free(), None, free()]));
    assert!(tells(&[
        observation(Some(ours), 9, 7),
        None,
        observation(Some(ours), 9, 7)
    ]));
    assert!(!tells(&[observation(Some(ours), 9, 7), None, None]));
}

#[test]
fn a_holder_of_another_list_is_met_at_any_node() {
    let of = |n| {
        let details = Details {
            n,
            ..Details::default()
        };
        let occupant = Some(Occupant::new(
            OccupantKind::Holder(Token::fresh(), details),
            None,
        ));
        Some(Observation {
            holders: occupant.into_iter().collect(),
            ..Observation::of_nothing(Instant::from_nanos(0))
        })
    };
    let met = |of_nodes: &[Option<Observation>]| Census::of(of_nodes).other_list();
    // A value of an rlock that does not say how many nodes it uses proves nothing.
    assert_eq!(met(&[of(3), None, of(0)]), None);
    let (node, why) = met(&[of(3), None, of(1)]).unwrap();
    assert!(
        node == 2 && why.contains("with 1 node; we have 3:"),
        "{why}"
    );
    assert!(met(&[of(5)]).is_some_and(|(_, why)| why.contains("with 5 nodes; we have 1:")));
}

#[test]
fn who_waits_is_who_waits_anywhere_in_the_order_of_the_tickets() {
    let ticket = |host: &str, number| Ticket {
        waiter: Waiter {
            id: Token::fresh().as_uuid(),
            host: host.to_owned(),
            ..Waiter::example(1)
        },
        number,
        supersedes: None,
    };
    let [a, b, c] = [ticket("a", 3), ticket("b", 0), ticket("c", 2)];
    let node = |queue: Vec<Ticket>, more| {
        Some(Observation {
            queue,
            more,
            ..Observation::of_nothing(Instant::from_nanos(0))
        })
    };
    let of_nodes = [
        node(vec![b.clone(), a.clone()], false),
        None,
        node(vec![b.clone(), c.clone()], false),
    ];
    let hosts = |census: &Census| {
        census
            .queue()
            .iter()
            .map(|t| t.waiter.host.clone())
            .collect::<String>()
    };
    assert_eq!(
        (
            hosts(&Census::of(&of_nodes)),
            Census::of(&of_nodes).has_more_waiters()
        ),
        ("bca".to_owned(), false)
    );
    // It gave up its place and came again, and one node has not heard of it.
    let again = [
        node(
            vec![
                Ticket {
                    number: 1,
                    ..a.clone()
                },
                c,
            ],
            true,
        ),
        node(vec![a], false),
    ];
    assert_eq!(
        (
            hosts(&Census::of(&again)),
            Census::of(&again).has_more_waiters()
        ),
        ("ac".to_owned(), true)
    );
}

#[test]
fn the_fence_is_one_that_a_majority_knows_and_some_node_has() {
    let a = Token::fresh();
    let fence = |number| Fence::new(number).unwrap();
    let late_grant = [
        observation(Some(a), 9, 7),
        observation(Some(a), 9, 7),
        observation(Some(a), 9, 9),
    ];
    let census = Census::of(&late_grant);
    assert_eq!(census.fence(a), Fence::new(7));
    assert!(census.has_fence(a, fence(7)));
    for wrong in [6, 8, 9] {
        assert!(!census.has_fence(a, fence(wrong)), "{wrong}");
    }
}

#[test]
fn a_fence_that_a_healed_node_tells_stands_whatever_the_counters_say() {
    let a = Token::fresh();
    let fence = |number| Fence::new(number).unwrap();
    let mut healed = observation(Some(a), 9, 11);
    let details = Details {
        fence: Some(7),
        ..Details::default()
    };
    healed.as_mut().unwrap().holders[0].who = OccupantKind::Holder(a, details);
    let of_nodes = [
        observation(Some(a), 9, 7),
        healed,
        observation(Some(a), 9, 9),
    ];
    let census = Census::of(&of_nodes);
    assert_eq!(census.fence(a), Fence::new(7));
    assert!(census.has_fence(a, fence(7)) && !census.has_fence(a, fence(9)));
}

#[test]
fn a_lock_delay_is_no_part_of_what_the_token_has_left() {
    let token = Token::fresh();
    let node = |delay| {
        let holder = OccupantKind::Holder(
            token,
            Details {
                delay,
                ..Details::default()
            },
        );
        let holders = vec![Occupant::new(holder, Some(Duration::from_secs(45)))];
        Some(Observation {
            holders,
            ..Observation::of_nothing(Instant::from_nanos(0))
        })
    };
    let left = |delay| Census::of(&[node(delay)]).valid_until(token, 0.0).unwrap();
    assert_eq!(left(0).since(left(15_000)), Duration::from_secs(15));
    assert_eq!(left(u64::MAX), Instant::from_nanos(0));
}
