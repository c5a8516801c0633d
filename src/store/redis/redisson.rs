//! Locks of Redisson, a client of other programs: how to tell one, and the channel on which its end
//! is told.

use redis::Value;

use super::names::Names;
use super::reply::{array, text};

/// Returns the channel on which a client of Redisson says that it has released the lock.
/// `redisson.lua` says it there too.
pub(super) fn channel(names: &Names) -> String {
    let name = names.stored();
    let tagged = if name.contains('{') {
        name.to_owned()
    } else {
        format!("{{{name}}}")
    };
    format!("redisson_lock__channel:{tagged}")
}

/// Whether the reply to a request for the lock tells the first waiter that a hash is at the key, as
/// Redisson's locks are.
pub(super) fn blocks_the_first(reply: &Value) -> bool {
    let Some([Value::Array(answer), _, Value::Array(place)]) = array(reply) else {
        return false;
    };
    let [held, kind, ..] = answer.as_slice() else {
        return false;
    };
    (text(held), text(kind)) == (Some("held"), Some("hash"))
        && place.first() == Some(&Value::Int(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::key::Key;

    #[test]
    fn the_channel_is_that_of_redissons_lock() {
        let channel = |name| channel(&Names::of(&Key::new("", name).unwrap()));
        assert_eq!(channel("job"), "redisson_lock__channel:{job}");
        assert_eq!(channel("a{job}b"), "redisson_lock__channel:a{job}b");
        assert_eq!(channel("a{"), "redisson_lock__channel:a{");
    }

    #[test]
    fn a_hash_at_the_key_is_told_to_the_first_waiter_alone() {
        let word = |text: &str| Value::BulkString(text.into());
        let reply = |vote: &str, kind: &str, place: &[i64]| {
            let place = place.iter().map(|rank| Value::Int(*rank)).collect();
            Value::Array(vec![
                Value::Array(vec![word(vote), word(kind)]),
                Value::Nil,
                Value::Array(place),
            ])
        };
        assert!(blocks_the_first(&reply("held", "hash", &[0])));
        assert!(
            !blocks_the_first(&reply("held", "hash", &[1])),
            "a waiter further back"
        );
        assert!(
            !blocks_the_first(&reply("held", "hash", &[])),
            "a client without a place"
        );
        assert!(
            !blocks_the_first(&reply("held", "string", &[0])),
            "another lock"
        );
        assert!(!blocks_the_first(&reply("granted", "hash", &[0])));
    }
}
