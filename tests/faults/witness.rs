//! The witness: the command of a scene, which ticks into a file every millisecond for as long as it
//! runs.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, Signal, signal};

use testkit::now;

/// First word of the command line of a witness, which is this program.
pub(crate) const WORD: &str = "--witness";

/// Runs `--witness FILE [child|straggler|once]`: it ignores TERM, and ticks.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let file = words.next().context("a file")?;
    let role = words.next().unwrap_or_default();
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }?;
    match role.as_str() {
        "child" => another(&file, false)?,
        "straggler" => another(&file, true)?,
        _ => {}
    }
    let mut out = OpenOptions::new().create(true).append(true).open(&file)?;
    loop {
        out.write_all(format!("{} {}\n", now().as_nanos(), std::process::id()).as_bytes())?;
        if role == "once" {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn another(file: &str, leave: bool) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([WORD, file]);
    if leave {
        // SAFETY: one async-signal-safe call.
        unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into)) };
    }
    command.spawn()?;
    Ok(())
}
