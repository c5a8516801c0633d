//! What the cases share: servers, the binary under test, and waiting for events.

mod certificates;
mod client;
#[path = "../../../benches/support/line.rs"]
mod line;
mod nodes;
#[path = "../../../benches/support/port.rs"]
mod port;
mod processes;
mod proxy;
mod pty;
mod rlock;
mod rooted;
mod server;

pub(crate) use certificates::Certificates;
pub(crate) use client::Client;
pub(crate) use nodes::Nodes;
pub(crate) use port::Port;
pub(crate) use processes::{alive, children, eventually, guard_of, parent, signal, state};
pub(crate) use proxy::{Alias, far, far_at_first, slow};
pub(crate) use pty::Session;
pub(crate) use rlock::{Finished, Rlock, Running, rlock, rlock_words};
pub(crate) use rooted::{NOBODY, Rooted};
pub(crate) use server::{LOADS_SLOWLY, Server};

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, Once};
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal};

/// No wait of a test that passes takes this long, however busy the machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A job in the background of a shell without job control has SIGINT and SIGQUIT ignored, one under nohup SIGHUP, and passes
/// that on. What the tests start is to find them as at a terminal, wherever the tests themselves run.
fn unignore_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
            // SAFETY: no handler is installed.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }.expect("a disposition");
        }
    });
}

/// Says why tests that pass have shown nothing: once, and past the runner, which keeps to itself what they print.
pub(crate) fn skipped(why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().expect("no panic").insert(why.to_owned()) {
        writeln!(std::io::stderr(), "skipped: {why}").expect("stderr");
    }
}
