//! A waiter in the line, and a holder that listens: watches, and the session between two proofs.

use super::ensemble::{Attached, Attachment};
use super::jute::Request;
use super::place::{Keeper, PAUSE, TRIES, list, listed, lists, watched};
use super::supersede::{self, Superseding};
use super::view::Before;
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
        if place.token != token || !place.is_held {
            return;
        }
        let requests = place.watches(&self.path);
        let xids: Vec<i32> = requests.map(|request| wire.queue(&request)).collect();
        let is_broken = |data: &Vec<u8>| visit::breaker(data).is_some();
        match watched(wire, &xids).await {
            Ok(Ok(data)) if !data.iter().any(is_broken) => self.set_wakes(true),
            Ok(_) => self.tell(Hint::Woken(Wake::Recheck)),
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
        if place.is_held {
            self.set_wakes(false);
            return self.tell(Hint::Woken(Wake::Recheck));
        }
        match list(wire, &self.path, place.mode).await {
            Ok(names) => self.watch(names).await,
            Err(_) => self.break_off(),
        }
    }

    /// Watches the entry that keeps the waiter out, or tells it that none does.
    async fn watch(&mut self, mut names: Vec<String>) {
        for _ in 0..TRIES {
            let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
                return;
            };
            self.due = clock::now() + place.session.timeout / 3;
            let view = place.view(&names);
            let Some(at) = view.line.place(place.token) else {
                self.forget(Revoked::Missing);
                return self.tell(Hint::Changed);
            };
            let before = view.before(at).filter(|before| *before != Before::NoLease);
            let Some(before) = before else {
                if !std::mem::replace(&mut place.is_told, true) {
                    self.tell(Hint::Woken(Wake::YourTurn));
                }
                return;
            };
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
                Ok(listed) => names = listed,
                Err(_) => return self.break_off(),
            }
        }
    }

    /// Drops a connection that is of no use, to attach the session again.
    fn break_off(&mut self) {
        self.zxid = self.wire.take().map_or(self.zxid, |wire| wire.zxid);
        self.due = clock::now();
        self.set_wakes(false);
    }

    /// Attaches a waiter's session again. A holder is told, and proves its place.
    pub(super) async fn attach_again(&mut self) {
        self.break_off();
        let Some(place) = &self.place else { return };
        if place.is_held {
            return self.tell(Hint::Changed);
        }
        self.due = clock::now() + PAUSE;
        let mut requests = lists(&self.path, place.mode);
        requests.push(Request::Data(self.path.child(&place.own[0]), true));
        let count = requests.len() - 1;
        let attachment = Attachment {
            session: Some(&place.session),
            timeout: place.session.timeout,
            zxid: self.zxid,
            requests: &requests,
        };
        let attached = self
            .ensemble
            .attach(&attachment, &mut self.open, &mut self.closing);
        match attached.await {
            Ok(Attached { session: None, .. }) => {
                self.forget(Revoked::Missing);
                self.tell(Hint::Changed);
            }
            Ok(Attached { xids, .. }) => {
                let Some(wire) = &mut self.open else { return };
                let names = listed(wire, &xids[..count]).await;
                self.wire = self.open.take();
                match names {
                    Ok(Ok(names)) => self.watch(names).await,
                    Ok(Err(_)) | Err(_) => self.wire = None,
                }
            }
            Err(_) => {}
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
