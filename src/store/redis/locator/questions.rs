//! Questions to other servers whose answers callers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, MutexGuard};

use super::apart;

/// One kind of question, and the answer to the last one. Questions are numbered, because two
/// instants may be equal.
pub(super) struct Questions<T>(Arc<Numbered<T>>);

struct Numbered<T> {
    /// Number of questions so far.
    asked: AtomicU64,
    /// The number of the last question, and its answer.
    last: Mutex<Option<(u64, T)>>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self(Arc::new(Numbered {
            asked: AtomicU64::default(),
            last: Mutex::default(),
        }))
    }
}

impl<T> Questions<T> {
    /// Returns the number of questions so far.
    pub(super) fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Keeps other questions back. The caller must be polled until it drops this.
    pub(super) async fn turn(&self) -> MutexGuard<'_, Option<(u64, T)>> {
        self.0.last.lock().await
    }
}

impl<T: Clone + Send + 'static> Questions<T> {
    /// Returns the answer to a question that is sent after this call. Callers that come at the same
    /// time share one, if it `fits` them.
    pub(super) async fn answer(
        &self,
        fits: impl Fn(&T) -> bool + Send + 'static,
        ask: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (questions, before) = (Arc::clone(&self.0), self.asked());
        apart(async move {
            let mut last = questions.last.lock().await;
            if let Some((_, answer)) = last
                .as_ref()
                .filter(|(number, answer)| *number > before && fits(answer))
            {
                return answer.clone();
            }
            let number = questions.asked.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = ask.await;
            *last = Some((number, answer.clone()));
            answer
        })
        .await
    }
}
