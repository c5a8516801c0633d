//! Entering the line, and the answer to a claim whose place stands in it.

use super::ensemble::{Attached, Attachment, lease_end, must_last};
use super::jute::{ANY_VERSION, Kind, Operation, Request, error};
use super::line::{self, Line};
use super::path::{LockPath, name_of};
use super::place::{Keeper, Place, TRIES, list};
use super::second::Second;
use super::supersede::Superseding;
use super::wire::Wire;
use super::{refused, visit};
use crate::clock;
use crate::lock::blocker::Blocker;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::messages::ServerInfo;
use crate::lock::queue::QueuePosition;
use crate::store::{Answer, Claim, Fault, FaultKind, Vote};

impl Keeper {
    /// Enters the line with a new session.
    pub(super) async fn enter(&mut self, claim: &Claim) -> Result<Answer, Fault> {
        self.must_last_parked(claim.term.hold_at_least()).await?;
        self.entering = Some(claim.token);
        let all = Request::Children(self.path.as_str().to_owned());
        // Another process attaches to the session of a lock that no process keeps. It must know the
        // password, which the server tells first.
        let is_kept = claim.details.kept;
        let requests = [creation(&self.path, claim, &[]), all.clone()];
        let attachment = Attachment {
            session: None,
            timeout: claim.term.ttl(),
            zxid: 0,
            requests: if is_kept { &requests } else { &[] },
        };
        let attached = self
            .ensemble
            .attach(&attachment, &mut self.open, &mut self.closing);
        let Attached {
            session, mut xids, ..
        } = attached.await?;
        let (Some(session), Some(wire)) = (session, &mut self.open) else {
            return Err(refused(error::SESSION_EXPIRED));
        };
        must_last(&session, claim.term)?;
        let requests = if is_kept {
            requests
        } else {
            let creation = creation(&self.path, claim, &session.password);
            let requests = [creation, all.clone()];
            xids = requests.iter().map(|request| wire.queue(request)).collect();
            requests
        };
        let mut tries = 0..TRIES;
        let (created, zxid) = loop {
            let reply = wire.reply(xids[0]).await?;
            match reply.multi()? {
                Ok(created) => break (created, reply.header.zxid),
                Err(error::NO_NODE) if tries.next().is_some() => {}
                Err(code) => return Err(refused(code)),
            }
            make_containers(wire, &self.path).await?;
            xids = requests.iter().map(|request| wire.queue(request)).collect();
        };
        let own: Vec<String> = created.iter().map(|path| name_of(path)).collect();
        let mut children = list(wire, xids[1]).await?;
        let is_left_over = |name: &String| {
            Line::of(std::slice::from_ref(name))
                .place(claim.token)
                .is_some()
                && !own.contains(name)
        };
        let left: Vec<String> = children
            .iter()
            .filter(|name| is_left_over(name))
            .cloned()
            .collect();
        if !left.is_empty() {
            let delete = |name: &String| Operation::Delete(self.path.child(name), ANY_VERSION);
            wire.queue(&Request::Multi(left.iter().map(delete).collect()));
            let xid = wire.queue(&all);
            children = list(wire, xid).await?;
        }
        let fence = u64::try_from(zxid).ok().and_then(Fence::new);
        let until = lease_end(claim.term, wire.begun, session.timeout);
        let place = Place {
            token: claim.token,
            session,
            own,
            fence: fence.ok_or_else(|| {
                Fault::new(
                    FaultKind::Unfit,
                    "its transactions have no numbers that a fence could have",
                )
            })?,
            is_held: false,
            is_told: false,
            superseding: Superseding::of(claim),
            is_broken: false,
        };
        let line = place.line(&children);
        self.place = Some(place);
        self.wire = self.open.take();
        (self.entering, self.gone) = (None, None);
        self.judge(claim, line, until).await
    }

    /// Returns the answer to `claim`, whose place stands in `line` until then.
    pub(super) async fn judge(
        &mut self,
        claim: &Claim,
        mut line: Line,
        until: Instant,
    ) -> Result<Answer, Fault> {
        if let Some(newer) = self.supersede(claim, &line).await? {
            self.forget(Revoked::Missing);
            return Ok(Vote::Blocked(Blocker::Newer(Some(Box::new(newer)))).into());
        }
        for _ in 0..TRIES {
            let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
                break;
            };
            let Some(at) = line.place(claim.token) else {
                self.forget(Revoked::Missing);
                break;
            };
            let position = claim.ticket.as_ref().map(|_| QueuePosition {
                rank: u32::try_from(at.saturating_sub(line.holders())).ok(),
                now: 0,
                refused: None,
            });
            let Some(before) = line.before(at) else {
                (place.is_held, place.is_told) = (true, true);
                let vote = Vote::Granted {
                    until,
                    fence: place.fence,
                    index: 0,
                };
                return Ok(Answer {
                    vote,
                    server: ServerInfo::None,
                    position,
                });
            };
            let before = before.last_before(&line.0[at]);
            let watched = Request::Data(self.path.child(before), claim.ticket.is_some());
            let watched = wire.queue(&watched);
            let is_there = wire.reply(watched).await?.header.error == 0;
            let blocker = visit::blocker(wire, &self.path, &line, &claim.outer).await?;
            let Some(blocker) = blocker.filter(|_| is_there) else {
                let xid = wire.queue(&Request::Children(self.path.as_str().to_owned()));
                line = place.line(&list(wire, xid).await?);
                continue;
            };
            self.due = clock::now() + place.session.timeout / 3;
            place.is_told = false;
            if claim.ticket.is_none() {
                self.forget(Revoked::Missing);
                self.gone = None;
            } else {
                self.set_wakes(true);
            }
            return Ok(Answer {
                vote: Vote::Blocked(blocker),
                server: ServerInfo::None,
                position,
            });
        }
        Err(refused(error::NO_NODE))
    }
}

/// Returns the request that makes the entries of `claim`. The first has what others are told of the
/// holder, and the second what they are told of the waiter, and the session's password.
fn creation(path: &LockPath, claim: &Claim, password: &[u8]) -> Request {
    let names = line::names(claim.token, claim.details.mode);
    let mut data = vec![
        claim.details.value(claim.token),
        Second::of(claim, password).to_string(),
    ];
    data.resize(names.len(), String::new());
    let create = |(name, data): (&String, String)| {
        Operation::Create(
            path.child(name),
            data.into_bytes(),
            Kind::EphemeralSequential,
        )
    };
    Request::Multi(names.iter().zip(data).map(create).collect())
}

/// Makes the lock's znode and all above it.
async fn make_containers(wire: &mut Wire, path: &LockPath) -> Result<(), Fault> {
    let container = |prefix: &str| Request::Container(prefix.to_owned());
    let xids: Vec<i32> = path
        .prefixes()
        .map(|prefix| wire.queue(&container(prefix)))
        .collect();
    for xid in xids {
        match wire.reply(xid).await?.header.error {
            0 | error::NODE_EXISTS | error::NO_NODE => {}
            code => return Err(refused(code)),
        }
    }
    Ok(())
}
