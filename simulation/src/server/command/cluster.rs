//! Commands of a member of a cluster.

use super::super::member::Member;
use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::word;

const DISABLED: Refusal = Refusal::new("ERR This instance has cluster support disabled");

/// Lets the next request of this client be executed though the slot is still another member's.
pub(super) fn asking(state: &mut State, _: &[&[u8]]) -> Outcome {
    if state.member.is_none() {
        return Err(DISABLED);
    }
    state.asking.insert(state.caller);
    Ok(Reply::OK)
}

pub(super) fn cluster(state: &mut State, args: &[&[u8]]) -> Outcome {
    let Some(member) = &state.member else {
        return Err(DISABLED);
    };
    let subcommand = word(args[1]);
    if args.len() > 2 {
        return Err(Refusal::wrong_arity(&format!(
            "cluster|{}",
            subcommand.to_ascii_lowercase()
        )));
    }
    Ok(if subcommand == "SLOTS" {
        slots(member)
    } else {
        nodes(member)
    })
}

fn slots(member: &Member) -> Reply {
    let slots = &member.slots;
    let server = |number: usize| {
        let (host, port) = &slots.addresses[number];
        let facts = [
            Reply::bulk(host.clone()),
            Reply::Integer((*port).into()),
            Reply::bulk(id(number)),
        ];
        Reply::Array(facts.into_iter().chain([Reply::Array(vec![])]).collect())
    };
    let range = |&(first, last, owner): &(u16, u16, usize)| {
        let replicas = slots
            .replicates
            .iter()
            .filter(move |(_, primary)| **primary == owner)
            .map(|(replica, _)| *replica);
        let servers = [owner].into_iter().chain(replicas).map(server);
        Reply::Array(
            [first, last]
                .map(|slot| Reply::Integer(slot.into()))
                .into_iter()
                .chain(servers)
                .collect(),
        )
    };
    Reply::Array(slots.ranges.iter().map(range).collect())
}

fn nodes(member: &Member) -> Reply {
    let line = |(number, (host, port)): (usize, &(String, u16))| {
        let myself = if number == member.me { "myself," } else { "" };
        let (role, of) = match member.slots.replicates.get(&number) {
            Some(primary) => ("slave", id(*primary)),
            None => ("master", "-".to_owned()),
        };
        let of_it = |(first, last, owner): &(u16, u16, usize)| {
            (*owner == number).then(|| format!(" {first}-{last}"))
        };
        let ranges: String = member.slots.ranges.iter().filter_map(of_it).collect();
        let bus = u32::from(*port) + 10_000;
        format!(
            "{} {host}:{port}@{bus} {myself}{role} {of} 0 0 {} connected{ranges}\n",
            id(number),
            number + 1
        )
    };
    Reply::Verbatim(
        member
            .slots
            .addresses
            .iter()
            .enumerate()
            .map(line)
            .collect::<String>()
            .into_bytes(),
    )
}

fn id(number: usize) -> String {
    format!("{number:040x}")
}
