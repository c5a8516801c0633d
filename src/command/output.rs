//! Output on stdout.

use std::io;

use crate::report::Problem;

/// Writes `text` to stdout, at once if the kernel takes it. std would report success for a closed stdout.
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

/// Prints `text`; false if its reader has gone away (`| head`).
pub(super) fn print(text: &[u8]) -> anyhow::Result<bool> {
    match write_all(text) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Problem::NotPrinted { error: &error }.failure().into()),
    }
}
