//! The data of a server: values by name, with expiries that are looked at when a key is asked for.

use std::collections::BTreeMap;

use super::refusal::Refusal;
use super::sorted_set::SortedSet;

/// Fields and values of a hash, in the order in which the fields came.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    String(Vec<u8>),
    SortedSet(SortedSet),
    Hash(Fields),
}

impl Value {
    /// Returns the name of the type, as TYPE has it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::SortedSet(_) => "zset",
            Self::Hash(_) => "hash",
        }
    }
}

/// A value with its expiry.
#[derive(Clone, Debug)]
pub struct Entry {
    pub value: Value,
    /// Unix time in ms. The key is gone once the clock is past it.
    pub expires: Option<i64>,
}

impl Entry {
    /// Whether the entry is there at `now`, a unix time in ms. Its last moment is its expiry (db.c,
    /// `keyIsExpired`).
    pub(super) fn lives(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| now <= expires)
    }
}

/// The keys of a server.
#[derive(Clone, Default, Debug)]
pub(super) struct Keyspace {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    /// Unix time in ms that counts for expiries while a command runs.
    pub(super) now: i64,
    /// Whether expired keys are hidden only: a replica waits for its primary to delete them.
    pub(super) keeps_expired: bool,
}

impl Keyspace {
    /// Returns the entry at `key`, which is removed first if it has expired.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let is_expired = self
            .entries
            .get(key)
            .is_some_and(|entry| !entry.lives(self.now));
        if is_expired {
            if !self.keeps_expired {
                self.entries.remove(key);
            }
            return None;
        }
        self.entries.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let is_there = self.entry(key).is_some();
        if is_there {
            self.entries.remove(key);
        }
        is_there
    }

    /// Returns the string at `key`.
    pub(super) fn string(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::String(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// Returns the sorted set at `key`.
    pub(super) fn sorted_set(&mut self, key: &[u8]) -> Result<Option<&mut SortedSet>, Refusal> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::SortedSet(set)) => Ok(Some(set)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// Returns the hash at `key`.
    pub(super) fn hash(&mut self, key: &[u8]) -> Result<Option<&mut Fields>, Refusal> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Hash(fields)) => Ok(Some(fields)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// Sets `key` to a value without an expiry.
    pub(super) fn create(&mut self, key: &[u8], value: Value) {
        self.entries.insert(
            key.to_vec(),
            Entry {
                value,
                expires: None,
            },
        );
    }
}
