//! A model of several nodes: the search visits every interleaving of requests, replies, time and restarts within its bounds. The
//! functions that decide are rlock's own (`lock::ballot`, `lock::lease`, `lock::fence`, `lock::restart`).
//!
//! 1. There are three nodes, and time passes in whole seconds.
//! 2. A request is executed at any later moment or never, in order on its connection. Its reply is received at once or never.
//! 3. There are never two holders at once, and each holder's fence is above the last one's.
//! 4. If one rule is left out, the search finds a history that breaks this.

mod fingerprint;
mod rules;
mod state;
mod steps;

use std::collections::{HashSet, VecDeque};

use rules::{ALL, Bounds, Rule, Rules, UNBOUNDED};
use state::{Broken, NODES, World};

/// Searches breadth first, so that the first broken history is a shortest one. Returns what broke and after how many steps, and the
/// number of states that were met.
fn explore(rules: Rules, bounds: Bounds) -> (Option<(Broken, u32)>, usize) {
    let first = World::new(bounds);
    let mut met = HashSet::from([first.print()]);
    let mut queue = VecDeque::from([(first, 0)]);
    while let Some((world, steps)) = queue.pop_front() {
        if steps == bounds.depth {
            continue;
        }
        match world.successors(rules, bounds) {
            Err(broken) => return (Some((broken, steps + 1)), met.len()),
            Ok(all) => {
                queue.extend(all.into_iter().filter(|next| met.insert(next.print())).map(|next| (next, steps + 1)));
            }
        }
    }
    (None, met.len())
}

/// Two clients with one attempt each, and one node that may restart at any moment.
const RESTARTS: Bounds = Bounds {
    clients: 2,
    ttl: 1,
    horizon: 2,
    attempts: 1,
    upkeep: 0,
    restarts: 1,
    counters: [0; NODES],
    depth: UNBOUNDED,
};

/// One node's counter was set far above the others' by hand.
const APART: Bounds = Bounds { restarts: 0, horizon: 1, counters: [0, 700, 0], ..RESTARTS };

/// A longer lease, renewed once by its holder.
const KEPT: Bounds = Bounds { ttl: 2, upkeep: 1, restarts: 0, ..RESTARTS };

/// The same with a node that restarts and is healed, in all histories of so many steps.
const HEALED: Bounds = Bounds { restarts: 1, depth: 9, ..KEPT };

/// Three clients, in all histories of so many steps.
const CROWDED: Bounds = Bounds { clients: 3, depth: 7, ..RESTARTS };

#[track_caller]
fn holds(bounds: Bounds, at_least: usize) {
    let (broken, states) = explore(ALL, bounds);
    assert_eq!(broken, None);
    assert!(states > at_least, "only {states} states were met: the search is not what it was");
}

#[test]
fn two_clients_never_hold_together_though_a_node_restarts() {
    holds(RESTARTS, 300_000);
}

#[test]
fn fences_rise_though_the_nodes_counters_are_apart() {
    holds(APART, 50_000);
}

#[test]
fn renewals_keep_others_out() {
    holds(KEPT, 100_000);
}

#[test]
fn healing_a_node_that_restarted_lets_no_other_client_in() {
    holds(HEALED, 50_000);
}

#[test]
fn three_clients_never_hold_together() {
    holds(CROWDED, 50_000);
}

#[test]
fn without_the_confirm_round_a_fence_is_not_above_the_last() {
    let (broken, _) = explore(Rules::without(Rule::Confirm), APART);
    assert!(matches!(broken, Some((Broken::FenceNotAbove, _))), "{broken:?}");
}

#[test]
fn without_the_tenure_check_a_late_grant_makes_a_second_holder() {
    let (broken, _) = explore(Rules::without(Rule::Tenure), APART);
    assert!(matches!(broken, Some((Broken::TwoHolders, _))), "{broken:?}");
}

#[test]
fn without_the_restart_guard_a_node_that_forgot_makes_a_second_holder() {
    let (broken, _) = explore(Rules::without(Rule::RestartGuard), RESTARTS);
    assert!(matches!(broken, Some((Broken::TwoHolders, _))), "{broken:?}");
}

#[test]
fn a_command_that_outlives_its_lease_makes_a_second_holder() {
    let (broken, _) = explore(Rules::without(Rule::DeadByDeadline), APART);
    assert!(matches!(broken, Some((Broken::TwoHolders, _))), "{broken:?}");
}
