//! Commands by which a client sets a connection up, and those that ask about the server.

use std::borrow::Cow;
use std::time::Duration;

use super::super::number;
use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Protocol, Reply};
use super::super::state::State;
use super::super::wait::Wait;
use super::{integer_at, word};

/// The version whose behaviour is simulated.
const VERSION: &str = "7.0.15";

pub(super) fn hello(state: &mut State, args: &[&[u8]]) -> Outcome {
    let mut protocol = None;
    if let Some(text) = args.get(1) {
        let version = number::integer(text).ok_or(Refusal::new(
            "ERR Protocol version is not an integer or out of range",
        ))?;
        protocol = Some(match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(Refusal::new("NOPROTO unsupported protocol version")),
        });
    }
    let mut options = args.iter().skip(2);
    while let Some(option) = options.next() {
        match (word(option).as_str(), options.len()) {
            ("AUTH", 2..) => {
                let user = options.next().copied().unwrap_or_default();
                options.next();
                authenticate(user)?;
            }
            ("SETNAME", 1..) => _ = options.next(),
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Refusal::with(format!(
                    "ERR Syntax error in HELLO option '{option}'"
                )));
            }
        }
    }
    let caller = state.caller;
    if let Some(protocol) = protocol {
        state.peers.set_protocol(caller, protocol);
    }
    let proto = if state.peers.protocol(caller) == Protocol::Resp3 {
        3
    } else {
        2
    };
    let role = if state.condition.replica {
        "replica"
    } else {
        "master"
    };
    let mode = if state.watch.is_some() {
        "sentinel"
    } else {
        mode(state)
    };
    let mut facts = vec![
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(VERSION)),
        ("proto", Reply::Integer(proto)),
        (
            "id",
            Reply::Integer(i64::try_from(caller.0).unwrap_or(i64::MAX)),
        ),
        ("mode", Reply::bulk(mode)),
        ("role", Reply::bulk(role)),
        ("modules", Reply::Array(vec![])),
    ];
    facts.retain(|(name, _)| state.watch.is_none() || *name != "role");
    Ok(Reply::Map(
        facts
            .into_iter()
            .map(|(name, fact)| (Reply::bulk(name), fact))
            .collect(),
    ))
}

fn mode(state: &State) -> &'static str {
    if state.member.is_some() {
        "cluster"
    } else {
        "standalone"
    }
}

/// The server has one user, which needs no password.
pub(super) fn auth(_: &mut State, args: &[&[u8]]) -> Outcome {
    match args {
        [_, _] => Err(Refusal::new(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        [_, user, _] => authenticate(user).map(|()| Reply::OK),
        _ => Err(Refusal::SYNTAX),
    }
}

fn authenticate(user: &[u8]) -> Result<(), Refusal> {
    let wrong = Refusal::new("WRONGPASS invalid username-password pair or user is disabled.");
    if user == b"default" {
        Ok(())
    } else {
        Err(wrong)
    }
}

/// The server has one database.
pub(super) fn select(_: &mut State, args: &[&[u8]]) -> Outcome {
    match i32::try_from(integer_at(args, 1)?) {
        Ok(0) => Ok(Reply::OK),
        Ok(_) => Err(Refusal::new("ERR DB index is out of range")),
        Err(_) => Err(Refusal::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        )),
    }
}

/// Redis 7.0 has no `CLIENT SETINFO`, the only subcommand that the redis crate asks for.
pub(super) fn client(_: &mut State, args: &[&[u8]]) -> Outcome {
    Err(Refusal::unknown_subcommand("client", args[1]))
}

pub(super) fn ping(state: &mut State, args: &[&[u8]]) -> Outcome {
    if args.len() > 2 {
        return Err(Refusal::wrong_arity("ping"));
    }
    if state.peers.hears_only(state.caller) {
        return Ok(Reply::Array(vec![
            Reply::bulk("pong"),
            Reply::bulk(args.get(1).copied().unwrap_or_default()),
        ]));
    }
    Ok(args
        .get(1)
        .map_or(Reply::Status(Cow::Borrowed(b"PONG")), |word| {
            Reply::bulk(*word)
        }))
}

pub(super) fn time(state: &mut State, _: &[&[u8]]) -> Outcome {
    let parts = [state.now.0 / 1_000_000, state.now.0 % 1_000_000];
    Ok(Reply::Array(
        parts.map(|part| Reply::bulk(part.to_string())).into(),
    ))
}

/// The sections `server` and `replication`, with the fields that rlock reads.
pub(super) fn info(state: &mut State, args: &[&[u8]]) -> Outcome {
    let wanted: Vec<String> = args[1..].iter().map(|name| word(name)).collect();
    let wants = |section: &str| {
        wanted.is_empty()
            || wanted
                .iter()
                .any(|name| [section, "ALL", "DEFAULT", "EVERYTHING"].contains(&name.as_str()))
    };
    let mut sections = Vec::new();
    if wants("SERVER") {
        let uptime =
            state.now.0.div_euclid(1_000_000) - state.identity.started.0.div_euclid(1_000_000);
        let (run_id, mode) = (&state.identity.run_id, mode(state));
        sections.push(format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{mode}\r\nrun_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n"
        ));
    }
    if wants("REPLICATION") {
        let role = if state.condition.replica {
            "slave"
        } else {
            "master"
        };
        let id = &state.identity.replication_id;
        sections.push(format!(
            "# Replication\r\nrole:{role}\r\nmaster_replid:{id}\r\n"
        ));
    }
    Ok(Reply::Verbatim(sections.join("\r\n").into_bytes()))
}

/// Waits for replicas: the caller is answered later, and nothing that it sends is read until then.
pub(super) fn wait(state: &mut State, args: &[&[u8]]) -> Outcome {
    if state.condition.replica {
        return Err(Refusal::new(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let [replicas, ms] = [1, 2].map(|index| integer_at(args, index));
    let (replicas, ms) = (replicas?, ms?);
    let wait = Wait {
        peer: state.caller,
        replicas: usize::try_from(replicas).unwrap_or(0),
        limit: Duration::from_millis(u64::try_from(ms).unwrap_or(0)),
        writes: state.writes,
    };
    state.peers.block(state.caller, true);
    state.waits.push(wait);
    Ok(Reply::Several(vec![]))
}
