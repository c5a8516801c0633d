//! The keys and channels that belong to a lock, beside its own key. All of one lock are in its slot
//! of a cluster, so that one script may use them.

use uuid::Uuid;

use crate::lock::key::Key;

/// A key that rlock keeps beside a lock's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Derived {
    /// The counter of fences.
    Fence,
    /// The waiters, in their order.
    Queue,
    /// The leases of its members: the holders of a shared lock or of slots.
    Leases,
    /// The members themselves.
    Holders,
    /// The record of the last run, and of the last success (`--once`).
    Last,
    /// The waiters that were told that they may take it.
    Turns,
    /// The last waiter with `--supersede` that came.
    Newest,
    /// `doctor` tries rights on this one; no lock has it.
    Doctor,
}

impl Derived {
    /// Those that each script is given.
    pub const OF_LOCK: [Self; 7] = [
        Self::Fence,
        Self::Leases,
        Self::Holders,
        Self::Queue,
        Self::Turns,
        Self::Newest,
        Self::Last,
    ];

    /// Its name in the stored key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Queue => "queue",
            Self::Leases => "leases",
            Self::Holders => "holders",
            Self::Last => "last",
            Self::Turns => "turns",
            Self::Newest => "newest",
            Self::Doctor => "doctor",
        }
    }
}

/// The names that are derived from a lock's.
#[derive(Clone, Debug)]
pub struct Names {
    stored: String,
    /// [`tag`] of `stored`, which may take a search of milliseconds.
    tag: String,
}

impl Names {
    /// Those of the lock `key`.
    pub fn of(key: &Key) -> Self {
        Self {
            stored: key.stored().to_owned(),
            tag: tag(key.stored()),
        }
    }

    /// The lock's own key.
    pub fn stored(&self) -> &str {
        &self.stored
    }

    /// Returns the channel on which `waiter` is woken: `rlock:wake:{TAG}:ID`, in the key's own
    /// cluster slot.
    pub fn wake_channel(&self, waiter: Uuid) -> String {
        format!("rlock:wake:{{{}}}:{waiter}", self.tag)
    }

    /// Returns the channel on which a client of Redisson says that it has released the lock.
    /// `redisson.lua` says it there too.
    pub(super) fn redisson_channel(&self) -> String {
        if self.stored.contains('{') {
            format!("redisson_lock__channel:{}", self.stored)
        } else {
            format!("redisson_lock__channel:{{{}}}", self.stored)
        }
    }

    /// `rlock:<kind>:{TAG}:<KEY>`, in the key's own cluster slot.
    pub fn derived(&self, kind: Derived) -> String {
        ["rlock:", kind.name(), ":{", &self.tag, "}:", &self.stored].concat()
    }
}

/// Returns the lock under `prefix` whose derived key of this kind is `derived`, if there can be one.
pub fn lock_of(kind: Derived, derived: &str, prefix: &str) -> Option<Key> {
    let rest = derived
        .strip_prefix("rlock:")?
        .strip_prefix(kind.name())?
        .strip_prefix(":{")?;
    // A tag holds no brace.
    let (its_tag, stored) = rest.split_once("}:")?;
    let fits = match hash_tag(stored) {
        Some(own) => own == its_tag,
        None if stored.contains('}') => slot(its_tag) == slot(stored),
        None => its_tag == stored,
    };
    Key::new(prefix, stored.strip_prefix(prefix).filter(|_| fits)?).ok()
}

/// Returns the text between the braces with which a derived key hashes to the slot of `key` (Redis
/// cluster specification, "Hash tags"):
/// 1. the key's own non-empty tag;
/// 2. else the key if it has no `}`;
/// 3. else a short string with the same slot.
fn tag(key: &str) -> String {
    if let Some(own) = hash_tag(key) {
        return own.to_owned();
    }
    if !key.contains('}') {
        return key.to_owned();
    }
    let wanted = slot(key);
    // They cover every slot (a test counts them), so the search always ends.
    (0..SHORT_TAGS)
        .map(short_tag)
        .find(|short| slot(short) == wanted)
        .unwrap_or_default()
}

/// Number of short strings that cover every slot.
const SHORT_TAGS: u32 = 1 << 18;

fn short_tag(mut number: u32) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from(
            b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize],
        ));
        number /= 36;
        if number == 0 {
            return text;
        }
    }
}

fn hash_tag(key: &str) -> Option<&str> {
    let after = &key[key.find('{')? + 1..];
    let tag = &after[..after.find('}')?];
    (!tag.is_empty()).then_some(tag)
}

/// The cluster slot of a key: CRC16 (XMODEM) of its hash tag, modulo 16384.
pub(super) fn slot(key: &str) -> u16 {
    crc16(hash_tag(key).unwrap_or(key).as_bytes()) % 16_384
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
    }

    #[test]
    fn every_slot_has_a_short_tag() {
        let slots: std::collections::HashSet<u16> = (0..SHORT_TAGS)
            .map(|number| slot(&short_tag(number)))
            .collect();
        assert_eq!(slots.len(), 16_384);
    }

    #[test]
    fn the_channel_is_that_of_redissons_lock() {
        let channel = |name| Names::of(&Key::new("", name).unwrap()).redisson_channel();
        assert_eq!(channel("job"), "redisson_lock__channel:{job}");
        assert_eq!(channel("a{job}b"), "redisson_lock__channel:a{job}b");
        assert_eq!(channel("a{"), "redisson_lock__channel:a{");
    }

    #[test]
    fn a_derived_key_names_its_lock_and_a_made_up_one_none() {
        let prefixed = Key::new("p:", "job").unwrap();
        assert_eq!(
            lock_of(Derived::Fence, "rlock:fence:{p:job}:p:job", "p:"),
            Some(prefixed)
        );
        for made_up in [
            "rlock:fence:{p:job}:p:job",
            "rlock:fence:{x}:job",
            "rlock:queue:{job}:job",
            "rlock:fence:{}:",
            "x",
        ] {
            assert_eq!(lock_of(Derived::Fence, made_up, "q:"), None, "{made_up}");
        }
    }

    proptest! {
        #[test]
        fn a_derived_key_shares_the_slot_and_no_two_keys_share_a_derived_one(a in "[ab{}:]{1,8}", b in "[ab{}:]{1,8}") {
            let (Ok(a), Ok(b)) = (Key::new("", &a), Key::new("", &b)) else { return Ok(()) };
            let (own, other) = (Names::of(&a), Names::of(&b));
            prop_assert_eq!(slot(&own.derived(Derived::Fence)), slot(a.stored()));
            prop_assert_eq!(slot(&own.wake_channel(Uuid::nil())), slot(a.stored()));
            prop_assert_eq!(own.derived(Derived::Fence) == other.derived(Derived::Fence), a == b);
            prop_assert_eq!(lock_of(Derived::Fence, &own.derived(Derived::Fence), ""), Some(a));
        }
    }
}
