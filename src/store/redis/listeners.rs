//! The waiters of this process that listen to one server, each on a channel of its own.

use std::sync::{Arc, Mutex, PoisonError};

use redis::PushInfo;
use tokio::sync::mpsc;

use super::connection::Hearing;
use super::reply;
use crate::store::Wake;

/// Wake-ups buffered per waiter. More are pointless: each one triggers a full re-check.
const BUFFERED: usize = 16;

/// Passes each wake-up on to the waiter on whose channel it came.
#[derive(Clone, Default)]
pub struct Listeners(Arc<Mutex<Vec<Listener>>>);

struct Listener {
    channel: String,
    words: mpsc::Sender<Wake>,
}

/// The words that come for one lock.
pub struct Words {
    sender: mpsc::Sender<Wake>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<Wake>>,
}

impl Default for Words {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(BUFFERED);
        Self {
            sender,
            receiver: tokio::sync::Mutex::new(receiver),
        }
    }
}

impl Words {
    /// The next wake-up. May be dropped and called again.
    pub async fn next(&self) -> Wake {
        match self.receiver.lock().await.recv().await {
            Some(wake) => wake,
            None => std::future::pending().await,
        }
    }

    /// The next wake-up, if there is one already.
    pub fn try_next(&self) -> Option<Wake> {
        self.receiver.try_lock().ok()?.try_recv().ok()
    }
}

impl Listeners {
    /// Passes what comes on `channel` on to `words` from now on, as long as those exist.
    pub fn add(&self, channel: &str, words: &Words) {
        let mut all = self.all();
        all.retain(|listener| listener.channel != channel && !listener.words.is_closed());
        all.push(Listener {
            channel: channel.to_owned(),
            words: words.sender.clone(),
        });
    }

    /// Returns what a connection tells these listeners by.
    pub fn hearing(&self) -> Hearing {
        let listeners = self.clone();
        Arc::new(move |push| listeners.tell(push))
    }

    /// Passes on what the server said of its own accord, if it is a wake-up.
    fn tell(&self, push: &PushInfo) {
        if let Some((channel, wake)) = reply::wake(push)
            && let Some(listener) = self
                .all()
                .iter()
                .find(|listener| listener.channel.as_bytes() == channel)
        {
            let _ = listener.words.try_send(wake);
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
