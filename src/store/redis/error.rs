//! The server's error messages, classified: what each means for the request that it answers.

use redis::{ErrorKind, RedisError, Value};

use super::connect::Access;
use super::reply;
use crate::secret;
use crate::secret::Secret;
use crate::store::{Denied, Fault, FaultKind};
use crate::text::escape;

/// Codes and words of errors that are about rights. Where the code is lost (an error that a script
/// wraps, redis-rs' answer to SELECT), the words are not.
const REFUSED: [&str; 8] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ACL failure in script",
    "can't run this command",
    "can't access at least one of the keys",
    "Authentication required",
    "has no permissions",
];

/// Words of an error about the keys of a lock: the server answered, and may serve other locks.
const KEYS_DENIED: [&str; 3] = [
    "to access a key",
    "to access one of the keys",
    "can't access at least one of the keys",
];

const GIVE_PASSWORD: &str = "give the password that the server knows with RLOCK_PASSWORD or --password-file, and its user in the address, as in redis://USER@HOST";

/// The remedy for a node that is a replica.
pub(super) const NAME_THE_PRIMARY: &str = "name the primary";

/// Codes of conditions that pass, with the remedy if there is one. A request that was refused with
/// one of them changed nothing: each script's first write is the one that is refused.
const PASSING: [(&str, Option<&str>); 11] = [
    ("LOADING", None),
    ("READONLY", Some(NAME_THE_PRIMARY)),
    ("MASTERDOWN", None),
    ("CLUSTERDOWN", Some("see CLUSTER INFO there")),
    ("BUSY", None),
    ("OOM", Some("raise its maxmemory, or delete keys")),
    (
        "MISCONF",
        Some("see its log, free space on its disk, then BGSAVE"),
    ),
    (
        "NOREPLICAS",
        Some("restart its replicas, or lower min-replicas-to-write"),
    ),
    ("TRYAGAIN", None),
    ("UNBLOCKED", None),
    ("NOSCRIPT", None),
];

/// Codes by which a replica refuses, or a server that has become one.
const REPLICA: [&str; 3] = ["READONLY", "MASTERDOWN", "UNBLOCKED"];

/// Part of the refusal by a server that took HELLO 3 and speaks RESP2: the connection has
/// subscribed, and takes no request.
const SUBSCRIBED_ONLY: &str = "allowed in this context";

/// A replica's answer to WAIT and WAITAOF.
const NOT_ON_REPLICAS: &str = "cannot be used with replica";

/// Returns the fault that `error` is, in words that do not show the password that the server was
/// sent.
pub(super) fn fault(error: &RedisError, password: Option<&Secret>) -> Fault {
    let told = if shuts_out(error) {
        "NOAUTH Authentication required.".to_owned()
    } else {
        message(error)
    };
    // Classified before the password is hidden: it may contain words that mean something.
    let text = escape::short(&told);
    let fault = match error.kind() {
        ErrorKind::AuthenticationFailed => Fault::denied(Denied::Login, &*text, GIVE_PASSWORD),
        ErrorKind::InvalidClientConfig => Fault::new(FaultKind::Unfit, &*text),
        ErrorKind::Server(_) | ErrorKind::Extension => of_server(&text),
        // Broken, closed or unintelligible after the request was written: it may have been
        // executed.
        _ => Fault::new(FaultKind::Unknown, &*text),
    };
    // A refused right is told in the server's own words, in which a short password may stand by
    // chance: hiding it would show it.
    match password.filter(|_| !is_refused_right(&text)) {
        Some(password) => Fault {
            why: escape::short(&secret::without(&told, password.reveal())),
            ..fault
        },
        None => fault,
    }
}

/// Whether the server closes the connection with `error`, and executes nothing that was sent
/// behind: Redis' answer to a client without a password whose request is longer than an AUTH.
pub(super) fn shuts_out(error: &RedisError) -> bool {
    let message = message(error);
    message.contains("unauthenticated multibulk length")
        || message.contains("unauthenticated bulk length")
}

/// Returns the fault that `error` is where no request was sent yet: nothing can have been executed.
pub(super) fn fault_before_requests(error: &RedisError, access: &Access) -> Fault {
    match error.kind() {
        // The crate does not pass the server's message on.
        ErrorKind::AuthenticationFailed => wrong_login(access),
        // Redis 6 without HELLO, in the crate's words.
        ErrorKind::RESP3NotSupported => Fault::new(FaultKind::Unfit, "unknown command 'HELLO'"),
        _ => match fault(error, access.password.as_ref()) {
            fault if fault.kind == FaultKind::Unknown => Fault {
                kind: FaultKind::Unavailable,
                ..fault
            },
            other => other,
        },
    }
}

/// Tells which user was tried, and where its password came from.
fn wrong_login(access: &Access) -> Fault {
    let (user, remedy) = match access.user.as_deref() {
        Some(user) if access.password.is_none() => (
            escape::short(user),
            "give its password with RLOCK_PASSWORD or --password-file, or correct the user in the address",
        ),
        Some(user) => (
            escape::short(user),
            "correct the password, or the user in the address",
        ),
        None => (
            "default, as none is named".to_owned(),
            "correct it, or name its user in the address, as in redis://USER@HOST",
        ),
    };
    let password = access
        .password
        .as_ref()
        .map(|password| format!("password from {}", password.source()));
    let password = password.as_deref().unwrap_or("no password");
    Fault::denied(
        Denied::Login,
        format!("the user or the password is wrong (user {user}; {password})"),
        remedy,
    )
}

/// Why a server has not executed a script that was called by its digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unscripted {
    /// It does not have it.
    Missing,
    /// It lets this user call none so, or does not know how.
    Denied,
}

/// Returns why the server has executed nothing, if it knew the call's script by its digest only.
pub(super) fn unscripted(reply: &Result<Value, Fault>) -> Option<Unscripted> {
    let fault = reply.as_ref().err()?;
    if is_code(&fault.why, "NOSCRIPT") {
        return Some(Unscripted::Missing);
    }
    let is_about_it = fault
        .why
        .to_ascii_lowercase()
        .replace('`', "'")
        .contains("'evalsha");
    let is_denied = matches!(fault.kind, FaultKind::Refused | FaultKind::Unfit) && is_about_it;
    is_denied.then_some(Unscripted::Denied)
}

/// Whether the reply, or its refusal, says that the server is a replica.
pub(super) fn is_from_a_replica(reply: &Result<Value, Fault>) -> bool {
    match reply {
        Ok(value) => reply::is_replica(value),
        Err(fault) => {
            REPLICA.iter().any(|code| is_code(&fault.why, code))
                || fault.why.contains(NOT_ON_REPLICAS)
        }
    }
}

/// Whether the connection takes no request since it has subscribed.
pub(super) fn is_subscribed_only(reply: &Result<Value, Fault>) -> bool {
    reply
        .as_ref()
        .is_err_and(|fault| fault.why.contains(SUBSCRIBED_ONLY))
}

/// Whether `code` is the error's code. Redis 7 passes a command's error on as its own. Redis 6
/// wraps it: "ERR Error running script …: -READONLY You …".
fn is_code(text: &str, code: &str) -> bool {
    text.split(' ').next() == Some(code) || text.contains(&format!("-{code} "))
}

/// Whether it is a refused right, in a sentence that repeats nothing of what was sent. Redis 6
/// wraps what a script met, and Valkey 8 has words of its own.
fn is_refused_right(text: &str) -> bool {
    text.starts_with("NOPERM ")
        || text.starts_with("ERR ACL failure in script: ")
        || text.starts_with("ERR Error running script") && text.contains(": -NOPERM ")
}

/// Returns the fault that the server's own error is.
fn of_server(text: &str) -> Fault {
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    if REFUSED
        .iter()
        .any(|known| is_code(text, known) || (known.contains(' ') && text.contains(known)))
    {
        let denied = if has(&KEYS_DENIED) {
            Denied::Key
        } else if has(&["to access"]) {
            Denied::Channel
        } else if has(&["NOAUTH", "WRONGPASS", "Authentication required"]) {
            Denied::Login
        } else {
            Denied::Command
        };
        let remedy = match denied {
            Denied::Login => GIVE_PASSWORD,
            Denied::Command if has(&["run the 'wait", "run the 'WAIT"]) => {
                "grant +wait, and for --fsync +waitaof"
            }
            _ => "grant the line of rlock doctor --acl with -k for each lock of this user",
        };
        return Fault::denied(denied, text, remedy);
    }
    if !PASSING.iter().any(|(code, _)| is_code(text, code))
        && !has(&["max number of clients", NOT_ON_REPLICAS, SUBSCRIBED_ONLY])
    {
        return Fault::new(FaultKind::Unfit, text);
    }
    let remedy = PASSING
        .iter()
        .find(|(code, _)| is_code(text, code))
        .and_then(|(_, remedy)| *remedy);
    Fault {
        remedy,
        ..Fault::new(FaultKind::Unavailable, text)
    }
}

/// The server's message, with its code where the crate has kept it.
fn message(error: &RedisError) -> String {
    // The crate's own words show the parser's state, and bytes as numbers.
    if error.kind() == ErrorKind::Parse {
        return "its answer is none of Redis' protocol".to_owned();
    }
    let mut message = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) => detail.to_owned(),
        _ => error.to_string(),
    };
    // Redis 7 names the place in the script: "… script: SHA, on @user_script:161."
    if let Some(end) = message
        .rfind(" script: ")
        .filter(|end| message[*end..].contains("@user_script"))
    {
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsers_state_is_not_shown() {
        let error = RedisError::from((ErrorKind::Parse, "Unexpected `50`"));
        let fault = fault(&error, None);
        assert_eq!(
            (fault.kind, fault.why.as_str()),
            (FaultKind::Unknown, "its answer is none of Redis' protocol")
        );
    }

    #[test]
    fn the_place_in_the_script_is_cut_off_and_no_words_before_it() {
        let told = "ERR ACL failure in script: No permissions to access a key";
        let text = format!("-{told} script: 3c9b9, on @user_script:1.\r\n");
        let Ok(Value::ServerError(error)) = redis::parse_redis_value(text.as_bytes()) else {
            panic!("{text}")
        };
        let fault = fault(&error.into(), None);
        assert_eq!((fault.kind, fault.why.as_str()), (FaultKind::Refused, told));
    }

    #[test]
    fn a_password_is_hidden_where_a_server_repeats_it_and_nowhere_else() {
        let told = |text: &str, password: &str| {
            let Ok(Value::ServerError(error)) =
                redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
            else {
                panic!("{text}")
            };
            fault(&error.into(), Some(&Secret::new(password))).why
        };
        let noperm =
            "NOPERM this user has no permissions to access one of the keys used as arguments";
        assert_eq!(told(noperm, "one"), noperm);
        let wrapped = format!("ERR Error running script (call to f_1): @user_script:9: -{noperm}");
        assert_eq!(told(&wrapped, "one"), wrapped);
        let repeated = |secret: &str| format!("ERR unknown command 'HELLO', with args: '{secret}'");
        for password in ["one", "x: -NOPERM y"] {
            assert_eq!(told(&repeated(password), password), repeated("***"));
        }
    }

    #[test]
    fn errors_of_both_redis_generations_are_told_apart() {
        for (text, kind) in [
            ("NOAUTH Authentication required.", FaultKind::Refused),
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                FaultKind::Refused,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:9: -NOPERM this user",
                FaultKind::Refused,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key",
                FaultKind::Refused,
            ),
            ("ERR Authentication required.", FaultKind::Refused),
            (
                "ERR this user has no permissions to run the 'select' command",
                FaultKind::Refused,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand",
                FaultKind::Refused,
            ),
            (
                "READONLY You can't write against a read only replica.",
                FaultKind::Unavailable,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write",
                FaultKind::Unavailable,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                FaultKind::Unavailable,
            ),
            (
                "BUSY Redis is busy running a script.",
                FaultKind::Unavailable,
            ),
            (
                "UNBLOCKED force unblock from blocking operation, instance state changed",
                FaultKind::Unavailable,
            ),
            (
                "ERR WAIT cannot be used with replica instances.",
                FaultKind::Unavailable,
            ),
            (
                "ERR Can't execute 'eval': only PING / QUIT are allowed in this context",
                FaultKind::Unavailable,
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                FaultKind::Unfit,
            ),
            ("ERR unknown command 'EVAL'", FaultKind::Unfit),
        ] {
            assert_eq!(of_server(text).kind, kind, "{text}");
        }
    }

    #[test]
    fn what_is_denied_is_told_with_its_remedy() {
        for (text, denied, remedy) in [
            (
                "NOAUTH Authentication required.",
                Denied::Login,
                "RLOCK_PASSWORD",
            ),
            (
                "WRONGPASS invalid username-password pair",
                Denied::Login,
                "RLOCK_PASSWORD",
            ),
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                Denied::Command,
                "doctor --acl",
            ),
            (
                "NOPERM this user has no permissions to run the 'wait' command",
                Denied::Command,
                "+wait",
            ),
            (
                "ERR The user executing the script can't run this command or subcommand",
                Denied::Command,
                "doctor --acl",
            ),
            (
                "NOPERM No permissions to access a key",
                Denied::Key,
                "doctor --acl",
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Denied::Key,
                "doctor --acl",
            ),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
                Denied::Key,
                "doctor --acl",
            ),
            (
                "NOPERM No permissions to access a channel",
                Denied::Channel,
                "doctor --acl",
            ),
        ] {
            let fault = of_server(text);
            assert_eq!(
                (fault.kind, fault.denied),
                (FaultKind::Refused, Some(denied)),
                "{text}"
            );
            assert!(
                fault.remedy.is_some_and(|told| told.contains(remedy)),
                "{fault:?}"
            );
        }
    }
}
