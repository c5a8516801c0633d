//! What the cases share: servers, the binary under test, and waiting for events.

mod certificates;
mod nodes;
mod processes;
mod proxy;
mod pty;
mod rlock;
mod server;

pub(crate) use certificates::Certificates;
pub(crate) use nodes::Nodes;
pub(crate) use processes::{alive, eventually, parent, signal, state};
pub(crate) use proxy::{far, far_at_first, slow};
pub(crate) use pty::Session;
pub(crate) use rlock::{Finished, Rlock, Running, rlock, rlock_words};
pub(crate) use server::Server;

use std::time::Duration;

/// No wait of a test that passes takes this long, however busy the machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
