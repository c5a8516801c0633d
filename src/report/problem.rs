//! Every sentence that ends a subcommand with a failure, with its exit code and its data in `--log json`.
//!
//! What a single rule refuses is worded beside that rule.

use std::io;

use serde_json::{Map, Value};

use super::event::Share;
use super::status_text::{at_node, fields_of, fields_of_faults, holder, newer_waiter, occupied, of_kinds, told};
use crate::exit::{Failure, Outcome, tells_shortage};
use crate::lock::blocker::Blocker;
use crate::lock::census::{Census, State};
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::key::Keys;
use crate::lock::last::Entry;
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::quorum::Quorum;
use crate::lock::waiting::Blocked;

/// A failure that ends a subcommand.
#[derive(Debug)]
pub enum Problem<'a> {
    /// The lock is held, or its votes are split. `wanted`: the kind that was asked for, `code`: `--busy-code`.
    Busy { blocked: &'a Blocked, wanted: Mode, code: u8 },
    /// A waiter came later, and both have `--supersede`.
    Superseded { newer: &'a Blocker },
    /// A wait ended without a majority.
    Unreachable { blocked: &'a Blocked },
    /// Too few nodes answered, or too many refused.
    NoMajority { faults: &'a Faults, quorum: Quorum },
    /// The same, for work on many locks.
    NoMajorityFor { what: &'a str, faults: &'a Faults, quorum: Quorum },
    /// The set of nodes cannot hold the lock, as the named node shows.
    Unfit { node: &'a str, fault: &'a Fault },
    /// The holder uses another number of nodes. `may_force`: `--foreign` would go on.
    OtherList { node: &'a str, why: &'a str, may_force: bool },
    /// The token is not the holder's.
    NotTheHolder { census: &'a Census<'a> },
    /// `run` inside the lock of an `acquire`.
    KeptByNoRun,
    /// `acquire` inside a live run.
    WouldWaitForItself { holder: &'a Occupant },
    /// `run` inside a live run whose lock does not cover it.
    OtherKindInside { holder: &'a Occupant, inner: Mode },
    /// `run --once` inside a live run that holds the lock.
    OnceInside { holder: &'a Occupant },
    /// The outer rlock cannot be reached.
    OuterUnreachable { holder: &'a Occupant },
    /// No outer rlock holds the lock, while this one holds another lock of the run.
    PartlyCovered { holder: &'a Occupant },
    /// `break` without a key.
    NoKey,
    /// `break` of a free lock. `is_pattern`: its name looks like a pattern.
    NothingToBreak { is_pattern: bool },
    /// `break --slot` or `--token` of a lock that others hold.
    NotTheOneMeant { slot: Option<u16> },
    /// `break` of a success without `--yes` and without a terminal.
    NoTerminalFor { run: &'a Entry },
    /// `break` of a foreign value without `--foreign`.
    Foreign { holder: &'a Occupant },
    /// `break` without `--yes` and without a terminal.
    NoTerminal { holder: &'a Occupant },
    /// The user declined.
    Declined,
    /// `break`: the holder has changed meanwhile.
    HolderChanged,
    /// `break --foreign`: the key was deleted at a minority of the holder's nodes.
    BrokenAtMinority(Share),
    /// `break`: the holder did not release the tombstone.
    NotReleased,
    /// Output could not be printed.
    NotPrinted { error: &'a io::Error },
}

impl Problem<'_> {
    /// Returns the failure of work on one lock or several.
    pub fn about(&self, keys: impl Into<Keys>) -> Failure {
        let (outcome, words) = self.told();
        Failure { fields: self.fields(), ..Failure::about(keys, outcome, words) }
    }

    /// Returns the failure of work on no lock in particular.
    pub fn failure(&self) -> Failure {
        let (outcome, words) = self.told();
        Failure { fields: self.fields(), ..Failure::new(outcome, words) }
    }

    /// Returns its data in `--log json`, beside the key and the exit code.
    fn fields(&self) -> Map<String, Value> {
        match self {
            Self::Busy { blocked, .. } | Self::Unreachable { blocked, .. } => fields_of(blocked),
            Self::Superseded { newer } => newer_waiter(newer),
            Self::NoMajority { faults, .. } | Self::NoMajorityFor { faults, .. } => fields_of_faults(faults),
            Self::Unfit { node, fault } => at_node(node, &fault.why),
            Self::OtherList { node, why, .. } => at_node(node, why),
            Self::NotTheHolder { census } => census.holder().map(holder).unwrap_or_default(),
            Self::WouldWaitForItself { holder: occupant }
            | Self::OtherKindInside { holder: occupant, .. }
            | Self::OnceInside { holder: occupant }
            | Self::OuterUnreachable { holder: occupant }
            | Self::PartlyCovered { holder: occupant }
            | Self::Foreign { holder: occupant }
            | Self::NoTerminal { holder: occupant } => holder(occupant),
            _ => Map::new(),
        }
    }

    /// Returns its exit code and its sentence.
    fn told(&self) -> (Outcome, String) {
        use Outcome::{Config, No, Output, System, Usage};
        match self {
            Self::Busy { blocked, wanted, code } => {
                (Outcome::Busy(*code), format!("busy: {}{}", told(blocked), of_kinds(blocked, *wanted)))
            }
            Self::Superseded { newer } => {
                (Outcome::Superseded, format!("{}, which came later; nothing was run", newer.named()))
            }
            Self::Unreachable { blocked } => {
                (Outcome::Unreachable, given_up(blocked))
            }
            Self::NoMajority { faults, quorum } => {
                (outcome_of(faults, *quorum), faults.no_majority_with_remedies(*quorum))
            }
            Self::NoMajorityFor { what, faults, quorum } => {
                let told = faults.no_majority_with_remedies(*quorum);
                (outcome_of(faults, *quorum), format!("{what}: {told}"))
            }
            Self::Unfit { node, fault } => {
                (if tells_shortage(&fault.why) { System } else { Config }, format!("{node}: {fault}"))
            }
            Self::OtherList { node, why, may_force } => {
                let force = if *may_force { "; --foreign breaks it here all the same" } else { "" };
                (Config, format!("{node}: {why}{force}"))
            }
            Self::NotTheHolder { census } => (No, format!("not the holder's token: {}", whose(census))),
            Self::KeptByNoRun => (
                Usage,
                "held by rlock acquire already, with the RLOCK_TOKEN of this environment: release it first, or ask rlock check and run the command without rlock run".to_owned(),
            ),
            Self::WouldWaitForItself { holder } => {
                let why = "and this is part of its command, so acquire would wait for itself; ask rlock check";
                (Usage, format!("{}, {why}", holder.named()))
            }
            Self::OtherKindInside { holder, inner } => {
                let (outer, inner) = (holder.named(), inner.name());
                (Usage, format!("{outer}, which runs us; {inner} inside would wait for itself: take it outside"))
            }
            Self::OnceInside { holder } => {
                let why = "and this is part of its command, whose success alone counts: give --once outside";
                (Usage, format!("{}, {why}", holder.named()))
            }
            Self::OuterUnreachable { holder } => {
                let why = "this is part of its command, but that rlock cannot be reached from here (another host, container or user); run the command without rlock run, and ask rlock check first";
                (Usage, format!("{}: {why}", holder.named()))
            }
            Self::PartlyCovered { holder } => {
                let why = "and this is part of its command, which does not run under this lock too: let the outer rlock take all of them, or run this outside";
                (Usage, format!("another of these locks is {}, {why}", holder.named()))
            }
            Self::NoKey => (Usage, "no KEY is given; see rlock break --help".to_owned()),
            Self::NothingToBreak { is_pattern } => {
                let advice = if *is_pattern { "; break takes no pattern, but inspect does" } else { "" };
                (No, format!("nothing to break: the lock is free{advice}"))
            }
            Self::NotTheOneMeant { slot } => {
                let meant = slot.map_or_else(|| "by this token".to_owned(), |slot| format!("in slot {slot}"));
                (No, format!("nothing to break: the lock is held, and not {meant}; see rlock inspect"))
            }
            Self::Foreign { holder } => (Usage, format!("{}; give --foreign to delete it", occupied(holder))),
            Self::NoTerminal { holder } => (Usage, no_terminal(&occupied(holder))),
            Self::NoTerminalFor { run } => (Usage, no_terminal(&run.success())),
            Self::Declined => (No, "not broken".to_owned()),
            Self::HolderChanged => {
                (No, "the holder has changed or released it meanwhile; nothing was broken".to_owned())
            }
            Self::BrokenAtMinority(share) => {
                let why = "which is no majority; give --node the holder's list";
                (No, format!("not broken: the key was deleted at {share}, {why}"))
            }
            Self::NotReleased => (
                No,
                "broken, but its holder has not released it: it cannot end its command, or runs with --on-lost warn; the key still keeps other clients out; --now deletes it".to_owned(),
            ),
            Self::NotPrinted { error } => (Output, format!("cannot print: {error}")),
        }
    }
}

fn outcome_of(faults: &Faults, quorum: Quorum) -> Outcome {
    match faults.kind(quorum) {
        FaultKind::Refused => Outcome::Refused,
        FaultKind::Unfit if faults.iter().any(|there| tells_shortage(&there.fault.why)) => Outcome::System,
        FaultKind::Unfit => Outcome::Config,
        FaultKind::Unavailable | FaultKind::Unknown => Outcome::Unreachable,
    }
}

/// Tells what a wait came to, and the remedy.
fn given_up(blocked: &Blocked) -> String {
    match blocked {
        Blocked::Unreachable(faults, quorum) => faults.no_majority_with_remedies(*quorum),
        _ => told(blocked),
    }
}

fn no_terminal(who: &str) -> String {
    format!("{who}; no terminal to ask at, so give --yes")
}

/// Describes the holder, as far as the nodes agree.
fn whose(census: &Census) -> String {
    let votes = |number: usize| format!("{number} of {} nodes", census.quorum().total());
    match (census.state(), census.leading()) {
        (_, None) => "the lock is free".to_owned(),
        (State::Held, Some((occupant, _))) => match census.holders().len() as u64 + census.unlisted() {
            0 | 1 => occupied(occupant),
            all => format!("{}, and {} more", occupied(occupant), all - 1),
        },
        (State::Free, Some((occupant, number))) => {
            format!("the lock is free; at {} it is {}", votes(number), occupied(occupant))
        }
        (State::Unknown, Some((occupant, number))) => format!("at {} it is {}", votes(number), occupied(occupant)),
    }
}
