//! The test kit: what the suite, the soak, the faults, the benches and the fuzzers share. It is no
//! part of rlock and is not published.
//!
//! * Real parts that a test starts and that end with it: [`Server`], [`Nodes`], [`Watched`],
//!   [`Cluster`], [`Etcd`], [`MariaDb`], [`Postgres`], [`PgBouncer`], [`Proxy`], [`Alias`],
//!   [`Session`], [`Rlock`], [`Client`].
//! * Views from outside: [`processes`], [`witness`], [`measure`].
//! * Simulated parts: [`stream::Scripted`] is a server in memory and in virtual time,
//!   [`Server::set_clock`] a wrong clock.
//! * [`store_suite`]: what each store of locks must do, one test for each scenario and world.
//! * [`properties`]: what must hold of every input, one function for each fuzz target.
//!
//! Where a part cannot be started, the kit panics and names what is missing. The path of the binary
//! under test is passed in: only integration tests and benches of `rlock-cli` know it, as
//! `env!("CARGO_BIN_EXE_rlock")`.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a panic fails the test, with a message that names what was missing"
)]
#![allow(
    clippy::return_self_not_must_use,
    reason = "checks return what they have checked, for the next check"
)]

mod certificates;
pub mod cli;
mod client;
mod cluster;
mod cut_off;
mod database;
mod etcd;
pub mod measure;
mod mysql;
pub mod namespaces;
mod nodes;
mod plain_user;
mod port;
pub mod postgres;
pub mod processes;
pub mod program;
pub mod properties;
mod proxy;
mod pty;
mod rlock;
mod rooted;
mod server;
mod shared;
pub mod store_suite;
pub mod stream;
mod wait;
mod watched;
pub mod witness;
pub mod zookeeper;

pub use certificates::Certificates;
pub use client::Client;
pub use cluster::{Cluster, Move, NODE_TIMEOUT};
pub use cut_off::CutOff;
pub use database::Database;
pub use etcd::Etcd;
pub use mysql::MariaDb;
pub use nodes::Nodes;
pub use port::Port;
pub use postgres::{PgBouncer, Postgres};
pub use proxy::{Alias, Delay, Proxy, far, far_at_first, held_while, slow};
pub use pty::Session;
pub use rlock::{Finished, Rlock, Running};
pub use rooted::{NOBODY, Rooted};
pub use server::{LOADS_SLOWLY, Server};
pub use shared::Shared;
pub use wait::{LIMIT, eventually, eventually_within, now, until};
pub use watched::{Sentinel, Watched};
pub use zookeeper::ZooKeeper;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, Once};

use nix::sys::signal::{SigHandler, Signal};

/// Returns the root of rlock's repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Prints why a test that passes has shown nothing: once per reason, and past the test runner,
/// which captures stderr.
pub fn skipped(why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().expect("no panic").insert(why.to_owned()) {
        writeln!(std::io::stderr(), "skipped: {why}").expect("stderr");
    }
}

/// Restores the default action of signals that a background job of a shell (SIGINT, SIGQUIT) or
/// nohup (SIGHUP) ignores. Children inherit an ignored signal, and the tests need them as at a
/// terminal.
fn unignore_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
            // SAFETY: no handler is installed.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }.expect("a disposition");
        }
    });
}
