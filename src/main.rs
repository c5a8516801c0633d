//! `rlock`: runs a command under a distributed lock. Parse, dispatch, exit code.
//!
//! `no_main`, because Rust's runtime ignores SIGPIPE and re-opens descriptors 0 to 2 before `main`:
//! [`Inherited::capture`] could not see what was inherited. It does for rlock what rlock needs of
//! that runtime.

#![no_main]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use dlmalloc::{GlobalDlmalloc, enable_alloc_after_fork};
use nix::sys::signal::Signal;
use rlock_cli::exit::Outcome;
use rlock_cli::job::signals;
use rlock_cli::job::spawn::Inherited;
use rlock_cli::report::Log;
use rlock_cli::{cli, command, exit, report, settings};

/// musl's own maps and unmaps pages all the time, which makes a run a third longer.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

// SAFETY: nothing else in the program has this name.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: it is called once, before the first allocation.
    unsafe { enable_alloc_after_fork() };
    // SAFETY: the C runtime passes `count` strings, and nothing in rlock writes to them.
    let args = unsafe { owned(count, words) };
    let mut log = cli::log_format(&args);
    report::end_at_panic(log);
    let outcome = run(args, &mut log).unwrap_or_else(|error| {
        report::failure(log, &error);
        exit::outcome_of(&error)
    });
    report::finish();
    if let Some(signal) = outcome
        .reraised_signal()
        .and_then(|number| Signal::try_from(number).ok())
    {
        signals::reraise(signal);
    }
    let _ = std::io::stdout().flush();
    c_int::from(outcome.code())
}

/// `log` becomes the form of lines that the configuration files ask for.
fn run(args: Vec<OsString>, log: &mut Log) -> anyhow::Result<Outcome> {
    let inherited = Inherited::capture()?;
    let Some(parsed) = cli::parse(args)? else {
        return Ok(Outcome::Done);
    };
    let (mut command, sources) = settings::complete(parsed)?;
    let asked = command.log();
    if asked != std::mem::replace(log, asked) {
        report::end_at_panic(asked);
    }
    command::dispatch(command, &sources, &inherited)
}

/// # Safety
/// `words` points to `count` strings.
unsafe fn owned(count: c_int, words: *const *const c_char) -> Vec<OsString> {
    let count = usize::try_from(count).unwrap_or(0);
    let word = |index| {
        // SAFETY: the caller guarantees it.
        OsStr::from_bytes(unsafe { CStr::from_ptr(*words.add(index)) }.to_bytes()).to_owned()
    };
    (0..count).map(word).collect()
}
