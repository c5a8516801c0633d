//! One sentinel's answer to the question which server is the primary of a service, read from its
//! replies. Pure.

use std::fmt;
use std::time::Duration;

use redis::Value;

use crate::store::net::hosts::host_and_port;
use crate::store::redis::reply::{array, bulk};
use crate::store::{Fault, FaultKind};
use crate::text::escape;

/// Words of the error by which a sentinel says that it does not watch the service.
const NO_SUCH_SERVICE: &str = "No such master";

/// Longest host name or address that is taken from a sentinel.
const LONGEST_HOST: usize = 255;

/// The address of a primary.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Location {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A sentinel's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SentinelAnswer {
    /// It names a primary.
    Names(Naming),
    /// It knows no service of that name.
    NoService,
    /// It gave no answer that counts.
    Failed(Fault),
}

/// The primary that a sentinel names, and what else it says about the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Naming {
    pub(super) primary: Location,
    /// Number of the failover that made it the primary.
    pub(super) epoch: u64,
    /// Time for which the sentinel has seen it as the primary.
    pub(super) age: Duration,
    /// Time after which the sentinel takes a silent server for dead.
    pub down_after: Option<Duration>,
    /// Number of other sentinels that it knows.
    pub others: Option<usize>,
}

impl Location {
    /// Returns the address; `None` if it is none that a server could have.
    pub(super) fn new(host: &[u8], port: &[u8]) -> Option<Self> {
        let host = std::str::from_utf8(host).ok().filter(|host| {
            let is_odd = |c: char| c.is_whitespace() || "/?#@%,\\[]<>^|".contains(c);
            !host.is_empty()
                && host.len() <= LONGEST_HOST
                && !host.contains(is_odd)
                && escape::text(host) == *host
        })?;
        let port = std::str::from_utf8(port)
            .ok()?
            .parse()
            .ok()
            .filter(|port| *port > 0)?;
        Some(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Returns the new primary, if `message` announces a switch of `service`:
    /// `service old-host old-port new-host new-port`.
    pub(super) fn of_switch(message: &[u8], service: &str) -> Option<Self> {
        // The name may contain spaces; the four words behind it do not.
        let words = message
            .strip_prefix(service.as_bytes())?
            .strip_prefix(b" ")?;
        match words.split(|byte| *byte == b' ').collect::<Vec<_>>()[..] {
            [_, _, host, port] => Self::new(host, port),
            _ => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&host_and_port(&self.host, self.port))
    }
}

/// Reads the replies of one sentinel to the question for the address, to that for the state, and to
/// that for the address again.
///
/// The state has the epoch, and it may change between two questions: an address that was asked for
/// before and after belongs to it.
pub(super) fn read(
    before: Result<Value, Fault>,
    state: Result<Value, Fault>,
    after: Result<Value, Fault>,
) -> SentinelAnswer {
    match (before, state, after) {
        (Ok(Value::Nil), ..) => SentinelAnswer::NoService,
        (Ok(before), Ok(state), Ok(after)) => match naming(&before, &state) {
            Some(_) if before != after => SentinelAnswer::Failed(Fault::new(
                FaultKind::Unavailable,
                "a failover is passing there",
            )),
            Some(naming) => SentinelAnswer::Names(naming),
            None => SentinelAnswer::Failed(Fault::new(
                FaultKind::Unknown,
                "unexpected reply to SENTINEL MASTER",
            )),
        },
        (Err(fault), ..) | (_, Err(fault), _) | (.., Err(fault)) => explained(fault),
    }
}

fn explained(fault: Fault) -> SentinelAnswer {
    if fault.why.contains(NO_SUCH_SERVICE) {
        return SentinelAnswer::NoService;
    }
    let is_server = fault.kind == FaultKind::Unfit && fault.why.contains("unknown command");
    SentinelAnswer::Failed(if is_server {
        Fault::unfit("it is no sentinel", "write redis:// for a server")
    } else {
        fault
    })
}

fn naming(address: &Value, state: &Value) -> Option<Naming> {
    let [host, port] = array(address)? else {
        return None;
    };
    let primary = Location::new(bulk(host)?, bulk(port)?)?;
    let field = |name: &str| field(state, name.as_bytes());
    let number = |name: &str| std::str::from_utf8(field(name)?).ok()?.parse::<u64>().ok();
    // While its failover ends, a sentinel names the new primary, and shows the state of the old
    // one.
    let is_meant = Location::new(field("ip")?, field("port")?).as_ref() == Some(&primary);
    let is_primary = field("role-reported").is_none_or(|role| role == b"master");
    let age = number("role-reported-time")
        .filter(|_| is_meant && is_primary)
        .map_or(Duration::ZERO, Duration::from_millis);
    Some(Naming {
        primary,
        epoch: number("config-epoch")?,
        age,
        down_after: number("down-after-milliseconds").map(Duration::from_millis),
        others: number("num-other-sentinels").and_then(|number| usize::try_from(number).ok()),
    })
}

/// Returns a field of the state: a map in RESP3, else names and values in turn.
fn field<'a>(state: &'a Value, name: &[u8]) -> Option<&'a [u8]> {
    let value = match state {
        Value::Map(pairs) => &pairs.iter().find(|(key, _)| bulk(key) == Some(name))?.1,
        Value::Array(words) => &words
            .chunks_exact(2)
            .find(|pair| bulk(&pair[0]) == Some(name))?[1],
        _ => return None,
    };
    bulk(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn address(port: &str) -> Value {
        Value::Array(vec![bulk("10.0.0.5"), bulk(port)])
    }

    fn state(port: &str) -> Vec<(Value, Value)> {
        let fields = [
            ("ip", "10.0.0.5"),
            ("port", port),
            ("role-reported", "master"),
            ("role-reported-time", "4000"),
            ("config-epoch", "7"),
            ("down-after-milliseconds", "1000"),
            ("num-other-sentinels", "2"),
        ];
        fields
            .map(|(name, value)| (bulk(name), bulk(value)))
            .to_vec()
    }

    #[test]
    fn both_protocols_are_read_and_an_age_belongs_to_the_primary_that_is_named() {
        let flat = |port| {
            Value::Array(
                state(port)
                    .into_iter()
                    .flat_map(|(name, value)| [name, value])
                    .collect(),
            )
        };
        for told in [Value::Map(state("6379")), flat("6379")] {
            let SentinelAnswer::Names(naming) =
                read(Ok(address("6379")), Ok(told), Ok(address("6379")))
            else {
                panic!()
            };
            assert_eq!(
                (naming.primary.port, naming.epoch, naming.age.as_secs()),
                (6379, 7, 4)
            );
            assert_eq!(
                (naming.down_after, naming.others),
                (Some(Duration::from_secs(1)), Some(2))
            );
        }
        let SentinelAnswer::Names(naming) =
            read(Ok(address("6380")), Ok(flat("6379")), Ok(address("6380")))
        else {
            panic!()
        };
        assert_eq!(naming.age, Duration::ZERO, "the state is the old primary's");
        let moving = read(Ok(address("6379")), Ok(flat("6379")), Ok(address("6380")));
        assert!(
            matches!(moving, SentinelAnswer::Failed(fault) if fault.kind == FaultKind::Unavailable)
        );
    }

    #[test]
    fn a_reply_that_no_sentinel_sends_names_nothing() {
        assert_eq!(
            read(Ok(Value::Nil), Ok(Value::Nil), Ok(Value::Nil)),
            SentinelAnswer::NoService
        );
        for odd in [
            address("0"),
            address("70000"),
            address("x"),
            Value::Okay,
            Value::Array(vec![bulk("a b"), bulk("1")]),
        ] {
            assert!(matches!(
                read(Ok(odd.clone()), Ok(Value::Map(state("1"))), Ok(odd)),
                SentinelAnswer::Failed(_)
            ));
        }
        let unknown = || {
            Err(Fault::new(
                FaultKind::Unfit,
                "ERR No such master with that name",
            ))
        };
        assert_eq!(
            read(Ok(address("1")), unknown(), Ok(address("1"))),
            SentinelAnswer::NoService
        );
        let server = || {
            Err(Fault::new(
                FaultKind::Unfit,
                "ERR unknown command 'SENTINEL'",
            ))
        };
        assert!(
            matches!(read(server(), server(), server()), SentinelAnswer::Failed(fault) if fault.why.contains("redis://"))
        );
    }

    #[test]
    fn a_switch_of_another_service_is_none_of_ours() {
        let switch = |message: &str| {
            Location::of_switch(message.as_bytes(), "svc").map(|there| there.to_string())
        };
        assert_eq!(
            switch("svc 10.0.0.4 6379 10.0.0.5 6380"),
            Some("10.0.0.5:6380".to_owned())
        );
        assert_eq!(
            switch("svc ::1 6379 ::2 6380"),
            Some("[::2]:6380".to_owned())
        );
        for other in [
            "svc2 10.0.0.4 6379 10.0.0.5 6380",
            "other 10.0.0.4 6379 10.0.0.5 6380",
            "svc",
            "svc 1 2 3",
            "",
        ] {
            assert_eq!(switch(other), None, "{other}");
        }
    }
}
