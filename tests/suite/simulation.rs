//! The simulation in short: some seeds of each kind of world, and proof that it would notice a
//! fault. `docs/simulation.md` has the command that plays more.

use std::time::Duration;

use rlock::lock::restart::RestartGuard;
use simulation::scenario::{CROWD, Kind, Scenario};
use simulation::shrink::shrink;
use simulation::story::Story;
use simulation::tally::Tally;
use simulation::world::{Report, play, play_caught};

/// Seeds of each kind of world.
const SEEDS: u64 = 8;

fn played(kind: Kind) -> Tally {
    played_with(kind, SEEDS)
}

fn played_with(kind: Kind, seeds: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let report = play_caught(&Scenario::new(kind, seed), Story::default());
        assert_eq!(
            report.violation,
            None,
            "cargo run -p rlock-simulation -- --world {} --seed {seed} --story",
            kind.name()
        );
        tally.add(&report);
    }
    tally
}

#[test]
fn without_a_fault_the_order_is_kept_and_no_request_is_wasted() {
    let tally = played(Kind::Calm);
    assert!(
        tally.grants > SEEDS * 5 && tally.lost == 0 && tally.faults == 0,
        "{tally:?}"
    );
}

#[test]
fn one_node_that_keeps_its_data_has_one_holder_at_a_time() {
    let tally = played(Kind::One);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn one_node_that_forgets_has_one_holder_at_a_time_under_a_restart_guard() {
    let tally = played(Kind::Forgetful);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn several_nodes_that_restart_without_data_have_one_holder_at_a_time() {
    let tally = played(Kind::Several);
    assert!(
        tally.grants > SEEDS * 3 && tally.healed > SEEDS && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn a_holder_outlasts_keys_that_a_minority_loses() {
    let tally = played(Kind::Lossy);
    assert!(
        tally.grants > SEEDS * 3 && tally.healed > SEEDS && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn a_holder_whose_majority_forgets_sets_its_key_again_or_ends_in_time() {
    let tally = played(Kind::Away);
    assert!(
        tally.grants > SEEDS * 3 && tally.healed > SEEDS && tally.lost > SEEDS / 4,
        "{tally:?}"
    );
}

#[test]
fn runs_that_take_several_locks_wait_in_no_circle() {
    let tally = played(Kind::Keys);
    assert!(
        tally.grants > SEEDS * 6 && tally.healed > SEEDS && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn waiters_that_stop_die_or_leave_cost_the_others_seconds_at_most() {
    let tally = played(Kind::Waiters);
    assert!(
        tally.grants > SEEDS * 3 && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn of_waiters_that_supersede_each_other_the_last_that_came_goes_on() {
    let tally = played(Kind::Newest);
    assert!(
        tally.grants > SEEDS * 3 && tally.superseded > SEEDS && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn a_long_line_waits_no_longer_than_a_short_one_for_the_end_of_a_dead_holder() {
    let tally = played(Kind::Crowd);
    assert_eq!(tally.grants, SEEDS * CROWD as u64);
    assert!(tally.faults > SEEDS * 8, "{tally:?}");
}

#[test]
fn clocks_that_are_set_let_no_second_holder_in() {
    let tally = played(Kind::Clocks);
    assert!(
        tally.grants > SEEDS * 3 && tally.healed > 0 && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn holders_of_every_kind_keep_out_what_they_exclude() {
    let tally = played(Kind::Kinds);
    assert!(
        tally.grants > SEEDS * 3 && tally.healed > SEEDS && tally.lost > 0 && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn a_success_is_not_repeated_as_long_as_a_majority_knows_of_it() {
    let tally = played(Kind::Once);
    assert!(
        tally.grants > SEEDS && tally.skipped > SEEDS * 3 && tally.faults > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn a_lock_that_is_parked_is_given_to_no_other_client() {
    let tally = played(Kind::Parked);
    assert!(
        tally.grants > SEEDS * 3 && tally.parked > SEEDS * 3 && tally.faults > SEEDS * 3,
        "{tally:?}"
    );
}

#[test]
fn a_primary_that_was_replaced_grants_nothing_that_counts_nor_does_its_successor_too_early() {
    let tally = played(Kind::Sentinel);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.healed > 0,
        "{tally:?}"
    );
    assert!(
        tally.switches > SEEDS && tally.stale > SEEDS / 4,
        "{tally:?}"
    );
}

#[test]
fn a_lock_that_all_replicas_have_outlasts_failovers_without_a_restart_guard() {
    let tally = played(Kind::Copies);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.switches > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn a_slot_that_moves_and_a_replica_that_takes_over_let_no_second_holder_in() {
    let tally = played(Kind::Cluster);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.healed > 0,
        "{tally:?}"
    );
    assert!(
        tally.switches > SEEDS / 4 && tally.moves > SEEDS / 4 && tally.stale > 0,
        "{tally:?}"
    );
}

#[test]
fn an_etcd_whose_leader_is_replaced_or_cut_off_has_one_holder_at_a_time() {
    let tally = played(Kind::Etcd);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.switches > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn clocks_of_etcd_that_are_faster_than_the_drift_are_noticed() {
    let is_broken = |seed: u64| {
        let mut scenario = Scenario::new(Kind::Etcd, seed);
        for clock in &mut scenario.clocks {
            clock.rate = 1_000_000;
        }
        play_caught(&scenario, Story::default()).violation.is_some()
    };
    assert!((0..SEEDS * 10).any(is_broken));
}

#[test]
fn a_zookeeper_whose_leader_is_replaced_or_cut_off_has_one_holder_at_a_time() {
    let tally = played(Kind::ZooKeeper);
    assert!(
        tally.grants > SEEDS * 3 && tally.lost > 0 && tally.switches > SEEDS,
        "{tally:?}"
    );
}

#[test]
fn clocks_of_zookeeper_that_are_faster_than_the_drift_are_noticed() {
    let is_broken = |seed: u64| {
        let mut scenario = Scenario::new(Kind::ZooKeeper, seed);
        for clock in &mut scenario.clocks {
            clock.rate = 1_000_000;
        }
        play_caught(&scenario, Story::default()).violation.is_some()
    };
    assert!((0..SEEDS * 10).any(is_broken));
}

#[test]
fn a_database_whose_primary_fails_or_is_replaced_has_one_holder_at_a_time() {
    // A lock is lost in one of five worlds.
    let seeds = SEEDS * 5;
    let tally = played_with(Kind::Sql, seeds);
    assert!(
        tally.grants > seeds * 3 && tally.lost > 0 && tally.switches > seeds / 2,
        "{tally:?}"
    );
    assert!(tally.parked > 0 && tally.lapses == 0, "{tally:?}");
}

#[test]
fn an_asynchronous_standby_costs_those_leases_alone_that_it_lacks() {
    let tally = played(Kind::Asynchronous);
    assert!(
        tally.grants > SEEDS * 3 && tally.switches > SEEDS / 2 && tally.stale > 0,
        "{tally:?}"
    );
    assert!(tally.lapses > 0, "{tally:?}");
}

#[test]
fn a_standby_whose_clock_is_ahead_by_more_than_k_is_noticed() {
    let is_broken = |seed: u64| {
        let mut scenario = Scenario::new(Kind::Sql, seed);
        for (clock, ahead) in scenario.clocks.iter_mut().zip([0, 500_000]) {
            clock.ahead = ahead;
        }
        play_caught(&scenario, Story::default()).violation.is_some()
    };
    assert!((0..SEEDS * 10).any(is_broken));
}

#[test]
fn a_lock_that_a_replica_lacks_is_noticed() {
    let is_broken = |seed: u64| {
        let mut scenario = Scenario::new(Kind::Copies, seed);
        scenario.settings.copies = None;
        play_caught(&scenario, Story::default()).violation.is_some()
    };
    assert!((0..SEEDS * 10).any(is_broken));
}

#[test]
fn a_seed_gives_the_same_story_again() {
    for seed in 0..5 {
        let told = || {
            let Report { story, digest, .. } =
                play(&Scenario::new(Kind::Several, seed), Story::kept());
            (story.lines().collect::<Vec<String>>(), digest)
        };
        let ((first, digest), (second, other)) = (told(), told());
        let differ = first
            .iter()
            .zip(&second)
            .find(|(first, second)| first != second);
        assert_eq!((differ, digest), (None, other), "seed {seed}");
    }
}

#[test]
fn a_rule_that_is_left_out_is_noticed_and_its_story_is_short() {
    // Without its restart guard, a node that forgot the holder grants the lock again.
    let careless = |seed: u64| {
        let mut scenario = Scenario::new(Kind::Forgetful, seed);
        scenario.settings.guard = RestartGuard::Off;
        scenario
    };
    let broken = |scenario: &Scenario| play_caught(scenario, Story::default()).violation;
    let shortened = |scenario: Scenario| {
        let kind = broken(&scenario)?.kind();
        let short = shrink(&scenario, kind);
        assert_eq!(broken(&short).map(|violation| violation.kind()), Some(kind));
        Some(short)
    };
    // A story that cannot lose any one thing may still need more rounds than another one.
    let is_short = |short: &Scenario| short.rounds() <= 4 && short.faults.len() <= 3;
    let short = (0..SEEDS)
        .map(careless)
        .filter_map(shortened)
        .take(3)
        .find(is_short)
        .expect("a violation with a short story");
    assert!(play(&short, Story::default()).took < Duration::from_secs(60));
}
