//! The server's error messages, classified: what each means for the request that it answers.

use redis::{ErrorKind, RedisError, Value};

use super::access::Access;
use super::reply;
use super::tls::words;
use crate::lock::fault::{NO_USER_NAMED, WRONG_LOGIN};
use crate::node::address::Secret;
use crate::node::{Fault, FaultKind};
use crate::secret;
use crate::text::escape;

/// Codes and words of errors that are about rights. Where the code is lost (an error that a script wraps, redis-rs' answer
/// to SELECT), the words are not.
const REFUSED: [&str; 7] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "can't run this command",
    "can't access at least one of the keys",
    "Authentication required",
    "has no permissions",
];

/// Codes of conditions that pass. A request that was refused with one of them changed nothing: each script's first write is
/// the one that is refused.
const PASSING: [&str; 10] = [
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "BUSY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "TRYAGAIN",
    "UNBLOCKED",
];

/// Codes by which a replica refuses, or a server that has become one.
const REPLICA: [&str; 3] = ["READONLY", "MASTERDOWN", "UNBLOCKED"];

/// Part of the refusal by a server that took HELLO 3 and speaks RESP2: the connection has subscribed, and takes no request.
const SUBSCRIBED_ONLY: &str = "allowed in this context";

/// A replica's answer to WAIT and WAITAOF.
const NOT_ON_REPLICAS: &str = "cannot be used with replica";

/// Returns the fault that `error` is, in words that do not show the password that the server was sent.
pub(super) fn fault(error: &RedisError, password: Option<&Secret>) -> Fault {
    let told = if shuts_out(error) { "NOAUTH Authentication required.".to_owned() } else { message(error) };
    let is_servers = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    let of_tls = if is_servers { None } else { words::of_text(&told) };
    let (refused, message) = of_tls.unwrap_or((None, told));
    // Classified before the password is hidden: it may contain words that mean something.
    let text = escape::short(&message);
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed => FaultKind::Refused,
        ErrorKind::InvalidClientConfig => FaultKind::Unfit,
        ErrorKind::Server(_) | ErrorKind::Extension => kind_of_server_error(&text),
        // Broken, closed or unintelligible after the request was written: it may have been executed.
        _ => refused.unwrap_or(FaultKind::Unknown),
    };
    // A refused right is told in the server's own words, in which a short password may stand by chance: hiding it would show it.
    let password = password.filter(|_| !is_refused_right(&text));
    Fault::new(kind, password.map_or(text, |password| escape::short(&secret::without(&message, password.reveal()))))
}

/// Whether the server closes the connection with `error`, and executes nothing that was sent behind: Redis' answer to a client
/// without a password whose request is longer than an AUTH.
pub(super) fn shuts_out(error: &RedisError) -> bool {
    let message = message(error);
    message.contains("unauthenticated multibulk length") || message.contains("unauthenticated bulk length")
}

/// Returns the fault that `error` is where no request was sent yet: nothing can have been executed.
pub(super) fn fault_before_requests(error: &RedisError, access: &Access) -> Fault {
    match error.kind() {
        // The crate does not pass the server's message on.
        ErrorKind::AuthenticationFailed => Fault::new(FaultKind::Refused, wrong_login(access)),
        // Redis 6 without HELLO, in the crate's words.
        ErrorKind::RESP3NotSupported => Fault::new(FaultKind::Unfit, "unknown command 'HELLO'"),
        _ => match fault(error, access.password.as_ref()) {
            Fault { kind: FaultKind::Unknown, why } => Fault::new(FaultKind::Unavailable, why),
            other => other,
        },
    }
}

/// Tells which user was tried, and where its password came from.
fn wrong_login(access: &Access) -> String {
    let user = access.server.user.as_deref();
    let user = user.map_or_else(|| format!("default, {NO_USER_NAMED}"), escape::short);
    let password = access.password.as_ref().map(|password| format!("password from {}", password.source()));
    format!("{WRONG_LOGIN} (user {user}; {})", password.unwrap_or_else(|| "no password".to_owned()))
}

/// Whether the reply, or its refusal, says that the server is a replica.
pub(super) fn is_from_a_replica(reply: &Result<Value, Fault>) -> bool {
    match reply {
        Ok(value) => reply::is_replica(value),
        Err(fault) => REPLICA.iter().any(|code| is_code(&fault.why, code)) || fault.why.contains(NOT_ON_REPLICAS),
    }
}

/// Whether the connection takes no request since it has subscribed.
pub(super) fn is_subscribed_only(reply: &Result<Value, Fault>) -> bool {
    reply.as_ref().is_err_and(|fault| fault.why.contains(SUBSCRIBED_ONLY))
}

/// Whether `code` is the error's code. Redis 7 passes a command's error on as its own. Redis 6 wraps it: "ERR Error running
/// script …: -READONLY You …".
fn is_code(text: &str, code: &str) -> bool {
    text.split(' ').next() == Some(code) || text.contains(&format!("-{code} "))
}

/// Whether it is a refused right, in a sentence that repeats nothing of what was sent. Redis 6 wraps what a script met.
fn is_refused_right(text: &str) -> bool {
    text.starts_with("NOPERM ") || text.starts_with("ERR Error running script") && text.contains(": -NOPERM ")
}

fn kind_of_server_error(text: &str) -> FaultKind {
    let names = |known: &&str| is_code(text, known);
    if REFUSED.iter().any(|known| names(known) || (known.contains(' ') && text.contains(known))) {
        FaultKind::Refused
    } else if PASSING.iter().any(names)
        || ["max number of clients", NOT_ON_REPLICAS, SUBSCRIBED_ONLY].iter().any(|words| text.contains(words))
    {
        FaultKind::Unavailable
    } else {
        FaultKind::Unfit
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
    if let Some(end) = message.find(" script: ").filter(|end| message[*end..].contains("@user_script")) {
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
        assert_eq!((fault.kind, fault.why.as_str()), (FaultKind::Unknown, "its answer is none of Redis' protocol"));
    }

    #[test]
    fn a_password_is_hidden_where_a_server_repeats_it_and_nowhere_else() {
        let told = |text: &str, password: &str| {
            let Ok(Value::ServerError(error)) = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) else {
                panic!("{text}")
            };
            fault(&error.into(), Some(&Secret::new(password))).why
        };
        let noperm = "NOPERM this user has no permissions to access one of the keys used as arguments";
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
            ("NOPERM this user has no permissions to run the 'eval' command", FaultKind::Refused),
            ("ERR Error running script (call to f_1): @user_script:9: -NOPERM this user", FaultKind::Refused),
            ("ERR Authentication required.", FaultKind::Refused),
            ("ERR this user has no permissions to run the 'select' command", FaultKind::Refused),
            ("ERR The user executing the script can't run this command or subcommand", FaultKind::Refused),
            ("READONLY You can't write against a read only replica.", FaultKind::Unavailable),
            (
                "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write",
                FaultKind::Unavailable,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", FaultKind::Unavailable),
            ("BUSY Redis is busy running a script.", FaultKind::Unavailable),
            ("UNBLOCKED force unblock from blocking operation, instance state changed", FaultKind::Unavailable),
            ("ERR WAIT cannot be used with replica instances.", FaultKind::Unavailable),
            ("ERR Can't execute 'eval': only PING / QUIT are allowed in this context", FaultKind::Unavailable),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", FaultKind::Unfit),
            ("ERR unknown command 'EVAL'", FaultKind::Unfit),
        ] {
            assert_eq!(kind_of_server_error(text), kind, "{text}");
        }
    }
}
