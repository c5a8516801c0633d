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
fn a_node_that_is_known_to_hang_has_less_time_than_the_others() {
    virtual_time::run(async {
        let moods = [Mood::Well, Mood::Well, Mood::Well, Mood::Slow(3 * MS), Mood::Silent];
        let (time, held) = takes(moods, &[4]).await;
        assert_eq!(time, 3 * MS);
        assert_eq!([3, 4].map(|node| held.fake(node).hanging), [None, Some(0)]);
        let all_quick = [Mood::Well, Mood::Well, Mood::Well, Mood::Well, Mood::Silent];
        assert_eq!(takes(all_quick, &[4]).await.0, 2 * MS);
        // As long as the outcome took, if that is more.
        let all_slow = [3, 4, 5, 7].map(|ms| Mood::Slow(ms * MS));
        let [a, b, c, d] = all_slow;
        assert_eq!(takes([a, b, c, d, Mood::Silent], &[3, 4]).await.0, 10 * MS);
    });
}

#[test]
fn a_node_that_serves_again_is_heard_and_forgotten() {
    virtual_time::run(async {
        let moods = [Mood::Well, Mood::Well, Mood::Well, Mood::Well, Mood::Slow(MS)];
        let (time, held) = takes(moods, &[4]).await;
        assert_eq!((time, held.fake(4).hanging), (MS, None));
    });
}

#[test]
fn what_is_remembered_decides_nothing() {
    virtual_time::run(async {
        // The majority needs two of those that are known to hang.
        let moods = [Mood::Well, Mood::Silent, Mood::Silent, Mood::Slow(30 * MS), Mood::Slow(40 * MS)];
        let (time, _) = takes(moods, &[1, 2, 3, 4]).await;
        assert_eq!(time, 55 * MS);
        // The late grant of one that has not been waited for counts.
        let moods = [Mood::Well, Mood::Well, Mood::Well, Mood::Slow(5 * MS), Mood::Away];
        let (time, mut held) = takes(moods, &[3]).await;
        assert_eq!((time, held.fake(3).hanging), (2 * MS, Some(0)));
        held.changes_until(1.0).await;
        assert_eq!(held.fake(3).hanging, None);
        held.fake(0).mood = Mood::Away;
        assert_eq!(lost(&held.changes_until(100.0).await), None);
        assert_eq!(held.fake(3).healed, 0);
    });
}
