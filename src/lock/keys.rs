//! The locks of one run, in the order in which they are taken: sorted by the bytes of their stored names.
//!
//! All clients take their locks in this order, and wait for a lock only while they hold locks before it. So no clients can
//! wait for each other in a circle.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::key::Key;

/// Most locks that one run takes.
pub const MOST: usize = 64;

/// The separator of lists: keys, tokens and fences in variables.
pub const SEPARATOR: &str = ",";

/// Why names are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeysError {
    /// There is none.
    None,
    /// There are this many, more than [`MOST`].
    TooMany(usize),
    /// One of several contains the separator, and could not be told from two in a list.
    Separator(Key),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no lock is named"),
            Self::TooMany(count) => write!(f, "{count} locks are named; {MOST} are allowed at once"),
            Self::Separator(key) => {
                write!(f, "{key} has a comma, which separates the names of several locks; take it alone, or rename it")
            }
        }
    }
}

impl std::error::Error for KeysError {}

/// One lock, or several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys(Arc<[Key]>);

impl Keys {
    /// Sorts the locks and drops duplicates.
    pub fn new(mut keys: Vec<Key>) -> Result<Self, KeysError> {
        keys.sort_by(|own, other| own.stored().cmp(other.stored()));
        keys.dedup();
        if keys.is_empty() {
            return Err(KeysError::None);
        }
        if keys.len() > MOST {
            return Err(KeysError::TooMany(keys.len()));
        }
        let separator = keys.iter().find(|key| keys.len() > 1 && key.typed().contains(SEPARATOR));
        separator.map_or(Ok(()), |key| Err(KeysError::Separator(key.clone())))?;
        Ok(Self(keys.into()))
    }

    /// Returns the names as the user typed them: in messages and `RLOCK_KEY`.
    pub fn typed(&self) -> String {
        list(self.iter().map(Key::typed))
    }
}

/// Returns a list as it stands in a variable.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(SEPARATOR)
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

    fn keys(prefix: &str, names: &[&str]) -> Result<Keys, KeysError> {
        Keys::new(names.iter().map(|name| Key::new(prefix, name).unwrap()).collect())
    }

    #[test]
    fn one_name_may_have_a_comma_and_one_of_several_may_not() {
        assert_eq!(keys("", &["a,b"]).unwrap().typed(), "a,b");
        assert_eq!(keys("", &["a,b", "a,b"]).unwrap().len(), 1);
        assert_eq!(keys("", &["c", "a,b"]), Err(KeysError::Separator(Key::new("", "a,b").unwrap())));
        // A prefix is in no list.
        assert_eq!(keys("p,", &["b", "a"]).unwrap().typed(), "a,b");
    }

    #[test]
    fn at_least_one_lock_and_at_most_sixty_four_are_taken() {
        let names: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(keys("", &names), Err(KeysError::TooMany(MOST + 1)));
        assert_eq!(keys("", &names[1..]).unwrap().len(), MOST);
        assert_eq!(keys("", &[]), Err(KeysError::None));
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
