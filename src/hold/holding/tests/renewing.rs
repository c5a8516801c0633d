//! The rhythm of renewals, with nodes that are slow, silent, away, or refuse us.

use super::*;

#[test]
fn all_nodes_are_renewed_every_third_of_the_ttl() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        let changes = held.changes_until(61.0).await;
        assert!(
            changes
                .iter()
                .all(|change| matches!(change, Change::Lease(LeaseChange::Extended(_)))),
            "{changes:?}"
        );
        for node in 0..3 {
            assert_eq!(held.fake(node).renewed, 6);
        }
        assert!(held.left() > Duration::from_secs(28));
    });
}

#[test]
fn a_slow_node_costs_nothing_and_its_late_replies_count() {
    virtual_time::run(async {
        // Slower than the node timeout of a second, so that each of its replies is late.
        let mut held = hold(3, |fakes| {
            fakes[2].borrow_mut().mood = Mood::Slow(Duration::from_secs(3));
        })
        .await;
        held.changes_until(9.0).await;
        held.fake(0).mood = Mood::Away;
        let changes = held.changes_until(100.0).await;
        assert_eq!(lost(&changes), None);
        // A majority is the quick one and the slow one: the lease goes on by what the slow one said
        // late.
        assert!(held.left() > Duration::from_secs(15), "{:?}", held.left());
    });
}

#[test]
fn a_node_that_may_have_restarted_is_tried_often_for_as_long_as_it_grants_nothing() {
    virtual_time::run(async {
        let mut held = hold_guarded(3, Some(Duration::from_secs(60)), |_| ()).await;
        held.fake(1).mood = Mood::Away;
        held.changes_until(70.0).await;
        let asked = held.fake(1).asked.len();
        assert!(asked > 60 * 4, "{asked} times in a minute");
        held.changes_until(1070.0).await;
        let more = held.fake(1).asked.len() - asked;
        assert!(more < 250, "{more} times in the next quarter of an hour");
    });
}

#[test]
fn failing_nodes_are_tried_until_there_is_no_time_left_and_nothing_is_deleted() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        for node in 0..3 {
            held.fake(node).mood = Mood::Away;
        }
        held.changes_until(29.5).await;
        let asked = held.fake(0).asked.len();
        // From ten seconds on, every 125 to 250 ms.
        assert!((19 * 4..19 * 8 + 20).contains(&asked), "{asked}");
        assert!((0..3).all(|node| held.fake(node).key.is_some()));
    });
}

#[test]
fn a_node_that_is_gone_for_long_is_asked_less_and_less() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.fake(1).mood = Mood::Away;
        held.changes_until(3600.0).await;
        let asked = held.fake(1).asked.len();
        assert!((360..800).contains(&asked), "{asked} times in an hour");
        held.fake(1).mood = Mood::Well;
        held.changes_until(3615.0).await;
        assert!(held.fake(1).key.is_some(), "healed within a renewal's time");
    });
}

#[test]
fn who_exits_without_a_renewal_waits_until_the_nodes_will_get_what_they_were_sent() {
    virtual_time::run(async {
        let held = hold(3, |_| ()).await;
        held.holding.leave_queue().await;
        assert!((0..3).all(|node| held.fake(node).settled == 1));
    });
}

#[test]
fn a_release_waits_for_no_node_that_hangs() {
    virtual_time::run(async {
        let held = hold(5, |_| ()).await;
        held.fake(4).mood = Mood::Silent;
        let begun = clock::now();
        assert_eq!(
            held.holding.release(&Remains::default()).await,
            ReleaseOutcome::Ours
        );
        assert_eq!(clock::now(), begun);
        assert_eq!(
            held.fakes[4].borrow().asked.len(),
            2,
            "the release was sent there too"
        );
    });
}

#[test]
fn renewals_that_fail_are_told_once_when_no_majority_has_renewed_for_a_round() {
    virtual_time::run(async {
        let failing = |changes: &[Change]| {
            let told = changes.iter().filter_map(|it| match it {
                Change::Failing { since, left, why } => Some((*since, *left, why.clone())),
                _ => None,
            });
            told.collect::<Vec<_>>()
        };
        let mut held = hold(3, |_| {}).await;
        held.fake(0).mood = Mood::Silent;
        assert_eq!(failing(&held.changes_until(40.0).await), []);
        held.fake(1).mood = Mood::Silent;
        let changes = held.changes_until(70.0).await;
        let told = failing(&changes);
        let [(since, left, why)] = &told[..] else {
            panic!("{told:?}")
        };
        let schedule = held.holding.schedule;
        assert!(*since >= schedule.round() && *since < schedule.round() * 2);
        assert!(*left > TTL / 3, "{left:?}");
        assert_eq!(why.matches("no answer").count(), 2, "{why}");
    });
}

#[test]
fn a_minority_that_refuses_us_is_told_once_and_costs_the_lease_nothing() {
    virtual_time::run(async {
        let refusals = |changes: &[Change]| {
            changes
                .iter()
                .filter(|it| matches!(it, Change::Refused(..)))
                .count()
        };
        let mut held = hold(3, |_| {}).await;
        held.fake(1).mood = Mood::Refusing;
        let changes = held.changes_until(40.0).await;
        assert_eq!(refusals(&changes), 1, "{changes:?}");
        assert!(
            !changes
                .iter()
                .any(|change| matches!(change, Change::Lease(LeaseChange::Lost(_)))),
            "{changes:?}"
        );
        // The waiter has warned of this one already.
        let mut held = hold(3, |fakes| fakes[2].borrow_mut().mood = Mood::Refusing).await;
        held.holding.has_told_refusals(&[2]);
        let changes = held.changes_until(40.0).await;
        assert!(
            refusals(&changes) == 0 && changes.iter().any(is_trouble),
            "{changes:?}"
        );
        // A majority that refuses us is a lease that runs out.
        let mut held = hold(3, |_| {}).await;
        (held.fake(0).mood, held.fake(1).mood) = (Mood::Refusing, Mood::Refusing);
        let changes = held.changes_until(40.0).await;
        assert!(
            refusals(&changes) == 2
                && !changes
                    .iter()
                    .any(|it| matches!(it, Change::Lease(LeaseChange::Extended(end)) if *end > held.begun + TTL)),
            "{changes:?}"
        );
    });
}
