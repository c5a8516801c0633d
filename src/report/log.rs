//! `--log`: the form of the lines.

use std::io;

use clap::ValueEnum;
use nix::sys::stat::fstat;

/// Variable in which systemd names the stream that leads to the journal: `DEVICE:INODE`.
const STREAM: &str = "JOURNAL_STREAM";

/// `--log`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum LogMode {
    /// For the journal if systemd connected stderr with it, else text
    Auto,
    /// Lines for people: `rlock: …`
    Text,
    /// One JSON object a line: ts (unix ms), level, event, key, message
    Json,
    /// Text behind the level that systemd's journal reads: `<4>rlock: …`
    Journal,
}

/// Form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Log {
    Text,
    Json,
    Journal,
}

impl LogMode {
    /// Returns the form for this process's stderr.
    pub fn form(self) -> Log {
        match self {
            Self::Json => Log::Json,
            Self::Journal => Log::Journal,
            Self::Auto if leads_to_journal() => Log::Journal,
            Self::Text | Self::Auto => Log::Text,
        }
    }
}

/// Whether stderr is still the stream to the journal. A shell above rlock may have redirected it.
fn leads_to_journal() -> bool {
    let Ok(stream) = std::env::var(STREAM) else { return false };
    fstat(io::stderr()).is_ok_and(|file| names(&stream, file.st_dev, file.st_ino))
}

/// Whether `DEVICE:INODE` names this file.
fn names(stream: &str, device: u64, inode: u64) -> bool {
    let read = |number: &str| number.parse::<u64>().ok();
    stream.split_once(':').is_some_and(|(of, at)| (read(of), read(at)) == (Some(device), Some(inode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_its_device_and_inode() {
        assert!(names("8:1234", 8, 1234));
        for other in ["", "8", "8:", ":1234", "8:1235", "9:1234", "8:1234:0", "8:-1234", "x:y"] {
            assert!(!names(other, 8, 1234), "{other}");
        }
    }
}
