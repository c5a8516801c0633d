//! Commands for channels.

use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::word;

pub(super) fn publish(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::count(state.publish(args[1], args[2])))
}

pub(super) fn pubsub(state: &mut State, args: &[&[u8]]) -> Outcome {
    if word(args[1]) != "NUMSUB" {
        return Err(Refusal::unknown_subcommand("pubsub", args[1]));
    }
    let pair = |channel: &&[u8]| {
        [
            Reply::bulk(*channel),
            Reply::count(state.peers.subscribers(channel).len()),
        ]
    };
    Ok(Reply::Array(args[2..].iter().flat_map(pair).collect()))
}

pub(super) fn subscribe(state: &mut State, args: &[&[u8]]) -> Outcome {
    let peer = state.caller;
    let told = |channel: &&[u8]| {
        confirmation(
            "subscribe",
            Some(channel),
            state.peers.subscribe(peer, channel),
        )
    };
    Ok(Reply::Several(args[1..].iter().map(told).collect()))
}

pub(super) fn unsubscribe(state: &mut State, args: &[&[u8]]) -> Outcome {
    let peer = state.caller;
    let all = state.peers.channels(peer);
    if args.len() == 1 && all.is_empty() {
        return Ok(confirmation("unsubscribe", None, 0));
    }
    let named: Vec<&[u8]> = if args.len() == 1 {
        all.iter().map(Vec::as_slice).collect()
    } else {
        args[1..].to_vec()
    };
    let told = |channel: &[u8]| {
        confirmation(
            "unsubscribe",
            Some(channel),
            state.peers.unsubscribe(peer, channel),
        )
    };
    Ok(Reply::Several(named.into_iter().map(told).collect()))
}

fn confirmation(kind: &str, channel: Option<&[u8]>, left: usize) -> Reply {
    Reply::Push(vec![
        Reply::bulk(kind),
        channel.map_or(Reply::Null, Reply::bulk),
        Reply::count(left),
    ])
}
