//! Entering the line, and the answer to a claim whose place stands in it.

use super::ensemble::{Attached, Attachment, lease_end, must_last};
use super::jute::{Kind, Operation, Request, error};
use super::line;
use super::path::LockPath;
use super::place::{Keeper, Place, Stage, TRIES, list, listed, lists};
use super::second::Second;
use super::supersede::Superseding;
use super::view::{Before, MUTEX, View};
use super::wire::Wire;
use super::{refused, visit};
use crate::clock;
use crate::lock::blocker::Blocker;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;
use crate::lock::messages::ServerInfo;
use crate::lock::mode::Mode;
use crate::lock::queue::QueuePosition;
use crate::store::{Answer, Claim, Fault, FaultKind, Vote};

impl Keeper {
    /// Enters the line with a new session.
    pub(super) async fn enter(&mut self, claim: &Claim) -> Result<Answer, Fault> {
        self.must_last_parked(claim.term.hold_at_least()).await?;
        self.entering = Some(claim.token);
        let mode = claim.details.mode;
        let with_lists = |creation| [vec![creation], lists(&self.path, mode)].concat();
        // Another process attaches to the session of a lock that no process keeps. It must know the
        // password, which the server tells first.
        let is_kept = claim.details.kept;
        let requests = with_lists(creation(&self.path, claim, &[], self.came));
        let attachment = Attachment {
            session: None,
            timeout: claim.term.ttl(),
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
            let requests = with_lists(creation(&self.path, claim, &session.password, self.came));
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
            make_containers(wire, &self.path, mode).await?;
            xids = requests.iter().map(|request| wire.queue(request)).collect();
        };
        let name_of = |path: &String| self.path.name_of(path);
        let own: Vec<String> = created.iter().map(name_of).collect();
        if line::is_used_up(&own) {
            return Err(used_up());
        }
        let mut names = listed(wire, &xids[1..]).await?.map_err(refused)?;
        let token = claim.token.to_string();
        let is_left_over = |name: &&String| name.contains(&token) && !own.contains(*name);
        let left: Vec<String> = names.iter().filter(is_left_over).cloned().collect();
        if !left.is_empty() {
            wire.queue(&Request::Multi(self.path.deletions(&left)));
            names = list(wire, &self.path, mode).await?;
        }
        let fence = u64::try_from(zxid).ok().and_then(Fence::new);
        let until = lease_end(claim.term, wire.begun, session.timeout);
        let fence = fence.ok_or_else(|| {
            let why = "its transactions have no numbers that a fence could have";
            Fault::new(FaultKind::Unfit, why)
        })?;
        self.came.get_or_insert(fence.get());
        let place = Place {
            token: claim.token,
            mode,
            session,
            own,
            index: 0,
            fence,
            term: claim.term,
            until,
            stage: Stage::Waits,
            superseding: Superseding::of(claim),
            is_broken: false,
        };
        let view = place.view(&names);
        self.place = Some(place);
        self.wire = self.open.take();
        (self.entering, self.gone) = (None, None);
        self.judge(claim, view, until).await
    }

    /// Returns the answer to `claim`, whose place stands until then, and sees this.
    pub(super) async fn judge(
        &mut self,
        claim: &Claim,
        mut view: View,
        until: Instant,
    ) -> Result<Answer, Fault> {
        if let Some(newer) = self.supersede(claim, &view).await? {
            self.forget(Revoked::Missing);
            return Ok(Vote::Blocked(Blocker::Newer(Some(Box::new(newer)))).into());
        }
        for _ in 0..TRIES {
            let (Some(place), Some(wire)) = (&mut self.place, &mut self.wire) else {
                break;
            };
            let Some(at) = view.line.place(claim.token) else {
                self.forget(Revoked::Missing);
                break;
            };
            let position = claim.ticket.as_ref().map(|_| QueuePosition {
                rank: u32::try_from(view.rank(claim.token)).ok(),
                now: 0,
                refused: None,
            });
            // A run inside a holder's goes with that one.
            let is_inside = view.is_held_by(&claim.outer);
            let before = match view.before(at) {
                None if !is_inside => {
                    place.stage = Stage::IsHeld;
                    let vote = Vote::Granted {
                        until,
                        fence: place.fence,
                        index: place.index,
                    };
                    return Ok(Answer {
                        vote,
                        server: ServerInfo::None,
                        position,
                    });
                }
                Some(Before::NoLease) if !is_inside => {
                    view = self.make_lease(claim, &view).await?;
                    continue;
                }
                before => before,
            };
            let is_waiting = claim.ticket.is_some();
            // The mutex is left within a moment if a slot is free.
            let is_passing = !is_waiting
                && matches!(before, Some(Before::Mutex(_)))
                && view.has_free_slot(place.mode);
            let stands = match before {
                Some(before) => {
                    let is_watched = is_waiting || is_passing;
                    before.stands(wire, &self.path, is_watched).await? || is_inside
                }
                None => is_inside,
            };
            if stands && is_passing && !is_inside {
                let patience = clock::now() + self.ensemble.limit() / 3;
                if let Some(changed) = clock::until(patience, wire.changed()).await {
                    changed?;
                    view = place.view(&list(wire, &self.path, place.mode).await?);
                    continue;
                }
            }
            let blocker =
                visit::blocker(wire, &self.path, &view, claim.token, &claim.outer).await?;
            let Some(blocker) = blocker.filter(|_| stands) else {
                view = place.view(&list(wire, &self.path, place.mode).await?);
                continue;
            };
            place.note_rank(&view);
            self.due = place.due(clock::now(), self.ensemble.limit());
            if is_waiting {
                self.set_wakes(true);
            } else {
                self.forget(Revoked::Missing);
                self.gone = None;
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
fn creation(path: &LockPath, claim: &Claim, password: &[u8], came: Option<u64>) -> Request {
    let mode = claim.details.mode;
    let mut names = line::names(claim.token, mode);
    if mode.number().is_some() {
        names.push(format!("{MUTEX}/{}", line::name_in_mutex(claim.token)));
    }
    let mut data = vec![
        claim.details.value(claim.token),
        Second::of(claim, password, came).to_string(),
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

/// Makes the znodes of the entries and all above them.
pub(super) async fn make_containers(
    wire: &mut Wire,
    path: &LockPath,
    mode: Mode,
) -> Result<(), Fault> {
    let above = path.prefixes().map(str::to_owned);
    let all = above.chain(path.znodes(mode).into_iter().skip(1));
    let xids: Vec<i32> = all
        .map(|znode| wire.queue(&Request::Container(znode)))
        .collect();
    for xid in xids {
        match wire.reply(xid).await?.header.error {
            0 | error::NODE_EXISTS | error::NO_NODE => {}
            code => return Err(refused(code)),
        }
    }
    Ok(())
}

/// The fault of entries whose numbers are no order any more.
pub(super) fn used_up() -> Fault {
    Fault::unfit(
        "the lock's znode has numbered 2147483647 entries, and counts no further",
        "delete it once no client uses it, or give another name",
    )
}
