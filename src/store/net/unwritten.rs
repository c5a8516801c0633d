//! The requests that rlock has still to write before it may exit.

use std::time::Duration;

use tokio::sync::watch;

use crate::clock;
use crate::store::Pending;

/// Counts the requests of a lock that the kernel does not have yet.
#[derive(Clone, Default)]
pub(in crate::store) struct Writes(watch::Sender<usize>);

/// A request that the kernel does not have yet.
pub(in crate::store) struct Unwritten(Writes);

impl Writes {
    /// Counts one more, until what is returned is dropped.
    pub(in crate::store) fn begin(&self) -> Unwritten {
        self.0.send_modify(|number| *number += 1);
        Unwritten(self.clone())
    }

    /// Returns whether the kernel has all of them within `limit`.
    pub(in crate::store) fn written(&self, limit: Duration) -> Pending<bool> {
        let mut number = self.0.subscribe();
        Box::pin(async move {
            let written = number.wait_for(|number| *number == 0);
            clock::until(clock::now() + limit, written).await.is_some()
        })
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.0.0.send_modify(|number| *number -= 1);
    }
}
