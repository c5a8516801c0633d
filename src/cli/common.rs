//! Options and locks that all subcommands on locks have.

use super::{Command, FileArgs, NodeArgs, OutputArgs};
use crate::report::Log;
use crate::text::glob::Glob;

/// Options and locks of a subcommand.
pub(super) struct Common<'a> {
    pub(super) files: &'a FileArgs,
    output: &'a OutputArgs,
    /// Names of the locks, as far as they are known.
    pub(super) locks: Vec<String>,
}

impl Command {
    /// Returns `None` for the subcommands that print generated files.
    pub(super) fn common(&self) -> Option<Common<'_>> {
        let of = |nodes, output, locks: &[String]| (nodes, output, locks.to_vec());
        let (nodes, output, locks): (&NodeArgs, _, _) = match self {
            Self::Run(args) => of(&args.lock.nodes, &args.output, &args.lock.keys),
            Self::Acquire(args) => of(&args.lock.nodes, &args.output, &args.lock.keys),
            Self::Renew(args) => of(&args.held.nodes, &args.output, &args.held.names()),
            Self::Release(args) => of(&args.held.nodes, &args.output, &args.held.names()),
            Self::Check(args) => of(&args.held.nodes, &args.output, &args.held.names()),
            Self::Inspect(args) => {
                let names = args.keys.iter().chain(args.words.iter().filter(|word| !Glob::is_one(word)));
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

    /// Returns `--log`.
    pub fn log(&self) -> Log {
        self.common().map_or(Log::Text, |common| common.output.log.form())
    }
}
