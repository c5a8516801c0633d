//! What a subcommand prints on stdout because it was asked to.

use std::io;

use crate::exit::{Failure, Outcome};

/// Writes `text` to stdout, in one go if the kernel takes it so. std would report a stdout that was closed as written to.
pub(super) fn write_all(mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match nix::unistd::write(io::stdout(), text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Prints it whole. False if its reader has gone away (`| head`), which has seen enough.
pub(super) fn print(text: &[u8]) -> anyhow::Result<bool> {
    match write_all(text) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Outcome::Config, format!("cannot print: {error}")).into()),
    }
}
