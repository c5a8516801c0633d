//! Nodes that forgot the lock, or never had it, and what it takes for them to count.

use super::*;

#[test]
fn a_node_that_forgot_is_healed_at_once_when_its_connection_breaks() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(5.0).await;
        held.forget(1);
        held.fake(1).breaks.notify_waiters();
        let changes = held.changes_until(5.1).await;
        assert_eq!(lost(&changes), None);
        assert_eq!(held.fake(1).healed, 1);
        assert_eq!(held.fake(1).counter, held.holding.fence().get());
    });
}

#[test]
fn a_node_that_forgot_is_healed_at_the_next_renewal_at_the_latest_and_counts_again() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(1);
        held.changes_until(11.0).await;
        assert_eq!(held.fake(1).healed, 1);
        held.fake(0).mood = Mood::Silent;
        let changes = held.changes_until(90.0).await;
        assert_eq!(lost(&changes), None);
        assert!(held.left() > Duration::from_secs(15));
    });
}

/// A lock that is held at two of three nodes. The third was away, and its counter is above the
/// holder's fence by now.
async fn held_at_two_with_a_raised_counter_at_the_third() -> Held {
    let held = hold(3, |fakes| fakes[2].borrow_mut().mood = Mood::Away).await;
    let mut third = held.fake(2);
    (third.mood, third.counter) = (Mood::Well, held.holding.fence().get() + 7);
    drop(third);
    held
}

#[test]
fn a_node_whose_counter_failed_attempts_have_raised_is_healed_and_counts_at_once() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        let raised = held.fake(2).counter;
        let changes = held.changes_until(1.0).await;
        assert_eq!(lost(&changes), None);
        assert_eq!(held.fake(2).healed, 1);
        assert_eq!(held.fake(2).counter, raised);
        assert_eq!(
            [0, 1].map(|node| held.fake(node).renewed),
            [1, 1],
            "each was asked for its word"
        );
        held.fake(0).mood = Mood::Silent;
        let changes = held.changes_until(90.0).await;
        assert_eq!(lost(&changes), None);
        assert!(held.left() > Duration::from_secs(15), "{:?}", held.left());
    });
}

#[test]
fn a_healed_node_that_hides_its_counter_counts_once_the_others_have_given_their_word() {
    virtual_time::run(async {
        let mut held = hold(3, |fakes| fakes[2].borrow_mut().mood = Mood::Away).await;
        held.fake(2).mood = Mood::Hiding;
        // Another client had the first and the third node for a moment.
        held.fake(0).key = None;
        let changes = held.changes_until(1.0).await;
        assert_eq!(held.fake(2).healed, 1);
        assert_eq!(lost(&changes), Some(Loss::Absent), "{changes:?}");
    });
}

#[test]
fn a_complete_grant_in_between_ends_the_lease_once_the_healed_node_asks_for_proof() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        // Another client had the first and the third node for a moment.
        held.fake(0).key = None;
        let changes = held.changes_until(1.0).await;
        assert_eq!(lost(&changes), Some(Loss::Absent), "{changes:?}");
    });
}

/// A counter that was lost and is there again, though below our fence, is that of another grant:
/// the other client's clock is behind.
#[test]
fn a_node_whose_counter_fell_joins_unproven_too() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(5.0).await;
        held.forget(2);
        held.fake(2).counter = 50;
        held.fake(2).breaks.notify_waiters();
        // Another client had the first and the third node for a moment.
        held.fake(0).key = None;
        let changes = held.changes_until(6.0).await;
        assert_eq!(lost(&changes), Some(Loss::Absent), "{changes:?}");
    });
}

#[test]
fn a_healed_node_never_counts_while_a_witness_is_silent() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        held.fake(0).mood = Mood::Silent;
        let deadline = held.holding.deadline();
        held.changes_until(29.0).await;
        assert_eq!(held.fake(2).healed, 1);
        assert_eq!(held.holding.deadline(), deadline);
    });
}

/// The node grants the lock to another in vain between each "absent" and the healing that follows.
#[test]
fn a_healing_that_comes_after_another_grant_sets_nothing() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        held.fake(2).restless = true;
        held.changes_until(60.0).await;
        assert_eq!(held.fake(2).healed, 0);
        assert_eq!(held.fake(2).key, None);
        let asked = held.fake(2).asked.len();
        assert!(asked < 20, "asked {asked} times");
        held.fake(2).restless = false;
        held.changes_until(75.0).await;
        assert_eq!(held.fake(2).healed, 1);
    });
}

#[test]
fn a_grant_that_is_heard_late_counts_only_with_proof_if_its_counter_is_above_the_fence() {
    for complete_grant in [false, true] {
        virtual_time::run(async move {
            let slow = Mood::Slow(Duration::from_millis(700));
            let mut held = hold(3, |fakes| {
                (fakes[2].borrow_mut().mood, fakes[2].borrow_mut().counter) = (slow, 1_000);
            })
            .await;
            assert!(held.fake(2).counter > held.holding.fence().get());
            if complete_grant {
                held.fake(0).key = None;
            }
            let changes = held.changes_until(3.0).await;
            assert_eq!(
                lost(&changes),
                complete_grant.then_some(Loss::Absent),
                "{changes:?}"
            );
            held.fake(1).mood = Mood::Silent;
            let changes = held
                .changes_until(if complete_grant { 3.0 } else { 60.0 })
                .await;
            assert_eq!(lost(&changes), None);
        });
    }
}

#[test]
fn healings_that_are_heard_after_the_lease_do_not_revive_it() {
    virtual_time::run(async {
        let (mut held, deadline) = shortly_before_the_end().await;
        let changes = held.changes_until(31.0).await;
        for node in [3, 4] {
            assert_eq!(held.fake(node).healed, 1);
        }
        assert_eq!(held.holding.deadline(), deadline, "revived: {changes:?}");
    });
}

/// The release of an earlier holder did not reach the node, so its key stays for that TTL.
#[test]
fn a_node_is_healed_as_soon_as_the_key_of_another_client_ends() {
    virtual_time::run(async {
        for ends in [4.2, 9.9, 16.0, 27.0] {
            let orphan = clock::now() + Duration::from_secs_f64(ends);
            let mut held = hold(3, |fakes| {
                fakes[2].borrow_mut().key = Some((Token::fresh(), orphan));
            })
            .await;
            held.changes_until(ends).await;
            assert_eq!(held.fake(2).healed, 0, "{ends}");
            held.changes_until(ends + 0.3).await;
            assert_eq!(held.fake(2).healed, 1, "{ends}");
        }
    });
}

#[test]
fn a_node_that_missed_the_vote_gets_the_key_later() {
    virtual_time::run(async {
        let mut held = hold(5, |fakes| {
            fakes[0].borrow_mut().mood = Mood::Away;
            fakes[1].borrow_mut().mood = Mood::Silent;
        })
        .await;
        held.fake(0).mood = Mood::Well;
        held.fake(1).mood = Mood::Well;
        held.changes_until(5.0).await;
        for node in [0, 1] {
            assert_eq!(held.fake(node).healed, 1);
        }
    });
}

#[test]
fn after_the_lease_no_key_is_set_over_a_counter_above_the_fence() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(9.0).await;
        for node in 0..3 {
            held.fake(node).mood = Mood::Away;
        }
        held.changes_until(29.9).await;
        assert!(held.left().is_zero());
        {
            let mut fake = held.fake(0);
            (fake.mood, fake.key, fake.counter) = (Mood::Well, None, 1 << 40);
        }
        let before = held.fake(0).asked.len();
        held.changes_until(40.0).await;
        let fake = held.fake(0);
        assert!(fake.asked.len() > before + 1, "it is asked to heal");
        assert_eq!(fake.healed, 0);
    });
}
