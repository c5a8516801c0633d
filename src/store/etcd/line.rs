//! Tasks that listen: a waiter for its turn, and a holder for a hand on its entry.
//!
//! A waiter watches the nearest entry that keeps it out. When that goes, the waiter proves that its
//! own is there, which tells whether another one stands before it. If none does, the client is told,
//! and takes the lock with this proof. A watch may fall silent, so the waiter also looks by itself,
//! the more often the nearer it is to its turn. Meanwhile its lease is kept alive. No decision
//! depends on what a watch says: a proof comes before it is believed.

use std::sync::Arc;
use std::time::Duration;

use super::lock::{Ahead, Lock, Place};
use super::proof::Proof;
use super::rpc::{WatchResponse, read};
use crate::clock;
use crate::lock::schedule::Term;
use crate::store::etcd::link::Answers;
use crate::store::{Fault, FaultKind, Hint, Wake, Wakes};

/// Pause before a watch is begun again that broke off.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// Events of a watch: the key was put, or deleted.
pub(super) const PUT: i32 = 0;
const DELETED: i32 = 1;

impl Lock {
    /// Waits in the line at `place`, behind `ahead`, unless a task does so already: that looks for
    /// the next entry by itself.
    pub(super) fn wait(self: &Arc<Self>, place: Place, ahead: Ahead, term: Term) {
        let mut state = self.state();
        if state
            .waiting
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let lock = Arc::clone(self);
        let task = tokio::spawn(async move {
            // Either end is told, and the client asks then.
            tokio::select! {
                () = lock.keep_alive(&place, term) => {}
                () = lock.until_first(&place, term, ahead) => {}
                () = lock.until_superseded() => {}
            }
        });
        state.waiting = Some(task.abort_handle());
    }

    /// Keeps the lease of a place, until it is over. So the last keepalive is young enough for a
    /// proof whenever the waiter's turn comes.
    async fn keep_alive(&self, place: &Place, term: Term) {
        let every = term.renew_every();
        let mut pause = every;
        loop {
            sleep(pause).await;
            let alive = self
                .state()
                .alive
                .filter(|alive| alive.lease == place.lease);
            let age = alive.map_or(every, |alive| clock::now().since(alive.asked));
            if age < every {
                pause = every.saturating_sub(age);
                continue;
            }
            pause = match self.extended(place.lease).await {
                Ok(alive) if alive.ttl > 0 => every,
                // The client enters again when it asks.
                Ok(_) => return self.hints.tell(Hint::Woken(Wake::Recheck)),
                Err(_) => every / 10,
            };
        }
    }

    /// Tells the client when nothing stands before `place` any more.
    async fn until_first(&self, place: &Place, term: Term, mut ahead: Ahead) {
        loop {
            let behind = ahead.revision.saturating_add(1);
            let found = tokio::select! {
                gone = self.until_event(&ahead.next.key, behind, DELETED) => if gone.is_ok() {
                    self.turn(place, term).await
                } else {
                    sleep(AGAIN).await;
                    self.ahead(place).await
                },
                found = self.until_another(place, term, &ahead) => Ok(found),
            };
            match found {
                Ok(Some(next)) => ahead = next,
                Ok(None) => return self.hints.tell(Hint::Woken(Wake::YourTurn)),
                Err(_) => {}
            }
        }
    }

    /// Returns what stands before `place`. If nothing does, the proof of that waits for the client.
    async fn turn(&self, place: &Place, term: Term) -> Result<Option<Ahead>, Fault> {
        match self.prove_soon(place, term).await? {
            Proof::Ours { ahead: Some(_), .. } => self.ahead(place).await,
            proof => {
                self.state().turn = Some(proof);
                Ok(None)
            }
        }
    }

    /// Asks until another entry stands before `place`, or none. A watch is silent on a member that
    /// hangs, and the exchange leads to another one.
    async fn until_another(&self, place: &Place, term: Term, known: &Ahead) -> Option<Ahead> {
        // The further behind, the seldomer.
        let pause = self
            .client
            .limit()
            .saturating_mul(known.before.saturating_add(1));
        loop {
            sleep(pause.min(term.ttl() / 3)).await;
            match self.ahead(place).await {
                Ok(Some(next)) if next.next.key == known.next.key => {}
                Ok(found) => return found,
                Err(_) => {}
            }
        }
    }

    /// Returns when an event of this kind has happened to the key, at the revision `from` or later.
    pub(super) async fn until_event(&self, key: &[u8], from: i64, kind: i32) -> Result<(), Fault> {
        let mut watch = self.client.watch(key, from).await?;
        let is_meant = |answer: WatchResponse| answer.events.iter().any(|event| event.kind == kind);
        while !is_meant(heard(&mut watch).await?) {}
        Ok(())
    }

    /// Listens for the holder `place`: whatever happens to its entry is a reason to ask.
    pub(super) fn listen(self: &Arc<Self>, place: Place) {
        let lock = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _ = lock.until_touched(&place).await;
            lock.state().hears = false;
        });
        let mut state = self.state();
        if let Some(earlier) = state.listening.replace(task.abort_handle()) {
            earlier.abort();
        }
        state.hears = false;
    }

    async fn until_touched(&self, place: &Place) -> Result<(), Fault> {
        // An older revision may be compacted, and a watch from there is refused.
        let from = self.state().seen.saturating_add(1);
        let mut watch = self.client.watch(&place.key, from).await?;
        loop {
            let answer = heard(&mut watch).await?;
            if answer.created {
                self.state().hears = true;
            }
            if !answer.events.is_empty() {
                self.hints.tell(Hint::Woken(Wake::Recheck));
            }
        }
    }

    /// Whether the waiter or the holder is told when it is to ask again.
    pub(super) fn wakes(&self) -> Wakes {
        let state = self.state();
        let waits = state
            .waiting
            .as_ref()
            .is_some_and(|task| !task.is_finished());
        if waits || state.hears {
            Wakes::Yes
        } else {
            Wakes::No
        }
    }
}

/// Returns the next word of a watch.
async fn heard(watch: &mut Answers) -> Result<WatchResponse, Fault> {
    let fail = || Fault::new(FaultKind::Unavailable, "the watch has ended");
    let answer = watch.next().await.map_err(|_| fail())?;
    let answer: WatchResponse = read(&answer.ok_or_else(fail)?)?;
    // A revision that was compacted, or a right that is missing.
    if answer.canceled {
        Err(fail())
    } else {
        Ok(answer)
    }
}

pub(super) async fn sleep(pause: Duration) {
    clock::until(clock::now() + pause, std::future::pending::<()>()).await;
}
