//! A member of a cluster: the slots as it knows them, and which of them it is giving away or
//! taking.

use std::collections::BTreeMap;

use super::keyspace::Keyspace;
use super::refusal::Refusal;
use super::watch::Address;

/// Number of slots.
pub const SLOTS: u16 = 16_384;

/// The slots of a cluster, with their primaries. Members are named by their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots {
    /// The address of each member.
    pub addresses: Vec<Address>,
    /// First and last slot, and who serves them, in the order of the slots.
    pub ranges: Vec<(u16, u16, usize)>,
    /// The primary of each member that is a replica.
    pub replicates: BTreeMap<usize, usize>,
}

impl Slots {
    /// Returns the member that serves `slot`.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        self.ranges
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot))
            .map(|(_, _, owner)| *owner)
    }

    /// Gives one slot to another member.
    pub fn give(&mut self, slot: u16, to: usize) {
        let split = |&(first, last, owner): &(u16, u16, usize)| {
            if !(first..=last).contains(&slot) {
                return vec![(first, last, owner)];
            }
            let before = (first < slot).then(|| (first, slot - 1, owner));
            let behind = (slot < last).then(|| (slot + 1, last, owner));
            before
                .into_iter()
                .chain([(slot, slot, to)])
                .chain(behind)
                .collect()
        };
        self.ranges = self.ranges.iter().flat_map(split).collect();
    }

    /// Lets the replica `heir` take the place of its primary.
    pub fn succeed(&mut self, heir: usize) {
        let Some(old) = self.replicates.remove(&heir) else {
            return;
        };
        self.ranges
            .iter_mut()
            .filter(|(_, _, owner)| *owner == old)
            .for_each(|(_, _, owner)| *owner = heir);
        self.replicates
            .values_mut()
            .filter(|primary| **primary == old)
            .for_each(|primary| *primary = heir);
        self.replicates.insert(old, heir);
    }
}

/// A member of a cluster.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its own number.
    pub me: usize,
    /// The slots as it knows them.
    pub slots: Slots,
    /// The slots that it gives away, and to whom.
    pub migrating: BTreeMap<u16, usize>,
    /// The slots that it takes, and from whom.
    pub importing: BTreeMap<u16, usize>,
    /// Whether it knows that some slots are not served.
    pub is_down: bool,
}

impl Member {
    /// A member of a cluster that is well.
    pub fn new(me: usize, slots: Slots) -> Self {
        Self {
            me,
            slots,
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            is_down: false,
        }
    }

    /// Sends a request for `keys` away, if it is not to be executed here, in the order of Redis'
    /// own checks (cluster.c, `getNodeByQuery`).
    pub(super) fn route(
        &self,
        keys: &[&[u8]],
        is_asking: bool,
        keyspace: &mut Keyspace,
    ) -> Result<(), Refusal> {
        let Some(first) = keys.first() else {
            return Ok(());
        };
        let slot = slot(first);
        if keys.iter().any(|key| self::slot(key) != slot) {
            return Err(Refusal::new(
                "CROSSSLOT Keys in request don't hash to the same slot",
            ));
        }
        let Some(owner) = self.slots.owner(slot) else {
            return Err(Refusal::new("CLUSTERDOWN Hash slot not served"));
        };
        if self.is_down {
            return Err(Refusal::new("CLUSTERDOWN The cluster is down"));
        }
        let try_again = || Refusal::new("TRYAGAIN Multiple keys request during rehashing of slot");
        let mut missing = || {
            keys.iter()
                .filter(|key| keyspace.entry(key).is_none())
                .count()
        };
        if let Some(to) = self.migrating.get(&slot).filter(|_| owner == self.me) {
            return match missing() {
                0 => Ok(()),
                gone if gone < keys.len() => Err(try_again()),
                _ => Err(self.away("ASK", slot, *to)),
            };
        }
        if is_asking && self.importing.contains_key(&slot) {
            let is_several = keys.iter().any(|key| key != first);
            return if is_several && missing() > 0 {
                Err(try_again())
            } else {
                Ok(())
            };
        }
        if owner == self.me {
            Ok(())
        } else {
            Err(self.away("MOVED", slot, owner))
        }
    }

    fn away(&self, word: &str, slot: u16, to: usize) -> Refusal {
        let (host, port) = &self.slots.addresses[to];
        Refusal::with(format!("{word} {slot} {host}:{port}"))
    }
}

/// Returns the slot of a key: CRC16 (XMODEM) of its hash tag.
pub fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let begin = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[begin..]
            .iter()
            .position(|byte| *byte == b'}')
            .filter(|length| *length > 0)?;
        Some(&key[begin..begin + length])
    };
    let bit = |crc: u16, _| {
        if crc & 0x8000 == 0 {
            crc << 1
        } else {
            crc << 1 ^ 0x1021
        }
    };
    let byte = |crc: u16, byte: &u8| (0..8).fold(crc ^ u16::from(*byte) << 8, bit);
    tag().unwrap_or(key).iter().fold(0, byte) % SLOTS
}
