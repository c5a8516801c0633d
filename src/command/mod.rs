//! The subcommands, one file each.

pub mod generate;
pub mod run;
mod status;
mod supervise;
mod wait;

use crate::cli::{Command, Parsed};
use crate::exit::Outcome;
use crate::job::found::Found;

/// Does what the command line says.
pub fn dispatch(parsed: Parsed, found: &Found) -> anyhow::Result<Outcome> {
    match parsed.cli.command {
        Command::Run(args) => run::run(*args, &parsed.sources, found),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { subcommand } => generate::man(subcommand.as_deref()),
    }
}
