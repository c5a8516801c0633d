//! Nodes that lost the key: when the lock is lost with them, and what is kept until the command is
//! dead.

use super::*;

#[test]
fn a_lock_that_was_broken_is_told_once_and_its_place_is_kept() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(9.0).await;
        for node in 0..3 {
            held.fake(node).broken = true;
        }
        let changes = held.changes_until(100.0).await;
        let losses = changes
            .iter()
            .filter(|change| matches!(change, Change::Lease(LeaseChange::Lost(_))))
            .count();
        assert_eq!(
            (lost(&changes), losses),
            (Some(Loss::Broken), 1),
            "{changes:?}"
        );
        assert!(held.left() > Duration::from_secs(15), "{:?}", held.left());
        let asked = held.fake(0).asked.len();
        assert!(asked < 20, "asked {asked} times");
    });
}

#[test]
fn a_holder_listens_after_a_second_and_learns_of_a_break_at_once() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(0.9).await;
        assert!((0..3).all(|node| !held.fake(node).listens));
        held.changes_until(1.5).await;
        assert!((0..3).all(|node| held.fake(node).listens));
        held.break_at(0);
        held.break_at(1);
        assert_eq!(lost(&held.changes_until(1.6).await), Some(Loss::Broken));
    });
}

#[test]
fn a_break_that_is_told_during_an_exchange_is_looked_for_after_it() {
    virtual_time::run(async {
        let mut held = hold(1, |_| ()).await;
        held.changes_until(1.5).await;
        held.fake(0).mood = Mood::Slow(Duration::from_millis(100));
        held.changes_until(10.05).await;
        // The renewal that is under way was executed before.
        held.break_at(0);
        assert_eq!(lost(&held.changes_until(10.4).await), Some(Loss::Broken));
    });
}

#[test]
fn a_server_that_forgets_the_lock_before_its_renewal_is_confirmed_is_asked_again() {
    virtual_time::run(async {
        let mut held = hold(1, |_| ()).await;
        held.changes_until(9.0).await;
        held.fake(0).mood = Mood::Slow(Duration::from_millis(500));
        held.changes_until(10.1).await;
        // The renewal is executed, and its reply does not count yet.
        held.forget(0);
        held.fake(0).breaks.notify_waiters();
        assert_eq!(lost(&held.changes_until(11.2).await), Some(Loss::Absent));
    });
}

#[test]
fn hints_without_end_do_not_make_a_holder_spin() {
    virtual_time::run(async {
        let mut held = hold(1, |_| ()).await;
        held.changes_until(5.0).await;
        let before = held.fake(0).asked.len();
        for hint in 0..500 {
            held.changes_until(5.0 + 0.002 * f64::from(hint)).await;
            held.fake(0).breaks.notify_waiters();
        }
        let asked = held.fake(0).asked.len() - before;
        assert!(asked <= 5, "{asked}");
    });
}

#[test]
fn tombstones_that_are_heard_of_after_the_lease_do_not_revive_it() {
    virtual_time::run(async {
        let (mut held, deadline) = shortly_before_the_end().await;
        // They are healed before the lease ends and broken before they have said so.
        held.changes_until(29.65).await;
        for node in [3, 4] {
            assert_eq!(held.fake(node).healed, 1);
            held.fake(node).broken = true;
        }
        let before = held.fake(3).asked.len();
        let changes = held.changes_until(33.0).await;
        assert_eq!(lost(&changes), Some(Loss::Broken));
        assert_eq!(held.holding.deadline(), deadline, "revived: {changes:?}");
        let asked = held.fake(3).asked.len() - before;
        assert!(asked < 20, "asked {asked} times");
    });
}

#[test]
fn a_majority_that_forgot_ends_it_at_once_and_the_place_is_shielded() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(0);
        held.forget(2);
        let changes = held.changes_until(10.5).await;
        assert_eq!(lost(&changes), Some(Loss::Absent));
        assert!(
            changes
                .iter()
                .any(|change| matches!(change, Change::Lease(LeaseChange::Shielded(_)))),
            "{changes:?}"
        );
    });
}

#[test]
fn a_majority_that_forgot_is_a_loss_though_one_of_it_was_healed_before_the_other_was_heard() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(0);
        held.forget(2);
        held.fake(2).mood = Mood::Slow(Duration::from_millis(50));
        let changes = held.changes_until(10.5).await;
        assert_eq!(held.fake(0).healed, 1);
        assert_eq!(lost(&changes), Some(Loss::Absent), "{changes:?}");
    });
}

#[test]
fn a_shield_that_a_majority_lost_is_told() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(0);
        held.forget(2);
        assert_eq!(lost(&held.changes_until(10.5).await), Some(Loss::Absent));
        for node in 0..2 {
            held.fake(node).key = Some((Token::fresh(), Instant::NEVER));
        }
        let changes = held.changes_until(30.0).await;
        assert!(
            changes
                .iter()
                .any(|change| matches!(change, Change::Lease(LeaseChange::Unshielded))),
            "{changes:?}"
        );
    });
}

#[test]
fn a_reply_from_before_the_loss_is_no_part_of_the_shield() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(0);
        held.forget(2);
        for (node, delay) in [(0, 30), (1, 60), (2, 30)] {
            held.fake(node).mood = Mood::Slow(Duration::from_millis(delay));
        }
        // All are asked at 10 s. Node 1 has renewed, and is heard after the loss.
        held.changes_until(10.01).await;
        (held.fake(1).mood, held.fake(2).mood) = (Mood::Silent, Mood::Away);
        let changes = held.changes_until(10.5).await;
        assert_eq!(
            (lost(&changes), held.fake(0).healed),
            (Some(Loss::Absent), 1),
            "{changes:?}"
        );
        assert!(
            !changes
                .iter()
                .any(|change| matches!(change, Change::Lease(LeaseChange::Shielded(_)))),
            "{changes:?}"
        );
    });
}

#[test]
fn a_majority_that_is_anothers_ends_it_at_once_and_nothing_more_is_asked() {
    virtual_time::run(async {
        let mut held = hold(5, |_| ()).await;
        let other = Token::fresh();
        for node in 0..3 {
            held.fake(node).key = Some((other, Instant::NEVER));
        }
        let changes = held.changes_until(10.5).await;
        assert_eq!(lost(&changes), Some(Loss::TakenOver));
        let asked = held.fake(0).asked.len();
        held.changes_until(60.0).await;
        assert_eq!(held.fake(0).asked.len(), asked);
    });
}

#[test]
fn a_lying_node_is_one_vote_missing() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.fake(0).mood = Mood::Lying;
        let changes = held.changes_until(100.0).await;
        assert_eq!(lost(&changes), None);
        assert!(changes.iter().any(is_trouble), "{changes:?}");
        assert!(held.left() > Duration::from_secs(15));
    });
}

#[test]
fn a_revocation_shortens_the_lease_to_what_the_others_gave() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.fake(2).mood = Mood::Silent;
        held.changes_until(10.5).await;
        let first = held.begun + TTL;
        assert!(held.holding.deadline() > first, "two of three were renewed");
        held.fake(0).key = Some((Token::fresh(), Instant::NEVER));
        let changes = held.changes_until(20.5).await;
        // Of the three one is another's, and the silent one's tenure is still that of the
        // beginning.
        assert_eq!(lost(&changes), None);
        assert!(held.holding.deadline() < first, "{changes:?}");
        assert!(changes.iter().any(
            |change| matches!(change, Change::Lease(LeaseChange::Extended(until)) if *until < first)
        ));
    });
}
