//! Stored values of any client: the value at a lock's key, a member of its queue, the name of a
//! counter.

use std::time::Duration;

use rlock::lock::blocker::Reservation;
use rlock::lock::details::LARGEST_VALUE;
use rlock::lock::key::Key;
use rlock::lock::occupant::Occupant;
use rlock::lock::queue::Waiter;
use rlock::lock::schedule::LONGEST_TTL;
use rlock::lock::token::Token;
use rlock::store::redis::names::{self, Derived, Names};
use rlock::text::duration;

use super::{is_fit_to_be_shown, shown};

pub fn hold(input: &[u8]) {
    let head = &input[..input.len().min(LARGEST_VALUE)];
    for ttl in [None, Some(Duration::MAX)] {
        if let Some(occupant) = Occupant::read(head, ttl) {
            a_value(head, &occupant);
        }
    }
    let Ok(text) = std::str::from_utf8(head) else {
        return;
    };
    if let Ok(waiter) = text.parse::<Waiter>() {
        let again: Waiter = waiter.to_string().parse().expect("a waiter is read back");
        assert_eq!(
            (again.id, again.pid, again.since),
            (waiter.id, waiter.pid, waiter.since)
        );
        is_fit_to_be_shown(&waiter.id.to_string(), 100);
        let reservation = Reservation {
            waiter: Some(waiter),
            left: Duration::ZERO,
        };
        is_fit_to_be_shown(&reservation.to_string(), shown(200));
    }
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string(), text);
    }
    for prefix in ["", "p:"] {
        if let Some(key) = names::lock_of(Derived::Fence, text, prefix) {
            assert_eq!(Names::of(&key).derived(Derived::Fence), text);
            assert_eq!(Key::new(prefix, key.typed()), Ok(key.clone()));
            is_fit_to_be_shown(&key.to_string(), shown(text.len()));
        }
    }
}

fn a_value(head: &[u8], occupant: &Occupant) {
    is_fit_to_be_shown(&occupant.told(u64::MAX), shown(head.len()));
    assert!(
        occupant
            .lease_length()
            .is_none_or(|length| length <= LONGEST_TTL)
    );
    let Some((token, details)) = occupant.holder() else {
        return;
    };
    let written = |value: String| {
        assert!(value.len() <= LARGEST_VALUE, "{} bytes", value.len());
        Occupant::read(value.as_bytes(), None).expect("a value of ours is read")
    };
    // Written again it is read as the same lock, and its tombstone as the same lock, broken. A parked
    // one is written by another word.
    let own = rlock::lock::details::Details {
        broken: None,
        parked: false,
        ..details.clone()
    }
    .fitted();
    assert_eq!(own.clone().fitted(), own);
    assert_eq!(written(own.value(token)).holder(), Some((token, &own)));
    let entombed = written(details.tombstone(token, "me@here".into()));
    let (whose, buried) = entombed.holder().expect("a tombstone of a lock is one");
    assert_eq!(
        (whose, buried.broken.clone(), buried.ttl, buried.n),
        (token, Some("me@here".into()), details.ttl, details.n)
    );
    let _ = duration::show_rounded(Duration::from_millis(details.ttl));
}
