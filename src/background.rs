//! Threads beside the one that waits, renews and supervises. They get no signal: all signals stay
//! with that one.

use std::io;
use std::thread::Builder;

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread with a stack of `stack` bytes.
pub fn spawn(name: &str, stack: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = Builder::new()
        .name(name.to_owned())
        .stack_size(stack)
        .spawn(run);
    before.thread_set_mask()?;
    started.map(drop)
}
