//! The rights that a user of the server needs: the ACL line that grants them, and a request that
//! tries each.
//!
//! A command that a script calls must be listed here. A test gives a user these rights and no more,
//! and tries everything.

use super::address::HostKind;
use super::locator::Way;
use crate::lock::key::Key;
use crate::store::examine::Rights;
use crate::store::redis::names::{Derived, Names};

/// A right that rlock uses.
pub struct Right {
    /// Its name in the ACL line, without the plus.
    pub name: &'static str,
    /// A request that shows whether the right is granted and changes nothing. `KEY` stands for a
    /// key that no lock has, `CHANNEL` for a channel without subscribers.
    pub trial: &'static [&'static str],
    /// The effect of its absence; `None`: no lock can be held.
    pub lacks: Option<&'static str>,
}

const fn right(
    name: &'static str,
    trial: &'static [&'static str],
    lacks: Option<&'static str>,
) -> Right {
    Right { name, trial, lacks }
}

/// Why a right is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// The server denies it to the user.
    Denied,
    /// The server does not know the command.
    Unknown,
}

/// The channels of waiters, as the ACL line names them.
const CHANNELS: &str = "&rlock:wake:*";

/// The right to them.
pub static TO_CHANNELS: Right = right(
    "the channels &rlock:wake:*",
    &[],
    Some("waiters hear late that the lock is free"),
);

const REQUIRED: Option<&str> = None;

const IN_LINE: Option<&str> = Some("waiters go in no order, or learn late that the lock is free");

const OF_MEMBERS: Option<&str> =
    Some("--shared and --slots cannot be used, and such locks not be described");

const AS_REDISSON: Option<&str> =
    Some("--as redisson cannot be used, and such locks not be described");

/// Rights to commands that rlock sends by themselves. All others are used by scripts.
pub const OUTSIDE_SCRIPTS: [&str; 6] = ["evalsha", "info", "scan", "dbsize", "hello", "subscribe"];

/// All rights that rlock uses. CONFIG GET is not among them: no ACL limits it to one parameter, and
/// others are passwords.
pub const RIGHTS: &[Right] = &[
    right("eval", &["EVAL", "return 1", "1", "KEY"], REQUIRED),
    right(
        "evalsha",
        &[
            "EVALSHA",
            "0000000000000000000000000000000000000000",
            "1",
            "KEY",
        ],
        Some("each request brings its script along"),
    ),
    right("type", &["TYPE", "KEY"], REQUIRED),
    right("strlen", &["STRLEN", "KEY"], REQUIRED),
    right("getrange", &["GETRANGE", "KEY", "0", "0"], REQUIRED),
    right("pttl", &["PTTL", "KEY"], REQUIRED),
    right("time", &["TIME"], REQUIRED),
    right("get", &["GET", "KEY"], REQUIRED),
    right("set", &["SET", "KEY", "", "XX", "PX", "1"], REQUIRED),
    right("pexpire", &["PEXPIRE", "KEY", "1"], REQUIRED),
    right("del", &["DEL", "KEY"], REQUIRED),
    right(
        "unlink",
        &["UNLINK", "KEY"],
        Some("break --foreign cannot delete what is none of rlock's"),
    ),
    right(
        "info",
        &["INFO", "server"],
        Some("a server that restarted, or that is named twice, cannot be told"),
    ),
    right(
        "scan",
        &["SCAN", "0"],
        Some("inspect finds no lock that is not named"),
    ),
    right(
        "dbsize",
        &["DBSIZE"],
        Some("inspect cannot tell how far it has come"),
    ),
    // Redis 6.2 and later deny it to no user.
    right("hello", &["HELLO", "2"], IN_LINE),
    right("subscribe", &["SUBSCRIBE", "CHANNEL"], IN_LINE),
    right("publish", &["PUBLISH", "CHANNEL", ""], IN_LINE),
    right("pubsub|numsub", &["PUBSUB", "NUMSUB", "CHANNEL"], IN_LINE),
    right("zadd", &["ZADD", "KEY", "XX", "1", ""], IN_LINE),
    right("zrem", &["ZREM", "KEY", ""], IN_LINE),
    right("zrange", &["ZRANGE", "KEY", "0", "0"], IN_LINE),
    right("zrank", &["ZRANK", "KEY", ""], IN_LINE),
    right("zscore", &["ZSCORE", "KEY", ""], IN_LINE),
    right("zcard", &["ZCARD", "KEY"], OF_MEMBERS),
    right(
        "zrangebyscore",
        &["ZRANGEBYSCORE", "KEY", "0", "0"],
        OF_MEMBERS,
    ),
    right("zrevrange", &["ZREVRANGE", "KEY", "0", "0"], OF_MEMBERS),
    // An odd number of words is refused after the rights were checked, so this sets nothing.
    right("hset", &["HSET", "KEY", "", "", ""], OF_MEMBERS),
    right("hget", &["HGET", "KEY", ""], OF_MEMBERS),
    right("hdel", &["HDEL", "KEY", ""], OF_MEMBERS),
    right("hlen", &["HLEN", "KEY"], OF_MEMBERS),
    right("pexpireat", &["PEXPIREAT", "KEY", "1"], OF_MEMBERS),
    right("hexists", &["HEXISTS", "KEY", ""], AS_REDISSON),
    right("hstrlen", &["HSTRLEN", "KEY", ""], AS_REDISSON),
];

/// Whether `name` is one that a server can give to a user and a terminal can show.
fn is_user(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(char::is_whitespace)
        && crate::text::escape::text(name) == name
}

/// The place of the password in the ACL line. A server refuses a line with it as a whole. A shell
/// makes a redirection of it, and the brace that is left is refused as well.
const PASSWORD_PLACE: &str = "{>PASSWORD}";

/// Rights that a database other than the first one needs beside them.
const OF_DATABASE: &[&str] = &["select"];

/// Rights that a cluster needs beside them.
const OF_CLUSTER: &[&str] = &["cluster|slots", "cluster|nodes", "asking"];

/// Returns the line for the user that these nodes name, or for one named rlock, and for the locks
/// `keys`.
pub fn grant(ways: &[Way], keys: &[Key]) -> Result<Rights, String> {
    let mut users = ways.iter().filter_map(|way| way.remote.user.as_deref());
    // The user stands in the line, which is pasted into a server.
    let is_odd = |way: &&Way| {
        way.remote
            .user
            .as_deref()
            .is_some_and(|user| !is_user(user))
    };
    if let Some(way) = ways.iter().find(is_odd) {
        return Err(format!(
            "--node {way}: no server has a user with a blank or a control character"
        ));
    }
    let of_database = ways.iter().any(|way| way.remote.db > 0);
    let is_cluster = ways.iter().any(|way| way.remote.kind == HostKind::Member);
    let more = [(of_database, OF_DATABASE), (is_cluster, OF_CLUSTER)];
    let more = more.iter().filter(|(is_needed, _)| *is_needed);
    let more: Vec<&str> = more.flat_map(|(_, rights)| *rights).copied().collect();
    Ok(Rights {
        line: acl_line(users.next().unwrap_or("rlock"), keys, &more),
        note: format!("write > and the password in place of {PASSWORD_PLACE}"),
    })
}

/// Returns the line that grants `user` these rights and `more` for the locks `keys`, or for all
/// locks if there are none. It takes away any other right, and changes nothing until
/// [`PASSWORD_PLACE`] is replaced.
fn acl_line(user: &str, keys: &[Key], more: &[&str]) -> String {
    let patterns = keys.iter().flat_map(|key| {
        let names = Names::of(key);
        // Each kind is named: `*` in its place would match keys of other locks as well.
        let derived = Derived::OF_LOCK
            .into_iter()
            .chain([Derived::Doctor])
            .map(move |kind| names.derived(kind));
        [key.stored().to_owned()]
            .into_iter()
            .chain(derived)
            .map(|name| word(&format!("~{}", literal(&name))))
    });
    let all = keys.is_empty().then(|| "~*".to_owned());
    let rights = RIGHTS
        .iter()
        .map(|right| right.name)
        .chain(more.iter().copied());
    // A new user of Redis 6.2 has all channels, to which none can be added.
    let words = patterns
        .chain(all)
        .chain(["resetchannels".to_owned(), CHANNELS.to_owned()])
        .chain(rights.map(|right| format!("+{right}")));
    let user = word(user);
    format!(
        "ACL SETUSER {user} reset on {PASSWORD_PLACE} {}",
        words.collect::<Vec<_>>().join(" ")
    )
}

/// Returns the pattern that matches `name` alone.
fn literal(name: &str) -> String {
    name.chars()
        .flat_map(|c| "*?[]\\".contains(c).then_some('\\').into_iter().chain([c]))
        .collect()
}

/// Returns `text` as a word that redis-cli reads.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "~*:{}_-./@%+=,".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!(
        "\"{}\"",
        crate::text::escape::text(&text.replace('\\', "\\\\").replace('"', "\\\""))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_locks_and_what_belongs_to_them() {
        let key = |name: &str| Key::new("", name).unwrap();
        let line = acl_line("ci", &[key("job")], &[]);
        assert!(
            line.starts_with(
                "ACL SETUSER ci reset on {>PASSWORD} ~job ~rlock:fence:{job}:job ~rlock:leases:{job}:job \
                 ~rlock:holders:{job}:job ~rlock:queue:{job}:job ~rlock:turns:{job}:job ~rlock:newest:{job}:job ~rlock:last:{job}:job ~rlock:doctor:{job}:job resetchannels &rlock:wake:* +eval +evalsha +type "
            ),
            "{line}"
        );
        assert!(
            !line.contains("+select")
                && acl_line("ci", &[], OF_DATABASE)
                    .contains(" ~* resetchannels &rlock:wake:* +eval")
        );
        let odd = acl_line("ci", &[key("a*b")], &[]);
        assert!(
            odd.contains(r#" "~a\\*b" "~rlock:fence:{a\\*b}:a\\*b" "#),
            "{odd}"
        );
        assert!(!line.contains("config"), "{line}");
    }

    #[test]
    fn a_users_name_cannot_add_words_to_the_line() {
        for name in ["ci", "ci-2", "größe", "a\"b", "a'b", "a;b"] {
            assert!(is_user(name), "{name}");
        }
        for name in [
            "",
            "x nopass ~* +@all",
            "x\ty",
            "x\ny",
            "x\u{a0}y",
            "x\0",
            "x\u{202e}y",
            "x\x1b[2J",
        ] {
            assert!(!is_user(name), "{name:?}");
        }
        assert!(
            acl_line("a\"b", &[], &[]).starts_with(r#"ACL SETUSER "a\"b" reset on {>PASSWORD} "#)
        );
    }
}
