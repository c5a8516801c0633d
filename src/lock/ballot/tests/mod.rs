mod newest;
mod slots;

use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::blocker::Reservation;
use crate::lock::details::Details;
use crate::lock::fault::Faults;
use crate::lock::messages::ServerIdentity;
use crate::lock::occupant::OccupantKind;
use crate::lock::schedule::ScheduleOptions;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn rules(guard: RestartGuard) -> Rules {
    let ttl = Duration::from_secs(30);
    let options = ScheduleOptions {
        ttl,
        drift: 0.01,
        node_timeout: None,
        kill_after: None,
    };
    let schedule = Schedule::new(options).unwrap();
    Rules {
        token: Token::fresh(),
        schedule,
        guard,
        guarded: Duration::ZERO,
    }
}

fn granted(number: u64) -> Vote {
    Vote::Granted {
        until: at(30),
        fence: fence(number),
        index: 0,
    }
}

fn granted_at(ballot: &mut Ballot, node: usize, number: u64) {
    ballot.answered(node, at(0), granted(number).into(), at(1));
}

fn ballot(total: usize, granted: &[(usize, u64)]) -> Ballot {
    let mut ballot = Ballot::new(Quorum::of(total), rules(RestartGuard::Off));
    for (node, number) in granted {
        granted_at(&mut ballot, *node, *number);
    }
    ballot
}

/// Another client, with a list of so many nodes.
fn rlock(nodes: usize) -> Occupant {
    let details = Details {
        host: "web1".to_owned(),
        n: nodes,
        ttl: 60_000,
        ..Details::default()
    };
    Occupant::new(
        OccupantKind::Holder(Token::fresh(), details),
        Some(Duration::from_secs(9)),
    )
}

fn held_by(occupant: &Occupant) -> Vote {
    Vote::Blocked(Blocker::Occupant(occupant.clone()))
}

fn away() -> Vote {
    Vote::Failed(Fault::new(FaultKind::Unavailable, "cannot connect"))
}

/// Returns the book in which the first nodes have given these votes.
fn book(total: usize, guard: RestartGuard, votes: Vec<Vote>) -> Ballot {
    let mut ballot = Ballot::new(Quorum::of(total), rules(guard));
    for (node, vote) in votes.into_iter().enumerate() {
        ballot.answered(node, at(0), vote.into(), at(1));
    }
    ballot
}

fn tally(ballot: &Ballot) -> Tally {
    ballot.tally(at(1), |node| NAMES[node])
}

fn blocker(occupant: &Occupant) -> Box<Blocker> {
    Box::new(Blocker::Occupant(occupant.clone()))
}

/// Whether the grant of node `node` counts.
fn has_granted(ballot: &Ballot, node: usize) -> bool {
    matches!(ballot.state(node), VoteState::Granted(grant) if grant.index == ballot.index())
}

/// A server that has forgotten nothing for that many seconds.
fn identity(remembers: u64, mark: &str) -> ServerIdentity {
    ServerIdentity {
        remembers: Duration::from_secs(remembers),
        event: "restarted",
        marks: vec![(mark.to_owned(), "is the same server as")],
    }
}

#[test]
fn it_is_decided_as_soon_as_it_is_certain() {
    assert_eq!(ballot(5, &[(0, 7), (1, 7)]).verdict(), Verdict::Open);
    assert_eq!(
        ballot(5, &[(0, 7), (1, 7), (4, 7)]).verdict(),
        Verdict::Won(fence(7))
    );
    let mut losing = ballot(4, &[(0, 7)]);
    losing.answered(1, at(0), held_by(&rlock(1)).into(), at(1));
    assert_eq!(losing.verdict(), Verdict::Open);
    losing.answered(2, at(0), Vote::Restarted.into(), at(1));
    assert_eq!(losing.verdict(), Verdict::Failed);
}

#[test]
fn an_even_set_is_won_by_more_than_half() {
    assert_eq!(ballot(2, &[(0, 7)]).verdict(), Verdict::Open);
    assert_eq!(
        ballot(2, &[(0, 7), (1, 7)]).verdict(),
        Verdict::Won(fence(7))
    );
    assert_eq!(ballot(4, &[(0, 7), (1, 7)]).verdict(), Verdict::Open);
}

#[test]
fn the_largest_fence_stands_once_a_majority_of_those_who_granted_knows_it() {
    let mut ballot = ballot(5, &[(0, 7), (1, 9), (2, 8)]);
    assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
    assert_eq!(ballot.confirm(fence(9)), [0, 2]);
    ballot.confirmed(0, at(1), at(31));
    assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
    ballot.confirmed(2, at(1), at(31));
    assert_eq!(ballot.verdict(), Verdict::Won(fence(9)));
}

#[test]
fn a_node_that_grants_during_the_confirm_round_does_not_join_it() {
    let mut ballot = ballot(3, &[(0, 7), (1, 9)]);
    ballot.confirm(fence(9));
    granted_at(&mut ballot, 2, 9);
    ballot.confirmed(2, at(1), at(31));
    assert_eq!(ballot.verdict(), Verdict::Unconfirmed(fence(9)));
    ballot.discount(0, Discount::Unconfirmed, at(2));
    assert_eq!(ballot.verdict(), Verdict::Failed);
}

#[test]
fn a_grant_above_the_fence_that_is_confirmed_is_no_part_of_the_lease() {
    for (number, joins) in [(9, true), (10, false)] {
        let mut ballot = ballot(3, &[(0, 7), (1, 9)]);
        ballot.confirm(fence(9));
        granted_at(&mut ballot, 2, number);
        assert_eq!(!ballot.lease().wants_healing(2), joins, "{number}");
    }
}

#[test]
fn a_node_that_lost_the_key_before_the_confirm_round_is_no_part_of_the_lease() {
    let mut ballot = ballot(3, &[(0, 7), (1, 9), (2, 8)]);
    ballot.confirm(fence(9));
    ballot.discount(0, Discount::Lost(Revoked::Missing), at(2));
    ballot.confirmed(2, at(1), at(31));
    assert_eq!(ballot.verdict(), Verdict::Won(fence(9)));
    let mut lease = ballot.lease();
    assert_eq!(
        (lease.deadline(), lease.wants_healing(0)),
        (Some(at(30)), true)
    );
    lease.revoke(1, Revoked::Missing, at(3));
    assert!(lease.loss(at(9)).is_some());
}

#[test]
fn a_vote_taken_back_does_not_count() {
    let mut ballot = ballot(3, &[(0, 7), (1, 7)]);
    ballot.discount(1, Discount::Unconfirmed, at(1));
    assert_eq!(ballot.verdict(), Verdict::Open);
}

#[test]
fn a_majority_in_other_hands_is_busy_and_a_minority_is_a_split() {
    let other = rlock(3);
    let busy = book(
        3,
        RestartGuard::Off,
        vec![held_by(&other), held_by(&other), granted(7)],
    );
    assert_eq!(
        tally(&busy),
        Err(Reason::Blocked(Blocked::Busy(blocker(&other))))
    );
    assert_eq!(busy.holder(), Some(&other));
    let split = book(
        3,
        RestartGuard::Off,
        vec![held_by(&other), held_by(&rlock(3)), granted(7)],
    );
    assert!(
        matches!(tally(&split), Err(Reason::Blocked(Blocked::Split(_, faults))) if faults.is_empty())
    );
    assert_eq!(split.holder(), None);
}

#[test]
fn one_holder_counts_once_though_a_healed_node_tells_more_of_it() {
    let other = rlock(3);
    let mut healed = other.clone();
    if let OccupantKind::Holder(_, details) = &mut healed.who {
        details.fence = Some(7);
    }
    let busy = book(
        3,
        RestartGuard::Off,
        vec![held_by(&other), held_by(&healed)],
    );
    assert!(matches!(
        tally(&busy),
        Err(Reason::Blocked(Blocked::Busy(_)))
    ));
}

#[test]
fn half_of_an_even_set_may_be_a_majority_only_while_a_node_is_silent_or_away() {
    let other = rlock(4);
    let mut half = book(4, RestartGuard::Off, vec![held_by(&other), held_by(&other)]);
    assert!(half.is_undecided() && !half.is_decided());
    half.answered(2, at(0), granted(7).into(), at(1));
    assert!(half.is_undecided());
    half.answered(3, at(0), granted(7).into(), at(1));
    assert!(!half.is_undecided());
    assert!(matches!(
        tally(&half),
        Err(Reason::Blocked(Blocked::Split(..)))
    ));
    let mut unknown = book(
        4,
        RestartGuard::Off,
        vec![held_by(&other), held_by(&other), granted(7), away()],
    );
    assert!(!unknown.is_undecided());
    assert!(matches!(
        tally(&unknown),
        Err(Reason::Blocked(Blocked::Busy(_)))
    ));
    unknown.answered(3, at(0), held_by(&other).into(), at(1));
    assert!(unknown.is_decided());
}

#[test]
fn a_minority_may_be_a_majority_while_enough_nodes_are_silent() {
    let other = rlock(3);
    let mut ballot = book(3, RestartGuard::Off, vec![away(), held_by(&other)]);
    assert_eq!(ballot.verdict(), Verdict::Failed);
    assert!(ballot.is_undecided() && !ballot.is_decided());
    ballot.answered(2, at(0), held_by(&other).into(), at(1));
    assert!(!ballot.is_undecided());
    assert!(matches!(
        tally(&ballot),
        Err(Reason::Blocked(Blocked::Busy(_)))
    ));
    let split = vec![
        granted(7),
        held_by(&rlock(5)),
        held_by(&rlock(5)),
        held_by(&rlock(5)),
    ];
    assert!(
        !book(5, RestartGuard::Off, split).is_undecided(),
        "three parties have a node each"
    );
    let lost = book(
        5,
        RestartGuard::Off,
        vec![away(), away(), away(), held_by(&rlock(5))],
    );
    assert!(!lost.is_undecided(), "two of five are no majority");
}

#[test]
fn a_turn_that_is_another_waiters_is_no_holder_and_takes_no_tenure() {
    let reserved = || {
        Vote::Blocked(Blocker::Reserved(Reservation {
            waiter: None,
            left: Duration::from_secs(1),
        }))
    };
    let ballot = book(
        3,
        RestartGuard::Off,
        vec![reserved(), reserved(), granted(7)],
    );
    assert!(
        matches!(tally(&ballot), Err(Reason::Blocked(Blocked::Busy(blocker))) if matches!(*blocker, Blocker::Reserved(_)))
    );
    assert_eq!((ballot.holder(), ballot.lease().revoked(0)), (None, None));
}

#[test]
fn too_few_votes_name_each_node_that_gave_none_and_say_whether_a_majority_answered() {
    let none = book(3, RestartGuard::Off, vec![granted(7), away()]);
    let Err(Reason::Blocked(Blocked::Unreachable(faults, _))) = tally(&none) else {
        panic!("{:?}", tally(&none))
    };
    assert_eq!(
        faults.to_string(),
        "b: cannot connect; c: no answer within 1s"
    );
    let restarted = book(
        3,
        RestartGuard::Off,
        vec![granted(7), Vote::Restarted, Vote::Restarted],
    );
    assert!(matches!(
        tally(&restarted),
        Err(Reason::Blocked(Blocked::Unreachable(..)))
    ));
}

#[test]
fn a_node_that_was_not_needed_to_lose_is_not_called_silent() {
    let ballot = book(
        3,
        RestartGuard::Off,
        vec![held_by(&rlock(3)), held_by(&rlock(3))],
    );
    assert!(!ballot.missed_deadline());
    assert!(
        matches!(tally(&ballot), Err(Reason::Blocked(Blocked::Split(_, faults))) if faults == Faults::default())
    );
    assert!(book(3, RestartGuard::Off, vec![granted(7)]).missed_deadline());
}

#[test]
fn a_grant_that_leaves_no_time_to_stop_the_command_is_too_late() {
    let ballot = ballot(1, &[(0, 7)]);
    assert_eq!(ballot.tally(at(1), |node| NAMES[node]), Ok(fence(7)));
    assert_eq!(
        ballot.tally(at(29), |node| NAMES[node]),
        Err(Reason::Blocked(Blocked::TooLate))
    );
}

#[test]
fn nodes_that_refuse_us_decide_only_once_they_leave_no_majority() {
    let refused = || Vote::Failed(Fault::new(FaultKind::Refused, "NOAUTH"));
    let one = book(
        3,
        RestartGuard::Off,
        vec![refused(), granted(7), granted(7)],
    );
    assert_eq!(tally(&one), Ok(fence(7)));
    assert_eq!(one.refusals().count(), 1);
    let two = book(3, RestartGuard::Off, vec![refused(), refused(), granted(7)]);
    assert!(matches!(tally(&two), Err(Reason::Refused(faults)) if faults.len() == 2));
    assert_eq!(two.may_have_set(), [2]);
}

#[test]
fn a_node_that_may_not_tell_its_uptime_refuses_us_only_if_the_guard_relies_on_it() {
    let silent = |guard| {
        let mut ballot = Ballot::new(Quorum::of(1), rules(guard));
        let server = ServerInfo::Forbidden("NOPERM".to_owned());
        ballot.answered(
            0,
            at(0),
            Answer {
                vote: granted(7),
                server,
                position: None,
            },
            at(1),
        );
        ballot
    };
    assert!(matches!(
        tally(&silent(RestartGuard::For(Duration::from_secs(60)))),
        Err(Reason::Refused(_))
    ));
    // It has set the key all the same.
    assert_eq!(
        silent(RestartGuard::For(Duration::from_secs(60))).may_have_set(),
        [0]
    );
    assert_eq!(tally(&silent(RestartGuard::Off)), Ok(fence(7)));
}

#[test]
fn a_holder_with_a_longer_lease_makes_a_node_restarted_that_granted_before() {
    let identity = |age: u64| ServerInfo::Told(identity(age, &age.to_string()));
    let mut ballot = Ballot::new(Quorum::of(3), rules(RestartGuard::Auto));
    ballot.answered(
        0,
        at(0),
        Answer {
            vote: granted(7),
            server: identity(40),
            position: None,
        },
        at(1),
    );
    assert!(has_granted(&ballot, 0));
    ballot.answered(1, at(0), held_by(&rlock(3)).into(), at(1));
    assert!(!has_granted(&ballot, 0));
    ballot.answered(2, at(0), away().into(), at(1));
    let Err(Reason::Blocked(Blocked::Split(_, faults) | Blocked::Unreachable(faults, _))) =
        tally(&ballot)
    else {
        panic!()
    };
    assert!(
        faults.to_string().contains("a: it restarted 40s ago"),
        "{faults}"
    );
}

#[test]
fn a_set_that_cannot_hold_the_lock_is_unfit_whatever_the_votes() {
    let unfit = |ballot: &Ballot| match tally(ballot) {
        Err(Reason::Unfit(node, fault)) => format!("{node}: {fault}"),
        other => panic!("{other:?}"),
    };
    let other_list = book(
        3,
        RestartGuard::Off,
        vec![granted(7), granted(7), held_by(&rlock(5))],
    );
    assert!(
        unfit(&other_list).contains("c: held by"),
        "{}",
        unfit(&other_list)
    );
    let wrong = Vote::Failed(Fault::new(FaultKind::Unfit, "ERR unknown command"));
    assert_eq!(
        unfit(&book(
            3,
            RestartGuard::Off,
            vec![granted(7), granted(7), wrong]
        )),
        "c: ERR unknown command"
    );
    let mut twice = Ballot::new(Quorum::of(2), rules(RestartGuard::Off));
    for node in [0, 1] {
        let server = ServerInfo::Told(identity(99, "r"));
        twice.answered(
            node,
            at(0),
            Answer {
                vote: granted(7),
                server,
                position: None,
            },
            at(1),
        );
    }
    assert_eq!(
        unfit(&twice),
        "b: it is the same server as a: nodes must be independent"
    );
    let mut itself = ballot(2, &[(0, 7)]);
    let own = OccupantKind::Holder(itself.rules.token, Details::default());
    itself.answered(1, at(0), held_by(&Occupant::new(own, None)).into(), at(1));
    assert!(
        unfit(&itself).starts_with("b: it has the token"),
        "{}",
        unfit(&itself)
    );
}

#[test]
fn a_node_that_offers_the_turn_after_it_was_blocked_ends_the_waiting_for_others() {
    let mut ballot = book(3, RestartGuard::Off, vec![held_by(&rlock(3)), granted(7)]);
    ballot.offered(1);
    assert!(!ballot.was_offered_again());
    ballot.offered(0);
    assert!(ballot.was_offered_again());
    assert!(!ballot.missed_deadline());
}

#[test]
fn a_waiter_enters_at_the_median_of_the_nodes_times() {
    let mut ballot = Ballot::new(Quorum::of(3), rules(RestartGuard::Off));
    for (node, now, rank) in [(0, 900, Some(4)), (1, 5, None), (2, 40, Some(2))] {
        let position = Some(QueuePosition {
            rank,
            now,
            refused: (node == 1).then(|| "NOPERM".to_owned()),
        });
        let answer = Answer {
            vote: held_by(&rlock(3)),
            server: ServerInfo::None,
            position,
        };
        ballot.answered(node, at(0), answer, at(1));
    }
    assert_eq!(
        (ballot.queue_entry_time(), ballot.rank()),
        (Some(40), Some(2))
    );
    assert_eq!(ballot.unqueued(), Some((1, "NOPERM")));
}

#[test]
fn a_set_that_waits_for_restarted_nodes_alone_tells_when_a_majority_counts() {
    let told = |uptimes: &[u64], others: &[Vote]| {
        let mut ballot = Ballot::new(
            Quorum::of(uptimes.len() + others.len()),
            rules(RestartGuard::Auto),
        );
        for (node, uptime) in uptimes.iter().enumerate() {
            let server = ServerInfo::Told(identity(*uptime, &node.to_string()));
            let answer = Answer {
                vote: Vote::Restarted,
                server,
                position: None,
            };
            ballot.answered(node, at(0), answer, at(1));
        }
        for (node, vote) in others.iter().enumerate() {
            ballot.answered(uptimes.len() + node, at(0), vote.clone().into(), at(1));
        }
        ballot.counts_in()
    };
    let seconds = |number| Some(Duration::from_secs(number));
    assert_eq!(
        told(&[1, 11, 21], &[]),
        seconds(19),
        "the second of three makes the majority"
    );
    assert_eq!(
        told(&[1, 11], &[held_by(&rlock(3))]),
        seconds(49),
        "the holder met has a TTL of 60 s"
    );
    assert_eq!(
        told(&[1], &[held_by(&rlock(3)), held_by(&rlock(3))]),
        None,
        "a majority counts already"
    );
    assert_eq!(
        told(&[1, 11], &[away()]),
        None,
        "one that is away may come back before"
    );
}
