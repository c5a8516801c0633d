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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::super::ensemble::Ensemble;
    use super::super::path::LockPath;
    use super::super::place::Stage;
    use super::super::place::tests::place;
    use super::super::wire::Wire;
    use super::*;
    use crate::lock::key::Key;
    use crate::lock::token::Token;
    use crate::store::net::dial::{HostDial, boxed};
    use crate::store::net::hosts::Endpoint;
    use crate::store::net::quorum::QuorumAccess;

    const LIMIT: Duration = Duration::from_secs(3);

    /// Attaches a session, and finds no entry to delete.
    async fn find_nothing(mut stream: DuplexStream) {
        let greeting = [
            &0_i32.to_be_bytes()[..],
            &30_000_i32.to_be_bytes(),
            &1_i64.to_be_bytes(),
            &16_i32.to_be_bytes(),
            &[0; 16],
        ];
        let reply = [
            &1_i32.to_be_bytes()[..],
            &9_i64.to_be_bytes(),
            &error::NO_NODE.to_be_bytes(),
        ];
        for frame in [greeting.concat(), reply.concat()] {
            let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
            stream
                .write_all(&[&length[..], &frame].concat())
                .await
                .unwrap();
        }
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }

    fn keeper(dial: HostDial) -> Keeper {
        let host = |host: &str| Endpoint::Tcp {
            host: host.to_owned(),
            port: 2181,
            tls: false,
        };
        let access = QuorumAccess {
            hosts: vec![host("a"), host("b")],
            ..QuorumAccess::default()
        };
        let ensemble = Arc::new(Ensemble::new(access, dial, LIMIT));
        let path = LockPath::of("", &Key::new("", "job").unwrap()).unwrap();
        Keeper::new(ensemble, path, Arc::default())
    }

    /// Gives a lock back of which no entry is found, after this number of servers that do not answer.
    async fn given_back(silent: usize) -> ReleaseReply {
        let dialed = AtomicUsize::new(0);
        let dial: HostDial = Arc::new(move |_, _| {
            let (ours, mut theirs) = duplex(1 << 16);
            let is_silent = dialed.fetch_add(1, Ordering::Relaxed) < silent;
            tokio::spawn(async move {
                if is_silent {
                    let _ = theirs.read_to_end(&mut Vec::new()).await;
                } else {
                    find_nothing(theirs).await;
                }
            });
            Box::pin(async { boxed(Ok(ours)) })
        });
        let mut keeper = keeper(dial);
        let unwritten = keeper.shared.writes.begin();
        let place = place(clock::now(), Stage::IsHeld);
        keeper
            .give_back(place, unwritten, clock::now() + LIMIT)
            .await
    }

    #[tokio::test]
    async fn an_entry_that_a_silent_server_may_have_deleted_was_ours() {
        let once = given_back(0).await;
        assert!(
            matches!(once, ReleaseReply::NotOurs(Revoked::Missing)),
            "{once:?}"
        );
        let twice = given_back(1).await;
        assert!(matches!(twice, ReleaseReply::Released), "{twice:?}");
    }

    #[tokio::test]
    async fn entries_of_a_session_whose_end_is_not_answered_are_looked_for() {
        let mut keeper = keeper(Arc::new(|_, _| {
            Box::pin(async { Err(Fault::timeout(LIMIT)) })
        }));
        let token = Token::fresh();
        let (ours, _) = duplex(64);
        let wire = Wire::new(Box::new(ours), None, LIMIT);
        keeper.entering = Some(token);
        keeper.closing.push(Closing::of(wire));
        let unwritten = keeper.shared.writes.begin();
        let released = keeper
            .release(&Release::of(token), unwritten, clock::now() + LIMIT)
            .await;
        assert!(matches!(released, ReleaseReply::Failed(_)), "{released:?}");
    }
}
