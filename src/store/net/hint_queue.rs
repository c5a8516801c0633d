//! Words of a store for the client of a lock, between its requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::store::{Hint, Pending};

/// The hints that the client of a lock has not heard yet, and the connections that broke since it
/// heard of one.
pub(in crate::store) struct HintQueue(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<Hint>>,
    /// Tells that there is a new hint.
    told: Notify,
    breaks: Mutex<watch::Receiver<()>>,
}

impl HintQueue {
    /// Those of a lock whose connections are shared with others. `breaks` changes when one breaks.
    pub(in crate::store) fn of(breaks: watch::Receiver<()>) -> Self {
        Self(Arc::new(Inner {
            waiting: Mutex::default(),
            told: Notify::new(),
            breaks: Mutex::new(breaks),
        }))
    }

    /// Tells the client `hint`. One that waits already is not added, so that a server which floods
    /// us with events costs no memory.
    pub(in crate::store) fn tell(&self, hint: Hint) {
        let mut waiting = self.0.waiting();
        if !waiting.contains(&hint) {
            waiting.push_back(hint);
        }
        drop(waiting);
        self.0.told.notify_one();
    }

    /// Drops what was not heard yet.
    #[cfg(feature = "etcd")]
    pub(in crate::store) fn clear(&self) {
        self.0.waiting().clear();
    }

    /// Returns the next hint, [`Hint::Changed`] for a break. May be dropped and called again.
    pub(in crate::store) fn next(&self) -> Pending<Hint> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            loop {
                let told = inner.told.notified();
                if let Some(hint) = inner.waiting().pop_front() {
                    return hint;
                }
                // A copy has heard what the original has. If this wait is dropped, nothing was
                // heard.
                let mut breaks = inner.breaks().clone();
                tokio::select! {
                    () = told => {}
                    Ok(()) = breaks.changed() => {
                        *inner.breaks() = breaks;
                        return Hint::Changed;
                    }
                }
            }
        })
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Hint>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breaks(&self) -> MutexGuard<'_, watch::Receiver<()>> {
        self.breaks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for HintQueue {
    fn default() -> Self {
        Self::of(watch::Sender::default().subscribe())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::virtual_time;
    use crate::store::Wake;

    const RECHECK: Hint = Hint::Woken(Wake::Recheck);

    #[test]
    fn a_hint_waits_once_and_before_a_break() {
        virtual_time::run(async {
            let broken = watch::Sender::default();
            let hints = HintQueue::of(broken.subscribe());
            let heard = || hints.next().now_or_never();
            assert_eq!(heard(), None);
            broken.send_replace(());
            hints.tell(RECHECK);
            hints.tell(RECHECK);
            assert_eq!(heard(), Some(RECHECK));
            assert_eq!(heard(), Some(Hint::Changed));
            assert_eq!(heard(), None);
        });
    }

    #[test]
    fn a_break_that_no_caller_waited_for_is_told_once() {
        virtual_time::run(async {
            let broken = watch::Sender::default();
            broken.send_replace(());
            let hints = HintQueue::of(broken.subscribe());
            let heard = || hints.next().now_or_never();
            assert_eq!(heard(), None, "it broke before the lock was opened");
            broken.send_replace(());
            broken.send_replace(());
            assert_eq!(heard(), Some(Hint::Changed));
            assert_eq!(heard(), None);
        });
    }
}
