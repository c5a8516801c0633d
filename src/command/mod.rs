//! The subcommands, one file each.

pub mod generate;
pub mod run;
mod supervise;
mod wait;

use crate::cli::{Command, Parsed};
use crate::exit::Outcome;

/// Does what the command line says.
pub fn dispatch(parsed: Parsed) -> anyhow::Result<Outcome> {
    match parsed.cli.command {
        Command::Run(args) => run::run(*args, &parsed.sources),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { subcommand } => generate::man(subcommand.as_deref()),
    }
}
