//! Giving the lock back: who confirms it, and until when it is repeated.

use super::*;
use crate::lock::last::Run;
use crate::lock::remains::Parking;

/// Returns the remains of a run with `--hold-at-least`, and of one with `--once`.
fn remains() -> [Remains; 2] {
    let minute = Duration::from_secs(60);
    let parked = Some(Parking {
        left: minute,
        span: minute,
        parks_tombstone: false,
    });
    let run = Some(Run::default());
    let (parks, succeeds) = (Remains::default(), Remains::default());
    [
        Remains { parked, ..parks },
        Remains {
            run,
            once: Some(minute),
            ..succeeds
        },
    ]
}

#[test]
fn what_a_release_leaves_is_repeated_until_a_majority_has_it() {
    for remains in remains() {
        virtual_time::run(async {
            let held = hold(3, |_| ()).await;
            for node in [1, 2] {
                held.fake(node).mood = Mood::Silent;
            }
            let fake = Rc::clone(&held.fakes[1]);
            let (released, ()) = tokio::join!(held.holding.release(&remains), async {
                Alarm::new().unwrap().reached(held.begun + TTL / 2).await;
                fake.borrow_mut().mood = Mood::Well;
            });
            assert_eq!(released, ReleaseOutcome::Ours, "{remains:?}");
        });
    }
}

#[test]
fn no_release_is_repeated_after_the_lease() {
    for remains in remains() {
        virtual_time::run(async {
            let held = hold(3, |_| ()).await;
            let (deadline, pause) = (held.holding.deadline(), held.holding.schedule.retry());
            for node in [1, 2] {
                held.fake(node).mood = Mood::Away;
            }
            let released = held.holding.release(&remains).await;
            assert!(
                matches!(released, ReleaseOutcome::Unconfirmed(_)),
                "{released:?}"
            );
            let asked = held.fakes[1].borrow().asked.clone();
            assert!(asked.is_sorted_by(|one, next| *next <= *one + pause));
            let last = *asked.last().unwrap();
            assert!(last < deadline && last + pause >= deadline, "{asked:?}");
        });
    }
}

/// The first one may have been carried out though no answer came, and another client has taken the lock
/// since. A node that was away has carried nothing out.
#[test]
fn a_release_that_comes_again_and_finds_the_lock_gone_tells_of_a_loss_only_after_an_answer() {
    let cases = [
        (Mood::Slow(TTL), false, false),
        (Mood::Slow(TTL), true, false),
        (Mood::Away, true, true),
    ];
    for (remains, (mood, is_taken, is_lost)) in remains()
        .into_iter()
        .flat_map(|it| cases.map(|case| (it.clone(), case)))
    {
        virtual_time::run(async {
            let held = hold(1, |_| ()).await;
            held.fake(0).mood = mood;
            let fake = Rc::clone(&held.fakes[0]);
            let (released, ()) = tokio::join!(held.holding.release(&remains), async {
                let soon = held.begun + Duration::from_millis(1);
                Alarm::new().unwrap().reached(soon).await;
                let mut fake = fake.borrow_mut();
                fake.mood = Mood::Well;
                if is_taken {
                    fake.key = Some((Token::fresh(), soon + TTL));
                }
            });
            match released {
                ReleaseOutcome::Unconfirmed(faults) if !is_lost => {
                    assert_eq!(faults.of(0), Some(&Fault::unheard()));
                }
                ReleaseOutcome::NotOurs(Revoked::TakenOver) if is_lost => {}
                released => panic!("{mood:?} {released:?}"),
            }
        });
    }
}

#[test]
fn no_release_is_repeated_at_a_node_that_refuses_it() {
    for remains in remains() {
        virtual_time::run(async {
            let held = hold(3, |_| ()).await;
            for node in [1, 2] {
                held.fake(node).mood = Mood::Refusing;
            }
            let begun = clock::now();
            let released = held.holding.release(&remains).await;
            assert!(
                matches!(&released, ReleaseOutcome::Unconfirmed(faults) if faults.len() == 2),
                "{released:?}"
            );
            assert!(clock::now().since(begun) < TTL / 10, "{remains:?}");
        });
    }
}

#[test]
fn a_release_that_frees_the_lock_is_sent_once() {
    virtual_time::run(async {
        let held = hold(3, |_| ()).await;
        for node in [1, 2] {
            held.fake(node).mood = Mood::Away;
        }
        let released = held.holding.release(&Remains::default()).await;
        assert!(
            matches!(released, ReleaseOutcome::Unconfirmed(_)),
            "{released:?}"
        );
        // The attempt, and the release.
        assert_eq!(held.fakes[1].borrow().asked.len(), 2);
    });
}

#[test]
fn a_node_that_could_leave_nothing_is_asked_once() {
    for remains in remains() {
        virtual_time::run(async {
            let held = hold(1, |_| ()).await;
            held.fake(0).mood = Mood::Full;
            let fake = Rc::clone(&held.fakes[0]);
            match held.holding.release(&remains).await {
                ReleaseOutcome::Unconfirmed(faults) => {
                    assert_eq!(faults.of(0).unwrap().why, "nothing could be left");
                }
                released => panic!("{released:?}"),
            }
            // The attempt, and the release.
            assert_eq!(fake.borrow().asked.len(), 2);
        });
    }
}

#[test]
fn one_node_of_three_confirms_no_release() {
    virtual_time::run(async {
        let held = hold(3, |_| ()).await;
        held.forget(1);
        held.forget(2);
        let released = held.holding.release(&Remains::default()).await;
        assert_eq!(released, ReleaseOutcome::NotOurs(Revoked::Missing));
    });
}

#[test]
fn silence_does_not_tell_that_no_run_has_succeeded() {
    virtual_time::run(async {
        let held = hold(3, |_| ()).await;
        let before = held.holding.run_before(Duration::from_secs(3600)).await;
        assert_eq!(before.unwrap().unwrap_err().iter().count(), 3);
    });
}
