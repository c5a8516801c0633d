//! The subcommands, one file each.

pub mod acquire;
pub mod breaking;
pub mod check;
mod cover;
pub mod doctor;
pub mod generate;
mod inside;
pub mod inspect;
mod joining;
mod nodes;
mod output;
pub mod release;
pub mod renew;
pub mod run;
mod supervise;
mod table;
mod wait;

use std::io;

use crate::cli::{Command, Parsed};
use crate::exit::Outcome;
use crate::job::found::Found;
use crate::job::guard::Guard;

/// Does what the command line says; `guard` has been started for a `run`.
pub fn dispatch(parsed: Parsed, found: &Found, guard: Option<io::Result<Guard>>) -> anyhow::Result<Outcome> {
    match parsed.cli.command {
        Command::Run(args) => run::run(*args, &parsed.sources, found, guard.unwrap_or_else(Guard::start)),
        Command::Acquire(args) => acquire::acquire(*args, &parsed.sources, found),
        Command::Renew(args) => renew::renew(&args, &parsed.sources),
        Command::Release(args) => release::release(&args, &parsed.sources),
        Command::Check(args) => check::check(&args, &parsed.sources),
        Command::Inspect(args) => inspect::inspect(&args, &parsed.sources),
        Command::Break(args) => breaking::break_lock(&args, &parsed.sources),
        Command::Doctor(args) => doctor::doctor(&args, &parsed.sources),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { subcommand } => generate::man(subcommand.as_deref()),
    }
}
