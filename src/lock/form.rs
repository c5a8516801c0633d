//! The form in which a lock is stored: which clients of other projects respect it.

/// `--as`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Form {
    /// A string, which every client that uses `SET key value NX` respects.
    Rlock,
    /// A hash as Redisson's, whose clients respect it and are told of its end.
    Redisson,
}
