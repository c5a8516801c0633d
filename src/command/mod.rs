//! The subcommands, one public module each. The private modules are shared:
//!
//! * the way to the locks ([`acquisition`]), our own or an outer run's ([`joining`]), under which
//!   name ([`caller`]), and what covers the command then ([`cover`])
//! * the nodes, the runtime, output on stdout and failures ([`common`])

pub mod acquire;
mod acquisition;
pub mod break_lock;
mod caller;
mod common;
pub mod config;
mod cover;
pub mod doctor;
pub mod generate;
pub mod held;
pub mod inspect;
mod joining;
pub mod run;

use crate::cli::Command;
use crate::exit::{Failure, Outcome};
use crate::job::inherited::Inherited;
use crate::settings::Sources;

/// Runs the subcommand.
pub fn dispatch(
    command: Command,
    sources: &Sources,
    inherited: &Inherited,
) -> anyhow::Result<Outcome> {
    let outcome = match command {
        Command::Run(args) => run::run(*args.0, sources, inherited),
        Command::Acquire(args) => acquire::acquire(&args.0, sources, inherited),
        Command::Renew(args) => held::renew(&args, sources),
        Command::Release(args) => held::release(&args, sources),
        Command::Check(args) => held::check(&args, sources),
        Command::Inspect(args) => inspect::inspect(&args, sources),
        Command::Break(args) => break_lock::break_lock(&args, sources),
        Command::Doctor(args) => doctor::doctor(&args, sources),
        Command::Config(args) => config::config(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { subcommand } => generate::man(subcommand.as_deref()),
    };
    outcome.map_err(|error| match error.downcast::<Failure>() {
        Ok(failure) => sources.explain(failure).into(),
        Err(error) => error,
    })
}
