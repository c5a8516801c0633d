//! Shrinking: the shortest scenario found that breaks the same promise.

use std::time::Duration;

use crate::scenario::{Errand, Scenario};
use crate::story::Story;
use crate::world::play_caught;

/// Most plays that a shrink may take.
const PLAYS: u32 = 2_000;

/// Number of draws that are tried for each smaller scenario. What is taken out moves the rest, and
/// may hide the violation.
const OTHER_DRAWS: u64 = 4;

/// Returns a scenario with fewer clients, rounds and faults that breaks a promise of this kind too.
pub fn shrink(scenario: &Scenario, kind: &str) -> Scenario {
    let mut best = scenario.clone();
    let mut left = PLAYS;
    loop {
        let before = size(&best);
        for candidate in candidates(&best) {
            for other in 0..OTHER_DRAWS {
                let seed = candidate.seed.wrapping_add(other << 40);
                let candidate = Scenario {
                    seed,
                    ..candidate.clone()
                };
                if size(&candidate) >= size(&best) {
                    break;
                }
                let Some(rest) = left.checked_sub(1) else {
                    return best;
                };
                left = rest;
                if breaks(&candidate, kind) {
                    best = candidate;
                }
            }
        }
        if size(&best) == before {
            return best;
        }
    }
}

fn breaks(scenario: &Scenario, kind: &str) -> bool {
    play_caught(scenario, Story::default())
        .violation
        .is_some_and(|violation| violation.kind() == kind)
}

/// Number of things that happen, and how slow the network is.
fn size(scenario: &Scenario) -> usize {
    let is_slow = usize::from(scenario.latency.spikes > 0.0);
    scenario.rounds() + scenario.faults.len() + is_slow
}

/// Returns scenarios that are a little smaller, those that lose most first. Clients and rounds keep
/// their numbers, and with them their draws.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut smaller = Vec::new();
    let mut change = |change: &dyn Fn(&mut Scenario)| {
        let mut candidate = scenario.clone();
        change(&mut candidate);
        smaller.push(candidate);
    };
    let faults = scenario.faults.len();
    change(&|smaller| smaller.faults.clear());
    change(&|smaller| smaller.faults.truncate(faults / 2));
    change(&|smaller| drop(smaller.faults.drain(..faults / 2)));
    change(&|smaller| (smaller.latency.spikes, smaller.latency.spike) = (0.0, Duration::ZERO));
    for client in 0..scenario.clients.len() {
        change(&|smaller| smaller.clients[client].rounds.clear());
        for round in (0..scenario.clients[client].rounds.len()).rev() {
            change(&|smaller| smaller.clients[client].rounds[round].errand = Errand::Rest);
        }
    }
    for fault in (0..faults).rev() {
        change(&|smaller| _ = smaller.faults.remove(fault));
    }
    smaller
}
