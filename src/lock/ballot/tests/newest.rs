//! Votes that name a waiter which came later.

use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::queue::Waiter;

fn newer(host: &str) -> Vote {
    let waiter = Waiter {
        host: host.to_owned(),
        pid: 7,
        ..Waiter::example(0)
    };
    Vote::Blocked(Blocker::Newer(Some(Box::new(waiter))))
}

fn is_superseded(total: usize, votes: Vec<Vote>) -> bool {
    matches!(
        tally(&book(total, RestartGuard::Off, votes)),
        Err(Reason::Superseded(_))
    )
}

#[test]
fn a_waiter_is_superseded_once_no_majority_can_grant() {
    assert!(is_superseded(1, vec![newer("b")]));
    assert!(!is_superseded(3, vec![newer("b"), away(), away()]));
    assert!(is_superseded(3, vec![newer("b"), newer("b"), away()]));
    assert!(is_superseded(
        4,
        vec![newer("b"), newer("b"), granted(7), granted(7)]
    ));
    assert!(!is_superseded(
        4,
        vec![newer("b"), granted(7), granted(7), held_by(&rlock(4))]
    ));
}

#[test]
fn the_nodes_need_not_name_the_same_waiter() {
    let holder = rlock(3);
    assert!(is_superseded(
        3,
        vec![newer("b"), newer("c"), held_by(&holder)]
    ));
    let told = tally(&book(
        3,
        RestartGuard::Off,
        vec![newer("b"), newer("b"), held_by(&holder)],
    ));
    let Err(Reason::Superseded(by)) = told else {
        panic!("{told:?}")
    };
    assert_eq!(by.told(0), "superseded by b, pid 7");
}

#[test]
fn a_lock_that_is_won_is_kept_whatever_a_minority_says() {
    let won = book(
        3,
        RestartGuard::Off,
        vec![granted(7), granted(7), newer("b")],
    );
    assert_eq!(tally(&won), Ok(fence(7)));
    assert_eq!(won.may_have_set(), [0, 1]);
}

#[test]
fn a_waiter_that_a_minority_has_superseded_waits_for_the_others() {
    let holder = rlock(3);
    let told = tally(&book(
        3,
        RestartGuard::Off,
        vec![newer("b"), held_by(&holder), held_by(&holder)],
    ));
    assert_eq!(told, Err(Reason::Blocked(Blocked::Busy(blocker(&holder)))));
    let open = book(3, RestartGuard::Off, vec![newer("b"), newer("b")]);
    assert!(open.is_decided(), "the third node changes nothing");
}
