//! The tokio runtime that a subcommand runs on.

use tokio::runtime;

/// Runs `work` to its end, on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let result = runtime.block_on(work);
    // Dropping it would wait for a name look-up that hangs. The kernel frees the rest.
    std::mem::forget(runtime);
    result
}
