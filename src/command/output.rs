//! What a subcommand prints on stdout because it was asked to.

use std::io::{self, Write};

/// Prints it whole. False if its reader has gone away (`| head`), which has seen enough.
pub(super) fn print(text: &[u8]) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
