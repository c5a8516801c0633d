//! Locks of Redisson, a client of other programs: how to tell one, and the channel on which its end is told.

use redis::Value;

use crate::lock::key::Key;

/// Returns the channel on which a client of Redisson says that it has released the lock. `redisson.lua` says it there too.
pub(super) fn channel(key: &Key) -> String {
    let name = key.stored();
    let tagged = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("redisson_lock__channel:{tagged}")
}

/// Whether the reply to a request for the lock tells the first waiter that a hash is at the key, as Redisson's locks are.
pub(super) fn blocks_the_first(reply: &Value) -> bool {
    let Value::Array(items) = reply else { return false };
    let [Value::Array(answer), _, Value::Array(place)] = items.as_slice() else { return false };
    let is = |word: Option<&Value>, text: &[u8]| matches!(word, Some(Value::BulkString(bytes)) if bytes == text);
    is(answer.first(), b"held") && is(answer.get(1), b"hash") && place.first() == Some(&Value::Int(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_is_that_of_redissons_lock() {
        let channel = |name| channel(&Key::new("", name).unwrap());
        assert_eq!(channel("job"), "redisson_lock__channel:{job}");
        assert_eq!(channel("a{job}b"), "redisson_lock__channel:a{job}b");
        assert_eq!(channel("a{"), "redisson_lock__channel:a{");
    }
}
