//! A lock at a server: Redis, Valkey, or what speaks their protocol with EVAL.
//!
//! 1. This file turns each request into a call of `lock.lua` (`script`), and `reply` reads what
//!    that returns.
//! 2. `requests` sends the requests of one lock in order, even if their caller is gone.
//! 3. `pool` decides which connection a request takes, and opens another where one broke.
//! 4. `exchange` sends on what a server has not executed.
//! 5. `confirmed` drops what a server says that was replaced meanwhile.
//!
//! No request that may set a key is retried here: a retried `SET NX` would be refused by the key
//! that the first try had set. A release that a replica refused, or that a server took which was
//! replaced, is repeated once.

pub mod acl;
pub mod address;
mod call;
mod confirmed;
pub mod connect;
pub mod connection;
mod error;
mod examine;
mod exchange;
pub mod listeners;
pub mod locator;
mod metered;
pub mod names;
mod pool;
mod probe;
mod replicas;
pub mod reply;
mod requests;
pub mod scan;
pub mod script;
mod server;
pub mod state;
mod stranger;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use self::locator::{HashSlot, Primary};
use super::{
    Answer, Claim, Fault, FaultKind, Heal, Hint, Keep, Look, Node, Pending, Queue, QueueAction,
    Release, ReleaseReply, Renewal, TakeAway, Vote, Wakes,
};
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::messages::{Observation, Server};
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::redis::names::{Derived, Names};
use crate::text::duration::millis;
pub use call::FENCE_LIMIT;
use call::{COUNTER, Call, FENCE_LIFE, Least, OF_MEMBERS, WITH_MEMBERS};
use call::{fence_life, fence_sent, flag, in_queue, of_script, on_keys, on_lock};
use error::{is_from_a_replica, is_subscribed_only};
use listeners::Words;
use pool::Pool;
pub use replicas::Copies;
use requests::{PendingReply, Reply, Requests};
use script::{KEEP, KEEP_MEMBER};
pub use server::{Form, LACKING, RedisServer, WriteOptions};
use state::Subscription;

/// Bytes of the queue that an observation may return, for each waiter that is asked for.
const WAITER_ROOM: usize = 128;

/// Number of members that an observation may return, and their bytes.
const MAX_MEMBERS: usize = 1000;
const MEMBER_ROOM: usize = 32 * 1024;

/// A lock on a server.
pub struct RedisNode {
    name: String,
    /// The lock, and what is kept beside it.
    names: Names,
    /// The form of the lock if this node takes it.
    form: Form,
    pool: Arc<Pool>,
    requests: Requests,
    /// The channel of the waiter or the holder that the last request was for.
    channel: Mutex<Option<String>>,
    /// The slot of the lock, in a cluster.
    slot: Option<HashSlot>,
    words: Arc<Words>,
}

impl RedisNode {
    fn new(name: String, key: &Key, pool: Arc<Pool>, writes: WriteOptions) -> Self {
        let requests = Requests::new(Arc::clone(&pool), writes.copies);
        Self {
            name,
            slot: pool.locator.slot(key),
            names: Names::of(key),
            form: writes.form,
            pool,
            requests,
            channel: Mutex::default(),
            words: Arc::default(),
        }
    }

    /// The request that `command` is.
    fn call(&self, command: redis::Cmd) -> Call {
        Call {
            command,
            slot: self.slot,
            least: None,
        }
    }

    /// The request for `release`.
    fn giving_back(&self, release: &Release) -> Call {
        Call {
            least: call::least_give_back(&self.names, self.form, release),
            ..self.call(call::give_back(&self.names, release))
        }
    }

    /// Returns the channel of the waiter that `claim` is for. Its words are heard from now on.
    fn waiters_channel(&self, claim: &Claim) -> Option<String> {
        self.hear(
            claim
                .ticket
                .as_ref()
                .map(|ticket| self.names.wake_channel(ticket.waiter.id)),
        )
    }

    /// Hears words on `channel` from now on, and returns it.
    fn hear(&self, channel: Option<String>) -> Option<String> {
        let mut last = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channel
            .as_ref()
            .filter(|channel| last.as_ref() != Some(channel))
        {
            self.pool.listen(channel, &self.words);
            *last = Some(channel.clone());
        }
        channel
    }

    /// The reply to a renewal. `keeps`: it extends a tombstone too.
    fn renewal(&self, term: Term, reply: PendingReply, keeps: bool) -> Pending<Renewal> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move {
            let Reply {
                sent,
                source,
                result,
                lacking,
            } = reply.received().await;
            let until = term.end(sent);
            let renewal = result.map_or_else(Renewal::Failed, |value| {
                reply::renewal(&value, until, keeps)
            });
            let renewal = confirmed::without_copies(renewal, lacking);
            confirmed::renewal(&pool.locator, source.as_ref(), renewal).await
        })
    }

    /// Sets the key again if there is none, and extends it, or its tombstone.
    fn heal(&self, keep: &Keep, heal: &Heal) -> Pending<Renewal> {
        let Keep {
            token,
            fence,
            term,
            index,
            ..
        } = keep;
        let mut command = on_lock("heal", &self.names, None);
        command
            .arg(token.to_string())
            .arg(heal.details.value(*token))
            .arg(millis(term.ttl()));
        command
            .arg(fence_sent(*fence))
            .arg(fence_life(*term))
            .arg(in_queue(heal.waiter.as_ref()));
        command.arg(
            heal.told
                .map_or_else(String::new, |counter| counter.to_string()),
        );
        command
            .arg(heal.details.mode.to_string())
            .arg(heal.details.n)
            .arg(index);
        command.arg(flag(
            self.form == Form::Redisson || heal.details.has_other_form,
        ));
        self.renewal(
            *term,
            self.requests.set(self.call(command), None, None),
            true,
        )
    }

    fn subscription(&self) -> Subscription {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.as_ref().map_or(Subscription::None, |channel| {
            self.pool.subscription(channel, self.slot)
        })
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let for_young = if self.pool.locator.has_failovers() {
            call::take_from_young(&self.names, self.form, claim)
        } else {
            None
        };
        let call = self.call(call::take(&self.names, self.form, claim));
        let slot = call.slot;
        let reply = self
            .requests
            .set(call, for_young, self.waiters_channel(claim));
        let (pool, requests, term) = (Arc::clone(&self.pool), self.requests.clone(), claim.term);
        let (redissons, words) = (
            claim.ticket.as_ref().map(|_| self.names.redisson_channel()),
            Arc::clone(&self.words),
        );
        let undo = self
            .requests
            .copies
            .map(|_| self.giving_back(&claim.release(QueueAction::None)));
        Box::pin(async move {
            let Reply {
                sent,
                source,
                result,
                lacking,
            } = reply.received().await;
            if let Some(channel) = redissons.filter(|_| {
                result
                    .as_ref()
                    .is_ok_and(reply::is_redissons_before_the_first)
            }) {
                pool.also_listen(&channel, &words, slot).await;
            }
            let answer = match result.and_then(|value| reply::answer(&value, term.end(sent))) {
                Ok(answer) => answer,
                Err(fault) => {
                    return Vote::Failed(stranger::explained(&requests, slot, fault).await).into();
                }
            };
            let Some(fault) = lacking else {
                return confirmed::answer(&pool.locator, source.as_ref(), answer).await;
            };
            // Of a fault of another kind the caller thinks that no key was set.
            if fault.kind != FaultKind::Unknown
                && let Some(release) = undo
            {
                requests.release(release, None, false).received().await;
            }
            Answer {
                vote: Vote::Failed(fault),
                ..answer
            }
        })
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        let Keep {
            token,
            fence,
            term,
            index,
            mode,
            raises_counter,
            heal,
        } = keep;
        if let Some(heal) = heal {
            return self.heal(keep, heal);
        }
        let (token, ttl) = (token.to_string(), millis(term.ttl()));
        let mut command = on_keys(
            "renew",
            &self.names,
            if mode.has_members() {
                WITH_MEMBERS
            } else {
                COUNTER
            },
        );
        command
            .arg(&token)
            .arg(ttl)
            .arg(fence_sent(*fence))
            .arg(fence_life(*term))
            .arg(index);
        let mut least = if mode.has_members() {
            of_script(&KEEP_MEMBER, &self.names, &OF_MEMBERS)
        } else {
            of_script(&KEEP, &self.names, &[])
        };
        least.arg(token).arg(ttl).arg(index);
        let least = (!raises_counter).then_some(Least {
            command: least,
            suffices: true,
        });
        let call = Call {
            least,
            ..self.call(command)
        };
        self.renewal(*term, self.requests.extend(call), false)
    }

    fn look(&self, look: Look) -> Pending<Result<Observation, Fault>> {
        let mut command = on_lock("observe", &self.names, Some(Derived::Last));
        command
            .arg(look.max_waiters)
            .arg(look.max_waiters * WAITER_ROOM)
            .arg(MAX_MEMBERS)
            .arg(MEMBER_ROOM);
        command.arg(
            look.token
                .map_or_else(String::new, |token| token.to_string()),
        );
        let again = self
            .pool
            .locator
            .has_failovers()
            .then(|| self.call(command.clone()));
        let call = self.call(command);
        let slot = call.slot;
        let reply = self.requests.ask(call);
        let (pool, requests) = (Arc::clone(&self.pool), self.requests.clone());
        Box::pin(async move {
            let mut reply = reply.received().await;
            if let Some(again) = again
                && confirmed::replaced(&pool.locator, reply.source.as_ref())
                    .await
                    .is_some()
            {
                // Nothing is changed by looking again, at the new primary.
                reply = requests.ask(again).received().await;
            }
            match reply
                .result
                .and_then(|value| reply::observation(&value, reply.sent))
            {
                Err(fault) => Err(stranger::explained(&requests, slot, fault).await),
                observation => observation,
            }
        })
    }

    fn take_away(&self, how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        let command = match how {
            TakeAway::Tombstone(token, tombstone) => {
                let mut command = on_keys("break", &self.names, WITH_MEMBERS);
                command
                    .arg(token.to_string())
                    .arg(tombstone)
                    .arg(self.names.wake_channel(token.as_uuid()));
                command
            }
            TakeAway::Delete(token, fence, note) => {
                let mut command =
                    on_lock("delete", &self.names, note.as_ref().map(|_| Derived::Last));
                command
                    .arg(token.to_string())
                    .arg(fence)
                    .arg(millis(FENCE_LIFE));
                command.arg(self.names.wake_channel(token.as_uuid()));
                call::add_note(&mut command, note.as_deref());
                command
            }
            TakeAway::DeleteForeign(seen) => {
                let mut command = on_lock("delete_foreign", &self.names, None);
                command.arg(&seen.0);
                command
            }
            TakeAway::Forget(token) => {
                let mut command = on_lock("forget", &self.names, Some(Derived::Last));
                command.arg(token.to_string());
                command
            }
        };
        let (reply, pool) = (
            self.requests.ask(self.call(command)),
            Arc::clone(&self.pool),
        );
        Box::pin(async move {
            let Reply { source, result, .. } = reply.received().await;
            match confirmed::replaced(&pool.locator, source.as_ref()).await {
                Some(fault) => Err(fault),
                None => result.and_then(|value| reply::standing(&value, "forced")),
            }
        })
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        let call = self.giving_back(release);
        let (channel, is_final) = match &release.queue {
            QueueAction::None => (None, false),
            QueueAction::Leave(_) => (None, true),
            QueueAction::Keep(ticket) => (Some(self.names.wake_channel(ticket.waiter.id)), false),
        };
        let (pool, requests) = (Arc::clone(&self.pool), self.requests.clone());
        let reply = requests.release(call.clone(), channel.clone(), is_final);
        Box::pin(async move {
            let Reply {
                source,
                mut result,
                mut lacking,
                ..
            } = reply.received().await;
            let is_refused = is_from_a_replica(&result) || is_subscribed_only(&result);
            if is_refused
                || confirmed::replaced(&pool.locator, source.as_ref())
                    .await
                    .is_some()
            {
                // The key is on the new primary, or still there. No caller repeats a release, and a
                // second one does no harm.
                let again = requests
                    .release_again(call, channel, is_final)
                    .received()
                    .await;
                (result, lacking) = (again.result, again.lacking);
            }
            if let Some(fault) = lacking {
                return ReleaseReply::Failed(fault);
            }
            match result.and_then(|value| reply::standing(&value, "released")) {
                Ok(None) => ReleaseReply::Released,
                Ok(Some(revoked)) => ReleaseReply::NotOurs(revoked),
                Err(fault) => ReleaseReply::Failed(fault),
            }
        })
    }

    fn next(&self) -> Pending<Hint> {
        let (words, changed) = (Arc::clone(&self.words), self.requests.changed(self.slot));
        Box::pin(async move {
            tokio::select! {
                biased;
                wake = words.next() => Hint::Woken(wake),
                () = changed => Hint::Changed,
            }
        })
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn server(&self) -> Option<Server> {
        self.pool
            .locator
            .primary(self.slot)
            .as_ref()
            .map(Primary::told)
    }

    fn settled(&self, limit: Duration) -> Pending<bool> {
        let (written, pool) = (self.requests.written(limit), Arc::clone(&self.pool));
        Box::pin(async move {
            let is_written = written.await;
            join_all(pool.all().iter().map(|connection| connection.caught_up())).await;
            is_written
        })
    }
}

impl Queue for RedisNode {
    fn leave(&self, waiter: &Waiter) -> Pending<()> {
        let reply = self
            .requests
            .leave(self.call(call::leave(&self.names, waiter)));
        Box::pin(async move { drop(reply.received().await) })
    }

    fn announce(&self, claim: &Claim) -> Pending<()> {
        let mut command = on_lock("announce", &self.names, Some(Derived::Newest));
        command.arg(
            claim
                .ticket
                .as_ref()
                .map_or_else(String::new, Ticket::newest),
        );
        command
            .arg(fence_life(claim.term))
            .arg(flag(claim.details.n == 1));
        let reply = self.requests.ask(self.call(command));
        Box::pin(async move { drop(reply.received().await) })
    }

    fn listen(&self, token: Token) {
        let channel = self.hear(Some(self.names.wake_channel(token.as_uuid())));
        self.requests.listen(channel, self.slot);
    }

    fn wakes(&self) -> Wakes {
        match self.subscription() {
            Subscription::Active if self.pool.is_reached(self.slot) => Wakes::Yes,
            Subscription::Denied => Wakes::Denied,
            Subscription::Active | Subscription::None => Wakes::No,
        }
    }
}

#[cfg(test)]
pub(in crate::store) mod tests;
