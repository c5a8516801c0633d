//! Giving a place back: a waiter leaves the line, and a holder frees the lock. Both are written
//! behind all that is under way, and end the session.

use futures_util::future::{join_all, pending};

use super::ensemble::{Attachment, Closing};
use super::jute::{Request, error};
use super::place::{Keeper, PAUSE, Place};
use super::remains::Left;
use super::{refused, visit};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Fault, Release, ReleaseReply};

impl Keeper {
    /// Gives up the place of a waiter. A lock that is held stays.
    pub(super) async fn leave(&mut self, unwritten: Unwritten, end: Instant) {
        if let Some(place) = self.place.take_if(|place| !place.is_held()) {
            self.give_back(place, unwritten, end).await;
        }
    }

    /// Deletes the entries of a token and ends their session, behind all that was sent before.
    pub(super) async fn release(
        &mut self,
        release: &Release,
        unwritten: Unwritten,
        end: Instant,
    ) -> ReleaseReply {
        let token = release.token;
        if let Some(place) = self.place.take_if(|place| place.token == token) {
            return match Left::of(release, &place) {
                Some(left) => self.give_back_leaving(place, &left, unwritten, end).await,
                None => self.give_back(place, unwritten, end).await,
            };
        }
        if let Some((_, how)) = self.gone.filter(|(gone, _)| *gone == token) {
            return ReleaseReply::NotOurs(how);
        }
        if self.entering == Some(token) {
            let flushed = join_all(self.closing.iter_mut().map(Closing::flush));
            clock::until(end, flushed).await;
            drop(unwritten);
            let done =
                clock::until(end, join_all(self.closing.iter_mut().map(Closing::done))).await;
            match done {
                None => return ReleaseReply::Failed(Fault::timeout(self.ensemble.limit())),
                Some(done) => {
                    self.closing.clear();
                    if done.into_iter().all(|is_done| is_done) {
                        return ReleaseReply::NotOurs(Revoked::Missing);
                    }
                }
            }
        }
        let released = visit::release(&self.ensemble, &self.path, token);
        match clock::until(end, released).await {
            Some(Ok(None)) => ReleaseReply::Released,
            Some(Ok(Some(how))) => ReleaseReply::NotOurs(how),
            Some(Err(fault)) => ReleaseReply::Failed(fault),
            None => ReleaseReply::Failed(Fault::timeout(self.ensemble.limit())),
        }
    }

    /// Deletes the entries of `place` over the connection that it has. If there is none, it breaks, or
    /// its server does not answer within a third of the limit, the others are asked too.
    pub(super) async fn give_back(
        &mut self,
        place: Place,
        unwritten: Unwritten,
        end: Instant,
    ) -> ReleaseReply {
        self.gone = Some((place.token, Revoked::Missing));
        self.set_wakes(false);
        let deletion = Request::Multi(self.path.deletions(&place.own));
        let mut sent = None;
        if let Some(mut wire) = self.wire.take() {
            let xid = wire.queue(&deletion);
            let mut closing = Closing::of(wire);
            let flushed = clock::until(end, closing.flush()).await;
            if flushed.is_some_and(|flushed| flushed.is_ok()) {
                sent = Some((closing, xid));
            }
        }
        let Some((mut closing, xid)) = sent else {
            return self.give_back_anew(&place, deletion, false, end).await;
        };
        drop(unwritten);
        let silence = clock::now() + self.ensemble.limit() / 3;
        let reply = clock::until(end.min(silence), closing.reply_before(xid)).await;
        let released = match reply {
            Some(Ok(reply)) => released(reply, false),
            Some(Err(_)) => self.give_back_anew(&place, deletion, true, end).await,
            None => tokio::select! {
                Ok(reply) = closing.reply_before(xid) => released(reply, false),
                released = self.give_back_anew(&place, deletion, true, end) => released,
            },
        };
        self.closing.push(closing);
        released
    }

    /// Attaches the session of `place` anew to delete its entries. `is_sent`: that may have been done
    /// already.
    async fn give_back_anew(
        &mut self,
        place: &Place,
        deletion: Request,
        mut is_sent: bool,
        end: Instant,
    ) -> ReleaseReply {
        let mut fault = Fault::timeout(self.ensemble.limit());
        let requests = [deletion, Request::Close];
        let attachment = Attachment {
            session: Some(&place.session),
            timeout: place.session.timeout,
            requests: &requests,
        };
        while clock::now() < end {
            let attached = self
                .ensemble
                .attach(&attachment, &mut self.open, &mut self.closing);
            match clock::until(end, attached).await {
                Some(Ok(attached)) => {
                    is_sent |= attached.is_repeated;
                    if attached.session.is_none() {
                        return released(Ok(Err(error::SESSION_EXPIRED)), is_sent);
                    }
                    let Some(mut wire) = self.open.take() else {
                        break;
                    };
                    match clock::until(end, wire.reply(attached.xids[0])).await {
                        Some(Ok(reply)) => return released(reply.multi(), is_sent),
                        Some(Err(broken)) => (fault, is_sent) = (broken, true),
                        None => break,
                    }
                }
                Some(Err(other)) => fault = other,
                None => break,
            }
            clock::until(end.min(clock::now() + PAUSE), pending::<()>()).await;
        }
        self.open = None;
        self.ensemble.turn();
        ReleaseReply::Failed(fault)
    }
}

/// Returns the reply to a release. `may_have_run`: it was sent before.
fn released(deleted: Result<Result<Vec<String>, i32>, Fault>, may_have_run: bool) -> ReleaseReply {
    match deleted {
        Ok(Ok(_)) => ReleaseReply::Released,
        Ok(Err(error::NO_NODE | error::SESSION_EXPIRED)) if may_have_run => ReleaseReply::Released,
        Ok(Err(error::NO_NODE | error::SESSION_EXPIRED)) => ReleaseReply::NotOurs(Revoked::Missing),
        Ok(Err(code)) => ReleaseReply::Failed(refused(code)),
        Err(fault) => ReleaseReply::Failed(fault),
    }
}
