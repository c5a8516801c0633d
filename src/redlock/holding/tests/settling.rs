//! How long an attempt whose outcome is certain waits for the other nodes.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// How long an attempt takes on five nodes in these moods, of which the host knows that the nodes `known` hang.
async fn takes(moods: [Mood; 5], known: &[usize]) -> (Duration, Held) {
    let held = hold(5, |fakes| {
        for (fake, mood) in fakes.iter().zip(moods) {
            fake.borrow_mut().mood = mood;
        }
        for node in known {
            fakes[*node].borrow_mut().hanging = Some(0);
        }
    });
    let begun = clock::now();
    let held = held.await;
    (clock::now().since(begun), held)
}

#[test]
fn a_node_that_hangs_is_waited_for_and_then_remembered() {
    virtual_time::run(async {
        let moods = [Mood::Well, Mood::Well, Mood::Well, Mood::Slow(3 * MS), Mood::Silent];
        let (time, held) = takes(moods, &[]).await;
        assert_eq!(time, 15 * MS);
        assert_eq!([3, 4].map(|node| held.fake(node).hanging), [None, Some(1)]);
    });
}

#[test]
fn a_node_that_is_known_to_hang_is_not_waited_for_but_the_others_are() {
    virtual_time::run(async {
        let moods = [Mood::Well, Mood::Well, Mood::Well, Mood::Slow(3 * MS), Mood::Silent];
        let (time, held) = takes(moods, &[4]).await;
        assert_eq!(time, 3 * MS);
        assert_eq!([3, 4].map(|node| held.fake(node).hanging), [None, Some(0)]);
        let all_quick = [Mood::Well, Mood::Well, Mood::Well, Mood::Well, Mood::Silent];
        assert_eq!(takes(all_quick, &[4]).await.0, Duration::ZERO);
    });
}

#[test]
fn what_is_remembered_decides_nothing() {
    virtual_time::run(async {
        // The majority needs two of those that are known to hang.
        let moods = [Mood::Well, Mood::Silent, Mood::Silent, Mood::Slow(30 * MS), Mood::Slow(40 * MS)];
        let (time, _) = takes(moods, &[1, 2, 3, 4]).await;
        assert_eq!(time, 40 * MS);
        // The late grant of one that is not waited for counts.
        let moods = [Mood::Well, Mood::Well, Mood::Well, Mood::Slow(5 * MS), Mood::Away];
        let (time, mut held) = takes(moods, &[3]).await;
        assert_eq!(time, Duration::ZERO);
        held.changes_until(1.0).await;
        held.fake(0).mood = Mood::Away;
        assert_eq!(lost(&held.changes_until(100.0).await), None);
        assert_eq!(held.fake(3).healed, 0);
    });
}
