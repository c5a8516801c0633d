//! Votes for slots: they count for their own index alone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn slot(index: u16, number: u64) -> Vote {
    Vote::Granted {
        until: at(30),
        fence: fence(number),
        index,
    }
}

fn voted(total: usize, slots: &[(usize, u16)]) -> Ballot {
    let mut ballot = Ballot::new(Quorum::of(total), rules(RestartGuard::Off));
    for (node, index) in slots {
        ballot.answered(*node, at(0), slot(*index, 7).into(), at(1));
    }
    ballot
}

#[test]
fn votes_for_one_slot_win_it_and_another_slots_is_no_part_of_the_lease() {
    let ballot = voted(3, &[(0, 2), (1, 4), (2, 2)]);
    assert_eq!(
        (ballot.verdict(), ballot.index()),
        (Verdict::Won(fence(7)), 2)
    );
    assert_eq!(
        [0, 1, 2].map(|node| has_granted(&ballot, node)),
        [true, false, true]
    );
    assert!(ballot.lease().wants_healing(1));
    assert_eq!(ballot.lease().deadline(), Some(at(30)));
    assert_eq!(ballot.may_have_set(), [0, 1, 2], "each is released");
}

#[test]
fn votes_for_different_slots_are_moved_to_one_that_enough_nodes_may_still_give() {
    assert_eq!(
        voted(3, &[(0, 1), (1, 2)]).verdict(),
        Verdict::Misaligned,
        "whatever the third says"
    );
    // Of 5 slots, looked for from 3 on: the nodes that gave 5 and 1 have 3 and 4 taken.
    let mut ballot = voted(5, &[(0, 3), (1, 5), (2, 3), (3, 5), (4, 1)]);
    assert_eq!(ballot.align(3, 5), (5, vec![0, 2, 4]));
    assert_eq!(ballot.verdict(), Verdict::Open);
    ballot.answered(0, at(2), slot(5, 9).into(), at(2));
    assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
    ballot.answered(2, at(2), held_by(&rlock(5)).into(), at(2));
    assert_eq!(ballot.confirm(fence(9)), [1, 3]);
    for node in [1, 3] {
        ballot.confirmed(node, at(3), at(33));
    }
    assert_eq!(
        (ballot.verdict(), ballot.index()),
        (Verdict::Won(fence(9)), 5)
    );
}

#[test]
fn a_slot_that_was_taken_meanwhile_is_a_split_and_no_holder_is_named() {
    let mut ballot = voted(3, &[(0, 1), (1, 2), (2, 3)]);
    let (index, asked) = ballot.align(1, 3);
    assert_eq!((index, asked), (2, vec![0, 2]));
    for node in [0, 2] {
        ballot.answered(node, at(2), held_by(&rlock(3)).into(), at(2));
    }
    assert_eq!(ballot.verdict(), Verdict::Failed);
    assert!(matches!(
        ballot.tally(at(2), |node| NAMES[node]),
        Err(Reason::Blocked(Blocked::Split(..)))
    ));
    assert_eq!(ballot.may_have_set(), [1]);
}

/// Nodes with their slots: index → client. A client has at most one index at a node.
type Slots = Vec<BTreeMap<u16, usize>>;

/// Gives `client` the first free index from `first` on, as `join.lua` does.
fn join(
    node: &mut BTreeMap<u16, usize>,
    client: usize,
    first: u16,
    number: u16,
    is_exact: bool,
) -> Option<u16> {
    node.retain(|_, other| *other != client);
    let steps = if is_exact { 1 } else { number };
    let index = (0..steps)
        .map(|step| (first - 1 + step) % number + 1)
        .find(|index| !node.contains_key(index))?;
    node.insert(index, client);
    Some(index)
}

/// One step of the client: its next request runs, or its failed attempt is undone at a node.
/// `counts_permits`: the index is ignored, as if nodes counted holders.
struct Contender {
    ballot: Ballot,
    first: u16,
    /// Nodes that are still to be asked, and whether for one index alone.
    due: Vec<(usize, bool)>,
}

/// Runs the clients' requests in the order that `schedule` says, and returns the slots of those
/// that won.
fn race(
    total: usize,
    number: u16,
    firsts: &[u16],
    schedule: &[usize],
    counts_permits: bool,
) -> Vec<u16> {
    let mut nodes: Slots = vec![BTreeMap::new(); total];
    let begin = |first: &u16| Contender {
        ballot: Ballot::new(Quorum::of(total), rules(RestartGuard::Off)),
        first: *first,
        due: (0..total).map(|node| (node, false)).collect(),
    };
    let mut clients: Vec<Contender> = firsts.iter().map(begin).collect();
    for step in schedule {
        let who = step % clients.len();
        let client = &mut clients[who];
        if client.due.is_empty() {
            continue;
        }
        let (node, is_exact) = client.due.remove(step / firsts.len() % client.due.len());
        let given = join(&mut nodes[node], who, client.first, number, is_exact);
        let vote = match given {
            Some(index) => slot(if counts_permits { 0 } else { index }, 7),
            None => held_by(&rlock(total)),
        };
        client.ballot.answered(node, at(0), vote.into(), at(1));
        if client.due.is_empty() && client.ballot.verdict() == Verdict::Misaligned {
            let (index, asked) = client.ballot.align(client.first, number);
            client.first = index;
            client.due = asked.into_iter().map(|node| (node, true)).collect();
        }
    }
    let won = |client: &Contender| {
        matches!(client.ballot.verdict(), Verdict::Won(_)).then(|| client.ballot.index())
    };
    clients.iter().filter_map(won).collect()
}

#[test]
fn permits_that_nodes_count_would_be_given_to_too_many() {
    // Two permits on three nodes: A has those of nodes 0 and 1, B of 1 and 2, C of 0 and 2.
    let order = |client: usize, at: usize| client + 3 * at;
    let schedule = [
        order(0, 0),
        order(0, 0),
        order(1, 1),
        order(1, 1),
        order(2, 0),
        order(2, 1),
    ];
    assert_eq!(race(3, 2, &[1, 1, 1], &schedule, true).len(), 3);
    assert!(race(3, 2, &[1, 1, 1], &schedule, false).len() <= 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_slot_is_given_twice_and_never_more_than_there_are(
        total in 1usize..6, number in 2u16..5, firsts in proptest::collection::vec(1u16..5, 2..8),
        schedule in proptest::collection::vec(0usize..1000, 0..120),
    ) {
        let firsts: Vec<u16> = firsts.into_iter().map(|first| (first - 1) % number + 1).collect();
        let mut won = race(total, number, &firsts, &schedule, false);
        prop_assert!(won.len() <= usize::from(number));
        won.sort_unstable();
        let given = won.len();
        won.dedup();
        prop_assert_eq!(won.len(), given);
    }
}
