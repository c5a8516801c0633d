//! Remains of a release: the lock itself for a time, and a success.
//!
//! 1. A lock that stays keeps its entries, which a new session takes over. No process keeps that, so
//!    it ends by itself. Its timeout is the time for which the lock stays.
//! 2. A success is the data of a znode that no session ends. Its age is the time between its change
//!    and that of the holder's entry, both by the leader's clock.
//! 3. Both are done in the transaction that ends the place, so nothing stays unless it was ours.

use std::time::{Duration, SystemTime};

use futures_util::future::pending;

use super::ensemble::{Attachment, Closing, Visit};
use super::jute::{ANY_VERSION, Kind, Operation, Request, Stat, error};
use super::place::{Keeper, PAUSE, Place};
use super::{refused, visit};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::last::Entry;
use crate::lock::lease::Revoked;
use crate::lock::token::Token;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Fault, Parked, Release, ReleaseReply};
use crate::text::duration;

/// The lock or the success that is to stay, or both.
pub(super) struct Left {
    parked: Option<Parked>,
    success: Option<Entry>,
}

impl Left {
    /// Returns what is to stay of `place`; `None`: nothing is.
    pub(super) fn of(release: &Release, place: &Place) -> Option<Self> {
        let is_parked = |parked: &&Parked| parked.parks_tombstone || !place.is_broken;
        let parked = release.parked.as_ref().filter(is_parked).cloned();
        // A success that is copied stands here already.
        let note = release.note.as_ref().filter(|note| note.is_run);
        let success = note.filter(|note| note.success.is_some());
        let success = success.map(|note| note.entry.clone());
        (parked.is_some() || success.is_some()).then_some(Self { parked, success })
    }
}

impl Keeper {
    /// Refuses a lock that is to stay for longer than any session lasts.
    pub(super) async fn must_last_parked(&mut self, span: Duration) -> Result<(), Fault> {
        if span.is_zero() {
            return Ok(());
        }
        let attachment = Attachment {
            session: None,
            timeout: span,
            requests: &[Request::Close],
        };
        let attached = self
            .ensemble
            .attach(&attachment, &mut self.open, &mut self.closing)
            .await?;
        self.open = None;
        match attached.session {
            Some(session) if session.timeout < span => Err(too_long(session.timeout, span)),
            _ => Ok(()),
        }
    }

    /// Gives the place back and leaves what is to stay. If the ensemble refuses that, the place is
    /// given back all the same.
    pub(super) async fn give_back_leaving(
        &mut self,
        place: Place,
        left: &Left,
        unwritten: Unwritten,
        end: Instant,
    ) -> ReleaseReply {
        self.gone = Some((place.token, Revoked::Missing));
        self.set_wakes(false);
        let mut fault = Fault::timeout(self.ensemble.limit());
        let mut was_sent = false;
        while clock::now() < end {
            let is_repeated = was_sent;
            match clock::until(end, self.leave_behind(&place, left, &mut was_sent)).await {
                Some(Ok(Ok(()))) => return ReleaseReply::Released,
                Some(Ok(Err(why))) => {
                    let given_back = self.give_back(place, unwritten, end).await;
                    return without(given_back, &why, is_repeated);
                }
                // The servers may take no second connection of ours.
                Some(Err(other)) => (fault, self.wire) = (other, None),
                None => break,
            }
            self.open = None;
            clock::until(end.min(clock::now() + PAUSE), pending::<()>()).await;
        }
        self.open = None;
        self.ensemble.turn();
        ReleaseReply::Failed(fault)
    }

    /// Ends the place and leaves what is to stay, or does neither and returns why that was refused.
    /// Notes whether the request was sent.
    async fn leave_behind(
        &mut self,
        place: &Place,
        left: &Left,
        was_sent: &mut bool,
    ) -> Result<Result<(), Fault>, Fault> {
        let (session, timeout) = match &left.parked {
            Some(parked) => (None, parked.left),
            None => (Some(&place.session), place.session.timeout),
        };
        let attachment = Attachment {
            session,
            timeout,
            requests: &[],
        };
        let (open, closing) = (&mut self.open, &mut self.closing);
        let attached = self.ensemble.attach(&attachment, open, closing).await;
        let (Some(session), Some(wire)) = (attached?.session, open) else {
            return Ok(Err(refused(error::SESSION_EXPIRED)));
        };
        if session.timeout < timeout {
            self.closing.extend(self.open.take().map(Closing::of));
            return Ok(Err(too_long(session.timeout, timeout)));
        }
        let mark = self.path.mark().to_owned();
        // A part of a transaction cannot be left out because its znode is there.
        let made = left.success.as_ref().map(|_| {
            let create = Operation::Create(mark.clone(), Vec::new(), Kind::Persistent);
            wire.queue(&Request::Multi(vec![create]))
        });
        let mut parts = self.path.deletions(&place.own);
        if let Some(parked) = &left.parked {
            let mut data = vec![Vec::new(); place.own.len()];
            if let (Some(last), 1..) = (data.last_mut(), place.index) {
                *last = place.index.to_string().into_bytes();
            }
            data[0] = parked.value.clone().into_bytes();
            let again = |(name, data): (&String, Vec<u8>)| {
                Operation::Create(self.path.child(name), data, Kind::Ephemeral)
            };
            parts.extend(place.own.iter().zip(data).map(again));
        }
        if let Some(success) = &left.success {
            let line = success.line(clock::unix_millis(SystemTime::now()));
            parts.push(Operation::Set(mark, line.into_bytes(), ANY_VERSION));
        }
        let ended = wire.queue(&Request::Multi(parts));
        *was_sent = true;
        let mut why = None;
        if let Some(made) = made {
            let made = wire.reply(made).await?.multi()?;
            why = made.err().filter(|code| *code != error::NODE_EXISTS);
        }
        let ended = wire.reply(ended).await?.multi()?;
        let wire = self.open.take();
        if let Err(code) = ended {
            if left.parked.is_some() {
                self.closing.extend(wire.map(Closing::of));
            } else {
                self.wire = wire;
            }
            return Ok(Err(refused(why.unwrap_or(code))));
        }
        // The session of a lock that stays has no connection, and no end before its time.
        let over = if left.parked.is_some() {
            self.wire.take()
        } else {
            wire
        };
        self.closing.extend(over.map(Closing::of));
        Ok(Ok(()))
    }
}

/// Returns the reply to a release of which nothing could stay.
fn without(given_back: ReleaseReply, why: &Fault, is_repeated: bool) -> ReleaseReply {
    match given_back {
        ReleaseReply::Released => ReleaseReply::without(why),
        ReleaseReply::NotOurs(_) if is_repeated => ReleaseReply::unheard(),
        other => other,
    }
}

fn too_long(longest: Duration, span: Duration) -> Fault {
    let (longest, span) = (duration::show(longest), duration::show(span));
    Fault::unfit(
        format!("its longest session is {longest}, and the lock is to stay for {span}"),
        "give a shorter --hold-at-least, or raise maxSessionTimeout",
    )
}

/// Reads the data of the znode that tells the last success; `None`: no rlock wrote them. `now`: the
/// leader's unix time in ms.
pub(super) fn success(data: &[u8], stat: Stat, now: u64) -> Option<Entry> {
    let line = std::str::from_utf8(data).ok()?;
    let age = Duration::from_millis(now.saturating_sub(stat.mtime));
    Some(Entry {
        age,
        ..Entry::read(line, 0)?
    })
}

/// Deletes the success of `token`. Returns how it is not that token's, if it is not.
pub(super) async fn forget(
    visit: Visit,
    mark: &str,
    told: Result<(Vec<u8>, Stat), i32>,
    token: Token,
) -> Result<Option<Revoked>, Fault> {
    let (data, stat) = match told {
        Ok(told) => told,
        Err(error::NO_NODE) => (Vec::new(), Stat::default()),
        Err(code) => return Err(refused(code)),
    };
    if success(&data, stat, 0).is_none_or(|entry| entry.token != token) {
        visit.end().await;
        return Ok(Some(if data.is_empty() {
            Revoked::Missing
        } else {
            Revoked::TakenOver
        }));
    }
    let delete = Operation::Delete(mark.to_owned(), stat.version);
    visit::change(visit, vec![delete]).await
}
