//! A server as a store of locks: Redis, Valkey, or what speaks their protocol with EVAL.

use std::sync::Arc;
use std::time::Duration;

use super::connection::REPLY_LIMIT;
use super::pool::Pool;
use super::probe::Probe;
use super::replicas::Copies;
use super::{RedisNode, examine, scan};
use crate::lock::key::Key;
use crate::store::examine::{Examination, Plan};
use crate::store::redis::locator::{Locator, Way};
use crate::store::{Fault, Lacking, Listing, Node, Pages, Pending, Store};

/// Bytes of an observation: a value of a KiB, however it is encoded, members and some waiters.
const OBSERVATION_ROOM: usize = 72 * 1024;

/// The features that servers lack.
pub const LACKING: Lacking = &[];

/// The form of a stored lock: `--as`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Default, Debug)]
pub enum Form {
    /// A string, which every client that uses `SET key value NX` respects.
    #[default]
    Rlock,
    /// A hash as Redisson's, whose clients respect it and are told of its end.
    Redisson,
}

/// How locks are written.
#[derive(Clone, Copy, Default, Debug)]
pub struct WriteOptions {
    /// The form of a lock that is taken.
    pub form: Form,
    /// Copies of each write without which it does not count: `--wait-replicas`, `--fsync`.
    pub copies: Option<Copies>,
}

/// A server, whose connections are shared by the locks on it.
pub struct RedisServer {
    name: String,
    pool: Arc<Pool>,
    writes: WriteOptions,
}

impl RedisServer {
    /// A server that is connected to when it is first asked. `limit` bounds each exchange,
    /// connecting included. At once it is asked for at most `observations` of locks with few
    /// waiters, or for one of a lock with many.
    pub fn new(way: &Way, limit: Duration, observations: usize) -> Self {
        Self::at(
            way.to_string(),
            way.locator(limit),
            limit,
            REPLY_LIMIT.max(observations * OBSERVATION_ROOM),
        )
    }

    /// The same for a node whose server `locator` finds. `room` is the most that may be read between
    /// two requests.
    pub fn at(name: String, locator: Locator, limit: Duration, room: usize) -> Self {
        Self {
            name,
            pool: Arc::new(Pool::new(locator, limit, room)),
            writes: WriteOptions::default(),
        }
    }

    /// This server, to which locks are written so.
    #[must_use]
    pub fn writing(self, writes: WriteOptions) -> Self {
        Self { writes, ..self }
    }

    pub(super) fn node(&self, key: &Key) -> RedisNode {
        RedisNode::new(self.name.clone(), key, Arc::clone(&self.pool), self.writes)
    }
}

impl Store for RedisServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &Key) -> Box<dyn Node> {
        Box::new(self.node(key))
    }

    fn listing(&self) -> Option<&dyn Listing> {
        Some(self)
    }

    fn examine(&self, plan: &Plan) -> Pending<Result<Examination, Fault>> {
        let (locator, limit) = (self.pool.locator.clone(), self.pool.limit);
        let (name, plan) = (self.name.clone(), plan.clone());
        Box::pin(async move {
            let probe = Probe::of(&locator, limit, &plan).await?;
            Ok(examine::examination(&name, &probe, &plan))
        })
    }
}

impl Listing for RedisServer {
    fn pages(&self, prefix: &str) -> Pages {
        let (locator, limit) = (self.pool.locator.clone(), self.pool.limit);
        scan::pages(locator, limit, prefix.to_owned())
    }
}
