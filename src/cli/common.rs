//! Options and locks that all subcommands on locks have.

use super::{Command, FileArgs, NodeArgs, OutputArgs, Rank, Sources};
use crate::exit::{Failure, Outcome};
use crate::report::Log;
use crate::text::is_pattern;

/// Options and locks of a subcommand.
pub(super) struct Common<'a> {
    pub(super) files: &'a FileArgs,
    output: &'a OutputArgs,
    /// Names of the locks, as far as they are known.
    pub(super) locks: Vec<String>,
}

impl OutputArgs {
    /// Returns `--quiet` and `--verbose`. They contradict each other only if their sources are of one rank; else the higher one
    /// decides. Of two variables it is `RLOCK_VERBOSE`.
    pub fn volume(&self, sources: &Sources) -> Result<(bool, bool), Failure> {
        if !(self.quiet && self.verbose) {
            return Ok((self.quiet, self.verbose));
        }
        let (of_quiet, of_verbose) = (sources.of("quiet").rank(), sources.of("verbose").rank());
        if of_quiet == of_verbose && of_quiet != Rank::Variable {
            let message = "--quiet and --verbose contradict each other: give one of them";
            return Err(Failure::new(Outcome::Usage, message));
        }
        Ok((of_quiet > of_verbose, of_verbose >= of_quiet))
    }
}

impl Command {
    /// Returns `None` for the subcommands that print generated files.
    pub(super) fn common(&self) -> Option<Common<'_>> {
        let of = |nodes, output, locks: &[String]| (nodes, output, locks.to_vec());
        let (nodes, output, locks): (&NodeArgs, _, _) = match self {
            Self::Run(args) => of(&args.lock.nodes, &args.output, &args.lock.keys),
            Self::Acquire(args) => of(&args.lock.nodes, &args.output, &args.lock.keys),
            Self::Renew(args) => of(&args.held.nodes, &args.output, std::slice::from_ref(&args.held.key)),
            Self::Release(args) => of(&args.held.nodes, &args.output, std::slice::from_ref(&args.held.key)),
            Self::Check(args) => of(&args.held.nodes, &args.output, std::slice::from_ref(&args.held.key)),
            Self::Inspect(args) => {
                let names = args.keys.iter().chain(args.words.iter().filter(|word| !is_pattern(word)));
                (&args.nodes, &args.output, names.cloned().collect())
            }
            Self::Break(args) => (&args.nodes, &args.output, args.key.iter().chain(&args.name).cloned().collect()),
            Self::Doctor(args) => of(&args.nodes, &args.output, &args.keys),
            Self::Config(args) => {
                return Some(Common { files: &args.files, output: &args.output, locks: args.keys.clone() });
            }
            Self::Completions { .. } | Self::Man { .. } => return None,
        };
        Some(Common { files: &nodes.files, output, locks })
    }

    /// Returns the options of the lines that rlock prints.
    pub(super) fn output_mut(&mut self) -> Option<&mut OutputArgs> {
        match self {
            Self::Run(args) => Some(&mut args.0.output),
            Self::Acquire(args) => Some(&mut args.0.output),
            Self::Renew(args) => Some(&mut args.0.output),
            Self::Release(args) => Some(&mut args.0.output),
            Self::Check(args) => Some(&mut args.0.output),
            Self::Inspect(args) => Some(&mut args.0.output),
            Self::Break(args) => Some(&mut args.0.output),
            Self::Doctor(args) => Some(&mut args.0.output),
            Self::Config(args) => Some(&mut args.0.output),
            Self::Completions { .. } | Self::Man { .. } => None,
        }
    }

    /// Returns `--log`.
    pub fn log(&self) -> Log {
        self.common().map_or(Log::Text, |common| common.output.log.form())
    }
}
