//! Names: the lock as the user typed it, and as it is stored; and the locks of one run in their
//! order.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Longest key accepted, in bytes, prefix included.
pub const LONGEST: usize = 1024;

/// A lock's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    typed: String,
    stored: String,
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
        Ok(Self {
            typed: typed.to_owned(),
            stored,
        })
    }

    /// The name as the user typed it: in messages and `RLOCK_KEY`.
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// The name under which it is stored.
    pub fn stored(&self) -> &str {
        &self.stored
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
