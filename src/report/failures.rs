//! Failures that end a subcommand and that several places share, or that have data in `--log json`.
//!
//! What a single rule refuses is worded beside that rule.

use std::io;

use super::status_text::{
    at_node, fields_of, fields_of_faults, holder, newer_waiter, occupied, of_kinds, told,
};
use crate::exit::{Failure, Outcome};
use crate::lock::blocker::Blocker;
use crate::lock::census::{Census, State};
use crate::lock::fault::{Fault, Faults};
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::quorum::Quorum;
use crate::lock::waiting::Blocked;

/// The lock is held, or its votes are split. `wanted`: the kind that was asked for, `code`:
/// `--busy-code`.
pub fn busy(blocked: &Blocked, wanted: Mode, code: u8) -> Failure {
    let words = format!("busy: {}{}", told(blocked), of_kinds(blocked, wanted));
    Failure {
        fields: fields_of(blocked),
        ..Failure::new(Outcome::Busy(code), words)
    }
}

/// A waiter came later, and both have `--supersede`.
pub fn superseded(newer: &Blocker) -> Failure {
    let words = format!("{}, which came later; nothing was run", newer.named());
    Failure {
        fields: newer_waiter(newer),
        ..Failure::new(Outcome::Superseded, words)
    }
}

/// A wait ended without a majority.
pub fn unreachable(blocked: &Blocked) -> Failure {
    let words = match blocked {
        Blocked::Unreachable(faults, quorum) => faults.no_majority_with_remedies(*quorum),
        _ => told(blocked),
    };
    Failure {
        fields: fields_of(blocked),
        ..Failure::new(Outcome::Unreachable, words)
    }
}

/// Too few nodes answered, or too many refused.
pub fn no_majority(faults: &Faults, quorum: Quorum) -> Failure {
    let words = faults.no_majority_with_remedies(quorum);
    Failure {
        fields: fields_of_faults(faults),
        ..Failure::new(faults.kind(quorum).into(), words)
    }
}

/// The set of nodes cannot hold the lock, as the named node shows.
pub fn unfit(node: &str, fault: &Fault) -> Failure {
    Failure {
        fields: at_node(node, &fault.why),
        ..Failure::new(fault.kind.into(), format!("{node}: {fault}"))
    }
}

/// The holder uses another number of nodes.
pub fn other_list(node: &str, why: &str) -> Failure {
    Failure {
        fields: at_node(node, why),
        ..Failure::new(Outcome::Config, format!("{node}: {why}"))
    }
}

/// The token is not the holder's.
pub fn not_the_holder(census: &Census) -> Failure {
    let fields = census.holder().map(holder).unwrap_or_default();
    Failure {
        fields,
        ..Failure::new(
            Outcome::No,
            format!("not the holder's token: {}", whose(census)),
        )
    }
}

/// Usage that the lock's holder forbids.
pub fn forbidden_by(occupant: &Occupant, words: String) -> Failure {
    Failure {
        fields: holder(occupant),
        ..Failure::new(Outcome::Usage, words)
    }
}

/// The holder is an outer rlock that holds some of the locks of the run, and not all.
pub fn partly_covered(holder: &Occupant) -> Failure {
    let why =
        "which runs us but does not hold all of them; to wait for the rest here could deadlock";
    let remedy = "let the outer rlock take all of them, or run this outside";
    forbidden_by(
        holder,
        format!("one of these locks is {}, {why}: {remedy}", holder.named()),
    )
}

/// Output could not be printed.
pub fn not_printed(error: &io::Error) -> Failure {
    Failure::new(Outcome::Output, format!("cannot print: {error}"))
}

/// Describes the holder, as far as the nodes agree.
fn whose(census: &Census) -> String {
    let votes = |number: usize| format!("{number} of {} nodes", census.quorum().total());
    match (census.state(), census.leading()) {
        (_, None) => "the lock is free".to_owned(),
        (State::Held, Some((occupant, _))) => {
            match census.holders().len() as u64 + census.unlisted() {
                0 | 1 => occupied(occupant),
                all => format!("{}, and {} more", occupied(occupant), all - 1),
            }
        }
        (State::Free, Some((occupant, number))) => {
            format!(
                "the lock is free; at {} it is {}",
                votes(number),
                occupied(occupant)
            )
        }
        (State::Unknown, Some((occupant, number))) => {
            format!("at {} it is {}", votes(number), occupied(occupant))
        }
    }
}
