//! How long an attempt whose outcome is certain waits for the other nodes.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// How long an attempt takes on five nodes in these moods.
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
