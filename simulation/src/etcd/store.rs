//! The data that all members of a cluster agree on: keys with their history, and leases.
//!
//! It behaves as etcd 3.4; `tests/suite/simulated_etcd` compares it with a real one.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use rlock::store::etcd::rpc::{
    Compare, CompareTo, Done, KeyValue, LeaseGrantRequest, LeaseResponse, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, ResponseHeader, ResponseOp, SortOrder, SortTarget,
    TxnRequest, TxnResponse,
};

/// Longest lease, in seconds.
const LONGEST_LEASE: i64 = 9_000_000_000;

/// Kinds of events that a watch tells.
const PUT: i32 = 0;
const DELETED: i32 = 1;

/// A refusal, as gRPC's code and etcd's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal(pub &'static str, pub &'static str);

const NO_LEASE: Refusal = Refusal("5", "etcdserver: requested lease not found");
const LEASE_EXISTS: Refusal = Refusal("9", "etcdserver: lease already exists");
const LEASE_TOO_LONG: Refusal = Refusal("11", "etcdserver: too large lease TTL");
const FUTURE: Refusal = Refusal(
    "11",
    "etcdserver: mvcc: required revision is a future revision",
);
const NO_KEY: Refusal = Refusal("3", "etcdserver: key not found");

/// A request that the members agree on.
#[derive(Clone, Debug)]
pub enum Command {
    /// Reads or writes, as one step.
    Txn(TxnRequest),
    /// Reads.
    Range(RangeRequest),
    /// Makes a lease.
    Grant(LeaseGrantRequest),
    /// Ends a lease, and its keys.
    Revoke(i64),
}

impl Command {
    /// Whether it changes nothing: it needs no place in the log.
    pub fn is_read(&self) -> bool {
        let reads = |op: &RequestOp| matches!(op.request, Some(Request::Range(_)));
        match self {
            Self::Range(_) => true,
            Self::Txn(txn) => txn.success.iter().chain(&txn.failure).all(reads),
            Self::Grant(_) | Self::Revoke(_) => false,
        }
    }
}

/// The result of a command.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Of a transaction.
    Txn(TxnResponse),
    /// Of a read.
    Range(RangeResponse),
    /// Of a lease.
    Lease(LeaseResponse),
    /// The end of a lease.
    Done,
}

impl Reply {
    /// Returns the message, with the term and the member that answers. The revision is the command's.
    pub fn encoded(self, member_id: u64, raft_term: u64) -> Vec<u8> {
        let by = |header: Option<ResponseHeader>| {
            header.map(|header| ResponseHeader {
                member_id,
                raft_term,
                ..header
            })
        };
        match self {
            Self::Txn(reply) => TxnResponse {
                header: by(reply.header),
                ..reply
            }
            .encode_to_vec(),
            Self::Range(reply) => RangeResponse {
                header: by(reply.header),
                ..reply
            }
            .encode_to_vec(),
            Self::Lease(reply) => LeaseResponse {
                header: by(reply.header),
                ..reply
            }
            .encode_to_vec(),
            Self::Done => Done {}.encode_to_vec(),
        }
    }
}

/// A lease.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// Its length in seconds.
    pub ttl: i64,
    keys: BTreeSet<Vec<u8>>,
}

/// An event of a key.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision that made it.
    pub revision: i64,
    /// The key.
    pub key: Vec<u8>,
    /// 0: it was put, 1: deleted.
    pub kind: i32,
}

/// Keys and leases.
#[derive(Debug)]
pub struct Store {
    revision: i64,
    /// Each key's value from a revision on; `None`: it was deleted.
    history: BTreeMap<Vec<u8>, Vec<(i64, Option<KeyValue>)>>,
    leases: BTreeMap<i64, Lease>,
    events: Vec<Event>,
    /// Shortest lease, in seconds.
    shortest_lease: i64,
}

impl Store {
    /// An empty store, whose leases last that long at least.
    pub fn new(shortest_lease: i64) -> Self {
        Self {
            revision: 1,
            history: BTreeMap::new(),
            leases: BTreeMap::new(),
            events: Vec::new(),
            shortest_lease,
        }
    }

    /// The leases that there are.
    pub fn leases(&self) -> &BTreeMap<i64, Lease> {
        &self.leases
    }

    /// All events so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The keys that there are.
    pub fn keys(&self) -> impl Iterator<Item = &KeyValue> {
        self.history
            .values()
            .filter_map(|versions| versions.last()?.1.as_ref())
    }

    /// Returns a header that tells the revision.
    pub fn header(&self) -> ResponseHeader {
        ResponseHeader {
            revision: self.revision,
            ..ResponseHeader::default()
        }
    }

    /// Executes a command.
    pub fn execute(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::Range(range) => {
                let found = self.range(range, self.revision)?;
                Ok(Reply::Range(RangeResponse {
                    header: Some(self.header()),
                    ..found
                }))
            }
            Command::Txn(txn) => self.transact(txn).map(Reply::Txn),
            Command::Grant(grant) => self.grant(*grant).map(Reply::Lease),
            Command::Revoke(id) => {
                let lease = self.leases.remove(id).ok_or(NO_LEASE)?;
                if !lease.keys.is_empty() {
                    self.revision += 1;
                }
                for key in lease.keys {
                    self.delete(&key);
                }
                Ok(Reply::Done)
            }
        }
    }

    fn grant(&mut self, grant: LeaseGrantRequest) -> Result<LeaseResponse, Refusal> {
        if grant.ttl > LONGEST_LEASE {
            return Err(LEASE_TOO_LONG);
        }
        if self.leases.contains_key(&grant.id) {
            return Err(LEASE_EXISTS);
        }
        let ttl = grant.ttl.max(self.shortest_lease);
        let keys = BTreeSet::new();
        self.leases.insert(grant.id, Lease { ttl, keys });
        Ok(LeaseResponse {
            header: Some(self.header()),
            ttl,
            granted_ttl: 0,
        })
    }

    fn transact(&mut self, txn: &TxnRequest) -> Result<TxnResponse, Refusal> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let requests: Vec<&Request> = ops.iter().filter_map(|op| op.request.as_ref()).collect();
        // Nothing is done unless all can be.
        for request in &requests {
            if let Request::Put(put) = request {
                self.may_put(put)?;
            }
        }
        let is_future = |request: &&Request| matches!(request, Request::Range(range) if range.revision > self.revision);
        if requests.iter().any(is_future) {
            return Err(FUTURE);
        }
        let before = self.revision;
        let mut changes = false;
        let mut responses = Vec::new();
        for request in requests {
            let response = match request {
                Request::Range(range) => {
                    // What the transaction has changed so far is seen.
                    let newest = before + i64::from(changes);
                    Response::Range(self.range(range, newest)?)
                }
                Request::Put(put) => {
                    changes = true;
                    self.revision = before + 1;
                    self.put(put);
                    Response::Put(Done {})
                }
                Request::DeleteRange(range) => {
                    if self.value(&range.key, i64::MAX).is_some() {
                        changes = true;
                        self.revision = before + 1;
                        self.delete(&range.key);
                    }
                    Response::DeleteRange(Done {})
                }
            };
            responses.push(ResponseOp {
                response: Some(response),
            });
        }
        Ok(TxnResponse {
            header: Some(self.header()),
            succeeded,
            responses,
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.value(&compare.key, i64::MAX);
        let of = |part: fn(&KeyValue) -> i64| found.map_or(0, part);
        match compare.to {
            Some(CompareTo::Create(revision)) => of(|kv| kv.create_revision) == revision,
            Some(CompareTo::Mod(revision)) => of(|kv| kv.mod_revision) == revision,
            Some(CompareTo::Lease(lease)) => of(|kv| kv.lease) == lease,
            None => false,
        }
    }

    /// Returns what stood at `key` as of a revision.
    fn value(&self, key: &[u8], revision: i64) -> Option<&KeyValue> {
        let versions = self.history.get(key)?;
        let at = versions.partition_point(|(from, _)| *from <= revision);
        versions[..at].last()?.1.as_ref()
    }

    fn range(&self, request: &RangeRequest, newest: i64) -> Result<RangeResponse, Refusal> {
        if request.revision > newest {
            return Err(FUTURE);
        }
        let revision = if request.revision > 0 {
            request.revision
        } else {
            newest
        };
        let is_meant = |key: &[u8]| match &request.range_end[..] {
            [] => key == request.key,
            [0] => key >= &request.key[..],
            end => key >= &request.key[..] && key < end,
        };
        let found = self.history.keys().filter(|key| is_meant(key));
        let mut kvs: Vec<KeyValue> = found
            .filter_map(|key| self.value(key, revision))
            .filter(|kv| {
                request.max_create_revision == 0
                    || kv.create_revision <= request.max_create_revision
            })
            .cloned()
            .collect();
        let limit = usize::try_from(request.limit).unwrap_or(0);
        // Where etcd need not sort or filter, it reads no more than this, in the order of the keys.
        let is_plain = request.sort_order == i32::from(SortOrder::None);
        if is_plain && request.max_create_revision == 0 && limit > 0 {
            kvs.truncate(limit + 1);
        }
        if request.sort_target == i32::from(SortTarget::Create) {
            kvs.sort_by_key(|kv| kv.create_revision);
        }
        if request.sort_order == i32::from(SortOrder::Descend) {
            kvs.reverse();
        }
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        if request.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
            }
        }
        Ok(RangeResponse {
            header: None,
            kvs,
            more,
        })
    }

    fn may_put(&self, put: &PutRequest) -> Result<(), Refusal> {
        if put.ignore_lease {
            return self.value(&put.key, i64::MAX).map(|_| ()).ok_or(NO_KEY);
        }
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(NO_LEASE);
        }
        Ok(())
    }

    fn put(&mut self, put: &PutRequest) {
        let before = self.value(&put.key, i64::MAX).cloned();
        let lease = match &before {
            Some(before) if put.ignore_lease => before.lease,
            _ => put.lease,
        };
        if let Some(old) = before
            .as_ref()
            .and_then(|kv| self.leases.get_mut(&kv.lease))
        {
            old.keys.remove(&put.key);
        }
        if let Some(new) = self.leases.get_mut(&lease) {
            new.keys.insert(put.key.clone());
        }
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: before.map_or(self.revision, |kv| kv.create_revision),
            mod_revision: self.revision,
            value: put.value.clone(),
            lease,
        };
        self.becomes(&put.key, Some(kv), PUT);
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(kv) = self.value(key, i64::MAX) {
            let lease = kv.lease;
            if let Some(lease) = self.leases.get_mut(&lease) {
                lease.keys.remove(key);
            }
            self.becomes(key, None, DELETED);
        }
    }

    fn becomes(&mut self, key: &[u8], value: Option<KeyValue>, kind: i32) {
        let versions = self.history.entry(key.to_vec()).or_default();
        versions.push((self.revision, value));
        self.events.push(Event {
            revision: self.revision,
            key: key.to_vec(),
            kind,
        });
    }
}
