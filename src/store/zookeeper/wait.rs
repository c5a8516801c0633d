//! A waiter in the line, and a holder that listens: watches, and the session between two proofs.

use super::jute::Request;
use super::place::{Keeper, PAUSE, Proof, Stage, TRIES, list, watched};
use super::supersede::{self, Superseding};
use super::view::{Before, View};
use super::visit;
use crate::clock;
use crate::lock::lease::Revoked;
use crate::lock::queue::Wake;
use crate::lock::token::Token;
use crate::store::Hint;

impl Keeper {
    pub(super) async fn listen(&mut self, token: Token) {
        let (Some(place), Some(wire)) = (&self.place, &mut self.wire) else {
            return;
        };
        if place.token != token || !place.is_held() {
            return;
        }
        let requests = place.watches(&self.path);
        let xids: Vec<i32> = requests.map(|request| wire.queue(&request)).collect();
        let is_broken = |data: &Vec<u8>| visit::breaker(data).is_some();
        match watched(wire, &xids).await {
            Ok(Ok(data)) if !data.iter().any(is_broken) => self.set_wakes(true),
            Ok(_) => {
                self.set_wakes(false);
                self.tell(Hint::Woken(Wake::Recheck));
            }
            Err(_) => {
                self.wire = None;
                self.tell(Hint::Changed);
            }
        }
    }

    /// Looks at the line again, since a znode that was watched has changed.
    pub(super) async fn walk(&mut self) {
        let (Some(place), Some(wire)) = (&self.place, &mut self.wire) else {
            return;
        };
        if place.is_held() {
            // It may have been our own change.
            let token = place.token;
            return self.listen(token).await;
        }
        match list(wire, &self.path, place.mode).await {
            Ok(names) => {
                let view = place.view(&names);
                self.watch(view).await;
            }
            Err(_) => self.break_off(),
        }
    }

    /// Watches the entry that keeps the waiter out, or tells it that none does.
    async fn watch(&mut self, mut view: View) {
        for _ in 0..TRIES {
            let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
                return;
            };
            let Some(at) = view.line.place(place.token) else {
                self.forget(Revoked::Missing);
                return self.tell(Hint::Changed);
            };
            let before = view.before(at).filter(|before| *before != Before::NoLease);
            let Some(before) = before else {
                let stage = std::mem::replace(&mut place.stage, Stage::IsTold(Some(view)));
                self.due = place.due(clock::now(), self.ensemble.limit());
                if !matches!(stage, Stage::IsTold(_)) {
                    self.tell(Hint::Woken(Wake::YourTurn));
                }
                return;
            };
            place.note_rank(&view);
            self.due = place.due(clock::now(), self.ensemble.limit());
            if place.superseding != Superseding::Never {
                match supersede::newer(wire, self.path.child(&place.own[1])).await {
                    Ok(Some(_)) => return self.tell(Hint::Woken(Wake::Recheck)),
                    Ok(None) => {}
                    Err(_) => return self.break_off(),
                }
            }
            match before.stands(wire, &self.path, true).await {
                Ok(true) => return self.set_wakes(true),
                Ok(false) => {}
                Err(_) => return self.break_off(),
            }
            match list(wire, &self.path, place.mode).await {
                Ok(names) => view = place.view(&names),
                Err(_) => return self.break_off(),
            }
        }
    }

    /// Drops a connection that is of no use, to attach the session again.
    pub(super) fn break_off(&mut self) {
        self.wire = None;
        self.due = clock::now();
        self.set_wakes(false);
    }

    /// Proves a waiter's place again. A holder is told, and proves its own.
    pub(super) async fn prove_again(&mut self) {
        let Some(place) = &self.place else { return };
        if place.is_held() {
            return self.tell(Hint::Changed);
        }
        self.due = clock::now() + PAUSE;
        match self.prove(place.term, None).await {
            Ok(Proof::Stands { view, .. }) => self.watch(view).await,
            Ok(Proof::Lost(how)) => {
                self.forget(how);
                self.tell(Hint::Changed);
            }
            Ok(Proof::Changed) | Err(_) => {}
        }
    }

    /// Lets the server hear of a waiter's session. A server that did not answer the last time is
    /// left.
    pub(super) fn ping(&mut self) {
        let (Some(place), Some(wire)) = (&self.place, &mut self.wire) else {
            return;
        };
        if clock::now().since(wire.heard) > place.session.timeout * 2 / 3 {
            return self.break_off();
        }
        wire.queue(&Request::Ping);
        self.due = clock::now() + place.session.timeout / 3;
    }
}
