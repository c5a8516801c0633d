//! rlock: holds a distributed lock around a command.
//!
//! One promise stands above all: while the command can still run, no other client holds the lock.
//! If rlock cannot keep that true, the command is dead before the lock can pass on.
//! `docs/design.md` is the contract, and `docs/glossary.md` has its terms.
//!
//! Imports point downwards only: `command` → `settings` → `cli` → `store` → `lock`, `command` →
//! `hold` → `store`, and `cli` → `report` → `job` → `lock`. `lock` and `job::policy` are pure. The
//! library exists for the binary, its tests and its benches; it promises no stable interface of its
//! own.

/// The version, with the commit and its date where the build names them (`packaging/release`).
pub const VERSION: &str = match option_env!("RLOCK_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

pub mod cli;
pub mod clock;
pub mod command;
pub mod exit;
pub mod hold;
pub mod job;
pub mod lock;
pub mod metrics;
pub mod report;
pub mod secret;
pub mod settings;
pub mod store;
pub mod text;
pub mod user;
