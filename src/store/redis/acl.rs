//! The rights that a user of the server needs: the ACL line that grants them, and a request that
//! tries each.
//!
//! A command that a script calls must be listed here. A test gives a user these rights and no more,
//! and tries everything.

use super::address::HostKind;
use super::locator::Way;
use crate::lock::key::Key;
use crate::store::examine::{Rights, Role};
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

/// The rights of [`Role::Monitor`], which are used by no request that changes a key.
const OF_MONITOR: [&str; 21] = [
    "eval",
    "evalsha",
    "type",
    "strlen",
    "getrange",
    "pttl",
    "time",
    "get",
    "info",
    "scan",
    "dbsize",
    "hello",
    "zrange",
    "zscore",
    "zcard",
    "zrangebyscore",
    "zrevrange",
    "hget",
    "hlen",
    "hexists",
    "hstrlen",
];

/// The rights of [`Role::Operator`] beside those of a monitor.
const OF_OPERATOR: [&str; 10] = [
    "set",
    "pexpire",
    "del",
    "unlink",
    "publish",
    "zadd",
    "zrem",
    "hset",
    "hdel",
    "pexpireat",
];

/// Returns the rights of `role`.
pub(super) fn rights_of(role: Role) -> impl Iterator<Item = &'static Right> {
    RIGHTS.iter().filter(move |right| match role {
        Role::Job => true,
        Role::Operator => OF_MONITOR.contains(&right.name) || OF_OPERATOR.contains(&right.name),
        Role::Monitor => OF_MONITOR.contains(&right.name),
    })
}

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

/// The locks of a user.
#[derive(Clone, Copy)]
pub struct Locks<'a> {
    /// Their names.
    pub keys: &'a [Key],
    /// Patterns of names, as the ACL has them, behind the prefix.
    pub patterns: &'a [String],
    pub prefix: &'a str,
}

/// Returns the line for the user that these nodes name, or for one named rlock in its `role`, and
/// for these locks.
pub fn grant(ways: &[Way], role: Role, locks: Locks) -> Result<Rights, String> {
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
        line: acl_line(users.next().unwrap_or("rlock"), role, locks, &more)?,
        note: format!(
            "write > and the password, or nothing if the user has one, in place of {PASSWORD_PLACE}"
        ),
    })
}

/// Returns the line that grants `user` the rights of `role` and `more` for these locks, or for all
/// locks if there are none. It takes away any other right but those of selectors, leaves the user's
/// passwords, and changes nothing until [`PASSWORD_PLACE`] is replaced.
fn acl_line(user: &str, role: Role, locks: Locks, more: &[&str]) -> Result<String, String> {
    // Each kind is named: `*` in its place would match keys of other locks as well.
    let names_of = |key: &Key| {
        let names = Names::of(key);
        let derived = Derived::OF_LOCK.into_iter().chain([Derived::Doctor]);
        let derived = derived.map(|kind| names.derived(kind));
        [key.stored().to_owned()]
            .into_iter()
            .chain(derived)
            .collect::<Vec<_>>()
    };
    let mut patterns: Vec<String> = locks.keys.iter().flat_map(names_of).collect();
    patterns = patterns.iter().map(|name| literal(name)).collect();
    for pattern in locks.patterns {
        let shown = crate::text::escape::text(pattern);
        if pattern.contains(['{', '}']) {
            return Err(format!(
                "--pattern {shown}: locks with a brace need -k each"
            ));
        }
        let key = Key::new(&literal(locks.prefix), pattern)
            .map_err(|why| format!("--pattern {shown}: {why}"))?;
        patterns.extend(names_of(&key));
    }
    if patterns.is_empty() {
        patterns.push("*".to_owned());
    }
    // A new user of Redis 6.2 has all channels, to which none can be added.
    let channels = (role != Role::Monitor).then(|| CHANNELS.to_owned());
    let rights = rights_of(role).map(|right| right.name);
    let words = patterns
        .iter()
        .map(|pattern| word(&format!("~{pattern}")))
        .chain(["resetchannels".to_owned()])
        .chain(channels)
        .chain(["-@all".to_owned()])
        .chain(
            rights
                .chain(more.iter().copied())
                .map(|right| format!("+{right}")),
        );
    let user = word(user);
    Ok(format!(
        "ACL SETUSER {user} on {PASSWORD_PLACE} resetkeys {}",
        words.collect::<Vec<_>>().join(" ")
    ))
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

    fn line_of(user: &str, keys: &[Key], more: &[&str]) -> String {
        let locks = Locks {
            keys,
            patterns: &[],
            prefix: "",
        };
        acl_line(user, Role::Job, locks, more).unwrap()
    }

    #[test]
    fn the_line_names_the_locks_and_what_belongs_to_them() {
        let key = |name: &str| Key::new("", name).unwrap();
        let line = line_of("ci", &[key("job")], &[]);
        assert!(
            line.starts_with(
                "ACL SETUSER ci on {>PASSWORD} resetkeys ~job ~rlock:fence:{job}:job ~rlock:leases:{job}:job \
                 ~rlock:holders:{job}:job ~rlock:queue:{job}:job ~rlock:turns:{job}:job ~rlock:newest:{job}:job ~rlock:last:{job}:job ~rlock:doctor:{job}:job resetchannels &rlock:wake:* -@all +eval +evalsha +type "
            ),
            "{line}"
        );
        assert!(
            !line.contains("+select")
                && line_of("ci", &[], OF_DATABASE)
                    .contains(" ~* resetchannels &rlock:wake:* -@all +eval")
        );
        let odd = line_of("ci", &[key("a*b")], &[]);
        assert!(
            odd.contains(r#" "~a\\*b" "~rlock:fence:{a\\*b}:a\\*b" "#),
            "{odd}"
        );
        assert!(!line.contains("config"), "{line}");
    }

    #[test]
    fn a_pattern_is_one_behind_a_prefix_that_is_none() {
        let line = |pattern: &str| {
            let locks = Locks {
                keys: &[],
                patterns: &[pattern.to_owned()],
                prefix: "x*:",
            };
            acl_line("ci", Role::Job, locks, &[])
        };
        let of_pattern = line("deploy-*").unwrap();
        assert!(
            of_pattern
                .contains(r#" "~x\\*:deploy-*" "~rlock:fence:{x\\*:deploy-*}:x\\*:deploy-*" "#),
            "{of_pattern}"
        );
        assert!(line("a{*").is_err_and(|why| why.contains("brace")));
    }

    #[test]
    fn each_right_of_a_role_is_one_of_all() {
        let count = |role| rights_of(role).count();
        let (monitor, operator) = (OF_MONITOR.len(), OF_OPERATOR.len());
        assert_eq!(count(Role::Monitor), monitor);
        assert_eq!(count(Role::Operator), monitor + operator);
        assert_eq!(count(Role::Job), RIGHTS.len());
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
        assert!(line_of("a\"b", &[], &[]).starts_with(r#"ACL SETUSER "a\"b" on {>PASSWORD} "#));
    }
}
