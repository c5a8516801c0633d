//! Files that a flag names: opened without waiting, and read without trusting their length.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the regular file `path` for reading. A FIFO without a writer would keep us for ever, a device has no end: what is no
/// regular file is an error.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let there = file.metadata()?;
    if there.is_file() { Ok((file, there)) } else { Err(io::Error::other("it is not a regular file")) }
}
