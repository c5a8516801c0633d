//! What a user of the server must be allowed: the ACL line for it, and the words with which each right is tried.
//!
//! Whoever makes a script call another command adds it here; a test gives a user no more than this and tries everything.

use crate::lock::key::Key;

/// A right that rlock uses.
pub struct Right {
    /// As the ACL line has it, without the plus.
    pub name: &'static str,
    /// A request that shows whether it is there and changes nothing; `KEY` stands for a key that nobody has, `CHANNEL` for a
    /// channel that nobody listens to.
    pub trial: &'static [&'static str],
    /// What is lacking without it.
    pub lacks: Lacks,
}

/// What cannot be done without a right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lacks {
    /// No lock can be held.
    Locks,
    /// This, which a lock can do without.
    Comfort(&'static str),
    /// This, which only `doctor` would say.
    Detail(&'static str),
}

/// Where one is told what one waits for, as the ACL line has it.
pub const CHANNELS: &str = "&rlock:wake:*";

const IN_LINE: Lacks = Lacks::Comfort("those who wait go in no order, or hear late that the lock is free");

/// All of them.
pub const RIGHTS: &[Right] = &[
    Right { name: "eval", trial: &["EVAL", "return 1", "1", "KEY"], lacks: Lacks::Locks },
    Right { name: "type", trial: &["TYPE", "KEY"], lacks: Lacks::Locks },
    Right { name: "strlen", trial: &["STRLEN", "KEY"], lacks: Lacks::Locks },
    Right { name: "getrange", trial: &["GETRANGE", "KEY", "0", "0"], lacks: Lacks::Locks },
    Right { name: "pttl", trial: &["PTTL", "KEY"], lacks: Lacks::Locks },
    Right { name: "time", trial: &["TIME"], lacks: Lacks::Locks },
    Right { name: "get", trial: &["GET", "KEY"], lacks: Lacks::Locks },
    Right { name: "set", trial: &["SET", "KEY", "", "XX", "PX", "1"], lacks: Lacks::Locks },
    Right { name: "pexpire", trial: &["PEXPIRE", "KEY", "1"], lacks: Lacks::Locks },
    Right { name: "del", trial: &["DEL", "KEY"], lacks: Lacks::Locks },
    Right {
        name: "unlink",
        trial: &["UNLINK", "KEY"],
        lacks: Lacks::Comfort("break --foreign cannot delete what is none of rlock's"),
    },
    Right {
        name: "info",
        trial: &["INFO", "server"],
        lacks: Lacks::Comfort("a server that restarted, or that is named twice, cannot be told"),
    },
    Right { name: "scan", trial: &["SCAN", "0"], lacks: Lacks::Comfort("inspect finds no lock that is not named") },
    Right { name: "dbsize", trial: &["DBSIZE"], lacks: Lacks::Detail("inspect cannot tell how far it has come") },
    Right {
        name: "config|get",
        trial: &["CONFIG", "GET", "appendfsync"],
        lacks: Lacks::Detail("how often the server writes to its disk cannot be told"),
    },
    // Since Redis 6.2 nobody can be kept from it.
    Right { name: "hello", trial: &["HELLO", "2"], lacks: IN_LINE },
    Right { name: "subscribe", trial: &["SUBSCRIBE", "CHANNEL"], lacks: IN_LINE },
    Right { name: "publish", trial: &["PUBLISH", "CHANNEL", ""], lacks: IN_LINE },
    Right { name: "pubsub|numsub", trial: &["PUBSUB", "NUMSUB", "CHANNEL"], lacks: IN_LINE },
    Right { name: "zadd", trial: &["ZADD", "KEY", "XX", "1", ""], lacks: IN_LINE },
    Right { name: "zrem", trial: &["ZREM", "KEY", ""], lacks: IN_LINE },
    Right { name: "zrange", trial: &["ZRANGE", "KEY", "0", "0"], lacks: IN_LINE },
    Right { name: "zrank", trial: &["ZRANK", "KEY", ""], lacks: IN_LINE },
];

/// The line that grants `user` exactly this for the locks `keys`, or for all if there are none. `select`: the database is
/// not the first one.
pub fn acl_line(user: &str, keys: &[Key], select: bool) -> String {
    let patterns = keys.iter().flat_map(|key| {
        let (own, derived) = (literal(key.stored()), literal(&key.derived("*")).replacen("\\*", "*", 1));
        [own, derived].map(|pattern| word(&format!("~{pattern}")))
    });
    let all = keys.is_empty().then(|| "~*".to_owned());
    let rights = RIGHTS.iter().map(|right| right.name).chain(select.then_some("select"));
    // A new user of Redis 6.2 has all channels, to which none can be added.
    let words = patterns
        .chain(all)
        .chain(["resetchannels".to_owned(), CHANNELS.to_owned()])
        .chain(rights.map(|right| format!("+{right}")));
    format!("ACL SETUSER {user} on >PASSWORD {}", words.collect::<Vec<_>>().join(" "))
}

/// A name as a pattern that matches nothing else.
fn literal(name: &str) -> String {
    name.chars().flat_map(|c| "*?[]\\".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A word as redis-cli reads it.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "~*:{}_-./@%+=,".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("\"{}\"", crate::escape::text(&text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_locks_and_what_belongs_to_them() {
        let key = |name: &str| Key::new("", name).unwrap();
        let line = acl_line("ci", &[key("job")], false);
        assert!(
            line.starts_with(
                "ACL SETUSER ci on >PASSWORD ~job ~rlock:*:{job}:job resetchannels &rlock:wake:* +eval +type "
            ),
            "{line}"
        );
        assert!(
            !line.contains("+select") && acl_line("ci", &[], true).contains(" ~* resetchannels &rlock:wake:* +eval")
        );
        let odd = acl_line("ci", &[key("a*b")], false);
        assert!(odd.contains(r#" "~a\\*b" "~rlock:*:{a\\*b}:a\\*b" "#), "{odd}");
    }
}
