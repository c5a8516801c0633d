//! Renewals on paused time, against nodes that are slow, lost, lying or healing. Nothing here waits for real.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::clock::virtual_time;
use crate::lock::ballot::Tally;
use crate::lock::details::Details;
use crate::lock::key::Key;
use crate::lock::observation::Observation;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::node::{Answer, ForceUnlock, Heal, Node, Release, ReleaseReply, Renew, Vote};
use crate::redlock::attempt::Attempt;

const TTL: Duration = Duration::from_secs(30);

/// A node in memory, with Redis' rules and faults to order.
#[derive(Default)]
struct Fake {
    key: Option<(Token, Instant)>,
    /// A tombstone stands in the key's place.
    broken: bool,
    counter: u64,
    mood: Mood,
    /// Others are granted the lock in vain, again and again.
    restless: bool,
    /// Told when the connection breaks.
    breaks: Rc<tokio::sync::Notify>,
    healed: u32,
    renewed: u32,
    /// When it was asked anything.
    asked: Vec<Instant>,
}

#[derive(Clone, Copy, PartialEq, Default)]
enum Mood {
    #[default]
    Well,
    /// Executes at once and answers this much later.
    Slow(Duration),
    /// Takes requests and never answers.
    Silent,
    /// Refuses connections.
    Away,
    /// Refuses the password.
    Refusing,
    /// Says that the key is another's, whosever it is.
    Lying,
}

struct FakeNode {
    name: String,
    fake: Rc<RefCell<Fake>>,
}

impl FakeNode {
    /// Executes `what` now, if the node is there, and answers as it is in the mood to.
    fn ask<T: 'static>(
        &self,
        what: impl FnOnce(&mut Fake, Instant) -> T,
        failed: fn(Fault) -> T,
        lie: Option<T>,
    ) -> Pending<T> {
        let mut fake = self.fake.borrow_mut();
        let now = clock::now();
        fake.asked.push(now);
        fake.key = fake.key.filter(|(_, expires)| *expires > now);
        fake.counter += u64::from(fake.restless);
        match fake.mood {
            Mood::Silent => Box::pin(std::future::pending()),
            Mood::Away => Box::pin(std::future::ready(failed(Fault::new(FaultKind::Unavailable, "away")))),
            Mood::Refusing => Box::pin(std::future::ready(failed(Fault::new(FaultKind::Refused, "NOAUTH")))),
            Mood::Lying if lie.is_some() => Box::pin(std::future::ready(lie.unwrap())),
            Mood::Well | Mood::Lying => Box::pin(std::future::ready(what(&mut fake, now))),
            Mood::Slow(delay) => {
                let answer = what(&mut fake, now);
                Box::pin(async move {
                    Alarm::new().unwrap().reached(now + delay).await;
                    answer
                })
            }
        }
    }
}

impl Node for FakeNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim, _anew: bool) -> Pending<Answer> {
        let (token, term, hint) = (claim.token, claim.term, claim.fence_hint);
        let answer = self.ask(
            move |fake, now| {
                if fake.key.is_some() {
                    return Vote::Failed(Fault::new(FaultKind::Unavailable, "held"));
                }
                let fence = Fence::after(fake.counter, hint).unwrap();
                (fake.counter, fake.key) = (fence.get(), Some((token, now + term.ttl())));
                Vote::Granted { until: term.end(now), fence }
            },
            Vote::Failed,
            None,
        );
        Box::pin(async move { answer.await.into() })
    }

    fn renew(&self, renew: &Renew, _anew: bool) -> Pending<Renewal> {
        let Renew { token, fence, term, .. } = *renew;
        let what = move |fake: &mut Fake, now| match fake.key {
            Some((holder, _)) if holder == token && fake.broken => Renewal::Broken(None, "me".to_owned()),
            Some((holder, _)) if holder == token => {
                fake.renewed += 1;
                fake.counter = fake.counter.max(fence.get());
                fake.key = Some((token, now + term.ttl()));
                Renewal::Renewed(term.end(now), Some(fake.counter))
            }
            Some(_) => Renewal::Lost(Revoked::TakenOver, None),
            None => Renewal::Lost(Revoked::Missing, Some(fake.counter)),
        };
        self.ask(what, Renewal::Failed, Some(Renewal::Lost(Revoked::TakenOver, None)))
    }

    fn heal(&self, heal: &Heal, _anew: bool) -> Pending<Renewal> {
        let Renew { token, fence, term, .. } = heal.renew;
        let told = heal.told;
        let what = move |fake: &mut Fake, now| {
            let standing = match fake.key {
                Some((holder, _)) if holder == token && fake.broken => {
                    fake.key = Some((token, now + term.ttl()));
                    return Renewal::Broken(Some(term.end(now)), "me".to_owned());
                }
                Some((holder, _)) if holder == token => Renewal::Renewed(term.end(now), Some(fake.counter)),
                Some(_) => return Renewal::Lost(Revoked::TakenOver, None),
                None if fake.counter > fence.get() && told != Some(fake.counter) => {
                    return Renewal::Lost(Revoked::Missing, Some(fake.counter));
                }
                None => Renewal::Healed(term.end(now), Some(fake.counter)),
            };
            fake.healed += u32::from(matches!(standing, Renewal::Healed(..)));
            fake.counter = fake.counter.max(fence.get());
            fake.key = Some((token, now + term.ttl()));
            standing
        };
        self.ask(what, Renewal::Failed, Some(Renewal::Lost(Revoked::TakenOver, None)))
    }

    fn observe(&self, _key: &Key, _max_waiters: usize) -> Pending<Result<Observation, Fault>> {
        Box::pin(std::future::pending())
    }

    fn force_unlock(&self, _key: &Key, _how: ForceUnlock) -> Pending<Result<Option<Revoked>, Fault>> {
        Box::pin(std::future::pending())
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        let token = release.token;
        let what = move |fake: &mut Fake, _| match fake.key {
            Some((holder, _)) if holder == token => {
                fake.key = None;
                ReleaseReply::Released
            }
            Some(_) => ReleaseReply::NotOurs(Revoked::TakenOver),
            None => ReleaseReply::NotOurs(Revoked::Missing),
        };
        self.ask(what, ReleaseReply::Failed, None)
    }

    fn broken(&self) -> Pending<()> {
        let breaks = Rc::clone(&self.fake.borrow().breaks);
        Box::pin(async move { breaks.notified().await })
    }

    fn written(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}

/// A held lock on so many nodes, and the nodes.
struct Held {
    holding: Holding,
    fakes: Vec<Rc<RefCell<Fake>>>,
    begun: Instant,
}

async fn hold(count: usize, prepare: impl FnOnce(&[Rc<RefCell<Fake>>])) -> Held {
    hold_guarded(count, None, prepare).await
}

async fn hold_guarded(count: usize, guard: Option<Duration>, prepare: impl FnOnce(&[Rc<RefCell<Fake>>])) -> Held {
    let fakes: Vec<Rc<RefCell<Fake>>> = (0..count).map(|_| Rc::default()).collect();
    prepare(&fakes);
    let node = |(index, fake): (usize, &Rc<RefCell<Fake>>)| -> Box<dyn Node> {
        Box::new(FakeNode { name: format!("node{index}"), fake: Rc::clone(fake) })
    };
    let nodes: Nodes = fakes.iter().enumerate().map(node).collect();
    let begun = clock::now();
    let wishes = ScheduleOptions { ttl: TTL, drift: 0.01, node_timeout: None, kill_after: None };
    let schedule = Schedule::new(wishes).unwrap();
    let claim = Claim {
        key: Key::new("", "job").unwrap(),
        token: Token::fresh(),
        details: Details::default(),
        fence_hint: 100,
        term: schedule.term(),
        min_uptime: guard,
        ticket: None,
    };
    let mut attempt = Attempt::start(&nodes, claim, schedule, RestartGuard::Off, &[]).unwrap();
    let Tally::Won(fence) = attempt.tally().await else { panic!("not won") };
    Held { holding: attempt.hold(fence), fakes, begun }
}

impl Held {
    /// All changes until `seconds` after the beginning.
    async fn changes_until(&mut self, seconds: f64) -> Vec<Change> {
        let end = self.begun + Duration::from_secs_f64(seconds);
        let mut changes = Vec::new();
        while let Some(change) = clock::until(end, self.holding.next()).await {
            changes.push(change);
        }
        changes
    }

    fn fake(&self, node: usize) -> std::cell::RefMut<'_, Fake> {
        self.fakes[node].borrow_mut()
    }

    fn forget(&self, node: usize) {
        let mut fake = self.fake(node);
        (fake.key, fake.counter) = (None, 0);
    }

    fn left(&self) -> Duration {
        self.holding.deadline().since(clock::now())
    }
}

fn lost(changes: &[Change]) -> Option<Loss> {
    changes.iter().find_map(|change| if let Change::Lost(loss) = change { Some(*loss) } else { None })
}

fn is_trouble(change: &Change) -> bool {
    matches!(change, Change::Trouble(..))
}

#[test]
fn all_nodes_are_renewed_every_third_of_the_ttl() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        let changes = held.changes_until(61.0).await;
        assert!(changes.iter().all(|change| matches!(change, Change::Extended(_))), "{changes:?}");
        for node in 0..3 {
            assert_eq!(held.fake(node).renewed, 6);
        }
        assert!(held.left() > Duration::from_secs(28));
    });
}

#[test]
fn a_slow_node_costs_nothing_and_its_late_replies_count() {
    virtual_time::run(async {
        // Slower than the node timeout of a second, so that each of its replies is late.
        let mut held = hold(3, |fakes| fakes[2].borrow_mut().mood = Mood::Slow(Duration::from_secs(3))).await;
        held.changes_until(9.0).await;
        held.fake(0).mood = Mood::Away;
        let changes = held.changes_until(100.0).await;
        assert_eq!(lost(&changes), None);
        // A majority is the quick one and the slow one: the lease goes on by what the slow one said late.
        assert!(held.left() > Duration::from_secs(15), "{:?}", held.left());
    });
}

#[test]
fn a_node_that_forgot_is_healed_at_once_when_its_connection_breaks() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(5.0).await;
        held.forget(1);
        held.fake(1).breaks.notify_waiters();
        let changes = held.changes_until(5.1).await;
        assert_eq!(lost(&changes), None);
        assert_eq!(held.fake(1).healed, 1);
        assert_eq!(held.fake(1).counter, held.holding.fence().get());
    });
}

#[test]
fn a_node_that_forgot_is_healed_at_the_next_renewal_at_the_latest_and_counts_again() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(1);
        held.changes_until(11.0).await;
        assert_eq!(held.fake(1).healed, 1);
        held.fake(0).mood = Mood::Silent;
        let changes = held.changes_until(90.0).await;
        assert_eq!(lost(&changes), None);
        assert!(held.left() > Duration::from_secs(15));
    });
}

/// A lock that is held at two of three nodes. The third was away, and its counter is above the holder's fence by now.
async fn held_at_two_with_a_raised_counter_at_the_third() -> Held {
    let held = hold(3, |fakes| fakes[2].borrow_mut().mood = Mood::Away).await;
    let mut third = held.fake(2);
    (third.mood, third.counter) = (Mood::Well, held.holding.fence().get() + 7);
    drop(third);
    held
}

#[test]
fn a_node_whose_counter_failed_attempts_have_raised_is_healed_and_counts_at_once() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        let raised = held.fake(2).counter;
        let changes = held.changes_until(1.0).await;
        assert_eq!(lost(&changes), None);
        assert_eq!(held.fake(2).healed, 1);
        assert_eq!(held.fake(2).counter, raised);
        assert_eq!([0, 1].map(|node| held.fake(node).renewed), [1, 1], "each was asked for its word");
        held.fake(0).mood = Mood::Silent;
        let changes = held.changes_until(90.0).await;
        assert_eq!(lost(&changes), None);
        assert!(held.left() > Duration::from_secs(15), "{:?}", held.left());
    });
}

#[test]
fn a_complete_grant_in_between_ends_the_lease_once_the_healed_node_asks_for_proof() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        // Another client had the first and the third node for a moment.
        held.fake(0).key = None;
        let changes = held.changes_until(1.0).await;
        assert_eq!(lost(&changes), Some(Loss::Absent), "{changes:?}");
    });
}

#[test]
fn a_healed_node_never_counts_while_a_witness_is_silent() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        held.fake(0).mood = Mood::Silent;
        let deadline = held.holding.deadline();
        held.changes_until(29.0).await;
        assert_eq!(held.fake(2).healed, 1);
        assert_eq!(held.holding.deadline(), deadline);
    });
}

/// The node grants the lock to another in vain between each "absent" and the healing that follows.
#[test]
fn a_healing_that_comes_after_another_grant_sets_nothing() {
    virtual_time::run(async {
        let mut held = held_at_two_with_a_raised_counter_at_the_third().await;
        held.fake(2).restless = true;
        held.changes_until(60.0).await;
        assert_eq!(held.fake(2).healed, 0);
        assert_eq!(held.fake(2).key, None);
        let asked = held.fake(2).asked.len();
        assert!(asked < 20, "asked {asked} times");
        held.fake(2).restless = false;
        held.changes_until(75.0).await;
        assert_eq!(held.fake(2).healed, 1);
    });
}

#[test]
fn a_grant_that_is_heard_late_counts_only_with_proof_if_its_counter_is_above_the_fence() {
    for complete_grant in [false, true] {
        virtual_time::run(async move {
            let slow = Mood::Slow(Duration::from_millis(700));
            let mut held =
                hold(3, |fakes| (fakes[2].borrow_mut().mood, fakes[2].borrow_mut().counter) = (slow, 1_000)).await;
            assert!(held.fake(2).counter > held.holding.fence().get());
            if complete_grant {
                held.fake(0).key = None;
            }
            let changes = held.changes_until(3.0).await;
            assert_eq!(lost(&changes), complete_grant.then_some(Loss::Absent), "{changes:?}");
            held.fake(1).mood = Mood::Silent;
            let changes = held.changes_until(if complete_grant { 3.0 } else { 60.0 }).await;
            assert_eq!(lost(&changes), None);
        });
    }
}

#[test]
fn a_node_that_may_have_restarted_is_tried_often_for_as_long_as_it_grants_nothing() {
    virtual_time::run(async {
        let mut held = hold_guarded(3, Some(Duration::from_secs(60)), |_| ()).await;
        held.fake(1).mood = Mood::Away;
        held.changes_until(70.0).await;
        let asked = held.fake(1).asked.len();
        assert!(asked > 60 * 4, "{asked} times in a minute");
        held.changes_until(1070.0).await;
        let more = held.fake(1).asked.len() - asked;
        assert!(more < 250, "{more} times in the next quarter of an hour");
    });
}

/// Five nodes were gone or silent until just before the lease ends. One renews in time. Two come back empty and slow: they are
/// healed before the end, and heard after it. With the time of that end.
async fn shortly_before_the_end() -> (Held, Instant) {
    let mut held = hold(5, |_| ()).await;
    held.changes_until(9.0).await;
    let deadline = held.holding.deadline();
    for (node, mood) in [Mood::Away, Mood::Silent, Mood::Silent, Mood::Away, Mood::Away].into_iter().enumerate() {
        held.fake(node).mood = mood;
    }
    held.changes_until(28.9).await;
    held.fake(0).mood = Mood::Well;
    for node in [3, 4] {
        held.forget(node);
        held.fake(node).mood = Mood::Slow(Duration::from_millis(500));
    }
    (held, deadline)
}

#[test]
fn healings_that_are_heard_after_the_lease_do_not_revive_it() {
    virtual_time::run(async {
        let (mut held, deadline) = shortly_before_the_end().await;
        let changes = held.changes_until(31.0).await;
        for node in [3, 4] {
            assert_eq!(held.fake(node).healed, 1);
        }
        assert_eq!(held.holding.deadline(), deadline, "revived: {changes:?}");
    });
}

#[test]
fn a_lock_that_was_broken_is_told_once_and_its_place_is_kept() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.changes_until(9.0).await;
        for node in 0..3 {
            held.fake(node).broken = true;
        }
        let changes = held.changes_until(100.0).await;
        let losses = changes.iter().filter(|change| matches!(change, Change::Lost(_))).count();
        assert_eq!((lost(&changes), losses), (Some(Loss::Broken), 1), "{changes:?}");
        assert!(held.left() > Duration::from_secs(15), "{:?}", held.left());
        let asked = held.fake(0).asked.len();
        assert!(asked < 20, "asked {asked} times");
    });
}

#[test]
fn tombstones_that_are_heard_of_after_the_lease_do_not_revive_it() {
    virtual_time::run(async {
        let (mut held, deadline) = shortly_before_the_end().await;
        // They are healed before the lease ends and broken before they have said so.
        held.changes_until(29.65).await;
        for node in [3, 4] {
            assert_eq!(held.fake(node).healed, 1);
            held.fake(node).broken = true;
        }
        let before = held.fake(3).asked.len();
        let changes = held.changes_until(33.0).await;
        assert_eq!(lost(&changes), Some(Loss::Broken));
        assert_eq!(held.holding.deadline(), deadline, "revived: {changes:?}");
        let asked = held.fake(3).asked.len() - before;
        assert!(asked < 20, "asked {asked} times");
    });
}

#[test]
fn a_majority_that_forgot_ends_it_at_once_and_the_place_is_shielded() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.forget(0);
        held.forget(2);
        let changes = held.changes_until(10.5).await;
        assert_eq!(lost(&changes), Some(Loss::Absent));
        assert!(changes.iter().any(|change| matches!(change, Change::Shielded(_))), "{changes:?}");
    });
}

#[test]
fn a_majority_that_is_anothers_ends_it_at_once_and_nothing_more_is_asked() {
    virtual_time::run(async {
        let mut held = hold(5, |_| ()).await;
        let other = Token::fresh();
        for node in 0..3 {
            held.fake(node).key = Some((other, Instant::NEVER));
        }
        let changes = held.changes_until(10.5).await;
        assert_eq!(lost(&changes), Some(Loss::TakenOver));
        let asked = held.fake(0).asked.len();
        held.changes_until(60.0).await;
        assert_eq!(held.fake(0).asked.len(), asked);
    });
}

#[test]
fn a_lying_node_is_one_vote_missing() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.fake(0).mood = Mood::Lying;
        let changes = held.changes_until(100.0).await;
        assert_eq!(lost(&changes), None);
        assert!(changes.iter().any(is_trouble), "{changes:?}");
        assert!(held.left() > Duration::from_secs(15));
    });
}

#[test]
fn a_strike_shortens_the_lease_to_what_the_others_gave() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.fake(2).mood = Mood::Silent;
        held.changes_until(10.5).await;
        let first = held.begun + TTL;
        assert!(held.holding.deadline() > first, "two of three were renewed");
        held.fake(0).key = Some((Token::fresh(), Instant::NEVER));
        let changes = held.changes_until(20.5).await;
        // Of the three one is another's, and the silent one's tenure is still that of the beginning.
        assert_eq!(lost(&changes), None);
        assert!(held.holding.deadline() < first, "{changes:?}");
        assert!(changes.iter().any(|change| matches!(change, Change::Extended(until) if *until < first)));
    });
}

#[test]
fn failing_nodes_are_tried_until_there_is_no_time_left_and_nothing_is_deleted() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        for node in 0..3 {
            held.fake(node).mood = Mood::Away;
        }
        held.changes_until(29.5).await;
        let asked = held.fake(0).asked.len();
        // From ten seconds on, every 125 to 250 ms.
        assert!((19 * 4..19 * 8 + 20).contains(&asked), "{asked}");
        assert!((0..3).all(|node| held.fake(node).key.is_some()));
    });
}

#[test]
fn a_node_that_is_gone_for_long_is_asked_less_and_less() {
    virtual_time::run(async {
        let mut held = hold(3, |_| ()).await;
        held.fake(1).mood = Mood::Away;
        held.changes_until(3600.0).await;
        let asked = held.fake(1).asked.len();
        assert!((360..800).contains(&asked), "{asked} times in an hour");
        held.fake(1).mood = Mood::Well;
        held.changes_until(3615.0).await;
        assert!(held.fake(1).key.is_some(), "healed within a renewal's time");
    });
}

#[test]
fn a_node_that_missed_the_vote_gets_the_key_later() {
    virtual_time::run(async {
        let mut held = hold(5, |fakes| {
            fakes[0].borrow_mut().mood = Mood::Away;
            fakes[1].borrow_mut().mood = Mood::Silent;
        })
        .await;
        held.fake(0).mood = Mood::Well;
        held.fake(1).mood = Mood::Well;
        held.changes_until(5.0).await;
        for node in [0, 1] {
            assert_eq!(held.fake(node).healed, 1);
        }
    });
}

#[test]
fn a_release_waits_for_no_node_that_hangs() {
    virtual_time::run(async {
        let held = hold(5, |_| ()).await;
        held.fake(4).mood = Mood::Silent;
        let begun = clock::now();
        assert_eq!(held.holding.release().await, ReleaseOutcome::Ours);
        assert_eq!(clock::now(), begun);
        assert_eq!(held.fakes[4].borrow().asked.len(), 2, "the release was sent there too");
    });
}

#[test]
fn a_minority_that_refuses_us_is_told_once_and_costs_the_lease_nothing() {
    virtual_time::run(async {
        let refusals = |changes: &[Change]| changes.iter().filter(|it| matches!(it, Change::Refused(..))).count();
        let mut held = hold(3, |_| {}).await;
        held.fake(1).mood = Mood::Refusing;
        let changes = held.changes_until(40.0).await;
        assert_eq!(refusals(&changes), 1, "{changes:?}");
        assert!(!changes.iter().any(|change| matches!(change, Change::Lost(_))), "{changes:?}");
        // The waiter has warned of this one already.
        let mut held = hold(3, |fakes| fakes[2].borrow_mut().mood = Mood::Refusing).await;
        held.holding.has_told_refusals(&[2]);
        let changes = held.changes_until(40.0).await;
        assert!(refusals(&changes) == 0 && changes.iter().any(is_trouble), "{changes:?}");
        // A majority that refuses us is a lease that runs out.
        let mut held = hold(3, |_| {}).await;
        (held.fake(0).mood, held.fake(1).mood) = (Mood::Refusing, Mood::Refusing);
        let changes = held.changes_until(40.0).await;
        assert!(
            refusals(&changes) == 2
                && !changes.iter().any(|it| matches!(it, Change::Extended(end) if *end > held.begun + TTL)),
            "{changes:?}"
        );
    });
}
