//! `--on-lost reclaim`: which lost locks go on, and which do not.

use super::*;
use crate::clock::virtual_time;

/// A lock on `count` nodes that is reclaimed when it is lost.
async fn reclaiming(count: usize) -> Held {
    let mut held = hold(count, |_| ()).await;
    held.holding.reclaim();
    held
}

fn reclaimed(changes: &[Change]) -> usize {
    changes.iter().filter(|change| matches!(change, Change::Reclaimed(..))).count()
}

#[test]
fn a_lone_server_that_forgot_is_set_again_and_the_lease_goes_on() {
    virtual_time::run(async {
        let mut held = reclaiming(1).await;
        held.forget(0);
        let changes = held.changes_until(10.5).await;
        let why =
            changes.iter().find_map(|change| if let Change::Reclaimed(_, why) = change { Some(why) } else { None });
        assert!(why.is_some_and(|why| why.starts_with("node0: the key is gone")), "{changes:?}");
        assert_eq!((lost(&changes), held.fake(0).healed), (None, 1));
        assert!(held.left() > Duration::from_secs(28), "{:?}", held.left());
        let fence = held.holding.fence().get();
        assert_eq!(held.fake(0).counter, fence, "the counter is back");

        held.fake(0).key = None;
        let changes = held.changes_until(60.0).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (None, 1), "and once more, after a DEL");
        assert!(held.left() > Duration::from_secs(18));
    });
}

#[test]
fn a_lock_is_lost_without_the_option() {
    virtual_time::run(async {
        let mut held = hold(1, |_| ()).await;
        held.forget(0);
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::Absent), 0), "{changes:?}");
    });
}

#[test]
fn a_counter_above_the_fence_shows_that_another_rlock_had_the_lock() {
    virtual_time::run(async {
        let mut held = reclaiming(1).await;
        held.fake(0).key = None;
        held.fake(0).counter += 1;
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::Absent), 0), "{changes:?}");
        assert_eq!(held.fake(0).healed, 0);
        assert!(changes.iter().any(|change| matches!(change, Change::Unshielded)), "{changes:?}");
    });
}

#[test]
fn a_key_that_another_client_took_while_it_was_reclaimed_is_theirs() {
    virtual_time::run(async {
        let mut held = reclaiming(1).await;
        held.fake(0).key = None;
        held.fake(0).mood = Mood::Slow(Duration::from_millis(50));
        held.changes_until(10.02).await;
        held.fake(0).key = Some((Token::fresh(), Instant::NEVER));
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::TakenOver), 0), "{changes:?}");
    });
}

#[test]
fn a_majority_of_several_that_forgot_is_reclaimed() {
    virtual_time::run(async {
        let mut held = reclaiming(3).await;
        held.forget(0);
        held.forget(2);
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (None, 1), "{changes:?}");
        let later = held.changes_until(60.0).await;
        assert_eq!(lost(&later), None, "{later:?}");
        assert!(held.left() > Duration::from_secs(18));
    });
}

#[test]
fn a_majority_whose_counters_moved_on_is_not_reclaimed() {
    virtual_time::run(async {
        let mut held = reclaiming(3).await;
        for node in [0, 2] {
            held.fake(node).key = None;
            held.fake(node).counter += 1;
        }
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::Absent), 0), "{changes:?}");
    });
}

#[test]
fn a_node_that_was_never_lost_counts_though_its_counter_moved_on() {
    virtual_time::run(async {
        let mut held = reclaiming(3).await;
        held.forget(0);
        held.forget(2);
        // Other members of the lock came and went there.
        held.fake(1).counter += 7;
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (None, 1), "{changes:?}");
    });
}

#[test]
fn an_unproven_node_is_no_part_of_the_majority() {
    virtual_time::run(async {
        let mut held = reclaiming(5).await;
        // Healed over a counter that others raised, and without the word of the others when these forget.
        held.fake(0).key = None;
        held.fake(0).counter += 1;
        for node in 1..5 {
            held.fake(node).mood = Mood::Silent;
        }
        held.changes_until(10.5).await;
        assert_eq!(held.fake(0).healed, 1);
        for node in 1..4 {
            held.forget(node);
            held.fake(node).mood = if node == 3 { Mood::Silent } else { Mood::Well };
        }
        let changes = held.changes_until(14.0).await;
        assert_eq!(reclaimed(&changes), 0, "{changes:?}");
    });
}

#[test]
fn a_majority_that_does_not_answer_at_once_is_a_loss() {
    virtual_time::run(async {
        let mut held = reclaiming(3).await;
        held.forget(0);
        held.forget(2);
        held.fake(2).mood = Mood::Slow(Duration::from_millis(700));
        held.fake(1).mood = Mood::Silent;
        // Node 2 is heard at 10.7 s, and has 1 s for the next answer.
        held.changes_until(10.65).await;
        held.fake(0).mood = Mood::Silent;
        held.fake(2).mood = Mood::Silent;
        let changes = held.changes_until(11.6).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (None, 0), "{changes:?}");
        let changes = held.changes_until(11.8).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::Absent), 0), "{changes:?}");
    });
}

#[test]
fn an_answer_that_comes_when_the_time_is_over_reclaims_nothing() {
    virtual_time::run(async {
        let mut held = reclaiming(1).await;
        held.forget(0);
        held.fake(0).mood = Mood::Slow(Duration::from_secs(1));
        // "Missing" is heard at 11 s, and at 12 s, when the exchange is over, that the key was set again.
        let changes = held.changes_until(12.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::Absent), 0), "{changes:?}");
        assert_eq!(held.fake(0).healed, 1);
    });
}

#[test]
fn a_lock_is_not_reclaimed_after_its_lease() {
    virtual_time::run(async {
        let mut held = reclaiming(1).await;
        held.fake(0).mood = Mood::Silent;
        held.changes_until(29.5).await;
        held.forget(0);
        held.fake(0).mood = Mood::Slow(Duration::from_millis(150));
        // "Missing" is heard while D is ahead, and that the key was set again is heard after it.
        let changes = held.changes_until(31.0).await;
        assert_eq!(reclaimed(&changes), 0, "{changes:?}");
        assert_eq!(lost(&changes), Some(Loss::Absent), "{changes:?}");
    });
}

#[test]
fn a_broken_lock_is_not_reclaimed() {
    virtual_time::run(async {
        let mut held = reclaiming(3).await;
        held.forget(0);
        held.forget(2);
        for node in 0..3 {
            held.fake(node).mood = Mood::Slow(Duration::from_millis(20));
        }
        // "Missing" is heard at 10.02 s. From then on node 1 alone answers.
        held.changes_until(10.01).await;
        held.fake(1).broken = true;
        held.fake(0).mood = Mood::Silent;
        held.fake(2).mood = Mood::Silent;
        let changes = held.changes_until(10.5).await;
        assert_eq!((lost(&changes), reclaimed(&changes)), (Some(Loss::Broken), 0), "{changes:?}");

        let mut held = reclaiming(1).await;
        held.fake(0).broken = true;
        assert_eq!(lost(&held.changes_until(10.5).await), Some(Loss::Broken));
        held.forget(0);
        let changes = held.changes_until(25.0).await;
        assert_eq!(reclaimed(&changes), 0, "a tombstone that was deleted: {changes:?}");
    });
}

#[test]
fn a_reply_from_before_the_loss_says_nothing_about_the_lease_that_was_reclaimed() {
    virtual_time::run(async {
        let mut held = reclaiming(3).await;
        held.forget(0);
        held.forget(2);
        // All are asked at 10 s. Node 1 has renewed, is heard after the others have reclaimed, and has forgotten by then.
        for (node, delay) in [(0, 30), (1, 300), (2, 30)] {
            held.fake(node).mood = Mood::Slow(Duration::from_millis(delay));
        }
        held.changes_until(10.01).await;
        held.forget(1);
        held.fake(1).mood = Mood::Away;
        let changes = held.changes_until(11.0).await;
        assert_eq!(lost(&changes), None, "{changes:?}");
        assert!(held.holding.lease.wants_healing(1), "its tenure is over");
    });
}
