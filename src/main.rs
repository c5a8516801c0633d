//! `rlock`: runs a command under a distributed lock. Parse, dispatch, exit code.

use std::process::ExitCode;

use nix::sys::signal::Signal;
use rlock::job::signals;
use rlock::{cli, command, exit, report};

fn main() -> ExitCode {
    report::announce_bugs();
    // A bug must not look like a busy lock or a failed command.
    let outcome = std::panic::catch_unwind(|| {
        let log = cli::log_format(std::env::args_os());
        match cli::parse(std::env::args_os())
            .and_then(|parsed| parsed.map_or(Ok(exit::Outcome::Done), command::dispatch))
        {
            Ok(outcome) => outcome,
            Err(error) => {
                report::failure(log, &error);
                exit::outcome_of(&error)
            }
        }
    });
    let outcome = outcome.unwrap_or(exit::Outcome::Bug);
    if let Some(signal) = outcome.dies_of().and_then(|number| Signal::try_from(number).ok()) {
        signals::die_of(signal);
    }
    outcome.into()
}
