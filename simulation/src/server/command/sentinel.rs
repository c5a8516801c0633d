//! Commands of a sentinel.

use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::super::watch::Watch;
use super::word;

pub(super) fn sentinel(state: &mut State, args: &[&[u8]]) -> Outcome {
    let subcommand = word(args[1]);
    let &[_, _, service] = args else {
        return Err(Refusal::wrong_arity(&format!(
            "sentinel|{}",
            subcommand.to_ascii_lowercase()
        )));
    };
    let watch = state
        .watch
        .as_ref()
        .filter(|watch| watch.service.as_bytes() == service);
    match (subcommand.as_str(), watch) {
        ("GET-MASTER-ADDR-BY-NAME", None) => Ok(Reply::NullArray),
        (
            "GET-MASTER-ADDR-BY-NAME",
            Some(Watch {
                named: (host, port),
                ..
            }),
        ) => Ok(Reply::Array(
            [host.clone(), port.to_string()].map(Reply::bulk).into(),
        )),
        (_, None) => Err(Refusal::new("ERR No such master with that name")),
        (_, Some(watch)) => Ok(shown(watch, state.now.0 - watch.since.0)),
    }
}

/// The fields that rlock reads, and some beside them.
fn shown(watch: &Watch, seen: i64) -> Reply {
    let (host, port) = &watch.shown;
    let fields = [
        ("name", watch.service.clone()),
        ("ip", host.clone()),
        ("port", port.to_string()),
        ("flags", "master".to_owned()),
        ("down-after-milliseconds", watch.down_after.to_string()),
        ("role-reported", "master".to_owned()),
        (
            "role-reported-time",
            seen.div_euclid(1000).max(0).to_string(),
        ),
        ("config-epoch", watch.epoch.to_string()),
        ("num-other-sentinels", watch.others.to_string()),
    ];
    Reply::Map(
        fields
            .map(|(name, value)| (Reply::bulk(name), Reply::bulk(value)))
            .into(),
    )
}
