//! Renewals on paused time, against nodes that are slow, lost, lying or healing. Nothing here waits
//! for real.

mod healing;
mod losing;
mod releasing;
mod renewing;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::clock::virtual_time;
use crate::hold::attempt::Attempt;
use crate::lock::lease::Loss;
use crate::lock::messages::Observation;
use crate::lock::queue::{Waiter, Wake};
use crate::lock::remains::Remains;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::store::{
    Answer, Hint, Keep, Look, Node, Queue, Release, ReleaseReply, TakeAway, Vote, Wakes,
};

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
    /// Whether the holder listens, and its channel.
    listens: bool,
    calls: Rc<tokio::sync::Notify>,
    healed: u32,
    renewed: u32,
    /// How often it was waited for to get what it was sent.
    settled: u32,
    /// When it was asked anything.
    asked: Vec<Instant>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
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
    /// Hides its counter, which the user may not read.
    Hiding,
    /// Can leave nothing behind a release.
    Full,
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
            Mood::Away => Box::pin(std::future::ready(failed(Fault::new(
                FaultKind::Unavailable,
                "away",
            )))),
            Mood::Refusing => Box::pin(std::future::ready(failed(Fault::new(
                FaultKind::Refused,
                "NOAUTH",
            )))),
            Mood::Lying if lie.is_some() => Box::pin(std::future::ready(lie.unwrap())),
            Mood::Well | Mood::Hiding | Mood::Lying | Mood::Full => {
                Box::pin(std::future::ready(what(&mut fake, now)))
            }
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

impl FakeNode {
    fn heal(&self, keep: &Keep, told: Option<u64>) -> Pending<Renewal> {
        let Keep {
            token, fence, term, ..
        } = *keep;
        let what = move |fake: &mut Fake, now| {
            let standing = match fake.key {
                Some((holder, _)) if holder == token && fake.broken => {
                    fake.key = Some((token, now + term.ttl()));
                    return Renewal::Broken(Some(term.end(now)), "me".into());
                }
                Some((holder, _)) if holder == token => {
                    Renewal::Renewed(term.end(now), Some(fake.counter))
                }
                Some((_, ends)) => {
                    let left = Some(ends.since(now));
                    return Renewal::NotOurs(Revoked::TakenOver, None, left);
                }
                None if fake.counter > fence.get() && told != Some(fake.counter) => {
                    return Renewal::NotOurs(Revoked::Missing, Some(fake.counter), None);
                }
                None => {
                    let counter = (fake.mood != Mood::Hiding).then_some(fake.counter);
                    Renewal::Healed(term.end(now), counter)
                }
            };
            fake.healed += u32::from(matches!(standing, Renewal::Healed(..)));
            fake.counter = fake.counter.max(fence.get());
            fake.key = Some((token, now + term.ttl()));
            standing
        };
        self.ask(
            what,
            Renewal::Failed,
            Some(Renewal::NotOurs(Revoked::TakenOver, None, None)),
        )
    }
}

impl Node for FakeNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let (token, term, hint) = (claim.token, claim.term, claim.fence_hint);
        let answer = self.ask(
            move |fake, now| {
                if fake.key.is_some() {
                    return Vote::Failed(Fault::new(FaultKind::Unavailable, "held"));
                }
                let fence = Fence::after(fake.counter, hint).unwrap();
                (fake.counter, fake.key) = (fence.get(), Some((token, now + term.ttl())));
                Vote::Granted {
                    until: term.end(now),
                    fence,
                    index: 0,
                }
            },
            Vote::Failed,
            None,
        );
        Box::pin(async move { answer.await.into() })
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        let Keep {
            token, fence, term, ..
        } = *keep;
        if let Some(heal) = &keep.heal {
            return self.heal(keep, heal.told);
        }
        let what = move |fake: &mut Fake, now| match fake.key {
            Some((holder, _)) if holder == token && fake.broken => {
                Renewal::Broken(None, "me".into())
            }
            Some((holder, _)) if holder == token => {
                fake.renewed += 1;
                fake.counter = fake.counter.max(fence.get());
                fake.key = Some((token, now + term.ttl()));
                Renewal::Renewed(term.end(now), Some(fake.counter))
            }
            Some(_) => Renewal::NotOurs(Revoked::TakenOver, None, None),
            None => Renewal::NotOurs(Revoked::Missing, Some(fake.counter), None),
        };
        self.ask(
            what,
            Renewal::Failed,
            Some(Renewal::NotOurs(Revoked::TakenOver, None, None)),
        )
    }

    fn look(&self, _look: Look) -> Pending<Result<Observation, Fault>> {
        Box::pin(std::future::pending())
    }

    fn take_away(&self, _how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        Box::pin(std::future::pending())
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        let token = release.token;
        let what = move |fake: &mut Fake, _| match fake.key {
            Some((holder, _)) if holder == token => {
                fake.key = None;
                if fake.mood == Mood::Full {
                    let fault = Fault::new(FaultKind::Unavailable, "nothing could be left");
                    return ReleaseReply::Gone(fault);
                }
                ReleaseReply::Released
            }
            Some(_) => ReleaseReply::NotOurs(Revoked::TakenOver),
            None => ReleaseReply::NotOurs(Revoked::Missing),
        };
        self.ask(what, ReleaseReply::Failed, None)
    }

    fn next(&self) -> Pending<Hint> {
        let fake = self.fake.borrow();
        let (calls, breaks) = (Rc::clone(&fake.calls), Rc::clone(&fake.breaks));
        Box::pin(async move {
            tokio::select! {
                () = calls.notified() => Hint::Woken(Wake::YourTurn),
                () = breaks.notified() => Hint::Changed,
            }
        })
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn settled(&self, _limit: Duration) -> Pending<bool> {
        self.fake.borrow_mut().settled += 1;
        Box::pin(std::future::ready(true))
    }
}

impl Queue for FakeNode {
    fn leave(&self, _waiter: &Waiter) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn announce(&self, _claim: &Claim) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn listen(&self, _token: Token) {
        self.fake.borrow_mut().listens = true;
    }

    fn wakes(&self) -> Wakes {
        if self.fake.borrow().listens {
            Wakes::Yes
        } else {
            Wakes::No
        }
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

async fn hold_guarded(
    count: usize,
    guard: Option<Duration>,
    prepare: impl FnOnce(&[Rc<RefCell<Fake>>]),
) -> Held {
    let fakes: Vec<Rc<RefCell<Fake>>> = (0..count).map(|_| Rc::default()).collect();
    prepare(&fakes);
    let node = |(index, fake): (usize, &Rc<RefCell<Fake>>)| -> Box<dyn Node> {
        Box::new(FakeNode {
            name: format!("node{index}"),
            fake: Rc::clone(fake),
        })
    };
    let nodes: Nodes = fakes.iter().enumerate().map(node).collect();
    let begun = clock::now();
    let wishes = ScheduleOptions {
        ttl: TTL,
        drift: 0.01,
        node_timeout: None,
        kill_after: None,
    };
    let schedule = Schedule::new(wishes).unwrap();
    let claim = Claim {
        fence_hint: 100,
        guarded: guard,
        ..Claim::example(schedule.term(), None)
    };
    let mut attempt = Attempt::start(&nodes, claim, schedule, RestartGuard::Off).unwrap();
    let Ok(fence) = attempt.tally().await else {
        panic!("not won")
    };
    Held {
        holding: attempt.hold(fence),
        fakes,
        begun,
    }
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

    /// An operator breaks the lock at `node`, which tells the holder if that listens.
    fn break_at(&self, node: usize) {
        let mut fake = self.fake(node);
        fake.broken = true;
        if fake.listens {
            fake.calls.notify_one();
        }
    }

    fn left(&self) -> Duration {
        self.holding.deadline().since(clock::now())
    }
}

fn lost(changes: &[Change]) -> Option<Loss> {
    changes.iter().find_map(|change| {
        if let Change::Lease(LeaseChange::Lost(loss)) = change {
            Some(*loss)
        } else {
            None
        }
    })
}

fn is_trouble(change: &Change) -> bool {
    matches!(change, Change::Trouble(..))
}

/// Five nodes were gone or silent until just before the lease ends. One renews in time. Two come
/// back empty and slow: they are healed before the end, and heard after it. With the time of that
/// end.
async fn shortly_before_the_end() -> (Held, Instant) {
    let mut held = hold(5, |_| ()).await;
    held.changes_until(9.0).await;
    let deadline = held.holding.deadline();
    for (node, mood) in [
        Mood::Away,
        Mood::Silent,
        Mood::Silent,
        Mood::Away,
        Mood::Away,
    ]
    .into_iter()
    .enumerate()
    {
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

const MS: Duration = Duration::from_millis(1);

/// Returns the time that an attempt takes on five nodes in these moods.
async fn takes(moods: [Mood; 5]) -> (Duration, Held) {
    let held = hold(5, |fakes| {
        for (fake, mood) in fakes.iter().zip(moods) {
            fake.borrow_mut().mood = mood;
        }
    });
    let begun = clock::now();
    let held = held.await;
    (clock::now().since(begun), held)
}

#[test]
fn a_node_that_hangs_is_waited_for_as_long_as_any_other() {
    virtual_time::run(async {
        let moods = [
            Mood::Well,
            Mood::Well,
            Mood::Well,
            Mood::Slow(3 * MS),
            Mood::Silent,
        ];
        assert_eq!(takes(moods).await.0, 15 * MS);
        let moods = [
            Mood::Well,
            Mood::Well,
            Mood::Well,
            Mood::Well,
            Mood::Slow(MS),
        ];
        assert_eq!(takes(moods).await.0, MS);
        // The outcome is certain with the third answer.
        let moods = [
            Mood::Well,
            Mood::Silent,
            Mood::Silent,
            Mood::Slow(30 * MS),
            Mood::Slow(40 * MS),
        ];
        assert_eq!(takes(moods).await.0, 55 * MS);
    });
}

#[test]
fn a_late_grant_that_was_not_waited_for_counts() {
    virtual_time::run(async {
        let moods = [
            Mood::Well,
            Mood::Well,
            Mood::Well,
            Mood::Slow(20 * MS),
            Mood::Away,
        ];
        let (time, mut held) = takes(moods).await;
        assert_eq!(time, 15 * MS);
        held.changes_until(1.0).await;
        held.fake(0).mood = Mood::Away;
        assert_eq!(lost(&held.changes_until(100.0).await), None);
        assert_eq!(held.fake(3).healed, 0);
    });
}
