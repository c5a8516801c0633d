//! The wait of a client for a lock of this machine: what it watches, and the gate that it keeps closed.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::file::LockFile;
use super::files::Files;
use super::gate::Gate;
use super::table::Table;
use super::watch::Watch;
use crate::lock::mode::Mode;
use crate::node::{Pending, Wake};

/// The change that a waiter waits for, since its last attempt.
pub(super) struct Awaited {
    pub(super) until: Until,
    /// The files of the lock, and the waiter's value, if members of another kind must leave for it.
    pub(super) gate: Option<(Files, String)>,
}

/// A change of the files of a lock.
pub(super) enum Until {
    /// The file is no longer the one at its path. A holder deletes it before it releases the lock.
    Gone(LockFile),
    /// A seat is free for a member of this kind.
    Room(Table, Mode),
}

/// The gate that a waiter has closed, if it has.
pub(super) type OwnGate = RefCell<Option<Gate>>;

/// The next word to a waiter. The gate is closed while any of these lives: from one attempt to the next, and no longer than
/// the wait for this very lock.
pub(super) struct Listening {
    word: Pending<Wake>,
    _gate: Rc<OwnGate>,
}

impl Listening {
    /// Begins to listen when it is polled first: not before the client waits. `awaited`: the change for which it
    /// waits since its last attempt.
    pub(super) fn new(awaited: &Rc<RefCell<Option<Awaited>>>, watch: &Rc<Watch>, gate: Rc<OwnGate>) -> Self {
        let (awaited, watch, own) = (Rc::clone(awaited), Rc::clone(watch), Rc::clone(&gate));
        let word = Box::pin(async move {
            let awaited = awaited.borrow_mut().take();
            if let Some(awaited) = awaited {
                if let Some((files, value)) = &awaited.gate {
                    close(&own, files, value);
                }
                // After a holder that was killed, and where no file can be watched, the waiter polls.
                if until(&awaited.until, &watch).await.is_ok() {
                    return Wake::Recheck;
                }
            }
            std::future::pending().await
        });
        Self { word, _gate: gate }
    }
}

impl Future for Listening {
    type Output = Wake;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wake> {
        self.word.as_mut().poll(cx)
    }
}

/// Closes the gate, unless it is closed already. One that was deleted is given up first.
fn close(own: &OwnGate, files: &Files, value: &str) {
    let mut gate = own.borrow_mut();
    if !gate.as_ref().is_some_and(Gate::stands) {
        *gate = None;
        *gate = files.close_gate(value);
    }
}

async fn until(until: &Until, watch: &Watch) -> io::Result<()> {
    // It may have happened before it was watched.
    match until {
        Until::Gone(file) => {
            watch.begin(file)?;
            while file.stands()? {
                watch.stirred().await?;
            }
        }
        Until::Room(table, mode) => {
            watch.begin_with_writes(table.file())?;
            while table.file().stands()? && table.free_seat(*mode, 1)?.is_none() {
                watch.stirred().await?;
            }
        }
    }
    Ok(())
}
