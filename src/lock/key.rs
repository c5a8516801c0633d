//! Names: the lock as the user typed it, the key on the server, and the keys derived from it; and
//! the locks of one run in their order.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use uuid::Uuid;

/// Longest key accepted, in bytes, prefix included.
pub const LONGEST: usize = 1024;

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

/// A lock's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    typed: String,
    stored: String,
    /// [`tag`] of `stored`.
    tag: String,
}

impl Key {
    /// The lock `typed`, stored under `prefix` + `typed`. Errors are for people.
    pub fn new(prefix: &str, typed: &str) -> Result<Self, String> {
        if typed.is_empty() {
            return Err("the lock's name is empty".to_owned());
        }
        let stored = format!("{prefix}{typed}");
        if stored.len() > LONGEST {
            let length = stored.len();
            return Err(format!(
                "the lock's name is {length} bytes long with its prefix; {LONGEST} are allowed"
            ));
        }
        if is_derived(&stored) {
            return Err("names like rlock:<kind>:{…} are reserved for rlock's own keys".to_owned());
        }
        let tag = tag(&stored);
        Ok(Self {
            typed: typed.to_owned(),
            stored,
            tag,
        })
    }

    /// Returns the lock under `prefix` whose derived key of this kind is `derived`, if there can be
    /// one.
    pub fn of_derived(kind: Derived, derived: &str, prefix: &str) -> Option<Self> {
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
        Self::new(prefix, stored.strip_prefix(prefix).filter(|_| fits)?).ok()
    }

    /// Returns the key's slot in a cluster.
    pub fn slot(&self) -> u16 {
        slot(&self.stored)
    }

    /// The name as the user typed it: in messages and `RLOCK_KEY`.
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// The key on the server.
    pub fn stored(&self) -> &str {
        &self.stored
    }

    /// Returns the channel on which `waiter` is woken: `rlock:wake:{TAG}:ID`, in the key's own
    /// cluster slot.
    pub fn wake_channel(&self, waiter: Uuid) -> String {
        format!("rlock:wake:{{{}}}:{waiter}", self.tag)
    }

    /// `rlock:<kind>:{TAG}:<KEY>`, in the key's own cluster slot.
    pub fn derived(&self, kind: Derived) -> String {
        ["rlock:", kind.name(), ":{", &self.tag, "}:", &self.stored].concat()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::text::escape::text(&self.typed))
    }
}

fn is_derived(key: &str) -> bool {
    key.strip_prefix("rlock:")
        .and_then(|rest| rest.split_once(":{"))
        .is_some_and(|(kind, _)| !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase()))
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
fn slot(key: &str) -> u16 {
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

/// Most locks that one run takes.
pub const MOST_KEYS: usize = 64;

/// The separator of lists: keys, tokens and fences in variables.
pub const SEPARATOR: &str = ",";

/// One lock, or several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys(Arc<[Key]>);

impl Keys {
    /// Sorts the locks and drops duplicates. Errors are for people.
    pub fn new(mut keys: Vec<Key>) -> Result<Self, String> {
        keys.sort_by(|own, other| own.stored().cmp(other.stored()));
        keys.dedup();
        if keys.is_empty() {
            return Err("no lock is named".to_owned());
        }
        if keys.len() > MOST_KEYS {
            return Err(format!(
                "{} locks are named; {MOST_KEYS} are allowed at once",
                keys.len()
            ));
        }
        // It could not be told from two in a list.
        if let Some(key) = keys
            .iter()
            .find(|key| keys.len() > 1 && key.typed().contains(SEPARATOR))
        {
            let why = "which separates the names of several locks; take it alone, or rename it";
            return Err(format!("{key} has a comma, {why}"));
        }
        Ok(Self(keys.into()))
    }

    /// Returns the names as the user typed them: in messages and `RLOCK_KEY`.
    pub fn typed(&self) -> String {
        list(self.iter().map(Key::typed))
    }
}

/// Returns a list as it stands in a variable.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(SEPARATOR)
}

impl Deref for Keys {
    type Target = [Key];

    fn deref(&self) -> &[Key] {
        &self.0
    }
}

impl From<&Key> for Keys {
    fn from(key: &Key) -> Self {
        Self([key.clone()].into())
    }
}

impl From<&Self> for Keys {
    fn from(keys: &Self) -> Self {
        keys.clone()
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(self.iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn empty_overlong_and_reserved_keys_are_refused() {
        let error = |prefix: &str, typed: &str| Key::new(prefix, typed).err();
        let long = "x".repeat(1025);
        for (prefix, typed, why) in [
            ("", "", "is empty"),
            ("p:", "", "is empty"),
            ("", &long[..], "is 1025 bytes long"),
            ("p", &long[1..], "is 1025 bytes long"),
            ("", "rlock:fence:{job}:job", "reserved"),
            ("rlock:fence:", "{job}:job", "reserved"),
        ] {
            assert!(
                error(prefix, typed).is_some_and(|told| told.contains(why)),
                "{prefix} {typed}"
            );
        }
        assert_eq!(error("", &long[1..]), None);
        assert_eq!(error("", "rlock:deploy"), None);
    }

    #[test]
    fn a_derived_key_names_its_lock_and_a_made_up_one_none() {
        let prefixed = Key::new("p:", "job").unwrap();
        assert_eq!(
            Key::of_derived(Derived::Fence, "rlock:fence:{p:job}:p:job", "p:"),
            Some(prefixed)
        );
        for made_up in [
            "rlock:fence:{p:job}:p:job",
            "rlock:fence:{x}:job",
            "rlock:queue:{job}:job",
            "rlock:fence:{}:",
            "x",
        ] {
            assert_eq!(
                Key::of_derived(Derived::Fence, made_up, "q:"),
                None,
                "{made_up}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_derived_key_shares_the_slot_and_no_two_keys_share_a_derived_one(a in "[ab{}:]{1,8}", b in "[ab{}:]{1,8}") {
            let (Ok(a), Ok(b)) = (Key::new("", &a), Key::new("", &b)) else { return Ok(()) };
            prop_assert_eq!(slot(&a.derived(Derived::Fence)), slot(a.stored()));
            prop_assert_eq!(slot(&a.wake_channel(Uuid::nil())), slot(a.stored()));
            prop_assert_eq!(a.derived(Derived::Fence) == b.derived(Derived::Fence), a == b);
            prop_assert_eq!(Key::of_derived(Derived::Fence, &a.derived(Derived::Fence), ""), Some(a));
        }
    }

    fn keys(prefix: &str, names: &[&str]) -> Result<Keys, String> {
        Keys::new(
            names
                .iter()
                .map(|name| Key::new(prefix, name).unwrap())
                .collect(),
        )
    }

    #[test]
    fn one_name_may_have_a_comma_and_one_of_several_may_not() {
        assert_eq!(keys("", &["a,b"]).unwrap().typed(), "a,b");
        assert_eq!(keys("", &["a,b", "a,b"]).unwrap().len(), 1);
        assert!(keys("", &["c", "a,b"]).is_err_and(|why| why.contains("a,b has a comma")));
        // A prefix is in no list.
        assert_eq!(keys("p,", &["b", "a"]).unwrap().typed(), "a,b");
    }

    #[test]
    fn at_least_one_lock_and_at_most_sixty_four_are_taken() {
        let names: Vec<String> = (0..=MOST_KEYS).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(
            keys("", &names).is_err_and(|why| why.contains("65 locks are named; 64 are allowed"))
        );
        assert_eq!(keys("", &names[1..]).unwrap().len(), MOST_KEYS);
        assert!(keys("", &[]).is_err_and(|why| why.contains("no lock is named")));
    }

    proptest! {
        #[test]
        fn all_clients_name_the_same_locks_in_the_same_order(names in proptest::collection::vec("[^,]{1,4}", 1..9)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut others = names.clone();
            others.reverse();
            others.push(names[0]);
            let (own, other) = (keys("", &names).unwrap(), keys("", &others).unwrap());
            prop_assert!(own.windows(2).all(|two| two[0].stored().as_bytes() < two[1].stored().as_bytes()));
            prop_assert_eq!(own, other);
        }
    }
}
